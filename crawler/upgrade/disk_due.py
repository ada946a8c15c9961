"""Step 5: the known URLs are always in runs on disk.

The setting `due.method` was dropped from crawl.toml. With `due.method = "memory"`, the known URLs were in no
file: every start took them from the page records and the queues. This step writes the known URLs as one run.
The list of runs (`d/runs`) no longer says where the known URLs are.

Each store is upgraded in one batch. Running the step again does not change the stores that are upgraded
already. If the step was killed between writing a run and upgrading the store, the run is written again.
Opening the DUE deletes runs that no store names.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.due.plans import Flushed
from crawler.due.runs import DiskRuns, RunEntry
from crawler.frontier.discovery.entries import decode
from crawler.storage.engines import open_store
from crawler.storage.keys import DUE_FLUSHED, DUE_RUNS, PAGE, PARKED, TODO
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.storage.reshard import load, pack
from crawler.upgrade.former_settings import renewed
from crawler.upgrade.plain_runs import FORMER_FIELDS


def keep_due_on_disk(directory: CrawlDirectory) -> None:
    """Rewrite crawl.toml and the stores of all processes.

    Raises:
        DamageError: a store or crawl.toml cannot be read.
        StoreError: the disk failed.
    """
    if directory.settings.file.exists():
        tree = renewed(directory.settings.load_former(), directory.settings.file.name)
        directory.settings.save(convert(tree))
    for name in directory.process_names():
        with closing(open_store(directory.process(name) / "store")) as store:
            _renew_store(directory.process(name), store)


def _renew_store(folder: Path, store: KeyValue) -> None:
    former = load(store, DUE_RUNS, list[Any], [])
    if len(former) != FORMER_FIELDS:  # never flushed, or upgraded already
        return
    method, check_value, in_memory, runs = former
    batch = store.batch(sync=True)
    if in_memory:
        known = _known(store)
        runs = _written(folder, known)
        flushed = load(store, DUE_FLUSHED, Flushed, Flushed())
        repeats = flushed.known + flushed.new - len(known)
        batch.put(DUE_FLUSHED, pack(Flushed(flushed.position, repeats, len(known))))
    batch.put(DUE_RUNS, pack([method, check_value, runs]))
    store.write(batch)


def _known(store: KeyValue) -> np.ndarray:
    """Return the fingerprints of all tried, to-do and parked URLs, ascending."""
    known = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(store, PAGE)}
    for prefix in (TODO, PARKED):
        known |= {decode(key, value).fingerprint for key, value in scan_prefix(store, prefix)}
    return np.sort(np.fromiter(known, np.uint64, len(known)))


def _written(folder: Path, known: np.ndarray) -> list[RunEntry]:
    if not len(known):
        return []
    run = DiskRuns(folder / "due", []).write([known], len(known), step="upgrade")
    run.close()
    return [run.entry]
