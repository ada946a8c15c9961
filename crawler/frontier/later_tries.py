"""Decides when a URL is tried again after its first tries have failed for a reason that may pass.

    first tries, 30 s and 2 min apart ──► failed ── 1 h ──► 3 h ──► 9 h ──► ... ──► 30 d after the first try: no more

The table shows the time from the first try to each *later try*. A wait is twice as long as the URL has been without
a copy, but at least `refresh.retry_age` and at most `refresh.gone_age`. The waits follow from two instants of the
URL's record, so nothing else is stored.

A finite crawl does not wait for a later try: each run begins with the later tries that are due
(`process/results/due_tries.py`). A crawl that refreshes pages without end makes the later tries through its schedule
(`frontier/refresh/README.md`, rule 9).
"""

import math
from dataclasses import dataclass

from crawler.config import RefreshConfig
from crawler.records import TLS_FAILURES, LinkFlag, Outcome, PageRecord, PageState

# Outcomes of fetches that failed for a reason that may pass.
PASSING = frozenset(
    {
        Outcome.TEMPORARY, Outcome.HOST_BUSY, Outcome.TRUNCATED, Outcome.FRAMING, Outcome.HEADER_TIMEOUT,
        Outcome.DNS_ERROR, Outcome.CONNECT_ERROR, *TLS_FAILURES, Outcome.RESET, Outcome.PROXY_ERROR,
        Outcome.NOT_RENDERED, Outcome.INTERNAL_ERROR,
    }
)  # fmt: skip
NEVER_REFRESHED = LinkFlag.OWN_REQUEST | LinkFlag.EXTERNAL  # flags of URLs that are never fetched again
_GROWTH = 2.0  # a wait is this many times as long as the URL has been without a copy


@dataclass(frozen=True)
class LaterTries:
    """The waits of later tries, in seconds: the shortest, the longest, and the time in which all of them end."""

    shortest: float
    longest: float
    retry_for: float

    @classmethod
    def of(cls, config: RefreshConfig) -> "LaterTries":
        """Return the waits that the configuration sets, on the clock of the crawl."""
        return cls(
            config.retry_age / config.speed, config.gone_age / config.speed, config.retry_for / config.speed
        )

    def wait(self, record: PageRecord) -> float:
        """Return the time from the last try of a URL without a copy to its next try."""
        return min(max(_GROWTH * _absent_for(record), self.shortest), self.longest)

    def is_over(self, record: PageRecord) -> bool:
        """Return whether a URL has been without a copy for so long that it is not tried again."""
        return not record.was_found and _absent_for(record) >= self.retry_for

    def has_next(self, record: PageRecord) -> bool:
        """Return whether a URL has a later try."""
        return self.next_try(record) < math.inf

    def next_try(self, record: PageRecord) -> float:
        """Return the instant from which a URL is tried again; infinite if it has no later try.

        A URL has later tries if no fetch has found a page, the last fetch failed for a reason that may pass, and the URL
        is in no queue.
        """
        has_later = (
            record.state is PageState.FAILED
            and record.outcome in PASSING
            and not (record.was_found or record.queued or record.flags & NEVER_REFRESHED)
        )
        return record.tried_at + self.wait(record) if has_later and not self.is_over(record) else math.inf


def _absent_for(record: PageRecord) -> float:
    """Return the time from the first to the last try of a URL that no fetch has found.

    `changed_at` is the instant of its first try.
    """
    return max(record.tried_at - record.changed_at, 0.0)
