# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Learns for each site whether its false signals depend on the change rates of its pages.

There are two models. In the first model, false signals are equally frequent on all pages of a site, and true
signals are as frequent as the page's changes. So the odds that a signal is true are p_s / (1 - p_s) times the
page's rate divided by the site's mean (`precision_at`).

In the second model (`freshness/README.md`, "Learning"), a page with many changes also has many false signals.
Suppose that every page has phi false signals per change, and let sigma = r + phi,
where r is the recall. Then a page with the change rate d has sigma d signals and (1 - r) d silent changes in
a unit of time, and p_s is the same for all pages. By the thinning of Poisson processes (Kingman 1993),
signals and silent changes are independent. So the number of signals is evidence of the rate, even if most
signals are false: n signals in the time tau have the likelihood

    L(d) = d^n exp(-sigma d tau) P[z | d],   P[no change | d] = exp(-(1 - r) d A) prod_s (1 - p_s)^n_s

A Gamma distribution of d with the parameters K and B becomes one with K + n and B + sigma tau. The result z of
the crawl is then used as in `change_rates.py` (`ChangeRates.match`).

Which of the two models is right is learned from what crawls find, not from the signals:

    L = .998 L + ln P[z | false signals as frequent as changes] - ln P[z | false signals equally frequent]
    weight of the second model = tanh((L - 1) / 2), and 0 if L < 1

So the number of signals counts only after it has improved the predictions of changes. Each of the two models
has its own k, T and precisions; the crawler uses their weighted means. On simulated webs with two false
signals per change, the second model raised the gain of the schedule over uniform refreshing from .84 to .96.
A lying sitemap gives pages with many changes no more signals than other pages. On a site with a lying
sitemap, the weight of the second model is 0.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.page_kinds import PRECISION_MAX, SCORE_KEPT, SCORE_MAX
from cython.cimports.libc.math import log, tanh

from crawler.freshness.columns import Column

# the number of signals is evidence only above this score
_SCORE_NEEDED = cython.declare(cython.double, 1.0)
_CHANCE_MIN = cython.declare(cython.double, 1e-6)  # predictions stay at least this far from 0 and 1


class FalseSignals:
    """The weights of the two models, and the mean change rates, by site. Sites are numbered as they are added.

    `counted` holds the weight of the model in which false signals are as frequent as a page's changes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(3)]
        self._grow()

    def add_site(self) -> cython.void:
        """Add a site without signals."""
        if self.size == self.means.shape[0]:
            self._grow()
        self.size += 1

    def _grow(self) -> cython.void:
        self.means = self.scores = self.counted = np.zeros(0)  # release the memory maps before they grow
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.means, self.scores, self.counted = columns

    def precision_of(
        self, site: cython.Py_ssize_t, precision: cython.double, rate: cython.double
    ) -> cython.double:
        """Return the precision of a page's signals. `precision` is the mean of the site, and `rate` is the page's rate.

        The result is the mean of the precisions under the two models of false signals.
        """
        own: cython.double = precision_at(precision, rate, self.means[site])
        return own + self.counted[site] * (precision - own)

    def score(
        self, site: cython.Py_ssize_t, plain: cython.double, counting: cython.double, changed: cython.bint
    ) -> cython.void:
        """Update the log score of the model in which false signals are as frequent as a page's changes.

        `counting` is the probability of a change by this model, and `plain` the probability by the other model.
        """
        plain = min(max(plain, _CHANCE_MIN), 1.0 - _CHANCE_MIN)
        counting = min(max(counting, _CHANCE_MIN), 1.0 - _CHANCE_MIN)
        better: cython.double = log(counting / plain) if changed else log((1.0 - counting) / (1.0 - plain))
        self.set_score(site, SCORE_KEPT * self.scores[site] + better)

    def set_score(self, site: cython.Py_ssize_t, score: cython.double) -> cython.void:
        """Set a site's log score, within its bounds."""
        self.scores[site] = min(max(score, -SCORE_MAX), SCORE_MAX)
        self.counted[site] = max(tanh(0.5 * (self.scores[site] - _SCORE_NEEDED)), 0.0)

    def _check(self) -> None:
        for site in range(self.size):
            assert 0.0 <= self.counted[site] < 1.0


def precision_at(precision: cython.double, rate: cython.double, mean_rate: cython.double) -> cython.double:
    """Return the precision of signals for a page with the change rate `rate`; `precision` is the mean of the site.

    False signals are equally frequent on all pages of a site, and true signals are as frequent as the page's
    changes. So the odds that a signal is true are proportional to the page's rate.
    """
    true: cython.double = precision * rate
    every: cython.double = true + (1.0 - precision) * mean_rate
    return min(true / every, PRECISION_MAX) if every > 0.0 else precision
