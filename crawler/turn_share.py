"""Limits the time that one kind of work takes in each turn of the event loop, so that clients are not delayed.

New work arrives while the loop works: while the loop answers ten requests, ten more requests may arrive. So
without a limit, a turn could grow until it does one piece of work for each connection.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger("crawler")

USER_CODE = 0.005  # seconds per turn in which calls of user code begin; a callback takes about 1 ms
SLOW = 0.5  # seconds; a turn of the event loop should not even take a tenth of this
_TOLD_INTERVAL = 60.0  # seconds between two log lines about slow calls


class TurnShare(Generic[T]):
    """Allows `seconds` of CPU time (`clock`) per turn. A subclass serves the waiting work in `_serve`."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = self._left = seconds
        self._clock = clock
        self._waiting: deque[T] = deque()
        self._renewing = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def now(self) -> bool:
        """Return whether new work may be done at once, that is, if the turn has time left and no other work waits."""
        return self._left > 0.0 and not self._waiting

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Begin a new turn. If work is left after this turn, plan another turn."""
        self._renewing, self._left = False, self._seconds
        try:
            self._serve()
        finally:
            if self._waiting:
                self._renew_soon()

    def _serve(self) -> None:
        """Serve waiting work at the beginning of a turn, in order of arrival."""
        raise NotImplementedError


class UserTurns(TurnShare[asyncio.Future[None]]):
    """Spreads calls of user code, which may block, over turns: a call begins only in the first `seconds` of a turn.

    So between two slow calls, the event loop gets a turn, in which it reacts to answers, signals and time limits.
    If user code blocks a turn for `SLOW` seconds, this is logged. `clock` counts seconds.
    """

    def __init__(self, seconds: float = USER_CODE, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(seconds, clock)
        self._began = math.inf  # when user code was first called in this turn
        self._what = ""
        self._ended = False
        self._told_at = -math.inf

    async def mine(self, what: str) -> None:
        """Wait for a turn in which a call may begin; tasks that already wait are served first. `what` is called.

        Raises:
            CancelledError: the run ends, so no more user code is called.
        """
        if self._ended:
            raise asyncio.CancelledError
        if self._waiting or not self._has_time():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._renew_soon()
            await waiter
        self._what = what

    def end(self) -> None:
        """Call no more user code: cancel the tasks that wait for their turn."""
        self._ended = True
        while self._waiting:
            self._waiting.popleft().cancel()

    def _has_time(self) -> bool:
        now = self._clock()
        if self._began == math.inf:
            self._began = now
            self._renew_soon()
        return now < self._began + self._seconds

    def _serve(self) -> None:
        """Wake one waiting task. Its call is the first of this turn, and further calls may follow while there is time."""
        self._tell()
        self._began = math.inf
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # if a future is done here, the task that waited for it was cancelled
                waiter.set_result(None)
                self._has_time()
                return

    def _tell(self) -> None:
        now = self._clock()
        if now >= self._began + SLOW and now >= self._told_at + _TOLD_INTERVAL:
            self._told_at = now
            log.warning(
                "your code blocked the crawl for %.1f s (%s); while a call runs, nothing else can happen",
                now - self._began,
                self._what,
            )
