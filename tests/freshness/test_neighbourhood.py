"""Test the neighbourhood clock: its formula, its inverse and its bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.neighbourhood import (
    Counts,
    Credence,
    clock_of,
    elapsed_of,
    lead_of,
    offset_of,
    scale_of,
)

times = st.floats(-3, 4).map(lambda e: 10.0**e)
excesses = st.one_of(st.just(0.0), st.floats(-1.99, 50.0))


@given(elapsed=times, excess=excesses, scale=st.floats(7.0, 90.0), more=times)
@settings(max_examples=200, deadline=None)
def test_rises_within_its_bounds_and_is_inverted(
    elapsed: float, excess: float, scale: float, more: float
) -> None:
    clock = clock_of(elapsed, excess, scale)
    assert clock >= elapsed / 20.0
    assert clock <= elapsed * (1.0 + 6.0 * max(excess, 0.0)) * (1 + 1e-12)
    assert clock <= elapsed + max(offset_of(excess, scale), 0.0) + 1e-9
    assert clock_of(elapsed + more, excess, scale) > clock
    assert clock_of(elapsed_of(clock, excess, scale), excess, scale) == pytest.approx(clock, rel=1e-7)


def test_the_clock_of_the_page() -> None:
    """The values of A = tau + 6 Ts (1 - (1 + tau/Ts) exp(-tau/Ts)) [...] were computed by hand."""
    directory, site = Counts(1.0), Counts(3.0)
    directory.add()
    site.add()
    for number, (changed, expected) in enumerate([(1.0, 0.1), (0.0, 0.2), (1.0, 0.1)]):
        directory.observe(0, float(number), 10.0, changed, expected)
        site.observe(0, float(number), 10.0, changed, expected)
    g = math.exp(-0.1)
    o, e = (1.0 * g + 0.0) * g + 1.0, (0.1 * g + 0.2) * g + 0.1
    fresh = math.exp(-3.0 / 10.0)
    bracket = (1 + o * fresh) / (1 + e * fresh) + (3 + o * fresh) / (3 + e * fresh) - 2
    excess = directory.excess(0, 5.0, 10.0) + site.excess(0, 5.0, 10.0)
    assert excess == pytest.approx(bracket)
    assert clock_of(4.0, excess, 10.0) == pytest.approx(4.0 + 60.0 * (1 - 1.4 * math.exp(-0.4)) * bracket)
    assert clock_of(4.0, -0.1, 10.0) == pytest.approx(4.0 - 6.0 * (1 - math.exp(-0.4)))


def test_changes_of_neighbours_hardly_concern_a_page_that_was_just_crawled() -> None:
    """Most of these changes happened before the crawl. The part that happened later was integrated numerically.

    The times from the change to its discovery, and from the discovery until now, are both exponential with mean Ts.
    """
    rng, scale = np.random.default_rng(1), 10.0
    ages = rng.exponential(scale, 200_000) + rng.exponential(scale, 200_000)
    for elapsed in (1.0, 5.0, 10.0, 30.0):
        part = lead_of(elapsed, 60.0, scale) / 60.0
        assert part == pytest.approx((ages < elapsed).mean(), abs=0.004)
    assert lead_of(1e-3, 60.0, scale) < 1e-6


def test_quiet_neighbours_slow_the_clock_and_are_forgotten() -> None:
    counts = Counts(1.0)
    counts.add()
    for day in range(30):
        counts.observe(0, float(day), 10.0, 0.0, 0.5)
    assert -1.0 < counts.excess(0, 29.0, 10.0) < -0.5
    assert counts.excess(0, 1e4, 10.0) == pytest.approx(0.0, abs=1e-12)
    assert clock_of(5.0, counts.excess(0, 29.0, 10.0), 10.0) >= 0.25
    counts._check()


def test_as_many_changes_as_expected_do_not_change_the_clock() -> None:
    counts = Counts(3.0)
    counts.add()
    counts.observe(0, 1.0, 10.0, 1.0, 1.0)
    assert counts.excess(0, 1.0, 10.0) == 0.0
    assert clock_of(5.0, 0.0, 10.0) == 5.0 and elapsed_of(5.0, 0.0, 10.0) == 5.0


def test_counts_grow_and_can_be_restored() -> None:
    counts = Counts(1.0)
    for number in range(40):
        assert counts.add() == number
        counts.observe(number, float(number), 10.0, number % 2, 0.3)
    again = Counts(1.0)
    for number in range(40):
        again.add()
        again.restore(
            number, counts.observed_counts[number], counts.expected_counts[number], counts.instants[number]
        )
    assert again.excess(3, 50.0, 10.0) == counts.excess(3, 50.0, 10.0)
    assert "40 groups" in repr(again)


def test_a_clock_that_steps_back_counts_no_negative_age() -> None:
    counts = Counts(1.0)
    counts.add()
    counts.observe(0, 100.0, 10.0, 1.0, 0.1)
    counts.observe(0, 50.0, 10.0, 1.0, 0.1)
    assert counts.observed_counts[0] == pytest.approx(2.0) and counts.instants[0] == 100.0


def test_scale_is_a_quarter_of_the_time_between_crawls() -> None:
    assert scale_of(1000.0, 10.0, 7.0, 90.0) == 25.0
    assert scale_of(10.0, 10.0, 7.0, 90.0) == 7.0
    assert scale_of(1e6, 10.0, 7.0, 90.0) == scale_of(10.0, 0.0, 7.0, 90.0) == 90.0


def test_clocks_at_zero_and_infinity() -> None:
    assert clock_of(math.inf, 3.0, 10.0) == elapsed_of(math.inf, 3.0, 10.0) == math.inf
    assert clock_of(0.0, 3.0, 10.0) == elapsed_of(0.0, 3.0, 10.0) == 0.0


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0])
def test_neighbours_are_believed_as_much_as_they_are_right(truth: float) -> None:
    """The results of crawls are enough to learn `truth`, the weight that the predictions from neighbours deserve.

    A page changes with the probability alone + truth x (heeding - alone). Here, `alone` is the probability without
    the neighbours, and `heeding` is the probability that takes them into account.
    """
    rng, credence = np.random.default_rng(1), Credence()
    site = credence.add()
    for alone, heeding in rng.uniform(0.05, 0.95, (4000, 2)).tolist():
        credence.observe(site, alone, heeding, bool(rng.random() < alone + truth * (heeding - alone)))
    credence.renew(site)
    credence._check()
    assert credence.credences[site] == pytest.approx(truth, abs=0.1)


def test_a_new_site_is_believed_like_the_crawl_which_starts_near_1() -> None:
    credence = Credence()
    noisy = credence.add()
    assert credence.credences[noisy] == pytest.approx(1.0 / (1.0 + math.exp(-3.0)))
    for number in range(2000):
        credence.observe(noisy, 0.5, 0.9, number % 2 == 0)
    other = credence.add()
    assert credence.credences[other] < 0.2
    back = Credence()
    back.add()
    back.restore(0, credence.agreement, credence.weight, 0.0)
    credence.renew(noisy)
    assert back.credences[0] == credence.credences[noisy]


def test_a_clock_that_does_not_improve_predictions_is_not_used() -> None:
    """The clock is no longer used for a site on which it predicts no better than the rates alone."""
    credence = Credence()
    useless, useful = credence.add(), credence.add()
    for number in range(400):
        credence.score(useless, 0.5, 0.5, number % 2 == 0)
        credence.score(useful, 0.5, 0.9 if number % 2 == 0 else 0.1, number % 2 == 0)
    credence.renew(useless)
    credence.renew(useful)
    assert credence.credences[useless] < 0.5
    assert credence.credences[useful] > 0.99
    credence.restore(useful, 0.0, 0.0, -30.0)
    assert credence.credences[useful] < 0.01


def test_certain_predictions_have_a_bounded_weight() -> None:
    """A prediction that is nearly certain has only a bounded weight."""
    credence = Credence()
    site = credence.add()
    for alone, heeding in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0)):
        credence.observe(site, alone, heeding, True)
    credence._check()
    assert credence.weight == pytest.approx(200.0)
