# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The quality of change signals, learned on line by site and source.

A source is one way to hear of changes: sitemap lastmod, feed, IndexNow, WebSub, ... A
page's staleness is alpha A + sum_s n_s b_s (A its clock, n_s signals of source s since its last crawl), with
alpha = (1 - r) rate and b_s = -ln(1 - p_s) of precision p_s and recall r, which a site's pages
share: pages alone see too few crawls to tell a lying source. EM, one step a crawl, faded by .99 each:

    z = 1 - exp(-(alpha A + sum_s n_s b_s))          the probability of a change
    if changed:  S_true[s] += n_s p_s / z            true signals
                 S_silent  += alpha A / z            changes nobody told of
    always:      S_all[s]  += n_s

    p_s = (S_true[s] + 1) / (S_all[s] + 1/p0),       p0 = honesty[s] rho,  rho = min(1, rate of changes / rate of signals)
    r   = (sum_s S_true[s] + 2 r0) / (sum_s S_true[s] + S_silent + 2)

A page's own precision is p_s at its rate: false signals come to all pages of a site alike, true ones as often
as the page changes, so its odds are p_s / (1 - p_s) times the page's rate over the site's mean
(`precision_at`). It stands for p_s in z, in S_true, in b_s and in k.

rho, because true signals cannot outnumber changes; the honesty of a source, and r0, are learned over all sites
where rho is above .3: (sum S_true + 1.4) / (sum S_all rho + 2). A page's changes then grow by
max(1, (alpha A + sum_s n_s p_s) / z).

A source with p_s below .1 is ignored in values and rates: its signals outnumber changes so much that
they say nothing (b_s of each is too small against the noise of their number), but its errors would add up in k.
Its EM goes on beside the others, with its signals added to z, so that a source that mends its ways comes back.
Measured with a lastmod set at each build, 1x: .825; without this rule .816, without any signals .823.

The crawl value knows one kind of signal. Several are one of the same drift of staleness and the same rate of
changes told: gamma b = sum gamma_s b_s and gamma (1 - e^-b) = sum gamma_s p_s, so (1 - e^-b)/b = r rate / sum
gamma_s b_s, and a page's number of signals is sum_s n_s b_s / b.

A trusted source (most of its signals true, some seen to be) also watches the pages that are not crawled: since its
last crawl a page had the changes that its signals stand for, in recall times the time. So a page that is told to
change again and again is fast, and one that a good sitemap is silent about is slow, before any crawl says so. Honest
signals at .3x: .717, without this .692 (with the pages' true rates .823); at 1x .981 and .979; mixed ones .862 and .856.

What a hostile source can do is bounded: of an interval at most `COUNTED_MAX` signals of a source count. Where
signals tell of more changes than three standard deviations above the rate's, k and S_true gain what the rate
alone explains, or at most 16 from a source trusted by then (a burst of signals that met a change once made
all rates of a site sixfold). b_s is at most `WEIGHT_MAX`; and all of it stays on its own site, but for
its share in the honesty of its source.

Cython pure-Python mode (see `value_kernel.py`); attributes in `signal_quality.pxd`.
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log1p, sqrt

from crawler.freshness.columns import Column, rows_of

if cython.compiled:
    from cython.cimports.crawler.freshness.change_rates import gain_of
else:
    from crawler.freshness.change_rates import gain_of

_SOURCES = cython.declare(cython.Py_ssize_t, 8)
SOURCES = 8
_FADING = cython.declare(cython.double, 0.99)  # what one crawl of a site leaves of what was known
_PRECISION_PRIOR_MAX = cython.declare(cython.double, 0.98)
_PRECISION_USED_MIN = cython.declare(cython.double, 0.1)
_PLAUSIBLE = cython.declare(cython.double, 0.3)  # rho above which a site tells of its sources' honesty
_HONEST = cython.declare(cython.double, 1.4)  # pseudo signals before anything is known: .7 of 2 are true
_CLAIMED = cython.declare(cython.double, 2.0)
_RECALL_WEIGHT = cython.declare(cython.double, 2.0)
_PRECISION_MAX = cython.declare(cython.double, 0.999999)
_WEIGHT_MAX = cython.declare(cython.double, 13.8)  # -ln(1 - _PRECISION_MAX)
_HEARD = cython.declare(cython.double, 1e-6)  # signals: a source of which no crawl was judged yet
_TRUSTED_PRECISION = cython.declare(cython.double, 0.5)
_TRUSTED_SIGNALS = cython.declare(cython.double, 5.0)  # true ones seen
_TRUSTED_CHANGES = cython.declare(cython.double, 16.0)  # in an interval, told by sources of that precision
_COUNTED_MAX = cython.declare(cython.double, 255.0)
WEIGHT_MAX, COUNTED_MAX = float(_WEIGHT_MAX), float(_COUNTED_MAX)


@cython.cclass
class SignalQuality:
    """Precision by site and source, recall by site; sites are numbered as they are added."""

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8", SOURCES) for _ in range(6)] + [Column("f8") for _ in range(5)]
        self._grow()
        self.announced_by = rows_of(np.zeros(SOURCES))
        self.claimed_by = rows_of(np.zeros(SOURCES))
        self.unannounced_by = rows_of(np.zeros(SOURCES))

    @cython.ccall
    def add_site(self) -> cython.Py_ssize_t:
        """The number of a new site, from which nothing was heard."""
        if self.size == self.means.shape[0]:
            self._grow()
        self.size += 1
        self._estimate(self.size - 1)
        return self.size - 1

    @cython.cfunc
    def _grow(self) -> cython.void:
        self.true_signals = self.all_signals = self.precisions = np.zeros((0, SOURCES))  # lets go of the maps
        self.announced = self.claimed = self.unannounced = np.zeros((0, SOURCES))
        self.silent_changes = self.watched = self.means = self.weights = self.recalls = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.true_signals, self.all_signals, self.precisions = columns[0], columns[1], columns[2]
        self.announced, self.claimed, self.unannounced = columns[3], columns[4], columns[5]
        self.silent_changes, self.watched = columns[6], columns[7]
        self.means, self.weights, self.recalls = columns[8], columns[9], columns[10]

    @cython.ccall
    @cython.exceptval(check=False)
    def note_signal(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.void:
        """A signal came: its source counts from now on, with the precision believed before any crawl."""
        if self.all_signals[site, source] <= 0.0:
            self.all_signals[site, source] = _HEARD
            self._estimate(site)

    @cython.ccall
    @cython.exceptval(check=False)
    def heard(self, site: cython.Py_ssize_t) -> cython.bint:
        """Whether any signal of the site ever came."""
        source: cython.Py_ssize_t
        every: cython.double = 0.0
        for source in range(_SOURCES):
            every += self.all_signals[site, source]
        return every > 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def precision(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """p_s: the probability that a signal of this source is true."""
        if self.all_signals[site, source] > 0.0:
            return self.precisions[site, source]
        return self.honesty(source)

    @cython.ccall
    @cython.exceptval(check=False)
    def used(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Whether the source's signals count."""
        return self.all_signals[site, source] > 0.0 and self.precisions[site, source] >= _PRECISION_USED_MIN

    @cython.ccall
    @cython.exceptval(check=False)
    def weight(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """b_s: the staleness one signal adds; 0 of a source that is ignored."""
        return -log1p(-self.precisions[site, source]) if self.used(site, source) else 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def recall(self, site: cython.Py_ssize_t) -> cython.double:
        """r: the share of changes that are told by any source that counts; 0 if there is none."""
        return self.recalls[site]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _recalled(self, site: cython.Py_ssize_t) -> cython.double:
        """r from the sums."""
        source: cython.Py_ssize_t
        announced: cython.double = 0.0
        prior: cython.double = -1.0
        for source in range(_SOURCES):
            if self.used(site, source):
                announced += self.true_signals[site, source]
                prior = max(prior, self._recall_prior(source))
        if prior < 0.0:
            return 0.0
        return (announced + _RECALL_WEIGHT * prior) / (announced + self.silent_changes[site] + _RECALL_WEIGHT)

    @cython.ccall
    @cython.exceptval(check=False)
    def honesty(self, source: cython.Py_ssize_t) -> cython.double:
        """The share of the signals of this source that could be true which were, over all sites; .7 at first."""
        return min(
            (self.announced_by[source] + _HONEST) / (self.claimed_by[source] + _CLAIMED), _PRECISION_PRIOR_MAX
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _recall_prior(self, source: cython.Py_ssize_t) -> cython.double:
        """r0 of sites with this source."""
        announced: cython.double = self.announced_by[source]
        return (announced + 0.5) / (announced + self.unannounced_by[source] + 1.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def pooled_weight(self, site: cython.Py_ssize_t) -> cython.double:
        """b of the one kind of signal that stands for all sources; 0 while none was heard."""
        return self.weights[site]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _own_precision(
        self, site: cython.Py_ssize_t, source: cython.Py_ssize_t, rate: cython.double
    ) -> cython.double:
        """The precision of a source's signals of a page of this change rate."""
        return precision_at(self.precisions[site, source], rate, self.means[site])

    @cython.ccall
    @cython.exceptval(check=False)
    def staleness(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """sum_s n_s b_s of signals counted by source, (SOURCES,)."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                total += min(counts[source], _COUNTED_MAX) * self.weight(site, source)
        return total

    @cython.ccall
    @cython.exceptval(check=False)
    def signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """The number of signals, in units of `pooled_weight`, that the value counts."""
        staleness: cython.double = self.staleness(site, counts)
        if staleness <= 0.0:
            return 0.0
        pooled: cython.double = self.weights[site]
        return staleness / pooled if pooled > 0.0 else 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def observe(
        self,
        site: cython.Py_ssize_t,
        counts: cython.double[::1],
        rate: cython.double,
        clock: cython.double,
        changed: cython.bint,
    ) -> cython.double:
        """Learn from a crawl after the time `clock` and these signals; return the changes to add to k (0: unchanged).

        `rate` is the page's change rate before this crawl.
        """
        source: cython.Py_ssize_t
        n: cython.double
        heard: cython.bint = False
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                heard = True
                self.note_signal(site, source)
        silent: cython.double = (1.0 - self.recall(site)) * rate * clock
        announced: cython.double = 0.0
        trusted: cython.bint = True
        x: cython.double = silent
        for source in range(_SOURCES):
            n = min(counts[source], _COUNTED_MAX)
            if n > 0.0 and self.used(site, source):
                own: cython.double = self._own_precision(site, source, rate)
                announced += n * own
                trusted = trusted and self._trusted(site, source)
                x -= n * log1p(-own)
        gain: cython.double = 0.0
        if changed:
            gain = gain_of(x) * (silent + announced) / x if x > 0.0 else 1.0
            gain = _believable(max(1.0, gain), rate * clock, trusted)
        if not heard and not self.heard(site):
            return gain
        self.watched[site] = self.watched[site] * _FADING + clock
        self.silent_changes[site] *= _FADING
        if changed:
            self.silent_changes[site] += gain_of(x) * silent / x if x > 0.0 else 1.0
        for source in range(_SOURCES):
            self.true_signals[site, source] *= _FADING
            self.all_signals[site, source] *= _FADING
            n = min(counts[source], _COUNTED_MAX)
            if n > 0.0:
                p: cython.double = self._own_precision(site, source, rate)
                with_it: cython.double = x if self.used(site, source) else x - n * log1p(-p)
                self.all_signals[site, source] += n
                if changed:
                    believed: cython.bint = self._trusted(site, source)
                    true: cython.double = _believable(n * p / -expm1(-with_it), rate * clock, believed)
                    self.true_signals[site, source] += min(n, true)
        self._estimate(site)
        return gain

    @cython.ccall
    @cython.exceptval(check=False)
    def renew(self, site: cython.Py_ssize_t, mean_rate: cython.double) -> cython.void:
        """Take the site's mean change rate, and its part in what is known of its sources over all sites."""
        source: cython.Py_ssize_t
        self.means[site] = mean_rate
        for source in range(_SOURCES):
            plausible: cython.double = self._plausible(site, source)
            counts: cython.bint = plausible > _PLAUSIBLE and self.all_signals[site, source] > 0.0
            announced: cython.double = self.true_signals[site, source] if counts else 0.0
            claimed: cython.double = self.all_signals[site, source] * plausible if counts else 0.0
            unannounced: cython.double = self.silent_changes[site] if counts else 0.0
            self.announced_by[source] += announced - self.announced[site, source]
            self.claimed_by[source] += claimed - self.claimed[site, source]
            self.unannounced_by[source] += unannounced - self.unannounced[site, source]
            self.announced[site, source] = announced
            self.claimed[site, source] = claimed
            self.unannounced[site, source] = unannounced
        self._estimate(site)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _trusted(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Whether some signals of the source were seen to be true, and most are."""
        return (
            self.precisions[site, source] >= _TRUSTED_PRECISION
            and self.true_signals[site, source] >= _TRUSTED_SIGNALS
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def share_watched(self, site: cython.Py_ssize_t) -> cython.double:
        """The share of a page's time that trusted sources watch: the recall; 0 where there is none."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.all_signals[site, source] > 0.0 and self._trusted(site, source):
                return self.recalls[site]
        return 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def told_changes(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """The changes that signals of trusted sources stand for."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0 and self._trusted(site, source):
                total += counts[source] * self.precisions[site, source]
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def _plausible(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """rho: the share of the source's signals that can be true, for there are no more changes."""
        every: cython.double = self.all_signals[site, source]
        changes: cython.double = self.means[site] * self.watched[site]
        return min(1.0, changes / every) if every > 0.0 and changes > 0.0 else 1.0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _estimate(self, site: cython.Py_ssize_t) -> cython.void:
        """Precisions, b and r from the sums, of sources that were heard."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.all_signals[site, source] <= 0.0:
                continue
            prior: cython.double = self.honesty(source) * self._plausible(site, source)
            p: cython.double = (self.true_signals[site, source] + 1.0) / (
                self.all_signals[site, source] + 1.0 / prior
            )
            self.precisions[site, source] = min(p, _PRECISION_MAX)
        self._pool(site)
        self.recalls[site] = self._recalled(site)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _pool(self, site: cython.Py_ssize_t) -> cython.void:
        """b of one kind of signal: (1 - e^-b)/b = sum_s w_s / sum_s w_s b_s / p_s, w_s the shares in what is told."""
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
        self.weights[site] = b

    def sums_of(self, site: int) -> np.ndarray:
        """What is stored of a site: S_true by source, S_all by source, S_silent, time watched, (2 SOURCES + 2,)."""
        rest = [self.silent_changes[site], self.watched[site]]
        return np.concatenate([self.true_signals[site], self.all_signals[site], rest])

    def restore(self, site: int, sums: np.ndarray) -> None:
        """Put stored sums back."""
        for source in range(SOURCES):
            self.true_signals[site, source] = sums[source]
            self.all_signals[site, source] = sums[SOURCES + source]
        self.silent_changes[site] = sums[2 * SOURCES]
        self.watched[site] = sums[2 * SOURCES + 1]
        self._estimate(site)

    def _check(self) -> None:
        true, every = np.asarray(self.true_signals)[: self.size], np.asarray(self.all_signals)[: self.size]
        assert (true >= 0.0).all() and (true <= every * (1.0 + 1e-9) + 1e-12).all()
        precision = np.asarray(self.precisions)[: self.size]
        assert ((precision > 0.0) & (precision < 1.0))[every > 0.0].all()
        for site in range(self.size):
            assert 0.0 <= self.recall(site) < 1.0

    def __repr__(self) -> str:
        return f"SignalQuality({self.size} sites, {sum(map(self.heard, range(self.size)))} of them heard)"


@cython.ccall
@cython.exceptval(check=False)
def precision_at(precision: cython.double, rate: cython.double, mean_rate: cython.double) -> cython.double:
    """The precision of signals of a page of this rate, where that of its site is `precision`.

    False signals come to all pages of a site alike, true ones as often as a page
    changes: so the odds of a signal are as the page's rate.
    """
    true: cython.double = precision * rate
    every: cython.double = true + (1.0 - precision) * mean_rate
    return min(true / every, _PRECISION_MAX) if every > 0.0 else precision


@cython.cfunc
@cython.exceptval(check=False)
def _weight_of_ratio(ratio: cython.double) -> cython.double:
    """The b > 0 with (1 - e^-b) / b = ratio; Newton, from below, on a convex falling function."""
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


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _believable(changes: cython.double, x: cython.double, trusted: cython.bint) -> cython.double:
    """`changes` in an interval of mean x that had one, unless they are far too many for who tells them."""
    if changes <= 1.0 + x + 3.0 * sqrt(x):
        return changes
    return min(changes, max(_TRUSTED_CHANGES, gain_of(x))) if trusted else gain_of(x)
