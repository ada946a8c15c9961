"""Decides whether, and when, a child that has ended is started again, by its exit code.

0, or all are to stop      it has ended for good
2, 3 (usage, directory)    another start would end in the same way: the crawl fails
anything else              again, after a growing delay if it did not last; at last the crawl fails
"""

from enum import Enum

RESTARTS_MAX = 10  # of a child that never lasted `LASTED`; then the crawl ends with its exit code
LASTED = 60.0  # seconds after which a start counts as a success
RESTART_DELAY, RESTART_DELAY_MAX = 0.2, 30.0
HOPELESS = (2, 3)


class Next(Enum):
    """What follows the end of a child."""

    NOTHING = "nothing"
    START = "start"  # again, after `Restarts.delay`
    FAIL = "fail"


class Restarts:
    """The record of one child."""

    def __init__(self) -> None:
        self._failures = 0  # in a row, of starts that did not last

    def __repr__(self) -> str:
        return f"Restarts({self._failures} failures in a row)"

    def ended(self, code: int, lasted: float, *, stopping: bool) -> Next:
        """Note an end with exit code `code` (less than 0: a signal) `lasted` seconds after the start."""
        if code == 0 or stopping:
            return Next.NOTHING
        self._failures = 0 if lasted >= LASTED else self._failures + 1
        return Next.FAIL if code in HOPELESS or self._failures > RESTARTS_MAX else Next.START

    @property
    def delay(self) -> float:
        """Seconds to wait before the next start."""
        return float(min(RESTART_DELAY * 2 ** max(0, self._failures - 1), RESTART_DELAY_MAX))
