"""Sorted runs in memory: Mercator's other DUE (`due.method = "memory"`; Broder, Najork, Wiener 2003, section 4.1).

A run is coded as on disk (`runs.py`): 1e8 fingerprints take about 5 bytes each, twice that while they are
merged, where the paper's table takes 5.2.
"""

from collections.abc import Iterable
from pathlib import Path

from crawler.due.runs import CodedRun, Fingerprints, write_keys


class MemoryRuns:
    """Makes runs in memory; nothing of them outlives the process."""

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> CodedRun:
        """A run of the `count` ascending keys in `chunks`. In any thread."""
        data = bytearray()
        entry = write_keys(data.extend, 0, chunks)
        assert entry.count == count, f"{entry.count} keys came, not {count}"
        run = CodedRun(Path("memory"), entry, data)
        run.entry = None  # type: ignore[assignment]  # the store names none
        return run

    def remove(self, run: object) -> None:
        """Nothing: memory is freed when nobody reads the run any more."""
