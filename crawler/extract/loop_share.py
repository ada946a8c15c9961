"""Limits the share of an event loop turn that is spent on reading pages (`turn_share.py`)."""

import asyncio
import time
from collections.abc import Callable

from crawler.turn_share import TurnShare

READING = 0.003  # seconds per turn; a page takes some 0.5 ms


class LoopShare(TurnShare[asyncio.Future[None]]):
    """Allows `seconds` of CPU time (`clock`) per turn for reading.

    Before a task reads, it awaits `mine()`, which returns in a turn that has time left. The task then reads
    inside `with share:`, which measures the time.
    """

    def __init__(self, seconds: float = READING, clock: Callable[[], float] = time.thread_time) -> None:
        super().__init__(seconds, clock)
        self._began = 0.0
        # Expected seconds per page. A slower page raises the expected time at once to its own time. A faster
        # page lowers the expected time by at most a tenth.
        self._cost = 0.0

    async def mine(self) -> None:
        """Wait for a turn of the event loop in which this task may read; tasks that already wait are served first."""
        if self.now:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._renew_soon()
        await waiter

    def __enter__(self) -> None:
        """Begin to read; the time spent in this context is subtracted from what is left of this turn's `seconds`."""
        self._began = self._clock()

    def __exit__(self, *_error: object) -> None:
        took = self._clock() - self._began
        self._cost = max(took, 0.9 * self._cost)
        self._left -= took
        self._renew_soon()

    def _serve(self) -> None:
        """Wake as many waiting tasks as the share allows, at least one."""
        places = max(1, int(self._seconds / self._cost)) if self._cost else 1
        while self._waiting and places:
            waiter = self._waiting.popleft()
            if not waiter.done():  # if a future is done here, the task that waited for it was cancelled
                waiter.set_result(None)
                places -= 1
