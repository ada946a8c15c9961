"""Measure the value of reading sitemaps on real histories. Each reading of a site's sitemap costs a fetch.

    python scripts/bench/sources.py --data histories
    python scripts/bench/sources.py --data histories --arms honest --budgets 1 --rules none,pays,20,40

World, arms and budgets are the same as in `crawler lab league`, but the signals of a site are received only
when its sitemap is read. The schedule is the crawler's own (`lab/league/shipped.py`). In the rules `page` and
`pays`, each sitemap is one more page of the schedule, which does not count in the score.

    none     sitemaps are not read
    page     a sitemap is a page of importance 1
    pays     at the interval computed by `frontier/refresh/sources.py`; a reading does not count as a visit to the site
    20, 40   sitemaps are read every 20 or 40 days
    free     all sitemaps are read each day, at no cost

The script prints how much the score of each rule differs from that of the first rule, with standard errors by
a jackknife over sites.
"""

import math
import sys
from pathlib import Path

import numpy as np

from crawler.bench import harness
from crawler.frontier.refresh import RefreshOutcome, Settings
from crawler.frontier.refresh.sources import TOLD_MAX, Announced, Readings, ages
from crawler.lab.league import histories, scores
from crawler.lab.league import world as worlds
from crawler.lab.league.shipped import Shipped

DAY = worlds.DAY
FIRST_MAP = 1 << 40  # the fingerprints from this number on represent sitemaps
SETTLED = 200  # after this many claimed pages, the level is meaningful, and sitemaps are added


class Maps(Shipped):
    """The crawler's own schedule with a sitemap per site.

    Readings of sitemaps are handled in this class. `claim_next` returns -1 for a reading. So its caller
    counts a fetch, but fetches no page.
    """

    def __init__(self, world: worlds.World, rate: float, rule: str) -> None:
        super().__init__(world, rate, Settings())
        self._world, self._rule, self._readings = world, rule, Readings()
        self._every = float(rule) * DAY if rule[0].isdigit() else 0.0
        # for each site, the changes since its sitemap was last read: a dict from pages to the dates of their
        # signals
        self._told: list[dict[int, float]] = [{} for _ in world.sites]
        self._read_at = [0.0] * len(world.sites)
        self._maps: dict[int, int] = {}  # maps the number of a sitemap in the schedule to its site
        self._sizes = np.bincount(world.site, minlength=len(world.sites)).tolist()
        self._takes = self.reads = 0

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        self._told[self._site[page]][page] = at
        if self._rule == "free":
            self._say(self._site[page], now)

    def remove(self, page: int, now: float) -> None:
        super().remove(page, now)
        self._number[page] = -1

    def claim_next(self, now: float) -> int:
        self._takes += 1
        if self._takes == SETTLED and self._rule in ("page", "pays"):
            self._meet(now)
        for site, read_at in enumerate(self._read_at if self._every else ()):
            if now - read_at >= (self._every if read_at else self._every * (site + 1) / len(self._told)):
                self._read_at[site] = now
                self.reads += 1
                self._say(site, now)
                return -1
        number = self.schedule.claim_next(now)
        if number not in self._maps:
            return self._page[number] if number >= 0 else -1
        self._read(number, now)
        return -1

    def _meet(self, now: float) -> None:
        for site, size in enumerate(self._sizes):
            number = self.schedule.add(FIRST_MAP + site, site + 1, FIRST_MAP + site, now, now)
            self._maps[number], self._read_at[site] = site, now
            if self._rule == "pays":
                own = self.schedule.overview.page(number, now)
                self._bound(number, self._readings.begin(own.fingerprint, size, own.rate, own.level), now)

    def _read(self, number: int, now: float) -> None:
        site = self._maps[number]
        self.reads += 1
        changed = bool(self._told[site]) and self._rule == "page"
        self.schedule.record_outcome(
            number, now, RefreshOutcome.CHANGED if changed else RefreshOutcome.UNCHANGED
        )
        if self._rule == "pays":
            told = [self._number[page] for page in self._told[site] if self._number[page] >= 0]
            looked = [self.schedule.overview.page(each, now) for each in told[:: 1 + len(told) // TOLD_MAX]]
            news = Announced([each.importance for each in looked], [each.rate for each in looked], len(told))
            own = self.schedule.overview.page(number, now)
            precision = self.schedule.overview.used_precision(own.host, self._sources[site])
            self._readings.pass_time(own.fingerprint, now - self._read_at[site])
            self._bound(number, self._readings.hear(own.fingerprint, news, own.level, precision), now)
        self._read_at[site] = now
        self._say(site, now)

    def _bound(self, number: int, interval: float, now: float) -> None:
        self.schedule.facts.bound_ages(number, *ages(interval, 0.0, math.inf))
        self.schedule.facts.set_importance(number, 1.0, now)

    def _say(self, site: int, now: float) -> None:
        """Pass the signals in a site's sitemap to the schedule."""
        for page, at in self._told[site].items():
            if self._number[page] >= 0:
                super().note_change(page, self._world.sources[site], at, now)
        self._told[site].clear()


def main() -> int:
    parser = harness.parser(__doc__)
    parser.option("--data", Path, "folder of histories: one SITE.npz per site", required=True, metavar="DIR")
    parser.option("--arms", "honest,lying,mixed")
    parser.option("--budgets", "0.3,1,3")
    parser.option("--rules", "page,none,pays,free")
    parser.option("--pages", worlds.PAGES_A_SITE, "pages a site (100)")
    args = parser.parse_args()
    sites = histories.read_folder(args.data)
    table = harness.Table("arm     ", "budget", "rule", " score", "        difference", "  reads", " days")
    for arm in args.arms.split(","):
        world = worlds.build(sites, arm, pages=args.pages)
        for budget in map(float, args.budgets.split(",")):
            games = list[scores.Game]()
            for rule in args.rules.split(","):
                rate = budget * world.change_rate
                maps = Maps(world, rate, rule)
                result = worlds.play(world, maps, rate)
                games.append(scores.game_of(arm, rule, budget, world, result))
                row = scores.rows_of(games)[-1]
                days = world.days * len(world.sites) / maps.reads if maps.reads else math.inf
                difference = f"{row.difference:+.4f} +- {row.difference_error:.4f}"
                table.row(arm, budget, rule, f"{row.score:.4f}", difference, maps.reads, days)
    return 0


if __name__ == "__main__":
    sys.exit(main())
