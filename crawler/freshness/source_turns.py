# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds sites whose change signals have turned: they were honest and are worthless now, or the reverse.

    evidence that the signals are honest now       0 ──► e ──► 7.5 nats: what was learned of the signals is forgotten
    evidence that the signals are worthless now    0 ──► e ──► 7.5 nats: the same

The quality of signals is learned by sums that fade slowly (`signal_quality.py`), and how a crawl counts depends on the
quality learned so far. So after a long time, a changed source would be noticed late, or never: a site's sitemap may
begin to give all pages a new date each day, and a site that did so may become honest.

So each crawl of a site with signals is also predicted by two fixed models of its signals:

    honest       nine of ten changes have a signal, and nine of ten pages with a signal have changed
    worthless    signals and silence say nothing about changes

The *evidence* for a model, in nats, compares its predictions with those of the learned quality (a cumulative sum; Page
1954). At each crawl with the result z,

    e += ln(P[z | model] / P[z | learned quality]),    at least 0; one crawl adds or subtracts at most 2

If e reaches 7.5, the signals have turned. Then all that was learned of the site's signals is forgotten, as if they
had just begun (`SignalQuality.forget`). While the learned quality is right, this happens at most once in exp(7.5),
1,808, crawls on average (Lorden 1971). The evidence is not stored, because it lasts for few crawls.
"""

import cython
import numpy as np
from cython.cimports.libc.math import log

from crawler.freshness.columns import Column

# the precision and the recall of honest signals
HONEST = 0.9
# In nats.
import os
_BOUND = cython.declare(cython.double, float(os.environ.get('T_BOUND','7.5')))
_STEP = cython.declare(cython.double, float(os.environ.get('T_STEP','2')))  # in nats, by which a crawl changes an evidence at most
_INFINITY = cython.declare(cython.double, float("inf"))
_SURE = cython.declare(cython.double, 1e-9)  # smaller probabilities count as this one


@cython.cclass
class SourceTurns:
    """The evidence that the signals of a site have turned. Sites are numbered as they are added."""

    def __init__(self) -> None:
        self.size = 0
        self._columns = [Column("f8") for _ in range(3)]
        self.honest, self.worthless, self.turned_at = (column.grow(1) for column in self._columns)

    def add_site(self) -> cython.void:
        """Add a site without evidence."""
        if self.size == self.honest.shape[0]:
            self.honest = self.worthless = self.turned_at = np.zeros(0)  # release the memory maps before they grow
            columns = [column.grow(self.size + 1) for column in self._columns]
            self.honest, self.worthless, self.turned_at = columns
        self.turned_at[self.size] = -_INFINITY
        self.size += 1

    def learn(
        self,
        site: cython.Py_ssize_t,
        learned: cython.double,
        honest: cython.double,
        worthless: cython.double,
        now: cython.double,
        used: cython.bint,
        distrusted: cython.bint,
    ) -> cython.int:
        """Learn from a crawl. Return whether the signals of the site have turned.

        The arguments are the probabilities that the learned quality and the two models gave to its result.
        """
        self.honest[site] = max(self.honest[site] + _gain(honest, learned), 0.0) if distrusted else 0.0
        self.worthless[site] = max(self.worthless[site] + _gain(worthless, learned), 0.0) if used else 0.0
        turn: cython.int = 0
        if self.honest[site] >= _BOUND:
            turn = 1
        elif self.worthless[site] >= _BOUND:
            turn = -1
        if turn:
            self.honest[site] = self.worthless[site] = 0.0
            self.turned_at[site] = now
        return turn

    def _check(self) -> None:
        kept = np.stack([np.asarray(self.honest), np.asarray(self.worthless)])[:, : self.size]
        assert ((kept >= 0.0) & (kept < _BOUND)).all()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _gain(model: cython.double, learned: cython.double) -> cython.double:
    """Return by how much, in nats, the model predicted the result better than the learned quality."""
    gain: cython.double = log(max(model, _SURE) / max(learned, _SURE))
    return min(max(gain, -_STEP), _STEP)
