"""What every command asks first: the crawl directory is of the present format, or it is brought to it.

    directory without a number  ─► 0 ─► settings ─► 1 ─► plain runs ─► 2 ─► marks ─► 3
    ─► refresh records ─► 4 = FORMAT

The number is noted after each step, durably, and each step may be done twice, so an
upgrade that was killed goes on at the next command. Nothing else is at work meanwhile:
the locks of all processes are held.

To change what is stored: write a step here, raise `FORMAT` in `crawl/directory.py`, and put
a small directory of the former format into `tests/upgrade/data`. Stages read the present
form only.
"""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from crawler.crawl.directory import FORMAT, CrawlDirectory
from crawler.crawl.journal import Journal, drop_unfinished, keep_journal, refuse_cut_off
from crawler.errors import BusyError, DirectoryError, StoreError
from crawler.storage.files import Lock, sync_directory
from crawler.upgrade.former_settings import renew_settings
from crawler.upgrade.marks import renew_marks
from crawler.upgrade.plain_runs import code_runs
from crawler.upgrade.refresh_records import lengthen_refresh_records

log = logging.getLogger("crawler")

STEPS: tuple[Callable[[CrawlDirectory], None], ...] = (
    renew_settings,
    code_runs,
    renew_marks,
    lengthen_refresh_records,
)
assert len(STEPS) == FORMAT
FORMER_JOURNAL = "reshard.json"  # of a reshard, before there was one journal for all


def ready(directory: CrawlDirectory, finishing: str = "", subject: str = "") -> None:
    """Bring the directory to the present format; refuse one that another command than `finishing` is changing.

    A directory without a crawl is ready.

    Raises:
        DirectoryError: a newer crawler wrote it, a change of it was cut off, or it cannot be written.
        BusyError: a process of an earlier version has it.
        ConfigError, DamageError: its crawl.toml or a store cannot be read.
        StoreError: the disk failed; the next command goes on.
    """
    if not directory.exists():
        return
    number = directory.format()
    if number < FORMAT:
        _adopt_journal(directory)
    refuse_cut_off(directory.path, finishing, subject)
    drop_unfinished(directory.path)
    if number < FORMAT and finishing != "reshard":  # which is finished first
        _upgrade(directory, number)


def _upgrade(directory: CrawlDirectory, number: int) -> None:
    try:
        with contextlib.ExitStack() as held:
            for lock in [directory.path / "supervisor.lock", *_process_locks(directory)]:
                held.enter_context(Lock(lock, "upgrade", brief=True))
            for step in STEPS[directory.format() :]:  # another command may have been quicker
                step(directory)
                number = directory.format() + 1
                directory.note_format(number)
    except BusyError as error:
        raise BusyError(
            f"{error}; it is stored in format {number}, and is upgraded when nothing uses it"
        ) from error
    except (PermissionError, StoreError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, PermissionError):
            raise DirectoryError(
                f"{directory.path}: is stored in format {number} and must be upgraded to {FORMAT}, "
                f"but this user may not write there: {error}"
            ) from error
        raise
    log.info("%s is stored in format %d now", directory.path, FORMAT)


def _process_locks(directory: CrawlDirectory) -> list[Path]:
    return [directory.process(name) / "node.lock" for name in directory.process_names()]


def _adopt_journal(directory: CrawlDirectory) -> None:
    """Let the one journal say what that of a reshard alone says."""
    path = directory.path / FORMER_JOURNAL
    if path.exists():
        facts = msgspec.json.decode(path.read_bytes(), type=dict)
        keep_journal(directory.path, Journal("reshard", facts=facts))
        path.unlink()
        sync_directory(directory.path)
