"""Test the estimators: golden values, edge cases and bias."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from crawler.lab.refresh.estimate import RATE_MAX, RATE_MIN, SIGNAL_WEIGHT_MAX, fit, naive_quality, rate_of

GOLDEN = json.loads((Path(__file__).parent.parent.parent / "golden" / "refresh_values.json").read_text())[
    "estimator"
]


def _intervals(
    rng: np.random.Generator, k: int, alpha: float, b: float, gamma: float, crawl_rate: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tau = rng.exponential(1 / crawl_rate, k)
    n = rng.poisson(gamma * tau)
    return tau, n, rng.random(k) > np.exp(-(alpha * tau + b * n))


@pytest.mark.parametrize("record", GOLDEN)
def test_golden_estimates(record: dict) -> None:
    tau, n, z = (np.array(record[key]) for key in ("tau", "n_cis", "changed"))
    got = fit(tau, n, z)
    assert got.silent_rate == pytest.approx(record["mle_alpha"], abs=record["tolerance"])
    assert got.signal_weight == pytest.approx(record["mle_b"], abs=record["tolerance"])
    assert got.signal_rate == pytest.approx(record["gamma"], rel=1e-8)
    derived = record["derived"]
    assert got.change_rate == pytest.approx(derived["delta"], abs=1e-6)
    assert got.false_rate == pytest.approx(derived["nu"], abs=1e-6)
    assert got.precision == pytest.approx(derived["precision"], abs=1e-6)
    assert got.recall == pytest.approx(derived["recall"], abs=1e-6)
    naive = naive_quality(n, z)
    assert naive == pytest.approx((record["naive_precision"], record["naive_recall"]))


def test_naive_estimates_are_biased_and_the_likelihood_is_not() -> None:
    rng, alpha, b, gamma = np.random.default_rng(4), 0.05, 0.4, 0.3
    tau, n, z = _intervals(rng, 100_000, alpha, b, gamma, 0.1)
    precision = 1 - math.exp(-b)
    assert naive_quality(n, z)[0] > precision + 0.2
    assert fit(tau, n, z).precision == pytest.approx(precision, abs=0.02)


def test_long_histories_converge() -> None:
    """In an earlier version, the steps of Newton's method were damped too much for a sharp likelihood."""
    rng = np.random.default_rng(12)
    tau, n, z = _intervals(rng, 80_000, 0.06, 3.0, 0.2, 0.8)
    got = fit(tau, n, z)
    assert got.signal_weight == pytest.approx(3.0, abs=0.2)
    assert got.silent_rate == pytest.approx(0.06, abs=0.002)


def test_a_rate_without_signals_is_bounded_by_its_prior() -> None:
    days = np.full(50, 3.0)
    always, never = (rate_of(days, np.full(50, changed)) for changed in (True, False))
    assert RATE_MIN < never < 0.05 < always < RATE_MAX
    assert rate_of(np.full(2000, 3.0), np.zeros(2000, bool)) == RATE_MIN
    assert rate_of(np.full(1000, 0.01), np.ones(1000, bool)) == RATE_MAX
    assert rate_of(np.empty(0), np.empty(0, bool)) == pytest.approx(math.log(2) / 0.5)


def test_without_prior_the_edges_are_reached_without_failing() -> None:
    tau, n = np.full(20, 3.0), np.zeros(20)
    assert fit(tau, n, np.zeros(20, bool)).silent_rate < 1e-12
    assert fit(tau, n, np.ones(20, bool)).silent_rate > 5.0


def test_proportional_time_and_signals_cannot_be_distinguished() -> None:
    rng = np.random.default_rng(5)
    tau = rng.uniform(1, 3, 200)
    got = fit(tau, tau, rng.random(200) > np.exp(-0.3 * tau))
    assert got.silent_rate + got.signal_weight == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("signals", [0.1, 1.0, 20.0])
@pytest.mark.parametrize(
    ("cheap_time", "cheap_signals"),
    [(True, True), (True, False), (False, True)],
    ids=["both", "time", "signals"],
)
def test_one_kind_of_changed_interval_has_the_likelihood_of_the_best_single_parameter(
    signals: float, cheap_time: bool, cheap_signals: bool
) -> None:
    """All changed intervals have the same ratio of time to signals, so the likelihood curves only along one line.

    Then it has a maximum where one of the parameters is 0.
    """
    tau = np.array([1.0, 2.0, 0.1 if cheap_time else 3.0, 0.2 if cheap_time else 3.0])
    n = signals * np.array([1.0, 2.0, 0.1 if cheap_signals else 3.0, 0.2 if cheap_signals else 3.0])
    changed = np.array([True, True, False, False])

    def likelihood(alpha: float, b: float) -> float:
        x = alpha * tau + b * n
        return float(np.log(-np.expm1(-x[changed])).sum() - x[~changed].sum())

    got = fit(tau, n, changed)
    grid = np.geomspace(1e-4, SIGNAL_WEIGHT_MAX, 2000)
    best = max(max(likelihood(x, 0.0), likelihood(0.0, x)) for x in grid.tolist())
    assert likelihood(got.silent_rate, got.signal_weight) >= best - 1e-9
