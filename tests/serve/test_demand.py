"""Test the counts of requests: their decay, the memory they need, and the errors of the sketch."""

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.serve.demand import Demand

WEEK = 604_800.0


def test_a_count_halves_in_each_half_life() -> None:
    demand = Demand(WEEK, 100, now=0.0)
    for _ in range(8):
        demand.add(1, 0.0)
    assert demand.count(1, 0.0) == 8
    assert math.isclose(demand.count(1, WEEK), 4)
    assert math.isclose(demand.count(1, 3 * WEEK), 1)
    assert demand.count(2, 0.0) == 0


def test_a_steady_rate_is_estimated() -> None:
    """If requests arrive at intervals d, their count is the sum of 2^(-k d / h) over k, where h is the half-life.

    For small d / h, this sum is nearly h / (d ln 2).
    """
    demand = Demand(100.0, 10, now=0.0)
    now = 0.0
    for _ in range(20_000):
        now += 0.1
        demand.add(7, now)
    assert math.isclose(demand.rate(7, now), 10.0, rel_tol=0.01)


def test_counts_do_not_overflow_with_time() -> None:
    """Counts are still right after ten years, when 2^(t/h) would have overflowed."""
    demand = Demand(1000.0, 100, now=0.0)
    demand.add(1, 0.0)
    now = 0.0
    for _ in range(300):
        now += 1_000_000.0
        demand.add(2, now)
        demand._check()
    assert math.isclose(demand.count(2, now), 1.0)
    assert demand.count(1, now) < 1e-9
    assert len(demand) == 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=300), st.integers(4, 16))
def test_a_count_is_never_below_the_true_one(pages: list[int], pages_max: int) -> None:
    """The number of counters is bounded, so a count may be too high, but it is never too low.

    This holds for the counts in the table and for those in the sketch.
    """
    demand = Demand(WEEK, pages_max, now=0.0, columns=64)
    true: dict[int, int] = {}
    for page in pages:
        demand.add(page * 0x9E3779B97F4A7C15 & (1 << 64) - 1, 0.0)
        true[page] = true.get(page, 0) + 1
        demand._check()
    for page, n in true.items():
        assert demand.count(page * 0x9E3779B97F4A7C15 & (1 << 64) - 1, 0.0) >= n - 1e-9


def test_counts_of_the_most_requested_pages_are_nearly_exact() -> None:
    """With Zipf-distributed requests for 10,000 pages and room for 1,000, the top hundred counts are within 1 %."""
    rng = random.Random(5)
    weights = [1.0 / (n + 1) for n in range(10_000)]
    demand = Demand(WEEK, 1000, now=0.0)
    true = [0] * 10_000
    for page in rng.choices(range(10_000), weights, k=100_000):
        true[page] += 1
        demand.add(page * 0x9E3779B97F4A7C15 & (1 << 64) - 1, 0.0)
    for page in range(100):
        found = demand.count(page * 0x9E3779B97F4A7C15 & (1 << 64) - 1, 0.0)
        assert true[page] <= found + 1e-9 and found <= true[page] * 1.01 + 1
    assert len(demand) <= 1000


def test_stored_counts_are_loaded() -> None:
    demand = Demand(WEEK, 100, now=0.0)
    demand.add(1, 0.0)
    demand.add(1, 0.0)
    demand.add(2, 0.0)
    stored = [(page, count, 0.0) for page, count in demand.changed(0.0)]
    assert sorted(stored) == [(1, 2.0, 0.0), (2, 1.0, 0.0)]
    assert list(demand.changed(0.0)) == []
    again = Demand(WEEK, 100, now=WEEK)
    again.load(stored)
    assert math.isclose(again.count(1, WEEK), 1.0)


def test_counts_with_a_time_in_the_future_count_as_of_now() -> None:
    """Counts from a time when the clock was a year ahead were once multiplied by 2^52."""
    demand = Demand(WEEK, 100, now=0.0)
    demand.load([(1, 3.0, 52 * WEEK), (2, 4.0, 0.0)])
    assert [demand.count(page, 0.0) for page in (1, 2)] == [3.0, 4.0]
