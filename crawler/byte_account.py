"""Accounts for the bytes that bodies hold in memory, with one limit for all of them.

    reserve --fits--> granted ......................... release
       '-----does not--> waits in line --next_free--> granted

The account is a plain object without I/O. An owner is any hashable value. The owner's share of the bytes
grows with each `reserve` and ends with `release`. An owner whose request does not fit waits in a queue.
Requests are granted in the order of their arrival. There are two kinds of shares whose growth may take the
account beyond its limit. The oldest share is one of them, because otherwise many half-received bodies could
fill the account and wait for one another forever. The other kind is small shares: each share may grow to
`SMALL_BYTES`, because otherwise small bodies would wait for large ones. All shares except the oldest together
hold at most a quarter of the limit. With many large bodies, the oldest share often takes the account beyond
its limit, and then the other shares should be small.

`charge` counts bytes that are already in memory, whether they fit or not. A charge is made for the bytes of a
body that has arrived but is not committed, and for the data made from that body. Charges never wait. While
more than an eighth of the limit is charged, the oldest share may not take the account beyond its limit.
Without this rule, one body after the other would arrive completely and wait to be parsed. So the account may
exceed its limit by the sum of four amounts: an eighth of the limit, the share of one owner, the small shares,
and the charges for bytes that were not reserved before, such as the data made from a body.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

SMALL_BYTES = 64 << 10  # each share may grow to this size; the median page has 30 kB
YOUNGER_PART = 4  # all shares but the oldest may together hold 1/4 of the limit
CHARGED_PART = 8  # while more than 1/8 of the limit is charged, the oldest share may not exceed the limit

_O = TypeVar("_O", bound=Hashable)


class ByteAccount(Generic[_O]):
    """An account of at most `limit` bytes.

    The account may exceed the limit in three cases: the oldest share grows, a share grows to at most `small`
    bytes, or bytes are charged.
    """

    __slots__ = ("_charges", "_limit", "_shares", "_small", "_waiting", "charged", "held")

    def __init__(self, limit: int, small: int = SMALL_BYTES) -> None:
        assert limit > 0
        self._limit = limit
        self._small = small
        self._shares: dict[_O, int] = {}  # owners that may wait -> their shares, oldest first
        self._charges: dict[Hashable, int] = {}
        self._waiting: dict[_O, int] = {}  # waiting owner -> the number of bytes that it waits for
        self.held = 0  # the bytes of all owners
        self.charged = 0  # the part of `held` that belongs to charged owners

    def reserve(self, owner: _O, nbytes: int) -> bool:
        """Let the owner's share grow by `nbytes`.

        Return False if the bytes do not fit. The owner then waits until a call of `next_free` grants its
        request and returns the owner.
        """
        assert nbytes >= 0
        if owner not in self._waiting and self._fits(owner, nbytes):
            self._grant(owner, nbytes)
            return True
        self._waiting[owner] = self._waiting.get(owner, 0) + nbytes
        return False

    def charge(self, owner: Hashable, nbytes: int) -> None:
        """Add `nbytes`, which are already in memory, to the charge of an owner that never waits."""
        self._charges[owner] = self._charges.get(owner, 0) + nbytes
        self.charged += nbytes
        self.held += nbytes

    def release(self, owner: Hashable) -> None:
        """Give back the owner's share or charge, and its place in line. Do nothing if the owner has none of these."""
        charged = self._charges.pop(owner, 0)
        self.charged -= charged
        self.held -= charged + self._shares.pop(owner, 0)  # type: ignore[arg-type]
        if self._waiting:  # a charged owner has no share and does not wait
            self._waiting.pop(owner, None)  # type: ignore[arg-type]

    def next_free(self) -> _O | None:
        """Grant the request of the next waiting owner if it fits, and return this owner; None if no request fits."""
        if not self._waiting:
            return None
        first = next(iter(self._waiting))
        for owner in (next(iter(self._shares), first), first):
            if owner in self._waiting and self._fits(owner, self._waiting[owner]):
                self._grant(owner, self._waiting.pop(owner))
                return owner
        return None

    def _fits(self, owner: _O, nbytes: int) -> bool:
        if self._shares.get(owner, 0) + nbytes <= self._small:
            return True
        oldest = next(iter(self._shares), owner)
        if oldest == owner:
            return self.held + nbytes <= self._limit or self.charged <= self._limit // CHARGED_PART
        younger = self.held - self.charged - self._shares[oldest]
        return self.held + nbytes <= self._limit and younger + nbytes <= self._limit // YOUNGER_PART

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
