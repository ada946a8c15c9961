# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Plays a schedule against the events of a run and computes its exact expected accuracy.

Between two events of a page, the probability that the page is fresh is g exp(-alpha t), where t is the time
since the last crawl. After a crawl, g is 1. Each emitted signal multiplies g by q = nu/gamma, the probability
that the signal is false. A change that is known with certainty sets g to 0. The integral of mu P[fresh] over
time therefore has a closed form: no requests and no changes are drawn, and for a policy without signals, the
result is exact. The closed form holds for any scheduler that does not know which signals are true, with any
delay between emission and arrival.

An event is (time, page, what), where `what` is a sum of EMITTED, ARRIVED and CHANGED.
The file is Cython in pure-Python mode (see `freshness/value_kernel.py`).
"""

from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1

EMITTED = 1  # a signal was emitted, which multiplies freshness by q
ARRIVED = 2  # the signal reached the scheduler
CHANGED = 4  # the page has certainly changed

_EMITTED = cython.declare(cython.int, 1)
_ARRIVED = cython.declare(cython.int, 2)
_CHANGED = cython.declare(cython.int, 4)


@cython.cclass
class Replay:
    """The state of all pages between events, and the accuracy in each of `bins` equal spans of time.

    Args:
        importance, silent_rate, doubt: mu, alpha and q of each page, (m,).
        horizon: end of the run.
    """

    mu: cython.double[::1]
    alpha: cython.double[::1]
    q: cython.double[::1]
    fresh: cython.double[::1]
    since: cython.double[::1]
    last: cython.double[::1]
    gained: cython.double[::1]
    crawls: cython.longlong[::1]
    width: cython.double

    def __init__(
        self, importance: np.ndarray, silent_rate: np.ndarray, doubt: np.ndarray, horizon: float, bins: int
    ) -> None:
        size = len(importance)
        self.mu, self.alpha, self.q = importance, silent_rate, doubt
        self.fresh = np.ones(size)
        self.since = np.zeros(size)
        self.last = np.zeros(size)
        self.crawls = np.zeros(size, dtype=np.int64)
        self.gained = np.zeros(bins)
        self.width = horizon / bins

    @cython.cfunc
    def _account(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Add to the bins the expected time since the last call in which the copy of page `i` was fresh."""
        begin: cython.double = self.since[i]
        self.since[i] = now
        if self.fresh[i] <= 0.0 or now <= begin:
            return
        k: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, begin / self.width)
        scale: cython.double = self.mu[i] * self.fresh[i]
        while begin < now and k < len(self.gained):
            end: cython.double = min(now, (k + 1) * self.width)
            self.gained[k] += scale * self._fresh_time(i, begin, end)
            begin = max(end, begin)
            k += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fresh_time(self, i: cython.Py_ssize_t, begin: cython.double, end: cython.double) -> cython.double:
        rate: cython.double = self.alpha[i]
        if rate * (end - begin) < 1e-12:
            return exp(-rate * (begin - self.last[i])) * (end - begin)
        return exp(-rate * (begin - self.last[i])) * -expm1(-rate * (end - begin)) / rate

    @cython.ccall
    def event(self, i: cython.Py_ssize_t, now: cython.double, what: cython.int) -> cython.void:
        """Apply an event, which is an emitted signal or a change of the page.

        Arrivals of signals have no effect here.
        """
        if what & (_EMITTED | _CHANGED):
            self._account(i, now)
            self.fresh[i] = 0.0 if what & _CHANGED else self.fresh[i] * self.q[i]

    @cython.ccall
    def crawl(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Crawl the page."""
        self._account(i, now)
        self.fresh[i] = 1.0
        self.last[i] = now
        self.crawls[i] += 1

    def run(
        self,
        scheduler: Any,
        ticks: cython.const[cython.double][::1],
        times: cython.const[cython.double][::1],
        pages: cython.const[cython.int][::1],
        whats: cython.const[cython.char][::1],
    ) -> None:
        """Crawl one page at each tick. Events up to and including the tick are applied first."""
        k: cython.Py_ssize_t = 0
        j: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for j in range(ticks.shape[0]):
            now: cython.double = ticks[j]
            while k < times.shape[0] and times[k] <= now:
                i = pages[k]
                self.event(i, times[k], whats[k])
                if whats[k] & _ARRIVED:
                    scheduler.note_change(i, times[k])
                k += 1
            i = scheduler.claim_next(now)
            if i < 0:
                continue
            self.crawl(i, now)
            scheduler.record_outcome(i, now)
        self._finish(times[k:], pages[k:], whats[k:])

    def _finish(self, times: Any, pages: Any, whats: Any) -> None:
        """Apply the events after the last tick and account for all pages up to the end."""
        for time, page, what in zip(times, pages, whats, strict=True):
            self.event(page, time, what)
        for page in range(len(self.mu)):
            self._account(page, self.width * len(self.gained))

    def accuracy(self) -> np.ndarray:
        """Return the accuracy in each bin, (bins,)."""
        return np.asarray(self.gained) / (self.width * float(np.sum(self.mu)))

    def rates(self) -> np.ndarray:
        """Return the number of crawls of each page per unit of time, (m,)."""
        return np.asarray(self.crawls) / (self.width * len(self.gained))

    def __repr__(self) -> str:
        return f"Replay({len(self.mu)} pages, {int(np.sum(self.crawls))} crawls)"
