"""Arrays of millions of rows that grow in place.

A column lies in an anonymous memory map of its own. A map can be made longer
without a copy (`mremap` moves page tables, not contents), and pages of memory
that were never touched cost nothing. So columns grow fourfold, and no insertion
ever waits for a copy of all rows: a copy of 240 MB would take 100 ms, the move
takes 1 ms. They ask for no huge pages: several columns need their next one at the
same row, and the system takes up to 4 ms to find one on a crowded machine (30 ms
for one insertion were measured), while picks are no faster.

Views of a column must be let go before it grows; where one is still held, or
the system cannot move maps, the rows are copied once.
"""

import mmap
from typing import Any

import numpy as np

GROWTH = 4
_ROWS_MIN = 1024


class Column:
    """An array of `kind`, or of `width` of them a row; rows that were never written are 0."""

    def __init__(self, kind: Any, width: int = 1) -> None:
        self._kind = np.dtype(kind)
        self._width = width
        self._capacity = 0
        self._map: mmap.mmap | None = None

    def grow(self, rows: int) -> np.ndarray:
        """The array with room for at least `rows` rows. Earlier views must not be used any more."""
        if self._map is None or rows > self._capacity:
            while self._capacity < rows:
                self._capacity = max(_ROWS_MIN, self._capacity * GROWTH)
            self._lengthen(self.bytes_of(self._capacity))
        array = np.frombuffer(self._map, self._kind, self._capacity * self._width)  # type: ignore[arg-type]
        if self._width > 1:
            return array.reshape(self._capacity, self._width)
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

    def bytes_of(self, rows: int) -> int:
        """Bytes of memory that `rows` rows take; the rest of the map was never touched."""
        return rows * self._width * self._kind.itemsize


def _new_map(size: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


def plain(value: Any) -> Any:
    """`value` with Python's numbers for numpy's, in dicts, lists and tuples too: interpreted kernels give these."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(one) for one in value)
    return value
