"""Simulates replacement policies published since 2017, to compare them with CLOCK.

numba compiles this module, too.

* SIEVE (Zhang et al., NSDI 2024): a FIFO queue with a hand that moves from the
  oldest to the newest item and clears marks like CLOCK's hand. The policy evicts the item at the hand, so new
  items stay on one side of the hand.
* S3-FIFO (Yang et al., SOSP 2023): new items enter a small FIFO queue, a tenth
  of the cache. An item enters the main queue if it is requested at least twice while it is in the small
  queue, or requested soon after it left that queue. Items requested again in the main queue stay there for
  another round.
* W-TinyLFU (Einziger, Friedman, Manes, 2017): new items enter an LRU window, a
  hundredth of the cache. An item that leaves the window enters the main part, a segmented LRU, if a count-min
  sketch counts more requests for it than for the victim. Counters have 4 bits. Let c be the cache size,
  rounded up to a power of two. All counters are halved after every 10 c requests.

All three policies need more memory per item than CLOCK, which needs one bit. The functions have the same
arguments and return values as those of `cache_kernels`.
"""

import numpy as np
from numba import njit

from crawler.lab.caches.cache_kernels import mixed

_NONE = -1
_jit = njit(cache=True, nogil=True, boundscheck=False)


@_jit
def sieve_misses(ids, distinct, size, bins):
    """Return the misses of SIEVE."""
    n = len(ids)
    size = min(size, distinct)
    place = np.full(distinct, _NONE, np.int32)
    held = np.empty(size, np.int32)
    newer = np.full(size, _NONE, np.int32)
    older = np.full(size, _NONE, np.int32)
    marks = np.zeros(size, np.uint8)
    misses = np.zeros(bins, np.int64)
    newest = oldest = hand = _NONE
    count = 0
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
                if hand == _NONE:
                    hand = oldest
                while marks[hand]:
                    marks[hand] = 0
                    hand = newer[hand] if newer[hand] != _NONE else oldest
                slot = hand
                hand = newer[slot]
                place[held[slot]] = _NONE
                if older[slot] != _NONE:
                    newer[older[slot]] = newer[slot]
                else:
                    oldest = newer[slot]
                if newer[slot] != _NONE:
                    older[newer[slot]] = older[slot]
                else:
                    newest = older[slot]
            held[slot] = item
            place[item] = slot
            older[slot] = newest
            newer[slot] = _NONE
            if newest != _NONE:
                newer[newest] = slot
            else:
                oldest = slot
            newest = slot
    return misses


@_jit
def s3fifo_misses(ids, distinct, size, bins):
    """Return the misses of S3-FIFO. The ghost queue remembers as many items as fit into the main queue."""
    n = len(ids)
    size = min(size, distinct)
    small_size = max(1, size // 10)
    main_size = size - small_size
    uses = np.full(distinct, _NONE, np.int8)  # _NONE: the item is not in the cache
    # for each item, the number of items that had left the small queue before it
    left = np.full(distinct, -(1 << 62), np.int64)
    small = np.empty(size + 1, np.int32)  # rings
    main = np.empty(size + 1, np.int32)
    small_head = small_count = main_head = main_count = departures = 0
    misses = np.zeros(bins, np.int64)
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            item = ids[t]
            if uses[item] != _NONE:
                uses[item] = min(uses[item] + 1, 3)
                continue
            misses[b] += 1
            while small_count + main_count >= size:
                from_small = small_count >= small_size or main_count == 0
                evicted = False
                while from_small and small_count > 0 and not evicted:
                    victim = small[small_head]
                    small_head = small_head + 1 if small_head < size else 0
                    small_count -= 1
                    if uses[victim] > 1 and main_size > 0:
                        uses[victim] = 0
                        main[(main_head + main_count) % (size + 1)] = victim
                        main_count += 1
                        from_small = main_count <= main_size
                    else:
                        uses[victim] = _NONE
                        left[victim] = departures
                        departures += 1
                        evicted = True
                if evicted:
                    continue
                while uses[main[main_head]] > 0:
                    victim = main[main_head]
                    uses[victim] -= 1
                    main_head = main_head + 1 if main_head < size else 0
                    main[(main_head + main_count - 1) % (size + 1)] = victim
                uses[main[main_head]] = _NONE
                main_head = main_head + 1 if main_head < size else 0
                main_count -= 1
            uses[item] = 0
            if departures - left[item] <= main_size:
                left[item] = -(1 << 62)
                main[(main_head + main_count) % (size + 1)] = item
                main_count += 1
            else:
                small[(small_head + small_count) % (size + 1)] = item
                small_count += 1
    return misses


@_jit
def _unlink(before, after, slot):
    after[before[slot]] = after[slot]
    before[after[slot]] = before[slot]


@_jit
def _push(before, after, head, slot):
    """Insert `slot` right after `head`, the position of the most recent item."""
    before[slot] = head
    after[slot] = after[head]
    before[after[head]] = slot
    after[head] = slot


@_jit
def _sketch_add(sketch, width, item):
    """Count one more request for an item in the four rows of the sketch. A counter has 4 bits."""
    word = mixed(item)
    for row in range(4):
        cell = row * width + np.int64(word & np.uint64(width - 1))
        if sketch[cell] < 15:
            sketch[cell] += 1
        word = mixed(word)


@_jit
def _sketch_count(sketch, width, item):
    word = mixed(item)
    least = 15
    for row in range(4):
        least = min(least, sketch[row * width + np.int64(word & np.uint64(width - 1))])
        word = mixed(word)
    return least


@_jit
def wtinylfu_misses(ids, distinct, size, bins):
    """Return the misses of W-TinyLFU."""
    n = len(ids)
    size = min(size, distinct)
    window_size = max(1, size // 100)
    main_size = size - window_size
    protected_size = main_size * 4 // 5
    width = 16
    while width < size:
        width *= 2
    sketch = np.zeros(4 * width, np.uint8)
    place = np.full(distinct, _NONE, np.int32)
    held = np.empty(size, np.int32)
    # the part of the cache to which each slot belongs: 0 window, 1 probation, 2 protected
    part = np.zeros(size, np.int8)
    counts = np.zeros(3, np.int64)
    heads = np.array([size, size + 1, size + 2])
    # circular lists; the predecessor of a list's head is its least recently used item
    before = np.arange(size + 3)
    after = np.arange(size + 3)
    misses = np.zeros(bins, np.int64)
    requests = count = 0
    for b in range(bins):
        for t in range(b * n // bins, (b + 1) * n // bins):
            item = ids[t]
            _sketch_add(sketch, width, item)
            requests += 1
            if requests == 10 * width:
                sketch >>= np.uint8(1)
                requests = 0
            slot = place[item]
            if slot != _NONE:
                _unlink(before, after, slot)
                # the item was requested again: it moves from probation to the protected part
                if part[slot] == 1:
                    counts[1] -= 1
                    counts[2] += 1
                    part[slot] = 2
                _push(before, after, heads[part[slot]], slot)
                if counts[2] > protected_size:
                    demoted = before[heads[2]]
                    _unlink(before, after, demoted)
                    _push(before, after, heads[1], demoted)
                    part[demoted] = 1
                    counts[2] -= 1
                    counts[1] += 1
                continue
            misses[b] += 1
            slot = count
            if counts[0] == window_size:
                candidate = before[heads[0]]
                if counts[1] + counts[2] < main_size:
                    _unlink(before, after, candidate)
                    _push(before, after, heads[1], candidate)
                    part[candidate] = 1
                    counts[0] -= 1
                    counts[1] += 1
                else:
                    slot = candidate
                    if main_size > 0:
                        victim = before[heads[1]] if counts[1] else before[heads[2]]
                        seen = _sketch_count(sketch, width, held[candidate])
                        if seen > _sketch_count(sketch, width, held[victim]):
                            slot = victim
                    place[held[slot]] = _NONE
                    _unlink(before, after, slot)
                    counts[part[slot]] -= 1
                    if slot != candidate:
                        _unlink(before, after, candidate)
                        _push(before, after, heads[1], candidate)
                        part[candidate] = 1
                        counts[0] -= 1
                        counts[1] += 1
            if slot == count:
                count += 1
            held[slot] = item
            place[item] = slot
            part[slot] = 0
            counts[0] += 1
            _push(before, after, heads[0], slot)
    return misses
