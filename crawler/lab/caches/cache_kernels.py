# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Simulates URL caches on traces.

A request is the id of a URL, an int32. Ids are numbered from 0 in order of first appearance, so URLs that
appear at about the same time are close together in every array indexed by id. A simulation divides the trace
into `bins` equal windows of time and returns the number of misses in each window, as an int64 array.
Simulating one cache size takes a few tens of nanoseconds per request. LRU takes about as long for all sizes
together as another policy for one size.

*LRU, all sizes at once* (Mattson's stack distances). Each request takes the next time slot, and the slot of
the previous request for the same item becomes a hole. A request hits in a cache of k entries exactly if fewer
than k other items were requested since the last request for the same item. The number of these other items is
the number of slots since that last request, minus the holes among these slots. A Fenwick tree counts the
holes. When no slot is free, the live slots are compacted. If two consecutive requests are for the same item,
the second request changes nothing.

*MIN* (Belady; Broder et al. 2003, section 5.1) needs only the time of the next use of each cached item. No
two items are used next at the same time, so the times are kept in a bit set with one bit per instant. The bit
set is the lowest level of a tree, in which each level has one bit per word of the level below. The request at
t is a hit exactly if bit t is set. The item to evict is the item whose bit is the latest. This bit is found
by reading one word on each of the 5 levels of the tree. An item whose next use is later than those of all
cached items is not added.

RANDOM chooses the item to evict with a xorshift generator. The generator starts from the given seed.

This file is in Cython's pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np
from numpy.typing import NDArray

from crawler.freshness.columns import rows_of

_NONE = cython.declare(cython.int, -1)
_ALL_64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_FIRST_FACTOR = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_SECOND_FACTOR = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_ONE = cython.declare(cython.ulonglong, 1)
_LEVELS = cython.declare(cython.int, 5)  # 64^5 requests, which take 4 GB

Ints = NDArray[np.int32]


def mixed(number: cython.ulonglong) -> cython.ulonglong:
    """Map each uint64 to a different, evenly spread uint64; this is the last step of SplitMix64."""
    number = (number ^ (number >> 30)) * _FIRST_FACTOR & _ALL_64
    number = (number ^ (number >> 27)) * _SECOND_FACTOR & _ALL_64
    return number ^ (number >> 31)


@cython.cfunc
@cython.exceptval(check=False)
def _find(
    table: cython.int[::1], fingerprints: cython.ulonglong[::1], fingerprint: cython.ulonglong
) -> cython.Py_ssize_t:
    """Return the slot of a fingerprint in the table of ids, or the free slot where it belongs."""
    last: cython.ulonglong = table.shape[0] - 1
    slot: cython.ulonglong = mixed(fingerprint) & last
    while table[slot] != _NONE and fingerprints[table[slot]] != fingerprint:
        slot = (slot + 1) & last
    return slot


def dense_ids(requests: NDArray[np.uint64]) -> tuple[Ints, int]:
    """Give ids to uint64 words (n,) in order of first appearance.

    Return these ids and the number of distinct words.
    """
    n: cython.Py_ssize_t = len(requests)
    words: cython.const[cython.ulonglong][::1] = rows_of(requests)
    result = np.empty(n, np.int32)
    ids: cython.int[::1] = rows_of(result)
    table: cython.int[::1] = rows_of(np.full(1 << 12, -1, np.int32))
    named = np.empty(1 << 11, np.uint64)
    known: cython.ulonglong[::1] = rows_of(named)
    count: cython.Py_ssize_t = 0
    t: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for t in range(n):
        if count == known.shape[0]:
            named = np.concatenate((named, np.empty(count, np.uint64)))
            known = rows_of(named)
            table = rows_of(np.full(2 * table.shape[0], -1, np.int32))
            for i in range(count):
                table[_find(table, known, known[i])] = i
        slot: cython.Py_ssize_t = _find(table, known, words[t])
        if table[slot] == _NONE:
            table[slot] = count
            known[count] = words[t]
            count += 1
        ids[t] = table[slot]
    return result, count


def next_uses(requests: Ints, distinct: int) -> Ints:
    """Return, for each request, the time of the next request for its item (N_t in section 5.1); n if there is none."""
    n: cython.Py_ssize_t = len(requests)
    ids: cython.const[cython.int][::1] = rows_of(requests)
    following: cython.int[::1] = rows_of(np.full(distinct, n, np.int32))
    result = np.empty(n, np.int32)
    uses: cython.int[::1] = rows_of(result)
    t: cython.Py_ssize_t
    for t in range(n - 1, -1, -1):
        uses[t] = following[ids[t]]
        following[ids[t]] = t
    return result


@cython.cfunc
@cython.exceptval(check=False)
def _compact(slot_of: cython.int[::1], owner: cython.int[::1], used: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Move the live slots together without changing their order; return the number of live slots."""
    live: cython.Py_ssize_t = 0
    slot: cython.Py_ssize_t
    for slot in range(used):
        item: cython.int = owner[slot]
        if slot_of[item] == slot:
            slot_of[item] = live
            owner[live] = item
            live += 1
    return live


@cython.cfunc
@cython.exceptval(check=False)
def _not_above(sizes: cython.const[cython.longlong][::1], distance: cython.longlong) -> cython.Py_ssize_t:
    """Return how many of the ascending sizes are at most `distance`."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = sizes.shape[0]
    while low < high:
        middle: cython.Py_ssize_t = (low + high) // 2
        if sizes[middle] <= distance:
            low = middle + 1
        else:
            high = middle
    return low


def lru_misses(requests: Ints, distinct: int, cache_sizes: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Return the number of misses of LRU for every cache size in `cache_sizes`, int64 (sizes, bins).

    The sizes must be in ascending order.
    """
    n: cython.Py_ssize_t = len(requests)
    ids: cython.const[cython.int][::1] = rows_of(requests)
    sizes: cython.const[cython.longlong][::1] = rows_of(cache_sizes)
    capacity: cython.Py_ssize_t = max(2 * min(distinct, n), 1 << 10)
    slot_of: cython.int[::1] = rows_of(np.full(distinct, -1, np.int32))
    owner: cython.int[::1] = rows_of(np.empty(capacity, np.int32))
    tree = np.zeros(capacity + 1, np.int32)
    holes: cython.int[::1] = rows_of(tree)  # Fenwick tree over slots, which are numbered from 1
    # row i counts the requests that hit only in caches of at least cache_sizes[i] entries
    counts = np.zeros((len(cache_sizes) + 1, bins), np.int64)
    hits: cython.longlong[:, ::1] = rows_of(counts)
    used: cython.Py_ssize_t = 0
    hole_count: cython.Py_ssize_t = 0
    b: cython.Py_ssize_t
    t: cython.Py_ssize_t
    p: cython.Py_ssize_t
    edges = [b * n // bins for b in range(bins + 1)]
    for b in range(len(edges) - 1):
        begin: cython.Py_ssize_t = edges[b]
        end: cython.Py_ssize_t = edges[b + 1]
        for t in range(begin, end):
            item: cython.int = ids[t]
            slot: cython.Py_ssize_t = slot_of[item]
            if slot == _NONE:
                hits[sizes.shape[0], b] += 1
            else:
                passed: cython.Py_ssize_t = used - 1 - slot
                if passed == 0:
                    hits[0, b] += 1
                    continue
                p = slot + 1
                before: cython.Py_ssize_t = 0
                while p > 0:
                    before += holes[p]
                    p &= p - 1
                hits[_not_above(sizes, passed - (hole_count - before)), b] += 1
                p = slot + 1
                while p <= capacity:
                    holes[p] += 1
                    p += p & -p
                hole_count += 1
            slot_of[item] = used
            if used == capacity:
                used = _compact(slot_of, owner, used)
                tree[:] = 0
                hole_count = 0
                slot_of[item] = used
            owner[used] = item
            used += 1
    return np.diff(edges) - np.cumsum(counts[: len(cache_sizes)], axis=0)


@cython.cfunc
@cython.exceptval(check=False)
def _set_bit(
    tree: cython.ulonglong[::1], starts: cython.longlong[::1], position: cython.Py_ssize_t
) -> cython.void:
    """Set the bit of `position` in the bit tree.

    Stop at the first word that was not empty, because its bit on the level above is already set.
    """
    level: cython.int
    for level in range(_LEVELS):
        word: cython.Py_ssize_t = starts[level] + (position >> 6)
        before: cython.ulonglong = tree[word]
        tree[word] = before | _ONE << (position & 63)
        if before:
            return
        position >>= 6


@cython.cfunc
@cython.exceptval(check=False)
def _clear_bit(
    tree: cython.ulonglong[::1], starts: cython.longlong[::1], position: cython.Py_ssize_t
) -> cython.void:
    level: cython.int
    for level in range(_LEVELS):
        word: cython.Py_ssize_t = starts[level] + (position >> 6)
        tree[word] &= ~(_ONE << (position & 63))
        if tree[word]:
            return
        position >>= 6


@cython.cfunc
@cython.exceptval(check=False)
def _lowest_bit(tree: cython.ulonglong[::1], starts: cython.longlong[::1]) -> cython.Py_ssize_t:
    """Return the lowest position in the bit tree, which must not be empty."""
    position: cython.Py_ssize_t = 0
    level: cython.int
    for level in range(_LEVELS - 1, -1, -1):
        position = position << 6 | _lowest_one(tree[starts[level] + position])
    return position


@cython.cfunc
@cython.exceptval(check=False)
def _lowest_one(word: cython.ulonglong) -> cython.int:
    """Return the position of the lowest set bit, in six steps that halve the part of the word in which it is."""
    place: cython.int = 0
    width: cython.int = 32
    while width:
        if not word & ((_ONE << width) - 1):
            word >>= width
            place += width
        width >>= 1
    return place


def min_misses(following: Ints, size: cython.Py_ssize_t, bins: int) -> NDArray[np.int64]:
    """Return the misses of MIN; `following` are the `next_uses` of the requests.

    Bit positions are numbered from the last request to the first, so the latest time has the lowest position.
    """
    n: cython.Py_ssize_t = len(following)
    next_use: cython.const[cython.int][::1] = rows_of(following)
    edges = [0]
    width: cython.Py_ssize_t = n
    for _ in range(_LEVELS):
        width = (width + 63) >> 6
        edges.append(edges[len(edges) - 1] + width)
    starts: cython.longlong[::1] = rows_of(np.array(edges))
    tree: cython.ulonglong[::1] = rows_of(np.zeros(edges[_LEVELS], np.uint64))
    result = np.zeros(bins, np.int64)
    misses: cython.longlong[::1] = rows_of(result)
    held: cython.Py_ssize_t = 0
    last: cython.Py_ssize_t = n - 1
    position: cython.Py_ssize_t
    b: cython.Py_ssize_t
    t: cython.Py_ssize_t
    for b in range(misses.shape[0]):
        for t in range(b * n // misses.shape[0], (b + 1) * n // misses.shape[0]):
            position = last - t
            if tree[position >> 6] >> (position & 63) & _ONE:
                _clear_bit(tree, starts, position)
                held -= 1
            else:
                misses[b] += 1
            if next_use[t] == n:
                continue
            position = last - next_use[t]
            if held == size:
                latest: cython.Py_ssize_t = _lowest_bit(tree, starts)
                if latest > position:
                    continue
                _clear_bit(tree, starts, latest)
                held -= 1
            _set_bit(tree, starts, position)
            held += 1
    return result


def clock_misses(requests: Ints, distinct: int, entries: int, bins: int) -> NDArray[np.int64]:
    """Return the misses of CLOCK over an array (section 3.4 of the paper). A new item is not marked."""
    n: cython.Py_ssize_t = len(requests)
    ids: cython.const[cython.int][::1] = rows_of(requests)
    size: cython.Py_ssize_t = min(entries, distinct)
    place: cython.int[::1] = rows_of(np.full(distinct, -1, np.int32))
    held: cython.int[::1] = rows_of(np.empty(size, np.int32))
    marks: cython.uchar[::1] = rows_of(np.zeros(size, np.uint8))
    result = np.zeros(bins, np.int64)
    misses: cython.longlong[::1] = rows_of(result)
    count: cython.Py_ssize_t = 0
    hand: cython.Py_ssize_t = 0
    slot: cython.Py_ssize_t
    b: cython.Py_ssize_t
    t: cython.Py_ssize_t
    for b in range(misses.shape[0]):
        for t in range(b * n // misses.shape[0], (b + 1) * n // misses.shape[0]):
            item: cython.int = ids[t]
            if place[item] != _NONE:
                marks[place[item]] = 1
                continue
            misses[b] += 1
            if count < size:
                slot = count
                count += 1
            else:
                while marks[hand]:
                    marks[hand] = 0
                    hand = hand + 1 if hand + 1 < size else 0
                slot = hand
                place[held[slot]] = _NONE
                hand = hand + 1 if hand + 1 < size else 0
            held[slot] = item
            place[item] = slot
    return result


def random_misses(
    requests: Ints, distinct: int, entries: int, bins: int, seed: cython.ulonglong
) -> NDArray[np.int64]:
    """Return the misses of RANDOM, which evicts each cached item with equal probability."""
    n: cython.Py_ssize_t = len(requests)
    ids: cython.const[cython.int][::1] = rows_of(requests)
    size: cython.Py_ssize_t = min(entries, distinct)
    place: cython.int[::1] = rows_of(np.full(distinct, -1, np.int32))
    held: cython.int[::1] = rows_of(np.empty(size, np.int32))
    result = np.zeros(bins, np.int64)
    misses: cython.longlong[::1] = rows_of(result)
    state: cython.ulonglong = mixed(seed + _STEP & _ALL_64) | 1
    count: cython.Py_ssize_t = 0
    slot: cython.Py_ssize_t
    b: cython.Py_ssize_t
    t: cython.Py_ssize_t
    for b in range(misses.shape[0]):
        for t in range(b * n // misses.shape[0], (b + 1) * n // misses.shape[0]):
            item: cython.int = ids[t]
            if place[item] != _NONE:
                continue
            misses[b] += 1
            if count < size:
                slot = count
                count += 1
            else:
                state ^= state << 13 & _ALL_64
                state ^= state >> 7
                state ^= state << 17 & _ALL_64
                slot = (state >> 32) * size >> 32
                place[held[slot]] = _NONE
            held[slot] = item
            place[item] = slot
    return result
