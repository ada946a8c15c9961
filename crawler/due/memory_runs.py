"""Sorted runs in memory: Mercator's other DUE (`due.method = "memory"`).

Small runs are plain arrays. From a million keys on a run is split (`split_run`)
and takes less. 1e8 fingerprints take about 5.2 bytes each, twice that while they
are merged.
"""

from collections.abc import Iterable

import numpy as np

from crawler.due import plain_join, sorting
from crawler.due.fences import FENCE_STEP
from crawler.due.runs import Fingerprints, Run
from crawler.due.split_run import SplitRun

SPLIT_COUNT_MIN = 1 << 20  # 5.14 n + 2 MiB < 8 n


class ArrayRun:
    """A run as an array of uint64."""

    def __init__(self, chunks: Iterable[Fingerprints], count: int) -> None:
        self.entry = None
        self.count = count
        self.keys = np.concatenate([keys.copy() for keys in chunks])
        self.fences = self.keys[::FENCE_STEP].copy()

    def read(self, start: int, stop: int) -> Fingerprints:
        return self.keys[start:stop]

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        plain_join.join(queries, self.keys, self.fences, known)

    def rest(self) -> None:
        """Nothing: memory is where it lives."""

    def close(self) -> None:
        del self.keys

    def problems(self) -> list[str]:
        return [] if sorting.is_ascending(self.keys) else [f"{self!r}: its keys do not ascend"]

    def __repr__(self) -> str:
        return f"ArrayRun({self.count} keys)"


class MemoryRuns:
    """Makes runs in memory; nothing of them outlives the process."""

    def __init__(self, split_count_min: int = SPLIT_COUNT_MIN) -> None:
        self._split_count_min = split_count_min

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run:
        """A run of the `count` ascending keys in `chunks`. In any thread."""
        return SplitRun(chunks, count) if count >= self._split_count_min else ArrayRun(chunks, count)

    def remove(self, run: Run) -> None:
        """Nothing: memory is freed when nobody reads the run any more."""
