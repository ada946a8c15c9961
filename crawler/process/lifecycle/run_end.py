"""Why a run ends, and how long its last work may take.

run goes on -> stop(reason) or fail(error) -> grace period -> the rest is left to the next run
"""

import asyncio
import logging
import math
from collections.abc import Callable

from crawler.errors import blame_of_system
from crawler.process.lifecycle.limits import STOP_GRACE

log = logging.getLogger("crawler")

WITHOUT_WORK = ("done", "patience")  # reasons for ending a run that has nothing to fetch


class RunEnd:
    """The end of a run: any part of a process may stop the run, and any part may ask whether it is stopping.

    `reason` is "" until the run is stopped. `failure` is the error that ends the run. `leaves_links` is True if
    the pending links of the DUE are left to the next run. `news` wakes the schedule, which checks again whether
    there is work. `on_stop` is called at each stop.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.reason = ""
        self.failure: BaseException | None = None
        self.leaves_links = False
        self.news = asyncio.Event()
        self.on_stop: Callable[[], None] = self.wake
        self._at = math.inf
        self.grace = STOP_GRACE

    def wake(self) -> None:
        """Make the schedule check again whether there is work."""
        self.news.set()

    def stop(self, reason: str, *, grace: float = STOP_GRACE) -> None:
        """Start no new work. The run ends when all fetches in flight are committed, or after `grace` seconds.

        A further stop may shorten this time, but not lengthen it.
        """
        if self.reason:
            self.grace = min(self.grace, grace)
        else:
            self.reason, self._at, self.grace = reason, self._now(), grace
        self.wake()
        self.on_stop()

    def fail(self, error: BaseException, *, of_user: bool = False) -> None:
        """End the run with `error`. Acknowledge no more changes.

        If the environment is to blame, the run fails with the error that names the cause (`blame_of_system`).
        Otherwise, log the error, unless user code raised it.
        """
        expected = None if of_user else blame_of_system(error)
        if expected is not None and expected is not error:
            expected.__cause__ = error
            log.debug("the run ends because of the system", exc_info=error)
        elif self.failure is None and not of_user and expected is None:
            log.error("the run ends because of a bug in the crawler; please report this", exc_info=error)
        self.failure = self.failure or expected or error
        self.stop("error")

    def stopping(self) -> bool:
        """Return whether the run is stopping. If it is, nothing new is started."""
        return bool(self.reason)

    def on_purpose(self) -> bool:
        """Return whether a user or a limit ended the run, rather than a lack of work."""
        return self.reason not in ("", *WITHOUT_WORK)

    def time_left(self, limit: float = math.inf) -> float:
        """Return the seconds until the grace period ends, or until `limit` seconds after the stop, if that is earlier.

        Without a stop, the result is infinite.
        """
        return self._at + min(limit, self.grace) - self._now()
