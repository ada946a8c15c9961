"""Computes refresh rates: the optima of Azar et al. (2018) and of Busa-Fekete et al., and the rates of simpler rules.

    optimal_probabilities   Algorithm 1: one page per time slot, drawn at random    F1
    optimal_rates           Algorithm 2: Poisson refreshes                          F2
    deterministic_optimum   OPT / BASELINE: even intervals, no signals              F, by bisection
    optimum_with_signals    Theorem 1: thresholds on effective elapsed time
    low_discrepancy         Algorithm 3: a schedule from rates, with an error of at most 1 at any time
    change_directed         Cho and Garcia-Molina: OPT as if all pages were equally important
    proportional, uniform   rates proportional to importance; equal rates

All functions take importance mu and change rate Delta as arrays (m,) and return rates (m,)
that sum to the bandwidth.
"""

import heapq
import math
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction

import msgspec
import numpy as np

from crawler.freshness.params import Pages
from crawler.lab.extras import require
from crawler.lab.refresh.crawl_value import expected_fresh_times, expected_intervals, thresholds


def poisson_freshness(importance: np.ndarray, change_rate: np.ndarray, rates: np.ndarray) -> float:
    """Return F2 = sum mu rho / (rho + Delta), the freshness with refreshes at random (Azar et al., Eq. 5)."""
    return float(np.sum(importance * rates / (rates + change_rate)))


def slotted_freshness(importance: np.ndarray, change_rate: np.ndarray, probabilities: np.ndarray) -> float:
    """Return F1 = sum mu p / (p + Delta - p Delta), the freshness with one page per slot (Azar et al., Eq. 3)."""
    kept = 1.0 - change_rate
    return poisson_freshness(importance / kept, change_rate / kept, probabilities)


def even_freshness(importance: np.ndarray, change_rate: np.ndarray, rates: np.ndarray) -> float:
    """Return F = sum mu (rho/Delta) (1 - exp(-Delta/rho)), the freshness with even intervals (Azar et al., Eq. 6)."""
    x = np.divide(change_rate, rates, out=np.full(len(rates), np.inf), where=rates > 0.0)
    return float(np.sum(importance * np.where(x > 0.0, -np.expm1(-x) / np.where(x > 0.0, x, 1.0), 1.0)))


def optimal_rates(importance: np.ndarray, change_rate: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the rates that maximise F2 (Algorithm 2). The result is exact, and takes O(m log m) time."""
    root = np.sqrt(importance * change_rate)
    out = np.zeros(len(importance))
    r, s = float(root.sum()), float(change_rate.sum())
    order = np.argsort(importance / change_rate, kind="stable")
    for place, i in enumerate(order):
        if importance[i] / change_rate[i] > (r / (bandwidth + s)) ** 2:
            rest = order[place:]
            out[rest] = root[rest] * (bandwidth + s) / r - change_rate[rest]
            break
        r -= root[i]
        s -= change_rate[i]
    return out


def optimal_probabilities(importance: np.ndarray, change_rate: np.ndarray) -> np.ndarray:
    """Return the distribution over pages that maximises F1 (Algorithm 1). `change_rate` is in (0, 1) per slot.

    F1 is F2 with mu and Delta divided by 1 - Delta.
    """
    kept = 1.0 - change_rate
    return optimal_rates(importance / kept, change_rate / kept, 1.0)


PRECISION = 4.0 * sys.float_info.epsilon  # of a level; it is the greatest precision that `brentq` accepts


class Optimum(msgspec.Struct, frozen=True):
    """A continuous optimum: `level` is the value of one more crawl per unit of time.

    `thresholds` holds iota of each page. Iota is infinite for a page that is never crawled. If the
    silent_rate of a page is 0, its iota is a number of signals instead of a time. `accuracy` is the share of
    requests that are answered with a fresh copy.
    """

    level: float
    thresholds: np.ndarray
    rates: np.ndarray
    accuracy: float


def optimum_with_signals(pages: Pages, bandwidth: float) -> Optimum:
    """Return the optimum of Theorem 1, at the level where the pages' crawl rates sum to `bandwidth`.

    At some level, the sum of the rates may jump from above the bandwidth to below it. This is possible if the
    signals of a page are certain, or if a page never changes silently. Then there is one solution with too
    many crawls and one with too few. A weighted mean of the two uses exactly the bandwidth: the page is
    crawled after some of its signals, but not after all of them.
    """
    return _optimum(pages, bandwidth, "ncis")


def deterministic_optimum(importance: np.ndarray, change_rate: np.ndarray, bandwidth: float) -> Optimum:
    """Return OPT, the optimum with even intervals and no signals. Busa-Fekete et al. call its accuracy BASELINE."""
    return _optimum(Pages(importance, change_rate), bandwidth, "greedy")


def _optimum(pages: Pages, bandwidth: float, by: str) -> Optimum:
    """Find the level at which the rates sum to the bandwidth, by Brent's method.

    The sum of the rates decreases as the level rises, but it may jump over the bandwidth. Then the solutions
    just below and just above the level are mixed.
    """
    guesses = np.zeros(len(pages))

    def excess(level: float) -> float:
        guesses[:] = thresholds(pages, level, by=by, guesses=guesses)
        return float(_rates(pages, guesses).sum()) - bandwidth

    high = float(np.where(pages.change_rate > 0.0, pages.ceiling, 0.0).max(initial=0.0))
    low = 0.5 * high
    while low > 1e-300 and excess(low) < 0.0:
        low, high = 0.5 * low, low
    if low > 1e-300:
        low = float(require("scipy.optimize").brentq(excess, low, high, xtol=1e-300, rtol=PRECISION))
        low, high = low * (1.0 - PRECISION), low * (1.0 + PRECISION)
    return _mixed(pages, bandwidth, low, high, by, guesses)


def _rates(pages: Pages, at: np.ndarray) -> np.ndarray:
    """Return the number of crawls of each page per unit of time at its threshold; 0 for infinite thresholds."""
    intervals = expected_intervals(pages, at)
    never = np.isinf(at)
    return np.where(never, 0.0, 1.0 / np.where(never, 1.0, intervals))


def _mixed(pages: Pages, bandwidth: float, low: float, high: float, by: str, guesses: np.ndarray) -> Optimum:
    """Return the weighted mean of the solutions at the levels `low` and `high`. Its rates sum to `bandwidth`.

    The two levels are equal up to rounding.
    """
    below, above = (thresholds(pages, level, by=by, guesses=guesses) for level in (low, high))
    more, fewer = _rates(pages, below), _rates(pages, above)
    spread = more.sum() - fewer.sum()
    share = min(1.0, max(0.0, (bandwidth - fewer.sum()) / spread)) if spread > 0.0 else 1.0
    gains = [
        np.sum(pages.importance * freshness(pages, at, rates))
        for at, rates in ((below, more), (above, fewer))
    ]
    accuracy = (share * gains[0] + (1.0 - share) * gains[1]) / pages.importance.sum()
    rates = share * more + (1.0 - share) * fewer
    # If the level is just below the maximum of a page's value, even a rounding error in the level may change
    # the page's rate considerably. Then no mixture of the two solutions has exactly the sum `bandwidth`, so
    # the rates are scaled to this sum.
    if bandwidth > 0.0 and rates.sum() > 0.0:
        rates *= bandwidth / rates.sum()
    return Optimum(low, below, rates, float(accuracy))


def freshness(pages: Pages, at: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the share of time in which each page is fresh at its threshold and rate.

    For a page that never changes, it is 1.
    """
    fresh = expected_fresh_times(pages, np.where(rates > 0.0, at, 0.0)) * rates
    return np.where(pages.change_rate > 0.0, fresh, 1.0)


def change_directed(change_rate: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the rates that are optimal if all pages are equally important."""
    return deterministic_optimum(np.ones(len(change_rate)), change_rate, bandwidth).rates


def proportional(importance: np.ndarray, bandwidth: float) -> np.ndarray:
    return importance * (bandwidth / importance.sum())


def uniform(size: int, bandwidth: float) -> np.ndarray:
    return np.full(size, bandwidth / size)


def low_discrepancy(rates: Sequence[float] | Sequence[Fraction] | np.ndarray) -> Iterator[int]:
    """Yield pages without end, so that page k is chosen in a share `rates[k]` of the steps (Algorithm 3).

    After t steps, page k has been chosen t rates[k] times, with an error of at most 1. Job j of page k may
    run from step floor((j-1)/rate) + 1 on, and must run by step ceil(j/rate). Of the jobs that may run, the
    one with the earliest deadline runs. Two heaps find this job in O(log m) per step. Rates are divided by
    their sum; Fractions stay exact. Of jobs with equal deadlines, the one with the smallest page number runs
    first. Pages of rate 0 are never chosen.
    """
    total = sum(rates)
    shares = [(rate / total, k) for k, rate in enumerate(rates) if rate > 0]
    waiting = [(1, k, share, 1) for share, k in shares]  # (release, page, share, job)
    heapq.heapify(waiting)
    ready: list[tuple[int, int, float, int]] = []  # (deadline, page, share, job)
    step = 0
    while shares:
        step += 1
        while waiting and waiting[0][0] <= step:
            _, k, share, job = heapq.heappop(waiting)
            heapq.heappush(ready, (_ceil(job / share), k, share, job))
        if not ready:  # this happens only if float rates were rounded
            step = waiting[0][0] - 1
            continue
        _, k, share, job = heapq.heappop(ready)
        heapq.heappush(waiting, (_floor(job / share) + 1, k, share, job + 1))
        yield k


def _ceil(x: float | Fraction) -> int:
    return math.ceil(x if isinstance(x, Fraction) else x - 1e-9 * max(1.0, x))


def _floor(x: float | Fraction) -> int:
    return math.floor(x if isinstance(x, Fraction) else x + 1e-9 * max(1.0, x))
