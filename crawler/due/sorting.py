# cython: boundscheck=False, wraparound=False
"""Sorts and merges fingerprints, as arrays of uint64.

The compiled form (Cython's pure-Python mode) releases the interpreter lock, so a merge
runs beside the crawl. The interpreted form uses numpy and gives the same results.
"""

import cython
import numpy as np

COMPILED: bool = cython.compiled


def sort(keys) -> tuple[np.ndarray, np.ndarray]:
    """Return `keys`, uint64 (n,), in stable sorted order, and the original index of each key, intp (n,)."""
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
@cython.exceptval(check=False)
def _radix_sort(
    a: cython.ulonglong[::1], p: cython.Py_ssize_t[::1], b: cython.ulonglong[::1], q: cython.Py_ssize_t[::1]
) -> cython.bint:
    """Sort `a` byte by byte, and move `p` in the same way, with the buffers `b` and `q`.

    Return whether the buffers hold the result.
    """
    counts = cython.declare(cython.Py_ssize_t[256][8])  # one table for each byte of a key, from 0 to 7
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
            continue  # all keys have the same value in this byte
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


def merge(left, right, out) -> bool:
    """Merge two ascending arrays of uint64 into `out`; return whether the result is strictly ascending.

    Args:
        left, right: uint64 (n,), (m,).
        out: uint64 (n + m,); must not overlap the inputs.
    """
    if not cython.compiled:
        out[: len(left)] = left
        out[len(left) :] = right
        out.sort(kind="stable")  # numpy's stable sort detects the two ascending stretches and merges them
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
        out[i + j] = a if from_left else b  # the compiled code needs no branch for this line
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
    """Return whether `keys` (uint64) are strictly ascending."""
    return bool((keys[1:] > keys[:-1]).all())
