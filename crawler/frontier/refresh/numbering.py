# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Maps 64-bit keys to small numbers and back, without a pause when the table grows.

Linear hashing (Litwin 1980): every second insertion splits one bucket into two, so the table is never
rebuilt. A bucket is a chain of numbers. There are three keys per two buckets, so a search examines fewer than
two keys on average. A key and its link are stored together, because with millions of keys every access is a
cache miss. A key takes 15 bytes. Numbers of removed keys are reused.
"""

import cython
import numpy as np

from crawler.freshness.columns import Column

if not cython.compiled:
    Entry = None

_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)  # 2^64 / golden ratio, a factor to spread keys
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_FREE = cython.declare(cython.int, -2)  # end of the list of free numbers
_LOW = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_FIRST_BUCKETS = 16
# the two halves of a key, and the next number in the chain of the key's bucket
KIND = np.dtype([("low", "u4"), ("high", "u4"), ("next", "i4")])


@cython.cclass
class Numbering:
    """Gives each key one of the numbers 0 .. rows - 1. At present, `size` of these numbers belong to keys."""

    def __init__(self) -> None:
        self._column, self._heads_column = Column(KIND), Column("i4")
        self._entries = self._column.grow(1)
        self._heads = self._heads_column.grow(_FIRST_BUCKETS)
        self._capacity = len(self._entries)
        self._buckets = self._half = _FIRST_BUCKETS
        for bucket in range(_FIRST_BUCKETS):
            self._heads[bucket] = -1
        self.rows = 0
        self.size = 0
        self._free = -1

    def find(self, key: cython.ulonglong) -> cython.int:
        """Return the number of the key; -1 if it has none."""
        if not cython.compiled:
            key = int(key)  # a numpy number would issue a warning when it wraps around
        number: cython.int = self._heads[self._bucket_of(key)]
        low: cython.uint = cython.cast(cython.uint, key & _LOW)
        high: cython.uint = cython.cast(cython.uint, key >> 32)
        while number >= 0 and not (self._entries[number].low == low and self._entries[number].high == high):
            number = self._entries[number].next
        return number

    def insert(self, key: cython.ulonglong) -> cython.int:
        """Assign and return a number for a new key: a free number, or else the next one."""
        if not cython.compiled:
            key = int(key)
        number: cython.int
        if self._free >= 0:
            number = self._free
            self._free = max(self._entries[number].next, -1)
        else:
            if self.rows == self._capacity:
                self._grow()
            number = cython.cast(cython.int, self.rows)
            self.rows += 1
        bucket: cython.Py_ssize_t = self._bucket_of(key)
        self._entries[number].low = cython.cast(cython.uint, key & _LOW)
        self._entries[number].high = cython.cast(cython.uint, key >> 32)
        self._entries[number].next = self._heads[bucket]
        self._heads[bucket] = number
        self.size += 1
        if 2 * self.size > 3 * self._buckets:
            self._split()
        return number

    def remove(self, number: cython.int) -> cython.void:
        """Remove the key of a number; the number is reused after `recycle`."""
        bucket: cython.Py_ssize_t = self._bucket_of(self.key_of(number))
        other: cython.int = self._heads[bucket]
        if other == number:
            self._heads[bucket] = self._entries[number].next
        else:
            while self._entries[other].next != number:
                other = self._entries[other].next
            self._entries[other].next = self._entries[number].next
        self.size -= 1

    def recycle(self, number: cython.int) -> cython.void:
        """Allow a removed number to be reused."""
        self._entries[number].next = self._free if self._free >= 0 else _FREE
        self._free = number

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _bucket_of(self, key: cython.ulonglong) -> cython.Py_ssize_t:
        spread: cython.ulonglong = ((key ^ (key >> 32)) * _GOLDEN & _WORD) >> 24
        bucket: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, spread & (2 * self._half - 1))
        return bucket if bucket < self._buckets else bucket - self._half

    def _split(self) -> cython.void:
        """Split the next bucket into itself and a new one at the end."""
        old: cython.Py_ssize_t = self._buckets - self._half
        if self._buckets >= len(self._heads):
            self._heads = np.zeros(0, np.int32)
            self._heads = self._heads_column.grow(self._buckets + 1)
        number: cython.int = self._heads[old]
        following: cython.int
        bucket: cython.Py_ssize_t
        self._heads[old] = -1
        self._heads[self._buckets] = -1
        self._buckets += 1
        while number >= 0:
            following = self._entries[number].next
            bucket = self._bucket_of(self.key_of(number))
            self._entries[number].next = self._heads[bucket]
            self._heads[bucket] = number
            number = following
        if self._buckets == 2 * self._half:
            self._half *= 2

    def _grow(self) -> cython.void:
        self._entries = np.zeros(0, KIND).view(np.recarray)
        self._entries = self._column.grow(self.rows + 1)
        self._capacity = len(self._entries)

    def key_of(self, number: cython.int) -> cython.ulonglong:
        return cython.cast(cython.ulonglong, self._entries[number].high) << 32 | self._entries[number].low

    def bytes_held(self) -> int:
        return 12 * self.rows + 4 * self._buckets

    def __len__(self) -> int:
        return self.size

    def _check(self) -> list[int]:
        """Assert that every key is found in its bucket; return all numbers in use."""
        found = []
        assert self._half <= self._buckets < 2 * self._half
        for bucket in range(self._buckets):
            number = self._heads[bucket]
            while number >= 0:
                assert self._bucket_of(self.key_of(number)) == bucket
                found.append(int(number))
                number = self._entries[number].next
        assert len(set(found)) == len(found) == self.size
        return found
