"""The set of known fingerprints.

The set consists of disjoint sorted runs, oldest first. Merges keep the number of runs logarithmic. Each flush
adds a run of new fingerprints. Then the newest run is merged with its older neighbours, one after the other,
as long as the next neighbour is not larger than the runs merged so far:

    runs (b = 1)    4 2 1  + 1  ->  8            8 4 1  + 1  ->  8 4 2
                      `-----'                        `---'

`due/README.md`, "Compaction", states the bounds. The paper (Broder, Najork, Wiener 2003) instead keeps one
sorted file, which every flush rewrites completely.

A set belongs to one thread. Other threads may read the runs of the set at any time, in a join or a merge,
because runs never change. A merge changes only how the set is divided into runs.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from crawler.due import sorting
from crawler.due.merging import merge
from crawler.due.run_layout import FENCE_STEP
from crawler.due.runs import Fingerprints, Run
from crawler.errors import DamageError


class RunStore(Protocol):
    """Creates and removes runs, as `DiskRuns` does. `bench/due.py` has a store in memory."""

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run: ...

    def remove(self, run: Run) -> None: ...


class KnownSet:
    """The known fingerprints, which are in the runs that are valid now.

    Args:
        store: creates new runs.
        runs: the existing runs, oldest first.
        chunk_bytes: a merge uses up to twice this much memory.
    """

    def __init__(self, store: RunStore, runs: Iterable[Run], *, chunk_bytes: int) -> None:
        self.store = store
        self.runs = list(runs)
        self._replaced: list[Run] = []
        self._chunk_bytes = chunk_bytes

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    def __contains__(self, fingerprint: int) -> bool:
        return not len(unknown(np.array([fingerprint], np.uint64), self.runs)[0])

    def add(self, run: Run) -> None:
        """Add a run of fingerprints that were not known before."""
        self.runs.append(run)

    def due_merge(self) -> list[Run]:
        """Return the neighbouring runs to merge next; the list is empty if no merge is due."""
        inputs = self.runs[_first_of_merge([run.count for run in self.runs]) :]
        return inputs if len(inputs) > 1 else []

    def merge(self, inputs: Sequence[Run]) -> Run:
        """Write the merge of the disjoint runs `inputs`. Any thread may call this.

        Raises:
            StoreError: the merged run cannot be written.
            DamageError: two inputs hold the same fingerprint.
        """
        count = sum(run.count for run in inputs)
        return self.store.write(merge(inputs, self._chunk_bytes), count, step="compaction")

    def replace(self, inputs: Sequence[Run], outcome: Run) -> None:
        """Replace `inputs` by `outcome`, and remove `inputs` from the store."""
        first = self.runs.index(inputs[0])
        assert self.runs[first : first + len(inputs)] == inputs, "the runs that were merged are not in a row"
        self.runs[first : first + len(inputs)] = [outcome]
        for run in inputs:
            self.store.remove(run)
        self._replaced += inputs

    def close_replaced(self) -> None:
        """Close the replaced runs that no thread reads any more.

        Any thread may call this function. It may take a while.
        """
        for _ in range(len(self._replaced)):
            run = self._replaced.pop()
            # A count of 2 means that only this variable and the argument of `getrefcount` refer to the run.
            # If the count is higher, the run is closed when its last reader ends.
            if sys.getrefcount(run) <= 2:
                run.close()

    def close(self) -> None:
        """Close all runs. A thread that still reads one of them fails."""
        for run in (*self.runs, *self._replaced):
            run.close()

    def slice(self, first_bucket: int, stop_bucket: int) -> Iterator[Fingerprints]:
        """Yield the fingerprints of the buckets first_bucket <= b < stop_bucket (0 to 65,536), ascending, in chunks.

        Each chunk is overwritten by the next one.
        """
        return merge(self.runs, self._chunk_bytes, low=first_bucket << 48, high=stop_bucket << 48)

    def expected_collisions(self) -> float:
        """Return the expected number of URLs lost because another URL has the same fingerprint.

        Only URLs of the same bucket can collide. The expected number is the sum of n^2 / 2^49 over all
        buckets, where n is the number of URLs in a bucket. If N URLs are spread evenly over the buckets, this
        is N^2 / 2^65. The fences give n with an error of up to about 512. Using n (n - 512) instead of n^2
        corrects for that error.
        """
        fences = [np.zeros(0, np.uint64), *(run.fences for run in self.runs)]
        posts = np.bincount((np.concatenate(fences) >> np.uint64(48)).astype(np.intp)).astype(float)
        by_bucket = float((posts * (posts - 1.0)).sum()) * FENCE_STEP**2 / 2.0**49
        return max(by_bucket, float(len(self)) ** 2 / 2.0**65)

    def problems(self) -> list[str]:
        """Read all runs and return the problems found."""
        found = [problem for run in self.runs for problem in run.problems()]
        try:
            for _ in merge(self.runs, self._chunk_bytes):
                pass
        except DamageError as error:
            found.append(str(error))
        return found

    def _check(self) -> None:
        """Assert that the runs are ascending and disjoint. Only tests call this, because it reads everything."""
        for run in self.runs:
            assert run.count > 0 and (run.read(0, run.count)[::FENCE_STEP] == run.fences).all(), run
        assert self.problems() == []

    def __repr__(self) -> str:
        return f"KnownSet({len(self)} in runs of {[run.count for run in self.runs]})"


def _first_of_merge(counts: Sequence[int]) -> int:
    """Return the index of the oldest run to merge with the newest run; `counts` are the numbers of keys of the runs."""
    first = len(counts) - 1
    gathered = counts[first] if counts else 0
    while first > 0 and counts[first - 1] <= gathered:
        first -= 1
        gathered += counts[first]
    return max(first, 0)


def unknown(fingerprints: Fingerprints, runs: Sequence[Run]) -> tuple[Fingerprints, np.ndarray]:
    """Return the distinct fingerprints that no run holds, in ascending order, and where they first occur.

    The second array holds, in ascending order, the indices in `fingerprints` at which these fingerprints
    first occur.
    """
    ascending, places = sorting.sort(fingerprints)
    first = np.ones(len(ascending), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    queries, places = ascending[first], places[first]
    known = np.zeros(len(queries), np.uint8)
    # Begin with the largest run, which holds most of the known fingerprints.
    for run in sorted(runs, key=lambda run: -run.count):
        run.join(queries, known)
    new = known == 0
    return queries[new], np.sort(places[new])
