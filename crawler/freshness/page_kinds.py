# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns which pages of a site are good, and how bad the signals of the other pages are.

The pages of a site are of two kinds (`freshness/README.md`, "Learning"), and each kind has its own precision,
recall and sigma. `signal_quality.py` describes how those of the good kind are learned. Those of the bad kind
are learned from the same sums, but for all sources together; their prior precision and prior recall are 0.06.
Each page has a `trust`: the log likelihood ratio of its crawls under the two kinds. With the share of good
pages of the site as the prior, w is the posterior probability that the page is good.

The priors of the two kinds must differ. With equal priors, the kinds stayed equal for most of the crawl, and
the gain of the schedule over uniform refreshing was 0.84; with the present priors, it is 0.92. On a site with
one kind of page, the trust is noise. So a log score compares two predictions of each change: one with the
page's own w, and one in which the w of every page is the site's share of good pages. The trust is multiplied
by `splits`, which is 0.5 at first. `splits` goes to 1 if the score favours the prediction with the page's own
w, and to 0 if it favours the other prediction.
"""

from collections.abc import Sequence

import cython
import numpy as np
from cython.cimports.crawler.freshness.change_rates import gain_of, hazard_of
from cython.cimports.libc.math import exp, expm1, log1p, sqrt

from crawler.freshness.columns import Column

# The constants without an underscore hold for both kinds.
FADING = 0.99  # each crawl of a site multiplies the site's sums by this
PRECISION_MAX = 0.999999
RECALL_WEIGHT = 2.0
CHANGES_WEIGHT = 1.0  # pseudo count of changes in sigma, so that sigma is finite
SCORE_KEPT = 0.998  # factor by which a score decays per crawl of the site
SCORE_MAX = 20.0  # bound of the score, so that a change in a source is noticed
TRUST_MAX = 7.9
# between two crawls, the signals of trusted sources count as at most this number of changes
_TRUSTED_CHANGES = cython.declare(cython.double, 16.0)
# The prior counts like `_JUDGED` pages, of which `_GOOD` have good signals.
_GOOD = cython.declare(cython.double, 7.0)
_JUDGED = cython.declare(cython.double, 10.0)
# the prior precision and the prior recall of bad pages
_BAD_QUALITY = cython.declare(cython.double, 0.06)
# A site uses this part of its trust: `_SPLIT_FIRST` plus its score divided by `_SPLIT_RANGE`, limited to 0 to
# 1.
_SPLIT_FIRST = cython.declare(cython.double, 0.5)
_SPLIT_RANGE = cython.declare(cython.double, 4.0)
_TRUST_STEP = cython.declare(cython.double, 3.0)  # maximum, in nats, by which a crawl changes a page's trust


class PageKinds:
    """The share of good pages by site, and the quality of the signals of the bad pages.

    A site has the same number here as in `SignalQuality`. The attribute `trust` is the trust of the page whose
    crawl was observed last. Its value is between -`TRUST_MAX` and `TRUST_MAX`.
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(11)]
        self._grow()
        self.trust = 0.0

    def add_site(self) -> cython.void:
        """Add a site without signals. The caller then calls `estimate`."""
        if self.size == self.good.shape[0]:
            self._grow()
        self.size += 1
        self._set_split(self.size - 1, 0.0)

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.good = self.judged = self.splits = self.split_scores = np.zeros(0)
        self.bad_true = self.bad_all = self.bad_changes = self.bad_silent = self.bad_exposed = np.zeros(0)
        self.bad_precisions = self.bad_recalls = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.good, self.judged, self.splits, self.split_scores = columns[:4]
        self.bad_true, self.bad_all, self.bad_changes, self.bad_silent, self.bad_exposed = columns[4:9]
        self.bad_precisions, self.bad_recalls = columns[9:]

    def reliability(self, site: cython.Py_ssize_t, trust: cython.double) -> cython.double:
        """Return w, the probability that a page's signals are as good as the site's.

        `trust` is the evidence for this, in nats.
        """
        share: cython.double = (self.good[site] + _GOOD) / (self.judged[site] + _JUDGED)
        return share / (share + (1.0 - share) * exp(-trust * self.splits[site]))

    def split(self, site: cython.Py_ssize_t, better: cython.double) -> cython.void:
        """Update the log score of the pages' own trust.

        `better` is the gain, in nats, of a prediction by the page's own trust over a prediction with the same w
        for all pages.
        """
        self._set_split(site, SCORE_KEPT * self.split_scores[site] + better)

    def _set_split(self, site: cython.Py_ssize_t, score: cython.double) -> cython.void:
        self.split_scores[site] = min(max(score, -SCORE_MAX), SCORE_MAX)
        self.splits[site] = min(max(_SPLIT_FIRST + self.split_scores[site] / _SPLIT_RANGE, 0.0), 1.0)

    def forget(self, site: cython.Py_ssize_t) -> cython.void:
        """Forget what was learned of a site. Its pages' trust is not used until it has improved predictions again."""
        self.good[site] = self.judged[site] = 0.0
        self.bad_true[site] = self.bad_all[site] = self.bad_changes[site] = 0.0
        self.bad_silent[site] = self.bad_exposed[site] = 0.0
        self._set_split(site, -_SPLIT_FIRST * _SPLIT_RANGE)

    def judge_page(
        self, site: cython.Py_ssize_t, evidence: cython.double, trust: cython.double
    ) -> cython.double:
        """Return w after a crawl that showed this `evidence`, in nats. Set the attribute `trust`."""
        evidence = min(max(evidence, -_TRUST_STEP), _TRUST_STEP)
        self.trust = min(max(trust + evidence, -TRUST_MAX), TRUST_MAX)
        w: cython.double = self.reliability(site, self.trust)
        self.good[site] = self.good[site] * FADING + w
        self.judged[site] = self.judged[site] * FADING + 1.0
        return w

    def observe(
        self,
        site: cython.Py_ssize_t,
        weight: cython.double,
        signals: cython.double,
        rate: cython.double,
        clock: cython.double,
        changed: cython.bint,
        trusted: cython.bint,
        shape: cython.double,
    ) -> cython.double:
        """Learn from a crawl of a page that is bad with the probability `weight`.

        Return the increase of k if the page is bad, or 0 if the crawl found no change. `signals` is the
        number of signals of used sources since the page's last crawl, and `rate` the change rate of the page
        if it is bad; `shape` has the same meaning as in `SignalQuality.observe`. `trusted` says whether all these
        sources are trusted. If `weight` is 0, nothing is learned.
        """
        p: cython.double = self.bad_precisions[site]
        silent: cython.double = (1.0 - self.bad_recalls[site]) * rate * clock
        told: cython.double = -signals * log1p(-p) if signals > 0.0 else 0.0
        hazard: cython.double = hazard_of(silent, shape)
        x: cython.double = hazard + told
        plain: cython.double = 1.0
        gain: cython.double = 0.0
        if changed:
            gain = 1.0
            if x > 0.0:
                plain = gain_of(x)
                gain = max(plain * (silent + signals * p) / x, 1.0)
            gain = believable(gain, rate * clock, trusted)
        if weight <= 0.0:
            return gain
        faded: cython.double = 1.0 - (1.0 - FADING) * weight
        self.bad_changes[site] = self.bad_changes[site] * faded + weight * gain
        self.bad_all[site] = self.bad_all[site] * faded + weight * signals
        self.bad_true[site] *= faded
        unexplained: cython.double = weight * exp(hazard - x)
        kept: cython.double = 1.0 - (1.0 - FADING) * unexplained
        self.bad_exposed[site] = self.bad_exposed[site] * kept + unexplained * rate * clock
        self.bad_silent[site] *= kept
        if changed and x > 0.0:
            if signals > 0.0:
                self.bad_true[site] += weight * min(signals, signals * p / -expm1(-x))
            self.bad_silent[site] += unexplained * plain * silent / x
        return gain

    def estimate(self, site: cython.Py_ssize_t, used: cython.bint) -> cython.void:
        """Recompute the precision and the recall of bad pages. `used` says whether a source of the site is used."""
        self.bad_precisions[site] = min(
            (self.bad_true[site] + 1.0) / (self.bad_all[site] + 1.0 / _BAD_QUALITY), PRECISION_MAX
        )
        silent: cython.double = (self.bad_silent[site] + RECALL_WEIGHT * (1.0 - _BAD_QUALITY)) / (
            self.bad_exposed[site] + RECALL_WEIGHT
        )
        self.bad_recalls[site] = max(1.0 - silent, 0.0) if used else 0.0

    def per_bad_change(self, site: cython.Py_ssize_t) -> cython.double:
        """Return sigma of the bad pages."""
        return (self.bad_all[site] + CHANGES_WEIGHT) / (self.bad_changes[site] + CHANGES_WEIGHT)

    def sums_of(self, site: int) -> list[float]:
        """Return a site's sums (8 numbers).

        They are two counts of pages, then S_true, S_all, S_changes, S_silent and S_exposed of the bad pages, and the
        score of the two kinds.
        """
        sums = [self.good[site], self.judged[site], self.bad_true[site], self.bad_all[site]]
        return [
            *sums,
            self.bad_changes[site],
            self.bad_silent[site],
            self.bad_exposed[site],
            self.split_scores[site],
        ]

    def restore(self, site: int, sums: Sequence[float]) -> None:
        """Restore stored sums. The caller then calls `estimate`."""
        self.good[site], self.judged[site], self.bad_true[site], self.bad_all[site] = sums[:4]
        self.bad_changes[site], self.bad_silent[site], self.bad_exposed[site] = sums[4:7]
        self._set_split(site, sums[7])

    def _check(self) -> None:
        for site in range(self.size):
            assert 0.0 <= self.splits[site] <= 1.0
            assert 0.0 <= self.bad_true[site] <= self.bad_all[site] * (1.0 + 1e-9) + 1e-12
            assert 0.0 <= self.bad_recalls[site] < 1.0


def believable(changes: cython.double, x: cython.double, trusted: cython.bint) -> cython.double:
    """Return `changes`, or a smaller number if `changes` is implausible.

    The page is known to have changed at least once since its last crawl. `x` is the mean number of changes that
    the prior predicts for this time.
    """
    if changes <= 1.0 + x + 3.0 * sqrt(x):
        return changes
    return min(changes, max(_TRUSTED_CHANGES, gain_of(x))) if trusted else gain_of(x)
