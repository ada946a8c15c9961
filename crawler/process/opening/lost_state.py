"""Detects lost state: the store of a process, or its last writes, may be gone without a trace in any file.

Whenever the store is opened, and at every clean end, a state number is written to the store and synced. The
number is then also written to a file outside the folder (`DIR/p0.begun`). So these losses are all detected: a
missing log, a log that was cut off before that number, and a store that was restored from an earlier version.
"""

from pathlib import Path

from crawler.crawl.directory import BEGUN, CrawlDirectory
from crawler.errors import DamageError
from crawler.storage.keys import CLEAN, STATE
from crawler.storage.kv import REMEDY, Batch, KeyValue
from crawler.storage.reshard import load, pack


def check_for_loss(folder: Path) -> None:
    """Raise an error if a process has already run here but its store is gone; a new store must not replace the lost one.

    Raises:
        DamageError: the store is gone.
    """
    store = folder / "store"
    if store.exists() and any(store.iterdir()):
        return
    begun = folder.with_name(folder.name + BEGUN).exists()
    if begun or any(next(folder.glob(kept), None) is not None for kept in ("warc/*.gz*", "due/*.run")):
        raise DamageError(
            f"{store} is missing, although the crawl has begun; `crawler check --repair` rebuilds it from the other files"
        )


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
