# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""64-bit keys to small numbers, and back, without a burst of work when the table grows.

Linear hashing (Litwin 1980): with every second insertion one bucket is split
into two, so there is never a table to be made anew. A bucket is a chain of
numbers; at two keys a bucket a search looks at two keys on average. 14 bytes a
key. Numbers of removed keys are given out again.

Cython pure-Python mode; attributes in `numbering.pxd`.
"""

import cython
import numpy as np

from crawler.freshness.columns import Column

_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads the keys
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_LOAD = cython.declare(cython.Py_ssize_t, 2)  # keys a bucket
_FREE = cython.declare(cython.int, -2)  # ends the list of free numbers
_FIRST_BUCKETS = 16


@cython.cclass
class Numbering:
    """Numbers 0 .. rows - 1, of which `size` stand for a key."""

    def __init__(self) -> None:
        self._keys_column, self._chain_column, self._heads_column = Column("u8"), Column("i4"), Column("i4")
        self.keys = self._keys_column.grow(1)
        self._chain = self._chain_column.grow(1)
        self._heads = self._heads_column.grow(_FIRST_BUCKETS)
        self._capacity = len(self.keys)
        self._buckets = self._half = _FIRST_BUCKETS
        for bucket in range(_FIRST_BUCKETS):
            self._heads[bucket] = -1
        self.rows = 0
        self.size = 0
        self._free = -1

    @cython.ccall
    @cython.exceptval(check=False)
    def find(self, key: cython.ulonglong) -> cython.int:
        """The number of the key; -1 if it has none."""
        number: cython.int = self._heads[self._bucket_of(key)]
        while number >= 0 and self.keys[number] != key:
            number = self._chain[number]
        return number

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def insert(self, key: cython.ulonglong) -> cython.int:
        """A number for a key that has none: one that is free, or the next."""
        number: cython.int
        if self._free >= 0:
            number = self._free
            self._free = self._chain[number] if self._chain[number] >= 0 else -1
        else:
            if self.rows == self._capacity:
                self._grow()
            number = cython.cast(cython.int, self.rows)
            self.rows += 1
        bucket: cython.Py_ssize_t = self._bucket_of(key)
        self.keys[number] = key
        self._chain[number] = self._heads[bucket]
        self._heads[bucket] = number
        self.size += 1
        if self.size > _LOAD * self._buckets:
            self._split()
        return number

    @cython.ccall
    @cython.exceptval(check=False)
    def remove(self, number: cython.int) -> cython.void:
        """The number stands for no key any more; it is given out again after `recycle`."""
        bucket: cython.Py_ssize_t = self._bucket_of(self.keys[number])
        other: cython.int = self._heads[bucket]
        if other == number:
            self._heads[bucket] = self._chain[number]
        else:
            while self._chain[other] != number:
                other = self._chain[other]
            self._chain[other] = self._chain[number]
        self.size -= 1

    @cython.ccall
    @cython.exceptval(check=False)
    def recycle(self, number: cython.int) -> cython.void:
        """Let a removed number be given out again."""
        self._chain[number] = self._free if self._free >= 0 else _FREE
        self._free = number

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _bucket_of(self, key: cython.ulonglong) -> cython.Py_ssize_t:
        if not cython.compiled:
            key = int(key)  # a numpy number would warn where it wraps
        spread: cython.ulonglong = ((key ^ (key >> 32)) * _GOLDEN & _WORD) >> 24
        bucket: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, spread & (2 * self._half - 1))
        return bucket if bucket < self._buckets else bucket - self._half

    @cython.cfunc
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
            following = self._chain[number]
            bucket = self._bucket_of(self.keys[number])
            self._chain[number] = self._heads[bucket]
            self._heads[bucket] = number
            number = following
        if self._buckets == 2 * self._half:
            self._half *= 2

    @cython.cfunc
    def _grow(self) -> cython.void:
        self.keys = np.zeros(0, np.uint64)
        self._chain = np.zeros(0, np.int32)
        self.keys = self._keys_column.grow(self.rows + 1)
        self._chain = self._chain_column.grow(self.rows + 1)
        self._capacity = len(self.keys)

    def key_of(self, number: int) -> int:
        return int(self.keys[number])

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
                assert self._bucket_of(self.keys[number]) == bucket
                found.append(int(number))
                number = self._chain[number]
        assert len(set(found)) == len(found) == self.size
        return found
