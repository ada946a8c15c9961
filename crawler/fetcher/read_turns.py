"""Chooses which resting connections are read next. Short answers are read before long ones.

A connection rests once reading has used its share of a turn of the event loop, and after each 128 KiB of an
answer. A connection is fresh until the reading of its answer has taken `FRESH` seconds; fresh connections are
resumed before all others (like new flows in fq_codel, RFC 8290, 4.2). If fresh connections were not resumed
first, a page queued behind 500 bodies that arrive in chunks of two bytes would wait half a second for each of
its pieces. A turn resumes up to `RESUMED_MAX` fresh connections. After the fresh connections, a turn resumes
other connections: at least one, and at most as many as can still be read within the turn's `SHARE` seconds,
judging by the recent cost of reading from a connection.

While the loop has other work, long answers get only a quarter of the CPU time. After each piece of a long
answer, the other work may use `OTHERS` times as much CPU time as the piece took. The next piece of the answer
is read only after the other work has used this time. After a turn without other work, the next piece is read
without further waiting.
"""

from collections import deque
from typing import Generic, TypeVar

SHARE = 0.005  # seconds of reading per turn of the loop
# A connection is fresh until the reading of its answer has taken this many seconds. Reading a page of 100 kB
# takes 0.2 ms, and reading 64 KiB of two-byte chunks takes 3 ms.
FRESH = 0.002
RESUMED_MAX = 8  # maximum number of connections resumed per turn; they read 1 MiB in some 2 ms
OTHERS = 3.0
# A turn counts as having no other work if everything except reading takes at most this many seconds of CPU
# time. Even an empty turn takes 0.05 ms.
IDLE = 0.0003
_FADING = 0.9

_C = TypeVar("_C")


class ReadTurns(Generic[_C]):
    """Two queues of connections, fresh and others, and the cost of reading a piece."""

    def __init__(self) -> None:
        self._fresh: deque[_C] = deque()
        self._old: deque[_C] = deque()
        self._cost = 0.0
        self._read = 0.0  # seconds of reading since the last turn
        self._owed = 0.0  # seconds that other work may use before a long answer is resumed
        self._old_went = False  # whether the last turn resumed long answers
        self._looked_at = 0.0  # the thread's CPU time at the last turn

    def __len__(self) -> int:
        return len(self._fresh) + len(self._old)

    def rest(self, connection: _C, spent: float) -> None:
        """Put a connection in a queue; `spent` is the time spent reading its answer so far, in seconds."""
        (self._fresh if spent < FRESH else self._old).append(connection)

    def read(self, seconds: float) -> None:
        """Record that reading a piece took this much CPU time of the thread."""
        self._read += seconds
        self._cost = max(seconds, self._cost * _FADING)

    def next(self, cpu: float) -> list[_C]:
        """Remove and return the connections to resume in this turn; `cpu` is the thread's CPU time."""
        self._look(cpu)
        places = RESUMED_MAX if not self._cost else max(1, min(RESUMED_MAX, int(SHARE / self._cost)))
        fresh = [self._fresh.popleft() for _ in range(min(RESUMED_MAX, len(self._fresh)))]
        left = max(1, places - len(fresh)) if self._owed <= 0.0 else 0
        old = [self._old.popleft() for _ in range(min(left, len(self._old)))]
        self._old_went = bool(old)
        return fresh + old

    def _look(self, cpu: float) -> None:
        """Update `_owed` after a turn: the CPU time that other work may use before a long answer is resumed."""
        others = cpu - self._looked_at - self._read
        if self._old_went:
            self._owed = OTHERS * self._read
        self._owed = 0.0 if others <= IDLE else self._owed - others
        self._looked_at, self._read = cpu, 0.0
