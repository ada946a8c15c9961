# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds pages whose change rate has turned, that is, pages that change much more or much less often than before.

    evidence    0 ──► e ──► 3 to 7.5 nats: the rate has turned; the page keeps only two changes of its history
                 ◄── an answer that contradicts the evidence

The estimate of a page's change rate rests on all of its crawls (`change_rates.py`). After 40 changes that were found in
40 hours, a page that is quiet for 10 days would still be taken for one that changes once in 7 hours. Its value would
be so low that it would hardly be fetched again, and the estimate would stay wrong for months.

So each crawl without a signal is also predicted with eight times the page's rate, and with an eighth of it. The
*evidence* e, in nats, compares one of the two predictions with that of the estimated rate (a cumulative sum; Page 1954):

    e  > 0    more changes than the estimate predicts:     e += ln(P[z | 8 rate] / P[z | rate]),    at least 0
    e  < 0    fewer changes:                               e -= ln(P[z | rate/8] / P[z | rate]),    at most 0
    e  = 0    the result z decides which of the two begins: a change the first, no change the second

If |e| reaches the *bound*, the rate has turned. Then k and T no longer hold the page's history, but two changes at eight
times the rate, or at an eighth of it, and what the crawl found that turned the rate. With so little history, the
estimate soon follows what further crawls find. If the new rate is still far off, the rate turns again.

The pages of a site often turn together. So the bound of a page depends on how many pages of the site have turned in
the same direction lately:

    bound = max(7.5 - 2.25 S, 3)        S: the recent turns to higher rates minus those to lower rates, or the reverse;
                                        each judged crawl of the site multiplies S by 0.98

On a page with a constant rate, e reaches a bound of b nats at most once in exp(b) crawls on average (Lorden 1971), and
in fact more rarely. With a bound of 7.5, a site with constant rates hardly ever has two turns within 100 crawls. A
single change never turns a rate, because it adds at most ln 8, 2.1 nats. So an edit of all pages of a site turns no
page. S is not stored, because it lasts for only about 100 crawls of the site.

On a site whose weekly rhythm is in use (`seasons.py`), the evidence of a crawl less than three hours after the page's
last crawl has a weight in proportion to this time. As long as the rhythm is not fully learned, quiet nights and busy
mornings look like turns to pages that are crawled every few minutes. On a site that changes every hour in working hours,
the gain is 1.22 with this weight and 1.04 without (eight seeds).

A page whose rate has turned to a higher one may have become restless, for example because its site has a new design with
a clock. So k is negative from then on, as if the page had always been found changed (`restless.py`).

The evidence takes the byte that holds the evidence of a restless page; only pages whose k is above 0 have evidence
of a turn.

Measured with `crawler lab worlds --regimes` (`lab/README.md`, "Measurements").
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.change_rates import ChangeRates
from cython.cimports.libc.math import expm1, log, log1p

from crawler.freshness.columns import Column

# A turn multiplies or divides the rate by this.
_FACTOR = cython.declare(cython.double, 8.0)
# In nats. With 5, some pages whose rate is constant turn once in 300 crawls, which costs 0.013 +- 0.005 of the gain on
# the web `day-1x` (six seeds). With 6, it costs nothing there, but 0.038 +- 0.016 on `day-bursty` (eight seeds), whose
# bursts look like turns. With 7.5, the difference is 0.011 +- 0.010. The byte of a page holds at most 7.9.
_BOUND = cython.declare(cython.double, 7.5)
# A single change adds up to 2.1 nats, so this must be higher.
_BOUND_LEAST = cython.declare(cython.double, 3.0)
# in nats, by which each recent turn on the site lowers the bound
_LOWERED = cython.declare(cython.double, 2.25)
_REMEMBERED = cython.declare(cython.double, 0.98)  # each judged crawl of a site multiplies its S by this
# the number of changes that a page keeps at a turn
_KEPT = cython.declare(cython.double, 2.0)
_SURE = cython.declare(cython.double, 1e-12)  # smaller probabilities count as this one


@cython.cclass
class RateTurns:
    """The evidence that a page's rate has turned. Sites are numbered as they are added.

    `evidence`, `changes` and `watched` are those of the page that `learn` was last called with. The two last, its k and
    T, are set only if the rate has turned.
    """

    def __init__(self, rates: ChangeRates) -> None:
        self.rates = rates
        self.evidence = self.changes = self.watched = 0.0
        self.size = 0
        self._column = Column("f8")
        self.recent = self._column.grow(1)

    def add_site(self) -> cython.void:
        """Add a site on which no rate has turned lately."""
        if self.size == self.recent.shape[0]:
            self.recent = np.zeros(0)  # release the memory map before it grows
            self.recent = self._column.grow(self.size + 1)
        self.size += 1

    def learn(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        changed: cython.bint,
        evidence: cython.double,
        weight: cython.double = 1.0,
    ) -> cython.bint:
        """Learn from a crawl without a signal of a page with this evidence, after the time `clock`.

        The new evidence is multiplied by `weight`.

        Return whether the rate has turned: to a higher rate if the crawl has found a change, else to a lower one.
        Set `evidence`.
        """
        shape: cython.double = self.rates.shape(site, k)
        rate: cython.double = self.rates.rate(site, k, t)
        usual: cython.double = _hazard(shape, rate, clock)
        more: cython.double = weight * _gain(_hazard(shape, rate * _FACTOR, clock), usual, changed)
        less: cython.double = weight * _gain(_hazard(shape, rate / _FACTOR, clock), usual, changed)
        if evidence > 0.0:
            evidence = max(evidence + more, 0.0)
        elif evidence < 0.0:
            evidence = min(evidence - less, 0.0)
        if evidence == 0.0:
            evidence = more if changed else -less
        self.evidence = evidence
        turned: cython.bint = (evidence > 0.0) == changed and abs(evidence) >= self._bound(site, changed)
        self.recent[site] *= _REMEMBERED
        if turned:
            self.evidence = 0.0
            self.recent[site] += 1.0 if changed else -1.0
            self._turn(site, rate * _FACTOR if changed else rate / _FACTOR, clock, changed)
        return turned

    def _bound(self, site: cython.Py_ssize_t, higher: cython.bint) -> cython.double:
        """Return the evidence, in nats, at which the rate of a page of the site turns."""
        alike: cython.double = self.recent[site] if higher else -self.recent[site]
        return max(_BOUND - _LOWERED * max(alike, 0.0), _BOUND_LEAST)

    def _turn(
        self, site: cython.Py_ssize_t, rate: cython.double, clock: cython.double, changed: cython.bint
    ) -> cython.void:
        """Set `changes` and `watched` to those of a page with little history, at this rate, after the crawl."""
        self.changes, self.watched = _KEPT, _KEPT / rate
        if changed:
            self.rates.match(site, self.changes, self.watched, clock)
            self.changes += self.rates.gain
            self.watched += self.rates.watched
        else:
            self.watched += clock

    def _check(self) -> None:
        assert np.isfinite(np.asarray(self.recent)[: self.size]).all()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hazard(shape: cython.double, rate: cython.double, clock: cython.double) -> cython.double:
    """Return -ln P[no change] of a page whose rate has a Gamma distribution of this shape and mean."""
    return shape * log1p(rate * clock / shape)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _gain(hazard: cython.double, usual: cython.double, changed: cython.bint) -> cython.double:
    """Return by how much, in nats, the result is better predicted by `hazard` than by the usual hazard."""
    if changed:
        return log(max(-expm1(-hazard), _SURE) / max(-expm1(-usual), _SURE))
    return usual - hazard
