# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Estimates change rates by empirical Bayes: a page's own history is weighed against that of its site.

Two numbers are kept per page: k, the number of changes that crawls of the page found, and T, the time during
which the page was watched. The rates of a site's pages are assumed to have a Gamma distribution with the
site's mean m_s and the squared coefficient of variation c_s. Given its history, a page has the rate

    K / B,   K = 1/c_s + k,   B = 1/(c_s m_s) + T

and stays unchanged for the time A with probability (1 + A/B)^-K (a Gamma mixture of exponentials). A crawl
that finds no change adds the time A since the previous crawl to T. A crawl that finds the page changed shows
only that there was at least one change. If the time A since the previous crawl is long, finding a change says
little about the rate. After such a crawl, k and T become the parameters of the Gamma distribution that has
the posterior mean and variance of the rate (assumed density filtering; Opper and Winther 1999). The mean and
variance follow, with j = 1 and 2, from

    E[rate^j | changed] = K .. (K+j-1) / B^j  (1 - (1 + A/B)^-(K+j)) / (1 - (1 + A/B)^-K)

A simpler update would add A to T, and x / (1 - exp(-x)) changes to k, where x is the rate times A. But the
simpler update is overconfident where little is known. In a test, the pages changed every 8 days, and their
second crawl was 60 days after the first. With the simpler update, refreshes then found twice as many changes
as predicted, and after 16 crawls still 1.6 times as many (1.1 times with the update used here).

A k below 0 says that every crawl of the page has found a change (`restless.py`). The number of changes is then -k.

The parameters of a site and of the whole crawl, except the factor f, are estimated by the method of moments.
Each estimate is shrunk towards that of the next larger group:

    m   = (sum k + 0.5) / (sum T + T0),   T0 = min(25 d, mean revisit interval)      all pages
    m_s = (sum k + 5) / (sum T + 5 / m)                                              pages of the site
    c_s = f (sum[(k - m_s T)^2 - m_s T] + 50 c) / (m_s^2 sum T^2 + 50)

There is no constant prior rate (`freshness/README.md`, "Learning"): the prior rate, 0.5 / T0, follows from
the crawl. When the constants of the prior were fixed numbers of days instead, pages that change hourly and
are fetched every 40 minutes lost a sixth of the possible gain.

Until changes are found, this prior says how often pages are fetched, not how often they change. So it must not be
stated to users: a site of 60 pages that is fetched at 20 pages/s would be called stale after some seconds. While
`is_unlearned`, freshness is stated with T0 = 25 d (`Learning.with_long_prior`).

In the estimate of a site's mean, the crawl's mean has the weight of five changes. The pages of a site change
together: a hundred changes found on a site may be a single event. A site whose pages are fetched only once in
years must not get its rate from a single event. When the weight was 60 days instead of five changes, sites
whose pages had all been edited once were not fetched again for years.

If k were a Poisson number of changes, f would be 1. But k and T belong to a matched distribution, and they vary less
than numbers of changes do. On simulated pages with c = 1 that were fetched twelve times, c_s was .67 (one fetch per
change) and .77 (.3 fetches per change) with f = 1; with the learned f, it was 1.0 and 1.1. The whole crawl has one f. It
maximises the likelihood of what crawls of pages without signals find (a natural gradient; Amari 1998):

    I    += u^2 P / (1 - P)
    ln f += u / I                     if the crawl found no change
    ln f -= u / I  P / (1 - P)        if it found one

P is the predicted probability that the page has not changed, u is the derivative of ln P by ln f for given k and T, and
I is the information about ln f.

With five sums per site, all updates take O(1), including the update of c_s:
sum (k - m T)^2 = sum k^2 - 2 m sum k T + m^2 sum T^2.
`observe` updates a page's part of the sums; `renew` computes new means from the sums. The caller keeps
k and T in single precision, and the sums use these rounded values.

Prior work: Cho and Ntoulas (VLDB 2002) sample a site's pages; Tan and Mitra (TOIS 2010) pool clusters.
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log, log1p

from crawler.freshness.columns import Column, rows_of

_K = cython.declare(cython.Py_ssize_t, 0)  # these constants are the numbers of columns of `sums`
_T = cython.declare(cython.Py_ssize_t, 1)
_KK = cython.declare(cython.Py_ssize_t, 2)
_KT = cython.declare(cython.Py_ssize_t, 3)
_TT = cython.declare(cython.Py_ssize_t, 4)

# Pseudo observations of the priors (in changes and days), and bounds of the estimates. They were chosen on
# the histories of 35 sites and checked on 35 others.
_CRAWL_CHANGES = cython.declare(cython.double, 0.5)
_CRAWL_DAYS = cython.declare(cython.double, 25.0)
_SITE_CHANGES = cython.declare(cython.double, 5.0)
_VARIATION_WEIGHT = cython.declare(cython.double, 50.0)
# the squared coefficient of variation of an exponential distribution
_VARIATION_PRIOR = cython.declare(cython.double, 1.0)
_VARIATION_LOW = cython.declare(cython.double, 0.2)
_VARIATION_HIGH = cython.declare(cython.double, 5.0)
_CRAWL_VARIATION_LOW = cython.declare(cython.double, 0.3)
_CRAWL_VARIATION_HIGH = cython.declare(cython.double, 4.0)
# I begins with this value, and each crawl multiplies the excess over it by `_FACTOR_KEPT`. So f represents the
# last 10,000 crawls or so. The value is large, because pages of a site change together: the first few hundred
# crawls show only a few independent events.
_FACTOR_WEIGHT = cython.declare(cython.double, 100.0)
_FACTOR_KEPT = cython.declare(cython.double, 0.9999)
_FACTOR_LOW = cython.declare(cython.double, 0.25)
_FACTOR_HIGH = cython.declare(cython.double, 4.0)
_FACTOR_STEP = cython.declare(cython.double, 1.0)  # maximum change of ln f by one crawl
# bounds of the hazards that f is learned from
_HAZARD_LOW = cython.declare(cython.double, 1e-12)
_HAZARD_HIGH = cython.declare(cython.double, 700.0)
_SURELY = cython.declare(cython.double, 1e-12)  # smaller probabilities count as this one


def gain_of(x: cython.double) -> cython.double:
    """Return x / (1 - exp(-x)): the mean of a Poisson number of mean x, given that the number is at least 1."""
    return x / -expm1(-x) if x > 1e-12 else 1.0


def hazard_of(mean: cython.double, shape: cython.double) -> cython.double:
    """Return -ln P[no change] if the expected number of changes has a Gamma distribution of this mean and shape.

    A shape of at least 1e12 means that the expected number is known.
    """
    return shape * log1p(mean / shape) if shape < 1e12 else mean


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _within(x: cython.double, low: cython.double, high: cython.double) -> cython.double:
    return low if not x > low else (high if x > high else x)


class ChangeRates:
    """The means and variations of the change rates of sites. Sites are numbered 0, 1, ... as they are added.

    Args:
        unit: length of a day in the caller's unit of time.
    """

    def __init__(self, unit: float = 86_400.0) -> None:
        self.size = 0
        self.unit = unit
        self.prior_time = _CRAWL_DAYS * unit
        self.gain = self.watched = 0.0
        self.factor, self.information = 1.0, float(_FACTOR_WEIGHT)
        self._columns = [Column("f8", 5), Column("f8"), Column("f8")]
        self._grow()
        self.totals = rows_of(np.zeros(5))
        self.renew_crawl()

    def add_site(self) -> cython.Py_ssize_t:
        """Add a site and return its number. The site starts with the crawl's mean and variation."""
        if self.size == self.means.shape[0]:
            self._grow()
        self.size += 1
        self.renew(self.size - 1)
        return self.size - 1

    def _grow(self) -> cython.void:
        self.sums = np.zeros((0, 5))  # release the memory maps before they grow
        self.means = self.variations = np.zeros(0)
        self.sums, self.means, self.variations = [column.grow(self.size + 1) for column in self._columns]

    def rate(self, site: cython.Py_ssize_t, k: cython.double, t: cython.double) -> cython.double:
        """Return the page's change rate, K / B (see the module docstring)."""
        shape: cython.double = 1.0 / self.variations[site]
        return (shape + abs(k)) / (shape / self.means[site] + t)

    def shape(self, site: cython.Py_ssize_t, k: cython.double) -> cython.double:
        """Return K, the shape of the Gamma distribution of the page's change rate."""
        return 1.0 / self.variations[site] + abs(k)

    def expected(
        self, site: cython.Py_ssize_t, k: cython.double, t: cython.double, clock: cython.double
    ) -> cython.double:
        """Return the probability that the page changed in the time `clock`: 1 - (1 + A/B)^-K."""
        shape: cython.double = 1.0 / self.variations[site]
        return -expm1(-(shape + abs(k)) * log1p(clock / (shape / self.means[site] + t)))

    def match(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        unsaid: cython.double = 1.0,
    ) -> cython.void:
        """Set `gain` and `watched` to the increases of k and t after a crawl that found a change.

        The page was not watched during the time `clock`. `unsaid` is the probability that all signals of this time
        were false.
        """
        prior: cython.double = 1.0 / self.variations[site]
        shape: cython.double = prior + k
        span: cython.double = prior / self.means[site] + t
        x: cython.double = log1p(clock / span)
        hidden: cython.double = log(max(unsaid, _SURELY))
        once: cython.double = -expm1(hidden - shape * x)
        self.gain = 1.0
        self.watched = 0.0
        if once > 0.0:
            mean: cython.double = shape / span * (-expm1(hidden - (shape + 1.0) * x) / once)
            square: cython.double = (
                shape * (shape + 1.0) / (span * span) * (-expm1(hidden - (shape + 2.0) * x) / once)
            )
            matched: cython.double = max(mean / (square - mean * mean), span)
            self.gain = max(mean * matched - shape, 0.0)
            self.watched = matched - span

    def learn_variation(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        changed: cython.bint,
        weight: cython.double = 1.0,
    ) -> cython.void:
        """Learn f from a crawl of a page without signals. The page was not watched during the time `clock`.

        The crawl counts with this weight.
        """
        prior: cython.double = 1.0 / self.variations[site]
        mean: cython.double = self.means[site]
        shape: cython.double = prior + k
        span: cython.double = prior / mean + t
        x: cython.double = log1p(clock / span)
        odds: cython.double = 1.0 / expm1(_within(shape * x, _HAZARD_LOW, _HAZARD_HIGH))
        slope: cython.double = prior * (x - shape * clock / (mean * span * (span + clock)))
        kept: cython.double = _FACTOR_KEPT * self.information + (1.0 - _FACTOR_KEPT) * _FACTOR_WEIGHT
        self.information = kept + weight * slope * slope * odds
        score: cython.double = weight * (-odds * slope if changed else slope)
        self.factor = _within(
            self.factor * exp(_within(score / self.information, -_FACTOR_STEP, _FACTOR_STEP)),
            _FACTOR_LOW,
            _FACTOR_HIGH,
        )

    def factor_state(self) -> tuple[float, float]:
        """Return f and I."""
        return self.factor, self.information

    def restore_factor(self, factor: float = 1.0, information: float = 100.0) -> None:
        """Restore stored values of f and I. The caller then calls `renew` for all sites."""
        self.factor, self.information = factor, information

    def observe(
        self,
        site: cython.Py_ssize_t,
        k: cython.float,
        t: cython.float,
        clock: cython.double,
        gain: cython.double,
    ) -> cython.double:
        """Record a crawl that found `gain` changes in the time `clock` since the last crawl; return the page's new k.

        The caller keeps float32(k) and float32(t + clock).
        """
        new_k: cython.float = _single(k + gain)
        new_t: cython.float = _single(t + clock)
        self._account(site, k, t, -1.0)
        self._account(site, new_k, new_t, 1.0)
        return new_k

    def forget(self, site: cython.Py_ssize_t, k: cython.double, t: cython.double) -> cython.void:
        """Subtract a removed page from the sums."""
        self._account(site, abs(k), t, -1.0)

    def _account(
        self, site: cython.Py_ssize_t, k: cython.double, t: cython.double, sign: cython.double
    ) -> cython.void:
        """Add a page's part to the sums of its site and of all sites. If `sign` is -1, subtract it."""
        if not cython.compiled:
            # the squares of numpy's float32 numbers would have only single precision
            k, t = float(k), float(t)
        _add(self.sums[site], k, t, sign)
        _add(self.totals, k, t, sign)

    def renew(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the site's mean and variation from its sums. Call this daily or every 1,000 crawls of the site."""
        sums: cython.double[::1] = self.sums[site]
        mean: cython.double = (max(sums[_K], 0.0) + _SITE_CHANGES) / (
            max(sums[_T], 0.0) + _SITE_CHANGES / self.crawl_mean
        )
        self.means[site] = mean
        self.variations[site] = _within(
            self.factor * _variation(sums, mean, self.crawl_variation), _VARIATION_LOW, _VARIATION_HIGH
        )

    def renew_crawl(self) -> cython.void:
        """Recompute the crawl's mean and variation from the sums over all sites."""
        sums: cython.double[::1] = self.totals
        self.crawl_mean = (max(sums[_K], 0.0) + _CRAWL_CHANGES) / (max(sums[_T], 0.0) + self.prior_time)
        self.crawl_variation = _within(
            _variation(sums, self.crawl_mean, _VARIATION_PRIOR), _CRAWL_VARIATION_LOW, _CRAWL_VARIATION_HIGH
        )

    def set_revisit(self, revisit: cython.double) -> cython.void:
        """Set the pseudo time of the prior.

        This is `revisit`, the mean time between two crawls of a page, or the default if `revisit` is longer
        than that.
        """
        self.prior_time = min(revisit, _CRAWL_DAYS * self.unit)

    def is_unlearned(self) -> bool:
        """Return whether the crawl has found fewer changes than the prior of its mean assumes."""
        return bool(self.totals[_K] < _CRAWL_CHANGES)

    def _check(self) -> None:
        sums, variations = np.asarray(self.sums), np.asarray(self.variations)[: self.size]
        assert np.allclose(sums[: self.size].sum(axis=0), self.totals, rtol=1e-6, atol=1e-3)
        assert not sums[self.size :].any()
        assert ((variations >= 0.2) & (variations <= 5.0)).all() and (
            np.asarray(self.means)[: self.size] > 0.0
        ).all()

    def __repr__(self) -> str:
        return (
            f"ChangeRates({self.size} sites, {self.crawl_mean * self.unit:.3g} changes a page and day, "
            f"variation {self.crawl_variation:.2g})"
        )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _single(x: cython.double) -> cython.float:
    """Round x to single precision."""
    if cython.compiled:
        return cython.cast(cython.float, x)
    return float(np.float32(x))


@cython.cfunc
@cython.exceptval(check=False)
def _variation(sums: cython.double[::1], mean: cython.double, prior: cython.double) -> cython.double:
    """Estimate the squared coefficient of variation of rates about `mean`, by the method of moments."""
    spread: cython.double = sums[_KK] - 2.0 * mean * sums[_KT] + mean * mean * sums[_TT] - mean * sums[_T]
    return (spread + _VARIATION_WEIGHT * prior) / (mean * mean * sums[_TT] + _VARIATION_WEIGHT)


@cython.cfunc
@cython.exceptval(check=False)
def _add(sums: cython.double[::1], k: cython.double, t: cython.double, sign: cython.double) -> cython.void:
    sums[_K] += sign * k
    sums[_T] += sign * t
    sums[_KK] += sign * k * k
    sums[_KT] += sign * k * t
    sums[_TT] += sign * t * t
