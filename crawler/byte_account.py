"""One account of the bytes that bodies hold in memory, with one limit.

    reserve --fits--> granted ......................... release
       '-----does not--> waits in line --next_free--> granted

A plain object. An owner is anything hashable; its share grows with each `reserve` and
ends with `release`. An owner that does not fit waits, first come, first served. Two
shares may exceed the limit. The oldest may: otherwise many half-received bodies could
fill the account and wait for one another for ever. And each may grow to
`SMALL_BYTES`: otherwise small bodies would wait for large ones.

`charge` takes bytes that are held already, whether they fit or not: a body between
its last byte and its commit, and what was made of it. A charged owner waits for
nothing here and ends by itself. While more than an eighth of the limit is charged the
oldest share may not exceed the limit: otherwise one body after the other would arrive
whole and wait to be parsed. So the account exceeds its limit at most by that eighth,
the share of one owner, small shares, and charges that were not reserved before.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

SMALL_BYTES = 64 << 10  # the median page has 30 kB
CHARGED_PART = 8  # of the limit may be charged while the oldest share grows beyond it

_O = TypeVar("_O", bound=Hashable)


class ByteAccount(Generic[_O]):
    """Holds at most `limit` bytes, except the oldest share, those of at most `small` bytes, and charges."""

    __slots__ = ("_charges", "_limit", "_shares", "_small", "_waiting", "charged", "held")

    def __init__(self, limit: int, small: int = SMALL_BYTES) -> None:
        assert limit > 0
        self._limit = limit
        self._small = small
        self._shares: dict[_O, int] = {}  # those that may wait, the oldest first
        self._charges: dict[Hashable, int] = {}
        self._waiting: dict[_O, int] = {}  # what each waits for, in line
        self.held = 0  # by all
        self.charged = 0  # of these, to owners that wait for nothing

    def reserve(self, owner: _O, nbytes: int) -> bool:
        """Let the owner's share grow by `nbytes`; False: it waits for them now, until `next_free` names it."""
        assert nbytes >= 0
        if owner not in self._waiting and self._fits(owner, nbytes):
            self._grant(owner, nbytes)
            return True
        self._waiting[owner] = self._waiting.get(owner, 0) + nbytes
        return False

    def charge(self, owner: Hashable, nbytes: int) -> None:
        """Let the share of an owner that waits for nothing grow by `nbytes`, which it has."""
        self._charges[owner] = self._charges.get(owner, 0) + nbytes
        self.charged += nbytes
        self.held += nbytes

    def release(self, owner: Hashable) -> None:
        """Give back the owner's share or charge, and its place in the line; harmless if it has none."""
        charged = self._charges.pop(owner, 0)
        self.charged -= charged
        self.held -= charged + self._shares.pop(owner, 0)  # type: ignore[arg-type]
        self._waiting.pop(owner, None)  # type: ignore[arg-type]  # who is charged has neither

    def next_free(self) -> _O | None:
        """The next owner in line that what it waits for is granted to; None if there is none."""
        if not self._waiting:
            return None
        first = next(iter(self._waiting))
        for owner in (next(iter(self._shares), first), first):
            if owner in self._waiting and self._fits(owner, self._waiting[owner]):
                self._grant(owner, self._waiting.pop(owner))
                return owner
        return None

    def _fits(self, owner: _O, nbytes: int) -> bool:
        if self.held + nbytes <= self._limit or self._shares.get(owner, 0) + nbytes <= self._small:
            return True
        return next(iter(self._shares), owner) == owner and self.charged <= self._limit // CHARGED_PART

    def _grant(self, owner: _O, nbytes: int) -> None:
        self._shares[owner] = self._shares.get(owner, 0) + nbytes
        self.held += nbytes

    def _check(self) -> None:
        assert self.charged == sum(self._charges.values())
        assert self.held == self.charged + sum(self._shares.values())
        _, *others = self._shares.values() or (0,)
        assert sum(share for share in others if share > self._small) <= self._limit, self
        assert not self._charges.keys() & (self._shares.keys() | self._waiting.keys())
        assert not self._waiting or self.held, "someone waits though nothing is held"

    def __repr__(self) -> str:
        return f"ByteAccount({self.held:,} of {self._limit:,}, {len(self._waiting)} waiting)"
