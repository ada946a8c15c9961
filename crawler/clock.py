"""The process clock: it shows the wall time at the start plus the time since then.

The clock never steps back while the process runs, and instants keep their meaning after a restart. The clock
also counts the time for which the machine was suspended. Otherwise, after a suspension, the ages of copies and
the dates in archives would be wrong until the process ends, which may be months later. Core
objects take `now` as an argument; only the code that connects them to sockets and files reads a clock.
"""

import math
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """A source of instants, in seconds since the epoch."""

    def now(self) -> float: ...


# Linux stops CLOCK_MONOTONIC, which `time.monotonic` reads, while the machine is suspended, but not CLOCK_BOOTTIME.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """A clock that starts at the wall time and then never steps back."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time.time() - time.clock_gettime(_ELAPSED)

    def now(self) -> float:
        return self._offset + time.clock_gettime(_ELAPSED)


class VirtualClock:
    """A clock that tests and simulations set by hand."""

    __slots__ = ("_now",)

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Advance the clock by `seconds` (not negative) and return the new instant."""
        assert seconds >= 0.0, seconds
        self._now += seconds
        return self._now

    def __repr__(self) -> str:
        return f"VirtualClock({self._now})"


def past(instant: float, now: float) -> float:
    """Return a stored instant, or `now` if the instant is in the future because a clock was ahead when it was stored."""
    return min(instant, now)


def iso_time(instant: float) -> str:
    """Format an instant as ISO 8601 in UTC, with milliseconds."""
    whole = math.floor(instant)
    return f"{_iso_second(whole)}.{int((instant - whole) * 1000):03d}Z"


@lru_cache(maxsize=8)
def _iso_second(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")
