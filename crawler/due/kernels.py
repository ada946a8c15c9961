"""The inner loops of the DUE: join and merge of sorted arrays of uint64, and the set of pending fingerprints.

Compiled (Cython's pure-Python mode) they let go of the interpreter lock, so
that a merge runs beside the crawl. Interpreted, join and merge are done by
numpy, with the same results and about the same reads: a join touches one block
a query and no more.

    fences    3         190        402        871     ...   key 0, 512, 1024, ... of the run, in memory
              |          |          |          |
    run       3 .. 188 | 190 .. 400| 402 .. 866| 871 ..     on disk (or in memory, uncompressed)
                           ^            ^
    queries               211          555                  ascending: a search starts where the last one ended
"""

import cython
import numpy as np

COMPILED: bool = cython.compiled

FENCE_STEP = 512  # keys from one fence to the next: 4 KiB, a page of memory
_STEP = cython.declare(cython.Py_ssize_t, FENCE_STEP)


@cython.boundscheck(False)
@cython.wraparound(False)
def join(queries, keys, fences, known) -> None:
    """Set `known[i] = 1` for each query that is one of `keys`.

    Args:
        queries: uint64 (n,), ascending; those already known are passed over.
        keys: uint64 (m,), strictly ascending.
        fences: `keys[::FENCE_STEP]`.
        known: uint8 (n,), changed in place.
    """
    if not cython.compiled:
        _join_by_numpy(queries, keys, fences, known)
        return
    wanted: cython.const[cython.ulonglong][::1] = queries
    held: cython.const[cython.ulonglong][::1] = keys
    posts: cython.const[cython.ulonglong][::1] = fences
    marks: cython.uchar[::1] = known
    if wanted.shape[0] and held.shape[0]:
        with cython.nogil:
            _join(wanted, held, posts, marks)


@cython.cfunc
@cython.nogil
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _join(
    queries: cython.const[cython.ulonglong][::1],
    keys: cython.const[cython.ulonglong][::1],
    fences: cython.const[cython.ulonglong][::1],
    known: cython.uchar[::1],
) -> cython.void:
    i: cython.Py_ssize_t
    block: cython.Py_ssize_t = 0
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t
    query: cython.ulonglong
    for i in range(queries.shape[0]):
        query = queries[i]
        if known[i] or query < fences[0]:
            continue
        high = _gallop(fences, block, query)
        if high != block:
            block = high
            low = block * _STEP
        high = min((block + 1) * _STEP, keys.shape[0])
        low = _last_not_above(keys, low, high, query)
        known[i] = keys[low] == query


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _gallop(
    keys: cython.const[cython.ulonglong][::1], start: cython.Py_ssize_t, query: cython.ulonglong
) -> cython.Py_ssize_t:
    """The index of the last key <= query, at or after `start`, by steps that double. keys[start] <= query."""
    step: cython.Py_ssize_t = 1
    low: cython.Py_ssize_t = start
    while low + step < keys.shape[0] and keys[low + step] <= query:
        low += step
        step += step
    return _last_not_above(keys, low, min(low + step, keys.shape[0]), query)


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _last_not_above(
    keys: cython.const[cython.ulonglong][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    query: cython.ulonglong,
) -> cython.Py_ssize_t:
    """The index of the last key <= query in keys[low:high]. keys[low] <= query."""
    half: cython.Py_ssize_t
    length: cython.Py_ssize_t = high - low
    while length > 1:
        half = length >> 1
        low += half if keys[low + half] <= query else 0  # without a branch: it could not be predicted
        length -= half
    return low


def _join_by_numpy(queries, keys, fences, known) -> None:
    """All queries side by side: find the block of each, then halve all blocks at once."""
    which = np.flatnonzero((known == 0) & (queries >= fences[:1]) if len(fences) else known[:0])
    wanted = queries[which]
    low = (np.searchsorted(fences, wanted, side="right") - 1) * FENCE_STEP
    high = np.minimum(low + FENCE_STEP, len(keys))
    for _ in range(FENCE_STEP.bit_length()):
        middle = (low + high) >> 1
        right = keys[middle] <= wanted
        low = np.where(right, middle, low)
        high = np.where(right, high, middle)
    known[which[keys[low] == wanted]] = 1


@cython.boundscheck(False)
@cython.wraparound(False)
def merge(left, right, out) -> bool:
    """Merge two ascending arrays of uint64 into `out`; return whether that is strictly ascending.

    Args:
        left, right: uint64 (n,), (m,).
        out: uint64 (n + m,), other memory.
    """
    if not cython.compiled:
        out[: len(left)] = left
        out[len(left) :] = right
        out.sort(kind="stable")  # finds the two ascending stretches and merges them
        return is_ascending(out)
    a: cython.const[cython.ulonglong][::1] = left
    b: cython.const[cython.ulonglong][::1] = right
    target: cython.ulonglong[::1] = out
    assert target.shape[0] == a.shape[0] + b.shape[0]
    with cython.nogil:
        distinct: cython.bint = _merge(a, b, target)
    return distinct


@cython.cfunc
@cython.nogil
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _merge(
    left: cython.const[cython.ulonglong][::1],
    right: cython.const[cython.ulonglong][::1],
    out: cython.ulonglong[::1],
) -> cython.bint:
    i: cython.Py_ssize_t = 0
    j: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t = left.shape[0]
    m: cython.Py_ssize_t = right.shape[0]
    a: cython.ulonglong
    b: cython.ulonglong
    from_left: cython.bint
    distinct: cython.bint = True
    while i < n and j < m:
        a = left[i]
        b = right[j]
        from_left = a < b
        distinct &= a != b
        out[i + j] = a if from_left else b  # without a branch
        i += from_left
        j += not from_left
    while i < n:
        out[i + j] = left[i]
        i += 1
    while j < m:
        out[i + j] = right[j]
        j += 1
    return distinct


def is_ascending(keys) -> bool:
    """Whether `keys` (uint64) are strictly ascending."""
    return bool((keys[1:] > keys[:-1]).all())


@cython.final
@cython.cclass
class PendingSet:
    """A set of uint64 by open addressing, bounded: when it is full it forgets all.

    It only saves repeats a place in the links log, and forgetting is harmless.
    """

    _table: object
    _entries_max: cython.Py_ssize_t
    _count: cython.Py_ssize_t
    _shift: cython.int
    _has_zero: cython.bint  # 0 marks a free slot, so this key is held apart

    def __init__(self, entries_max: cython.Py_ssize_t) -> None:
        self._entries_max = entries_max
        self.clear()

    def clear(self) -> None:
        """Forget all keys, and the memory they took."""
        self._table = np.zeros(64, np.uint64)
        self._shift = 58
        self._count = 0
        self._has_zero = False

    def __len__(self) -> int:
        return self._count

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def add_many(self, keys):
        """Add uint64 (n,); return which were not there, bool (n,)."""
        i: cython.Py_ssize_t
        if self._count + len(keys) > self._entries_max:
            self.clear()
        self._grow(self._count + len(keys))
        fresh = np.zeros(len(keys), np.bool_)
        source: cython.const[cython.ulonglong][::1] = keys if cython.compiled else keys.tolist()
        answers: cython.uchar[::1] = fresh.view(np.uint8)
        table: cython.ulonglong[::1] = self._table
        for i in range(len(keys)):
            answers[i] = self._add(table, source[i])
        return fresh

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    @cython.exceptval(check=False)
    def _add(self, table: cython.ulonglong[::1], key: cython.ulonglong) -> cython.bint:
        slot: cython.Py_ssize_t
        held: cython.ulonglong
        if key == 0:
            held, self._has_zero = self._has_zero, True
            self._count += not held
            return not held
        slot = ((key * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF) >> self._shift  # 2^64 / golden ratio
        while table[slot] != 0:
            if table[slot] == key:
                return False
            slot = (slot + 1) & (table.shape[0] - 1)
        table[slot] = key
        self._count += 1
        return True

    @cython.cfunc
    def _grow(self, count: cython.Py_ssize_t):
        """Make room for `count` keys at half load."""
        if 2 * count <= len(self._table):
            return
        keys = self._table[self._table != 0]
        bits: cython.int = int(2 * count - 1).bit_length()
        self._table = np.zeros(1 << bits, np.uint64)
        self._shift = 64 - bits
        self._count = self._has_zero
        table: cython.ulonglong[::1] = self._table
        i: cython.Py_ssize_t
        source: cython.const[cython.ulonglong][::1] = keys if cython.compiled else keys.tolist()
        for i in range(len(keys)):
            self._add(table, source[i])
