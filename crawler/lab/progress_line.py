"""Reports the progress of a long computation: prints a line to stderr after two seconds, then every ten seconds."""

import sys
from collections.abc import Callable

from crawler.clock import Clock

FIRST = 2.0  # seconds until the first line; if it came later, users would think that the program hangs
EVERY = 10.0  # seconds between lines

OnProgress = Callable[[float], None]


def silent(_share: float) -> None:
    """Ignore the report."""


class ProgressLine:
    """Prints progress. Call it with the share of the work done so far, 0 to 1."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._began = clock.now()
        self._next = self._began + FIRST

    def __call__(self, share: float) -> None:
        now = self._clock.now()
        if now < self._next or not 0.0 < share < 1.0:
            return
        self._next = now + EVERY
        left = (now - self._began) * (1.0 - share) / share
        print(
            f"{self._what}: {100 * share:.0f} % done, about {_span(left)} left", file=sys.stderr, flush=True
        )

    def __repr__(self) -> str:
        return f"Progress({self._what})"


def part(report: OnProgress, begin: float, end: float) -> OnProgress:
    """Return a report function for a part of the work. The part is the range `begin` to `end` of the whole work."""
    return lambda share: report(begin + (end - begin) * share)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min"
