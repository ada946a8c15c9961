# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""A heap of page numbers whose keys can be changed in place.

Each node has four children. The heap is therefore half as deep as a binary heap, and the keys of the four
children share a cache line. Among items with equal keys, the smallest number comes first, so runs are
reproducible. Invariant: the pair (key, item) of a node is at most the pair of each of its children, and
place[items[k]] = k. An operation takes O(log n) time. An item takes 16 bytes of memory.

Cython pure-Python mode (see `freshness/value_kernel.py`). The attributes are declared in `indexed_heap.pxd`.
"""

import cython
import numpy as np


@cython.cclass
class IndexedHeap:
    """A heap of items 0 .. capacity - 1. Each item is in the heap at most once."""

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self.keys = np.empty(max(capacity, 1))
        self.items = np.empty(max(capacity, 1), dtype=np.int32)
        self.places = np.full(max(capacity, 1), -1, dtype=np.int32)

    @cython.ccall
    @cython.exceptval(check=False)
    def put(self, item: cython.Py_ssize_t, key: cython.double) -> cython.void:
        """Add the item, or change its key."""
        place: cython.Py_ssize_t = self.places[item]
        if place < 0:
            place = self.size
            self.size += 1
            self._up(place, item, key)
        elif key < self.keys[place]:
            self._up(place, item, key)
        else:
            self._down(place, item, key)

    @cython.ccall
    @cython.exceptval(check=False)
    def drop(self, item: cython.Py_ssize_t) -> cython.void:
        """Remove the item if it is in the heap."""
        place: cython.Py_ssize_t = self.places[item]
        if place < 0:
            return
        self.places[item] = -1
        self.size -= 1
        if place == self.size:
            return
        last: cython.Py_ssize_t = self.items[self.size]
        key: cython.double = self.keys[self.size]
        parent: cython.Py_ssize_t = (place - 1) >> 2
        if place > 0 and self._before(key, last, parent):
            self._up(place, last, key)
        else:
            self._down(place, last, key)

    @cython.ccall
    @cython.exceptval(check=False)
    def first(self) -> cython.Py_ssize_t:
        """Return the item with the smallest key; -1 if the heap is empty."""
        return self.items[0] if self.size > 0 else -1

    @cython.ccall
    @cython.exceptval(check=False)
    def first_key(self) -> cython.double:
        """Return the smallest key; infinite if the heap is empty."""
        return self.keys[0] if self.size > 0 else float("inf")

    @cython.ccall
    @cython.exceptval(check=False)
    def key_of(self, item: cython.Py_ssize_t) -> cython.double:
        """Return the item's key; infinite if it is not in the heap."""
        place: cython.Py_ssize_t = self.places[item]
        return self.keys[place] if place >= 0 else float("inf")

    @cython.ccall
    @cython.exceptval(check=False)
    def holds(self, item: cython.Py_ssize_t) -> cython.bint:
        return self.places[item] >= 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _before(self, key: cython.double, item: cython.Py_ssize_t, place: cython.Py_ssize_t) -> cython.bint:
        """Return whether (key, item) comes before the node at `place`."""
        other: cython.double = self.keys[place]
        return key < other or (key == other and item < self.items[place])

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set(self, place: cython.Py_ssize_t, item: cython.Py_ssize_t, key: cython.double) -> cython.void:
        self.keys[place] = key
        self.items[place] = item
        self.places[item] = place

    @cython.cfunc
    @cython.exceptval(check=False)
    def _up(self, place: cython.Py_ssize_t, item: cython.Py_ssize_t, key: cython.double) -> cython.void:
        parent: cython.Py_ssize_t
        while place > 0:
            parent = (place - 1) >> 2
            if not self._before(key, item, parent):
                break
            self._set(place, self.items[parent], self.keys[parent])
            place = parent
        self._set(place, item, key)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _down(self, place: cython.Py_ssize_t, item: cython.Py_ssize_t, key: cython.double) -> cython.void:
        child: cython.Py_ssize_t
        best: cython.Py_ssize_t
        end: cython.Py_ssize_t
        while True:
            best = 4 * place + 1
            if best >= self.size:
                break
            end = min(best + 4, self.size)
            for child in range(best + 1, end):
                if self._before(self.keys[child], self.items[child], best):
                    best = child
            if self._before(key, item, best):
                break
            self._set(place, self.items[best], self.keys[best])
            place = best
        self._set(place, item, key)

    def __len__(self) -> int:
        return self.size

    def _check(self) -> None:
        for place in range(self.size):
            item = self.items[place]
            assert self.places[item] == place
            if place:
                parent = (place - 1) >> 2
                above = (self.keys[parent], self.items[parent])
                assert above < (self.keys[place], item), (parent, place)
        inside = sum(1 for place in self.places if place >= 0)
        assert inside == self.size

    def __repr__(self) -> str:
        return f"IndexedHeap({self.size} items, first key {self.first_key():g})"
