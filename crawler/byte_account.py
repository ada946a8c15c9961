"""One account of the bytes that bodies hold in memory, with one limit.

    reserve --fits--> granted ......................... release
       '-----does not--> waits in line --next_free--> granted

A plain object. An owner is anything hashable; its share grows with each
`reserve` and ends with `release`. An owner that does not fit waits, first come,
first served. The oldest share may always grow: else many half-received bodies
could fill the account and wait for one another for ever. And every share may
grow to `SMALL_BYTES`: else whoever has little would wait for those that have
much. So the account exceeds its limit by at most the share of one owner, and
small ones.

`charge` takes bytes that are held already, such as a body between its last byte
and its commit, whether they fit or not. It never waits; nobody else gets more
until there is room again.
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

SMALL_BYTES = 64 << 10  # the median page has 30 kB

_O = TypeVar("_O", bound=Hashable)


class ByteAccount(Generic[_O]):
    """Holds at most `limit` bytes, but for the oldest share and those of at most `small` bytes."""

    __slots__ = ("_charged", "_limit", "_shares", "_small", "_waiting", "held")

    def __init__(self, limit: int, small: int = SMALL_BYTES) -> None:
        assert limit > 0
        self._limit = limit
        self._small = small
        self._shares: dict[Hashable, int] = {}  # the oldest first
        self._charged: set[Hashable] = set()
        self._waiting: dict[_O, int] = {}  # what each waits for, in line
        self.held = 0

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
        self._charged.add(owner)
        self._grant(owner, nbytes)

    def release(self, owner: Hashable) -> None:
        """Give back the owner's share, and its place in the line; harmless if it has none."""
        self.held -= self._shares.pop(owner, 0)
        self._charged.discard(owner)
        self._waiting.pop(owner, None)  # type: ignore[arg-type]  # who is charged never waits

    def next_free(self) -> _O | None:
        """The next owner in line that what it waits for is granted to; None if there is none."""
        if not self._waiting:
            return None
        first = next(iter(self._waiting))
        oldest: Any = next(iter(self._shares), first)
        for owner in (oldest, first):
            if owner in self._waiting and self._fits(owner, self._waiting[owner]):
                self._grant(owner, self._waiting.pop(owner))
                return owner
        return None

    def _fits(self, owner: _O, nbytes: int) -> bool:
        if self.held + nbytes <= self._limit or next(iter(self._shares), owner) == owner:
            return True
        return self._shares.get(owner, 0) + nbytes <= self._small

    def _grant(self, owner: Hashable, nbytes: int) -> None:
        self._shares[owner] = self._shares.get(owner, 0) + nbytes
        self.held += nbytes

    def _check(self) -> None:
        assert self.held == sum(self._shares.values())
        oldest = next(iter(self._shares), None)
        bound = [
            share for owner, share in self._shares.items() if owner != oldest and owner not in self._charged
        ]
        assert sum(share for share in bound if share > self._small) <= self._limit, self
        assert not self._charged & self._waiting.keys()
        assert not self._waiting or self._shares, "someone waits though nothing is held"

    def __repr__(self) -> str:
        return f"ByteAccount({self.held:,} of {self._limit:,}, {len(self._waiting)} waiting)"
