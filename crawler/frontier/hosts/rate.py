"""Limits the rate of the whole process: the starts of requests are spaced evenly.

The process makes up for starts that are late by up to 100 ms, but not for longer delays. So no burst follows
a pause: any window of length T contains at most rate * (T + 100 ms) + 1 starts. With a shorter allowance, the
actual rate would fall further below the limit on a busy machine, where the event loop is often late.
"""

# seconds; if a start is late by at most this time, the next starts follow sooner, so that the rate stays the same
RATE_SLACK = 0.1


class Rate:
    """Spaces the starts of requests evenly; a rate of 0 means no limit."""

    def __init__(self, rate: float) -> None:
        self.rate = rate  # the rate may be changed at any time and takes effect immediately
        # the instant at which the latest request would have started if all starts had been evenly spaced
        self._spent_at = 0.0

    def ready_at(self) -> float:
        """Return the instant from which the next start is allowed."""
        return self._spent_at + 1.0 / self.rate if self.rate and self._spent_at else 0.0

    def spend(self, now: float) -> None:
        """Count the start of a request."""
        if self.rate:
            self._spent_at = max(self.ready_at(), now - RATE_SLACK) if self._spent_at else now
