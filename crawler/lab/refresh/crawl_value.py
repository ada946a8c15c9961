# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes crawl values, intervals, fresh times and thresholds of many pages (`Pages`).

A crawl value is selected by its name:

    greedy    V_GREEDY: ignores signals; uses only mu and Delta
    cis       GREEDY-CIS: trusts every signal; gamma as observed
    cis-nu0   GREEDY-CIS with gamma = lambda Delta, as if no signal were false
    ncis      GREEDY-NCIS: V, the exact value under noisy signals
    approx-J  the first J terms of V (both sums truncated), a value below V
    cis+      cis for pages with precision > 0.7 and recall > 0.6, greedy for the other pages

`freshness/value_kernel.py` contains the formulas, their theory and their limits, and does not check its
arguments. Elapsed times and numbers of signals must be from 0 to infinity, and levels must not be nan; for other
arguments, the functions of this module raise ValueError. The file is Cython in pure-Python mode (see
`freshness/value_kernel.py`).
"""

import math

import cython
import numpy as np

from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.value_kernel import ALL_TERMS, CUT_TERMS_MAX, KINDS

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import Parameters
else:
    from crawler.freshness.value_kernel import Parameters


def kind_of(name: str) -> tuple[int, int]:
    """Return the pair (kind, terms) by which `Parameters.assign` selects the value of this name.

    Raises:
        KeyError: there is no value of that name.
    """
    if name.startswith("approx-") and name[7:].isdecimal() and 1 <= int(name[7:]) <= CUT_TERMS_MAX:
        return KINDS["ncis"], int(name[7:])
    return KINDS[name], ALL_TERMS


def parameters_of(page: PageParameters, *, by: str = "ncis") -> Parameters:
    """Return the page's parameters as an object of the compiled kernel."""
    kind, terms = kind_of(by)
    parameters = Parameters()
    parameters.assign(
        kind,
        terms,
        page.importance,
        page.change_rate,
        page.silent_rate,
        page.signal_rate,
        page.false_rate,
        page.signal_weight,
    )
    return parameters


@cython.cclass
class Columns:
    """The columns of `pages`, and the kind of crawl value to compute."""

    count: cython.Py_ssize_t
    kind: cython.Py_ssize_t
    terms: cython.Py_ssize_t
    importance: cython.const[cython.double][::1]
    change_rate: cython.const[cython.double][::1]
    silent_rate: cython.const[cython.double][::1]
    signal_rate: cython.const[cython.double][::1]
    false_rate: cython.const[cython.double][::1]
    signal_weight: cython.const[cython.double][::1]
    _page: Parameters

    def __init__(self, pages: Pages, by: str) -> None:
        self.count = len(pages)
        self.kind, self.terms = kind_of(by)
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


def _column(name: str, values: np.ndarray | float, size: int) -> np.ndarray:
    """Return times or numbers of signals as an array (m,) for the kernel.

    Raise ValueError if one of them is negative or nan.
    """
    column = np.ascontiguousarray(np.broadcast_to(values, (size,)), dtype=np.float64)
    right = column >= 0.0
    if not right.all():
        page = int(np.argmin(right))
        raise ValueError(f"{name} of page {page} is {column[page]}: it must be a number of 0 or more")
    return column


def crawl_values(
    pages: Pages, elapsed: np.ndarray | float, signals: np.ndarray | float = 0, *, by: str = "ncis"
) -> np.ndarray:
    """Return the values of all pages, (m,), from `elapsed` (m,) and `signals` (m,)."""
    columns: Columns = Columns(pages, by)
    times: cython.const[cython.double][::1] = _column("elapsed", elapsed, columns.count)
    heard: cython.const[cython.double][::1] = _column("signals", signals, columns.count)
    out: cython.double[::1] = np.empty(columns.count)
    i: cython.Py_ssize_t
    for i in range(columns.count):
        out[i] = columns.page(i).value(times[i], heard[i])
    return np.asarray(out)


def thresholds(
    pages: Pages,
    level: float,
    *,
    by: str = "ncis",
    guesses: np.ndarray | float = 0.0,
    tolerance: float = 1e-14,
) -> np.ndarray:
    """Return the `threshold` of each page, (m,). `guesses` are thresholds at a nearby level, or 0 if unknown."""
    if math.isnan(level):
        raise ValueError("level is nan: it must be a number")
    columns: Columns = Columns(pages, by)
    near: cython.const[cython.double][::1] = _column("guesses", guesses, columns.count)
    out: cython.double[::1] = np.empty(columns.count)
    i: cython.Py_ssize_t
    for i in range(columns.count):
        out[i] = columns.page(i).threshold(level, near[i], tolerance)
    return np.asarray(out)


def expected_intervals(pages: Pages, at: np.ndarray) -> np.ndarray:
    """Return psi of each page at its threshold, (m,)."""
    columns: Columns = Columns(pages, "ncis")
    reached: cython.const[cython.double][::1] = _column("thresholds", at, columns.count)
    out: cython.double[::1] = np.empty(columns.count)
    i: cython.Py_ssize_t
    for i in range(columns.count):
        out[i] = columns.page(i).interval(reached[i])
    return np.asarray(out)


def expected_fresh_times(pages: Pages, at: np.ndarray) -> np.ndarray:
    """Return w, the expected fresh time per crawl, of each page at its threshold, (m,)."""
    columns: Columns = Columns(pages, "ncis")
    reached: cython.const[cython.double][::1] = _column("thresholds", at, columns.count)
    out: cython.double[::1] = np.empty(columns.count)
    i: cython.Py_ssize_t
    for i in range(columns.count):
        out[i] = columns.page(i).fresh_time(reached[i])
    return np.asarray(out)
