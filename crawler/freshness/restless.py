# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds restless pages: pages that differ at every visit, because they show a counter, a clock or a random text.

A copy of a restless page is never current, so its crawl value is 0. But the estimate of its change rate never becomes
infinite: it rises only by the logarithm of the number of crawls, because the prior says that so fast a page is hardly
possible. At the rates that the estimate reaches, a page is fetched more often than most.

So a page has a probability P of being restless. Any crawl that finds the page unchanged proves that it is not. If all
crawls of the page have found a change, either the page is restless, or it happens to change as fast as its estimated
rate r. The prior says how likely this is: the rates of a site have a Gamma distribution with the mean m and the squared
coefficient of variation c (`change_rates.py`). With its density f and the share s of restless pages,

    P / (1 - P) = s / (1 - s)  f(m) / f(r)        if r > m, else s / (1 - s)
    ln(f(m) / f(r)) = (x - 1 - ln x) / c + ln x   where x = r/m

The crawl value of the page is multiplied by 1 - P. What a crawl teaches is worth most for a page that may be restless
and was crawled a short time ago: if it is found unchanged, it regains its value (`information.py`).

The share s is learned for the whole crawl from the crawls of pages that have always been found changed (a natural
gradient; Amari 1998). With h, the probability that a page that is not restless is found unchanged,

    v = P (1 - P) h / (1 - (1 - P) h)
    I      += P v
    ln odds += v / I            if the crawl found a change, where the odds are s / (1 - s)
    ln odds -= P / I            if it found none

A page without signals has a negative k as long as every crawl has found a change: -k is the number of changes. So
nothing else is stored for a page. A change that a signal has announced makes k positive, because a page with true
signals is fetched only when it has changed. In stores of earlier versions, every k is positive, so their known pages are
never taken for restless.

Measured with `crawler lab worlds` (`freshness/README.md`, "How much can be learned").
"""

import cython
from cython.cimports.crawler.freshness.change_rates import ChangeRates
from cython.cimports.libc.math import exp, log

# The share begins with exp(-8), 1 in 3,000, and is at most exp(-2), 1 in 8. In webs with log-normal rates and no
# restless page, a constant share of 2 % cost 0.00 to 0.03 of the gain, because pages that change fast were taken for
# restless.
_ODDS = cython.declare(cython.double, -8.0)
_ODDS_LOW = cython.declare(cython.double, -16.0)
_ODDS_HIGH = cython.declare(cython.double, -2.0)
# I begins with this value, and each crawl of such a page multiplies the excess over it by `_KEPT`.
_WEIGHT = cython.declare(cython.double, 0.5)
_KEPT = cython.declare(cython.double, 0.9999)
_STEP = cython.declare(cython.double, 1.0)  # maximum change of ln odds by one crawl
# P is at most this, so that a page keeps some value, which states its rate
_CHANCE_MAX = cython.declare(cython.double, 1.0 - 1e-9)


@cython.cclass
class Restless:
    """The probability that a page is restless, and the log `odds` of restless pages in the whole crawl."""

    def __init__(self, rates: ChangeRates) -> None:
        self.rates = rates
        self.odds, self.information = float(_ODDS), float(_WEIGHT)

    def chance(self, site: cython.Py_ssize_t, k: cython.double, t: cython.double) -> cython.double:
        """Return P, the probability that the page is restless."""
        if k >= 0.0:
            return 0.0
        odds: cython.double = self.odds
        x: cython.double = self.rates.rate(site, k, t) / self.rates.means[site]
        if x > 1.0:
            odds += (x - 1.0 - log(x)) / self.rates.variations[site] + log(x)
        return min(1.0 / (1.0 + exp(-odds)), _CHANCE_MAX)

    def learn(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Learn the share of restless pages from a crawl of a page after the time `clock`, without a signal.

        Only a page that was always found changed, so that k is negative, has an effect.
        """
        if k >= 0.0:
            return
        chance: cython.double = self.chance(site, k, t)
        unchanged: cython.double = (1.0 - chance) * (1.0 - self.rates.expected(site, k, t, clock))
        up: cython.double = chance * unchanged / max(1.0 - unchanged, chance)
        self.information = _KEPT * self.information + (1.0 - _KEPT) * _WEIGHT + chance * up
        step: cython.double = (up if changed else -chance) / self.information
        self.odds += min(max(step, -_STEP), _STEP)
        self.odds = min(max(self.odds, _ODDS_LOW), _ODDS_HIGH)

    def state(self) -> tuple[float, float]:
        """Return the log odds and I."""
        return self.odds, self.information

    def restore(self, odds: float = -8.0, information: float = 0.5) -> None:
        """Restore a result of `state`."""
        self.odds, self.information = odds, information
