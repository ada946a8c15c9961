"""Crawl values by name, for one page (`Page`) or all (`Pages`), with intervals, fresh times and thresholds.

    greedy    V_GREEDY: no signals; knows mu and Delta only
    cis       GREEDY-CIS: believes every signal; gamma as observed
    cis-nu0   GREEDY-CIS with gamma = lambda Delta: as if no signal were false
    ncis      GREEDY-NCIS: V, the exact value of noisy signals
    approx-J  the first J terms of V (both sums cut); below V
    cis+      cis on pages of precision > 0.7 and recall > 0.6, greedy on the others

The formulas, their theory and their limits are in `value_kernel.py` (compiled).
"""

import math

import numpy as np

from crawler.freshness.params import Page, Pages
from crawler.freshness.value_kernel import (
    ALL_TERMS,
    KINDS,
    fill_fresh_times,
    fill_intervals,
    fill_thresholds,
    fill_values,
    fresh_time_of,
    interval_of,
    residual,
    threshold_of,
    value_of,
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
    "residual",
    "threshold",
    "thresholds",
    "value_slope",
]


def kind_of(name: str) -> tuple[int, int]:
    """The (kind, terms) that `value_of` takes for a value's name.

    Raises:
        KeyError: there is no such value.
    """
    if name.startswith("approx-") and name[7:].isdecimal() and 1 <= int(name[7:]) <= ALL_TERMS:
        return KINDS["ncis"], int(name[7:])
    return KINDS[name], ALL_TERMS


def _raw(page: Page) -> tuple:
    return (
        page.importance,
        page.change_rate,
        page.silent_rate,
        page.signal_rate,
        page.false_rate,
        page.signal_weight,
    )


def crawl_value(page: Page, elapsed: float, signals: int = 0, *, by: str = "ncis") -> float:
    """The value of crawling `page` now, `elapsed` after its last crawl with `signals` since."""
    kind, terms = kind_of(by)
    return value_of(kind, terms, *_raw(page), elapsed, signals)


def threshold(page: Page, level: float, *, by: str = "ncis") -> float:
    """The effective elapsed time at which the crawl value reaches `level`: V inverse.

    Infinite if the value stays below `level`; a number of signals for a page
    with silent_rate 0 (its value steps at each signal).
    """
    kind, terms = kind_of(by)
    return threshold_of(kind, terms, *_raw(page), level, 0.0, 1e-15)


def expected_interval(page: Page, at: float) -> float:
    """psi: the mean time between crawls of a page crawled at the threshold `at`."""
    _, _, *rates = _raw(page)
    return interval_of(ALL_TERMS, *rates, at)


def expected_fresh_time(page: Page, at: float) -> float:
    """w: the mean time the copy stays fresh between such crawls."""
    _, *rates = _raw(page)
    return fresh_time_of(*rates, at)


def crawl_rate(page: Page, at: float) -> float:
    """f = 1/psi: crawls per time at the threshold `at`; 0 if it is infinite (and a signal is not certain)."""
    interval = expected_interval(page, at)
    return 1.0 / interval if interval > 0.0 else math.inf


def value_slope(page: Page, at: float) -> float:
    """V' = mu alpha exp(-alpha iota) psi(iota) at the threshold `at`, for silent_rate > 0."""
    alpha = page.silent_rate if page.signal_weight >= 1e-9 else page.change_rate
    return page.importance * alpha * math.exp(-alpha * at) * expected_interval(page, at)


def crawl_values(
    pages: Pages,
    elapsed: np.ndarray,
    signals: np.ndarray | int = 0,
    *,
    by: str = "ncis",
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The value of each page: (m,) from `elapsed` (m,) and `signals` (m,), into `out` if given."""
    kind, terms = kind_of(by)
    out = np.empty(len(pages)) if out is None else out
    fill_values(
        kind,
        terms,
        pages.importance,
        pages.change_rate,
        pages.silent_rate,
        pages.signal_rate,
        pages.false_rate,
        pages.signal_weight,
        np.ascontiguousarray(np.broadcast_to(elapsed, out.shape), dtype=np.float64),
        np.ascontiguousarray(np.broadcast_to(signals, out.shape), dtype=np.int64),
        out,
    )
    return out


def thresholds(
    pages: Pages,
    level: float,
    *,
    by: str = "ncis",
    guesses: np.ndarray | None = None,
    tolerance: float = 1e-14,
) -> np.ndarray:
    """`threshold` of each page, (m,); `guesses` are thresholds of a nearby level."""
    kind, terms = kind_of(by)
    out = np.empty(len(pages))
    fill_thresholds(
        kind,
        terms,
        pages.importance,
        pages.change_rate,
        pages.silent_rate,
        pages.signal_rate,
        pages.false_rate,
        pages.signal_weight,
        level,
        np.zeros(len(pages)) if guesses is None else np.ascontiguousarray(guesses, dtype=np.float64),
        tolerance,
        out,
    )
    return out


def expected_intervals(pages: Pages, at: np.ndarray) -> np.ndarray:
    """psi of each page at its threshold, (m,)."""
    out = np.empty(len(pages))
    fill_intervals(pages.silent_rate, pages.signal_rate, pages.false_rate, pages.signal_weight, at, out)
    return out


def expected_fresh_times(pages: Pages, at: np.ndarray) -> np.ndarray:
    """w of each page at its threshold, (m,)."""
    out = np.empty(len(pages))
    fill_fresh_times(
        pages.change_rate,
        pages.silent_rate,
        pages.signal_rate,
        pages.false_rate,
        pages.signal_weight,
        at,
        out,
    )
    return out
