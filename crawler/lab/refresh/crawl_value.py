"""Computes crawl values, intervals, fresh times and thresholds of a page (`PageParameters`) or many (`Pages`).

These are the values, by name:

    greedy    V_GREEDY: ignores signals; uses only mu and Delta
    cis       GREEDY-CIS: trusts every signal; gamma as observed
    cis-nu0   GREEDY-CIS with gamma = lambda Delta, as if no signal were false
    ncis      GREEDY-NCIS: V, the exact value under noisy signals
    approx-J  the first J terms of V (both sums truncated), a value below V
    cis+      cis for pages with precision > 0.7 and recall > 0.6, greedy for the other pages

`freshness/value_kernel.py`, which is compiled, contains the formulas, their theory and their limits. It does
not check its arguments. This module checks them. Elapsed times and numbers of signals must be from 0 to
infinity, and levels must not be nan. Otherwise, the functions raise ValueError.
"""

import math

import numpy as np

from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.residuals import residual
from crawler.freshness.value_kernel import ALL_TERMS, CUT_TERMS_MAX, KINDS, Parameters
from crawler.lab.refresh.value_columns import (
    Columns,
    fill_fresh_times,
    fill_intervals,
    fill_thresholds,
    fill_values,
    fill_waits,
)

__all__ = [
    "crawl_rate",
    "crawl_value",
    "crawl_values",
    "expected_fresh_time",
    "expected_fresh_times",
    "expected_interval",
    "expected_intervals",
    "kind_of",
    "parameters_of",
    "residual",
    "threshold",
    "thresholds",
    "value_slope",
    "wait",
    "waits",
]


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
    parameters = Parameters()
    parameters.assign(
        *kind_of(by),
        page.importance,
        page.change_rate,
        page.silent_rate,
        page.signal_rate,
        page.false_rate,
        page.signal_weight,
    )
    return parameters


def _state(name: str, value: float) -> float:
    """Return `value`, a time or a number of signals. Raise ValueError if it is negative or nan."""
    if not value >= 0.0:
        raise ValueError(f"{name} is {value}: it must be a number of 0 or more")
    return float(value)


def _level(level: float) -> float:
    if math.isnan(level):
        raise ValueError("level is nan: it must be a number")
    return float(level)


def crawl_value(page: PageParameters, elapsed: float, signals: float = 0, *, by: str = "ncis") -> float:
    """Return the value of crawling `page` now, `elapsed` after its last crawl, with `signals` received since then."""
    return parameters_of(page, by=by).value(_state("elapsed", elapsed), _state("signals", signals))


def threshold(page: PageParameters, level: float, *, by: str = "ncis") -> float:
    """Return the effective elapsed time at which the crawl value reaches `level`. This is the inverse of V.

    The result is infinite if the value stays below `level`. For a page with silent_rate 0, whose value
    increases only with signals, the result is a number of signals.
    """
    return parameters_of(page, by=by).threshold(_level(level), 0.0, 1e-15)


def wait(page: PageParameters, level: float, signals: float = 0, *, by: str = "ncis") -> float:
    """Return the time after the last crawl at which the value reaches `level`, with this number of `signals`.

    The result is 0 if the signals alone suffice, and infinite if the value never reaches `level`.
    """
    return parameters_of(page, by=by).wait(_level(level), _state("signals", signals), 0.0, 1e-15)


def expected_interval(page: PageParameters, at: float) -> float:
    """Return psi, the mean time between crawls of a page that is crawled at the threshold `at`."""
    return parameters_of(page).interval(_state("threshold", at))


def expected_fresh_time(page: PageParameters, at: float) -> float:
    """Return w, the mean time for which a copy stays fresh between crawls at the threshold `at`."""
    return parameters_of(page).fresh_time(_state("threshold", at))


def crawl_rate(page: PageParameters, at: float) -> float:
    """Return f = 1/psi, the number of crawls per unit of time at the threshold `at`.

    The rate is 0 if `at` is infinite, unless signals are certain.
    """
    interval = expected_interval(page, at)
    return 1.0 / interval if interval > 0.0 else math.inf


def value_slope(page: PageParameters, at: float) -> float:
    """Return V' = mu alpha exp(-alpha iota) psi(iota) at the threshold `at`, for silent_rate > 0."""
    return parameters_of(page).slope(_state("threshold", at), 0.0)


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
    pages: Pages,
    elapsed: np.ndarray | float,
    signals: np.ndarray | float = 0,
    *,
    by: str = "ncis",
) -> np.ndarray:
    """Return the values of all pages, (m,), from `elapsed` (m,) and `signals` (m,)."""
    size = len(pages)
    out = np.empty(size)
    times, heard = _column("elapsed", elapsed, size), _column("signals", signals, size)
    fill_values(Columns(*kind_of(by), pages), times, heard, out)
    return out


def thresholds(
    pages: Pages,
    level: float,
    *,
    by: str = "ncis",
    guesses: np.ndarray | float = 0.0,
    tolerance: float = 1e-14,
) -> np.ndarray:
    """Return the `threshold` of each page, (m,). `guesses` are thresholds at a nearby level, or 0 if unknown."""
    out = np.empty(len(pages))
    near = _column("guesses", guesses, len(pages))
    fill_thresholds(Columns(*kind_of(by), pages), _level(level), near, tolerance, out)
    return out


def waits(
    pages: Pages,
    level: float,
    signals: np.ndarray | float = 0,
    *,
    by: str = "ncis",
    guesses: np.ndarray | float = 0.0,
    tolerance: float = 1e-14,
) -> np.ndarray:
    """Return the `wait` of each page, (m,), given its `signals` (m,)."""
    out = np.empty(len(pages))
    heard, near = _column("signals", signals, len(pages)), _column("guesses", guesses, len(pages))
    fill_waits(Columns(*kind_of(by), pages), heard, _level(level), near, tolerance, out)
    return out


def expected_intervals(pages: Pages, at: np.ndarray) -> np.ndarray:
    """Return psi of each page at its threshold, (m,)."""
    out = np.empty(len(pages))
    fill_intervals(Columns(*kind_of("ncis"), pages), _column("thresholds", at, len(pages)), out)
    return out


def expected_fresh_times(pages: Pages, at: np.ndarray) -> np.ndarray:
    """Return w, the expected fresh time per crawl, of each page at its threshold, (m,)."""
    out = np.empty(len(pages))
    fill_fresh_times(Columns(*kind_of("ncis"), pages), _column("thresholds", at, len(pages)), out)
    return out
