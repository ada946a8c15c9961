"""The crawler's own refresh frontier as a policy of the league, on a virtual clock.

A site is a host; its directories are the schedule's. The adapter does what the crawl
does around the schedule: it drops a signal dated before the page's last fetch, removes
a page that is gone, by the rules of the league's world, and blocks the host for
politeness.
"""

import numpy as np

from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.lab.league.world import World

SOURCES = {"sitemap": 0, "feed": 1}
# Name in the league -> what differs from the default settings.
SHIPPED: dict[str, dict[str, object]] = {
    "ncis": {},
    "greedy": {"policy": "greedy"},
    "greedy-pooled": {"policy": "greedy", "neighbourhood": False},
    "ncis-pooled": {"neighbourhood": False},
    "uniform": {"policy": "uniform"},
    "interval": {"policy": "interval"},
    "azar-lds": {"policy": "azar-lds"},
}
DEAF = {"uniform", "interval"}  # signals change nothing for them; the others learn rates from them


class Shipped:
    """Drives a `Schedule`; pages keep their numbers of the world as fingerprints."""

    def __init__(self, world: World, rate: float, settings: Settings) -> None:
        self.schedule = Schedule(settings)
        self.schedule.rate = rate
        size = len(world)
        self._site, self._directory = world.site.tolist(), world.directory.tolist()
        self._importance = (world.importance / world.importance.mean()).tolist()
        self._sources = [SOURCES.get(source, 0) for source in world.sources]
        self._number = [-1] * size  # in the schedule
        self._page: dict[int, int] = {}
        self._fetched = [np.inf] * size

    def add(self, page: int, now: float) -> None:
        number = self.schedule.add(
            page + 1, self._site[page] + 1, self._directory[page] + 1, now, now, self._importance[page]
        )
        self._number[page], self._page[number] = number, page
        self._fetched[page] = now

    def signal(self, page: int, source: str, at: float, now: float) -> None:
        if at > self._fetched[page]:
            self.schedule.signal(self._number[page], now, self._sources[self._site[page]])

    def take(self, now: float) -> int:
        number = self.schedule.take(now)
        return self._page[number] if number >= 0 else -1

    def settle(self, page: int, now: float, changed: bool) -> None:
        self._fetched[page] = now
        self.schedule.settle(
            self._number[page], now, RefreshOutcome.CHANGED if changed else RefreshOutcome.UNCHANGED
        )

    def remove(self, page: int, now: float) -> None:
        number = self._number[page]
        self.schedule.settle(number, now, RefreshOutcome.GONE)
        self.schedule.remove(number)
        self._fetched[page] = np.inf
        del self._page[number]

    def hold(self, site: int, until: float) -> None:
        self.schedule.block(self.schedule.host(site + 1), until)
