"""Test the crawl value: golden values, limits, and properties that hold for any page."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.params import PageParameters, Pages
from crawler.lab.refresh.crawl_value import crawl_values, kind_of, thresholds
from tests.freshness import page_values as cv

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
    got = crawl_values(
        Pages.of(_page(state) for state in states),
        np.array([state["t"] for state in states]),
        np.array([state["n"] for state in states]),
        by=NAMES[key],
    )
    assert got == pytest.approx([float(state[key]) for state in states], rel=1e-12, abs=0.0)


def test_golden_intervals_and_fresh_times() -> None:
    """Compare psi and w at a threshold: an effective elapsed time or, if every change has a signal, n signals."""
    checked = 0
    for state in GOLDEN["states"]:
        if state["psi"] is None:
            continue
        page = _page(state)
        at = float(state["tau_eff"] if state["tau_eff"] is not None else state["n"])
        assert cv.expected_interval(page, at) == pytest.approx(float(state["psi"]), rel=1e-12), state
        assert cv.expected_fresh_time(page, at) == pytest.approx(float(state["w"]), rel=1e-12), state
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


# ---------------------------------------------------------------------------
# Limits, one at a time


def test_page_that_never_changes() -> None:
    for page in (PageParameters(1.0, 0.0), PageParameters(1.0, 0.0, 0.5, 0.3)):
        assert cv.crawl_value(page, 1e9, 5) == 0.0
        assert cv.threshold(page, 1e-9) == math.inf


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
        kind_of(name)


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
    guessed = thresholds(Pages.of([page]), level, by=by, guesses=np.array([at * 1.3]))
    assert guessed[0] == pytest.approx(at, rel=1e-6)


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
