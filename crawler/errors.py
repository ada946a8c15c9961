"""Errors that the outside world can cause, each with the exit code of the command.

A bug of the crawler raises an `AssertionError` or a `RuntimeError`. An error that a server, a peer, a disk or
a configuration causes raises a `CrawlerError`. The message of a `CrawlerError` is one line, which says what
failed, where, and what to do.

Data from the web may trigger a bug of the crawler or of a library. A bug that a page triggers must neither
end the process nor go unnoticed. So the task for the page ends with the outcome `internal_error`, which is
counted. `Unexpected` logs one traceback for each pair of an exception type and a place in the code. So a
million pages with the same bug cause one traceback.
"""

import errno
import logging
from collections.abc import Container
from traceback import walk_tb

log = logging.getLogger("crawler")

# the number of different types and places whose exceptions are logged; further ones are only counted
PLACES_MAX = 1000


def reason_of(error: Exception) -> str:
    """Return the reason of an error for a message that names the file: an `OSError` repeats its number and path.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "seeds.txt"))
    'No such file or directory'
    """
    return getattr(error, "strerror", None) or str(error)


class CrawlerError(Exception):
    """The base class of all expected errors. `exit_code` is the exit code of the command.

    >>> import crawler
    >>> try:
    ...     crawler.configure({"crawl": {"max_pages": "many"}})
    ... except crawler.CrawlerError as error:
    ...     print(error.exit_code)
    2
    """

    exit_code = 1


class UsageError(CrawlerError):
    """The command line, or the caller of the Python API, asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key is unknown, or its value cannot be used.

    `key` is the path of the key (`section.key`), which the message contains. It is "" if the error concerns
    no single key.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def bad_setting(key: str, what: str) -> ConfigError:
    """Return the error for a key whose value cannot be used. `Layers.naming` adds the origin of the value."""
    return ConfigError(f"configuration: {key}: {what}", key)


class DirectoryError(CrawlerError):
    """The crawl directory is locked or damaged, or was created by another version or with another fingerprint seed."""

    exit_code = 3


class DamageError(DirectoryError):
    """A stored file or value is damaged; the message names it."""


class ShippedError(DamageError):
    """A segment is only in object storage. `crawler ship --fetch` copies it back."""


class BehindError(DamageError):
    """A process has lost links that it had confirmed to `peer`, because its store is in an earlier state."""

    def __init__(self, message: str, peer: str = "") -> None:
        super().__init__(message)
        self.peer = peer


class NoSeedError(CrawlerError):
    """None of the seeds could be fetched."""

    exit_code = 4


class NoCopyError(CrawlerError):
    """The crawl has no copy of a page, or none that may be shown."""

    exit_code = 4


class StoreError(CrawlerError):
    """The disk is full or failing, or file descriptors or memory ran out. Restart the crawl when this has changed."""

    exit_code = 75


class ObjectStoreError(CrawlerError):
    """Object storage cannot be reached, or refuses an operation.

    Files whose upload was not confirmed stay on this disk.
    """

    exit_code = 75


class ObjectPlaceError(ObjectStoreError):
    """The bucket does not exist, or the storage rejects the credentials: a mistake in the URL or the environment.

    To try again does not help.
    """

    exit_code = 2


class BusyError(DirectoryError):
    """Another process uses the directory. Try again when that process has ended."""

    exit_code = 75


# A kernel makes a file system read-only when its disk fails.
_DISK_FAILS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_NOTHING_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_NO_RIGHT = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
# CPython's message if a thread gets no memory for its stack, or no process id
_NO_THREAD = "can't start new thread"


def system_failed(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that the machine cannot do the work now.

    The disk is full or failing, or the system has no file descriptor or memory left. Nothing is wrong with
    the files of the crawl.
    """
    return _caused_by(error, _DISK_FAILS | _NOTHING_LEFT) or _is_out_of_memory(error)


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD)


def blame_of_system(error: BaseException) -> CrawlerError | None:
    """Return the error to report instead of `error` if the environment is to blame; None if `error` is a bug.

    An `OSError` that no code has expected is about a file of the crawl that was removed, or that may no longer
    be read or written, if it is not about a full disk.
    """
    if isinstance(error, CrawlerError):
        return error
    if _is_out_of_memory(error):
        return StoreError("the system has no memory, or no thread, left for this process")
    if isinstance(error, OSError) and error.errno:
        return StoreError(f"{error.filename or 'the system'}: {reason_of(error)}")
    return None


def exit_code_of(error: CrawlerError) -> int:
    """Return the exit code for an error: 75 for a file that only cannot be read now, else that of the error's class."""
    if isinstance(error, DirectoryError) and system_failed(error):
        return StoreError.exit_code
    return error.exit_code


def may_not_write(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that the disk works but this user may not write there."""
    return _caused_by(error, _NO_RIGHT)


def _caused_by(error: BaseException, numbers: Container[int]) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in numbers:
            return True
        seen = seen.__cause__
    return False


class Unexpected:
    """Counts exceptions by type and by the line that raised them, in `counts`."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def note(self, error: Exception, where: str) -> str:
        """Log `error` if it is the first one of its type and place; return the error as one line of text.

        Raises:
            StoreError: the machine is to blame (`system_failed`). The work is done again after a restart, so
                nothing is lost, as it would be if the page or link were skipped.
        """
        if system_failed(error):
            raise StoreError(f"{where.partition('; ')[0]}: {reason_of(error)}") from error
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
    """Return the type of the exception, and the file and line of its innermost frame."""
    file, line = "", 0
    for frame, number in walk_tb(error.__traceback__):
        file, line = frame.f_code.co_filename, number
    return type(error).__qualname__, file, line
