"""The gap journal: the end of each host's politeness gap, noted where a kill does not erase it.

A kill erases the commit groups that are not written (`frontier/README.md`, "Politeness"). Without a journal, a new
process would know neither which hosts their requests went to, nor how long the answers took, nor a Retry-After in
them. So a note is made before each request and after it:

    begin   the request is under way since this instant
    end     the host may be requested again from this instant; the gap before it

The notes are cells of 32 bytes in a mapped file. A write to the map is a write to the page cache of the
kernel, so a kill cannot lose it, and no call waits for the disk. The file is never synced: a power cut may
lose the notes of the last seconds. For a host whose note is lost, only the minimum gap of `Registry.open`
remains.

A host has at most one cell. The cell of the host whose request ended first is reused first. When a cell is
reused, the record of its previous host is already committed, because the journal has several cells for each
request that may be uncommitted. If more requests are under way than there are cells, the further requests are
not noted. A note takes 0.5 us of CPU time.

A kill may interrupt the write of a cell, so each cell begins and ends with the number of the write. A cell
with two different numbers counts as a request that is under way since an unknown time.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import NamedTuple, Protocol

# number of the write, host key, instant, gap, and again the number, to detect an incomplete write
_CELL = struct.Struct("<IQddI")
_SIZE = _CELL.size
_NUMBER_MAX = 0xFFFF_FFFF
_UNDER_WAY = -1.0  # stands for the gap of a request that has not ended
# Number of cells for each fetch slot. At most five hosts per slot have a request under way. For each slot,
# one task may hold the slot, and another task may wait for a redirect hop without a slot. For every two
# slots, one slow task may continue without a slot. Each of these tasks holds its own host, and perhaps the
# host of a redirect hop.
CELLS_PER_SLOT = 16


class JournalMemory(Protocol):
    """The bytes of a journal: a mapped file, or a bytearray for a frontier whose gaps need not survive."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes | bytearray: ...

    def __setitem__(self, place: slice, data: bytes, /) -> None: ...


def journal_bytes(concurrency: int) -> int:
    """Return the size of the journal of a process with this number of fetch slots."""
    return CELLS_PER_SLOT * concurrency * _SIZE


class Note(NamedTuple):
    """A note about the last request to the host `key`.

    If the request ended, `at` is the end of the host's gap, and `gap` its length. Otherwise, `at` is the beginning of
    the request, -inf if it is unknown.
    """

    key: int
    at: float
    gap: float

    @property
    def is_under_way(self) -> bool:
        return self.gap < 0.0


class GapJournal:
    """A journal in `memory`. It continues with the notes that the memory contains."""

    def __init__(self, memory: JournalMemory) -> None:
        self._memory = memory
        self._cells: dict[int, int] = {}  # host key -> offset of its cell
        # the hosts without a request under way, in the order in which their requests ended
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._free: list[int] = []
        self._number = 0
        self._found: list[Note] = []
        self._read()

    def _read(self) -> None:
        size = len(self._memory) // _SIZE * _SIZE
        cells = _CELL.iter_unpack(self._memory[:size])
        for offset, (number, key, at, gap, again) in zip(range(0, size, _SIZE), cells, strict=True):
            if number > self._number:
                self._number = number
            if key in self._cells or not (number or again):
                self._free.append(offset)
                continue
            self._cells[key] = offset
            self._found.append(Note(key, at, gap) if number == again else Note(key, -inf, _UNDER_WAY))

    def found(self) -> Iterator[Note]:
        """Yield the notes of earlier processes, each once. The caller must then call `end` for each of the hosts."""
        while self._found:
            yield self._found.pop()

    def begin(self, key: int, now: float) -> None:
        """Note that a request to the host is about to be sent."""
        cell = self._cells.get(key)
        if cell is None:
            self._write(self._take(key), key, now, _UNDER_WAY)
        elif key in self._ended:
            del self._ended[key]
            self._write(cell, key, now, _UNDER_WAY)

    def end(self, key: int, ready: float, gap: float) -> None:
        """Note that no request to the host is under way, and that its gap of `gap` seconds ends at `ready`."""
        cell = self._cells.get(key)
        if cell is None:
            cell = self._take(key)
        if cell is not None:
            self._ended[key] = None
            self._ended.move_to_end(key)
        self._write(cell, key, ready, gap)

    def _take(self, key: int) -> int | None:
        """Return a cell for a host that has none; None if all cells belong to requests under way."""
        if self._free:
            cell = self._free.pop()
        elif self._ended:
            cell = self._cells.pop(self._ended.popitem(last=False)[0])
        else:
            return None
        self._cells[key] = cell
        return cell

    def _write(self, cell: int | None, key: int, at: float, gap: float) -> None:
        if cell is None:
            return
        self._number = number = self._number % _NUMBER_MAX + 1
        self._memory[cell : cell + _SIZE] = _CELL.pack(number, key, at, gap, number)

    def close(self) -> None:
        """Unmap the file. Later notes are kept nowhere."""
        self._memory = bytearray()

    def _check(self) -> None:
        """Assert that each cell has at most one host, and that the memory agrees with the indexes."""
        cells = sorted([*self._cells.values(), *self._free])
        assert cells == list(range(0, len(self._memory) // _SIZE * _SIZE, _SIZE))
        assert self._ended.keys() <= self._cells.keys()
        for key, cell in self._cells.items():
            _, noted, _, gap, _ = _CELL.unpack(self._memory[cell : cell + _SIZE])
            assert noted == key and (gap < 0.0) == (key not in self._ended)

    def __repr__(self) -> str:
        return f"GapJournal({len(self._cells) - len(self._ended)} under way, {len(self._ended)} ended)"
