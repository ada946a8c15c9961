# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The neighbourhood clock: time runs faster for a page while its directory and its site are changing.

Pages change in batches. This was measured on 70 documentation sites. On a day on which a page changed,
another page of its directory changed with a probability of 0.35, and another page of its site with a
probability of 0.21. On any day, a page changes with a probability of 0.0034. So crawls of neighbours are
evidence about a page. The time tau that has elapsed since the page's last crawl becomes

    A = tau + 6 Ts (1 - (1 + tau/Ts) exp(-tau/Ts)) excess,  at least tau/20
    excess = (1 + O_d g)/(1 + E_d g) + (3 + O_s g)/(3 + E_s g) - 2

The clock time A replaces tau in every crawl value. O is the number of changes that crawls observed, and E the
number that was expected, in the directory (d) and the site (s). Both counts decay by the factor g =
exp(-age/Ts). The `excess` is 0 if there are as many changes as expected, and positive if there are more. Ts,
the `scale`, is a quarter of the mean time between two crawls of a page.

*Pages that were just crawled.* A change of a neighbour concerns a page only if it happened after the page's
last crawl. A change happens some time before a crawl finds it. If the time from a change to its discovery is
exponential with mean Ts, as the weights g are, then the share of these changes that happened within the last
tau is 1 - (1 + tau/Ts) exp(-tau/Ts). If the changes counted from their discovery, the factor would be
1 - exp(-tau/Ts), and the predictions for pages of changing directories would be too high: 0.16 where crawls
found 0.09 (world day-together-3x, ages of Ts/4 to Ts/2). With an excess below 0, the factor is
1 - exp(-tau/Ts), because an unchanged neighbour has not changed at any time since its last crawl.

No page is updated when a neighbour changes. If tau is well above Ts, the term added to tau is the same for
all pages of a directory. So this term moves the deadlines of all pages of the directory by the same amount
(`offset_of`).

*Predictions.* A quiet neighbourhood slows the clock more than it reduces the probability of a change. This is
good for the order of the fetches: on the histories of the league, scores are lower by 0.004 (0.3 fetches per
change) and 0.003 (one fetch) if only a third of an excess below 0 is used. But a probability computed from A
would be wrong: of the copies whose clock was slower than 0.06 times plain time, 0.90 were fresh, and 0.99 were
predicted. So predictions use a quarter of an excess below 0 (`predicted_clock_of`).

At a fixed excess, A increases with tau, so `elapsed_of` can compute tau from A.

*Credence.* The excess is multiplied by kappa, a factor from 0 to 1 that is learned for each site
(`freshness/README.md`, "Learning"). Let p0 be the probability of a change without the neighbours, and p1 the
probability with their full influence. Let z be 1 if the page changed, and 0 if not. kappa is the slope of the
regression line of z - p0 on p1 - p0, in which each crawl has the weight 1/(p0 (1 - p0)):

    C = sum (z - p0) (p1 - p0) / (p0 (1 - p0)),   S = sum (p1 - p0)^2 / (p0 (1 - p0))
    kappa   = (C + 20) / (S + 20)                 over the crawl
    kappa_s = (C_s + 20 kappa) / (S_s + 20)       by site; crawls with a signal before them are left out

The excess is also multiplied by the probability that the clock is the better model of the site. The
probability that the clock is better follows from the decaying log scores of the predictions with and without
the clock. A constant, the charge, is subtracted from the score of the clock at each crawl, because the more
complex model must prove that it is useful:

    L = 0.995 L + ln P[z | with the clock] - ln P[z | without] - 0.02,      kappa_s / (1 + exp(-L - 3))

The charge matters on a site whose pages all change in working hours. On such a site, the clock improves the
predictions a little, but it makes the schedule worse, because a copy fetched in working hours is soon stale
again. On such a site, the schedule reaches 83 % of the possible gain without the charge, and 96 % with it. On
real sites, the clock improves the score by ten times the charge.

Prior work: Tan, Zhuang, Mitra and Giles (WWW 2007) crawl a sample of the pages of each directory, and crawl
the others if the sample has changed. Tan and Mitra (TOIS 2010) do the same with clusters of pages. Here, the
same evidence makes the clock of a page run faster, and the optimal crawl value is computed with this clock.
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log

from crawler.freshness.columns import Column

# If the excess of changes stays 1, the clock is in the end ahead of plain time by this number times Ts (the
# `scale`).
_BONUS = cython.declare(cython.double, 6.0)
# the greatest slope of 1 - (1 + x) exp(-x), which is at x = 1
_STEEPEST = cython.declare(cython.double, 0.36787944117144233)
_SLOWEST = cython.declare(cython.double, 0.05)  # the clock's minimum speed
# the part of an excess below 0 that predictions use
_PREDICTED_PART = cython.declare(cython.double, 0.25)
# each score compares the clock with plain time, and begins with this advantage of the clock, in nats
_SCORE_PRIOR = cython.declare(cython.double, 3.0)
_SCORE_KEPT = cython.declare(cython.double, 0.995)  # factor by which a score decays per crawl of the site
_SCORE_CHARGE = cython.declare(cython.double, 0.02)  # nats by which each crawl reduces the score
# bound of the score, so that a change in a site's behaviour is noticed within hundreds of crawls
_SCORE_MAX = cython.declare(cython.double, 50.0)
_SURE = cython.declare(cython.double, 1e-6)  # predictions stay at least this far from 0 and 1
# weight of the prior assumption that neighbours predict a page well
_CREDENCE_WEIGHT = cython.declare(cython.double, 20.0)
# minimum of p (1 - p): a nearly certain prediction is not informative
_CERTAIN = cython.declare(cython.double, 0.01)
_inf = cython.declare(cython.double, float("inf"))


def clock_of(elapsed: cython.double, excess: cython.double, scale: cython.double) -> cython.double:
    """Return A, the time that a page's clock shows when `elapsed` has passed since its crawl.

    `excess` is the sum of the excesses of directory and site.
    """
    if elapsed == _inf:
        return _inf
    return max(elapsed + lead_of(elapsed, offset_of(excess, scale), scale), _SLOWEST * elapsed)


def predicted_clock_of(elapsed: cython.double, excess: cython.double, scale: cython.double) -> cython.double:
    """Return the time on the clock from which the probability of a change is predicted.

    It is `clock_of` with a quarter of the excess, if the excess is below 0.
    """
    return clock_of(elapsed, _PREDICTED_PART * excess if excess < 0.0 else excess, scale)


def lead_of(elapsed: cython.double, offset: cython.double, scale: cython.double) -> cython.double:
    """Return the part of the offset by which the clock of a page that was crawled `elapsed` ago leads plain time."""
    age: cython.double = elapsed / scale
    if offset > 0.0:
        return offset * (-expm1(-age) - age * exp(-age))
    return -offset * expm1(-age)


def offset_of(excess: cython.double, scale: cython.double) -> cython.double:
    """Return 6 Ts times the excess.

    This is the lead of the clock over plain time for a page that was crawled long ago.
    """
    return _BONUS * scale * excess


def elapsed_of(clock: cython.double, excess: cython.double, scale: cython.double) -> cython.double:
    """Return the elapsed time at which `clock_of` reaches `clock`, with a relative error of 1e-9.

    Uses Newton's method in a bracket. A step that would leave the bracket is replaced by a bisection.
    """
    if not clock > 0.0:
        return 0.0
    if clock == _inf or excess == 0.0:
        return clock
    full: cython.double = _BONUS * scale * excess
    low: cython.double
    high: cython.double
    if excess > 0.0:
        low = max(clock - full, clock / (1.0 + _STEEPEST * _BONUS * excess))
        high = clock
    else:
        low = clock
        high = min(clock - full, clock / _SLOWEST)
    tau: cython.double = low if excess > 0.0 else high
    for _ in range(100):
        decay: cython.double = exp(-tau / scale)
        reached: cython.double = tau + lead_of(tau, full, scale)
        slope: cython.double = 1.0 + _BONUS * excess * decay
        if excess > 0.0:
            slope = 1.0 + _BONUS * excess * decay * tau / scale
        if reached < _SLOWEST * tau:
            reached = _SLOWEST * tau
            slope = _SLOWEST
        if reached < clock:
            low = tau
        else:
            high = tau
        follow: cython.double = tau + (clock - reached) / slope if slope > 0.0 else -1.0
        if not low <= follow <= high:
            follow = 0.5 * (low + high)
        if abs(follow - tau) <= 1e-9 * follow:
            return follow
        tau = follow
    return tau


def scale_of(
    pages: cython.double, fetch_rate: cython.double, low: cython.double, high: cython.double
) -> cython.double:
    """Return Ts: a quarter of the mean time between two crawls of a page, within `low` .. `high`."""
    if fetch_rate <= 0.0:
        return high
    return max(low, min(high, 0.25 * pages / fetch_rate))


class Credence:
    """The weight of the neighbourhood clock for each site: kappa times the probability that the clock predicts better."""

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(4)]
        self._grow()
        self.agreement = self.weight = 0.0

    def add(self) -> cython.Py_ssize_t:
        """Add a site and return its number. The site starts with the crawl's kappa."""
        if self.size == self.credences.shape[0]:
            self._grow()
        self.size += 1
        self.renew(self.size - 1)
        return self.size - 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.agreements = self.weights = self.credences = self.scores = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.agreements, self.weights, self.credences, self.scores = columns

    def observe(
        self, site: cython.Py_ssize_t, alone: cython.double, heeding: cython.double, changed: cython.bint
    ) -> cython.void:
        """Update kappa's sums.

        `alone` and `heeding` are the probabilities of a change without and with the influence of neighbours.
        """
        told: cython.double = heeding - alone
        precision: cython.double = 1.0 / max(alone * (1.0 - alone), _CERTAIN)
        agreement: cython.double = ((1.0 if changed else 0.0) - alone) * told * precision
        weight: cython.double = told * told * precision
        self.agreements[site] += agreement
        self.weights[site] += weight
        self.agreement += agreement
        self.weight += weight

    def renew(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the site's kappa from its sums, the crawl's sums, and the log score of the clock's predictions."""
        crawl: cython.double = (self.agreement + _CREDENCE_WEIGHT) / (self.weight + _CREDENCE_WEIGHT)
        crawl = min(max(crawl, 0.0), 1.0)
        kappa: cython.double = (self.agreements[site] + _CREDENCE_WEIGHT * crawl) / (
            self.weights[site] + _CREDENCE_WEIGHT
        )
        better: cython.double = 1.0 / (1.0 + exp(-self.scores[site] - _SCORE_PRIOR))
        self.credences[site] = better * min(max(kappa, 0.0), 1.0)

    def score(
        self, site: cython.Py_ssize_t, alone: cython.double, heeding: cython.double, changed: cython.bint
    ) -> cython.void:
        """Update the log score.

        `alone` and `heeding` are the probabilities of a change by plain time and by the neighbourhood clock.
        """
        alone = min(max(alone, _SURE), 1.0 - _SURE)
        heeding = min(max(heeding, _SURE), 1.0 - _SURE)
        better: cython.double = log(heeding / alone) if changed else log((1.0 - heeding) / (1.0 - alone))
        score: cython.double = _SCORE_KEPT * self.scores[site] + better - _SCORE_CHARGE
        self.scores[site] = min(max(score, -_SCORE_MAX), _SCORE_MAX)

    def forget(self, site: cython.Py_ssize_t) -> cython.void:
        """Forget how well the clock predicted on a site."""
        self.agreement -= self.agreements[site]
        self.weight -= self.weights[site]
        self.agreements[site] = self.weights[site] = self.scores[site] = 0.0
        self.renew(site)

    def restore(self, site: int, agreement: float, weight: float, score: float) -> None:
        """Restore stored sums."""
        self.scores[site] = min(max(score, -_SCORE_MAX), _SCORE_MAX)
        self.agreement += agreement - self.agreements[site]
        self.weight += weight - self.weights[site]
        self.agreements[site], self.weights[site] = agreement, weight
        self.renew(site)

    def _check(self) -> None:
        credences = np.asarray(self.credences)
        assert ((credences >= 0.0) & (credences <= 1.0)).all()
        assert (np.asarray(self.weights) >= 0.0).all()

    def __repr__(self) -> str:
        kappa = np.asarray(self.credences)[: self.size].mean() if self.size else 1.0
        return f"Credence({self.size} sites, kappa {kappa:.2f})"


class Counts:
    """Decaying counts of observed and expected changes in groups of pages. Groups are numbered as they are added.

    Counts decay with the time scale that is current when they are updated. `excess` adds `prior` to both
    counts. This brings its result nearer to 0, above all if few changes were expected.
    """

    def __init__(self, prior: float) -> None:
        self.size = 0
        self.prior = prior
        self._columns = [Column("f8") for _ in range(3)]
        self._grow()

    def add(self) -> cython.Py_ssize_t:
        """Add a group without counts; return its number."""
        if self.size == self.instants.shape[0]:
            self._grow()
        self.size += 1
        return self.size - 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.observed_counts = self.expected_counts = self.instants = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.observed_counts, self.expected_counts, self.instants = columns

    def observe(
        self,
        number: cython.Py_ssize_t,
        now: cython.double,
        scale: cython.double,
        changed: cython.double,
        expected: cython.double,
    ) -> cython.void:
        """Count a crawl. `changed` is 1 if the crawl found a change, else 0.

        `expected` was the probability of a change.
        """
        g: cython.double = exp(-max(now - self.instants[number], 0.0) / scale)
        self.observed_counts[number] = self.observed_counts[number] * g + changed
        self.expected_counts[number] = self.expected_counts[number] * g + expected
        self.instants[number] = max(now, self.instants[number])

    def excess(self, number: cython.Py_ssize_t, now: cython.double, scale: cython.double) -> cython.double:
        """Return (prior + observed) / (prior + expected) - 1, where both counts have decayed until `now`.

        It is positive if there were more changes than expected.
        """
        g: cython.double = exp(-max(now - self.instants[number], 0.0) / scale)
        return (
            (self.observed_counts[number] - self.expected_counts[number])
            * g
            / (self.prior + self.expected_counts[number] * g)
        )

    def restore(self, number: int, observed: float, expected: float, at: float) -> None:
        """Restore stored counts."""
        self.observed_counts[number] = observed
        self.expected_counts[number] = expected
        self.instants[number] = at

    def _check(self) -> None:
        assert (np.asarray(self.observed_counts) >= 0.0).all() and (
            np.asarray(self.expected_counts) >= 0.0
        ).all()

    def __repr__(self) -> str:
        return f"Counts({self.size} groups, prior {self.prior:g})"
