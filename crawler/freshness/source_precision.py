# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns the precision of each source of change signals on each site, while the crawl runs.

The precision p_s of the source s is the share of its signals that are true. All pages of a site share one
precision per source, because a single page has too few crawls to expose a source of false signals. The
precision is learned by EM, one step per crawl (see `signal_quality.py` for the symbols):

    if changed:  S_true[s] += n_s p_s / z            true signals
    always:      S_all[s]  += n_s

    p_s     = (S_true[s] + 3) / (S_all[s] + 3/p0),   p0 = honesty[s] min(1, 3 rho)
    rho     = min(1, rate of changes / rate of signals)

p0 is the prior of a precision. The factor rho in p0 is needed because there cannot be more true signals than
changes. At most the share rho of the signals can be true. The share of true signals may be larger among the
signals of the good pages, so p0 has 3 rho instead of rho. `source_honesty.py` computes the honesty. For a
single page, p_s is replaced by a precision that depends on the page's rate (`false_signals.py`).

A source with p_s below .1 is ignored in values and rates. The signals of such a source outnumber the changes
so much that they carry no information: the b_s of a signal is small compared with the noise in the number of
signals. If the many signals of such a source were used, each would add a small error to k. EM continues for
an ignored source as for the others, and the signals of the ignored source are added to z. So an ignored
source is used again if its signals become more precise.

A source is trusted if most of its signals are true and several were confirmed.

The crawl value can use only one kind of signal. So all sources are combined into one kind with the signal
rate gamma and the weight b. Let gamma_s be the number of signals of source s in a unit of time. In the same
time, the combined kind adds as much staleness as all sources together, so gamma b = sum gamma_s b_s. The
combined kind also announces as many changes as all sources do, so gamma (1 - e^-b) = sum gamma_s p_s = r
rate. So b follows from (1 - e^-b)/b = r rate / sum gamma_s b_s, and a page's number of signals is sum_s n_s
b_s / b.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.false_signals import FalseSignals
from cython.cimports.crawler.freshness.page_kinds import FADING, PRECISION_MAX, believable
from cython.cimports.crawler.freshness.source_honesty import SourceHonesty
from cython.cimports.libc.math import exp, expm1, log1p

from crawler.change_signals import SOURCES
from crawler.freshness.columns import Column

_SOURCES = cython.declare(cython.Py_ssize_t, SOURCES)
_PRECISION_USED_MIN = cython.declare(cython.double, 0.1)
# the honesty of sources is learned only on sites whose rho is higher than this
_PLAUSIBLE = cython.declare(cython.double, 0.3)
_WEIGHT_MAX = cython.declare(cython.double, 13.8)  # -ln(1 - PRECISION_MAX)
# the weighted number of signals with which a source begins when it sends its first signal
_HEARD = cython.declare(cython.double, 1e-6)
# the weighted number of false signals with which a source begins again after its signals have become worthless, so that
# its precision is below `_PRECISION_USED_MIN`
_DISTRUSTED = cython.declare(cython.double, 40.0)
_TRUSTED_PRECISION = cython.declare(cython.double, 0.5)
# after this number of true signals, a source may be trusted
_TRUSTED_SIGNALS = cython.declare(cython.double, 5.0)
# the prior of the precision of good pages has this number of true pseudo signals
_TRUE_WEIGHT = cython.declare(cython.double, 3.0)
# If all true signals come from good pages, the share of true signals on these pages can exceed rho by this
# factor.
_CONCENTRATED = cython.declare(cython.double, 3.0)
WEIGHT_MAX = float(_WEIGHT_MAX)


@cython.cclass
class SourcePrecision:
    """The precision of signals by site and source. Sites are numbered as they are added."""

    def __init__(self, false_signals: FalseSignals) -> None:
        self.size = 0
        self.said, self.believed = 0.0, True
        self.false_signals = false_signals
        self.honesty = SourceHonesty()
        self._columns = [Column("f8", SOURCES) for _ in range(3)] + [Column("f8")]
        self._grow()

    def add_site(self) -> cython.void:
        """Add a site without signals. The caller then calls `estimate`."""
        if self.size == self.watched.shape[0]:
            self._grow()
        self.size += 1
        self.honesty.add_site()

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.true_signals = self.all_signals = self.precisions = np.zeros((0, SOURCES))
        self.watched = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.true_signals, self.all_signals, self.precisions, self.watched = columns

    def note(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Record a signal. Return whether it is the first of its source. The caller then calls `estimate`."""
        if self.all_signals[site, source] > 0.0:
            return False
        self.all_signals[site, source] = _HEARD
        return True

    def heard(self, site: cython.Py_ssize_t) -> cython.bint:
        """Return whether the site has ever had a signal."""
        source: cython.Py_ssize_t
        every: cython.double = 0.0
        for source in range(_SOURCES):
            every += self.all_signals[site, source]
        return every > 0.0

    def precision(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return p_s, the probability that a signal of this source is true."""
        if self.all_signals[site, source] > 0.0:
            return self.precisions[site, source]
        return self.honesty.share(source)

    def used(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Return whether the source's signals are used."""
        return self.all_signals[site, source] > 0.0 and self.precisions[site, source] >= _PRECISION_USED_MIN

    def weight(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return b_s, the staleness that one signal adds; 0 for an ignored source."""
        return -log1p(-self.precisions[site, source]) if self.used(site, source) else 0.0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _trusted(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Return whether the source is trusted: its precision and its number of true signals are high enough."""
        return (
            self.precisions[site, source] >= _TRUSTED_PRECISION
            and self.true_signals[site, source] >= _TRUSTED_SIGNALS
        )

    def watches(self, site: cython.Py_ssize_t) -> cython.bint:
        """Return whether a source of the site is trusted."""
        source: cython.Py_ssize_t
        found: cython.bint = False
        for source in range(_SOURCES):
            found = found or (self.all_signals[site, source] > 0.0 and self._trusted(site, source))
        return found

    def recall_prior(self, site: cython.Py_ssize_t) -> cython.double:
        """Return r0, the recall of sites with these sources; -1 if no source is used."""
        source: cython.Py_ssize_t
        prior: cython.double = -1.0
        for source in range(_SOURCES):
            if self.used(site, source):
                prior = max(prior, self.honesty.recall(source), 0.0)
        return prior

    def announced_changes(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return the number of changes that the signals of trusted sources represent."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0 and self._trusted(site, source):
                total += counts[source] * self.precisions[site, source]
        return total

    def counted_signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return n, the number of signals of the used sources."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0 and self.used(site, source):
                total += counts[source]
        return total

    def silent(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.bint:
        """Return whether all sources with signals are ignored, or there are no signals."""
        source: cython.Py_ssize_t
        found: cython.bint = False
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                found = found or self.all_signals[site, source] <= 0.0 or self.used(site, source)
        return not found

    def used_signals(self, site: cython.Py_ssize_t) -> cython.double:
        """Return the sum of S_all over the used sources."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.used(site, source):
                total += self.all_signals[site, source]
        return total

    def staleness(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return sum_s n_s b_s, the staleness that a page's signals add.

        n_s, an item of `counts`, is the number of signals of the source s, and b_s is the `weight` of one signal of
        this source.
        """
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                total += counts[source] * self.weight(site, source)
        return total

    def explain(
        self, site: cython.Py_ssize_t, counts: cython.double[::1], rate: cython.double
    ) -> cython.double:
        """Return sum_s n_s b_s over the used sources, for a page of this change rate.

        Set `said` to sum_s n_s p_s, the expected number of true signals, and `believed` to whether all these
        sources are trusted.
        """
        source: cython.Py_ssize_t
        total: cython.double = 0.0
        self.said = 0.0
        self.believed = True
        for source in range(_SOURCES):
            n: cython.double = counts[source]
            if n > 0.0 and self.used(site, source):
                p: cython.double = self.false_signals.precision_of(site, self.precisions[site, source], rate)
                self.said += n * p
                self.believed = self.believed and self._trusted(site, source)
                total -= n * log1p(-p)
        return total

    def observe(
        self,
        site: cython.Py_ssize_t,
        counts: cython.double[::1],
        w: cython.double,
        rate: cython.double,
        clock: cython.double,
        x: cython.double,
        expected: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Add a crawl to S_all and, if the page changed, n_s p_s / z to S_true, for each source, with the weight `w`.

        `clock` is the time since the page's last crawl.

        The signals of an ignored source are not in the staleness `x`, so they are added to it.
        """
        source: cython.Py_ssize_t
        faded: cython.double = 1.0 - (1.0 - FADING) * w
        self.watched[site] = self.watched[site] * faded + w * clock
        for source in range(_SOURCES):
            self.true_signals[site, source] *= faded
            self.all_signals[site, source] *= faded
            n: cython.double = counts[source]
            if n > 0.0:
                p: cython.double = self.false_signals.precision_of(site, self.precisions[site, source], rate)
                with_it: cython.double = x if self.used(site, source) else x - n * log1p(-p)
                self.all_signals[site, source] += w * n
                if changed:
                    trusted: cython.bint = self._trusted(site, source)
                    true: cython.double = believable(n * p / -expm1(-with_it), expected, trusted)
                    self.true_signals[site, source] += w * min(n, true)

    def renew(
        self, site: cython.Py_ssize_t, silent_changes: cython.double, exposed: cython.double
    ) -> cython.void:
        """Update the site's part in the sums over all sites. The other arguments are S_silent and S_exposed."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            every: cython.double = self.all_signals[site, source]
            plausible: cython.double = self._plausible(site, source) if every > 0.0 else 0.0
            if plausible > _PLAUSIBLE:
                true: cython.double = self.true_signals[site, source]
                self.honesty.renew(site, source, true, every * plausible, silent_changes, exposed)
            elif self.honesty.claimed[site, source] > 0.0:
                self.honesty.renew(site, source, 0.0, 0.0, 0.0, 0.0)

    def _plausible(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return rho, the largest share of the source's signals that can be true, given the number of changes."""
        every: cython.double = self.all_signals[site, source]
        changes: cython.double = self.false_signals.means[site] * self.watched[site]
        return min(1.0, changes / every) if every > 0.0 and changes > 0.0 else 1.0

    def estimate(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the precisions from the sums, for the sources with signals."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.all_signals[site, source] <= 0.0:
                continue
            plausible: cython.double = min(1.0, _CONCENTRATED * self._plausible(site, source))
            prior: cython.double = self.honesty.share(source) * plausible
            p: cython.double = (self.true_signals[site, source] + _TRUE_WEIGHT) / (
                self.all_signals[site, source] + _TRUE_WEIGHT / prior
            )
            self.precisions[site, source] = min(p, PRECISION_MAX)

    def forget(self, site: cython.Py_ssize_t, ignored: cython.bint) -> cython.void:
        """Forget the signals of a site, but not which sources have sent some. The caller then calls `estimate`.

        The sources are ignored at first if `ignored` is True.
        """
        source: cython.Py_ssize_t
        self.watched[site] = 0.0
        for source in range(_SOURCES):
            self.true_signals[site, source] = 0.0
            if self.all_signals[site, source] > 0.0:
                self.all_signals[site, source] = _DISTRUSTED if ignored else _HEARD

    def pooled_weight(self, site: cython.Py_ssize_t) -> cython.double:
        """Return the weight b of all sources combined; 0 if no source is used.

        b is the solution of (1 - e^-b)/b = (sum_s w_s) / (sum_s w_s b_s / p_s). The sums are over the used sources.
        p_s is the precision of the source s, b_s the weight of one of its signals, and w_s the number of its true
        signals.
        """
        source: cython.Py_ssize_t
        used: cython.Py_ssize_t = 0
        shares: cython.double = 0.0
        drift: cython.double = 0.0
        b: cython.double = 0.0
        for source in range(_SOURCES):
            if self.used(site, source):
                used += 1
                p: cython.double = self.precisions[site, source]
                share: cython.double = self.all_signals[site, source] * p
                b = -log1p(-p)
                shares += share
                drift += share * b / p
        if used > 1:
            b = _weight_of_ratio(shares / drift)
        return b

    def _check(self) -> None:
        true, every = np.asarray(self.true_signals)[: self.size], np.asarray(self.all_signals)[: self.size]
        assert (true >= 0.0).all() and (true <= every * (1.0 + 1e-9) + 1e-12).all()
        precision = np.asarray(self.precisions)[: self.size]
        assert ((precision > 0.0) & (precision < 1.0))[every > 0.0].all()
        self.honesty._check()


@cython.cfunc
@cython.exceptval(check=False)
def _weight_of_ratio(ratio: cython.double) -> cython.double:
    """Return b > 0 with (1 - e^-b) / b = ratio.

    The function is convex and decreasing. So Newton's method starts below the solution and never overshoots
    it.
    """
    b: cython.double = 0.0
    if ratio >= 1.0 - 1e-9:
        return max(2.0 * (1.0 - ratio), 1e-12)
    b = 2.0 * (1.0 - ratio)
    for _ in range(50):
        value: cython.double = -expm1(-b) / b - ratio
        slope: cython.double = (exp(-b) * (1.0 + b) - 1.0) / (b * b)
        step: cython.double = value / slope
        b -= step
        if abs(step) <= 1e-9 * b:
            break
    return b
