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
interval, the maximum is at 0. The data of Kolobov et al. have no signals. `rate_of` estimates their rates with
the prior of their public code: one changed and one unchanged interval of half a day, and rates between 0.0005
and 7 per day. With this prior, the first estimate for every page is 1.39 changes per day. The prior must not be
used in a crawl of pages that change much less often than 1.39 times per day, because a page that is believed to
change fast has a low value. The pages whose estimates fell first would always be fetched first. A page that was
fetched only once still has the estimate of the prior, so it would not be fetched again.
`naive_quality` counts signals and changes by interval. The result of `naive_quality` is too large on average,
and the function exists only to show this bias.
"""

import math

import msgspec
import numpy as np

from crawler.lab.extras import require

SIGNAL_WEIGHT_MAX = 30.0  # upper bound of b; the precision is then 1 - 1e-13, which is practically certain
# For x above this number, exp(-x) is negligible compared with 1. The number is less than 709, up to which
# exp(x) is finite.
_UNDERFLOW = 700.0
_LEAST = 1e-12  # a smaller x of a changed interval counts as this, so that its likelihood is not 0
TOLERANCES = {"ftol": 1e-15, "gtol": 1e-9}
# The prior of Kolobov et al.: the length of its two intervals, and the bounds of the rate per day.
PRIOR_DAYS = 0.5
RATE_MIN, RATE_MAX = 0.0005, 7.0


class Estimate(msgspec.Struct, frozen=True):
    """Estimated parameters."""

    silent_rate: float
    signal_weight: float
    signal_rate: float

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


def fit(elapsed: np.ndarray, signals: np.ndarray, changed: np.ndarray) -> Estimate:
    """Return the maximum-likelihood estimate from k crawl intervals, arrays (k,).

    The estimate is practically infinite if all intervals changed, and zero if no interval did.
    """
    tau, n = np.asarray(elapsed, dtype=np.float64), np.asarray(signals, dtype=np.float64)
    z = np.asarray(changed, dtype=bool)
    times, counts = tau[z], n[z]
    unchanged = np.array([tau[~z].sum(), n[~z].sum()])
    watched = float(tau.sum())

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative logarithm of the likelihood at (alpha, b), and its gradient."""
        x = np.clip(point[0] * times + point[1] * counts, _LEAST, _UNDERFLOW)
        slope = 1.0 / np.expm1(x)
        gradient = unchanged - [(slope * times).sum(), (slope * counts).sum()]
        return float(unchanged @ point - np.log(-np.expm1(-x)).sum()), gradient

    start = ((len(times) + 0.5) / watched if watched > 0.0 else 1.0, 0.5)
    found = require("scipy.optimize").minimize(
        loss,
        start,
        jac=True,
        method="TNC",
        bounds=((0.0, None), (0.0, SIGNAL_WEIGHT_MAX)),
        options=TOLERANCES,
    )
    alpha, b = found.x.tolist()
    gamma = float(n.sum()) / watched if watched > 0.0 else 0.0
    return Estimate(alpha, b, gamma)


def rate_of(days: np.ndarray, changed: np.ndarray) -> float:
    """Return the change rate per day from k crawl intervals without signals, (k,), with the prior of Kolobov et al."""
    times = np.append(days[changed], PRIOR_DAYS)
    unchanged = float(days[~changed].sum()) + PRIOR_DAYS

    def score(rate: float) -> float:
        return float((times / np.expm1(np.minimum(rate * times, _UNDERFLOW))).sum()) - unchanged

    if score(RATE_MAX) >= 0.0:
        return RATE_MAX
    return (
        float(require("scipy.optimize").brentq(score, RATE_MIN, RATE_MAX))
        if score(RATE_MIN) > 0.0
        else RATE_MIN
    )


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
