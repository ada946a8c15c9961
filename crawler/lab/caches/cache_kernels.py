"""Simulates URL caches on traces, in loops that numba compiles.

This module is imported only if the extra [lab] is installed.

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
"""

import numpy as np
from numba import njit

_NONE = -1
_jit = njit(cache=True, nogil=True, boundscheck=False)


@_jit
def mixed(number):
    """Map each uint64 to a different, evenly spread uint64; this is the last step of SplitMix64."""
    x = np.uint64(number)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_jit
def _find(table, fingerprints, fingerprint):
    """Return the slot of a fingerprint in the table of ids, or the free slot where it belongs."""
    last = np.uint64(len(table) - 1)
    slot = mixed(fingerprint) & last
    while table[slot] != _NONE and fingerprints[table[slot]] != fingerprint:
        slot = (slot + np.uint64(1)) & last
    return slot


@_jit
def dense_ids(words):
    """Give ids to uint64 words (n,) in order of first appearance.

    Return these ids and the number of distinct words.
    """
    n = len(words)
    ids = np.empty(n, np.int32)
    table = np.full(1 << 12, _NONE, np.int32)
    known = np.empty(1 << 11, np.uint64)
    count = 0
    for t in range(n):
        if count == len(known):
            grown = np.empty(2 * count, np.uint64)
            grown[:count] = known
            known = grown
            table = np.full(2 * len(table), _NONE, np.int32)
            for i in range(count):
                table[_find(table, known, known[i])] = i
        slot = _find(table, known, words[t])
        if table[slot] == _NONE:
            table[slot] = count
            known[count] = words[t]
            count += 1
        ids[t] = table[slot]
    return ids, count


@_jit
def next_uses(ids, distinct):
    """Return, for each request, the time of the next request for its item (N_t in section 5.1); n if there is none."""
    n = len(ids)
    following = np.full(distinct, n, np.int32)
    result = np.empty(n, np.int32)
    for t in range(n - 1, -1, -1):
        result[t] = following[ids[t]]
        following[ids[t]] = t
    return result


@_jit
def _compact(slot_of, owner, used):
    """Move the live slots together without changing their order; return the number of live slots."""
    live = 0
    for slot in range(used):
        item = owner[slot]
        if slot_of[item] == slot:
            slot_of[item] = live
            owner[live] = item
            live += 1
    return live


@_jit
def lru_misses(ids, distinct, sizes, bins):
    """Return the number of misses of LRU for every cache size in `sizes`, int64 (sizes, bins).

    The sizes must be in ascending order.
    """
    n = len(ids)
    capacity = max(2 * min(distinct, n), 1 << 10)
    slot_of = np.full(distinct, _NONE, np.int32)
    owner = np.empty(capacity, np.int32)
    holes = np.zeros(capacity + 1, np.int32)  # Fenwick tree over slots, which are numbered from 1
    # row i counts the requests that hit only in caches of at least sizes[i] entries
    hits = np.zeros((len(sizes) + 1, bins), np.int64)
    used = hole_count = 0
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            item = ids[t]
            slot = slot_of[item]
            if slot == _NONE:
                hits[len(sizes), b] += 1
            else:
                passed = used - 1 - slot
                if passed == 0:
                    hits[0, b] += 1
                    continue
                p = slot + 1
                before = 0
                while p > 0:
                    before += holes[p]
                    p &= p - 1
                distance = passed - (hole_count - before)
                hits[np.searchsorted(sizes, distance, side="right"), b] += 1
                p = slot + 1
                while p <= capacity:
                    holes[p] += 1
                    p += p & -p
                hole_count += 1
            slot_of[item] = used
            if used == capacity:
                used = _compact(slot_of, owner, used)
                holes[:] = 0
                hole_count = 0
                slot_of[item] = used
            owner[used] = item
            used += 1
    misses = np.empty((len(sizes), bins), np.int64)
    for b in range(bins):
        total = (b + 1) * n // bins - b * n // bins
        for i in range(len(sizes)):
            total -= hits[i, b]
            misses[i, b] = total
    return misses


# The product of this number and a power of 2 has different top 6 bits for each power (de Bruijn). From these
# bits, `_PLACE` gives the position of a word's lowest set bit.
_DE_BRUIJN = 0x03F79D71B4CB0A89
_PLACE = np.zeros(64, np.int64)
for _bit in range(64):
    _PLACE[((_DE_BRUIJN << _bit) & (2**64 - 1)) >> 58] = _bit


@_jit
def _set_bit(tree, starts, position):
    """Set the bit of `position` in the bit tree.

    Stop at the first word that was not empty, because its bit on the level above is already set.
    """
    for level in range(5):
        word = starts[level] + (position >> 6)
        before = tree[word]
        tree[word] = before | np.uint64(1) << np.uint64(position & 63)
        if before:
            return
        position >>= 6


@_jit
def _clear_bit(tree, starts, position):
    for level in range(5):
        word = starts[level] + (position >> 6)
        tree[word] &= ~(np.uint64(1) << np.uint64(position & 63))
        if tree[word]:
            return
        position >>= 6


@_jit
def _lowest_bit(tree, starts):
    """Return the lowest position in the bit tree, which must not be empty."""
    position = 0
    for level in range(4, -1, -1):
        word = tree[starts[level] + position]
        lowest = word & (~word + np.uint64(1))
        position = position << 6 | _PLACE[(lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58)]
    return position


@_jit
def min_misses(next_use, size, bins):
    """Return the misses of MIN.

    Bit positions are numbered from the last request to the first, so the latest time has the lowest position.
    """
    n = len(next_use)
    starts = np.zeros(5, np.int64)
    words = 0
    width = n
    for level in range(5):
        starts[level] = words
        width = (width + 63) >> 6
        words += width
    tree = np.zeros(words, np.uint64)
    misses = np.zeros(bins, np.int64)
    held = 0
    last = n - 1
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            position = last - t
            if tree[position >> 6] >> np.uint64(position & 63) & np.uint64(1):
                _clear_bit(tree, starts, position)
                held -= 1
            else:
                misses[b] += 1
            if next_use[t] == n:
                continue
            position = last - next_use[t]
            if held == size:
                latest = _lowest_bit(tree, starts)
                if latest > position:
                    continue
                _clear_bit(tree, starts, latest)
                held -= 1
            _set_bit(tree, starts, position)
            held += 1
    return misses


@_jit
def clock_misses(ids, distinct, size, bins):
    """Return the misses of CLOCK over an array (section 3.4 of the paper). A new item is not marked."""
    n = len(ids)
    size = min(size, distinct)
    place = np.full(distinct, _NONE, np.int32)
    held = np.empty(size, np.int32)
    marks = np.zeros(size, np.uint8)
    misses = np.zeros(bins, np.int64)
    count = hand = 0
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            item = ids[t]
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
    return misses


@_jit
def random_misses(ids, distinct, size, bins, seed):
    """Return the misses of RANDOM, which evicts each cached item with equal probability."""
    n = len(ids)
    size = min(size, distinct)
    place = np.full(distinct, _NONE, np.int32)
    held = np.empty(size, np.int32)
    misses = np.zeros(bins, np.int64)
    state = mixed(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    count = 0
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            item = ids[t]
            if place[item] != _NONE:
                continue
            misses[b] += 1
            if count < size:
                slot = count
                count += 1
            else:
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                slot = int(np.int64(((state >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)))
                place[held[slot]] = _NONE
            held[slot] = item
            place[item] = slot
    return misses
