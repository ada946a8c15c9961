# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds restless pages: pages that differ at every visit, because they show a counter, a clock or a random text.

A copy of a restless page is never current, so its crawl value is 0. But the estimate of its change rate never becomes
infinite: it rises only by the logarithm of the number of crawls, because the prior says that so fast a page is hardly
possible. At the rates that the estimate reaches, a page is fetched more often than most.

So a page has a probability P of being restless. Any crawl that finds the page unchanged proves that it is not. If all
crawls of the page have found a change, either the page is restless, or it happened to change before each of them. With
the share s of restless pages, and the probability q that the page, if it is not restless, has changed since its last
crawl (`change_rates.py`),

    ln(P / (1 - P)) = ln(s / (1 - s)) + e
    e  rises by  -ln q              at each crawl that finds a change; q counts as at least 0.05

The *evidence* e, in nats, is stored for each page. A change that is found soon after the last crawl is strong evidence,
because q is small then. Two visits within a short time show more than many visits at the usual intervals, which find
every fast page changed. The evidence is at most 6. So if a crawl has hardly any restless pages, no page loses most of
its value by what was found on it alone.

A page may stop being restless, for example when its site is redesigned, and only a crawl can show this. So P falls while
the page is not crawled: restless and other pages turn into each other at random, at rates at which s stays the same
(a Markov chain with two states). With the time tau since the last crawl, P is

    s + (P - s) exp(-tau / M)       where M is 128 mean revisit intervals

The next crawl begins with the evidence that yields this P. So a page that was taken for restless regains its value
slowly, and is crawled again.

The crawl value of the page is multiplied by 1 - P. What a crawl teaches is worth most for a page that may be restless
and was crawled a short time ago: if it is found unchanged, it regains its value (`information.py`). Such crawls are
made by exploration, which assumes that s is at least 1/56 (`suspicion`). Otherwise, a crawl whose s is too low would not
look for restless pages, and s would stay too low.

A restless page says nothing about the rates of other pages. So what a crawl finds on a page counts only with the weight
1 - P in k, T and f (`change_rates.py`). The rate of a page that was taken for restless is then near the rate that it had
before, and it is not too high when the page regains its value.

The share s is learned for the whole crawl from the crawls of pages that have always been found changed (a natural
gradient; Amari 1998). With h, the probability that a page that is not restless is found unchanged,

    v = P (1 - P) h / (1 - (1 - P) h)
    I      += P v
    ln odds += v / I            if the crawl found a change, where the odds are s / (1 - s)
    ln odds -= P / I            if it found none

A page without signals has a negative k as long as every crawl has found a change: -k is the number of changes. A change
that a signal has announced makes k positive, because a page with true signals is fetched only when it has changed. In
stores of earlier versions, every k is positive, or no evidence was stored. A known page without evidence is taken for
restless only after further crawls.

Measured with `crawler lab worlds` (`freshness/README.md`, "How much can be learned").
"""

import cython
from cython.cimports.crawler.freshness.change_rates import ChangeRates
from cython.cimports.libc.math import exp, log

# The share begins with exp(-8), 1 in 3,000, and is at most exp(-2), 1 in 8. If it began with exp(-6) or more, webs
# with equal importance and no restless page would lose 0.04 of the gain (12 seeds): before the variation of rates is
# known, too many pages seem to change at every visit.
_ODDS = cython.declare(cython.double, -8.0)
_ODDS_LOW = cython.declare(cython.double, -16.0)
_ODDS_HIGH = cython.declare(cython.double, -2.0)
# I begins with this value, and each crawl of such a page multiplies the excess over it by `_KEPT`.
_WEIGHT = cython.declare(cython.double, 0.5)
_KEPT = cython.declare(cython.double, 0.9999)
_STEP = cython.declare(cython.double, 1.0)  # maximum change of ln odds by one crawl
# Exploration takes the log odds for at least this. The gain in webs with restless pages and equal importance is
# higher by 0.03, and lower by 0.003 without restless pages.
_ODDS_EXPLORED = cython.declare(cython.double, -4.0)
# One crawl adds at most -ln of this, 3 nats, to the evidence: real pages also change in bursts.
_LIKELY_LEAST = cython.declare(cython.double, 0.05)
# Without this bound, a page with a tenth of all importance that changed at its first five visits lost its value for
# the rest of the run, and the run an eighth of its gain.
_EVIDENCE_MAX = cython.declare(cython.double, 6.0)
# M in mean revisit intervals
_MEMORY = cython.declare(cython.double, 128.0)
_FIRST_REVISIT_DAYS = cython.declare(cython.double, 28.0)  # revisit interval until a rate is known
# P is at most this, so that a page keeps some value, which states its rate
_CHANCE_MAX = cython.declare(cython.double, 1.0 - 1e-9)


@cython.cclass
class Restless:
    """The probability that a page is restless, and the log `odds` of restless pages in the whole crawl.

    `evidence` is that of the page that `learn` was last called with.
    """

    def __init__(self, rates: ChangeRates) -> None:
        self.rates = rates
        self.odds, self.information = float(_ODDS), float(_WEIGHT)
        self.evidence = 0.0
        self.set_revisit(_FIRST_REVISIT_DAYS * rates.unit)

    def set_revisit(self, revisit: cython.double) -> cython.void:
        """Set M from the mean time between two crawls of a page."""
        self.memory = _MEMORY * revisit

    def chance(self, k: cython.double, evidence: cython.double, elapsed: cython.double) -> cython.double:
        """Return P, the probability that a page is restless. The page's last crawl was `elapsed` ago."""
        return self._chance(self.odds, k, evidence, elapsed)

    def suspicion(self, k: cython.double, evidence: cython.double, elapsed: cython.double) -> cython.double:
        """Return P as exploration takes it, with a share of restless pages that is not too low."""
        return self._chance(max(self.odds, _ODDS_EXPLORED), k, evidence, elapsed)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _chance(
        self, odds: cython.double, k: cython.double, evidence: cython.double, elapsed: cython.double
    ) -> cython.double:
        if k >= 0.0:
            return 0.0
        share: cython.double = 1.0 / (1.0 + exp(-odds))
        chance: cython.double = 1.0 / (1.0 + exp(-odds - evidence))
        return min(share + (chance - share) * exp(-elapsed / self.memory), _CHANCE_MAX)

    def learn(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        changed: cython.bint,
        evidence: cython.double,
        elapsed: cython.double,
    ) -> cython.void:
        """Learn from a crawl of a page, without a signal, after the time `elapsed`, which is `clock` on its clock.

        Set `evidence` to that of the page after this crawl. Learn the share of restless pages if the page was
        always found changed before, so that k is negative.
        """
        likely: cython.double = self.rates.expected(site, abs(k), t, clock)
        if k < 0.0:
            chance: cython.double = self.chance(k, evidence, elapsed)
            evidence = log(chance / (1.0 - chance)) - self.odds
            unchanged: cython.double = (1.0 - chance) * (1.0 - likely)
            up: cython.double = chance * unchanged / max(1.0 - unchanged, chance)
            self.information = _KEPT * self.information + (1.0 - _KEPT) * _WEIGHT + chance * up
            step: cython.double = (up if changed else -chance) / self.information
            self.odds += min(max(step, -_STEP), _STEP)
            self.odds = min(max(self.odds, _ODDS_LOW), _ODDS_HIGH)
        self.evidence = 0.0
        if changed:
            self.evidence = min(max(evidence, 0.0) - log(max(likely, _LIKELY_LEAST)), _EVIDENCE_MAX)

    def state(self) -> tuple[float, float]:
        """Return the log odds and I."""
        return self.odds, self.information

    def restore(self, odds: float = -8.0, information: float = 0.5) -> None:
        """Restore a result of `state`."""
        self.odds, self.information = odds, information
