"""Test optimal rates and schedules: golden values, optimality, and the error bound of Algorithm 3."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.params import PageParameters, Pages
from crawler.lab.refresh import policies

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "refresh_values.json").read_text())


@pytest.mark.parametrize("record", GOLDEN["azar"], ids=lambda record: f"m={len(record['mu'])}")
def test_golden_rates(record: dict) -> None:
    mu, delta, bandwidth = np.array(record["mu"]), np.array(record["delta"]), record["bandwidth"]
    p = policies.optimal_probabilities(mu, delta)
    assert p == pytest.approx(record["alg1_p"], rel=1e-8, abs=1e-12)
    assert policies.slotted_freshness(mu, delta, p) == pytest.approx(record["F1"], rel=1e-10)
    rho = policies.optimal_rates(mu, delta, bandwidth)
    assert rho == pytest.approx(record["alg2_rho"], rel=1e-8, abs=1e-12)
    assert policies.poisson_freshness(mu, delta, rho) == pytest.approx(record["F2"], rel=1e-10)
    assert policies.even_freshness(mu, delta, rho) == pytest.approx(record["F_det_of_alg2"], rel=1e-10)
    opt = policies.deterministic_optimum(mu, delta, bandwidth)
    assert opt.rates == pytest.approx(record["opt_xi"], rel=1e-8, abs=1e-8)
    assert opt.level == pytest.approx(record["opt_lagrange"], rel=1e-8)
    assert policies.even_freshness(mu, delta, opt.rates) == pytest.approx(record["F_det_of_opt"], rel=1e-10)
    assert opt.accuracy == pytest.approx(record["baseline_accuracy"], rel=1e-8)


@pytest.mark.parametrize("record", GOLDEN["optimum"], ids=lambda record: f"m={len(record['pages'])}")
def test_golden_optimum_with_signals(record: dict) -> None:
    pages = Pages.of(PageParameters(*row) for row in record["pages"])
    opt = policies.optimum_with_signals(pages, record["bandwidth"])
    assert opt.level == pytest.approx(record["lagrange"], rel=1e-8)
    assert opt.thresholds == pytest.approx([float(x) for x in record["iota"]], rel=1e-8)
    assert opt.rates == pytest.approx(record["freq"], rel=1e-8)
    assert opt.accuracy == pytest.approx(record["accuracy"], rel=1e-8)
    without = policies.deterministic_optimum(pages.importance, pages.change_rate, record["bandwidth"])
    assert without.accuracy == pytest.approx(record["accuracy_without_signals"], rel=1e-8)


@pytest.mark.parametrize("record", GOLDEN["edf"], ids=lambda record: f"m={len(record['weights'])}")
def test_golden_low_discrepancy_sequences(record: dict) -> None:
    weights = [Fraction(w) for w in record["weights"]]
    got = list(itertools.islice(policies.low_discrepancy(weights), record["T"]))
    assert got == record["sequence_smallest_index_ties"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(any), st.booleans())
@settings(max_examples=60)
def test_every_page_is_less_than_one_crawl_off_at_any_time(weights: list[int], exact: bool) -> None:
    total, counts = sum(weights), [0] * len(weights)
    rates = [Fraction(w) for w in weights] if exact else [w * 0.1 for w in weights]
    for t, k in enumerate(itertools.islice(policies.low_discrepancy(rates), 200), start=1):
        counts[k] += 1
        for weight, count in zip(weights, counts, strict=True):
            assert abs(Fraction(t * weight, total) - count) < 1


positive = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=12), st.floats(0.1, 10.0))
@settings(max_examples=15)
def test_optima_are_feasible_and_locally_optimal(rows: list[tuple[float, float]], bandwidth: float) -> None:
    mu, delta = np.array(rows).T
    mu, delta = mu.copy(), delta.copy()
    cases = (
        (policies.optimal_rates(mu, delta, bandwidth), policies.poisson_freshness, bandwidth),
        (policies.optimal_probabilities(mu, delta), policies.slotted_freshness, 1.0),
        (policies.deterministic_optimum(mu, delta, bandwidth).rates, policies.even_freshness, bandwidth),
    )
    for rates, objective, total in cases:
        assert rates.sum() == pytest.approx(total) and (rates >= 0.0).all()
        best = objective(mu, delta, rates)
        for i, j in itertools.permutations(range(len(mu)), 2):
            moved = rates.copy()
            amount = min(moved[i], 0.01 * total)
            moved[i] -= amount
            moved[j] += amount
            assert objective(mu, delta, moved) <= best * (1 + 1e-9)


def test_signals_never_hurt_and_worthless_ones_change_nothing() -> None:
    rng = np.random.default_rng(2)
    mu, delta = rng.random(25), rng.random(25)
    base = policies.deterministic_optimum(mu, delta, 2.5).accuracy
    worthless = policies.optimum_with_signals(Pages(mu, delta, 0.0, 0.5), 2.5)
    noisy = policies.optimum_with_signals(Pages(mu, delta, 0.5, 0.3), 2.5)
    certain = policies.optimum_with_signals(Pages(mu, delta, 0.5, 0.0), 2.5)
    assert worthless.accuracy == pytest.approx(base, rel=1e-9)
    assert base < noisy.accuracy < certain.accuracy


def test_bandwidth_within_a_jump_of_the_rates_is_used_up() -> None:
    """All signals are perfect, so the optimal rate of a page jumps from 0 to the rate of its signals.

    For one page, only a share of the signals leads to a fetch.
    """
    pages = Pages(np.array([3.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0]), 1.0, 0.0)
    opt = policies.optimum_with_signals(pages, 1.5)
    assert opt.rates == pytest.approx([1.0, 0.5, 0.0])
    assert opt.accuracy == pytest.approx((3.0 + 1.0) / 6.0)


def test_simple_rules() -> None:
    mu, delta = np.array([1.0, 3.0]), np.array([0.5, 0.5])
    assert policies.proportional(mu, 8.0).tolist() == [2.0, 6.0]
    assert policies.uniform(4, 8.0).tolist() == [2.0] * 4
    assert policies.change_directed(delta, 8.0) == pytest.approx([4.0, 4.0])
    assert policies.even_freshness(mu, np.array([0.5, 0.0]), np.array([0.0, 1.0])) == pytest.approx(3.0)


def test_algorithm_2_reaches_nearly_all_of_opt() -> None:
    """Algorithm 2 reaches at least 98.8 % of the optimum (Azar et al., Figure 1)."""
    rng = np.random.default_rng(3)
    mu, delta = rng.random(400), rng.random(400)
    rho = policies.optimal_rates(mu, delta, 40.0)
    best = policies.deterministic_optimum(mu, delta, 40.0)
    assert policies.even_freshness(mu, delta, rho) >= 0.985 * best.accuracy * mu.sum()
