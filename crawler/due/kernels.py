"""The inner loops of the DUE: sort, join and merge of arrays of uint64.

Compiled (Cython's pure-Python mode) they let go of the interpreter lock, so
that a merge runs beside the crawl. Interpreted, numpy does the same with the
same results and about the same reads: a join touches one block a query.

    fences     3            190            402            871      keys 0, 512, 1024, ... of the run
               |             |              |              |
    run        3 .. .. .. 188|190 .. .. 400 |402 .. .. 866 |871    mapped from disk, or in memory
                                 ^                 ^
    queries                     211               555              ascending

A join gallops through the fences, which are in memory, to the block of 512 keys
where a query must be. Fingerprints are spread evenly there, so the fences before
and behind also say about where in the block it is, to some ten keys; from that
place the search goes on by steps that double, which are few if the guess was
good and at most 2 * 9 if it was not. A guess costs no access to the run, and
that of one query does not wait for another's: with 16 of them under way at a
time, a query takes 65 ns at 1e7 keys where halving the block took 500.
"""

import cython
import numpy as np

COMPILED: bool = cython.compiled

FENCE_STEP = 512  # keys from one fence to the next: 4 KiB, a page of memory
_STEP = cython.declare(cython.Py_ssize_t, FENCE_STEP)  # for code that does not hold the lock


@cython.boundscheck(False)
@cython.wraparound(False)
def sort(keys) -> tuple[np.ndarray, np.ndarray]:
    """Return `keys` (uint64 (n,)) ascending, and where each stood (intp (n,)); equal ones in their order."""
    if not cython.compiled:
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    words = np.array(keys)
    places = np.arange(len(words))
    spare_words, spare_places = np.empty_like(words), np.empty_like(places)
    a: cython.ulonglong[::1] = words
    b: cython.ulonglong[::1] = spare_words
    p: cython.Py_ssize_t[::1] = places
    q: cython.Py_ssize_t[::1] = spare_places
    with cython.nogil:
        swapped: cython.bint = _radix_sort(a, p, b, q)
    return (spare_words, spare_places) if swapped else (words, places)


@cython.cfunc
@cython.nogil
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _radix_sort(
    a: cython.ulonglong[::1],
    p: cython.Py_ssize_t[::1],
    b: cython.ulonglong[::1],
    q: cython.Py_ssize_t[::1],
) -> cython.bint:
    """Sort `a`, and `p` with it, byte after byte, the lowest first; return whether b, q hold the outcome."""
    counts = cython.declare(cython.Py_ssize_t[256][8])  # of byte 0, 1, ... 7
    i: cython.Py_ssize_t
    byte: cython.int
    digit: cython.int
    at: cython.Py_ssize_t
    total: cython.Py_ssize_t
    swapped: cython.bint = False
    for byte in range(8):
        for digit in range(256):
            counts[byte][digit] = 0
    for i in range(a.shape[0]):
        for byte in range(8):
            counts[byte][(a[i] >> (8 * byte)) & 255] += 1
    for byte in range(8):
        if a.shape[0] == 0 or counts[byte][(a[0] >> (8 * byte)) & 255] == a.shape[0]:
            continue  # the same byte everywhere
        total = 0
        for digit in range(256):
            at = counts[byte][digit]
            counts[byte][digit] = total
            total += at
        for i in range(a.shape[0]):
            digit = (a[i] >> (8 * byte)) & 255
            at = counts[byte][digit]
            counts[byte][digit] += 1
            b[at] = a[i]
            q[at] = p[i]
        a, b = b, a
        p, q = q, p
        swapped = not swapped
    return swapped


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
@cython.cdivision(True)
@cython.exceptval(check=False)
def _join(
    queries: cython.const[cython.ulonglong][::1],
    keys: cython.const[cython.ulonglong][::1],
    fences: cython.const[cython.ulonglong][::1],
    known: cython.uchar[::1],
) -> cython.void:
    """Look queries up by the dozen: first guess where each of them is, then look there.

    A guess needs only the fences. Reading the key there is the one access that
    has to wait for memory, and as no guess depends on another, the processor
    waits for all of them at once.
    """
    i: cython.Py_ssize_t
    start: cython.Py_ssize_t = 0
    block: cython.Py_ssize_t = 0
    guessed: cython.Py_ssize_t
    guesses = cython.declare(cython.Py_ssize_t[16])
    asked = cython.declare(cython.Py_ssize_t[16])
    found = cython.declare(cython.ulonglong[16])
    while start < queries.shape[0]:
        guessed = 0
        while start < queries.shape[0] and guessed < 16:
            if not known[start] and queries[start] >= fences[0]:
                block = _gallop(fences, block, queries[start])
                guesses[guessed] = _guess(fences, block, keys.shape[0], queries[start])
                found[guessed] = keys[guesses[guessed]]
                asked[guessed] = start
                guessed += 1
            start += 1
        for i in range(guessed):
            known[asked[i]] = _is_near(keys, guesses[i], found[i], queries[asked[i]])


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.cdivision(True)
@cython.exceptval(check=False)
def _guess(
    fences: cython.const[cython.ulonglong][::1],
    block: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    query: cython.ulonglong,
) -> cython.Py_ssize_t:
    """Where in its block `query` would be if the keys there were spread evenly."""
    low: cython.Py_ssize_t = block * _STEP
    span: cython.double
    if block + 1 == fences.shape[0]:
        return (low + count) >> 1
    span = cython.cast(cython.double, fences[block + 1] - fences[block])
    share: cython.double = cython.cast(cython.double, query - fences[block]) / span
    return low + cython.cast(cython.Py_ssize_t, share * (_STEP - 1))


@cython.cfunc
@cython.nogil
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
@cython.exceptval(check=False)
def _is_near(
    keys: cython.const[cython.ulonglong][::1],
    at: cython.Py_ssize_t,
    found: cython.ulonglong,
    query: cython.ulonglong,
) -> cython.bint:
    """Whether `query` is a key, sought from `at` (where `found` is) by steps that double."""
    step: cython.Py_ssize_t = 1
    low: cython.Py_ssize_t = at
    high: cython.Py_ssize_t
    if found <= query:
        low = _gallop(keys, at, query)
        return keys[low] == query
    while low - step >= 0 and keys[low - step] > query:
        low -= step
        step += step
    high = low
    low = max(low - step, 0)
    low = _last_not_above(keys, low, high, query)
    return keys[low] == query


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
