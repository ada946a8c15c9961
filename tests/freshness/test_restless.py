"""Test which pages are taken for restless, what this does to their values, and how their share is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.freshness.change_rates import ChangeRates
from crawler.freshness.learning import Learning
from crawler.freshness.restless import Restless
from crawler.freshness.value_kernel import Parameters

ONE_SIGNAL = np.array([1.0, *[0.0] * 7])
SILENCE = np.zeros(8)


def pair() -> tuple[ChangeRates, Restless, int]:
    rates = ChangeRates(unit=1.0)
    return rates, Restless(rates), rates.add_site()


@pytest.mark.parametrize("crawls", [1, 5, 20])
@pytest.mark.parametrize("every", [0.5, 1.0, 3.0])
def test_the_evidence_is_the_probability_of_the_changes_if_the_page_is_not_restless(
    every: float, crawls: int
) -> None:
    """The probability is computed independently, by integration over the prior, from crawls at equal intervals."""
    stats = pytest.importorskip("scipy.stats")
    learning, site, directory = learning_of_one_site()
    mean, shape = learning.rates.means[site], 1.0 / learning.rates.variations[site]
    interval = every / mean
    learning.restless.set_revisit(1e6 * interval)
    unrest = crawl(learning, site, directory, [(True, SILENCE)] * crawls, interval)[1][-1]
    rates = stats.gamma(shape, scale=mean / shape).ppf((np.arange(20_000) + 0.5) / 20_000)
    likely = (-np.expm1(-rates * interval)) ** crawls
    assert unrest == pytest.approx(-math.log(likely.mean()), rel=0.06)
    chance = learning.restless.chance(-1.0, unrest, 0.0)
    assert chance / (1.0 - chance) == pytest.approx(math.exp(learning.restless.odds + unrest), rel=1e-9)
    assert learning.restless.chance(1.0, unrest, 0.0) == 0.0


def test_two_visits_within_a_short_time_are_strong_evidence() -> None:
    """They show more than three visits at intervals in which most pages change, but at most 3 nats."""
    found = []
    for intervals in ([30.0, 0.01], [30.0] * 4):
        learning, site, directory = learning_of_one_site()
        k, t, unrest = 0.0, 0.0, 0.0
        for interval in intervals:
            k = learning.observe(site, directory, k, t, interval, 0.0, SILENCE, True, 0.0, unrest)
            t += learning.watched
            found.append(learning.unrest - unrest)
            unrest = learning.unrest
    first, quick, *slow = found
    assert quick == pytest.approx(-math.log(0.05), rel=0.02) and quick > sum(slow[1:])
    assert slow[0] == first and slow == sorted(slow, reverse=True)


def test_the_evidence_has_a_bound_so_that_a_page_keeps_its_value_where_hardly_any_page_is_restless() -> None:
    _, unrest, _ = crawl(*learning_of_one_site(), [(True, SILENCE)] * 50, 0.1)
    assert max(unrest) == 6.0
    _, restless, _ = pair()
    assert restless.chance(-50.0, 6.0, 0.0) < 0.2
    restless.restore(-2.0, 0.5)
    assert restless.chance(-50.0, 6.0, 0.0) > 0.95


@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(-16.0, -2.0), st.floats(0.0, 1e12))
def test_the_chance_grows_with_the_evidence_and_never_reaches_one(
    evidence: float, more: float, odds: float, elapsed: float
) -> None:
    _, restless, _ = pair()
    restless.restore(odds, 0.5)
    chance = restless.chance(-1.0, evidence, elapsed)
    assert 0.0 < chance <= restless.chance(-1.0, evidence + more, elapsed) <= 1.0 - 1e-9
    assert chance <= restless.suspicion(-1.0, evidence, elapsed) * (1.0 + 1e-12)


@given(st.floats(0.0, 6.0), st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.floats(-16.0, -2.0))
def test_between_crawls_the_chance_follows_a_markov_chain(
    evidence: float, first: float, second: float, odds: float
) -> None:
    """Two waits in a row are one long wait. After a very long wait, only the share of restless pages counts."""
    _, restless, _ = pair()
    restless.restore(odds, 0.5)
    restless.set_revisit(7.0)
    share = 1.0 / (1.0 + math.exp(-odds))
    begin, between, end = (restless.chance(-1.0, evidence, at) for at in (0.0, first, first + second))
    assert (
        share <= end * (1.0 + 1e-12) and end <= between * (1.0 + 1e-12) and between <= begin * (1.0 + 1e-12)
    )
    left = math.exp(-second / (128.0 * 7.0))
    assert end == pytest.approx(share + (between - share) * left, rel=1e-9)
    assert restless.chance(-1.0, evidence, 1e9) == pytest.approx(share)


def test_the_next_crawl_begins_with_what_is_left_of_the_evidence() -> None:
    """A visit after a long time, which finds every page changed, lowers the evidence."""
    rates, restless, site = pair()
    restless.restore(-4.0, 1e9)
    restless.set_revisit(1.0)
    for elapsed in (0.0, 10.0, 300.0):
        chance = restless.chance(-5.0, 5.0, elapsed)
        restless.learn(site, -5.0, 1.0, 1e9, True, 5.0, elapsed)
        assert restless.evidence == pytest.approx(math.log(chance / (1.0 - chance)) + 4.0, abs=1e-3)
    assert restless.evidence < 2.5


def crawl(
    learning: Learning, site: int, directory: int, visits: list[tuple[bool, np.ndarray]], every: float = 10.0
) -> tuple[list[float], list[float], float]:
    """Crawl a page at equal intervals, with these results and signals.

    Return k and the evidence after each crawl, and T at the end.
    """
    k, t, unrest, all_k, all_unrest = 0.0, np.float32(0.0), 0.0, [], []
    for number, (changed, counts) in enumerate(visits):
        k = learning.observe(site, directory, k, t, every, every * number, counts, changed, 0.0, unrest)
        t, unrest = t + np.float32(learning.watched), learning.unrest
        all_k.append(k)
        all_unrest.append(unrest)
    return all_k, all_unrest, float(t)


def learning_of_one_site() -> tuple[Learning, int, int]:
    learning = Learning(unit=1.0, neighbourhood=False)
    return learning, learning.add_site(), learning.add_directory()


def test_k_is_negative_until_a_crawl_finds_the_page_unchanged() -> None:
    always, never = (True, SILENCE), (False, SILENCE)
    k, unrest, _ = crawl(*learning_of_one_site(), [always, always, never, always])
    assert k[1] < k[0] < 0.0 and k[2] == -k[1] and k[3] > k[2]
    assert 0.0 < unrest[0] < unrest[1] and unrest[2] < 0.0
    k, unrest, _ = crawl(*learning_of_one_site(), [never, always, always])
    assert k[0] == unrest[0] == 0.0 and k[2] > k[1] > 0.0


def test_an_announced_change_does_not_make_a_page_restless() -> None:
    """A page with true signals is fetched when it has changed, so it is always found changed."""
    k, unrest, _ = crawl(*learning_of_one_site(), [(True, SILENCE), (True, ONE_SIGNAL), (True, SILENCE)])
    assert k[0] < 0.0 < k[1] < k[2] and unrest[1] == 0.0
    k, unrest, _ = crawl(*learning_of_one_site(), [(True, ONE_SIGNAL), (True, SILENCE)])
    assert 0.0 < k[0] < k[1] and unrest[0] == 0.0


def test_a_restless_page_has_no_value_and_surely_changes() -> None:
    """It is compared with a page whose k is positive, but else the same."""
    learning, site, directory = learning_of_one_site()
    learning.restless.restore(-4.0, 1.0)
    page, value, fresh = Parameters(), [], []
    for sign in (-1.0, 1.0):
        chance = learning.restless.chance(sign * 20.0, 6.0, 0.0)
        learning.assign(page, site, sign * 20.0, 50.0, 2.0, 0.0, chance)
        value.append(page.value(5.0, 0.0))
        fresh.append(1.0 - learning.expected(site, sign * 20.0, 50.0, 0.1, SILENCE, 0.0, chance))
    steady = 1.0 - learning.restless.chance(-20.0, 6.0, 0.0)
    assert 0.01 < steady < 0.5
    assert value[0] == pytest.approx(steady * value[1], rel=1e-9)
    assert fresh[0] == pytest.approx(steady * fresh[1], rel=1e-6)


def test_what_is_found_on_a_restless_page_hardly_counts_for_the_rates() -> None:
    """A page is found changed a hundred times, in a crawl that has restless pages, and in one that has none."""
    rates = []
    for odds in (-2.0, -16.0):
        learning, site, directory = learning_of_one_site()
        learning.restless.restore(odds, 1e9)
        (*_, k), _, t = crawl(learning, site, directory, [(True, SILENCE)] * 100, 5.0)
        learning.renew_crawl()
        learning.renew(site)
        rates.append((learning.rates.rate(site, k, t), learning.rates.means[site], learning.rates.factor))
    (rate, mean, factor), (rate_counted, mean_counted, factor_counted) = rates
    assert rate < 0.5 * rate_counted and mean < 0.3 * mean_counted
    assert abs(factor - 1.0) < 0.2 * abs(factor_counted - 1.0)


def _odds_after(restless_share: float, rounds: int = 15, pages: int = 300) -> float:
    """Crawl pages whose rates have a Gamma distribution, apart from the restless pages. Return the log odds."""
    rng = np.random.default_rng(4)
    learning, site, directory = learning_of_one_site()
    rates = rng.exponential(0.05, pages)
    rates[rng.random(pages) < restless_share] = math.inf
    k, t, unrest = np.zeros((3, pages), np.float32)
    for _ in range(rounds):
        for page in range(pages):
            elapsed = rng.exponential(20.0)
            changed = bool(rng.random() < -math.expm1(-rates[page] * elapsed))
            k[page] = learning.observe(
                site, directory, k[page], t[page], elapsed, 0.0, SILENCE, changed, 0.0, unrest[page]
            )
            t[page] += np.float32(learning.watched)
            unrest[page] = learning.unrest
            learning.renew_crawl()
            learning.renew(site)
    return learning.restless.odds


def test_the_share_of_restless_pages_is_learned() -> None:
    assert _odds_after(0.0) < -6.0
    assert _odds_after(0.2) == pytest.approx(-2.0, abs=0.1), "the largest odds"


def test_the_odds_stay_within_bounds_and_move_in_small_steps() -> None:
    rates, restless, site = pair()
    for changed in (True, False):
        for k, t, clock in (
            (1e-9, 0.0, 1e-9),
            (1e6, 1e-9, 1e-9),
            (1e6, 0.0, 1e12),
            (5.0, 1.0, 0.0),
            (1.0, 1e9, 1e9),
        ):
            for _ in range(30):
                before, shown = restless.odds, restless.evidence
                restless.learn(site, -k, t, clock, changed, shown, 0.0)
                assert -16.0 <= restless.odds <= -2.0
                assert abs(restless.odds - before) <= 1.0 + 1e-12 and math.isfinite(restless.information)
                more = 3.0 if changed else -6.0
                assert changed * shown - 1e-9 <= restless.evidence <= max(min(shown + more, 6.0), 0.0)
    before = restless.state()
    restless.learn(site, 5.0, 1.0, 1.0, True, 0.0, 0.0)
    assert restless.state() == before, "the page was found unchanged once"


@pytest.mark.parametrize(("k", "t", "clock"), [(3.0, 20.0, 5.0), (8.0, 40.0, 20.0), (12.0, 40.0, 1.0)])
def test_the_odds_stay_as_they_are_on_average_if_they_are_right(k: float, t: float, clock: float) -> None:
    """The two results of a crawl change the odds in opposite directions, weighted by their probabilities."""
    change = {}
    for changed in (True, False):
        rates, restless, site = pair()
        restless.restore(-3.0, 20.0)
        chance = restless.chance(-k, 2.5, 40.0)
        restless.learn(site, -k, t, clock, changed, 2.5, 40.0)
        change[changed] = restless.odds + 3.0
    unchanged = (1.0 - chance) * (1.0 - rates.expected(site, k, t, clock))
    assert change[True] > 0.0 > change[False]
    assert (1.0 - unchanged) * change[True] + unchanged * change[False] == pytest.approx(0.0, abs=1e-9)


def test_a_removed_page_is_subtracted_whatever_the_sign_of_k() -> None:
    learning, site, directory = learning_of_one_site()
    before = learning.rates.means[site]
    (*_, k), _, t = crawl(learning, site, directory, [(True, SILENCE)] * 3)
    learning.renew(site)
    assert k < 0.0 and learning.rates.means[site] > before
    learning.rates.forget(site, k, t)
    learning.renew(site)
    assert learning.rates.means[site] == pytest.approx(before)
