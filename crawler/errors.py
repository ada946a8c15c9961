"""Errors the world can cause, each with the exit code its command ends with.

A bug of ours is an `AssertionError` or a `RuntimeError`; whatever a server, a
peer, a disk or a configuration can bring about is a `CrawlerError` with a
message of one line that says what, where, and how to mend it.

What the world sends may trigger a bug of ours, or of a library. Such a bug must
not end the process, and must not pass unseen: the work at hand ends in a
counted outcome (`internal_error`), and `Unexpected` logs one traceback for each
kind and place. A million pages with the same bug write one.
"""

import errno
import logging
from traceback import walk_tb

log = logging.getLogger("crawler")

PLACES_MAX = 1000  # kinds and places remembered; beyond that nothing more is logged


class CrawlerError(Exception):
    """Base of all expected errors; `exit_code` is what the command returns."""

    exit_code = 1


class UsageError(CrawlerError):
    """The command line asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key is unknown, or its value cannot be used.

    `key` is its path (`section.key`), which the message holds; "" where no key is to blame.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def bad_setting(key: str, what: str) -> ConfigError:
    """The error of a key whose value cannot be used; `Layers.naming` says where it came from."""
    return ConfigError(f"configuration: {key}: {what}", key)


class DirectoryError(CrawlerError):
    """The crawl directory is locked, damaged, or of another version or seed."""

    exit_code = 3


class DamageError(DirectoryError):
    """A stored file or value is not what was written; the message names it."""


class NoSeedError(CrawlerError):
    """Not one seed could be fetched."""

    exit_code = 4


class StoreError(CrawlerError):
    """The disk failed: full, or an I/O error. Start again when it is mended."""

    exit_code = 75


class BusyError(DirectoryError):
    """Another process has the folder: try again when it has ended."""

    exit_code = 75


_DISK_FAILS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def disk_failed(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, says that the disk is full or fails."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _DISK_FAILS:
            return True
        seen = seen.__cause__
    return False


class Unexpected:
    """Tells exceptions apart by type and by the line that raised them; `counts` says how often each came."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def note(self, error: BaseException, where: str) -> str:
        """Log `error` if it is the first of its kind and place; return it in one line."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        key = _place(error)
        count = self.counts.get(key, 0)
        if not count and len(self.counts) >= PLACES_MAX:
            return text
        self.counts[key] = count + 1
        if not count:
            log.error("%s: unexpected %s. Please report this", where, text, exc_info=error)
        return text

    def __repr__(self) -> str:
        return f"Unexpected({len(self.counts)} places, {sum(self.counts.values())} times)"


def _place(error: BaseException) -> tuple[str, str, int]:
    """Type of the exception, and file and line of its innermost frame."""
    file, line = "", 0
    for frame, number in walk_tb(error.__traceback__):
        file, line = frame.f_code.co_filename, number
    return type(error).__qualname__, file, line
