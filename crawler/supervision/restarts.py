"""Decides from the exit code of a child whether and when the child is restarted.

0, or a stop of the crawl  not restarted
2, 3 (usage, directory)    not restarted, as it would fail again: the crawl fails
75 (disk, memory)          restarted once; if it ends with 75 again within `WRITES_AGAIN`, the crawl fails
SIGABRT (memory)           restarted once; if it ends with 75 or SIGABRT again within `LASTED`, the crawl fails
anything else              restarted, after a growing delay if it failed soon; after `RESTARTS_MAX` the crawl fails
"""

import signal
from enum import Enum

from crawler.errors import StoreError

RESTARTS_MAX = 10  # if more runs in a row than this are short, the crawl fails
LASTED = 60.0  # a start that lasts this many seconds is considered successful
RESTART_DELAY, RESTART_DELAY_MAX = 0.2, 30.0
HOPELESS = (2, 3)
# A process on a full disk may run for a minute until it ends, because flushes of the DUE are tried again. So a
# restart after exit code 75 has helped only if the process runs for this number of seconds.
WRITES_AGAIN = 300.0
# A library, for example libuv, aborts the process if it gets no memory or no thread.
ABORTED = -signal.SIGABRT


class Next(Enum):
    """The reaction to the end of a child."""

    NOTHING = "nothing"
    START = "start"  # restart the child after `Restarts.delay`
    FAIL = "fail"


class Restarts:
    """Records the starts and failures of one child."""

    def __init__(self) -> None:
        self._failures = 0  # number of starts in a row that ended within `LASTED` seconds
        self._last = 0  # the exit code of the latest start

    def __repr__(self) -> str:
        return f"Restarts({self._failures} failures in a row)"

    def ended(self, code: int, lasted: float, *, stopping: bool) -> Next:
        """Note that the child ended with `code` after `lasted` seconds; return the reaction.

        If a signal ended the child, `code` is the negative number of the signal.
        """
        if code == 0 or stopping:
            return Next.NOTHING
        self._failures = 0 if lasted >= LASTED else self._failures + 1
        again = {code, self._last} <= {StoreError.exit_code, ABORTED}
        unable = again and lasted < (LASTED if ABORTED in (code, self._last) else WRITES_AGAIN)
        self._last = code
        return Next.FAIL if code in HOPELESS or unable or self._failures > RESTARTS_MAX else Next.START

    @property
    def delay(self) -> float:
        """Return the seconds to wait before the next start."""
        return float(min(RESTART_DELAY * 2 ** max(0, self._failures - 1), RESTART_DELAY_MAX))
