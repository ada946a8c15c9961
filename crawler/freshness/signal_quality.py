# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns the quality of change signals, while the crawl runs.

A source is one kind of change signal: sitemap lastmod, feed, IndexNow, WebSub, ... The precision p_s of the
source s is the share of its signals that are true. The recall r is the share of all changes that are
announced by a signal. A page's staleness is alpha A + sum_s n_s b_s, with alpha = (1 - r) rate and
b_s = -ln(1 - p_s). A is the time since the page's last crawl, measured by the neighbourhood clock
(`learning.py`), and n_s is the number of signals of source s in that time. All pages of a site share the
precisions and the recall, because a single page has too few crawls to expose a source of false signals.

This module learns the recall of each site, and passes what a crawl teaches to the modules for precisions
(`source_precision.py`), false signals (`false_signals.py`) and kinds of pages (`page_kinds.py`).

Precisions and recall are learned by EM, one step per crawl. Each crawl of a site first multiplies the site's
sums S by .99, and then adds to them:

    z = 1 - exp(-(alpha A + sum_s n_s b_s))          the probability of a change
    if changed:  S_true[s] += n_s p_s / z            true signals
                 S_silent  += q alpha A / z          changes without a signal, q = exp(-sum_s n_s b_s)
    always:      S_all[s]  += n_s
                 S_exposed += q rate A               changes expected, with or without a signal

    1 - r   = (S_silent + 2 (1 - r0)) / (S_exposed + 2)

Here q is the probability that no signal was true, and r0 is the prior of the recall. Because of the factor q,
a change that was probably announced by a signal hardly affects r. Without the factor q, each crawl that finds
a change announced by a signal would add alpha A to S_silent and rate A to S_exposed. The ratio of alpha A to
rate A is 1 - r, so r would keep its initial value. In a measurement without q, on sites whose lastmod shows
every change, r was estimated as .06 to .85, and crawls were spent on pages for which the sitemap gave no
signal. The silence about a page without a signal is evidence that the page has not changed: its `rate` is
computed as if the page had been observed for the share r of the time, without a change. The sums from which r
is computed are multiplied by 1 - .01 q per crawl instead of .99.

A crawl that finds a change adds to k the expected number of changes since the last crawl, which need not be
an integer: max(1, (alpha A + sum_s n_s p_s) / z).

The pages of a site are of two kinds: good pages, and bad pages, whose signals are mostly worthless
(`page_kinds.py`). The sums above are those of the good pages. w is the probability that a page is good. So a
crawl of a page is added to the sums of the good pages with the weight w. Each kind has its own sigma, the
number of signals per change. The sigma of the good pages is estimated as the number of signals of used
sources per change found: sum_s S_all[s] / S_changes.

`freshness/README.md`, "Learning", describes how trusted sources observe pages between crawls, and how the
influence of a hostile source is bounded. Without the bound on the number of changes (`believable` in
`page_kinds.py`), a burst of signals that coincided with one change multiplied all rates of a site by six.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.change_rates import gain_of, hazard_of
from cython.cimports.crawler.freshness.false_signals import FalseSignals
from cython.cimports.crawler.freshness.page_kinds import (
    CHANGES_WEIGHT,
    FADING,
    RECALL_WEIGHT,
    PageKinds,
    believable,
)
from cython.cimports.crawler.freshness.source_precision import SourcePrecision
from cython.cimports.libc.math import exp

from crawler.change_signals import SOURCES
from crawler.freshness.columns import Column

_SOURCES = cython.declare(cython.Py_ssize_t, SOURCES)


@cython.cclass
class SignalQuality:
    """The quality of signals by site. Sites are numbered as they are added.

    `recalls` holds r by site, the share of changes that the used sources signal; 0 if no source is used.
    `weights` holds b by site, the weight of a signal if all sources are taken as one; 0 before the first signal.
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(5)]
        self._grow()
        self.kinds = PageKinds()
        self.false_signals = FalseSignals()
        self.sources = SourcePrecision(self.false_signals)

    def add_site(self) -> cython.Py_ssize_t:
        """Add a site without signals; return its number."""
        if self.size == self.weights.shape[0]:
            self._grow()
        self.size += 1
        self.kinds.add_site()
        self.false_signals.add_site()
        self.sources.add_site()
        self._estimate(self.size - 1)
        return self.size - 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.silent_changes = self.exposed = self.changes = self.weights = self.recalls = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.silent_changes, self.exposed, self.changes, self.weights, self.recalls = columns

    def note_signal(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.void:
        """Record a signal. From now on, the signal's source is used, at first with the prior precision."""
        if self.sources.note(site, source):
            self._estimate(site)

    def per_change(self, site: cython.Py_ssize_t) -> cython.double:
        """Return sigma, the number of signals of the used sources per change."""
        total: cython.double = self.sources.used_signals(site)
        return total / (self.changes[site] + CHANGES_WEIGHT) if total > 0.0 else 0.0

    def recall_of(self, site: cython.Py_ssize_t, w: cython.double) -> cython.double:
        """Return the recall of a page that is good with the probability `w`."""
        return w * self.recalls[site] + (1.0 - w) * self.kinds.bad_recalls[site]

    def share_watched(self, site: cython.Py_ssize_t) -> cython.double:
        """Return the recall of the site if one of its sources is trusted, else 0."""
        return self.recalls[site] if self.sources.watches(site) else 0.0

    def interim_changes(
        self, site: cython.Py_ssize_t, counts: cython.double[::1], trust: cython.double
    ) -> cython.double:
        """Return the increase of k that the signals since the last crawl cause; it holds until the next crawl."""
        counted: cython.double = self.false_signals.counted[site]
        changes: cython.double = (1.0 - counted) * self.sources.announced_changes(site, counts)
        return self.kinds.reliability(site, trust) * changes + counted * self.sources.counted_signals(
            site, counts
        )

    def interim_watched(
        self, site: cython.Py_ssize_t, trust: cython.double, silent: cython.bint = False
    ) -> cython.double:
        """Return the speed at which T grows until the next crawl: its increase per unit of time.

        `silent` means that the page had no signal. If it is False, the result is 0 on sites where
        `interim_changes` is 0 for all counts.
        """
        counted: cython.double = self.false_signals.counted[site]
        w: cython.double = self.kinds.reliability(site, trust)
        watched: cython.double = counted * (
            w * self.per_change(site) + (1.0 - w) * self.kinds.per_bad_change(site)
        )
        return watched + (1.0 - counted) * (
            self.recall_of(site, w) if silent else w * self.share_watched(site)
        )

    def signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return the number of signals for the crawl value, in units of `weights`."""
        staleness: cython.double = self.sources.staleness(site, counts)
        if staleness <= 0.0:
            return 0.0
        pooled: cython.double = self.weights[site]
        return staleness / pooled if pooled > 0.0 else 0.0

    def observe(
        self,
        site: cython.Py_ssize_t,
        counts: cython.double[::1],
        rate: cython.double,
        clock: cython.double,
        changed: cython.bint,
        trust: cython.double = 0.0,
        evidence: cython.double = 0.0,
        bad_rate: cython.double = -1.0,
        shape: cython.double = 1e12,
    ) -> cython.double:
        """Learn from a crawl. `clock` is the time since the page's last crawl, `counts` the signals in that time.

        Return the increase of k, or 0 without a change.

        `rate` is the change rate that the page had before this crawl if it is good, and `bad_rate` if it is
        bad. If the page has no signal, the rates already take this silence into account. `shape` is that of the
        Gamma distribution of the rate; without it, the rate is taken as known. `evidence` says, in
        nats, how much better the crawl fits a good page. `trust` is the page's trust before the crawl.
        The attribute `kinds.trust` is set to the page's new trust.
        """
        w: cython.double = self.kinds.reliability(site, trust)
        heard: cython.bint = self._note_sources(site, counts)
        expected: cython.double = rate * clock
        silent: cython.double = (1.0 - self.recalls[site]) * expected
        hazard: cython.double = hazard_of(silent, shape)
        x: cython.double = hazard + self.sources.explain(site, counts, rate)
        gain: cython.double = 0.0
        if changed:
            gain = believable(_changes_found(silent, self.sources.said, x), expected, self.sources.believed)
        known: cython.bint = heard or self.sources.heard(site)
        good: cython.double = 1.0
        if known:
            good = self.kinds.judge_page(site, evidence, trust)
        else:
            self.kinds.trust = trust
        bad_gain: cython.double = self.kinds.observe(
            site,
            1.0 - good,
            self.sources.counted_signals(site, counts) if heard else 0.0,
            rate if bad_rate < 0.0 else bad_rate,
            clock,
            changed,
            self.sources.believed,
            shape,
        )
        if known:
            faded: cython.double = 1.0 - (1.0 - FADING) * good
            self.changes[site] = self.changes[site] * faded + good * gain
            self._add_silence(site, good * exp(hazard - x), silent, x, expected, changed)
            self.sources.observe(site, counts, good, rate, clock, x, expected, changed)
            self._estimate(site)
        return w * gain + (1.0 - w) * bad_gain

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _note_sources(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.bint:
        """Record which sources have sent signals. Return whether any has."""
        source: cython.Py_ssize_t
        heard: cython.bint = False
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                heard = True
                self.note_signal(site, source)
        return heard

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _add_silence(
        self,
        site: cython.Py_ssize_t,
        unexplained: cython.double,
        silent: cython.double,
        x: cython.double,
        expected: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Add a crawl to S_silent and S_exposed. `unexplained` is its weight w q, where q = exp(-sum_s n_s b_s)."""
        kept: cython.double = 1.0 - (1.0 - FADING) * unexplained
        self.exposed[site] = self.exposed[site] * kept + unexplained * expected
        self.silent_changes[site] *= kept
        if changed:
            self.silent_changes[site] += unexplained * (gain_of(x) * silent / x if x > 0.0 else 1.0)

    def renew(self, site: cython.Py_ssize_t, mean_rate: cython.double) -> cython.void:
        """Set the site's mean change rate, and update the site's part in the sums over all sites."""
        self.false_signals.means[site] = mean_rate
        self.sources.renew(site, self.silent_changes[site], self.exposed[site])
        self._estimate(site)

    def _estimate(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the precisions, b and r from the sums."""
        self.sources.estimate(site)
        self.weights[site] = self.sources.pooled_weight(site)
        self.recalls[site] = self._recalled(site)
        self.kinds.estimate(site, self.weights[site] > 0.0)

    def forget(self, site: cython.Py_ssize_t, ignored: cython.bint = False) -> cython.void:
        """Forget what was learned of the site's signals. Its sources stay known, and are ignored if `ignored` is True."""
        self.silent_changes[site] = self.exposed[site] = self.changes[site] = 0.0
        self.false_signals.set_score(site, 0.0)
        self.kinds.forget(site)
        self.sources.forget(site, ignored)
        self._estimate(site)

    def _recalled(self, site: cython.Py_ssize_t) -> cython.double:
        """Return r, computed from the sums."""
        prior: cython.double = self.sources.recall_prior(site)
        if prior < 0.0:
            return 0.0
        silent: cython.double = (self.silent_changes[site] + RECALL_WEIGHT * (1.0 - prior)) / (
            self.exposed[site] + RECALL_WEIGHT
        )
        return max(1.0 - silent, 0.0)

    def sums_of(self, site: int) -> np.ndarray:
        """Return a site's sums, shape (2 SOURCES + 13,).

        They are S_true and S_all by source, S_silent, time watched, S_exposed, two counts of pages, S_changes,
        and the score of the model that counts signals. Then follow S_true, S_all, S_changes, S_silent and
        S_exposed of the bad pages, and the score of the two kinds.
        """
        kinds = self.kinds.sums_of(site)
        rest = [self.silent_changes[site], self.sources.watched[site], self.exposed[site], *kinds[:2]]
        rest += [self.changes[site], self.false_signals.scores[site], *kinds[2:]]
        return np.concatenate([self.sources.true_signals[site], self.sources.all_signals[site], rest])

    def restore(self, site: int, sums: np.ndarray) -> None:
        """Restore stored sums."""
        for source in range(SOURCES):
            self.sources.true_signals[site, source] = sums[source]
            self.sources.all_signals[site, source] = sums[SOURCES + source]
        self.silent_changes[site] = sums[2 * SOURCES]
        self.sources.watched[site] = sums[2 * SOURCES + 1]
        self.exposed[site] = sums[2 * SOURCES + 2]
        self.changes[site] = sums[2 * SOURCES + 5]
        self.false_signals.set_score(site, sums[2 * SOURCES + 6])
        self.kinds.restore(site, [*sums[2 * SOURCES + 3 : 2 * SOURCES + 5], *sums[2 * SOURCES + 7 :]])
        self._estimate(site)

    def _check(self) -> None:
        for site in range(self.size):
            assert 0.0 <= self.recalls[site] < 1.0
        self.kinds._check()
        self.false_signals._check()
        self.sources._check()

    def __repr__(self) -> str:
        heard = sum(bool(self.sources.heard(site)) for site in range(self.size))
        return f"SignalQuality({self.size} sites, {heard} of them heard)"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _changes_found(silent: cython.double, said: cython.double, x: cython.double) -> cython.double:
    """Return max(1, (alpha A + sum_s n_s p_s) / z), the expected number of changes of a page that has changed.

    `silent` is alpha A, `said` is sum_s n_s p_s, and `x` is the page's staleness, so z = 1 - exp(-x).
    """
    return max(1.0, gain_of(x) * (silent + said) / x if x > 0.0 else 1.0)
