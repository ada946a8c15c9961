"""The share of a turn of the loop that reading pages may take, so that clients and sockets do not wait.

Answers come together: while the loop reads ten pages, ten more arrive. A turn
could grow to one page for each host asked at once, 60 ms and more. So reading gets
a share of each turn, first come first served, and the loop looks at its sockets
between turns.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READING = 0.003  # seconds of a turn; a page takes some 0.5 ms


class LoopShare:
    """`seconds` of reading a turn by `clock` (CPU): `await mine()`, then read within `with spending():`."""

    def __init__(self, seconds: float = READING, clock: Callable[[], float] = time.thread_time) -> None:
        self.seconds = seconds
        self._clock = clock
        self._left = seconds
        self._cost = 0.0  # of one reading: the largest of the last ones, fading
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewing = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def mine(self) -> None:
        """Wait until something of the share is left, behind those that wait already."""
        if self._left > 0.0 and not self._waiting:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._renew_soon()
        await waiter

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take what is done within from the share of this turn."""
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            self._cost = max(took, 0.9 * self._cost)
            self._left -= took
            self._renew_soon()

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """A new turn: wake as many as its share will do for, one at least."""
        self._renewing = False
        self._left = self.seconds
        places = max(1, int(self.seconds / self._cost)) if self._cost else 1
        while self._waiting and places:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its fetch task was cancelled
                waiter.set_result(None)
                places -= 1
        if self._waiting:
            self._renew_soon()
