"""Computes crawl values, intervals, fresh times and thresholds of many pages (`Pages`).

A crawl value is selected by its name:

    greedy    V_GREEDY: ignores signals; uses only mu and Delta
    cis       GREEDY-CIS: trusts every signal; gamma as observed
    cis-nu0   GREEDY-CIS with gamma = lambda Delta, as if no signal were false
    ncis      GREEDY-NCIS: V, the exact value under noisy signals
    approx-J  the first J terms of V (both sums truncated), a value below V
    cis+      cis for pages with precision > 0.7 and recall > 0.6, greedy for the other pages

`freshness/value_kernel.py`, which is compiled, contains the formulas, their theory and their limits. The
functions of the compiled module do not check their arguments, so this module checks them. Elapsed times and
numbers of signals must be from 0 to infinity, and levels must not be nan; other arguments raise ValueError.
"""

import math

import numpy as np

from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.value_kernel import ALL_TERMS, CUT_TERMS_MAX, KINDS, Parameters
from crawler.lab.refresh.value_columns import (
    Columns,
    fill_fresh_times,
    fill_intervals,
    fill_thresholds,
    fill_values,
)


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


def _level(level: float) -> float:
    if math.isnan(level):
        raise ValueError("level is nan: it must be a number")
    return float(level)


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
