"""Checks the format of a crawl directory and upgrades the directory if needed; every command calls this first.

The number of the format is written durably after each step, and each step may be repeated. So after a kill,
the next command continues the upgrade. The command holds the locks of all processes, so nothing else changes
the directory in the meantime.

To change the stored format, write a step here, raise `FORMAT` in `crawl/directory.py`, and put a small
directory of the former format into `tests/upgrade/data`. The stages of a crawl read only the current format.
"""

import contextlib
import logging
from pathlib import Path

import msgspec

from crawler.crawl.directory import FORMAT, CrawlDirectory
from crawler.crawl.journal import Journal, drop_unfinished, keep_journal, load_journal, refuse_cut_off
from crawler.errors import BusyError, DirectoryError, StoreError
from crawler.storage.files import Lock, sync_directory

log = logging.getLogger("crawler")

# the name of the reshard's journal in directories that are older than the common journal
FORMER_JOURNAL = "reshard.json"


def opened(path: Path, finishing: str = "", subject: str = "") -> CrawlDirectory:
    """Return the directory of an existing crawl, after `ready` has upgraded it.

    Raises:
        DirectoryError: there is no crawl, or `ready` refuses the directory.
    """
    directory = CrawlDirectory(path)
    directory.require()
    ready(directory, finishing, subject)
    return directory


def ready(directory: CrawlDirectory, finishing: str = "", subject: str = "") -> None:
    """Upgrade the directory to the current format.

    Complete a reshard that was interrupted. Refuse the directory while another command than `finishing` is
    unfinished. A directory without a crawl needs no upgrade.

    Raises:
        DirectoryError: a newer crawler wrote it, a change of it was interrupted, or it cannot be written.
        BusyError: a process of an earlier version uses it.
        ConfigError, DamageError: its crawl.toml or a store cannot be read.
        StoreError: the disk failed; the next command continues.
    """
    if not directory.exists():
        return
    number = directory.format()
    if number < FORMAT:
        _adopt_journal(directory)
    _finish_switch(directory)
    refuse_cut_off(directory.path, finishing, subject)
    drop_unfinished(directory.path)
    if number < FORMAT:
        _upgrade(directory, number)


def _finish_switch(directory: CrawlDirectory) -> None:
    """Complete a reshard that was interrupted."""
    journal = load_journal(directory.path)
    if journal is not None and journal.command == "reshard":
        from crawler.crawl.switch import finish  # imported only here, because the import is slow

        if finish(directory):
            log.warning("%s: finished a reshard that was interrupted", directory.path)


def _upgrade(directory: CrawlDirectory, number: int) -> None:
    from crawler.upgrade.steps import STEPS  # imported only here, because most directories need no upgrade

    try:
        with contextlib.ExitStack() as held:
            processes = [directory.process(name) / "node.lock" for name in directory.process_names()]
            for lock in [directory.path / "supervisor.lock", *processes]:
                held.enter_context(Lock(lock, "upgrade", brief=True))
            for step in STEPS[directory.format() :]:  # another command may have upgraded the directory
                step(directory)
                number = directory.format() + 1
                directory.note_format(number)
    except BusyError as error:
        raise BusyError(f"{error}; its format is {number}; it is upgraded when no process uses it") from error
    except (PermissionError, StoreError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, PermissionError):
            raise DirectoryError(
                f"{directory.path}: has format {number} and must be upgraded to {FORMAT}, "
                f"but this user may not write there: {error}"
            ) from error
        raise
    log.info("%s: upgraded to format %d", directory.path, FORMAT)


def _adopt_journal(directory: CrawlDirectory) -> None:
    """Copy the journal that `reshard` kept in earlier versions to the common journal."""
    path = directory.path / FORMER_JOURNAL
    if path.exists():
        facts = msgspec.json.decode(path.read_bytes(), type=dict)
        keep_journal(directory.path, Journal("reshard", facts=facts))
        path.unlink()
        sync_directory(directory.path)
