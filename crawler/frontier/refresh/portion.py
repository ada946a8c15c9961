"""Sets the part of the rate that known pages of this process get.

The rest of the rate goes to new URLs and to other processes. `share` divides the fetches of this process
(`frontier/share.py`), and `balance` brings all processes to one level (`rate_balancing.py`). `price` is the
value of the known page that is next to be fetched; it is compared with the values of new URLs.
"""

import math
from collections.abc import Mapping

from crawler.config import RefreshConfig
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.importance import Importance
from crawler.frontier.refresh.rate_balancing import Balance, LevelReport
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.frontier.share import Share

BUSY_SHARE = 0.8  # a process is busy if its rate limit makes it wait for at least this share of the time
_BUSY_SMOOTHING = 20.0  # seconds over which the share of waiting time is averaged


class Portion:
    """Sets the rate of a schedule.

    `known` is the part of the total rate that this process has for known pages. `busy` is the share of the
    time in which the rate limit made this process wait. `endless` is True if the purpose of the crawl is to
    refresh known pages.

    Args:
        rate: fetches per second of the whole crawl, all for refresh; 0 = not known. Until `divide` is called, each
            of the `processes` has an equal part of it.
        name: the name of this process among those that share the rate.
    """

    def __init__(
        self,
        schedule: Schedule | Arms,
        clock: SiteClock,
        config: RefreshConfig,
        importance: Importance,
        *,
        rate: float,
        name: str,
        processes: int = 1,
    ) -> None:
        self._schedule = schedule
        self._clock = clock
        self._config = config
        self._importance = importance
        self.share = Share(config.fetch_share)
        self.endless = config.endless
        self.balance = Balance(name)
        self.known, self.busy = 1.0 / processes, 1.0
        self._waited = 0.0
        self._levelled_at = -math.inf
        self.set_rate(self.known * rate)

    def configure(self, config: RefreshConfig) -> None:
        """Apply a new share of refetches."""
        self.share.set(config.fetch_share)

    def set_rate(self, rate: float) -> None:
        """Use the whole rate of this process for refreshes in an endless crawl; a rate of 0 changes nothing."""
        if self.endless and rate:
            self._schedule.pace.rate = self._clock.ours(rate)

    def divide(self, discovery: float, known: float, rate: float) -> None:
        """Set this process's parts of the whole `rate` for new and for known pages."""
        self.known = known
        if discovery + known > 0.0 and not self.share.auto:
            self.share.refresh = known / (discovery + known)
        if known > 0.0:
            self.set_rate(known * rate)

    def exchange_levels(self, reports: Mapping[str, LevelReport], waited: float, now: float) -> LevelReport:
        """Update the tilt of this process from the level reports of all processes, and return its own report.

        The tilt is explained in `rate_balancing.py`. `waited` is the total number of seconds so far in which
        only the rate kept this process from starting requests.
        """
        elapsed = now - self._levelled_at if self._levelled_at > -math.inf else 0.0
        if elapsed > 0.0:
            share = min((waited - self._waited) / elapsed, 1.0)
            self.busy += (share - self.busy) * -math.expm1(-elapsed / _BUSY_SMOOTHING)
        self._levelled_at, self._waited = now, waited
        pages, rate = len(self._schedule), self._schedule.pace.rate
        revisit = pages / rate if pages and rate else self._config.clock_max
        price, balance = self.price(now), self.balance
        own = balance.report(price, pages, self.busy >= BUSY_SHARE, self._clock.at(now), revisit)
        balance.renew({**reports, balance.name: own}, self._clock.at(elapsed), revisit)
        return own

    def price(self, now: float) -> float:
        """Return the value of the known page that is fetched next; 0 without pages.

        This is what one more fetch would gain in this process.
        """
        return self._schedule.marginal_value(self._clock.at(now)) if len(self._schedule) else 0.0

    def new_value(self, importance: float) -> float:
        """Return the value of fetching a URL for the first time: its importance divided by the mean change rate.

        If `new_page_weight` is 1, a missing copy is as bad as one that is certainly out of date. So this equals
        the value of a known page with such a copy and with the mean change rate. `importance` is the importance
        of the URL relative to a known page, 0 to 1.
        """
        rate = self._schedule.overview.mean_rate
        weight = self._config.new_page_weight or 1.0
        return importance * weight * self._importance.prior / rate if rate > 0.0 else 0.0

    def _check(self) -> None:
        assert 0.0 <= self.busy <= 1.0
