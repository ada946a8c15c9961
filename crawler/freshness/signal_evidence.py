# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Compares what a crawl found with what the page's signals predicted, and learns from it.

A page is of one of two kinds (`page_kinds.py`), and false signals may be spread over the pages of a site in
one of two ways (`false_signals.py`). Each combination predicts whether the crawl finds a change. The
probability that a combination gave to the actual result updates the evidence that the page is good, and the
log scores of the models.
"""

import cython
from cython.cimports.crawler.freshness.change_rates import ChangeRates
from cython.cimports.crawler.freshness.false_signals import precision_at
from cython.cimports.crawler.freshness.signal_quality import SignalQuality
from cython.cimports.crawler.freshness.source_turns import RIGHT, SourceTurns
from cython.cimports.libc.math import exp, expm1, log, log1p

from crawler.change_signals import SOURCES

_SOURCES = cython.declare(cython.Py_ssize_t, SOURCES)
_SURE = cython.declare(cython.double, 1e-9)  # smaller probabilities count as this one in logarithms


class SignalEvidence:
    """The evidence of crawls about the signals of pages.

    `count` sets the attributes `gain` and `watched`.
    """

    def __init__(self, rates: ChangeRates, quality: SignalQuality) -> None:
        self.gain = self.watched = 0.0
        self.rates = rates
        self.quality = quality
        self.kinds = quality.kinds
        self.turns = SourceTurns()

    def judge(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        watched: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double,
        counted: cython.double,
    ) -> cython.double:
        """Learn the quality of the site's signals from a crawl. Return the number of changes to add to k.

        The rates before the crawl, of a good page and of a bad page, take the signals into account, and the
        silence about a page without signals.
        """
        evidence: cython.double = 0.0
        if self.quality.sources.heard(site):
            evidence = self._compare(site, k, t, elapsed, watched, counts, changed, trust)
        n: cython.double = counted * self.quality.sources.counted_signals(site, counts)
        quiet: cython.double = (1.0 - counted) * watched if self.quality.sources.silent(site, counts) else 0.0
        good_time: cython.double = t + quiet * self.quality.recalls[site]
        bad_time: cython.double = t + quiet * self.kinds.bad_recalls[site]
        good_time += counted * self.quality.per_change(site) * elapsed
        bad_time += counted * self.kinds.per_bad_change(site) * elapsed
        return self.quality.observe(
            site,
            counts,
            self.rates.rate(site, k + n, good_time),
            watched,
            changed,
            trust,
            evidence,
            self.rates.rate(site, k + n, bad_time),
            self.rates.shape(site, k + n),
        )

    def _compare(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double,
    ) -> cython.double:
        """Return the evidence, in nats, that the page is good.

        Also update two log scores: that of the number of signals, and that of the two kinds of pages.
        """
        w: cython.double = self.kinds.reliability(site, trust)
        n: cython.double = self.quality.sources.counted_signals(site, counts)
        c: cython.double = self.quality.false_signals.counted[site]
        signals: cython.double = self.quality.signals(site, counts)
        precision: cython.double = -expm1(-self.quality.weights[site])
        r: cython.double = self.quality.recalls[site]
        quiet: cython.double = r * clock if n <= 0.0 else 0.0
        own: cython.double = precision_at(
            precision, self.rates.rate(site, k, t + quiet), self.rates.means[site]
        )
        good_plain: cython.double = (1.0 - self.rates.expected(site, k, t + quiet, (1.0 - r) * clock)) * exp(
            signals * log1p(-own)
        )
        seen: cython.double = self.quality.per_change(site) * elapsed
        good: cython.double = (1.0 - self.rates.expected(site, k + n, t + seen, (1.0 - r) * clock)) * exp(
            signals * log1p(-precision)
        )
        r = self.kinds.bad_recalls[site]
        quiet = r * clock if n <= 0.0 else 0.0
        unsaid: cython.double = exp(n * log1p(-self.kinds.bad_precisions[site]))
        bad_plain: cython.double = (1.0 - self.rates.expected(site, k, t + quiet, (1.0 - r) * clock)) * unsaid
        seen = self.kinds.per_bad_change(site) * elapsed
        bad: cython.double = (1.0 - self.rates.expected(site, k + n, t + seen, (1.0 - r) * clock)) * unsaid
        self.quality.false_signals.score(
            site, 1.0 - w * good_plain - (1.0 - w) * bad_plain, 1.0 - w * good - (1.0 - w) * bad, changed
        )
        good = good_plain + c * (good - good_plain)
        bad = bad_plain + c * (bad - bad_plain)
        if changed:
            good, bad = 1.0 - good, 1.0 - bad
        share: cython.double = self.kinds.reliability(site, 0.0)
        w = share / (share + (1.0 - share) * exp(-trust))
        one: cython.double = share * good + (1.0 - share) * bad
        self.kinds.split(site, log(max(w * good + (1.0 - w) * bad, _SURE) / max(one, _SURE)))
        return log(max(good, _SURE) / max(bad, _SURE))

    def count(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
    ) -> cython.void:
        """Compute the increases of k and T if the number of signals is evidence of the rate (`false_signals.py`).

        Set `gain` and `watched` to them. The page's trust already includes the crawl.
        """
        w: cython.double = self.kinds.reliability(site, self.kinds.trust)
        n: cython.double = self.quality.sources.counted_signals(site, counts)
        good_seen: cython.double = self.quality.per_change(site) * elapsed
        bad_seen: cython.double = self.kinds.per_bad_change(site) * elapsed
        good_silent: cython.double = (1.0 - self.quality.recalls[site]) * clock
        bad_silent: cython.double = (1.0 - self.kinds.bad_recalls[site]) * clock
        self.gain = n
        if changed:
            signals: cython.double = self.quality.signals(site, counts)
            unsaid: cython.double = exp(-signals * self.quality.weights[site])
            self.rates.match(site, k + n, t + good_seen, good_silent, unsaid)
            self.gain += w * self.rates.gain
            good_silent = self.rates.watched
            unsaid = exp(n * log1p(-self.kinds.bad_precisions[site]))
            self.rates.match(site, k + n, t + bad_seen, bad_silent, unsaid)
            self.gain += (1.0 - w) * self.rates.gain
            bad_silent = self.rates.watched
        self.watched = w * (good_seen + good_silent) + (1.0 - w) * (bad_seen + bad_silent)

    def turn(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        stated: cython.double,
        now: cython.double,
    ) -> cython.bint:
        """Return whether the signals of the site have turned (`source_turns.py`). If so, their quality is forgotten.

        `clock` is the time since the last crawl on the clock of predictions, and `stated` the probability of a change
        that the learned quality gave.
        """
        if not self.quality.sources.heard(site):
            return False
        n: cython.double = 0.0
        source: cython.Py_ssize_t
        for source in range(_SOURCES):
            n += counts[source]
        quiet: cython.double = RIGHT * clock if n <= 0.0 else 0.0
        right: cython.double = self.rates.expected(site, k, t + quiet, (1.0 - RIGHT) * clock)
        if n > 0.0:
            right = 1.0 - (1.0 - RIGHT) * (1.0 - right)
        worthless: cython.double = self.rates.expected(site, k, t, clock)
        if not changed:
            right, worthless, stated = 1.0 - right, 1.0 - worthless, 1.0 - stated
        used: cython.bint = self.quality.weights[site] > 0.0
        trusted: cython.bint = self.quality.sources.watches(site)
        turn: cython.int = self.turns.learn(site, stated, right, worthless, now, n > 0.0, used, trusted)
        if turn:
            self.quality.forget(site, turn < 0)
        return turn != 0
