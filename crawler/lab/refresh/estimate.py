"""Estimates the change rate and signal quality of a page only from its own crawls, as the cited papers do.

The figures of the papers need these estimators, and so does the import of the data of Kolobov et al. The
estimators that are used in a crawl combine the data of several pages (`freshness/change_rates.py`,
`freshness/signal_quality.py`), because a single page is crawled too seldom for a good estimate.

Each crawl of a page ends an interval. An interval yields three observations: the time tau since the previous
crawl (`elapsed`), the number n of `signals` in the interval, and whether the page has `changed`. The model is

    P[unchanged] = exp(-x),  x = alpha tau + b n

so alpha (`silent_rate`) and b (`signal_weight`) maximise the concave

    sum_{changed} log(1 - exp(-x)) - sum_{unchanged} x          (Busa-Fekete et al., Appendix E;
                                                                 their z is "no change")

The observed rate gamma of all signals then yields nu = gamma exp(-b),
Delta = alpha + gamma - nu, precision = 1 - exp(-b), recall = (gamma - nu)/Delta.

If the page changed in every interval, the sum has its maximum at infinity. If the page changed in no
interval, the maximum is at 0. A `Prior` therefore adds pseudo-intervals and bounds. `KOLOBOV` is the prior of
the public code of Kolobov et al.: one changed and one unchanged interval of half a day, and rates between
0.0005 and 7 per day. For b, we add two similar pseudo-intervals: one signal with a change, and one signal
without a change. With this prior, the first estimate for every page is 1.39 changes per day. The prior must
not be used in a crawl of pages that change much less often than 1.39 times per day, because a page that is
believed to change fast has a low value. The pages whose estimates fell first would always be fetched first. A
page that was fetched only once still has the estimate of the prior, so it would not be fetched again.
`naive_quality` counts signals and changes by interval. The result of `naive_quality` is too large on average,
and the function exists only to show this bias.
"""

import math
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

SIGNAL_WEIGHT_MAX = 30.0  # upper bound of b; the precision is then 1 - 1e-13, which is practically certain
# For x above this number, exp(-x) is negligible compared with 1. The number is less than 709, up to which
# exp(x) is finite.
_UNDERFLOW = 700.0


class Prior(msgspec.Struct, frozen=True):
    """Pseudo-intervals and bounds, in the caller's unit of time.

    The prior adds pairs of artificial intervals between two crawls; one interval of each pair has a change,
    the other has none. `interval_weight` pairs have intervals of length `interval` without signals.
    `signal_weight` pairs have intervals of length 0 with one signal. These intervals pull b towards ln 2.
    `rate_min` and `rate_max` bound alpha.
    """

    interval: float = 0.5
    interval_weight: float = 1.0
    signal_weight: float = 1.0
    rate_min: float = 0.0005
    rate_max: float = 7.0


KOLOBOV = Prior()  # in days
NO_PRIOR = Prior(interval_weight=0.0, signal_weight=0.0, rate_min=0.0, rate_max=math.inf)


class Estimate(msgspec.Struct, frozen=True):
    """Estimated parameters. `*_error` are standard errors, which are infinite if nothing is known.

    The errors are derived from the curvature of the likelihood at its maximum,
    including the prior.
    """

    silent_rate: float
    signal_weight: float
    signal_rate: float
    silent_rate_error: float = math.inf
    signal_weight_error: float = math.inf

    @property
    def false_rate(self) -> float:
        return self.signal_rate * math.exp(-self.signal_weight)

    @property
    def _true_rate(self) -> float:
        """The rate of signalled changes, per unit of time."""
        return self.signal_rate * -math.expm1(-self.signal_weight)

    @property
    def change_rate(self) -> float:
        return self.silent_rate + self._true_rate

    @property
    def precision(self) -> float:
        return -math.expm1(-self.signal_weight)

    @property
    def recall(self) -> float:
        return self._true_rate / self.change_rate if self.change_rate > 0.0 else 0.0


# Five sums over the changed intervals at (alpha, b): two first derivatives (the score) and three negative
# second derivatives (the information).
Curvature = tuple[float, float, float, float, float]


def _curvature(tau: np.ndarray, n: np.ndarray, weight: np.ndarray, alpha: float, b: float) -> Curvature:
    """Return the first and the negative second derivatives of sum weight * log(1 - exp(-x)) in alpha and b."""
    x = np.minimum(alpha * tau + b * n, _UNDERFLOW)
    slope = weight / np.expm1(x)
    bend = slope / -np.expm1(-x)
    along = bend * tau
    return (  # sums of products, because BLAS would start threads for dot products
        float((slope * tau).sum()),
        float((slope * n).sum()),
        float((along * tau).sum()),
        float((along * n).sum()),
        float((bend * n * n).sum()),
    )


def _maximise(
    curvature: Callable[[float, float], Curvature],
    unchanged_time: float,
    unchanged_signals: float,
    start: tuple[float, float],
    bounds: tuple[float, float],
) -> tuple[float, float, Curvature]:
    """Maximise the likelihood within bounds by Newton's method. Return alpha, b, and the curvature at this point.

    A step goes too far if the likelihood falls at its end nearly as steeply as it rose at its start. Such a
    step is halved. On a concave function, this ensures progress. A parameter shrinks at most tenfold per
    step, because the likelihood is defined only for x > 0. Usually 6 steps suffice; 60 is the limit.
    """
    low, high = bounds
    alpha, b = min(max(start[0], low, 1e-12), high), start[1]
    sums = curvature(alpha, b)
    for _ in range(60):
        s1, s2 = sums[0] - unchanged_time, sums[1] - unchanged_signals
        step1, step2 = _newton_step(
            (alpha, b),
            (s1, s2),
            sums,
            _pinned(alpha, s1, low, high),
            _pinned(b, s2, 0.0, SIGNAL_WEIGHT_MAX),
        )
        if sums[2] == 0.0 and s1 < 0.0:  # if no interval changed, the maximum is at the lower bound
            step1 = -alpha
        if sums[4] == 0.0 and s2 < 0.0:
            step2 = -b
        part = 1.0
        while True:
            new_alpha = max(min(max(alpha + part * step1, 0.1 * alpha, low), high), 1e-300)
            new_b = min(max(b + part * step2, 0.1 * b), SIGNAL_WEIGHT_MAX)
            new_b = 0.0 if new_b < 1e-12 else new_b
            sums = curvature(new_alpha, new_b)
            d1, d2 = new_alpha - alpha, new_b - b
            before = s1 * d1 + s2 * d2
            after = (sums[0] - unchanged_time) * d1 + (sums[1] - unchanged_signals) * d2
            if after >= -0.9 * before or part < 1e-9:
                break
            part *= 0.5
        done = abs(d1) <= 1e-12 * alpha and abs(d2) <= 1e-12 * (b + 1e-6)
        alpha, b = new_alpha, new_b
        if done:
            break
    return alpha, b, sums


def _pinned(value: float, score: float, low: float, high: float) -> bool:
    return (value <= low and score <= 0.0) or (value >= high and score >= 0.0)


def _newton_step(
    at: tuple[float, float], score: tuple[float, float], sums: Curvature, fix1: bool, fix2: bool
) -> tuple[float, float]:
    """Solve H step = score for the free parameters, and return the step.

    If all changed intervals have the same ratio of time to signals, H is singular. The likelihood is then
    curved only along (h11, h12), and linear along (h12, -h11). If the score along the linear direction is not
    0, one parameter is 0 at the maximum. So this parameter is reduced tenfold, and the other one is adapted
    to it.
    """
    _, _, h11, h12, h22 = sums
    s1, s2 = score
    if fix1 or h11 <= 0.0:
        return 0.0, (s2 / h22 if h22 > 0.0 and not fix2 else 0.0)
    if fix2 or h22 <= 0.0:
        return s1 / h11, 0.0
    determinant = h11 * h22 - h12 * h12
    if determinant > 1e-12 * h11 * h22:
        return (s1 * h22 - s2 * h12) / determinant, (s2 * h11 - s1 * h12) / determinant
    alpha, b = at
    slope, scale = s1 * h12 - s2 * h11, abs(s1) * h12 + abs(s2) * h11
    if slope < -1e-9 * scale:
        return -0.9 * alpha, (s2 + 0.9 * alpha * h12) / h22
    if slope > 1e-9 * scale:
        return (s1 + 0.9 * b * h12) / h11, -0.9 * b
    along = (s1 * h11 + s2 * h12) / ((h11 * h11 + h12 * h12) * (h11 + h22))
    return along * h11, along * h12


def _errors(sums: Curvature) -> tuple[float, float]:
    """Return the standard errors of alpha and b, computed from the information matrix."""
    _, _, h11, h12, h22 = sums
    determinant = h11 * h22 - h12 * h12
    if determinant > 1e-12 * h11 * h22 > 0.0:
        return math.sqrt(h22 / determinant), math.sqrt(h11 / determinant)
    return (1.0 / math.sqrt(h11) if h11 > 0.0 else math.inf), math.inf


def fit(
    elapsed: np.ndarray,
    signals: np.ndarray,
    changed: np.ndarray,
    *,
    signal_rate: float | None = None,
    prior: Prior = NO_PRIOR,
) -> Estimate:
    """Return the maximum-likelihood estimate from k crawl intervals, arrays (k,).

    Args:
        signal_rate: gamma, if it is known from another source; by default, the observed signals per unit of time.
        prior: without a prior, the estimate is practically infinite if all intervals changed, and zero if no
            interval did.
    """
    tau = np.asarray(elapsed, dtype=np.float64)
    n = np.asarray(signals, dtype=np.float64)
    z = np.asarray(changed, dtype=bool)
    pseudo = np.array([[prior.interval, 0.0, prior.interval_weight], [0.0, 1.0, prior.signal_weight]])
    observed = np.column_stack([tau[z], n[z], np.ones(int(z.sum()))])
    changed_intervals = np.vstack([observed, pseudo[pseudo[:, 2] > 0.0]])  # rows (tau, n, weight)
    watched, heard = float(tau.sum()), float(n.sum())
    gamma = signal_rate if signal_rate is not None else (heard / watched if watched > 0.0 else 0.0)
    alpha, b, sums = _maximise(
        partial(_curvature, *np.ascontiguousarray(changed_intervals.T)),
        float(tau[~z].sum()) + prior.interval * prior.interval_weight,
        float(n[~z].sum()) + prior.signal_weight,
        ((float(z.sum()) + 0.5) / watched if watched > 0.0 else 1.0, 0.5),
        (prior.rate_min, prior.rate_max),
    )
    return Estimate(alpha, b, gamma, *_errors(sums))


def naive_quality(signals: np.ndarray, changed: np.ndarray) -> tuple[float, float]:
    """Return precision and recall, counted by interval (the paper's Appendix E).

    They are too large on average. A value that is undefined is nan.
    """
    told = np.asarray(signals) > 0
    z = np.asarray(changed, dtype=bool)
    both = float((told & z).sum())
    return (
        both / float(told.sum()) if told.any() else math.nan,
        both / float(z.sum()) if z.any() else math.nan,
    )
