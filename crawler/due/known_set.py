"""The set of known fingerprints: disjoint sorted runs, oldest first, merged in powers of two.

Each flush adds a run of what was new. Then the newest run is merged with each
older neighbour as long as that is not larger than what has been gathered:

    runs (b = 1)    4 2 1  + 1  ->  8            8 4 1  + 1  ->  8 4 2
                      `-----'                        `---'

With N known fingerprints and b new ones a flush there are at most log2(N/b) + 2
runs, and a fingerprint is rewritten at most log2(N/b) + 1 times, where one
sorted file, the paper's form, is rewritten whole by every flush. That form is
the same with "always merge all".

The set is of one thread. Runs never change, so what other threads read (a join,
a merge) stays right; a merge changes how the set is cut into runs, not the set.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from crawler.due import sorting
from crawler.due.fences import FENCE_STEP
from crawler.due.merging import merge
from crawler.due.runs import Fingerprints, Run
from crawler.errors import DamageError

_LOAD_COUNT = 1 << 20  # fingerprints taken at a time when the set is rebuilt


class RunStore(Protocol):
    """Where runs are kept: `DiskRuns` or `MemoryRuns`."""

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run: ...

    def remove(self, run: Run) -> None: ...


class KnownSet:
    """The runs that count now.

    Args:
        store: where new runs are written.
        runs: those there are already, oldest first.
        merge_all: whether every flush is followed by a merge of all runs.
        chunk_bytes: memory that a merge may take, twice.
    """

    def __init__(self, store: RunStore, runs: Iterable[Run], *, merge_all: bool, chunk_bytes: int) -> None:
        self.store = store
        self.runs = list(runs)
        self.merge_all = merge_all
        self._replaced: list[Run] = []
        self._chunk_bytes = chunk_bytes

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    def __contains__(self, fingerprint: int) -> bool:
        return not len(unknown(np.array([fingerprint], np.uint64), self.runs)[0])

    def add(self, run: Run) -> None:
        """Count a run of fingerprints that were not known."""
        self.runs.append(run)

    def load(self, fingerprints: Iterable[int]) -> None:
        """Add fingerprints in any order, known ones among them."""
        source = iter(fingerprints)
        while len(some := np.fromiter(islice(source, _LOAD_COUNT), np.uint64)):
            self.learn(some)

    def learn(self, fingerprints: Fingerprints) -> int:
        """Flush and compact at once: add what is not known of `fingerprints`; return how many that was."""
        new, _ = unknown(fingerprints, self.runs)
        if len(new):
            self.add(self.store.write([new], len(new), step="flush"))
        while inputs := self.due_merge():
            self.replace(inputs, self.merge(inputs))
        del inputs
        self.close_replaced()
        return len(new)

    def due_merge(self) -> list[Run]:
        """The neighbouring runs that are to be merged next; none if all is well."""
        first = 0 if self.merge_all else _first_of_merge([run.count for run in self.runs])
        inputs = self.runs[first:]
        return inputs if len(inputs) > 1 else []

    def merge(self, inputs: Sequence[Run]) -> Run:
        """Write the merge of `inputs`, disjoint runs. In any thread.

        Raises:
            StoreError: it cannot be written.
            DamageError: two inputs hold the same fingerprint.
        """
        count = sum(run.count for run in inputs)
        return self.store.write(merge(inputs, self._chunk_bytes), count, step="compaction")

    def replace(self, inputs: Sequence[Run], outcome: Run) -> None:
        """Let `outcome` take the place of `inputs`, and remove those."""
        first = self.runs.index(inputs[0])
        assert self.runs[first : first + len(inputs)] == inputs, "the runs that were merged are not in a row"
        self.runs[first : first + len(inputs)] = [outcome]
        for run in inputs:
            self.store.remove(run)
        self._replaced += inputs

    def close_replaced(self) -> None:
        """Close the runs that were replaced and that nobody reads. In any thread; may take a while."""
        for _ in range(len(self._replaced)):
            run = self._replaced.pop()
            if sys.getrefcount(run) <= 2:  # this variable and the argument; else it ends with the last reader
                run.close()

    def slice(self, first_bucket: int, stop_bucket: int) -> Iterator[Fingerprints]:
        """The fingerprints of buckets first_bucket <= b < stop_bucket (0 to 65,536), ascending, in chunks.

        A chunk is overwritten when the next one is asked for.
        """
        return merge(self.runs, self._chunk_bytes, low=first_bucket << 48, high=stop_bucket << 48)

    def expected_collisions(self) -> float:
        """The expected number of URLs that were lost because another one has their fingerprint.

        Only URLs of one bucket can collide: the sum of n^2 / 2^49 over the
        buckets of n URLs, N^2 / 2^65 if all N are spread evenly. The fences
        show n to some 512; n (n - 512) corrects for their chance.
        """
        fences = [np.zeros(0, np.uint64), *(run.fences for run in self.runs)]
        posts = np.bincount((np.concatenate(fences) >> np.uint64(48)).astype(np.intp)).astype(float)
        by_bucket = float((posts * (posts - 1.0)).sum()) * FENCE_STEP**2 / 2.0**49
        return max(by_bucket, float(len(self)) ** 2 / 2.0**65)

    def problems(self) -> list[str]:
        """What is wrong with the runs, read whole."""
        found = [problem for run in self.runs for problem in run.problems()]
        try:
            for _ in merge(self.runs, self._chunk_bytes):
                pass
        except DamageError as error:
            found.append(str(error))
        return found

    def _check(self) -> None:
        """Assert that runs ascend, and are disjoint; for tests, as it reads all."""
        for run in self.runs:
            assert run.count > 0 and (run.read(0, run.count)[::FENCE_STEP] == run.fences).all(), run
        assert self.problems() == []

    def __repr__(self) -> str:
        return f"KnownSet({len(self)} in runs of {[run.count for run in self.runs]})"


def _first_of_merge(counts: Sequence[int]) -> int:
    """Which is the oldest run to be merged with the newest, for runs of so many keys."""
    first = len(counts) - 1
    gathered = counts[first] if counts else 0
    while first > 0 and counts[first - 1] <= gathered:
        first -= 1
        gathered += counts[first]
    return max(first, 0)


def unknown(fingerprints: Fingerprints, runs: Sequence[Run]) -> tuple[Fingerprints, np.ndarray]:
    """The fingerprints no run holds, ascending, each once; and the places where they came first."""
    ascending, places = sorting.sort(fingerprints)
    first = np.ones(len(ascending), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    queries, places = ascending[first], places[first]
    known = np.zeros(len(queries), np.uint8)
    for run in sorted(runs, key=lambda run: -run.count):  # the largest settles most of them
        run.join(queries, known)
    new = known == 0
    return queries[new], np.sort(places[new])
