"""Test the crawl value: golden values, limits, and properties that hold for any page."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.params import PageParameters, Pages
from crawler.lab.refresh import crawl_value as cv

GOLDEN = json.loads((Path(__file__).parent.parent.parent / "golden" / "refresh_values.json").read_text())
NAMES = {
    "v_ncis": "ncis",
    "v_greedy": "greedy",
    "v_cis": "cis",
    "v_cis_nu0": "cis-nu0",
    "v_cis_plus": "cis+",
    "v_approx1": "approx-1",
    "v_approx2": "approx-2",
    "v_approx3": "approx-3",
}


def _page(record: dict) -> PageParameters:
    return PageParameters(record["mu"], record["delta"], record["lam"], record["nu"])


@pytest.mark.parametrize("key", NAMES)
def test_golden_values_of_580_states(key: str) -> None:
    """The golden values have 50 digits. The relative tolerance is 1e-12."""
    states = [state for state in GOLDEN["states"] if key in state]
    for state in states:
        got = cv.crawl_value(_page(state), state["t"], state["n"], by=NAMES[key])
        assert got == pytest.approx(float(state[key]), rel=1e-12, abs=0.0), state


@pytest.mark.parametrize("key", NAMES)
def test_arrays_give_the_golden_values_too(key: str) -> None:
    states = [state for state in GOLDEN["states"] if key in state]
    got = cv.crawl_values(
        Pages.of(_page(state) for state in states),
        np.array([state["t"] for state in states]),
        np.array([state["n"] for state in states]),
        by=NAMES[key],
    )
    assert got == pytest.approx([float(state[key]) for state in states], rel=1e-12, abs=0.0)


def test_golden_intervals_and_fresh_times() -> None:
    """The golden psi, w and f belong to an effective elapsed time or, if every change has a signal, to n signals."""
    checked = 0
    for state in GOLDEN["states"]:
        if state["psi"] is None:
            continue
        page = _page(state)
        at = float(state["tau_eff"] if state["tau_eff"] is not None else state["n"])
        assert cv.expected_interval(page, at) == pytest.approx(float(state["psi"]), rel=1e-12), state
        assert cv.expected_fresh_time(page, at) == pytest.approx(float(state["w"]), rel=1e-12), state
        assert cv.crawl_rate(page, at) == pytest.approx(float(state["f"]), rel=1e-12), state
        checked += 1
    assert checked > 400


def test_golden_freshness_and_signal_weight() -> None:
    for state in GOLDEN["states"]:
        page = _page(state)
        assert page.signal_weight == pytest.approx(float(state["b"]), rel=1e-12), state
        assert page.freshness(state["t"], state["n"]) == pytest.approx(state["freshness"], rel=1e-12), state


def test_golden_thresholds() -> None:
    for record in GOLDEN["thresholds"]:
        page = _page(record)
        at = cv.threshold(page, record["value"])
        assert at == pytest.approx(record["iota"], rel=1e-8)
        assert cv.expected_interval(page, at) == pytest.approx(record["psi"], rel=1e-8)
        assert cv.value_slope(page, at) == pytest.approx(record["slope"], rel=1e-8)
        assert cv.crawl_value(page, at) == pytest.approx(record["value"], rel=1e-10)


# (page, elapsed, signals) -> (V, psi, w): the sums as printed in the paper, of 400 to 1,800 terms, evaluated
# with 60 digits (mpmath).
MANY_TERMS = [
    (
        PageParameters(1.0, 0.006, 0.26, 9.85),
        199.0,
        0,
        36.919231289159619,
        147.26039964177705,
        97.783266521239499,
    ),
    (
        PageParameters(1.0, 0.02, 0.1, 3.0),
        120.0,
        2,
        31.795640950001230,
        108.06470970860199,
        44.241616511462203,
    ),
    (
        PageParameters(1.0, 0.3, 0.5, 2.0),
        300.0,
        0,
        3.3333333333333335,
        147.36485702084876,
        3.3333333333333335,
    ),
    (
        PageParameters(1.0, 0.01, 0.99, 0.5),
        900.0,
        3,
        1.1310638335151425,
        15.689350853108453,
        14.650962880988845,
    ),
]


@pytest.mark.parametrize(("page", "elapsed", "signals", "value", "psi", "w"), MANY_TERMS)
def test_values_of_many_terms(
    page: PageParameters, elapsed: float, signals: int, value: float, psi: float, w: float
) -> None:
    at = elapsed + signals * page.signal_time
    assert cv.crawl_value(page, elapsed, signals) == pytest.approx(value, rel=1e-12)
    assert cv.expected_interval(page, at) == pytest.approx(psi, rel=1e-12)
    assert cv.expected_fresh_time(page, at) == pytest.approx(w, rel=1e-12)


# ---------------------------------------------------------------------------
# Limits, one at a time


def _greedy(mu: float, delta: float, t: float) -> float:
    return mu / delta * -math.expm1(-delta * t) - mu * t * math.exp(-delta * t)


def test_no_signals_is_greedy() -> None:
    page = PageParameters(2.0, 0.7, 0.0, 0.0)
    assert cv.crawl_value(page, 3.0) == pytest.approx(_greedy(2.0, 0.7, 3.0), rel=1e-14)
    assert cv.expected_interval(page, 3.0) == 3.0
    assert cv.expected_fresh_time(page, 3.0) == pytest.approx(-math.expm1(-2.1) / 0.7)


def test_worthless_signals_are_greedy_whatever_their_number() -> None:
    page = PageParameters(2.0, 0.7, 0.0, 5.0)
    assert (
        cv.crawl_value(page, 3.0, 9) == cv.crawl_value(page, 3.0, 0) == cv.crawl_value(page, 3.0, by="greedy")
    )
    almost = PageParameters(2.0, 0.7, 1e-12, 5.0)
    assert cv.crawl_value(almost, 3.0, 2) == pytest.approx(cv.crawl_value(page, 3.0), rel=1e-9)


def test_value_of_a_certain_signal() -> None:
    page = PageParameters(2.0, 0.7, 0.5, 0.0)
    assert cv.crawl_value(page, 0.1, 1) == 2.0 / 0.7
    assert cv.crawl_value(page, 0.1, 0) == cv.crawl_value(page, 0.1, 0, by="cis")
    assert cv.crawl_value(page, 0.0, 0) == 0.0
    assert cv.expected_interval(page, math.inf) == pytest.approx(1 / 0.35)
    assert cv.expected_fresh_time(page, math.inf) == pytest.approx(1 / 0.7)


def test_value_without_silent_changes() -> None:
    """The value is V_n = (mu/gamma) sum_{i<n} (q^i - q^n), independent of elapsed time."""
    page = PageParameters(2.0, 0.6, 1.0, 0.3)
    q, gamma = 0.3 / 0.9, 0.9
    for n in (0, 1, 2, 5, 400):
        want = 2.0 / gamma * sum(q**i - q**n for i in range(n))
        assert cv.crawl_value(page, 123.0, n) == pytest.approx(want, rel=1e-13)
    assert cv.crawl_value(page, 0.0, 10**9) == pytest.approx(2.0 / 0.6, rel=1e-13)
    assert cv.expected_interval(page, 3) == pytest.approx(3 / gamma)
    assert cv.expected_fresh_time(page, 3) == pytest.approx(sum(q**i for i in range(3)) / gamma)
    assert cv.threshold(page, cv.crawl_value(page, 0.0, 3) * 0.999) == 3
    assert cv.threshold(page, 2.0 / 0.6) == math.inf


def test_values_with_perfect_signals() -> None:
    page = PageParameters(2.0, 0.5, 1.0, 0.0)
    assert cv.crawl_value(page, 100.0, 0) == 0.0
    assert cv.crawl_value(page, 0.0, 1) == pytest.approx(4.0, rel=1e-15)
    assert cv.threshold(page, 3.9) == 1
    assert cv.threshold(page, 4.0) == math.inf


def test_page_that_never_changes() -> None:
    for page in (PageParameters(1.0, 0.0), PageParameters(1.0, 0.0, 0.5, 0.3)):
        assert cv.crawl_value(page, 1e9, 5) == 0.0
        assert cv.threshold(page, 1e-9) == math.inf


def test_rare_changes_follow_the_quadratic() -> None:
    page = PageParameters(1.0, 1e-12, 0.0, 0.0)
    assert cv.crawl_value(page, 10.0) == pytest.approx(1e-12 * 100 / 2, rel=1e-10)


def test_very_frequent_changes_are_abandoned() -> None:
    page = PageParameters(1.0, 1e9, 0.5, 0.2)
    assert cv.crawl_value(page, 1e3, 3) == pytest.approx(1e-9, rel=1e-12)
    assert cv.threshold(page, 0.1) == math.inf


def test_extremes_neither_overflow_nor_fail() -> None:
    for delta in (1e-300, 1e-9, 1.0, 1e9):
        for nu in (0.0, 1e-300, 1e-9, 1.0, 1e9):
            for recall in (0.0, 1e-12, 0.5, 1.0 - 1e-12, 1.0):
                page = PageParameters(1.0, delta, recall, nu)
                for elapsed, n in ((0.0, 0), (1e-9, 1), (1.0, 3), (700.0, 0)):
                    value = cv.crawl_value(page, elapsed, n)
                    assert 0.0 <= value <= page.ceiling * (1 + 1e-12), (page, elapsed, n)


def test_approximations_stay_below_the_maximum() -> None:
    page = PageParameters(1.0, 0.5, 0.5, 0.3)
    for j in (1, 2, 3):
        want = 2.0 * (1 - (0.3 / 0.8) ** j)
        assert cv.crawl_value(page, 1e4, by=f"approx-{j}") == pytest.approx(want, rel=1e-12)
        assert cv.threshold(page, want, by=f"approx-{j}") == math.inf


def test_cis_plus_trusts_only_good_signals() -> None:
    columns = ([1.0, 1.0], [0.5, 0.5], [0.8, 0.6], [0.7, 0.7])  # importance, rate, precision, recall
    pages = Pages.from_quality(*map(np.array, columns))
    good, bad = pages[0], pages[1]
    assert cv.crawl_value(good, 1.0, 1, by="cis+") == cv.crawl_value(good, 1.0, 1, by="cis")
    assert cv.crawl_value(bad, 1.0, 1, by="cis+") == cv.crawl_value(bad, 1.0, 1, by="greedy")


@pytest.mark.parametrize("name", ["nonsense", "approx-0", "approx-", "approx-x"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(KeyError):
        cv.kind_of(name)


# ---------------------------------------------------------------------------
# Properties

pages = st.builds(
    PageParameters,
    importance=st.just(1.0),
    change_rate=st.floats(-4, 2).map(lambda e: 10.0**e),
    recall=st.floats(0.001, 0.999),
    false_rate=st.floats(-3, 1).map(lambda e: 10.0**e),
)
times = st.floats(-2, 2).map(lambda e: 10.0**e)


@given(page=pages, elapsed=times, n=st.integers(0, 4))
@settings(max_examples=60)
def test_approximations_increase_to_the_value(page: PageParameters, elapsed: float, n: int) -> None:
    values = [cv.crawl_value(page, elapsed, n, by=f"approx-{j}") for j in (1, 2, 3, 50)]
    values.append(cv.crawl_value(page, elapsed, n))
    assert all(low <= high * (1 + 1e-13) for low, high in zip(values, values[1:], strict=False))


@given(
    page=pages,
    share=st.floats(0.001, 0.999),
    by=st.sampled_from(["greedy", "cis", "ncis", "approx-2", "cis+"]),
)
@settings(max_examples=30)
def test_threshold_inverts_the_value(page: PageParameters, share: float, by: str) -> None:
    level = share * cv.crawl_value(page, 1e5, by=by)
    at = cv.threshold(page, level, by=by)
    assert cv.crawl_value(page, at, by=by) == pytest.approx(level, rel=1e-7)
    guessed = cv.thresholds(Pages.of([page]), level, by=by, guesses=np.array([at * 1.3]))
    assert guessed[0] == pytest.approx(at, rel=1e-6)


@given(delta=times, recall=st.floats(0.0, 1.0), elapsed=times, n=st.integers(0, 3))
@settings(max_examples=60)
def test_without_false_signals_ncis_is_cis(delta: float, recall: float, elapsed: float, n: int) -> None:
    page = PageParameters(1.0, delta, recall, 0.0)
    n = n if recall * delta > 0.0 else 0  # without recall there are no signals
    assert cv.crawl_value(page, elapsed, n) == pytest.approx(
        cv.crawl_value(page, elapsed, n, by="cis"), rel=1e-14
    )


@given(i=st.integers(0, 60), x=st.floats(0.0, 200.0))
@settings(max_examples=100)
def test_residuals_differ_by_one_poisson_probability(i: int, x: float) -> None:
    p = math.exp(-x + (i + 1) * math.log(x) - math.lgamma(i + 2)) if x > 0.0 else 0.0
    assert cv.residual(i, x) == pytest.approx(cv.residual(i + 1, x) + p, rel=1e-11, abs=1e-300)


def test_monte_carlo_of_the_threshold_process() -> None:
    """Simulated crawls have the computed interval and fresh time, within four standard errors."""
    page, at, rng = PageParameters(1.0, 0.4, 0.6, 0.2), 4.0, np.random.default_rng(7)
    beta, gamma, q = page.signal_time, page.signal_rate, page.false_rate / page.signal_rate
    arrivals = np.cumsum(rng.exponential(1 / gamma, (20_000, 30)), axis=1)
    # the first instant at which the effective elapsed time reaches `at`
    due = np.maximum(at - beta * np.arange(1, 31), arrivals)
    reached = arrivals + beta * np.arange(1, 31) >= at
    first = np.argmax(reached, axis=1)
    before = np.where(first > 0, at - beta * first, at)
    interval = np.minimum(np.maximum(before, 0.0), due[np.arange(len(due)), first])
    assert interval.mean() == pytest.approx(
        cv.expected_interval(page, at), abs=4 * interval.std() / math.sqrt(len(interval))
    )
    grid = np.linspace(0.0, at, 2001)[:-1]
    counts = (arrivals[:2000, :, None] <= grid).sum(axis=1)
    fresh = np.exp(-page.silent_rate * grid) * q**counts * (grid < interval[:2000, None])
    times_fresh = fresh.sum(axis=1) * (at / 2000)
    assert times_fresh.mean() == pytest.approx(
        cv.expected_fresh_time(page, at), abs=4 * times_fresh.std() / math.sqrt(2000) + at / 2000
    )


def test_many_signals_without_silent_changes_have_a_threshold() -> None:
    """The value V_n of a page with silent rate 0 approaches its maximum only after 1e5 signals.

    In an earlier version, a threshold below this maximum was infinite, so the deadline queue retried forever.
    """
    page = PageParameters(1e-5, 1e-5, 1.0, 0.5)
    n = cv.threshold(page, 0.98)
    assert 2e5 < n < 1e6
    assert cv.crawl_value(page, 1.0, int(n)) >= 0.98 * (1 - 1e-9) > cv.crawl_value(page, 1.0, int(n) - 2)


@pytest.mark.parametrize("recall", [0.3, 0.7, 0.9])
def test_the_closed_form_of_many_terms_continues_the_sum(recall: float) -> None:
    """The interval, the fresh time and the value have no kink where the closed form replaces the sum."""
    page = PageParameters(1.0, 0.4, recall, 0.3)
    c = page.signal_rate * page.signal_time
    at = page.signal_time * (30.0 + 2.0 * c * c)
    step = 1e-6 * at
    for f in (cv.expected_interval, cv.expected_fresh_time, cv.crawl_value):
        below, middle, above = (f(page, at + k * step) for k in (-1, 0, 1))
        assert above - 2.0 * middle + below == pytest.approx(0.0, abs=1e-10 * middle)


def test_infinite_elapsed_time() -> None:
    assert cv.crawl_value(PageParameters(1.0, 0.5, 0.5, 0.3), float("inf")) == 2.0
    assert cv.crawl_value(PageParameters(1.0, 0.5, 0.0, 0.3), float("inf")) == 2.0
