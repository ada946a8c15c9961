"""State of a process that is gone although no file says so: its store, or what was written there last.

Every opening and every clean end gives the store a number, synced. Then the number is
noted outside of the folder (`DIR/p0.begun`). So a log that is gone, or cut before that
number, and a store of an earlier state are not taken for all there is.
"""

from pathlib import Path

from crawler.crawl.directory import BEGUN, CrawlDirectory
from crawler.errors import DamageError
from crawler.storage.keys import CLEAN, ENDED, STATE
from crawler.storage.kv import REMEDY, Batch, KeyValue
from crawler.storage.reshard import load, pack


def check_for_loss(folder: Path) -> None:
    """Refuse to begin anew where a process has begun before and its store is gone.

    Raises:
        DamageError: it is.
    """
    store = folder / "store"
    if store.exists() and any(store.iterdir()):
        return
    begun = folder.with_name(folder.name + BEGUN).exists()
    if begun or any(next(folder.glob(kept), None) is not None for kept in ("warc/*.gz*", "due/*.run")):
        raise DamageError(
            f"{store}: is missing, though the crawl was begun; `crawler check --repair` makes it anew from what is left"
        )


def state_of(store: KeyValue, folder: Path) -> int:
    """The number of the state in which the process in `folder` was left.

    Raises:
        DamageError: a later one was noted: its store is of an earlier state.
    """
    state = load(store, STATE, int, 0)
    if state < CrawlDirectory(folder.parent).state(folder.name):
        raise DamageError(f"store: it is of an earlier state than it was left in; {REMEDY}")
    return state


def stage_state(batch: Batch, state: int, *, clean: bool) -> None:
    """Let `batch`, the first or the last of a run, say which state begins with it."""
    if clean:
        batch.put(CLEAN, b"1")
        batch.delete(ENDED)
    else:
        batch.delete(CLEAN)
    batch.put(STATE, pack(state))
