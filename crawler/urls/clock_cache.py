"""The URL cache: CLOCK in a scatter table with circular lists, 8 bytes per entry.

Broder, Najork, Wiener, "Efficient URL caching for World Wide Web crawling" (2003), sections 3.4 and 6, figure
14. Four of five links in a crawl have been seen a short time before. The cache recognizes these links, so
only the others go to the Duplicate URL Eliminator. The cache holds at most k = 2^r keys in an array of k
words of 64 bits, and nothing else.

A *scatter table* has no buckets: the keys themselves are in the array. All
keys with the same home slot (the top r bits of the key) form one circle, and
**the first member of a circle is in the home slot**; the others are in whatever
slots were free. Here k = 8; E and C have home 2, B has home 5:

       0      1      2      3      4      5      6      7
    +------+------+------+------+------+------+------+------+
    |      |      | E  1 |      | C  . | B  1 |      |      |    1: first of its circle
    +------+------+--|---+------+--|---+--|---+------+------+
                  ^  |             |   ^  |
                  |  +---- link -->|   |  |
                  +------ link ----+   +--+  (a circle of one links to itself)

The number of a key's home slot is the top r bits of the key. So a word stores only q, the other bits of the
key (Lampson's abbreviated keys). The rest of the word is the link to the next slot of the circle, and two
flags:

    bit 63 ........ r+2 | r+1 ....... 2 |   1   |  0
    q: 62-r bits of key | link: r bits  | first | mark

Only the top 62 bits of a key are used. The home slot and q together determine these 62 bits, so two keys that
differ in the 62 bits are never confused. A slot is free if it is not marked as first and links to itself. A
slot in use is marked as first, or links to another slot.

*To look up a key*, walk the circle from the key's home slot. If the home slot is not marked as first, no key
with this home slot is in the cache. *To make room*, the CLOCK hand moves around the array, clears the bits
`mark` that it passes, and evicts the first key whose `mark` is not set. A hit sets the mark of a key. A new
key is unmarked, because marking new keys caused 2 to 9 % more misses. *To unlink a key*, walk the circle to
the key's predecessor. If the key was the first, its successor moves to the home slot, and the successor's
slot becomes free. *To insert a key* whose home slot holds a member of another circle, move that member and
its mark to the free slot, and put the key into the home slot. So the links and positions of keys change, but
a key always belongs to the same circle. Circles are short: they have 1.5 members on average when the table is
full.

The top bits of the keys must be evenly distributed. If the top bits are unevenly distributed, one circle can
hold all keys, which is slow but still correct. So do not pass a fingerprint itself, because its top 16 bits
are the same for a whole domain. Pass `rotl64(fingerprint, 16)`.

This file is in Cython's pure-Python mode. If there was a C compiler at installation, the file is compiled
(`COMPILED`). Without a C compiler, the file is interpreted, which is about 90 times slower but gives the same
result for every request.
"""

from array import array

import cython

COMPILED: bool = cython.compiled

BITS_MAX = 30  # maximum of r; the chance of a false hit is up to 2^(r - 62), here 2^-32


@cython.final
@cython.cclass
class ClockCache:
    """A cache of at most 2^`bits` 64-bit keys.

    Use a cache from only one thread at a time. A second thread can get a RuntimeError, because `add_many`
    releases the interpreter lock.

    Args:
        bits: 1 to 30.

    Raises:
        ValueError: `bits` is outside that range.
    """

    _table: object
    _words: cython.pointer(cython.ulonglong)
    _bits: cython.int
    _slot_count: cython.ulonglong
    _short_key_mask: cython.ulonglong
    _count: cython.ulonglong
    _next_free: cython.ulonglong  # the lowest slot that may be free
    _hand: cython.ulonglong
    _hits: cython.ulonglong
    _misses: cython.ulonglong
    _busy: cython.bint

    def __init__(self, bits: cython.int) -> None:
        if not 1 <= bits <= BITS_MAX:
            raise ValueError(f"cache bits must be 1 to {BITS_MAX}, not {bits}")
        self._bits = bits
        self._slot_count = cython.cast(cython.ulonglong, 1) << bits
        self._short_key_mask = 0xFFFFFFFFFFFFFFFF ^ ((self._slot_count << 2) - 1)
        self._table = array("Q", [0]) * (1 << bits)
        if cython.compiled:
            view: cython.ulonglong[::1] = self._table
            # this address stays valid, because the array is never resized
            self._words = cython.address(view[0])
        else:
            self._words = self._table
        self._busy = False
        self.clear()

    def clear(self) -> None:
        """Forget all keys and set the counters to 0."""
        slot: cython.ulonglong
        self._check_idle()
        self._busy = True
        for slot in range(self._slot_count):
            self._words[slot] = slot << 2
        self._count = self._next_free = self._hand = 0
        self._hits = self._misses = 0
        self._busy = False

    def add(self, key: cython.ulonglong) -> bool:
        """Put `key` into the cache; return whether the key is new to it.

        Raises:
            OverflowError: not 0 <= key < 2^64.
        """
        if not cython.compiled and not 0 <= key < 1 << 64:
            raise OverflowError("key must fit in 64 bits")
        self._check_idle()
        return self._add(key)

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def add_many(self, keys) -> bytearray:
        """Call `add` for each key of a uint64 buffer, in order; return one byte per key, 1 if it was new."""
        i: cython.Py_ssize_t
        if not cython.compiled:
            keys = _as_words(keys)
        source: cython.const[cython.ulonglong][::1] = keys
        answers = bytearray(len(keys))
        target: cython.uchar[::1] = answers
        self._check_idle()
        self._busy = True
        with cython.nogil:
            for i in range(source.shape[0]):
                target[i] = self._add(source[i])
        self._busy = False
        return answers

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def missing(self, fingerprints) -> list[int]:
        """Call `add` for the keys of `fingerprints`, a uint64 buffer; return the positions of the keys that were new.

        The keys are the fingerprints rotated left by 16 bits. The interpreter lock is held meanwhile, so pass
        at most a few hundred fingerprints.
        """
        i: cython.Py_ssize_t
        fingerprint: cython.ulonglong
        if not cython.compiled:
            fingerprints = _as_words(fingerprints)
        source: cython.const[cython.ulonglong][::1] = fingerprints
        found: list = []
        self._check_idle()
        for i in range(source.shape[0]):
            fingerprint = source[i]
            if self._add((fingerprint << 16 | fingerprint >> 48) & 0xFFFFFFFFFFFFFFFF):
                found.append(i)
        return found

    def __contains__(self, key: cython.ulonglong) -> bool:
        """Return whether the cache holds `key`, without setting a mark or changing a counter."""
        self._check_idle()
        home: cython.ulonglong = key >> (64 - self._bits)
        return self._words[home] & 2 != 0 and self._find(home, self._short_key(key)) < self._slot_count

    def __len__(self) -> int:
        return self._count

    @property
    def bits(self) -> int:
        return self._bits

    @property
    def hits(self) -> int:
        """The number of requests whose key was in the cache."""
        return self._hits

    @property
    def misses(self) -> int:
        """The number of requests whose key was not in the cache."""
        return self._misses

    def keys(self) -> list[int]:
        """Return all keys, ordered by home slot. Their two low bits are not stored, and are 0 here."""
        self._check_idle()
        return [
            home << (64 - self._bits) | self._table[slot] >> (self._bits + 2) << 2
            for home in range(self._slot_count)
            if self._table[home] & 2
            for slot in self._circle(home)
        ]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._table.__sizeof__()

    def __repr__(self) -> str:
        return (
            f"ClockCache({self._count} of {self._slot_count} keys, hits {self._hits}, misses {self._misses}, "
            f"hand {self._hand})"
        )

    # The structure. Fields of a word: first = word & 2, mark = word & 1. Links are stored shifted left by 2.

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _short_key(self, key: cython.ulonglong) -> cython.ulonglong:
        """Return the part q of `key`, shifted to the position of q in a word."""
        return (key << self._bits) & self._short_key_mask

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _link(self, slot: cython.ulonglong) -> cython.ulonglong:
        return (self._words[slot] & ~self._short_key_mask) >> 2

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _set_link(self, slot: cython.ulonglong, link: cython.ulonglong) -> cython.void:
        self._words[slot] = (self._words[slot] & (self._short_key_mask | 3)) | link << 2

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _find(self, home: cython.ulonglong, short_key: cython.ulonglong) -> cython.ulonglong:
        """Return the slot that holds `short_key` in the circle of `home`, or 2^r if there is no such slot."""
        slot: cython.ulonglong = home
        while True:
            if self._words[slot] & self._short_key_mask == short_key:
                return slot
            slot = self._link(slot)
            if slot == home:
                return self._slot_count

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _predecessor(self, slot: cython.ulonglong) -> cython.ulonglong:
        """Return the slot that links to `slot` in the same circle."""
        before: cython.ulonglong = slot
        while self._link(before) != slot:
            before = self._link(before)
        return before

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(self, key: cython.ulonglong) -> cython.bint:
        home: cython.ulonglong = key >> (64 - self._bits)
        short_key: cython.ulonglong = self._short_key(key)
        slot: cython.ulonglong
        if self._words[home] & 2:
            slot = self._find(home, short_key)
            if slot < self._slot_count:
                self._words[slot] |= 1
                self._hits += 1
                return False
        self._misses += 1
        self._insert(home, short_key)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _insert(self, home: cython.ulonglong, short_key: cython.ulonglong) -> cython.void:
        """Insert a key that the cache does not hold. It is unmarked."""
        slot: cython.ulonglong
        if self._count < self._slot_count:
            self._count += 1
            slot = home if self._words[home] & 3 == 0 and self._link(home) == home else self._take_free()
        else:
            slot = self._evict()
        # The mark of `home` is checked after the eviction, because the eviction may have removed the last entry of
        # the circular list of `home`, or moved its first entry.
        if self._words[home] & 2:
            self._words[slot] = short_key | self._link(home) << 2
            self._set_link(home, slot)
            return
        if slot != home:
            self._move(home, slot)
        self._words[home] = short_key | home << 2 | 2

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _take_free(self) -> cython.ulonglong:
        """Return the lowest free slot. There is one as long as the table is not full."""
        while self._words[self._next_free] & 3 or self._link(self._next_free) != self._next_free:
            self._next_free += 1
        return self._next_free

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _evict(self) -> cython.ulonglong:
        """Evict the first unmarked key that the CLOCK hand reaches; return the slot that becomes free."""
        victim: cython.ulonglong
        while self._words[self._hand] & 1:
            self._words[self._hand] &= ~cython.cast(cython.ulonglong, 1)
            self._hand = (self._hand + 1) & (self._slot_count - 1)
        victim = self._hand
        self._hand = (self._hand + 1) & (self._slot_count - 1)
        return self._unlink(victim)

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _unlink(self, victim: cython.ulonglong) -> cython.ulonglong:
        """Remove the key in slot `victim` from its circle; return the slot that becomes free."""
        successor: cython.ulonglong = self._link(victim)
        if self._words[victim] & 2 == 0:
            self._set_link(self._predecessor(victim), successor)
            return victim
        if successor == victim:
            self._words[victim] = victim << 2
            return victim
        # The victim is the first member of its circle, and the circle has other members. The slot of the
        # victim, in which the circle begins, must stay in use. So the successor moves to this slot. If the
        # successor linked to the victim, it now links to itself.
        self._words[victim] = self._words[successor] | 2
        return successor

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _move(self, source: cython.ulonglong, target: cython.ulonglong) -> cython.void:
        """Move the key in slot `source`, which is not its home, to the free slot `target`, with its mark."""
        self._set_link(self._predecessor(source), target)
        self._words[target] = self._words[source]

    @cython.cfunc
    @cython.inline
    def _check_idle(self) -> cython.void:
        if self._busy:
            raise RuntimeError("ClockCache: two threads at once")

    def _circle(self, home: int) -> list[int]:
        """Return the slots of the circle that begins at the slot `home`, in the order in which they are linked."""
        link_mask = (1 << self._bits) - 1
        slots = [home]
        while (link := self._table[slots[-1]] >> 2 & link_mask) != home:
            slots.append(link)
            assert len(slots) <= self._slot_count, f"circle {home} does not close"
        return slots

    def _check(self) -> None:
        """Assert every invariant: each key is in exactly one circle, and each circle starts at its home slot."""
        homes = [slot for slot in range(self._slot_count) if self._table[slot] & 2]
        members = [slot for home in homes for slot in self._circle(home)]
        free = [slot for slot in range(self._slot_count) if self._table[slot] == slot << 2]
        assert sorted(members) == sorted(set(members)), "a slot is in two circles"
        assert sorted(members + free) == list(range(self._slot_count)), (
            "a slot is neither free nor in a circle"
        )
        assert sum(self._table[slot] >> 1 & 1 for slot in members) == len(homes), "a circle has two firsts"
        assert len(members) == self._count == len(set(self.keys())), "a key is held twice"
        assert all(slot >= self._next_free for slot in free), "a free slot was passed over"
        assert self._hits + self._misses >= self._count and self._hand < self._slot_count


def _as_words(keys):
    """Return `keys` as a view of uint64, which the compiled form expects.

    Raises:
        ValueError: the items have another type.
    """
    view = memoryview(keys)
    if view.ndim != 1 or view.format not in ("Q", "L") or view.itemsize != 8:
        raise ValueError("Buffer dtype mismatch, expected uint64 in one dimension")
    return view
