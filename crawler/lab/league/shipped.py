"""The crawler's own refresh frontier as a policy of the league, on a virtual clock.

A site of the world becomes a host of the schedule, and directories of the site become directories of the
host. Before and after it calls the schedule, the adapter does the same as a crawl: it drops a signal dated
before the page's last fetch, removes a page that is gone (by the rules of the league's world), and blocks a
host for politeness.
"""

import math
from typing import Any

import numpy as np

from crawler.change_signals import source_number
from crawler.freshness.recalibration import Recalibration
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.expectation import corrected, learn
from crawler.frontier.refresh.settings import PageView
from crawler.lab.league.world import Policy, WorldPages
from crawler.lab.living.course import Era

# Maps a name in the league to the settings that differ from the defaults.
SHIPPED: dict[str, dict[str, Any]] = {
    "ncis": {},
    "greedy": {"policy": "greedy"},
    "greedy-pooled": {"policy": "greedy", "neighbourhood": False},
    "ncis-pooled": {"neighbourhood": False},
    "uniform": {"policy": "uniform"},
    "interval": {"policy": "interval"},
    "azar-lds": {"policy": "azar-lds"},
}
# the policies that ignore signals; the other policies learn rates from signals, too
DEAF = {"uniform", "interval"}


class Shipped(Policy):
    """Runs a `Schedule`. The page numbers of the world serve as fingerprints.

    Args:
        judged: whether the result of each fetch is compared with the freshness that the schedule stated, as
            in a crawl.
        born: when each page appeared; a page that appeared after time 0 counts as new until its first refetch.
    """

    def __init__(
        self,
        world: WorldPages,
        rate: float,
        settings: Settings,
        *,
        judged: bool = False,
        born: np.ndarray | None = None,
    ) -> None:
        super().__init__(world, rate)
        self.schedule = Schedule(settings)
        self.schedule.pace.rate = rate
        self._judged = judged
        self._new = (born > 0.0).tolist() if born is not None else [False] * len(world)
        # for each page that is being fetched, its state before the fetch
        self._asked: dict[int, PageView] = {}
        self._recalibration = Recalibration()
        size = len(world)
        self._directory = world.directory.tolist()
        self._importance = (world.importance / world.importance.mean()).tolist()
        self._sources = [source_number(source or "sitemap") for source in world.sources]
        self._number = [-1] * size  # the number of each page in the schedule; -1: the page is not in it
        self._page: dict[int, int] = {}
        self._fetched = [np.inf] * size

    def add(self, page: int, now: float) -> None:
        number = self.schedule.add(
            page + 1, self._site[page] + 1, self._directory[page] + 1, now, now, self._importance[page]
        )
        self._number[page], self._page[number] = number, page
        self._fetched[page] = now
        if self._new[page]:
            self.schedule.facts.note_birth(number)

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        if at > self._fetched[page]:
            self.schedule.signals.note_change(self._number[page], now, self._sources[self._site[page]])

    def peek(self, now: float) -> None:
        self.schedule.peek(now)

    def claim_next(self, now: float) -> int:
        number = self.schedule.peek(now)
        if number < 0:
            return -1
        if self._judged:
            self._asked[self._page[number]] = self.schedule.overview.page(number, now)
        self.schedule.acquire(number, now)
        return self._page[number]

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        if (known := self._asked.pop(page, None)) is not None:
            learn(self._recalibration, self.schedule, known, changed)
        self._fetched[page] = now
        self.schedule.record_outcome(
            self._number[page], now, RefreshOutcome.CHANGED if changed else RefreshOutcome.UNCHANGED
        )

    def record_return(self, page: int, now: float) -> None:
        self._asked.pop(page, None)
        self._fetched[page] = now
        self.schedule.record_outcome(self._number[page], now, RefreshOutcome.SILENT)

    def record_absence(self, page: int, now: float, result: RefreshOutcome) -> None:
        """Record, as a crawl does, that a fetch found no page. The page stays in the schedule."""
        self._asked.pop(page, None)
        self.schedule.record_outcome(self._number[page], now, result)

    def begin_era(self, era: Era, now: float) -> None:
        self.schedule.pace.rate = era.rate
        importance = (era.importance / era.importance.mean()).tolist()
        known = [
            (page, number)
            for page, number in enumerate(self._number)
            if importance[page] != self._importance[page]
        ]
        self._importance = importance
        for page, number in known:
            if number >= 0:
                self.schedule.facts.set_importance(number, importance[page], now)

    def remove(self, page: int, now: float) -> None:
        number = self._number[page]
        self._asked.pop(page, None)
        self.schedule.record_outcome(number, now, RefreshOutcome.GONE)
        self.schedule.remove(number)
        self._fetched[page] = np.inf
        self._number[page] = -1
        del self._page[number]

    def fresh(self, page: int, now: float) -> tuple[float, float]:
        """Return two estimates of P[the copy is current]: the schedule's own estimate, and the estimate for users.

        Both are nan for a page that is not in the schedule.
        """
        if self._number[page] < 0:
            return math.nan, math.nan
        known = self.schedule.overview.page(self._number[page], now)
        return known.fresh, corrected(self._recalibration, known)

    def block(self, site: int, until: float) -> None:
        self.schedule.block(self.schedule.host(site + 1), until)
