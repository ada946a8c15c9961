"""Limits the time that one kind of work takes in each turn of the event loop, so that clients are not delayed.

New work arrives while the loop works: while the loop answers ten requests, ten more requests may arrive. So
without a limit, a turn could grow until it does one piece of work for each connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
