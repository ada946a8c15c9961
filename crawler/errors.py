"""Errors the world can cause, each with the exit code its command ends with.

A bug of ours is an `AssertionError` or a `RuntimeError`; whatever a server, a
peer, a disk or a configuration can bring about is a `CrawlerError` with a
message of one line that says what, where, and how to mend it.
"""


class CrawlerError(Exception):
    """Base of all expected errors; `exit_code` is what the command returns."""

    exit_code = 1


class UsageError(CrawlerError):
    """The command line asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key is unknown, or its value cannot be used; the message holds its path."""


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
