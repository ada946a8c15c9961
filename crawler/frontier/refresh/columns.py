"""Arrays of millions of rows that grow in place.

A column lies in an anonymous memory map of its own. A map can be made longer
without a copy (`mremap` moves page tables, not contents), and pages of memory
that were never touched cost nothing. So columns grow fourfold, and no insertion
ever waits for a copy of all rows: a copy of 240 MB would take 100 ms, the move
takes 1 ms.

Views of a column must be let go before it grows; where one is still held, or
the system cannot move maps, the rows are copied once.
"""

import mmap
from typing import Any

import numpy as np

GROWTH = 4
_ROWS_MIN = 1024
_HUGE_FROM = 8 << 20  # bytes; smaller columns would waste a good part of a huge page


class Column:
    """A one-dimensional array of `kind`; rows that were never written are 0."""

    def __init__(self, kind: Any) -> None:
        self._kind = np.dtype(kind)
        self._capacity = 0
        self._map: mmap.mmap | None = None

    def grow(self, rows: int) -> np.ndarray:
        """The array with room for at least `rows` rows. Earlier views must not be used any more."""
        if self._map is None or rows > self._capacity:
            while self._capacity < rows:
                self._capacity = max(_ROWS_MIN, self._capacity * GROWTH)
            self._lengthen(self._capacity * self._kind.itemsize)
        array = np.frombuffer(self._map, self._kind, self._capacity)  # type: ignore[arg-type]
        return array.view(np.recarray) if self._kind.names else array

    def _lengthen(self, size: int) -> None:
        held = self._map
        if held is not None:
            try:
                held.resize(size)
            except (BufferError, OSError, SystemError):
                self._map = _new_map(size)
                self._map[: len(held)] = held[:]
        else:
            self._map = _new_map(size)
        if self._map is not None and size >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages does as well, more slowly

    def bytes_of(self, rows: int) -> int:
        """Bytes of memory that `rows` rows take; the rest of the map was never touched."""
        return rows * self._kind.itemsize


def _new_map(size: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)
