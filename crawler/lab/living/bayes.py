"""A reference that shows how much a policy can gain if it must learn the change rates of pages.

The reference knows the distribution from which the rates of each host were drawn, but no page's rate. The
reference keeps the exact posterior of each page's rate d, on a grid of quantiles, and fetches the page whose
expected crawl value is the greatest:

    V(tau) = mu sum_j p_j (1 - (1 + d_j tau) exp(-d_j tau)) / d_j

    unchanged after tau    p_j  is multiplied by  exp(-d_j tau)
    changed                p_j  is multiplied by  1 - exp(-d_j tau)

V is the expected gain of one more crawl, because the crawl value is linear in the distribution of the rate.
No term rewards a fetch for what it would teach. The reference plays only worlds without signals, in which
pages change independently and every host is always free.

In a world with restless pages, the reference also knows the share of restless pages, but not which pages they
are. It keeps the exact probability P that a page is restless. V is multiplied by 1 - P, because a restless
page has no value. With c, the probability sum_j p_j (1 - exp(-d_j tau)) that any other page has changed,

    unchanged after tau    P  becomes  0
    changed                P  becomes  P / (P + (1 - P) c)

The rates are log-normal, but the crawler assumes that they have a Gamma distribution. The policy
`bayes-gamma` shows what this wrong assumption costs: its prior is a Gamma distribution with the true mean of
each host.
"""

import numpy as np

from crawler.lab.extras import require
from crawler.lab.league.world import Policy
from crawler.lab.living.worlds import DrawnWorld, WorldSpec

GRID = 48  # quantiles of the prior
TRIED = 12  # pages whose values are computed at a time
VARIATION = 1.0  # squared coefficient of variation of the Gamma prior


def can_play(spec: WorldSpec) -> bool:
    """Return whether pages change independently, without signals, and every host is always free."""
    independent = all(host.process == "poisson" for host in spec.hosts)
    return independent and spec.signals == "none" and not (spec.polite or spec.rest or spec.latency)


class Bayes(Policy):
    """Fetches the page with the greatest expected value, given the true prior of the rates and of restless pages.

    `gamma` replaces the prior by a Gamma distribution with the same mean.
    """

    def __init__(self, world: DrawnWorld, *, gamma: bool = False) -> None:
        super().__init__(world, world.spec.rate)
        spec = world.spec
        assert can_play(spec), spec.name
        shares = (np.arange(GRID) + 0.5) / GRID
        special = require("scipy.special")
        drawn = [
            special.gammaincinv(1.0 / VARIATION, shares)
            if gamma
            else np.exp(host.spread * special.ndtri(shares))
            for host in spec.hosts
        ]
        of_host = np.array(
            [rates / (rates.mean() * host.every) for rates, host in zip(drawn, spec.hosts, strict=True)]
        )
        self._rates = of_host[world.site]
        self._chances = np.full(self._rates.shape, 1.0 / GRID)
        self._restless = np.full(len(world), spec.restless)
        self._importance = world.importance
        self._fetched = np.full(len(world), np.inf)
        # For each page, its value and the slope of its value at the instant `_at`. The slope rises by at most
        # `_bend` per second, and never exceeds `_steepest`, mu (1 - P) / e.
        self._value, self._slope, self._at, self._bend, self._steepest = np.zeros((5, len(world)))

    def add(self, page: int, now: float) -> None:
        self._begin(page, now)

    def claim_next(self, now: float) -> int:
        """Return the page with the greatest value. Compute values only where the bounds require it."""
        later = now - self._at
        slope = np.minimum(self._slope + self._bend * later / 2.0, self._steepest)
        bounds = self._value + slope * later
        bounds[np.isinf(self._fetched)] = -1.0
        exact = np.zeros(len(bounds), dtype=bool)
        while True:
            tried = np.argpartition(bounds, -TRIED)[-TRIED:]
            tried = tried[~exact[tried]]
            if not len(tried):
                return int(bounds.argmax())
            self._value[tried], self._slope[tried] = self._values(tried, now)
            self._at[tried], bounds[tried] = now, self._value[tried]
            exact[tried] = True
            best = int(bounds.argmax())
            if exact[best]:
                return best

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        stay = np.exp(-self._rates[page] * (now - self._fetched[page]))
        chances = self._chances[page] * (1.0 - stay if changed else stay)
        found, restless = chances.sum(), self._restless[page]
        self._chances[page] = chances / found
        self._restless[page] = restless / (restless + (1.0 - restless) * found) if changed else 0.0
        self._begin(page, now)

    def _begin(self, page: int, now: float) -> None:
        self._fetched[page] = self._at[page] = now
        self._value[page] = self._slope[page] = 0.0
        weight = self._importance[page] * (1.0 - self._restless[page])
        self._bend[page] = weight * (self._chances[page] @ self._rates[page])
        self._steepest[page] = weight / np.e

    def _values(self, pages: np.ndarray, now: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected crawl values of these pages, and the slopes of the values; both (n,)."""
        rates, chances = self._rates[pages], self._chances[pages]
        weights = self._importance[pages] * (1.0 - self._restless[pages])
        x = rates * (now - self._fetched[pages, None])
        stay = np.exp(-x)
        values = weights * (chances * (1.0 - (1.0 + x) * stay) / rates).sum(axis=1)
        return values, weights * (chances * x * stay).sum(axis=1)
