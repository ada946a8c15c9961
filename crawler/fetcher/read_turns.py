"""Whose turn it is to be read: connections that rest, short answers before long ones.

Once reading has had its share of a turn of the loop, and behind each 128 KiB of an
answer, a connection rests. Those in the first `FRESH` seconds of their answer's
reading go on before all others (as new flows do in fq_codel, RFC 8290, 4.2): a
page behind 500 bodies of two-byte chunks would wait for half a second of the loop
for each of its pieces. As many go on in a turn as fit into its share by what
reading one cost last, one of each kind at least.
"""

from collections import deque
from typing import Generic, TypeVar

SHARE = 0.005  # seconds of reading in a turn of the loop
FRESH = 0.002  # seconds; a page of 100 kB costs 0.2 ms, 64 KiB of two-byte chunks 3
GO_ON_MAX = 8  # a turn: 1 MiB, some 2 ms
_FADING = 0.9

_C = TypeVar("_C")


class ReadTurns(Generic[_C]):
    """The lines of fresh and of old connections, and what reading one costs."""

    def __init__(self) -> None:
        self._fresh: deque[_C] = deque()
        self._old: deque[_C] = deque()
        self._cost = 0.0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._old)

    def rest(self, connection: _C, spent: float) -> None:
        """Put a connection in line; `spent` are seconds that reading its answer took so far."""
        (self._fresh if spent < FRESH else self._old).append(connection)

    def read(self, seconds: float) -> None:
        """So long took the last piece."""
        self._cost = max(seconds, self._cost * _FADING)

    def next(self) -> list[_C]:
        """Those that go on in this turn; they leave the line."""
        places = GO_ON_MAX if not self._cost else max(1, min(GO_ON_MAX, int(SHARE / self._cost)))
        fresh = [self._fresh.popleft() for _ in range(min(GO_ON_MAX, len(self._fresh)))]
        left = max(1, places - len(fresh))
        return fresh + [self._old.popleft() for _ in range(min(left, len(self._old)))]
