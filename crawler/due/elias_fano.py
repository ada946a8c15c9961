# cython: boundscheck=False, wraparound=False
"""Elias-Fano coding of runs. A block stores `FENCE_STEP` keys, relative to the first key of the block (Vigna 2013).

    encode, decode     convert keys to words and back
    join               look up keys without decoding a block, unless many queries fall into it

The compiled form (Cython's pure-Python mode) releases the interpreter lock. The interpreted form is in
`coding_by_numpy.py` and returns the same results.
"""

import cython
import numpy as np

if cython.compiled:
    from cython.cimports.crawler.due.inline import behind_one, gallop, lowest_one, ones_of, prefetch
else:
    from crawler.due import coding_by_numpy

from crawler.due.run_layout import FENCE_STEP

COMPILED: bool = cython.compiled

# FENCE_STEP as a C constant, because code without the interpreter lock cannot read a Python variable
_STEP = cython.declare(cython.Py_ssize_t, FENCE_STEP)
# If at least this many queries fall into a block, decoding the whole block (1.8 us) is faster than single
# look-ups.
_DENSE = cython.declare(cython.Py_ssize_t, 48)


def encode(keys, posts, widths, starts, words) -> None:
    """Encode `keys`, uint64 (n,), into `words`, uint64 (starts[-1],), which must be all 0.

    The other arguments are described in `run_layout.layout`.
    """
    if not cython.compiled:
        coding_by_numpy.encode(keys, posts, widths, starts, words)
        return
    source: cython.const[cython.ulonglong][::1] = keys
    fences: cython.const[cython.ulonglong][::1] = posts
    width_of: cython.const[cython.uchar][::1] = widths
    start_of: cython.const[cython.Py_ssize_t][::1] = starts
    target: cython.ulonglong[::1] = words
    block: cython.Py_ssize_t
    first: cython.Py_ssize_t
    assert starts[len(widths)] <= target.shape[0] and len(widths) == -(-len(keys) // FENCE_STEP)
    with cython.nogil:
        for block in range(width_of.shape[0]):
            first = block * _STEP
            _encode_block(
                source[first : min(first + _STEP, source.shape[0])],
                fences[block + 1],
                width_of[block],
                target[start_of[block] : start_of[block + 1]],
            )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _encode_block(
    keys: cython.const[cython.ulonglong][::1],
    post: cython.ulonglong,
    width: cython.int,
    words: cython.ulonglong[::1],
) -> cython.void:
    one: cython.ulonglong = 1
    mask: cython.ulonglong = (one << width) - 1
    i: cython.Py_ssize_t
    key: cython.ulonglong
    place: cython.ulonglong
    low: cython.ulonglong = keys.shape[0] + ((post - keys[0]) >> width) + 1
    for i in range(keys.shape[0]):
        key = keys[i] - keys[0]
        place = (key >> width) + i
        words[place >> 6] |= one << (place & 63)
        key &= mask
        words[low >> 6] |= key << (low & 63) if width else 0
        if (low & 63) + width > 64:
            words[(low >> 6) + 1] |= key >> (64 - (low & 63))
        low += width


def decode(words, posts, widths, starts, first: cython.Py_ssize_t, keys) -> None:
    """Decode whole blocks, from block number `first` on, until `keys` is full."""
    if not cython.compiled:
        blocks = np.arange(first, first - (-len(keys) // FENCE_STEP))
        keys[:] = coding_by_numpy.decode(words, posts, widths, starts, blocks, len(keys))
        return
    source: cython.const[cython.ulonglong][::1] = words
    fences: cython.const[cython.ulonglong][::1] = posts
    width_of: cython.const[cython.uchar][::1] = widths
    start_of: cython.const[cython.Py_ssize_t][::1] = starts
    target: cython.ulonglong[::1] = keys
    block: cython.Py_ssize_t = first
    begin: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    with cython.nogil:
        while begin < target.shape[0]:
            stop = min(begin + _STEP, target.shape[0])
            _decode_block(
                source[start_of[block] :],
                fences[block],
                fences[block + 1],
                width_of[block],
                target[begin:stop],
            )
            begin = stop
            block += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _decode_block(
    words: cython.const[cython.ulonglong][::1],
    fence: cython.ulonglong,
    post: cython.ulonglong,
    width: cython.int,
    keys: cython.ulonglong[::1],
) -> cython.void:
    """Decode one block: first the high parts, one set bit at a time, then the low parts.

    A damaged block gives wrong keys. Even then, the function writes nothing beyond `keys` and reads nothing
    beyond the block.
    """
    one: cython.ulonglong = 1
    mask: cython.ulonglong = (one << width) - 1
    i: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = keys.shape[0]
    place: cython.ulonglong = 0
    low: cython.ulonglong = count + ((post - fence) >> width) + 1
    word: cython.ulonglong
    value: cython.ulonglong
    while place < low and i < count:
        word = words[place >> 6]
        while word and i < count:
            keys[i] = place + lowest_one(word) - i
            word &= word - 1
            i += 1
        place += 64
    while i < count:
        keys[i] = 0
        i += 1
    for i in range(count):
        value = words[low >> 6] >> (low & 63)
        if (low & 63) + width > 64:
            value |= words[(low >> 6) + 1] << (64 - (low & 63))
        keys[i] = fence + (keys[i] << width | value & mask)
        low += width


def join(queries, words, posts, widths, starts, count: cython.Py_ssize_t, known) -> None:
    """Set `known[i] = 1` for each query that is among the `count` keys of a coded run.

    Args:
        queries: uint64 (n,), ascending; queries that are already marked in `known` are skipped.
        words, posts, widths, starts: the blocks and their layout; see `encode` and `run_layout.layout`.
        count: the number of keys in the run.
        known: uint8 (n,), changed in place.
    """
    if not cython.compiled:
        coding_by_numpy.join(queries, words, posts, widths, starts, count, known)
        return
    if len(queries):
        joining = _CodedJoin(queries, words, posts, widths, starts, count, known)
        with cython.nogil:
            joining.run()


@cython.cclass
class _CodedJoin:
    """Looks up queries in a coded run, up to 16 at a time, in three steps.

    Each step prefetches the data that the next step needs. The high parts of a block fill three cache lines,
    and its low parts fill forty. To find a high part, the zeros of the block are counted. If consecutive
    queries fall into the same block, the count continues where the previous query stopped. If many queries
    fall into a block, the whole block is decoded into `held`. The attributes are declared in
    `elias_fano.pxd`.
    """

    def __init__(self, queries, words, posts, widths, starts, count: cython.Py_ssize_t, known) -> None:
        self.queries = queries
        self.words = words
        self.posts = posts
        self.fences = posts[:-1]
        self.widths = widths
        self.starts = starts
        self.count = count
        self.known = known
        self.held = np.empty(FENCE_STEP, np.uint64)
        self.block = 0
        self.walked = -1

    def run(self) -> cython.void:
        """Answer all queries."""
        start: cython.Py_ssize_t = 0
        while start < self.queries.shape[0]:
            start = self.gather(start)
            self.find()
            self.answer()

    def gather(self, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Collect queries from number `start` on, and prefetch the high parts of their blocks.

        Returns the number of the first query that was not examined.
        """
        begin: cython.Py_ssize_t
        length: cython.Py_ssize_t
        block: cython.Py_ssize_t = self.block
        taken: cython.Py_ssize_t = 0
        last: cython.ulonglong = self.posts[self.posts.shape[0] - 1]
        while start < self.queries.shape[0] and taken < 16:
            if not self.known[start] and self.posts[0] <= self.queries[start] <= last:
                block = gallop(self.fences, block, self.queries[start])
                if taken == 0 or self.blocks[taken - 1] != block:
                    if _are_many(self.queries, self.known, start, self.posts[block + 1]):
                        start = self.join_whole(block, start)
                        continue
                    begin = self.starts[block]
                    length = self.starts[block + 1] - begin
                    _fetch(self.words, begin)
                    _fetch(self.words, begin + min(8, length - 1))
                    _fetch(self.words, begin + min(16, length - 1))
                self.blocks[taken] = block
                self.asked[taken] = start
                taken += 1
            start += 1
        self.taken = taken
        self.block = block
        return start

    def join_whole(self, block: cython.Py_ssize_t, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Decode a block, and answer all queries that fall into it, beginning with query number `start`.

        Returns the number of the first query that lies beyond the block.
        """
        length: cython.Py_ssize_t = min(_STEP, self.count - block * _STEP)
        behind: cython.ulonglong = self.posts[block + 1]
        _decode_block(
            self.words[self.starts[block] :],
            self.posts[block],
            behind,
            self.widths[block],
            self.held[:length],
        )
        return _join_block(self.queries, self.held[:length], start, behind, self.known)

    def find(self) -> cython.void:
        """Find the high part of each collected query and prefetch the matching low part."""
        i: cython.Py_ssize_t
        block: cython.Py_ssize_t
        ones: cython.Py_ssize_t
        width: cython.ulonglong
        begin: cython.ulonglong
        low: cython.ulonglong
        high: cython.ulonglong
        at: cython.ulonglong
        for i in range(self.taken):
            block = self.blocks[i]
            ones = min(_STEP, self.count - block * _STEP)
            width = self.widths[block]
            begin = 64 * self.starts[block]
            high = (self.queries[self.asked[i]] - self.posts[block]) >> width
            low = begin + ones + ((self.posts[block + 1] - self.posts[block]) >> width) + 1
            if block != self.walked:
                self.walked = block
                self.word = begin
                self.passed = 0
            self.lows[i] = low
            self.places[i] = self.walk(high, low) if high else self.word
            at = low + (self.places[i] - begin - high) * width
            _fetch(self.words, min(cython.cast(cython.Py_ssize_t, at >> 6), self.starts[block + 1] - 1))

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def walk(self, high: cython.ulonglong, low: cython.ulonglong) -> cython.ulonglong:
        """Return the position after the block's zero bit number `high` (counted from 1), limited to `low`."""
        word: cython.ulonglong = self.word
        passed: cython.ulonglong = self.passed
        zeros: cython.ulonglong
        while word < low:
            zeros = 64 - ones_of(self.words[word >> 6])
            if passed + zeros >= high:
                break
            passed += zeros
            word += 64
        self.word = word
        self.passed = passed
        if word >= low:
            return low
        return min(word + behind_one(~self.words[word >> 6], high - passed), low)

    def answer(self) -> cython.void:
        """Compare the low parts of the collected queries."""
        i: cython.Py_ssize_t
        block: cython.Py_ssize_t
        for i in range(self.taken):
            block = self.blocks[i]
            self.known[self.asked[i]] = _block_holds(
                self.words,
                64 * self.starts[block],
                64 * self.starts[block + 1],
                self.places[i],
                self.lows[i],
                self.queries[self.asked[i]] - self.posts[block],
                self.widths[block],
            )


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _fetch(words: cython.const[cython.ulonglong][::1], at: cython.Py_ssize_t) -> cython.void:
    """Prefetch a word's cache line without waiting.

    With 8e6 keys, a query takes 62 ns with this prefetch, and 124 ns if the word is read here instead.
    """
    prefetch(cython.address(words[at]))


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _are_many(
    queries: cython.const[cython.ulonglong][::1],
    known: cython.uchar[::1],
    start: cython.Py_ssize_t,
    behind: cython.ulonglong,
) -> cython.bint:
    """Return whether at least _DENSE queries from index `start` on are below `behind` and still unanswered."""
    i: cython.Py_ssize_t
    asked: cython.Py_ssize_t = 0
    if start + _DENSE > queries.shape[0] or queries[start + _DENSE - 1] >= behind:
        return False
    for i in range(start, queries.shape[0]):
        if queries[i] >= behind or asked == _DENSE:
            break
        asked += not known[i]
    return asked == _DENSE


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _join_block(
    queries: cython.const[cython.ulonglong][::1],
    keys: cython.const[cython.ulonglong][::1],
    start: cython.Py_ssize_t,
    behind: cython.ulonglong,
    known: cython.uchar[::1],
) -> cython.Py_ssize_t:
    """Answer the queries that are below `behind`, beginning with the query at index `start`.

    Returns the index of the first query that is not below `behind`.
    """
    at: cython.Py_ssize_t = 0
    while start < queries.shape[0] and queries[start] < behind:
        if not known[start]:
            at = gallop(keys, at, queries[start])
            known[start] = keys[at] == queries[start]
        start += 1
    return start


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _block_holds(
    words: cython.const[cython.ulonglong][::1],
    begin: cython.ulonglong,
    end: cython.ulonglong,
    place: cython.ulonglong,
    lows: cython.ulonglong,
    query: cython.ulonglong,
    width: cython.int,
) -> cython.bint:
    """Return whether a block holds the key that is greater than the block's first key by `query`.

    The block fills bits `begin` to `end` of `words`. The high part of the key would be at bit `place`.
    """
    one: cython.ulonglong = 1
    mask: cython.ulonglong = (one << width) - 1
    at: cython.ulonglong = lows + (place - begin - (query >> width)) * width
    value: cython.ulonglong
    query &= mask
    while place < lows and at + width <= end and words[place >> 6] >> (place & 63) & 1:
        value = words[at >> 6] >> (at & 63) if width else 0
        if (at & 63) + width > 64:
            value |= words[(at >> 6) + 1] << (64 - (at & 63))
        value &= mask
        if value >= query:
            return value == query
        place += 1
        at += width
    return False
