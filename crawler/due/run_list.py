"""The list of the runs that hold the known URLs, as the store records it (`d/runs`).

Only the runs in this list are valid. The list also holds the seed and the method of the fingerprints.
Fingerprints with another seed or method could not be compared with those in the runs.
"""

from pathlib import Path

import msgspec

from crawler.due.runs import Run, RunEntry
from crawler.errors import DirectoryError
from crawler.storage.keys import DUE_RUNS
from crawler.storage.kv import Batch, KeyValue
from crawler.storage.reshard import load, pack


class Manifest(msgspec.Struct, array_like=True):
    """Value of `d/runs`: the method and the seed of the fingerprints, and the run files, oldest first."""

    method: str
    check_value: int
    runs: list[RunEntry] = []


class RunList:
    """The runs of one process.

    Args:
        store: holds `d/runs`.
        directory: is named in errors.
        method: how fingerprints are computed.
        check_value: the fingerprint of a fixed URL, which identifies the fingerprint seed.

    Raises:
        DirectoryError: the directory was created with another seed or method.
        DamageError: the list cannot be read.
    """

    def __init__(self, store: KeyValue, directory: Path, *, method: str, check_value: int) -> None:
        self._is_stored = store.get(DUE_RUNS) is not None
        self._manifest = load(store, DUE_RUNS, Manifest, Manifest(method, check_value))
        if (self._manifest.method, self._manifest.check_value) != (method, check_value):
            raise DirectoryError(f"{directory}: was created with another fingerprint seed or method")

    @property
    def entries(self) -> list[RunEntry]:
        """The runs, oldest first."""
        return self._manifest.runs

    def stage_first(self, batch: Batch) -> None:
        """Record the seed and the method of the fingerprints in the first batch of the process."""
        if not self._is_stored:
            self._put(batch)

    def add(self, run: Run, batch: Batch) -> None:
        """Record a new run in `batch`."""
        self.entries.append(run.entry)
        self._put(batch)

    def replace(self, inputs: list[RunEntry], merged: RunEntry, batch: Batch) -> None:
        """Record in `batch` that a merged run replaces its inputs."""
        first = self.entries.index(inputs[0])
        assert self.entries[first : first + len(inputs)] == inputs, "the merged runs are not in a row"
        self.entries[first : first + len(inputs)] = [merged]
        self._put(batch)

    def _put(self, batch: Batch) -> None:
        batch.put(DUE_RUNS, pack(self._manifest))
        self._is_stored = True
