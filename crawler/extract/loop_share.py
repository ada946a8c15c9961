"""Limits the share of an event loop turn spent on reading pages, so that clients and sockets do not wait.

Answers arrive in groups: while the loop reads ten pages, ten more arrive. A turn could grow until it reads
one page of each host in progress, which takes 60 ms and more. So reading gets a limited share of each turn,
pages are read in order of arrival, and the loop checks its sockets between turns.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

READING = 0.003  # seconds per turn; a page takes some 0.5 ms


class LoopShare:
    """Allows `seconds` of CPU time (`clock`) per turn for reading: `await mine()`, then read `with` the share."""

    def __init__(self, seconds: float = READING, clock: Callable[[], float] = time.thread_time) -> None:
        self.seconds = seconds
        self._clock = clock
        self._left = seconds
        self._began = 0.0
        self._cost = 0.0  # expected seconds per page: the largest recent value, which decays
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewing = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def mine(self) -> None:
        """Wait until a turn has time left for this task; tasks that already wait are served first."""
        if self._left > 0.0 and not self._waiting:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._renew_soon()
        await waiter

    def __enter__(self) -> None:
        """Begin to read; the time spent in this context is subtracted from the share of this turn."""
        self._began = self._clock()

    def __exit__(self, *_error: object) -> None:
        took = self._clock() - self._began
        self._cost = max(took, 0.9 * self._cost)
        self._left -= took
        self._renew_soon()

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Begin a new turn: wake as many waiting tasks as the share allows, at least one."""
        self._renewing = False
        self._left = self.seconds
        places = max(1, int(self.seconds / self._cost)) if self._cost else 1
        while self._waiting and places:
            waiter = self._waiting.popleft()
            if not waiter.done():  # a future that is done belongs to a cancelled fetch task
                waiter.set_result(None)
                places -= 1
        if self._waiting:
            self._renew_soon()
