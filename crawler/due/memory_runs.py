"""Sorted runs in memory: Mercator's in-memory DUE (`due.method = "memory"`; Broder, Najork, Wiener 2003, section 4.1).

Runs are coded in the same way as on disk (`runs.py`). With 1e8 fingerprints, each fingerprint takes about 5
bytes, or 10 bytes during a merge. The paper's table takes 5.2 bytes per fingerprint.
"""

from collections.abc import Iterable
from pathlib import Path

from crawler.due.runs import Fingerprints, Run, write_keys


class MemoryRuns:
    """Creates runs in memory, which are lost when the process ends."""

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run:
        """Create a run of the `count` ascending keys in `chunks`. Any thread."""
        data = bytearray()
        entry = write_keys(data.extend, 0, chunks)
        assert entry.count == count, f"{entry.count} keys came, not {count}"
        run = Run(Path("memory"), entry, data)
        run.entry = None  # type: ignore[assignment]  # the store does not record runs in memory
        return run

    def remove(self, run: object) -> None:
        """Do nothing: the memory is freed when the last reader drops the run."""
