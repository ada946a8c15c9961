# cython: boundscheck=False, wraparound=False
"""The set of fingerprints that wait for a flush: a hash table of uint64 keys, which takes 16 to 32 bytes per key.

The module is compiled, in Cython's pure-Python mode. The interpreted form does the same, but more slowly.
"""

from array import array

import cython
import numpy as np

COMPILED: bool = cython.compiled

_SLOTS_MIN = 64
_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)  # 2^64 / golden ratio, a factor to spread keys
_ALL_BITS = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.final
@cython.cclass
class PendingSet:
    """A bounded set that forgets all its keys when it is full.

    The set only prevents that repeated links are appended to the links log. So it may forget keys: the next
    flush removes repeated links anyway.
    """

    _entries_max: cython.Py_ssize_t
    _slots: object  # array of uint64; 0 marks a free slot
    _count: cython.Py_ssize_t
    _has_zero: cython.bint  # whether key 0 is in the set; no slot can hold key 0

    def __init__(self, entries_max: cython.Py_ssize_t) -> None:
        self._entries_max = entries_max
        self.clear()

    def clear(self) -> None:
        """Forget all keys and free their memory."""
        self._slots = array("Q", [0]) * _SLOTS_MIN
        self._count = 0
        self._has_zero = False

    def __len__(self) -> int:
        return self._count

    def add_many(self, keys):
        """Add keys, uint64 (n,); return which of them are new, bool (n,)."""
        i: cython.Py_ssize_t
        if self._count + len(keys) > self._entries_max:
            self.clear()
        self._reserve(self._count + len(keys))
        fresh = np.zeros(len(keys), np.bool_)
        source: cython.const[cython.ulonglong][::1] = keys if cython.compiled else keys.tolist()
        answers: cython.uchar[::1] = fresh.view(np.uint8)
        slots: cython.ulonglong[::1] = self._slots
        for i in range(len(source)):
            answers[i] = self._add(slots, source[i])
        return fresh

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add(self, slots: cython.ulonglong[::1], key: cython.ulonglong) -> cython.bint:
        slot: cython.ulonglong
        last: cython.ulonglong = len(slots) - 1
        if key == 0:
            if self._has_zero:
                return False
            self._has_zero = True
            self._count += 1
            return True
        slot = ((key * _GOLDEN) & _ALL_BITS) >> 32 & last
        while slots[slot] != 0:
            if slots[slot] == key:
                return False
            slot = (slot + 1) & last
        slots[slot] = key
        self._count += 1
        return True

    def _reserve(self, count: int) -> None:
        """Make the table so large that `count` keys fill at most half of it."""
        if 2 * count <= len(self._slots):
            return
        keys = np.frombuffer(self._slots, np.uint64)
        keys = keys[keys != 0]
        self._slots = array("Q", [0]) * (1 << (2 * count - 1).bit_length())
        self._count = self._has_zero
        self.add_many(keys)
