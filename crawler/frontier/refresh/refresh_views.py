"""Views of the known pages: the freshness of their copies, and the reasons for the time of the next fetch."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from crawler.change_signals import NAMES
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.expectation import Expectation
from crawler.frontier.refresh.news import News
from crawler.frontier.refresh.portion import Portion
from crawler.frontier.refresh.refetch_claims import WITHHELD, RefetchClaims
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import HostView, PageView
from crawler.frontier.refresh.site_clock import SiteClock

# Number of digits to which a probability is rounded. If the same terms are added in another order, only the
# sixteenth digit of the sum may differ. So the rounded sums are equal.
FRESH_DIGITS = 9


@dataclass(eq=False, repr=False)
class RefreshViews:
    """Read-only views of the parts of the refresh frontier."""

    schedule: Schedule | Arms
    clock: SiteClock
    claims: RefetchClaims
    expectation: Expectation
    portion: Portion
    news: News

    def probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """Return the probability that a page's copy, made at `fetched_at`, is current.

        Return None if the page is not known, or if it is gone, moved or denied. The copy may be older than the last
        answer of the page, if this answer is not committed yet.
        """
        page = self.schedule.find(fingerprint)
        if page < 0:
            return None
        return self._fresh(self.schedule.overview.page(page, self.clock.at(now), self.clock.at(fetched_at)))

    def _fresh(self, known: PageView) -> float | None:
        if known.away:
            return None
        return round(self.expectation.fresh(known), FRESH_DIGITS)

    def explain(self, fingerprint: int, fetched_at: float, now: float) -> dict[str, Any]:
        """Return what is known of the next refetch of a page; {} if the page is not known.

        This includes the change rate and its error, the page's clock, signals, value and deadline, and the reason
        why it waits. The page's copy was made at `fetched_at`. Instants are in real time; rates, clock and watched
        time are in the time of the sites.
        """
        page = self.schedule.find(fingerprint)
        if page < 0:
            return {}
        then, overview, ours = self.clock.at(now), self.schedule.overview, self.clock.ours
        known = overview.page(page, then, self.clock.at(fetched_at))
        plain: dict[str, Any] = msgspec.to_builtins(known)
        for name in ("fingerprint", "host", "directory", "hearing", "stands_for", "away", "stated"):
            del plain[name]
        host = overview.host(known.host)
        told = dict(zip(NAMES, known.signals, strict=False))
        return plain | {
            "fresh": self._fresh(known),
            "rate_error": known.rate / math.sqrt(1.0 + known.changes),
            "signals_by_source": {source: n for source, n in told.items() if n},
            "crawled_at": ours(known.crawled_at),
            "deadline": _finite(ours(known.deadline)),
            "host_ready": _finite(ours(host.ready)),
            "host_level": host.level,
            "waits_for": self._waits_for(known, host, then),
            "hub": overview.hub(page, then),
        }

    def _waits_for(self, known: PageView, host: HostView, then: float) -> str:
        """Return what the page waits for, in a few words."""
        if known.state == "in flight":
            return "its answer"
        if known.state in WITHHELD:
            return WITHHELD[known.state]
        if self.claims.is_requested(known.fingerprint):
            return "its host (it was requested out of turn)"
        if host.busy or host.ready > then:
            return "its host"
        return "its turn (it is due)" if known.deadline <= then else "its value to reach the level"

    def summary(self, now: float) -> dict[str, Any]:
        """Return the refresh section of a status."""
        then = self.clock.at(now)
        seen = self.expectation.view(then)
        return seen | {
            "in_flight": len(self.claims.held),
            "ahead": self.claims.requested,
            "share": round(self.portion.known, 4),
            "known_share": round(self.portion.share.refresh, 3),
            "news": self.news.view(now) | self.schedule.overview.hubs(then),
            "busy": round(self.portion.busy, 3),
            "wait": self._wait(then),
        }

    def _wait(self, then: float) -> dict[str, Any]:
        """Return until when all known pages wait, and what the first of them waits for; {} if not all wait."""
        page = self.schedule.overview.first_withheld()
        if page < 0:
            return {}
        known = self.schedule.overview.page(page, then)
        if known.deadline <= then or known.state not in WITHHELD:
            return {}
        return {"until": self.clock.ours(known.deadline), "reason": WITHHELD[known.state]}

    def by_host(self, now: float) -> dict[int, tuple[int, float]]:
        """Return host key -> (pages, expected freshness) for the hosts of a sample of pages."""
        return self.expectation.by_host(self.clock.at(now))


def _finite(value: float) -> float | None:
    return value if abs(value) < math.inf else None
