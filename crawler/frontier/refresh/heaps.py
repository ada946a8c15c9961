# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Keeps many heaps in one array of nodes. Heaps can be melded, and any node can be removed.

A heap is identified by the number of its first node (NOBODY if it is empty); a node is in at most one heap.
Every operation is a meld of two trees, which follows one random path in each tree: O(log n) steps in
expectation and with high probability, for any sequence of operations (Gambin and Malinowski, Randomized
meldable priority queues, 1998). Nothing needs rebalancing, and a heap with one node uses only the space of
that node, 24 bytes.

    key     the smallest comes first; equal keys: the smallest number first
    left, right, parent     numbers of nodes, NOBODY at the ends; `parent` is OUT
                            for a node that is in no heap
    owner   set by the caller: the object to which the node belongs
"""

import cython
import numpy as np

from crawler.freshness.columns import Column

if not cython.compiled:
    Node = None

KIND = np.dtype([("key", "f8"), ("left", "i4"), ("right", "i4"), ("parent", "i4"), ("owner", "i4")])
_NOBODY = cython.declare(cython.int, -1)
_OUT = cython.declare(cython.int, -2)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
NOBODY, OUT = -1, -2


@cython.cclass
class Heaps:
    """The nodes 0 .. capacity - 1; `grow` raises the capacity."""

    def __init__(self, seed: int = 1) -> None:
        self._column = Column(KIND)
        self.nodes = self._column.grow(1)
        self.capacity = len(self.nodes)
        self._random = (seed * 0x9E3779B97F4A7C15 + 1) & 0xFFFFFFFFFFFFFFFF or 1

    def grow(self, rows: int) -> None:
        """Allocate nodes up to `rows` - 1; call `clear` on each before use."""
        if rows > self.capacity:
            self.nodes = np.zeros(0, KIND).view(np.recarray)
            self.nodes = self._column.grow(rows)
            self.capacity = len(self.nodes)

    def clear(self, node: cython.int, owner: cython.int) -> cython.void:
        """Mark the node as in no heap, and set its owner."""
        self.nodes[node].owner = owner
        self.nodes[node].parent = _OUT

    def key_of(self, node: cython.int) -> cython.double:
        return self.nodes[node].key

    def holds(self, node: cython.int) -> cython.bint:
        return self.nodes[node].parent != _OUT

    def insert(self, root: cython.int, node: cython.int, key: cython.double) -> cython.int:
        """Insert a node that is in no heap into the heap of `root`; return the heap's new root."""
        self.nodes[node].key = key
        self.nodes[node].left = _NOBODY
        self.nodes[node].right = _NOBODY
        self.nodes[node].parent = _NOBODY
        return self._meld(root, node)

    def remove(self, root: cython.int, node: cython.int) -> cython.int:
        """Remove a node from the heap of `root`; return the heap's new root."""
        left: cython.int = self.nodes[node].left
        right: cython.int = self.nodes[node].right
        parent: cython.int = self.nodes[node].parent
        if left >= 0:
            self.nodes[left].parent = _NOBODY
        if right >= 0:
            self.nodes[right].parent = _NOBODY
        rest: cython.int = self._meld(left, right)
        self.nodes[node].parent = _OUT
        if parent < 0:
            return rest
        if self.nodes[parent].left == node:
            self.nodes[parent].left = rest
        else:
            self.nodes[parent].right = rest
        if rest >= 0:
            self.nodes[rest].parent = parent
        return root

    def move(self, root: cython.int, node: cython.int, key: cython.double) -> cython.int:
        """Change the key of a node of the heap; return the heap's new root."""
        if key == self.nodes[node].key:
            return root
        return self.insert(self.remove(root, node), node, key)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _before(self, a: cython.int, b: cython.int) -> cython.bint:
        one: cython.double = self.nodes[a].key
        other: cython.double = self.nodes[b].key
        return one < other or (one == other and a < b)

    def _meld(self, a: cython.int, b: cython.int) -> cython.int:
        """Meld two heaps, whose roots have no parent, into one. Return the root of the new heap."""
        if a < 0:
            return b
        if b < 0:
            return a
        if self._before(b, a):
            a, b = b, a
        root: cython.int = a
        child: cython.int
        bits: cython.ulonglong = self._draw()
        while True:
            if bits <= 1:
                bits = self._draw()
            if bits & 1:
                child = self.nodes[a].left
                if child < 0 or self._before(b, child):
                    self.nodes[a].left = b
                    self.nodes[b].parent = a
                    a, b = b, child
                else:
                    a = child
            else:
                child = self.nodes[a].right
                if child < 0 or self._before(b, child):
                    self.nodes[a].right = b
                    self.nodes[b].parent = a
                    a, b = b, child
                else:
                    a = child
            if b < 0:
                return root
            bits >>= 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _draw(self) -> cython.ulonglong:
        """Return 64 random bits (xorshift, Marsaglia 2003)."""
        x: cython.ulonglong = self._random
        x ^= x << 13 & _WORD
        x ^= x >> 7
        x ^= x << 17 & _WORD
        self._random = x
        return x

    def _check(self, root: int) -> list[int]:
        """Assert the order and the links of a heap; return its nodes."""
        found, ahead = [], [root] if root >= 0 else []
        assert root < 0 or self.nodes[root].parent == NOBODY, root
        while ahead:
            node = ahead.pop()
            found.append(node)
            key = self.nodes[node].key
            assert key == key, node
            for child in (int(self.nodes[node].left), int(self.nodes[node].right)):
                if child >= 0:
                    assert self.nodes[child].parent == node, (node, child)
                    assert (key, node) < (self.nodes[child].key, child), (node, child)
                    ahead.append(child)
        assert len(set(found)) == len(found)
        return found
