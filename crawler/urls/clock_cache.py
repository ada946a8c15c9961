"""The URL cache: CLOCK in a scatter table with circular lists, 8 bytes an entry.

Broder, Najork, Wiener, "Efficient URL caching for World Wide Web crawling"
(2003), sections 3.4 and 6, figure 14. Four of five links of a crawl were met a
short while ago; the cache answers for them, so that only the rest goes to the
Duplicate URL Eliminator. It holds at most k = 2^r keys in an array of k words
of 64 bits, and nothing else.

A *scatter table* has no buckets: the keys themselves lie in the array. All
keys with the same home slot (the top r bits of the key) form one circle, and
**the first member of a circle sits in the home slot**; the others lie wherever
there was room. Here k = 8, and E, C came to home 2, B to home 5:

       0      1      2      3      4      5      6      7
    +------+------+------+------+------+------+------+------+
    |      |      | E  1 |      | C  . | B  1 |      |      |    1: first of its circle
    +------+------+--|---+------+--|---+--|---+------+------+
                  ^  |             |   ^  |
                  |  +---- link -->|   |  |
                  +------ link ----+   +--+  (a circle of one links to itself)

A word leaves out what its place says (Lampson's abbreviated keys): the home slot is
the r top bits of the key, so the other bits are stored, and the link takes the room
that is left:

    bit 63 ........ r+2 | r+1 ....... 2 |   1   |  0
    q: 62-r bits of key | link: r bits  | first | mark

The top 62 bits of a key count. As home and q give them back, no two of those
are ever confused. A free slot is not first and links to itself, as no member
of a circle does.

*To look a key up*, walk the circle from its home slot; a home slot that is not
first says at once that there is no such circle. *To make room*, the CLOCK hand
goes round the array, clears the marks it meets and evicts the first key without
one; a hit sets the mark, and a key comes in unmarked (marking it made 2 to 9 %
more misses). *To unlink* a key, walk its circle to its predecessor; if it was
the first, its successor moves to the home slot, and that one's slot is free.
*To insert* a key whose home slot is taken by a member of another circle, that
member moves to the free slot, its mark with it, and the home slot is the key's.
So `links to` and `lies in` change, never `belongs to`. Circles are short: 1.5
members on average when the table is full.

The top bits must be spread evenly over the keys, else one circle holds all of
them, which is slow but breaks nothing. Pass `rotl64(fingerprint, 16)`: the top 16
bits of a fingerprint are the same for a whole domain.

This file is in Cython's pure-Python mode: compiled where there was a C compiler
at installation (`COMPILED`), else interpreted, about 90 times slower, with the
same results, request by request.
"""

from array import array

import cython

COMPILED: bool = cython.compiled

BITS_MAX = 30  # r; beyond, q would have fewer bits than the 2^-32 or so a false hit may cost


@cython.final
@cython.cclass
class ClockCache:
    """A cache of at most 2^`bits` 64-bit keys.

    One thread at a time: a second one is told so by a RuntimeError, since
    `add_many` lets go of the interpreter lock.

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
    _next_free: cython.ulonglong  # no free slot lies below
    _hand: cython.ulonglong
    _hits: cython.ulonglong
    _misses: cython.ulonglong
    _moves: cython.ulonglong
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
            self._words = cython.address(view[0])  # never resized, so it stays there
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
        self._hits = self._misses = self._moves = 0
        self._busy = False

    def add(self, key: cython.ulonglong) -> bool:
        """Put `key` into the cache; return True if it was not there.

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
        """`add` each of a buffer of uint64, in order; return the answers, a byte each (1: was not there)."""
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

    def __contains__(self, key: cython.ulonglong) -> bool:
        """Whether `key` is held; sets no mark and counts nothing."""
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
        """Requests whose key was held."""
        return self._hits

    @property
    def misses(self) -> int:
        """Requests whose key was not held."""
        return self._misses

    @property
    def moves(self) -> int:
        """Keys that changed their slot for another key's sake."""
        return self._moves

    def keys(self) -> list[int]:
        """The keys held, in the order of their home slots; the two low bits, which do not count, are 0."""
        self._check_idle()
        return [
            home << (64 - self._bits) | self._table[slot] >> (self._bits + 2) << 2
            for home in range(self._slot_count)
            if self._table[home] & 2
            for slot in self._circle(home)
        ]

    def __sizeof__(self) -> int:
        """Bytes of the object and its table."""
        return object.__sizeof__(self) + self._table.__sizeof__()

    def __repr__(self) -> str:
        return (
            f"ClockCache({self._count} of {self._slot_count} keys, hits {self._hits}, misses {self._misses}, "
            f"hand {self._hand})"
        )

    # The structure. `first` of a word: word & 2; `mark`: word & 1; a link is kept shifted by 2.

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _short_key(self, key: cython.ulonglong) -> cython.ulonglong:
        """q of `key`, where it stands in a word."""
        return (key << self._bits) & self._short_key_mask

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _link(self, slot: cython.ulonglong) -> cython.ulonglong:
        """The slot that `slot` links to."""
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
        """The slot of the circle of `home` that holds `short_key`; 2^r if none does."""
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
        """The member of the circle of `slot` that links to it."""
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
        """Put a key that is not held into the table, unmarked."""
        slot: cython.ulonglong
        if self._count < self._slot_count:
            self._count += 1
            slot = home if self._words[home] & 3 == 0 and self._link(home) == home else self._take_free()
        else:
            slot = self._evict()
        # Only now: the eviction may have ended or moved the circle of `home`.
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
        """The lowest slot that is still free; there is one while the table fills."""
        while self._words[self._next_free] & 3 or self._link(self._next_free) != self._next_free:
            self._next_free += 1
        return self._next_free

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _evict(self) -> cython.ulonglong:
        """Drop the next unmarked key before the CLOCK hand; return the slot that is free by it."""
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
        """Take the key in slot `victim` out of its circle; return the slot that no circle uses now."""
        successor: cython.ulonglong = self._link(victim)
        if self._words[victim] & 2 == 0:
            self._set_link(self._predecessor(victim), successor)
            return victim
        if successor == victim:
            self._words[victim] = victim << 2
            return victim
        # The first of a longer circle: the home slot must stay in it. Where the
        # successor linked back to the victim it comes to link to itself.
        self._words[victim] = self._words[successor] | 2
        self._moves += 1
        return successor

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _move(self, source: cython.ulonglong, target: cython.ulonglong) -> cython.void:
        """Move the member of another circle in slot `source`, mark and all, to the free slot `target`."""
        self._set_link(self._predecessor(source), target)
        self._words[target] = self._words[source]
        self._moves += 1

    @cython.cfunc
    @cython.inline
    def _check_idle(self) -> cython.void:
        if self._busy:
            raise RuntimeError("ClockCache: two threads at once")

    def _circle(self, home: int) -> list[int]:
        """The slots of the circle whose first member lies in `home`, in the order of the links."""
        link_mask = (1 << self._bits) - 1
        slots = [home]
        while (link := self._table[slots[-1]] >> 2 & link_mask) != home:
            slots.append(link)
            assert len(slots) <= self._slot_count, f"circle {home} does not close"
        return slots

    def _check(self) -> None:
        """Assert every invariant: circles partition the held keys, and each starts at its home."""
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
    """`keys` as a view of uint64, as the compiled form takes it.

    Raises:
        ValueError: its items are something else.
    """
    view = memoryview(keys)
    if view.ndim != 1 or view.format not in ("Q", "L") or view.itemsize != 8:
        raise ValueError("Buffer dtype mismatch, expected uint64 in one dimension")
    return view
