"""State of a process that is gone although no file says so: its store, or what was written there last.

A store is left behind by a clean end, whose number is the last thing written to it. The
number also stands outside of the folder (`DIR/p0.begun`). So a log that is gone or was cut
between two records, or a store of an earlier state, is not taken for all there is.
"""

from pathlib import Path

from crawler.crawl.directory import BEGUN, CrawlDirectory
from crawler.errors import DamageError
from crawler.storage.keys import CLEAN, ENDS
from crawler.storage.kv import REMEDY, Batch, KeyValue
from crawler.storage.moving import load, pack


def refuse_loss(folder: Path) -> None:
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


def ends_of(store: KeyValue, folder: Path) -> int:
    """How often the process in `folder` has ended cleanly.

    Raises:
        DamageError: less often than was noted: its store is of an earlier state.
    """
    ends = load(store, ENDS, int, 0)
    if ends < CrawlDirectory(folder.parent).ends(folder.name):
        raise DamageError(f"store: it is of a state before the last clean end; {REMEDY}")
    return ends


def stage_end(batch: Batch, ends: int) -> None:
    """Let `batch`, the last of a run, say that this is clean end number `ends`."""
    batch.put(CLEAN, b"1")
    batch.put(ENDS, pack(ends))
