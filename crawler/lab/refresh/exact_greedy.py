# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Algorithm 1 of Busa-Fekete et al., computed exactly: at each tick, the page with the greatest value is crawled.

A value never falls between crawls. So the value that a page will have some ticks later, without further
signals, is an upper bound of its value until then. From time to time, the upper bounds of the values are
computed for all pages, and sorted. A tick considers the pages with the greatest bounds first, and ends when
no other page can exceed the greatest value found. A crawl or a signal changes the bound of one page, but the
bounds are not sorted again. A page that has received a signal since the last sorting may be too far back in
the order, so each tick considers all these pages.

The file is Cython in pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np

from crawler.freshness.params import Pages
from crawler.freshness.value_kernel import GREEDY as GREEDY_FORM
from crawler.lab.refresh.crawl_value import parameters_of

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import Parameters
else:
    from crawler.freshness.value_kernel import Parameters

GREEDY = cython.declare(cython.Py_ssize_t, GREEDY_FORM)
INFINITY = cython.declare(cython.double, float("inf"))

# bounds are multiplied by this factor, so that rounding does not hide an equal value
_BIT_MORE = cython.declare(cython.double, 1.0 + 1e-12)
# largest number of signals between two sortings
_SIGNALS_MAX = cython.declare(cython.Py_ssize_t, 1024)


@cython.cclass
class ExactGreedy:
    """The exact greedy scheduler of `pages`; `by` is the name of the crawl value that it compares.

    Signals that arrive within `discard_window` after a crawl of the page are
    dropped. Call `note_change` for signals, and `claim_next` and `record_outcome` at each tick.
    """

    parameters: list  # one `Parameters` object per page
    last: cython.double[::1]
    counts: cython.longlong[::1]
    order: cython.Py_ssize_t[::1]
    # the bounds of the pages in `order`, as they were when the pages were sorted
    sorted_bounds: cython.double[::1]
    bounds: cython.double[::1]  # the present bound of each page
    signalled: cython.Py_ssize_t[::1]
    signals: cython.Py_ssize_t  # number of valid elements of `signalled`
    best: cython.Py_ssize_t
    greatest: cython.double
    until: cython.double
    previous: cython.double
    ahead: cython.double
    discard_window: cython.double

    def __init__(self, pages: Pages, by: str = "ncis", *, discard_window: float = 0.0) -> None:
        size = len(pages)
        self.parameters = [parameters_of(pages[number], by=by) for number in range(size)]
        self.last = np.zeros(size)
        self.counts = np.zeros(size, dtype=np.int64)
        self.bounds = np.zeros(size)
        self.signalled = np.zeros(_SIGNALS_MAX, dtype=np.intp)
        self.signals = 0
        self.until = self.previous = 0.0
        self.ahead = 2.0 * size**0.5  # ticks between two sortings
        self.discard_window = discard_window

    @cython.ccall
    def note_change(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Record a signal that the page has changed."""
        page: Parameters = self.parameters[number]
        if page.form == GREEDY or now - self.last[number] < self.discard_window:
            return
        self.counts[number] += 1
        self.bounds[number] = self._value(number, self.until)
        if self.signals < _SIGNALS_MAX:
            self.signalled[self.signals] = number
        self.signals += 1

    @cython.ccall
    def claim_next(self, now: cython.double) -> cython.Py_ssize_t:
        """Return the page with the greatest value at `now`. Among equal values, the smallest page number wins."""
        if not now <= self.until or self.signals > _SIGNALS_MAX:
            self._sort(now)
        self.previous = now
        self.best = -1
        self.greatest = -1.0
        k: cython.Py_ssize_t
        for k in range(self.order.shape[0]):
            if self.sorted_bounds[k] * _BIT_MORE < self.greatest:
                break
            self._consider(self.order[k], now)
        for k in range(self.signals):
            self._consider(self.signalled[k], now)
        return self.best

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _consider(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Evaluate the page `i`, unless its bound is too small."""
        if self.bounds[i] * _BIT_MORE < self.greatest:
            return
        value: cython.double = self._value(i, now)
        if value > self.greatest or (value == self.greatest and i < self.best):
            self.best = i
            self.greatest = value

    @cython.ccall
    def record_outcome(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Record that the page was crawled at `now`."""
        self.last[number] = now
        self.counts[number] = 0
        self.bounds[number] = self._value(number, self.until)

    @cython.cfunc
    def _sort(self, now: cython.double) -> cython.void:
        """Sort the pages by the values that they can reach in the next ticks, greatest first."""
        tick: cython.double = now - self.previous
        self.until = now + self.ahead * tick if tick < INFINITY else now
        i: cython.Py_ssize_t
        bounds = np.empty(len(self.parameters))
        self.bounds = bounds
        for i in range(self.bounds.shape[0]):
            self.bounds[i] = self._value(i, self.until)
        self.order = np.argsort(-bounds, kind="stable")
        self.sorted_bounds = bounds[self.order]
        self.signals = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _value(self, i: cython.Py_ssize_t, now: cython.double) -> cython.double:
        page: Parameters = self.parameters[i]
        return page.value(now - self.last[i], self.counts[i])

    def __repr__(self) -> str:
        return f"ExactGreedy({len(self.parameters)} pages)"
