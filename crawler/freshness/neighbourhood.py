# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The neighbourhood clock: time runs faster for a page while its directory and its site are changing.

Pages change in batches: if a page changed, a given page of its directory changed
the same day with p = .35, of its site with .21, against .0034 in general (70 documentation
sites). So crawls of neighbours tell of a page. Its elapsed time tau becomes

    A = tau + 6 Ts (1 - exp(-tau/Ts)) [ (1 + O_d g)/(1 + E_d g) + (3 + O_s g)/(3 + E_s g) - 2 ],  at least tau/20

and takes the place of tau in every crawl value. O and E are counts of the changes
that crawls in the directory (d) and the site (s) observed and expected; both decay
as g = exp(-age/Ts). The bracket is the `excess`: 0 where as much changes as expected, above
where more does. Ts, the `scale`, is a quarter of the mean time between two crawls of a page.

No page is touched when a neighbour changes. Beyond tau = Ts the bonus is the same
for all pages of a directory: an offset of their deadlines (`offset_of`).

At a fixed excess A rises with tau, so `elapsed_of` inverts it.

*Credence.* On a site whose pages change independently the excess is noise, and heeding it costs more than
half of what schedules gain. So the excess counts times kappa, 0 .. 1, learned by site: where p0 is the
probability of a change without the neighbours and p1 with all they say, kappa is the slope of (changed - p0)
over (p1 - p0), each crawl weighed by its precision 1/(p0 (1 - p0)):

    C = sum (z - p0) (p1 - p0) / (p0 (1 - p0)),   S = sum (p1 - p0)^2 / (p0 (1 - p0))
    kappa   = (C + 20) / (S + 20)                 over the crawl
    kappa_s = (C_s + 20 kappa) / (S_s + 20)       by site; crawls before which a signal came do not count

and times the probability that the clock is the better model of the site: by the log score of both models'
predictions, fading, from which each crawl takes a charge, as a more complex model must earn its place:

    L = .995 L + ln P[z | with the clock] - ln P[z | without] - .02,      kappa_s / (1 + exp(-L - 3))

On a site whose pages all change in working hours the clock predicts a little better and yet schedules worse: a copy
fetched then is soon stale again. Of the gain possible there .83 without the charge, .96 with it; real sites earn
ten times the charge.

Prior work: Tan, Zhuang, Mitra, Giles (WWW 2007) find changed pages in the directory of
a changed sample; Tan and Mitra (TOIS 2010) recrawl clusters whose sample changed. Here it is a clock inside the
optimal value.

Cython pure-Python mode (see `value_kernel.py`); attributes in `neighbourhood.pxd`.
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log

from crawler.freshness.columns import Column

_BONUS = cython.declare(cython.double, 6.0)  # in units of the scale, for an excess of 1
_SLOWEST = cython.declare(cython.double, 0.05)  # the clock's least speed
_SCORE_PRIOR = cython.declare(cython.double, 3.0)  # nats for the clock, before it is tried
_SCORE_KEPT = cython.declare(cython.double, 0.995)  # of a score, a crawl of the site
_SCORE_CHARGE = cython.declare(cython.double, 0.02)  # nats a crawl
_SCORE_MAX = cython.declare(
    cython.double, 50.0
)  # either way: a site that changes its ways is seen in hundreds of crawls
_SURE = cython.declare(cython.double, 1e-6)  # no prediction counts as surer
_CREDENCE_WEIGHT = cython.declare(
    cython.double, 20.0
)  # of the belief that neighbours are right, before it is tried
_CERTAIN = cython.declare(
    cython.double, 0.01
)  # p (1 - p) at least: what was all but certain tells nothing more
_inf = cython.declare(cython.double, float("inf"))


@cython.ccall
@cython.exceptval(check=False)
def clock_of(elapsed: cython.double, excess: cython.double, scale: cython.double) -> cython.double:
    """A: what the time `elapsed` since a page's crawl counts; `excess` is its directory's plus its site's."""
    if elapsed == _inf:
        return _inf
    return max(elapsed - _BONUS * scale * expm1(-elapsed / scale) * excess, _SLOWEST * elapsed)


@cython.ccall
@cython.exceptval(check=False)
def offset_of(excess: cython.double, scale: cython.double) -> cython.double:
    """What the clock is ahead by in the end: 6 Ts times the excess."""
    return _BONUS * scale * excess


@cython.ccall
@cython.exceptval(check=False)
def elapsed_of(clock: cython.double, excess: cython.double, scale: cython.double) -> cython.double:
    """The elapsed time at which `clock_of` reaches `clock`; relative error 1e-9.

    Newton in a bracket: A is concave in tau for an excess above 0, convex (where above the least speed) below.
    """
    if not clock > 0.0:
        return 0.0
    if clock == _inf or excess == 0.0:
        return clock
    full: cython.double = _BONUS * scale * excess
    low: cython.double
    high: cython.double
    if excess > 0.0:
        low = max(clock - full, clock / (1.0 + _BONUS * excess))
        high = clock
    else:
        low = clock
        high = min(clock - full, clock / _SLOWEST)
    tau: cython.double = low if excess > 0.0 else high  # from where Newton does not overshoot
    for _ in range(100):
        decay: cython.double = exp(-tau / scale)
        reached: cython.double = tau + full * (1.0 - decay)
        slope: cython.double = 1.0 + _BONUS * excess * decay
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


@cython.ccall
@cython.exceptval(check=False)
def scale_of(
    pages: cython.double, fetch_rate: cython.double, low: cython.double, high: cython.double
) -> cython.double:
    """Ts: a quarter of the mean time between two crawls of a page, within `low` .. `high`."""
    if fetch_rate <= 0.0:
        return high
    return max(low, min(high, 0.25 * pages / fetch_rate))


@cython.cclass
class Credence:
    """How far to believe the neighbourhood: kappa times the odds of the clock by site, numbered as they are added."""

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(4)]
        self._grow()
        self.agreement = self.weight = 0.0

    @cython.ccall
    def add(self) -> cython.Py_ssize_t:
        """The number of a new site, which is believed as the crawl is."""
        if self.size == self.credences.shape[0]:
            self._grow()
        self.size += 1
        self.renew(self.size - 1)
        return self.size - 1

    @cython.cfunc
    def _grow(self) -> cython.void:
        self.agreements = self.weights = self.credences = self.scores = np.zeros(0)  # lets go of the maps
        self.scores = self._columns[3].grow(self.size + 1)
        self.agreements, self.weights, self.credences = (
            self._columns[0].grow(self.size + 1),
            self._columns[1].grow(self.size + 1),
            self._columns[2].grow(self.size + 1),
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def observe(
        self, site: cython.Py_ssize_t, alone: cython.double, heeding: cython.double, changed: cython.bint
    ) -> cython.void:
        """Judge by a crawl: the probability of a change was `alone` without the neighbours, `heeding` with them."""
        told: cython.double = heeding - alone
        precision: cython.double = 1.0 / max(alone * (1.0 - alone), _CERTAIN)
        agreement: cython.double = ((1.0 if changed else 0.0) - alone) * told * precision
        weight: cython.double = told * told * precision
        self.agreements[site] += agreement
        self.weights[site] += weight
        self.agreement += agreement
        self.weight += weight

    @cython.ccall
    @cython.exceptval(check=False)
    def renew(self, site: cython.Py_ssize_t) -> cython.void:
        """Take the site's kappa from its sums, the crawl's, and the score of the clock."""
        crawl: cython.double = (self.agreement + _CREDENCE_WEIGHT) / (self.weight + _CREDENCE_WEIGHT)
        crawl = min(max(crawl, 0.0), 1.0)
        kappa: cython.double = (self.agreements[site] + _CREDENCE_WEIGHT * crawl) / (
            self.weights[site] + _CREDENCE_WEIGHT
        )
        better: cython.double = 1.0 / (1.0 + exp(-self.scores[site] - _SCORE_PRIOR))
        self.credences[site] = better * min(max(kappa, 0.0), 1.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def score(
        self, site: cython.Py_ssize_t, alone: cython.double, heeding: cython.double, changed: cython.bint
    ) -> cython.void:
        """Judge both models by a crawl: `alone` was the probability of a change without the clock, `heeding` with it."""
        alone = min(max(alone, _SURE), 1.0 - _SURE)
        heeding = min(max(heeding, _SURE), 1.0 - _SURE)
        better: cython.double = log(heeding / alone) if changed else log((1.0 - heeding) / (1.0 - alone))
        score: cython.double = _SCORE_KEPT * self.scores[site] + better - _SCORE_CHARGE
        self.scores[site] = min(max(score, -_SCORE_MAX), _SCORE_MAX)

    def restore(self, site: int, agreement: float, weight: float, score: float) -> None:
        """Put stored sums back."""
        self.scores[site] = min(max(score, -_SCORE_MAX), _SCORE_MAX)
        self.agreement += agreement - self.agreements[site]
        self.weight += weight - self.weights[site]
        self.agreements[site], self.weights[site] = agreement, weight
        self.renew(site)

    @property
    def believed(self) -> np.ndarray:
        """kappa by site."""
        return np.asarray(self.credences)[: self.size]

    def _check(self) -> None:
        assert ((self.believed >= 0.0) & (self.believed <= 1.0)).all()
        assert (np.asarray(self.weights) >= 0.0).all()

    def __repr__(self) -> str:
        return f"Credence({self.size} sites, kappa {self.believed.mean() if self.size else 1.0:.2f})"


@cython.cclass
class Counts:
    """Decaying counts of observed and expected changes, of groups numbered as they are added.

    Counts decay by the scale of the moment they are touched; `prior` pseudo counts pull the excess to 0.
    """

    def __init__(self, prior: float) -> None:
        self.size = 0
        self.prior = prior
        self._columns = [Column("f8") for _ in range(3)]
        self._grow()

    @cython.ccall
    def add(self) -> cython.Py_ssize_t:
        """The number of a new group, without counts."""
        if self.size == self.instants.shape[0]:
            self._grow()
        self.size += 1
        return self.size - 1

    @cython.cfunc
    def _grow(self) -> cython.void:
        self.observed_counts = self.expected_counts = self.instants = np.zeros(0)  # lets go of the maps
        self.observed_counts, self.expected_counts, self.instants = (
            self._columns[0].grow(self.size + 1),
            self._columns[1].grow(self.size + 1),
            self._columns[2].grow(self.size + 1),
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def observe(
        self,
        number: cython.Py_ssize_t,
        now: cython.double,
        scale: cython.double,
        changed: cython.double,
        expected: cython.double,
    ) -> cython.void:
        """Count a crawl that found `changed` (0 or 1) where `expected` was the probability."""
        g: cython.double = exp(-max(now - self.instants[number], 0.0) / scale)
        self.observed_counts[number] = self.observed_counts[number] * g + changed
        self.expected_counts[number] = self.expected_counts[number] * g + expected
        self.instants[number] = max(now, self.instants[number])

    @cython.ccall
    @cython.exceptval(check=False)
    def excess(self, number: cython.Py_ssize_t, now: cython.double, scale: cython.double) -> cython.double:
        """(prior + O g) / (prior + E g) - 1: above 0 where more changed than expected."""
        g: cython.double = exp(-max(now - self.instants[number], 0.0) / scale)
        return (
            (self.observed_counts[number] - self.expected_counts[number])
            * g
            / (self.prior + self.expected_counts[number] * g)
        )

    def restore(self, number: int, observed: float, expected: float, at: float) -> None:
        """Put stored counts back."""
        self.observed_counts[number] = observed
        self.expected_counts[number] = expected
        self.instants[number] = at

    @property
    def observed(self) -> np.ndarray:
        """O by group, as of `at`."""
        return np.asarray(self.observed_counts)[: self.size]

    @property
    def expected(self) -> np.ndarray:
        """E by group, as of `at`."""
        return np.asarray(self.expected_counts)[: self.size]

    @property
    def at(self) -> np.ndarray:
        """When each group was last counted in."""
        return np.asarray(self.instants)[: self.size]

    def _check(self) -> None:
        assert (self.observed >= 0.0).all() and (self.expected >= 0.0).all()

    def __repr__(self) -> str:
        return f"Counts({self.size} groups, prior {self.prior:g})"
