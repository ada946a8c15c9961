# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes crawl values, waits, thresholds, intervals and fresh times of many pages, and puts them into arrays `out`.

Arguments are not checked here; `crawl_value.py` checks them. The file is Cython in pure-Python
mode (see `freshness/value_kernel.py`), with attributes declared in `value_columns.pxd`.
"""

import cython

from crawler.freshness.params import Pages

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import Parameters
else:
    from crawler.freshness.value_kernel import Parameters


@cython.cclass
class Columns:
    """The columns of `pages`, and the kind of crawl value to compute. `kind_of` returns `kind` and `terms`."""

    def __init__(self, kind: cython.Py_ssize_t, terms: cython.Py_ssize_t, pages: Pages) -> None:
        self.kind = kind
        self.terms = terms
        self.count = len(pages)
        self.importance = pages.importance
        self.change_rate = pages.change_rate
        self.silent_rate = pages.silent_rate
        self.signal_rate = pages.signal_rate
        self.false_rate = pages.false_rate
        self.signal_weight = pages.signal_weight
        self._page = Parameters()

    @cython.cfunc
    def page(self, i: cython.Py_ssize_t) -> Parameters:
        """Return the parameters of page `i`. The next call overwrites the returned object."""
        self._page.assign(
            self.kind,
            self.terms,
            self.importance[i],
            self.change_rate[i],
            self.silent_rate[i],
            self.signal_rate[i],
            self.false_rate[i],
            self.signal_weight[i],
        )
        return self._page


@cython.ccall
def fill_values(
    pages: Columns,
    elapsed: cython.const[cython.double][::1],
    signals: cython.const[cython.double][::1],
    out: cython.double[::1],
) -> cython.void:
    """Compute V, the crawl value, of each page."""
    i: cython.Py_ssize_t
    for i in range(pages.count):
        out[i] = pages.page(i).value(elapsed[i], signals[i])


@cython.ccall
def fill_thresholds(
    pages: Columns,
    level: cython.double,
    guess: cython.const[cython.double][::1],
    tolerance: cython.double,
    out: cython.double[::1],
) -> cython.void:
    """Compute `Parameters.threshold` of each page."""
    i: cython.Py_ssize_t
    for i in range(pages.count):
        out[i] = pages.page(i).threshold(level, guess[i], tolerance)


@cython.ccall
def fill_intervals(
    pages: Columns, at: cython.const[cython.double][::1], out: cython.double[::1]
) -> cython.void:
    """Compute psi, the expected interval, of each page."""
    i: cython.Py_ssize_t
    for i in range(pages.count):
        out[i] = pages.page(i).interval(at[i])


@cython.ccall
def fill_fresh_times(
    pages: Columns, at: cython.const[cython.double][::1], out: cython.double[::1]
) -> cython.void:
    """Compute w, the expected fresh time, of each page."""
    i: cython.Py_ssize_t
    for i in range(pages.count):
        out[i] = pages.page(i).fresh_time(at[i])
