"""Reshards the known URLs.

The known URLs in the bucket ranges of a new process are collected and written as one run.
"""

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from crawler.config import DueConfig
from crawler.due.eliminator import Appended, Eliminator
from crawler.due.plans import Flushed
from crawler.due.run_list import Manifest
from crawler.due.runs import DiskRuns
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS, DUE_RUNS, PAGE
from crawler.storage.reshard import NewProcess, OldProcess, load, pack


class ReshardCounters(msgspec.Struct, frozen=True):
    """Counters of a new process: the number of links that reached its DUE, and how many of these were new."""

    to_due: int
    new: int


def manifest_of(source: OldProcess) -> Manifest | None:
    """Return the manifest of an old process, or None if the process has never flushed."""
    return load(source.store, DUE_RUNS, Manifest | None, None)  # type: ignore[arg-type]


def open_due(source: OldProcess, config: DueConfig, *, check_value: int, method: str) -> Eliminator | None:
    """Open the DUE of an old process for reading; return None if the process has never flushed."""
    if manifest_of(source) is None:
        return None
    return Eliminator(source.folder, source.store, config, check_value=check_value, method=method)


def move(to: NewProcess, dues: Mapping[str, Eliminator | None]) -> ReshardCounters:
    """Write the run, the manifest and the counters of a new process.

    The process's pages and frontier have already been copied.
    """
    manifests = [manifest for source in to.sources if (manifest := manifest_of(source)) is not None]
    copied = to.copied[PAGE]
    if not manifests:
        return ReshardCounters(0, copied)
    manifest = Manifest(manifests[0].method, manifests[0].check_value)
    new = sum(len(keys) for keys in _known(to, dues))
    if new:
        run = DiskRuns(to.folder / "due", []).write(_known(to, dues), new, step="reshard")
        manifest.runs.append(run.entry)
        run.close()
    flushed = [load(source.store, DUE_FLUSHED, Flushed, Flushed()) for source in to.sources]
    known = sum(each.known for each in flushed) if to.heir else 0
    to.put(DUE_RUNS, pack(manifest))
    to.put(DUE_LINKS, pack(Appended(0, known + new)))
    to.put(DUE_FLUSHED, pack(Flushed(0, known, new)))
    return ReshardCounters(known + new, new)


def _known(to: NewProcess, dues: Mapping[str, Eliminator | None]) -> Iterator[np.ndarray]:
    """Yield the known fingerprints of the new process's buckets, ascending, in chunks."""
    for source, first, end in to.pieces:
        due = dues[source.name]
        if due is not None:
            yield from due.known_set.slice(first, end)
