# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds sites whose change signals have turned: they were right and are worthless now, or the reverse.

    evidence that the signals are worthless now    0 ──► e ──► 20 nats: they are ignored until crawls confirm them again
    evidence that the signals are right now        0 ──► e ──► 20 nats: they are as unknown as those of a new site

The quality of signals is learned by sums that fade slowly, and how a crawl counts depends on the quality learned so far
(`signal_quality.py`). So if a sitemap that was right for a year begins to give all pages a new date each day, it would
be believed for weeks. And if the sitemap becomes right again, it would be ignored for months.

So each crawl of a site with signals is also predicted by two fixed models of the signals:

    right        a page with a signal has changed with the probability 0.9, and a tenth of the changes have no signal
    worthless    signals, and their absence, say nothing about changes

The *evidence* for a model, in nats, compares its predictions with those of the learned quality (a cumulative sum; Page
1954). A crawl with the result z adds

    e += ln(P[z | model] / P[z | learned quality]),    at least 0; a crawl adds or subtracts at most 2

If e reaches 20, the signals have turned. The evidence that they are right consists of two such sums: one of crawls of
pages with signals, and one of other crawls. Each counts as at most 15. If all pages of a site change at once, every page
with a signal has changed, however wrong the signals are. But then the pages without a signal have changed, too.

Only a site that uses its signals has evidence that they are worthless, and only a site without a trusted source
(`source_precision.py`) has evidence that they are right.

All probabilities are for the time on the neighbourhood clock of predictions. An event that changes many pages of a site
is then hardly evidence, because its first changes make this clock faster. The evidence is not stored: it lasts for few
crawls.

Measured with `crawler lab worlds --regimes` (`lab/README.md`, "Measurements").
"""

import cython
import numpy as np
from cython.cimports.libc.math import log

from crawler.freshness.columns import Column

# the precision and the recall of signals that are right
RIGHT = 0.9
# In nats. With 7.5, and in plain time, a change of many pages on a site with a lying sitemap was taken for a turn, which
# lowered the score of the arm `lying` of the league at the budget 1x by 0.009 +- 0.002 (three drawings).
_BOUND = cython.declare(cython.double, 20.0)
# in nats, which each of the two parts of the evidence that signals are right may contribute
_PART_MAX = cython.declare(cython.double, 15.0)
_STEP = cython.declare(cython.double, 2.0)  # in nats, by which one crawl changes an evidence at most
_SURE = cython.declare(cython.double, 1e-9)  # smaller probabilities count as this one
_INFINITY = cython.declare(cython.double, float("inf"))


class SourceTurns:
    """The evidence that the signals of a site have turned. Sites are numbered as they are added.

    `turned_at` holds the instant of the latest turn of each site, -infinity before the first.
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(4)]
        self._grow()

    def add_site(self) -> cython.void:
        """Add a site without evidence."""
        if self.size == self.turned_at.shape[0]:
            self._grow()
        self.turned_at[self.size] = -_INFINITY
        self.size += 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.right_told = self.right_silent = self.worthless = self.turned_at = np.zeros(0)
        columns = [column.grow(self.size + 1) for column in self._columns]
        self.right_told, self.right_silent, self.worthless, self.turned_at = columns

    def learn(
        self,
        site: cython.Py_ssize_t,
        learned: cython.double,
        right: cython.double,
        worthless: cython.double,
        now: cython.double,
        told: cython.bint,
        used: cython.bint,
        trusted: cython.bint,
    ) -> cython.int:
        """Learn from a crawl. Return 1 if the signals have turned right, -1 if they have become worthless, else 0.

        `learned`, `right` and `worthless` are the probabilities of the crawl's result by the learned quality and by
        the two models. `told` is True if the page had a signal, `used` if the site uses its signals, and `trusted` if
        it trusts a source.
        """
        if trusted:
            self.right_told[site] = self.right_silent[site] = 0.0
        elif told:
            self.right_told[site] = _summed(self.right_told[site], right, learned)
        else:
            self.right_silent[site] = _summed(self.right_silent[site], right, learned)
        self.worthless[site] = _summed(self.worthless[site], worthless, learned) if used else 0.0
        turn: cython.int = 0
        if self.worthless[site] >= _BOUND:
            turn = -1
        elif min(self.right_told[site], _PART_MAX) + min(self.right_silent[site], _PART_MAX) >= _BOUND:
            turn = 1
        if turn:
            self.right_told[site] = self.right_silent[site] = self.worthless[site] = 0.0
            self.turned_at[site] = now
        return turn

    def _check(self) -> None:
        for evidence in (
            np.asarray(self.right_told),
            np.asarray(self.right_silent),
            np.asarray(self.worthless),
        ):
            assert (evidence[: self.size] >= 0.0).all()
        assert (np.asarray(self.worthless)[: self.size] < _BOUND).all()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _summed(evidence: cython.double, model: cython.double, learned: cython.double) -> cython.double:
    """Return the evidence after a crawl whose result the model and the learned quality gave these probabilities."""
    gain: cython.double = log(max(model, _SURE) / max(learned, _SURE))
    return min(max(evidence + min(max(gain, -_STEP), _STEP), 0.0), _BOUND)
