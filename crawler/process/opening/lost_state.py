"""Detects lost state: the last writes of a process may be gone without a trace in any file.

Whenever the store is opened, and at every clean end, a state number is written to the store and synced. The
number is then also written to a file outside the folder (`DIR/p0.begun`). So these losses are all detected: a
missing log, a log that was cut off before that number, and a store that was restored from an earlier version.
`crawl/lost_processes.py` finds stores that are missing as a whole.
"""

from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError
from crawler.storage.keys import CLEAN, STATE
from crawler.storage.kv import REMEDY, Batch, KeyValue
from crawler.storage.reshard import load, pack


def state_of(store: KeyValue, folder: Path) -> int:
    """Return the number of the state in which the process in `folder` was left.

    Raises:
        DamageError: a later number was noted, so the store has lost later writes.
    """
    state = load(store, STATE, int, 0)
    if state < CrawlDirectory(folder.parent).state(folder.name):
        raise DamageError(f"store: it is older than the last run of this process; {REMEDY}")
    return state


def stage_state(batch: Batch, state: int, *, clean: bool) -> None:
    """Add the number of a new state to `batch`, the first or the last batch of a run; the batch begins the state."""
    if clean:
        batch.put(CLEAN, b"1")
    else:
        batch.delete(CLEAN)
    batch.put(STATE, pack(state))
