"""The policies of the living league, which `lab/league/README.md`, "The living league" describes.

`proto-free` is `proto-0` with announced births. New URLs go first, because a new URL has the value mu/Delta, and
hardly any known page of its site exceeds this value.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from crawler.freshness.change_rates import ChangeRates, gain_of
from crawler.freshness.discovery import Discovery, faded, watched_for
from crawler.freshness.params import Pages
from crawler.frontier.refresh import Settings
from crawler.frontier.refresh.page_facts import LINKS_LEAST
from crawler.lab.league import rivals
from crawler.lab.league.exact import Exact
from crawler.lab.league.living import LivingWorld, NewFirst
from crawler.lab.league.shipped import SHIPPED, Shipped
from crawler.lab.league.world import DAY, Policy
from crawler.lab.refresh.crawl_value import crawl_values

HUB_SHARE = 0.2
TENTH = 0.1
WEIGHTS = (0, 1, 3, 10)
HALF_LIFE = 90 * DAY
# weight of the prior of theta; a hub's prior is the theta of its site, and a site's prior is the theta of the
# crawl
PRIOR_DAYS = 60.0
FREE = ("ncis-free", "proto-free")


class Crediting(Shipped):
    """The crawler's schedule, which learns which pages have shown new pages."""

    def expect(self, hub: int, links: int, now: float) -> None:
        self.schedule.facts.expect_news(self._number[hub], links, now)

    def credit(self, hub: int, found: float, now: float) -> None:
        if self._number[hub] >= 0:
            self.schedule.facts.credit_hub(self._number[hub], found, now)


class Prototype(rivals.Exploring):
    """GREEDY with rates pooled by site, plus D, the value of finding new pages.

    Theta is the rate at which a hub shows new pages. The theta of a hub is shrunk towards that of its site,
    and the theta of a site towards that of the crawl.
    """

    def __init__(self, world: LivingWorld, rate: float, weight: float) -> None:
        super().__init__(world, rate)
        size = len(world)
        self._weight = weight
        self._importance = world.importance / world.importance.mean()
        self._nu = float(self._importance[: world.pages].mean())
        self._hubs = np.arange(size) >= world.pages
        self._rates = ChangeRates()
        for _ in world.sites:
            self._rates.add_site()
        self._changes, self._watched = np.zeros(size, np.float32), np.zeros(size, np.float32)
        # for each node, the number of new pages that it has shown, and the seconds watched up to its last
        # fetch
        self._found, self._asked = (np.zeros(size), np.zeros(size))

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        site, elapsed = int(self._where[page]), now - float(self.last[page])
        k, t = float(self._changes[page]), float(self._watched[page])
        gain = gain_of(self._rates.rate(site, k, t) * elapsed) if changed else 0.0
        self._changes[page] = self._rates.observe(site, k, t, elapsed, gain)
        self._watched[page] += np.float32(elapsed)
        left = faded(1.0, elapsed, DAY)
        self._found[page] *= left
        self._asked[page] = self._asked[page] * left + watched_for(elapsed, DAY)
        super().record_outcome(page, now, changed)

    def credit(self, hub: int, found: float, now: float) -> None:
        self._found[hub] += found

    def _rank(self, now: float) -> None:
        self._rates.renew_crawl()
        for site in range(len(self._until)):
            self._rates.renew(site)
        super()._rank(now)

    def theta(self, tau: np.ndarray) -> np.ndarray:
        """Return theta, (n,): for a hub, the number of new pages that it shows per second; for a page, 0.

        Older observations have less weight.
        """
        prior, hubs, sites = PRIOR_DAYS * DAY, self._hubs, self._where[self._hubs]
        left = np.exp2(-tau / HALF_LIFE)
        found, asked = self._found * left, self._asked * left
        crawl = found.sum() / (asked[hubs].sum() + prior)
        of_site, asked_site = (np.bincount(sites, each[hubs], len(self._until)) for each in (found, asked))
        site = (of_site + prior * crawl) / (asked_site + prior)
        return np.where(hubs, (found + prior * site[self._where]) / (asked + prior), 0.0)

    def values(self, now: float) -> np.ndarray:
        mean, variation = (
            np.asarray(column)[self._where] for column in (self._rates.means, self._rates.variations)
        )
        rates = (1.0 / variation + self._changes) / (1.0 / (variation * mean) + self._watched)
        tau = np.maximum(now - self.last, 0.0)
        own = crawl_values(Pages(self._importance, rates), tau, by="greedy")
        return own + 0.5 * self._weight * self._nu * self.theta(tau) * tau**2


class ExactHubs(Exact):
    """The policy `Exact`, in which the value of every node also includes D, the value of finding new pages.

    `freshness/discovery.py` computes theta.
    """

    def __init__(self, world: LivingWorld, rate: float, weight: float) -> None:
        super().__init__(world, rate)
        size = len(world)
        self._nu = weight * float(self._importance[: world.pages].mean())
        self._discovery = Discovery()
        for _ in world.sites:
            self._discovery.add_site()
        site_of = dict(zip(world.directory.tolist(), world.site.tolist(), strict=True))
        self._site_of = [site_of[directory] for directory in sorted(site_of)]
        for _ in self._site_of:
            self._discovery.add_directory()
        self._found, self._shown_for = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._has_shown = np.zeros(size, dtype=bool)
        self._links = np.zeros(size)

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        elapsed = now - float(self.last[page])
        self._learn(self._discovery.watch, page, elapsed, now)
        self._found[page] = faded(float(self._found[page]), elapsed, DAY)
        self._shown_for[page] = faded(float(self._shown_for[page]), elapsed, DAY) + watched_for(elapsed, DAY)
        super().record_outcome(page, now, changed)

    def expect(self, hub: int, links: int, now: float) -> None:
        self._links[hub] = links if links >= LINKS_LEAST else 0

    def _learn(self, learn: Callable[..., None], hub: int, value: float, now: float) -> None:
        site, folder, has_shown = int(self._where[hub]), int(self._folder[hub]), bool(self._has_shown[hub])
        learn(site, folder, value, now, has_shown, float(self._links[hub]))

    def credit(self, hub: int, found: float, now: float) -> None:
        self._learn(self._discovery.credit, hub, found, now)
        self._found[hub] += found
        self._has_shown[hub] |= found > 0.0

    def values(self, now: float) -> np.ndarray:
        tau = np.maximum(now - self.last, 0.0)
        nows = np.full(len(tau), now)
        facts = (self._where, self._folder, self._found, self._shown_for, tau, nows, self._links)
        theta = np.array(list(map(self._discovery.theta, *(each.tolist() for each in facts))))
        return super().values(now) + 0.5 * self._nu * theta * tau**2


class Fifth(Prototype):
    """Spends a fixed share of the fetches on hubs, the oldest copies first. The rest goes to pages, by value."""

    def __init__(self, world: LivingWorld, rate: float) -> None:
        super().__init__(world, rate, 0.0)
        self._credit = 0.0

    def values(self, now: float) -> np.ndarray:
        return np.where(self._hubs, 0.0, super().values(now))

    def claim_next(self, now: float) -> int:
        self._credit += HUB_SHARE
        if self._credit < 1.0:
            return super().claim_next(now)
        self._credit -= 1.0
        return int(np.where(self._hubs & self.present, self.last, np.inf).argmin())


def _new_first(policy: Callable[..., Policy], *more: float) -> Callable[[LivingWorld, float], NewFirst]:
    return lambda world, rate: NewFirst(policy(world, rate, *more))


def _shipped(name: str, share: float = 1.0, **more: Any) -> Callable[[LivingWorld, float], NewFirst]:
    settings = {
        key: value for key, value in (SHIPPED[name] | more).items() if key in Settings.__struct_fields__
    }

    def made(world: LivingWorld, rate: float) -> NewFirst:
        return NewFirst(Crediting(world, rate, Settings(**settings)), share)

    return made


FINDERS: dict[str, Callable[[LivingWorld, float], NewFirst]] = {
    **{name: _new_first(rivals.RIVALS[name]) for name in ("round-robin", "nutch", "stormcrawler")},
    "fifth": _new_first(Fifth),
    **{f"proto-{weight}": _new_first(Prototype, weight) for weight in WEIGHTS},
    **{f"exact-{weight}": _new_first(ExactHubs, weight) for weight in WEIGHTS},
    **{name: _shipped(name) for name in SHIPPED},
    **{f"ncis-{weight}": _shipped("ncis", new_page_weight=float(weight)) for weight in WEIGHTS if weight > 0},
    "ncis-tenth": _shipped("ncis", TENTH),
    "ncis-free": _shipped("ncis"),
    "proto-free": _new_first(Prototype, 0.0),
}
