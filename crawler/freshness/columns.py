"""Arrays of millions of rows that grow in place.

Each column has its own anonymous memory map. A map grows without a copy (`mremap` moves page tables, not
contents), and memory pages that were never touched cost nothing. So a column can grow by a factor of four at
a time, and no insertion waits for a copy of all rows. Copying 240 MB takes 100 ms, but moving the map takes 1
ms. The maps use no huge pages. All columns have the same number of rows, so several of them may fill their
last memory page at the same row. With huge pages, all these columns would need a new huge page at this row,
and a busy system takes up to 4 ms to find a huge page. In a test with huge pages, one insertion took 30 ms,
and reads were no faster.

Views of a column must be released before it grows. If a view is still in use, or the
system cannot move maps, the rows are copied once.
"""

import mmap
from typing import Any

import numpy as np

from crawler import kernel_selection

GROWTH = 4
_ROWS_MIN = 1024


class Column:
    """An array of `kind`, with `width` values per row if `width` is given. Rows that were never written are 0."""

    def __init__(self, kind: Any, width: int = 1) -> None:
        self._kind = np.dtype(kind)
        self._width = width
        self._capacity = 0
        self._map: mmap.mmap | None = None

    def grow(self, rows: int) -> Any:
        """Make room for at least `rows` rows, and return the array as `rows_of` returns it.

        Earlier views must not be used again.
        """
        if self._map is None or rows > self._capacity:
            while self._capacity < rows:
                self._capacity = max(_ROWS_MIN, self._capacity * GROWTH)
            self._lengthen(self.bytes_of(self._capacity))
        array = np.frombuffer(self._map, self._kind, self._capacity * self._width)  # type: ignore[arg-type]
        if self._width > 1:
            array = array.reshape(self._capacity, self._width)
        return rows_of(array)

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
        """Return the size of the first `rows` rows, in bytes. The rest of the memory map was never touched."""
        return rows * self._width * self._kind.itemsize


def _new_map(size: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


def rows_of(array: Any) -> Any:
    """Return `array` if the kernels are compiled, else a view of the array whose items are Python numbers.

    Compiled kernels read doubles and integers. Interpreted kernels would read the items of a numpy array as
    numpy numbers. They would then compute in single precision and overflow with warnings, and such numbers
    cannot be encoded as JSON.
    """
    if not kernel_selection.are_interpreted():
        return array
    if array.dtype.names:
        return _Records(array)
    return memoryview(array) if array.ndim == 1 else _Matrix(array)


class _Matrix:
    """A view of a matrix (n, m), in which `[i]` is a view of a row and `[i, j]` is a Python number."""

    def __init__(self, array: Any) -> None:
        self._array, self._items = array, memoryview(array)
        self.shape = array.shape

    def __getitem__(self, at: Any) -> Any:
        return self._items[at] if isinstance(at, tuple) else memoryview(self._array[at])

    def __setitem__(self, at: Any, value: float) -> None:
        self._items[at] = value  # type: ignore[call-overload]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._array


class _Records:
    """A view of a structured array whose rows are `_Record`s."""

    def __init__(self, array: Any) -> None:
        self._size = len(array)
        self._fields = {name: memoryview(array[name]) for name in array.dtype.names}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: int) -> "_Record":
        return _Record(self._fields, row)


class _Record:
    """One row of a structured array, with its fields as attributes."""

    __slots__ = ("_fields", "_row")

    def __init__(self, fields: dict[str, memoryview], row: int) -> None:
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> Any:
        return self._fields[name][self._row]

    def __setattr__(self, name: str, value: float) -> None:
        self._fields[name][self._row] = value
