"""A sorted run in memory, each fingerprint split: 5.2 bytes instead of 8.

Mercator's in-memory DUE (Broder, Najork, Wiener 2003, section 4.1) indexes a
table by the first 3 bytes of a checksum and stores the other 5. Here the table
of 2^24 cells is written in unary, so that it fits runs of any size and any
spread: for each cell a 1 bit per key in it, then a 0 bit.

    keys     cell 0: a b | cell 1: none | cell 2: c d e | ...        n keys, 2^24 cells
    unary    1 1 0         0              1 1 1 0         ...        n + 2^24 bits
    rest     the low 40 bits of a, b, c, d, e, ...                   5 n bytes
    fences   keys 0, 512, 1024, ...                                  n / 64 bytes

Key number i lies in the cell c whose bits hold the 1 at place i + c. The fences
give key number 512 b, and with it the place where block b begins, without counting.
A key takes 5.14 bytes, a run 2 MiB besides.

Cython's pure-Python mode; interpreted, numpy unpacks whole stretches instead.
"""

from collections.abc import Iterable
from typing import Any

import cython
import numpy as np

from crawler.due import plain_join, sorting
from crawler.due.fences import FENCE_STEP

if cython.compiled:
    from cython.cimports.crawler.due.inline import ones_of

COMPILED: bool = cython.compiled

CELLS = 1 << 24
_STEP = cython.declare(cython.Py_ssize_t, FENCE_STEP)
_REST = cython.declare(cython.ulonglong, (1 << 40) - 1)
_STRETCH = 128 * FENCE_STEP  # keys that are unpacked at a time when interpreted

Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]


class SplitRun:
    """Strictly ascending uint64 in memory, packed when made, unpacked in blocks when read.

    Args:
        chunks: the keys, ascending, in arrays.
        count: how many there are, at least 1.
    """

    def __init__(self, chunks: Iterable[Fingerprints], count: int) -> None:
        self.entry = None
        self.count = count
        self.fences = np.empty(-(-count // FENCE_STEP), np.uint64)
        self._rest = np.empty(5 * count, np.uint8)
        self._unary = np.zeros((count + CELLS) // 64 + 1, np.uint64)
        done = 0
        for keys in chunks:
            posts = keys[-done % FENCE_STEP :: FENCE_STEP]
            begun = -(-done // FENCE_STEP)
            self.fences[begun : begun + len(posts)] = posts
            _pack(keys, done, self._rest, self._unary)
            done += len(keys)
        assert done == count, f"{done} keys came, not {count}"

    def read(self, start: int, stop: int) -> Fingerprints:
        """Keys number `start` up to, not including, `stop`."""
        begin = start - start % FENCE_STEP
        keys = np.empty(max(stop - begin, 0), np.uint64)
        if len(keys):
            _unpack(self.fences, self._rest, self._unary, begin, keys)
        return keys[start - begin :]

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        """Set `known[i] = 1` (uint8) for each of the ascending `queries` that is in the run."""
        if cython.compiled:
            _join(queries, self.fences, self._rest, self._unary, known)
            return
        ends = np.searchsorted(queries, self.fences[:: _STRETCH // FENCE_STEP])
        for number, (first, last) in enumerate(zip(ends, [*ends[1:], len(queries)], strict=False)):
            if first < last:
                keys = self.read(number * _STRETCH, min((number + 1) * _STRETCH, self.count))
                plain_join.join(queries[first:last], keys, keys[::FENCE_STEP].copy(), known[first:last])

    def rest(self) -> None:
        """Nothing: memory is where it lives."""

    def close(self) -> None:
        """Let go of the keys."""
        del self._rest, self._unary

    def problems(self) -> list[str]:
        """What is wrong with it; nothing if its keys ascend."""
        stretches = (
            self.read(start, min(start + _STRETCH + 1, self.count))
            for start in range(0, self.count, _STRETCH)
        )
        return [] if all(map(sorting.is_ascending, stretches)) else [f"{self!r}: its keys do not ascend"]

    @property
    def byte_count(self) -> int:
        """Bytes of memory the keys take."""
        return int(self.fences.nbytes + self._rest.nbytes + self._unary.nbytes)

    def __repr__(self) -> str:
        return f"SplitRun({self.count} keys, {self.byte_count} bytes)"


@cython.boundscheck(False)
@cython.wraparound(False)
def _pack(keys, start: cython.Py_ssize_t, rest, unary) -> None:
    """Write `keys`, the first of which is number `start`."""
    if not cython.compiled:
        _pack_by_numpy(keys, start, rest, unary)
        return
    source: cython.const[cython.ulonglong][::1] = keys
    low: cython.uchar[::1] = rest
    bits: cython.ulonglong[::1] = unary
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    place: cython.ulonglong
    byte: cython.int
    with cython.nogil:
        for i in range(source.shape[0]):
            at = 5 * (start + i)
            for byte in range(5):
                low[at + byte] = (source[i] >> (8 * byte)) & 255
            place = (source[i] >> 40) + start + i
            bits[place >> 6] |= cython.cast(cython.ulonglong, 1) << (place & 63)


def _pack_by_numpy(keys, start, rest, unary) -> None:
    rest[5 * start : 5 * (start + len(keys))] = (
        keys.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :5].ravel()
    )
    places = (keys >> np.uint64(40)) + np.arange(start, start + len(keys), dtype=np.uint64)
    np.bitwise_or.at(unary, places >> np.uint64(6), np.uint64(1) << (places & np.uint64(63)))


@cython.boundscheck(False)
@cython.wraparound(False)
def _unpack(fences, rest, unary, start: cython.Py_ssize_t, keys) -> None:
    """Fill `keys` with those from number `start` on, which is that of a fence."""
    if not cython.compiled:
        _unpack_by_numpy(fences, rest, unary, start, keys)
        return
    posts: cython.const[cython.ulonglong][::1] = fences
    low: cython.const[cython.uchar][::1] = rest
    bits: cython.const[cython.ulonglong][::1] = unary
    target: cython.ulonglong[::1] = keys
    i: cython.Py_ssize_t
    place: cython.ulonglong = start + (posts[start // _STEP] >> 40)
    with cython.nogil:
        for i in range(target.shape[0]):
            place = _next_one(bits, place)
            target[i] = (place - start - i) << 40 | _low(low, start + i)
            place += 1


def _unpack_by_numpy(fences, rest, unary, start, keys) -> None:
    stop = start + len(keys)
    cell = int(fences[start // FENCE_STEP]) >> 40
    following = stop // FENCE_STEP + 1
    last_cell = int(fences[following]) >> 40 if following < len(fences) else CELLS
    first_word = (start + cell) >> 6
    words = unary[first_word : (stop + last_cell >> 6) + 1]
    used = np.flatnonzero(words)  # few, where cells are empty for long
    bits = np.flatnonzero(np.unpackbits(words[used].view(np.uint8), bitorder="little"))
    places = (first_word + used[bits >> 6] << 6) + (bits & 63)
    places = places[np.searchsorted(places, start + cell) :][: len(keys)]
    low = np.zeros((len(keys), 8), np.uint8)
    low[:, :5] = rest[5 * start : 5 * stop].reshape(-1, 5)
    keys[:] = (places - np.arange(start, stop)).astype(np.uint64) << np.uint64(40) | low.view("<u8").ravel()


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _next_one(bits: cython.const[cython.ulonglong][::1], place: cython.ulonglong) -> cython.ulonglong:
    """The place of the first 1 at or behind `place`."""
    word: cython.ulonglong = bits[place >> 6] >> (place & 63)
    if word == 0:
        place = (place | 63) + 1
        while bits[place >> 6] == 0:
            place += 64
        word = bits[place >> 6]
    while word & 1 == 0:
        word >>= 1
        place += 1
    return place


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _low(rest: cython.const[cython.uchar][::1], number: cython.Py_ssize_t) -> cython.ulonglong:
    """The low 40 bits of key `number`."""
    at: cython.Py_ssize_t = 5 * number
    word: cython.ulonglong = rest[at + 4]
    word = word << 8 | rest[at + 3]
    word = word << 8 | rest[at + 2]
    word = word << 8 | rest[at + 1]
    return word << 8 | rest[at]


@cython.boundscheck(False)
@cython.wraparound(False)
def _join(queries, fences, rest, unary, known) -> None:
    wanted: cython.const[cython.ulonglong][::1] = queries
    posts: cython.const[cython.ulonglong][::1] = fences
    low: cython.const[cython.uchar][::1] = rest
    bits: cython.const[cython.ulonglong][::1] = unary
    marks: cython.uchar[::1] = known
    count: cython.Py_ssize_t = low.shape[0] // 5
    i: cython.Py_ssize_t
    block: cython.Py_ssize_t = 0
    blocks = np.searchsorted(fences, queries, side="right") - 1
    block_of: cython.const[cython.Py_ssize_t][::1] = blocks
    with cython.nogil:
        for i in range(wanted.shape[0]):
            block = block_of[i]
            if block >= 0 and not marks[i]:
                marks[i] = _holds(posts, low, bits, block, min((block + 1) * _STEP, count), wanted[i])


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _holds(
    fences: cython.const[cython.ulonglong][::1],
    rest: cython.const[cython.uchar][::1],
    bits: cython.const[cython.ulonglong][::1],
    block: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    query: cython.ulonglong,
) -> cython.bint:
    """Whether block number `block`, which ends before key `stop`, holds `query`."""
    number: cython.Py_ssize_t = block * _STEP
    low: cython.Py_ssize_t
    high: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    cell: cython.ulonglong = query >> 40
    place: cython.ulonglong = number + (fences[block] >> 40)
    zeros: cython.ulonglong = cell - (fences[block] >> 40)  # to pass before the cell's own bits
    place = _behind_zeros(bits, place, zeros)
    low = cython.cast(cython.Py_ssize_t, place - cell)
    high = low
    while high < stop and bits[place >> 6] >> (place & 63) & 1:
        high += 1
        place += 1
    while low < high:
        middle = (low + high) >> 1
        if _low(rest, middle) < query & _REST:
            low = middle + 1
        else:
            high = middle
    return (
        low < stop and _low(rest, low) == query & _REST and bits[(low + cell) >> 6] >> ((low + cell) & 63) & 1
    )


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _behind_zeros(
    bits: cython.const[cython.ulonglong][::1], place: cython.ulonglong, zeros: cython.ulonglong
) -> cython.ulonglong:
    """The place right behind the next `zeros` 0 bits from `place` on."""
    word: cython.ulonglong
    found: cython.ulonglong
    while zeros:
        word = ~(bits[place >> 6] >> (place & 63))
        if place & 63:
            word &= (cython.cast(cython.ulonglong, 1) << (64 - (place & 63))) - 1
        found = ones_of(word)
        if found < zeros:
            zeros -= found
            place = (place | 63) + 1
            continue
        while zeros:
            zeros -= word & 1
            word >>= 1
            place += 1
    return place
