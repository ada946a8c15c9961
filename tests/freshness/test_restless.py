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


@pytest.mark.parametrize(("k", "t"), [(3.0, 20.0), (30.0, 60.0), (100.0, 200.0), (0.5, 100.0)])
def test_the_odds_follow_from_the_density_of_the_rates(k: float, t: float) -> None:
    """The density is computed independently, with scipy. A page that is slower than the mean has the prior odds."""
    stats = pytest.importorskip("scipy.stats")
    rates, restless, site = pair()
    mean, variation = rates.means[site], rates.variations[site]
    density = stats.gamma(1.0 / variation, scale=variation * mean).pdf
    ratio = density(mean) / density(max(rates.rate(site, k, t), mean))
    chance = restless.chance(site, -k, t)
    assert chance / (1.0 - chance) == pytest.approx(math.exp(restless.odds) * ratio, rel=1e-9)
    assert restless.chance(site, k, t) == 0.0


@given(st.floats(1e-6, 1e9), st.floats(0.0, 1e9), st.floats(1.0, 10.0), st.floats(-16.0, -2.0))
def test_the_chance_grows_with_the_changes_and_never_reaches_one(
    k: float, t: float, more: float, odds: float
) -> None:
    _, restless, site = pair()
    restless.restore(odds, 0.5)
    chance = restless.chance(site, -k, t)
    assert 0.0 < chance <= restless.chance(site, -k * more, t) <= 1.0 - 1e-9


def crawl(
    learning: Learning, site: int, directory: int, visits: list[tuple[bool, np.ndarray]]
) -> list[float]:
    """Crawl a page every ten days, with these results and signals. Return k after each crawl, and T at the end."""
    k, t, all_k = 0.0, np.float32(0.0), []
    for number, (changed, counts) in enumerate(visits):
        k = learning.observe(site, directory, k, t, 10.0, 10.0 * number, counts, changed)
        t += np.float32(learning.watched)
        all_k.append(k)
    return [*all_k, float(t)]


def learning_of_one_site() -> tuple[Learning, int, int]:
    learning = Learning(unit=1.0, neighbourhood=False)
    return learning, learning.add_site(), learning.add_directory()


def test_k_is_negative_until_a_crawl_finds_the_page_unchanged() -> None:
    always, never = (True, SILENCE), (False, SILENCE)
    *k, _ = crawl(*learning_of_one_site(), [always, always, never, always])
    assert k[1] < k[0] < 0.0 and k[2] == -k[1] and k[3] > k[2]
    *k, _ = crawl(*learning_of_one_site(), [never, always, always])
    assert k[0] == 0.0 and k[2] > k[1] > 0.0


def test_an_announced_change_does_not_make_a_page_restless() -> None:
    """A page with true signals is fetched when it has changed, so it is always found changed."""
    *k, _ = crawl(*learning_of_one_site(), [(True, SILENCE), (True, ONE_SIGNAL), (True, SILENCE)])
    assert k[0] < 0.0 < k[1] < k[2]
    *k, _ = crawl(*learning_of_one_site(), [(True, ONE_SIGNAL), (True, SILENCE)])
    assert 0.0 < k[0] < k[1]


def test_a_restless_page_has_no_value_and_surely_changes() -> None:
    """It is compared with a page whose k is positive, but else the same."""
    learning, site, directory = learning_of_one_site()
    page, value = Parameters(), []
    for sign in (-1.0, 1.0):
        learning.assign(page, site, sign * 20.0, 50.0, 2.0)
        value.append(page.value(5.0, 0.0))
    steady = 1.0 - learning.restless.chance(site, -20.0, 50.0)
    assert 0.01 < steady < 0.5
    assert value[0] == pytest.approx(steady * value[1], rel=1e-9)
    restless, other = (learning.expected(site, k, 50.0, 0.1, SILENCE) for k in (-20.0, 20.0))
    assert 1.0 - restless == pytest.approx(steady * (1.0 - other), rel=1e-6)


def _odds_after(restless_share: float, rounds: int = 15, pages: int = 300) -> float:
    """Crawl pages whose rates have a Gamma distribution, apart from the restless pages. Return the log odds."""
    rng = np.random.default_rng(4)
    learning, site, directory = learning_of_one_site()
    rates = rng.exponential(0.05, pages)
    rates[rng.random(pages) < restless_share] = math.inf
    k, t = np.zeros(pages, np.float32), np.zeros(pages, np.float32)
    for _ in range(rounds):
        for page in range(pages):
            elapsed = rng.exponential(20.0)
            changed = bool(rng.random() < -math.expm1(-rates[page] * elapsed))
            k[page] = learning.observe(site, directory, k[page], t[page], elapsed, 0.0, SILENCE, changed)
            t[page] += np.float32(learning.watched)
            learning.renew_crawl()
            learning.renew(site)
    return learning.restless.odds


def test_the_share_of_restless_pages_is_learned() -> None:
    assert _odds_after(0.0) < -6.0
    assert _odds_after(0.2) == -2.0, "the largest odds"


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
                before = restless.odds
                restless.learn(site, -k, t, clock, changed)
                assert -16.0 <= restless.odds <= -2.0
                assert abs(restless.odds - before) <= 1.0 + 1e-12 and math.isfinite(restless.information)
    before = restless.state()
    restless.learn(site, 5.0, 1.0, 1.0, True)
    assert restless.state() == before, "the page was found unchanged once"


@pytest.mark.parametrize(("k", "t", "clock"), [(3.0, 20.0, 5.0), (8.0, 40.0, 20.0), (12.0, 40.0, 1.0)])
def test_the_odds_stay_as_they_are_on_average_if_they_are_right(k: float, t: float, clock: float) -> None:
    """The two results of a crawl change the odds in opposite directions, weighted by their probabilities."""
    change = {}
    for changed in (True, False):
        rates, restless, site = pair()
        restless.restore(-3.0, 20.0)
        chance = restless.chance(site, -k, t)
        restless.learn(site, -k, t, clock, changed)
        change[changed] = restless.odds + 3.0
    unchanged = (1.0 - chance) * (1.0 - rates.expected(site, k, t, clock))
    assert change[True] > 0.0 > change[False]
    assert (1.0 - unchanged) * change[True] + unchanged * change[False] == pytest.approx(0.0, abs=1e-9)


def test_a_removed_page_is_subtracted_whatever_the_sign_of_k() -> None:
    learning, site, directory = learning_of_one_site()
    before = learning.rates.means[site]
    k, t = crawl(learning, site, directory, [(True, SILENCE)] * 3)[-2:]
    learning.renew(site)
    assert k < 0.0 and learning.rates.means[site] > before
    learning.rates.forget(site, k, t)
    learning.renew(site)
    assert learning.rates.means[site] == pytest.approx(before)
