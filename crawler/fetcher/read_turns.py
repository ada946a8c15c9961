"""Which resting connections are read next: short answers before long ones.

A connection rests once reading has had its share of a turn of the loop, and after
each 128 KiB of an answer. Connections in the first `FRESH` seconds of their answer's
reading go on before all others (as new flows do in fq_codel, RFC 8290, 4.2).
Otherwise a page behind 500 bodies of two-byte chunks would wait half a second for
each of its pieces. A turn lets as many go on as fit into its share by the last cost
of reading one, and at least one of each kind.

While the loop has other work, long answers get a quarter of its CPU time: after a
piece of theirs, others may use `OTHERS` times as much before the next. A turn
without other work pays for all.
"""

from collections import deque
from typing import Generic, TypeVar

SHARE = 0.005  # seconds of reading in a turn of the loop
FRESH = 0.002  # seconds; a page of 100 kB costs 0.2 ms, 64 KiB of two-byte chunks 3
GO_ON_MAX = 8  # a turn: 1 MiB, some 2 ms
OTHERS = 3.0
IDLE = 0.0003  # seconds of CPU; a turn of the loop with nothing to do takes 0.05 ms
_FADING = 0.9

_C = TypeVar("_C")


class ReadTurns(Generic[_C]):
    """The lines of fresh and of old connections, and what reading one costs."""

    def __init__(self) -> None:
        self._fresh: deque[_C] = deque()
        self._old: deque[_C] = deque()
        self._cost = 0.0
        self._read = 0.0  # seconds since the last turn
        self._owed = 0.0  # seconds that others are to use before a long answer goes on
        self._old_went = False  # in the last turn
        self._looked_at = 0.0  # by the thread's CPU time

    def __len__(self) -> int:
        return len(self._fresh) + len(self._old)

    def rest(self, connection: _C, spent: float) -> None:
        """Put a connection in line; `spent` are seconds that reading its answer took so far."""
        (self._fresh if spent < FRESH else self._old).append(connection)

    def read(self, seconds: float) -> None:
        """So long took a piece, in CPU time of the thread."""
        self._read += seconds
        self._cost = max(seconds, self._cost * _FADING)

    def next(self, cpu: float) -> list[_C]:
        """Those that go on in this turn, `cpu` by the thread's CPU time; they leave the line."""
        self._look(cpu)
        places = GO_ON_MAX if not self._cost else max(1, min(GO_ON_MAX, int(SHARE / self._cost)))
        fresh = [self._fresh.popleft() for _ in range(min(GO_ON_MAX, len(self._fresh)))]
        left = max(1, places - len(fresh)) if self._owed <= 0.0 else 0
        old = [self._old.popleft() for _ in range(min(left, len(self._old)))]
        self._old_went = bool(old)
        return fresh + old

    def _look(self, cpu: float) -> None:
        """What the last turn changes of what is owed to others."""
        others = cpu - self._looked_at - self._read
        if self._old_went:
            self._owed = OTHERS * self._read
        self._owed = 0.0 if others <= IDLE else self._owed - others
        self._looked_at, self._read = cpu, 0.0
