# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns the quality of change signals by site and source, while the crawl runs.

A source is one kind of change signal: sitemap lastmod, feed, IndexNow, WebSub, ... The precision p_s of the
source s is the share of its signals that are true. The recall r is the share of all changes that are
announced by a signal. A page's staleness is alpha A + sum_s n_s b_s, with alpha = (1 - r) rate and
b_s = -ln(1 - p_s). A is the time since the page's last crawl, measured by the neighbourhood clock
(`learning.py`), and n_s is the number of signals of source s in that time. All pages of a site share the
precisions and the recall, because a single page has too few crawls to expose a source of false signals.
Precisions and recall are learned by EM, one step per crawl. Each crawl of a site first multiplies the site's
sums S by .99, and then adds to them:

    z = 1 - exp(-(alpha A + sum_s n_s b_s))          the probability of a change
    if changed:  S_true[s] += n_s p_s / z            true signals
                 S_silent  += q alpha A / z          changes without a signal, q = exp(-sum_s n_s b_s)
    always:      S_all[s]  += n_s
                 S_exposed += q rate A               changes expected, with or without a signal

    p_s     = (S_true[s] + 3) / (S_all[s] + 3/p0),   p0 = honesty[s] min(1, 3 rho)
    rho     = min(1, rate of changes / rate of signals)
    1 - r   = (S_silent + 2 (1 - r0)) / (S_exposed + 2)

Here q is the probability that no signal was true. Because of the factor q, a change that was probably
announced by a signal hardly affects r. Without it, each crawl that finds such a change would add alpha A to
S_silent and rate A to S_exposed. The ratio of these numbers is 1 - r, so r would keep its initial value. In a
measurement without q, on sites whose lastmod shows every change, r was estimated as .06 to .85, and crawls
were spent on pages for which the sitemap gave no signal. The silence about a page without a signal is
evidence that the page has not changed: its `rate` is computed as if the page had been observed for the share
r of the time, without a change. The sums from which r is computed are multiplied by 1 - .01 q per crawl
instead of .99.

The precision of a source's signals also depends on the page's rate. False signals are equally frequent on all
pages of a site, and true signals are as frequent as the page's changes. So the odds that a signal is true are
p_s / (1 - p_s) times the page's rate divided by the site's mean (`precision_at`). This precision replaces p_s
in z, in S_true, in b_s and in k, the number of changes found on the page. (The exception are sites where false
signals are as frequent as changes; see below.)

The priors are p0 for a precision and r0 for the recall. The factor rho in p0 is needed because there cannot
be more true signals than changes. At most the share rho of the signals can be true. The share among the signals
of the good pages may be larger, so p0 has 3 rho. The honesty of a source
is the number of true signals divided by this maximum: (sum S_true + 1.4) / (sum S_all rho + 2), summed over
all sites where rho is above .3.

A crawl that finds a change adds to k the expected number of changes since the last crawl, which need not be
an integer: max(1, (alpha A + sum_s n_s p_s) / z).

A source with p_s below .1 is ignored in values and rates. Its signals outnumber the changes so much that they
carry no information: the b_s of a signal is small compared with the noise in the number of signals. If its
many signals were used, each would add a small error to k. EM continues for this source as for the others,
and its signals are added to z. So the source is used again if it improves.

The pages of a site are of two kinds: good pages, and bad pages, whose signals are mostly worthless
(`page_kinds.py`). The sums above are those of the good pages. w is the probability that a page is good. A
crawl is added to these sums with the weight w.

The crawl value can use only one kind of signal. So all sources are combined into one kind with the signal
rate gamma and the weight b. Let gamma_s be the number of signals of source s in a unit of time. In the same
time, the combined kind adds as much staleness as all sources together, so gamma b = sum gamma_s b_s. It also
announces as many changes as all sources do, so gamma (1 - e^-b) = sum gamma_s p_s = r rate. So b follows from
(1 - e^-b)/b = r rate / sum gamma_s b_s, and a page's number of signals is sum_s n_s b_s / b.

A source is trusted if most of its signals are true and several were confirmed. A trusted source also provides
observations between crawls, from which the rate of a page is estimated as if it had been crawled more often.
Each of its signals since the last crawl counts as a change found, in proportion to its precision. The elapsed
time multiplied by the recall counts as time during which the page was observed. So a page with many signals
is estimated to change fast even before any crawl confirms this. A page for which a good sitemap gives no
signal is estimated to change slowly.

The number of signals can be evidence of the rate, even if most signals are false. On some sites, false
signals are equally frequent on all pages, as described above. On others, a page with many changes also has
many false signals, for example because the source reports every small edit. Suppose that every page has phi
false signals per change, and let sigma = r + phi. Then a page with the change rate d has sigma d signals and
(1 - r) d silent changes in a unit of time. By the thinning of Poisson processes (Kingman 1993), signals and
silent changes are independent. So n signals in the time tau have the likelihood

    L(d) = d^n exp(-sigma d tau) P[z | d],   P[no change | d] = exp(-(1 - r) d A) prod_s (1 - p_s)^n_s

A Gamma distribution of d with the parameters K and B becomes one with K + n and B + sigma tau. The result z of
the crawl is then used as in `change_rates.py` (`ChangeRates.match`). sigma is estimated as the number of
signals of used sources per change found: sum_s S_all[s] / S_changes. Each kind of page has its own sigma. p_s
is the same for all pages of a kind.

Which of the two models is right is learned for each site, from what crawls find, not from the signals:

    L = .998 L + ln P[z | false signals as frequent as changes] - ln P[z | false signals equally frequent]
    weight of the first model = tanh((L - 1) / 2), and 0 if L < 1

So the number of signals counts only after it has improved the predictions of changes. k, T and the precisions
are those of the two models, averaged with this weight. On simulated webs with two false signals per change,
this model raised the gain of the schedule over uniform refreshing from .84 to .96. A lying sitemap gives
pages with many changes no more signals than other pages. On a site with such a sitemap, the weight is 0.

The influence of a hostile source is bounded. At most `COUNTED_MAX` signals of a source are counted per
interval. The number of changes in an interval can be estimated from the signals in it, and predicted from the
page's rate. The estimate is implausible if it exceeds the prediction by more than three standard deviations
plus one. If it is implausible, k and S_true grow only by the number of changes that is expected of a page with
at least one change. If the source was already trusted, they may grow by up to 16. Without this bound, a burst
of signals that coincided with one change multiplied all rates of a site by six. b_s is at most `WEIGHT_MAX`.
Finally, what a source reports on one site influences only this site, except through the honesty of the source,
to which every site contributes.

The file is Cython in pure-Python mode (see `value_kernel.py`), with attributes declared in
`signal_quality.pxd`.
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log, log1p, tanh

from crawler.change_signals import SOURCES
from crawler.freshness.columns import Column, rows_of

if cython.compiled:
    from cython.cimports.crawler.freshness.change_rates import gain_of
    from cython.cimports.crawler.freshness.page_kinds import (
        CHANGES_WEIGHT,
        FADING,
        PRECISION_MAX,
        RECALL_WEIGHT,
        SCORE_KEPT,
        SCORE_MAX,
        PageKinds,
        believable,
    )
else:
    from crawler.freshness.change_rates import gain_of
    from crawler.freshness.page_kinds import (
        CHANGES_WEIGHT,
        FADING,
        PRECISION_MAX,
        RECALL_WEIGHT,
        SCORE_KEPT,
        SCORE_MAX,
        PageKinds,
        believable,
    )

_SOURCES = cython.declare(cython.Py_ssize_t, SOURCES)
_PRECISION_PRIOR_MAX = cython.declare(cython.double, 0.98)
_PRECISION_USED_MIN = cython.declare(cython.double, 0.1)
# the honesty of sources is learned only on sites whose rho is higher than this
_PLAUSIBLE = cython.declare(cython.double, 0.3)
# The prior has two pseudo signals, of which 1.4 (70 %) are true.
_HONEST = cython.declare(cython.double, 1.4)
_CLAIMED = cython.declare(cython.double, 2.0)
_WEIGHT_MAX = cython.declare(cython.double, 13.8)  # -ln(1 - PRECISION_MAX)
# the weighted number of signals with which a source begins when it sends its first signal
_HEARD = cython.declare(cython.double, 1e-6)
_TRUSTED_PRECISION = cython.declare(cython.double, 0.5)
# after this number of true signals, a source may be trusted
_TRUSTED_SIGNALS = cython.declare(cython.double, 5.0)
_COUNTED_MAX = cython.declare(cython.double, 255.0)
# the prior of the precision of good pages has this number of true pseudo signals
_TRUE_WEIGHT = cython.declare(cython.double, 3.0)
# If all true signals come from good pages, the share of true signals on these pages can exceed rho by this
# factor.
_CONCENTRATED = cython.declare(cython.double, 3.0)
# the number of signals is evidence only above this score
_SCORE_NEEDED = cython.declare(cython.double, 1.0)
_CHANCE_MIN = cython.declare(cython.double, 1e-6)  # predictions stay at least this far from 0 and 1
_SURE = cython.declare(cython.double, 1e-9)
WEIGHT_MAX, COUNTED_MAX = float(_WEIGHT_MAX), float(_COUNTED_MAX)


@cython.cclass
class SignalQuality:
    """The precision of signals by site and source, and the recall by site. Sites are numbered as they are added.

    `recalls` holds r by site, the share of changes that the used sources signal; 0 if no source is used.
    `weights` holds b by site, the weight of a signal if all sources are taken as one; 0 before the first signal.
    """

    def __init__(self) -> None:
        self.size = 0
        self.said, self.believed = 0.0, True
        self._columns = [Column("f8", SOURCES) for _ in range(7)] + [Column("f8") for _ in range(9)]
        self._grow()
        self.kinds = PageKinds()
        self.announced_by = rows_of(np.zeros(SOURCES))
        self.claimed_by = rows_of(np.zeros(SOURCES))
        self.unannounced_by = rows_of(np.zeros(SOURCES))
        self.exposed_by = rows_of(np.zeros(SOURCES))

    @cython.ccall
    def add_site(self) -> cython.Py_ssize_t:
        """Add a site without signals; return its number."""
        if self.size == self.means.shape[0]:
            self._grow()
        self.size += 1
        self.kinds.add_site()
        self._estimate(self.size - 1)
        return self.size - 1

    @cython.cfunc
    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.true_signals = self.all_signals = self.precisions = np.zeros((0, SOURCES))
        self.announced = self.claimed = self.unannounced = self.exposed_part = np.zeros((0, SOURCES))
        self.silent_changes = self.exposed = self.watched = self.means = self.weights = self.recalls = (
            np.zeros(0)
        )
        self.changes = self.scores = self.counted = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.true_signals, self.all_signals, self.precisions = columns[0], columns[1], columns[2]
        self.announced, self.claimed, self.unannounced = columns[3], columns[4], columns[5]
        self.exposed_part = columns[6]
        self.silent_changes, self.exposed, self.watched = columns[7], columns[8], columns[9]
        self.means, self.weights, self.recalls = columns[10], columns[11], columns[12]
        self.changes, self.scores, self.counted = columns[13], columns[14], columns[15]

    @cython.ccall
    @cython.exceptval(check=False)
    def note_signal(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.void:
        """Record a signal. From now on, the signal's source is used, at first with the prior precision."""
        if self.all_signals[site, source] <= 0.0:
            self.all_signals[site, source] = _HEARD
            self._estimate(site)

    @cython.ccall
    @cython.exceptval(check=False)
    def heard(self, site: cython.Py_ssize_t) -> cython.bint:
        """Return whether the site has ever had a signal."""
        source: cython.Py_ssize_t
        every: cython.double = 0.0
        for source in range(_SOURCES):
            every += self.all_signals[site, source]
        return every > 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def precision(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return p_s, the probability that a signal of this source is true."""
        if self.all_signals[site, source] > 0.0:
            return self.precisions[site, source]
        return self.honesty(source)

    @cython.ccall
    @cython.exceptval(check=False)
    def used(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Return whether the source's signals are used."""
        return self.all_signals[site, source] > 0.0 and self.precisions[site, source] >= _PRECISION_USED_MIN

    @cython.ccall
    @cython.exceptval(check=False)
    def weight(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return b_s, the staleness that one signal adds; 0 for an ignored source."""
        return -log1p(-self.precisions[site, source]) if self.used(site, source) else 0.0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _recalled(self, site: cython.Py_ssize_t) -> cython.double:
        """Return r, computed from the sums."""
        source: cython.Py_ssize_t
        prior: cython.double = -1.0  # r0, the recall of sites with these sources
        for source in range(_SOURCES):
            if self.used(site, source):
                silence: cython.double = (self.unannounced_by[source] + 0.5) / (self.exposed_by[source] + 1.0)
                prior = max(prior, 1.0 - silence, 0.0)
        if prior < 0.0:
            return 0.0
        silent: cython.double = (self.silent_changes[site] + RECALL_WEIGHT * (1.0 - prior)) / (
            self.exposed[site] + RECALL_WEIGHT
        )
        return max(1.0 - silent, 0.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def honesty(self, source: cython.Py_ssize_t) -> cython.double:
        """Return the share of true signals among this source's plausible signals on all sites.

        The honesty begins at .7.
        """
        return min(
            (self.announced_by[source] + _HONEST) / (self.claimed_by[source] + _CLAIMED), _PRECISION_PRIOR_MAX
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def precision_of(
        self, site: cython.Py_ssize_t, precision: cython.double, rate: cython.double
    ) -> cython.double:
        """Return the precision of a page's signals. `precision` is the mean of the site, and `rate` is the page's rate.

        The result is the mean of the precisions under the two models of false signals.
        """
        own: cython.double = precision_at(precision, rate, self.means[site])
        return own + self.counted[site] * (precision - own)

    @cython.ccall
    @cython.exceptval(check=False)
    def counted_signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return n, the number of signals of the used sources."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0 and self.used(site, source):
                total += min(counts[source], _COUNTED_MAX)
        return total

    @cython.ccall
    @cython.exceptval(check=False)
    def per_change(self, site: cython.Py_ssize_t) -> cython.double:
        """Return sigma, the number of signals of the used sources per change."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.used(site, source):
                total += self.all_signals[site, source]
        return total / (self.changes[site] + CHANGES_WEIGHT) if total > 0.0 else 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def recall_of(self, site: cython.Py_ssize_t, w: cython.double) -> cython.double:
        """Return the recall of a page that is good with the probability `w`."""
        return w * self.recalls[site] + (1.0 - w) * self.kinds.bad_recalls[site]

    @cython.ccall
    @cython.exceptval(check=False)
    def interim_changes(
        self, site: cython.Py_ssize_t, counts: cython.double[::1], trust: cython.double
    ) -> cython.double:
        """Return the increase of k that the signals since the last crawl cause; it holds until the next crawl."""
        counted: cython.double = self.counted[site]
        changes: cython.double = (1.0 - counted) * self.announced_changes(site, counts)
        return self.kinds.reliability(site, trust) * changes + counted * self.counted_signals(site, counts)

    @cython.ccall
    @cython.exceptval(check=False)
    def interim_watched(
        self, site: cython.Py_ssize_t, trust: cython.double, silent: cython.bint = False
    ) -> cython.double:
        """Return the speed at which T grows until the next crawl: its increase per unit of time.

        `silent` means that the page had no signal. If it is False, the result is 0 on sites where
        `interim_changes` is 0 for all counts.
        """
        counted: cython.double = self.counted[site]
        w: cython.double = self.kinds.reliability(site, trust)
        watched: cython.double = counted * (
            w * self.per_change(site) + (1.0 - w) * self.kinds.per_bad_change(site)
        )
        return watched + (1.0 - counted) * (
            self.recall_of(site, w) if silent else w * self.share_watched(site)
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def score(
        self, site: cython.Py_ssize_t, plain: cython.double, counting: cython.double, changed: cython.bint
    ) -> cython.void:
        """Update the log score of the model in which false signals are as frequent as a page's changes.

        `counting` is the probability of a change by this model, and `plain` the probability by the other model.
        """
        plain = min(max(plain, _CHANCE_MIN), 1.0 - _CHANCE_MIN)
        counting = min(max(counting, _CHANCE_MIN), 1.0 - _CHANCE_MIN)
        better: cython.double = log(counting / plain) if changed else log((1.0 - counting) / (1.0 - plain))
        self._set_score(site, SCORE_KEPT * self.scores[site] + better)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set_score(self, site: cython.Py_ssize_t, score: cython.double) -> cython.void:
        self.scores[site] = min(max(score, -SCORE_MAX), SCORE_MAX)
        self.counted[site] = max(tanh(0.5 * (self.scores[site] - _SCORE_NEEDED)), 0.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def staleness(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return sum_s n_s b_s, the staleness that a page's signals add.

        n_s, an item of `counts`, is the number of signals of the source s, and b_s is the `weight` of one signal of
        this source.
        """
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0:
                total += min(counts[source], _COUNTED_MAX) * self.weight(site, source)
        return total

    @cython.ccall
    @cython.exceptval(check=False)
    def signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return the number of signals for the crawl value, in units of `weights`."""
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
        trust: cython.double = 0.0,
        evidence: cython.double = 0.0,
        bad_rate: cython.double = -1.0,
    ) -> cython.double:
        """Learn from a crawl. `clock` is the time since the page's last crawl, `counts` the signals in that time.

        Return the increase of k, or 0 without a change.

        `rate` is the change rate that the page had before this crawl if it is good, and `bad_rate` if it is
        bad. If the page has no signal, the rates already take this silence into account. `evidence` says, in
        nats, how much better the crawl fits a good page. `trust` is the page's trust before the crawl.
        The attribute `kinds.trust` is set to the page's new trust.
        """
        w: cython.double = self.kinds.reliability(site, trust)
        heard: cython.bint = self._note_sources(site, counts)
        expected: cython.double = rate * clock
        silent: cython.double = (1.0 - self.recalls[site]) * expected
        x: cython.double = silent + self._explain(site, counts, rate)
        gain: cython.double = 0.0
        if changed:
            gain = believable(_changes_found(silent, self.said, x), expected, self.believed)
        known: cython.bint = heard or self.heard(site)
        good: cython.double = 1.0
        if known:
            good = self.kinds.judge_page(site, evidence, trust)
        else:
            self.kinds.trust = trust
        bad_gain: cython.double = self.kinds.observe(
            site,
            1.0 - good,
            self.counted_signals(site, counts) if heard else 0.0,
            rate if bad_rate < 0.0 else bad_rate,
            clock,
            changed,
            self.believed,
        )
        if known:
            faded: cython.double = 1.0 - (1.0 - FADING) * good
            self.changes[site] = self.changes[site] * faded + good * gain
            self.watched[site] = self.watched[site] * faded + good * clock
            self._add_silence(site, good, silent, x, expected, changed)
            self._add_signals(site, counts, good, rate, x, expected, changed)
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
    @cython.exceptval(check=False)
    def _explain(
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
            n: cython.double = min(counts[source], _COUNTED_MAX)
            if n > 0.0 and self.used(site, source):
                p: cython.double = self.precision_of(site, self.precisions[site, source], rate)
                self.said += n * p
                self.believed = self.believed and self._trusted(site, source)
                total -= n * log1p(-p)
        return total

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _add_silence(
        self,
        site: cython.Py_ssize_t,
        w: cython.double,
        silent: cython.double,
        x: cython.double,
        expected: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Add a crawl to S_silent and S_exposed, with the weight w q, where q = exp(-sum_s n_s b_s)."""
        unexplained: cython.double = w * exp(silent - x)
        kept: cython.double = 1.0 - (1.0 - FADING) * unexplained
        self.exposed[site] = self.exposed[site] * kept + unexplained * expected
        self.silent_changes[site] *= kept
        if changed:
            self.silent_changes[site] += unexplained * (gain_of(x) * silent / x if x > 0.0 else 1.0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add_signals(
        self,
        site: cython.Py_ssize_t,
        counts: cython.double[::1],
        w: cython.double,
        rate: cython.double,
        x: cython.double,
        expected: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Add a crawl to S_all and, if the page changed, n_s p_s / z to S_true, for each source, with the weight `w`.

        The signals of an ignored source are not in the staleness `x`, so they are added to it.
        """
        source: cython.Py_ssize_t
        faded: cython.double = 1.0 - (1.0 - FADING) * w
        for source in range(_SOURCES):
            self.true_signals[site, source] *= faded
            self.all_signals[site, source] *= faded
            n: cython.double = min(counts[source], _COUNTED_MAX)
            if n > 0.0:
                p: cython.double = self.precision_of(site, self.precisions[site, source], rate)
                with_it: cython.double = x if self.used(site, source) else x - n * log1p(-p)
                self.all_signals[site, source] += w * n
                if changed:
                    trusted: cython.bint = self._trusted(site, source)
                    true: cython.double = believable(n * p / -expm1(-with_it), expected, trusted)
                    self.true_signals[site, source] += w * min(n, true)

    @cython.ccall
    @cython.exceptval(check=False)
    def renew(self, site: cython.Py_ssize_t, mean_rate: cython.double) -> cython.void:
        """Set the site's mean change rate, and update the site's part in the sums over all sites."""
        source: cython.Py_ssize_t
        self.means[site] = mean_rate
        for source in range(_SOURCES):
            plausible: cython.double = self._plausible(site, source)
            counts: cython.bint = plausible > _PLAUSIBLE and self.all_signals[site, source] > 0.0
            announced: cython.double = self.true_signals[site, source] if counts else 0.0
            claimed: cython.double = self.all_signals[site, source] * plausible if counts else 0.0
            unannounced: cython.double = self.silent_changes[site] if counts else 0.0
            exposed: cython.double = self.exposed[site] if counts else 0.0
            self.announced_by[source] += announced - self.announced[site, source]
            self.claimed_by[source] += claimed - self.claimed[site, source]
            self.unannounced_by[source] += unannounced - self.unannounced[site, source]
            self.exposed_by[source] += exposed - self.exposed_part[site, source]
            self.exposed_part[site, source] = exposed
            self.announced[site, source] = announced
            self.claimed[site, source] = claimed
            self.unannounced[site, source] = unannounced
        self._estimate(site)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _trusted(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.bint:
        """Return whether the source is trusted: its precision and its number of true signals are high enough."""
        return (
            self.precisions[site, source] >= _TRUSTED_PRECISION
            and self.true_signals[site, source] >= _TRUSTED_SIGNALS
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def share_watched(self, site: cython.Py_ssize_t) -> cython.double:
        """Return the recall of the site if one of its sources is trusted, else 0."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.all_signals[site, source] > 0.0 and self._trusted(site, source):
                return self.recalls[site]
        return 0.0

    @cython.ccall
    @cython.exceptval(check=False)
    def announced_changes(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return the number of changes that the signals of trusted sources represent."""
        total: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if counts[source] > 0.0 and self._trusted(site, source):
                total += counts[source] * self.precisions[site, source]
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def _plausible(self, site: cython.Py_ssize_t, source: cython.Py_ssize_t) -> cython.double:
        """Return rho, the largest share of the source's signals that can be true, given the number of changes."""
        every: cython.double = self.all_signals[site, source]
        changes: cython.double = self.means[site] * self.watched[site]
        return min(1.0, changes / every) if every > 0.0 and changes > 0.0 else 1.0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _estimate(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the precisions, b and r from the sums, for the sources with signals."""
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            if self.all_signals[site, source] <= 0.0:
                continue
            plausible: cython.double = min(1.0, _CONCENTRATED * self._plausible(site, source))
            prior: cython.double = self.honesty(source) * plausible
            p: cython.double = (self.true_signals[site, source] + _TRUE_WEIGHT) / (
                self.all_signals[site, source] + _TRUE_WEIGHT / prior
            )
            self.precisions[site, source] = min(p, PRECISION_MAX)
        self._pool(site)
        self.recalls[site] = self._recalled(site)
        self.kinds.estimate(site, self.weights[site] > 0.0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _pool(self, site: cython.Py_ssize_t) -> cython.void:
        """Compute the weight b of all sources combined.

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
        self.weights[site] = b

    def sums_of(self, site: int) -> np.ndarray:
        """Return a site's sums, shape (2 SOURCES + 13,).

        They are S_true and S_all by source, S_silent, time watched, S_exposed, two counts of pages, S_changes,
        and the score of the model that counts signals. Then follow S_true, S_all, S_changes, S_silent and
        S_exposed of the bad pages, and the score of the two kinds.
        """
        kinds = self.kinds.sums_of(site)
        rest = [self.silent_changes[site], self.watched[site], self.exposed[site], *kinds[:2]]
        rest += [self.changes[site], self.scores[site], *kinds[2:]]
        return np.concatenate([self.true_signals[site], self.all_signals[site], rest])

    def restore(self, site: int, sums: np.ndarray) -> None:
        """Restore stored sums."""
        for source in range(SOURCES):
            self.true_signals[site, source] = sums[source]
            self.all_signals[site, source] = sums[SOURCES + source]
        self.silent_changes[site] = sums[2 * SOURCES]
        self.watched[site] = sums[2 * SOURCES + 1]
        self.exposed[site] = sums[2 * SOURCES + 2]
        self.changes[site] = sums[2 * SOURCES + 5]
        self._set_score(site, sums[2 * SOURCES + 6])
        self.kinds.restore(site, [*sums[2 * SOURCES + 3 : 2 * SOURCES + 5], *sums[2 * SOURCES + 7 :]])
        self._estimate(site)

    def _check(self) -> None:
        true, every = np.asarray(self.true_signals)[: self.size], np.asarray(self.all_signals)[: self.size]
        assert (true >= 0.0).all() and (true <= every * (1.0 + 1e-9) + 1e-12).all()
        precision = np.asarray(self.precisions)[: self.size]
        assert ((precision > 0.0) & (precision < 1.0))[every > 0.0].all()
        for site in range(self.size):
            assert 0.0 <= self.recalls[site] < 1.0
            assert 0.0 <= self.counted[site] < 1.0
        self.kinds._check()

    def __repr__(self) -> str:
        return f"SignalQuality({self.size} sites, {sum(map(self.heard, range(self.size)))} of them heard)"


@cython.ccall
@cython.exceptval(check=False)
def precision_at(precision: cython.double, rate: cython.double, mean_rate: cython.double) -> cython.double:
    """Return the precision of signals for a page with the change rate `rate`; `precision` is the mean of the site.

    False signals are equally frequent on all pages of a site, and true signals are as frequent as the page's
    changes. So the odds that a signal is true are proportional to the page's rate.
    """
    true: cython.double = precision * rate
    every: cython.double = true + (1.0 - precision) * mean_rate
    return min(true / every, PRECISION_MAX) if every > 0.0 else precision


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _changes_found(silent: cython.double, said: cython.double, x: cython.double) -> cython.double:
    """Return max(1, (alpha A + sum_s n_s p_s) / z), the expected number of changes of a page that has changed.

    `silent` is alpha A, `said` is sum_s n_s p_s, and `x` is the page's staleness, so z = 1 - exp(-x).
    """
    return max(1.0, gain_of(x) * (silent + said) / x if x > 0.0 else 1.0)


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
