"""Detects the loss of the last writes of a process, even if no file of the process shows it.

Whenever the store is opened, and at every clean end, a state number is written to the store and synced. The
number is then also written to a file outside the folder of the process (`DIR/p0.begun`). If the store later
contains a smaller number than this file, the store has lost writes. Comparing the numbers detects a missing
log, a log that was cut off before the number, and a store that was restored from an earlier version.
`crawl/lost_processes.py` detects that a whole store is missing.
"""

from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError
from crawler.storage.keys import CLEAN, RUNNING, STATE
from crawler.storage.kv import REMEDY, Batch, KeyValue
from crawler.storage.reshard import load, pack


def state_of(store: KeyValue, folder: Path) -> int:
    """Return the state number (see the module docstring) that the process in `folder` stored last.

    Raises:
        DamageError: a later number was noted, so the store has lost later writes.
    """
    state = load(store, STATE, int, 0)
    if state < CrawlDirectory(folder.parent).state(folder.name):
        raise DamageError(f"store: it is older than the last run of this process; {REMEDY}")
    return state


def stage_state(batch: Batch, state: int, *, clean: bool, run: str) -> None:
    """Add the number of a new state to `batch`, the first batch after an opening or the last one before a clean end.

    `run` is the boot id of a run of the crawl. It is "" for other commands, which leave the mark `RUNNING` as it is.
    """
    if clean:
        batch.put(CLEAN, b"1")
    else:
        batch.delete(CLEAN)
    if run and clean:
        batch.delete(RUNNING)
    elif run:
        batch.put(RUNNING, run.encode())
    batch.put(STATE, pack(state))
