"""A policy with the crawler's estimators but no schedule: it computes all values once a day.

The policy fetches the pages with the greatest values, in an order that is computed exactly, but slowly.
`Schedule` approximates this order with deadlines. If this policy and `Schedule` have different scores, the
schedule is at fault. If this policy scores badly, the estimators are at fault.
"""

import math

import numpy as np

from crawler.change_signals import SOURCES
from crawler.freshness.learning import Learning
from crawler.freshness.neighbourhood import clock_of, scale_of
from crawler.freshness.params import Pages
from crawler.lab.league.rivals import Exploring
from crawler.lab.league.world import DAY, World
from crawler.lab.refresh.crawl_value import crawl_values

PRECISION_MAX = 0.999999
PRECISION_LEAST = 0.1  # below this precision, the signals of a page are ignored


class Exact(Exploring):
    """NCIS with parameters from `Learning`, or GREEDY for pages without signals. Values are recomputed daily."""

    def __init__(self, world: World, rate: float, kind: str = "ncis", neighbourhood: bool = True) -> None:
        super().__init__(world, rate)
        size = len(world)
        self._rate = rate
        self._folder = world.directory
        self._importance = world.importance / world.importance.mean()
        self._kind = kind
        self._learning = Learning(kind, neighbourhood=neighbourhood)
        for _ in world.sites:
            self._learning.add_site()
        for _ in range(int(world.directory.max()) + 1):
            self._learning.add_directory()
        self._changes, self._watched = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._signals, self._trust, self._unrest = np.zeros((3, size))
        self._counts = np.zeros(SOURCES)

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        if self.present[page] and at > self.last[page]:
            self._learning.quality.note_signal(int(self._where[page]), 0)
            self._signals[page] += 1.0

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        self._counts[0] = self._signals[page]
        more = self._learning.observe(
            int(self._where[page]),
            int(self._folder[page]),
            float(self._changes[page]),
            float(self._watched[page]),
            now - float(self.last[page]),
            now,
            self._counts,
            changed,
            float(self._trust[page]),
            float(self._unrest[page]),
        )
        self._trust[page] = self._learning.kinds.trust
        self._unrest[page] = self._learning.unrest
        self._changes[page] = more
        self._watched[page] += self._learning.watched
        self._signals[page] = 0.0
        super().record_outcome(page, now, changed)

    def remove(self, page: int, now: float) -> None:
        super().remove(page, now)
        self._learning.rates.forget(
            int(self._where[page]), float(self._changes[page]), float(self._watched[page])
        )

    def _rank(self, now: float) -> None:
        learning = self._learning
        revisit = max(int(self.present.sum()), 1) / self._rate
        learning.scale = scale_of(revisit, 1.0, 7 * DAY, 90 * DAY)
        learning.plain_share = min(4.0 * learning.scale / revisit, 1.0)
        learning.restless.set_revisit(revisit)
        learning.renew_crawl()
        for site in range(len(self._until)):
            learning.renew(site)
        super()._rank(now)

    def values(self, now: float) -> np.ndarray:
        learning, quality = self._learning, self._learning.quality
        clocks = np.maximum(now - self.last, 0.0)
        changes, watched = self._told(clocks)
        rates, precision, recall, restless = np.zeros((4, len(clocks)))
        places = zip(self._where.tolist(), self._folder.tolist(), self._trust.tolist(), strict=True)
        for page, (site, folder, trust) in enumerate(places):
            reliable = learning.kinds.reliability(site, trust)
            known = site, float(changes[page]), float(watched[page])
            rates[page] = learning.rates.rate(*known)
            restless[page] = learning.restless.chance(
                known[1], float(self._unrest[page]), max(now - self.last[page], 0.0)
            )
            if learning.neighbourhood:
                excess = learning.excess(site, folder, now)
                clocks[page] = clock_of(float(clocks[page]), excess, learning.scale)
            of_site = -math.expm1(-quality.weights[site])
            good = quality.false_signals.precision_of(site, of_site, float(rates[page]))
            own = reliable * good + (1.0 - reliable) * learning.kinds.bad_precisions[site]
            if of_site > 0.0 and own >= PRECISION_LEAST:
                recall[page] = quality.recall_of(site, reliable)
            precision[page] = min(max(own, 1e-12), PRECISION_MAX)
        pages = Pages.from_quality(self._importance * (1.0 - restless), rates, precision, recall)
        return crawl_values(pages, clocks, self._signals.astype(np.int64), by=self._kind)

    def _told(self, elapsed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of changes and the watched time of each page.

        Both include the evidence of the signals that arrived since the last fetch.
        """
        quality, counts = self._learning.quality, np.zeros(SOURCES)
        changes, watched = self._changes.astype(np.float64), self._watched.astype(np.float64)
        for page in np.flatnonzero(self.present).tolist():
            site, trust = int(self._where[page]), float(self._trust[page])
            if (seen := quality.interim_watched(site, trust)) > 0.0:
                counts[0] = self._signals[page]
                told = quality.interim_changes(site, counts, trust)
                changes[page] += told if changes[page] >= 0.0 else -told
                watched[page] += seen * elapsed[page]
        return changes, watched
