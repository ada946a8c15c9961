# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Learns change rates, signal quality and neighbourhoods from crawls, and derives a page's parameters from them.

    before a crawl   clock   A of the page's elapsed time          (neighbourhood.py)
                     assign  the page's rate and its signals into `Parameters` (change_rates.py, signal_quality.py)
                     page.value(A, signals), page.wait(level, signals)         (value_kernel.py)
    after it         observe update k, T and all counts by what was found  (turns: rate_turns.py, source_turns.py)
                     renew, renew_crawl  means from sums, O(1)

On a site with a trusted source of change signals, a change that the source announced is not evidence about
neighbours, because the source would have announced their changes as well. So the clock of such a site learns only
from crawls of pages for which the source has announced no change. The signals of ignored sources
(`source_precision.py`) do not count.

Rates are per unit of plain time, not of the neighbourhood clock's time. A change that many pages of a directory share
speeds up the clock of this directory. If T were measured by the clock, such a change would add to the number
of changes, but also to the time watched. So the rates of the site's pages would be too low. Rates that are
too low harm pages that need more visits than their neighbours. If the rate of such a page is too low, only
changes found on its neighbours can make up for that by speeding up its clock. But the neighbours are rarely
crawled, so the page is visited too rarely. Crawls with very few requests are an exception: those in which
visits of a page are further apart than the longest memory of the neighbourhood (four times the largest Ts).
In such a crawl, if T were plain time, a single edit of all pages of a site would determine the rates of the
site for years. So in such crawls, only a part of T, `plain_share`, is measured in plain time, and the rest on
the clock.

If the signals of a site have turned (`source_turns.py`), the next crawl of each of its pages teaches nothing about
clocks, biases and the variation of rates. Until the turn, the signals were right, so an old page without a signal had
hardly ever changed.

While a site uses its weekly rhythm (`seasons.py`), T is measured on the clock of the rhythm. The mean speed of this
clock is 1, so rates keep their unit.

Sites and directories are identified by the numbers that `add_site` and `add_directory` return.
The caller keeps each page's k and T (float32), its last crawl, its signals by source, and the evidence that it is
restless or that its rate has turned.
Arguments are not checked: a number out of range causes a write out of bounds.
`observe` takes about half a microsecond.
"""

import cython
from cython.cimports.crawler.freshness.biases import Biases
from cython.cimports.crawler.freshness.change_rates import ChangeRates
from cython.cimports.crawler.freshness.discovery import Discovery
from cython.cimports.crawler.freshness.neighbourhood import (
    Counts,
    Credence,
    clock_of,
    offset_of,
    predicted_clock_of,
)
from cython.cimports.crawler.freshness.rate_turns import RateTurns
from cython.cimports.crawler.freshness.restless import Restless
from cython.cimports.crawler.freshness.seasons import Seasons
from cython.cimports.crawler.freshness.signal_evidence import SignalEvidence
from cython.cimports.crawler.freshness.signal_quality import SignalQuality
from cython.cimports.crawler.freshness.value_kernel import Parameters
from cython.cimports.libc.math import exp, expm1, log1p

from crawler.freshness.value_kernel import ALL_TERMS, KINDS

_NEARLY_SURE = cython.declare(cython.double, 0.999999)
# below this precision, the signals of a page are ignored
_PRECISION_LEAST = cython.declare(cython.double, 0.1)
# On a site with a weekly rhythm, a crawl is full evidence of a turn only this number of hours after the last one.
_TURN_HOURS = cython.declare(cython.double, 3.0)


@cython.cclass
class Learning:
    """The estimators of a crawl: change rates, signal quality and neighbourhood.

    Args:
        kind: the crawl value, one of `KINDS`; signals are ignored unless it is "ncis", "cis" or "cis+".
        neighbourhood: False makes the clock equal to the elapsed time.
        unit: length of a day in the caller's unit of time.
        scale: Ts, see `neighbourhood.scale_of`; the caller updates it when its number of pages or its rate changes, and
            with it `plain_share`.
    """

    def __init__(
        self,
        kind: str = "ncis",
        *,
        neighbourhood: bool = True,
        unit: float = 86_400.0,
        scale: float = 30.0 * 86_400.0,
    ) -> None:
        self.kind = KINDS[kind]
        self.terms = ALL_TERMS
        self.neighbourhood = neighbourhood
        self.scale, self.plain_share = scale, 1.0
        self.watched = 0.0
        self.biases = Biases()
        self.rates = ChangeRates(unit)
        self.restless = Restless(self.rates)
        self.turns = RateTurns(self.rates)
        self._usual = True
        self._paced = self._stated = 0.0
        self.hazard = self.signalled = self.unrest = 0.0
        self.recall = self.told = 0.0
        self.unannounced = True
        self.quality = SignalQuality()
        self.kinds = self.quality.kinds
        self.evidence = SignalEvidence(self.rates, self.quality)
        self.directories = Counts(1.0)
        self.sites = Counts(3.0)
        self.credence = Credence()
        self.seasons = Seasons(unit)
        self.discovery = Discovery(unit)

    def add_site(self) -> cython.Py_ssize_t:
        site: cython.Py_ssize_t = self.rates.add_site()
        self.quality.add_site()
        self.sites.add()
        self.credence.add()
        self.seasons.add()
        self.turns.add_site()
        self.evidence.turns.add_site()
        self.discovery.add_site()
        self.quality.renew(site, self.rates.means[site])
        return site

    def add_directory(self) -> cython.Py_ssize_t:
        self.discovery.add_directory()
        return self.directories.add()

    def excess(
        self, site: cython.Py_ssize_t, directory: cython.Py_ssize_t, now: cython.double
    ) -> cython.double:
        """Return the sum of the excesses of directory and site, multiplied by the site's credence (`Credence`).

        An excess says by how much the changes found exceed those that the pages' rates predict (`neighbourhood.py`).
        The result is 0 if the neighbourhood clock is switched off, or if the site's weekly rhythm is in use.
        """
        if not self.neighbourhood or self.seasons.used[site]:
            return 0.0
        return self.credence.credences[site] * self._said(site, directory, now)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _said(
        self, site: cython.Py_ssize_t, directory: cython.Py_ssize_t, now: cython.double
    ) -> cython.double:
        return self.directories.excess(directory, now, self.scale) + self.sites.excess(site, now, self.scale)

    def directory_lead(
        self, site: cython.Py_ssize_t, directory: cython.Py_ssize_t, now: cython.double
    ) -> cython.double:
        """Return the time by which a directory's excess puts the clocks of its pages ahead of plain time.

        If the result is below 0, the clocks are behind plain time. The result is for pages that were crawled long
        ago. The effect on other pages is smaller.
        """
        if not self.neighbourhood or self.seasons.used[site]:
            return 0.0
        excess: cython.double = self.directories.excess(directory, now, self.scale)
        return offset_of(self.credence.credences[site] * excess, self.scale)

    def site_lead(self, site: cython.Py_ssize_t, now: cython.double) -> cython.double:
        """Return the time by which a site's excess puts the clocks of its pages ahead (see `directory_lead`)."""
        if not self.neighbourhood or self.seasons.used[site]:
            return 0.0
        excess: cython.double = self.sites.excess(site, now, self.scale)
        return offset_of(self.credence.credences[site] * excess, self.scale)

    def clock(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        elapsed: cython.double,
        now: cython.double,
    ) -> cython.double:
        """Return A, the time on the clock since a page's last crawl. In plain time, this crawl was `elapsed` ago."""
        if not self.neighbourhood:
            return elapsed
        return clock_of(elapsed, self.excess(site, directory, now), self.scale)

    def paced_clock(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        elapsed: cython.double,
        now: cython.double,
    ) -> cython.double:
        """Return the time on the clock from which the probability of a change is predicted.

        The elapsed time is measured by the site's weekly rhythm. A quiet neighbourhood slows this clock less than
        `clock`, which values and rates use.
        """
        if not self.neighbourhood:
            return elapsed
        span: cython.double = self.seasons.span(site, now - elapsed, now)
        return predicted_clock_of(span, self.excess(site, directory, now), self.scale)

    def assign(
        self,
        page: Parameters,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        importance: cython.double,
        trust: cython.double = 0.0,
        restless: cython.double = 0.0,
    ) -> cython.void:
        """Set the parameters of `page` from what is known of the page.

        `trust` is the evidence, in nats, that the page's signals are good. `restless` is the probability P that the
        page is restless: the importance is multiplied by 1 - P, so that the crawl value is.
        """
        importance *= 1.0 - restless
        rate: cython.double = self.rates.rate(site, k, t)
        weight: cython.double = self.quality.weights[site]
        if weight <= 0.0:
            page.assign(self.kind, self.terms, importance, rate, rate, 0.0, 0.0, 0.0)
        else:
            w: cython.double = self.kinds.reliability(site, trust)
            precision: cython.double = self._page_precision(site, rate, w)
            if precision < _PRECISION_LEAST:
                page.assign(self.kind, self.terms, importance, rate, rate, 0.0, 0.0, 0.0)
            else:
                recall: cython.double = self.quality.recall_of(site, w)
                page.assign_quality(self.kind, self.terms, importance, rate, precision, recall)

    def signals(self, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        """Return the number of signals to pass to `Parameters.value`, after `assign` has set the parameters.

        `counts`, shape (SOURCES,), has the number of signals per source.
        """
        return self.quality.signals(site, counts)

    def expected(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        trust: cython.double = 0.0,
        restless: cython.double = 0.0,
    ) -> cython.double:
        """Return the probability that a crawl now finds a change, given the page's signals.

        `restless` is the probability that the page is restless.
        """
        steady: cython.double = 1.0 - restless
        self._foresee(site, abs(k), t, clock, counts, trust)
        bias: cython.double = 1.0 if self.seasons.used[site] else self.biases.silent_bias
        return 1.0 - steady * exp(-bias * self.hazard - self.signalled)

    def with_long_prior(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        trust: cython.double = 0.0,
        restless: cython.double = 0.0,
    ) -> float:
        """Return what `expected` would be if the prior did not follow from the rate of fetches (`change_rates.py`)."""
        revisit: cython.double = self.rates.prior_time
        prior_time: cython.double
        found: cython.double = 0.0
        for prior_time in (float("inf"), revisit):
            self.rates.set_revisit(prior_time)
            self.renew_crawl()
            self.renew(site)
            if prior_time != revisit:
                found = self.expected(site, k, t, clock, counts, trust, restless)
        return found

    def _foresee(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        counts: cython.double[::1],
        trust: cython.double,
    ) -> cython.void:
        """Set `hazard` and `signalled` to -ln P[no silent change] and -ln P[no true signal] since the last crawl."""
        w: cython.double = self.kinds.reliability(site, trust)
        k += self.quality.interim_changes(site, counts, trust)
        t += self.quality.interim_watched(site, trust, self.quality.sources.silent(site, counts)) * clock
        silent: cython.double = self.rates.expected(
            site, k, t, (1.0 - self.quality.recall_of(site, w)) * clock
        )
        self.hazard = -log1p(-min(silent, _NEARLY_SURE))
        self.signalled = 0.0
        signals: cython.double = self.quality.signals(site, counts)
        if signals > 0.0:
            self.signalled = -signals * log1p(-self._page_precision(site, self.rates.rate(site, k, t), w))

    def _page_precision(
        self, site: cython.Py_ssize_t, rate: cython.double, w: cython.double
    ) -> cython.double:
        """Return the combined precision of the signals of a page that is good with the probability `w`."""
        pooled: cython.double = -expm1(-self.quality.weights[site])
        good: cython.double = self.quality.false_signals.precision_of(site, pooled, rate)
        return w * good + (1.0 - w) * self.kinds.bad_precisions[site]

    def observe(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        now: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double = 0.0,
        unrest: cython.double = 0.0,
    ) -> cython.double:
        """Learn from a crawl at `now`. The page's last crawl was `elapsed` before. Return the page's new k.

        The new t is float32(t + `watched`). The attribute `watched` is the time since the last crawl. If the
        page changed without a signal, a part of this time is not counted (`ChangeRates.match`), and if the page may be
        restless, the rest counts with the weight 1 - P. Both k are negative if
        every crawl of the page has found a change without a signal. The attribute `unrest` is then the new evidence
        that the page is restless (`restless.py`); otherwise, it is the evidence that its rate has turned. If the rate
        has turned, `watched` may be negative, because the page keeps little of its history (`rate_turns.py`).
        """
        changes: cython.double = abs(k)
        self.unannounced = self.quality.sources.silent(site, counts)
        self.recall = self.quality.recall_of(site, self.kinds.reliability(site, trust))
        self.told = self.quality.share_watched(site)
        self._usual = now - elapsed >= self.evidence.turns.turned_at[site]
        watched: cython.double = self._learn_clocks(
            site, directory, changes, t, elapsed, now, counts, changed, trust
        )
        if self.evidence.turn(site, changes, t, self._paced, counts, changed, self._stated, now):
            self.credence.forget(site)
            self.biases.shorten()
        told: cython.double = self.recall * watched  # the time in which a signal would have reported a change
        silent: cython.double = watched - told
        always: cython.bint = changed and self.unannounced and (k < 0.0 or (k == 0.0 and t == 0.0))
        steady: cython.double = 1.0  # the weight of this crawl: the probability that the page is not restless
        if self.unannounced:
            self.restless.learn(site, k, t + told, silent, changed, unrest, elapsed)
            if always:
                steady -= self.restless.chance(-1.0, self.restless.evidence, 0.0)
            if self._usual:
                self.rates.learn_variation(site, changes, t + told, silent, changed, steady)
        gain: cython.double = steady * self._count(site, changes, t, elapsed, watched, counts, changed, trust)
        self.watched *= steady
        self.unrest = unrest if k > 0.0 else 0.0
        if always:
            self.unrest = self.restless.evidence
        elif self.unannounced and self._usual:
            # A quiet night on a site with a weekly rhythm is weak evidence of a turn, however often the page is crawled.
            weight: cython.double = 1.0
            if self.seasons.used[site]:
                weight = min(max(elapsed / (_TURN_HOURS * self.seasons.hour), 0.0), 1.0)
            if self.turns.learn(site, changes, t + told, silent, changed, self.unrest, weight):
                gain, self.watched = self.turns.changes - changes, self.turns.watched - t
                always = changed
            self.unrest = self.turns.evidence
        k = self.rates.observe(site, changes, t, self.watched, gain)
        if k == 0.0:
            self.unrest = 0.0
        return -k if always else k

    def _learn_clocks(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        now: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double,
    ) -> cython.double:
        """Learn the neighbourhoods, the weekly rhythm and the biases. Return the time for which the page was watched."""
        clock: cython.double = self.clock(site, directory, elapsed, now)
        span: cython.double = self.seasons.span(site, now - elapsed, now)
        if self.neighbourhood and self.unannounced and self._usual:
            self._weigh_clock(site, directory, k, t, elapsed, clock, now, 1.0 - self.recall, changed)
        clock += span - elapsed
        predicted: cython.double = self.paced_clock(site, directory, elapsed, now)
        expected: cython.double = self._judge(site, k, t, clock, predicted, counts, changed, trust)
        if self.neighbourhood and self._usual and (self.unannounced or self.told <= 0.0):
            if self.told > 0.0:
                silent: cython.double = (1.0 - self.recall) * clock
                expected = self.biases.put_right(self.rates.expected(site, k, t, silent))
            found: cython.double = 1.0 if changed else 0.0
            self.directories.observe(directory, now, self.scale, found, expected)
            self.sites.observe(site, now, self.scale, found, expected)
        plain: cython.double = self.told + (1.0 - self.told) * self.plain_share
        return plain * span + (1.0 - plain) * clock

    def _count(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        watched: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double,
    ) -> cython.double:
        """Return the increase of k by a crawl, and set the attribute `watched` to the increase of t.

        `watched` is the time since the last crawl. The quality of the signals is learned, too.
        """
        # the weight of the model in which the number of signals is evidence of the rate
        counted: cython.double = self.quality.false_signals.counted[site]
        gain: cython.double = self.evidence.judge(
            site, k, t, elapsed, watched, counts, changed, trust, counted
        )
        self.watched = watched
        if changed and self.unannounced:
            # If the page had changed in the time `quiet`, a signal would have arrived.
            quiet: cython.double = self.recall * watched
            self.rates.match(site, k, t + quiet, (1.0 - self.recall) * watched)
            gain = self.rates.gain
            self.watched = quiet + self.rates.watched
        if counted > 0.0:
            self.evidence.count(site, k, t, elapsed, watched, counts, changed)
            gain += counted * (self.evidence.gain - gain)
            self.watched += counted * (self.evidence.watched - self.watched)
        return gain

    def _weigh_clock(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        clock: cython.double,
        now: cython.double,
        silent: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Learn from a crawl without signals how well the neighbourhood clock and the weekly rhythm predict.

        `silent` is the share of changes that have no signal. The crawl is predicted by plain time, by the clock with
        the full influence of the neighbours, and by the clock as it is used.
        """
        full: cython.double = clock_of(elapsed, self._said(site, directory, now), self.scale)
        alone: cython.double = self.biases.put_right(self.rates.expected(site, k, t, silent * elapsed))
        heeding: cython.double = self.biases.put_right(self.rates.expected(site, k, t, silent * full))
        used: cython.double = self.biases.put_right(self.rates.expected(site, k, t, silent * clock))
        self.credence.observe(site, alone, heeding, changed)
        self.credence.score(site, alone, used, changed)
        if self.seasons.learns(site, elapsed):
            self._pace(site, k, t, elapsed, now, silent, changed)

    def _pace(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        now: cython.double,
        silent: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Learn the site's rhythm from a crawl without signals.

        `silent` is the share of changes that have no signal.
        """
        span: cython.double = silent * self.seasons.trial(site, now - elapsed, now)
        plain: cython.double = self.rates.expected(site, k, t, silent * elapsed)
        paced: cython.double = self.rates.expected(site, k, t, span)
        self.seasons.observe(
            site, now - elapsed, now, -log1p(-min(paced, _NEARLY_SURE)), plain, paced, changed
        )

    def _judge(
        self,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        clock: cython.double,
        predicted: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
        trust: cython.double,
    ) -> cython.double:
        """Update `bias` and `silent_bias` after a crawl.

        Sites with a weekly rhythm in use are left out. Most of their copies are stated slightly too stale at night, and
        a factor that corrects this would make the stale copies of the day seem too fresh.

        `clock` is the time of `clock` since the last crawl, and `predicted` that of `paced_clock`.
        Return the probability of a change that was predicted from the page's rate and the `bias` before this crawl.
        This prediction does not use the page's signals.
        """
        self._paced = predicted
        raw: cython.double = self.rates.expected(site, k, t, clock)
        every: cython.double = -log1p(-min(raw, _NEARLY_SURE))
        self.hazard, self.signalled = every, 0.0
        if predicted != clock or self.quality.sources.heard(site):
            self._foresee(site, k, t, predicted, counts, trust)
        self._stated = -expm1(-self.hazard - self.signalled)
        expected: cython.double = self.biases.put_right(raw)
        if self._usual and not self.seasons.used[site]:
            self.biases.observe(every, self.hazard, self.signalled, changed)
        return expected

    def renew(self, site: cython.Py_ssize_t) -> cython.void:
        """Recompute the site's means from its sums. This takes about 50 ns, so call it at every crawl of the site."""
        self.rates.renew(site)
        self.credence.renew(site)
        self.quality.renew(site, self.rates.means[site])

    def renew_crawl(self) -> cython.void:
        """Recompute the mean and the variation of the whole crawl.

        The means and variations of sites are shrunk towards them.
        """
        self.rates.renew_crawl()

    def _check(self) -> None:
        self.rates._check()
        self.quality._check()
        self.directories._check()
        self.sites._check()
        self.credence._check()
        self.seasons._check()
        self.turns._check()
        self.evidence.turns._check()
        self.discovery._check()
