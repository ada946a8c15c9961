"""Tests of the value of information against its definition."""

import math

import numpy as np
import pytest

from crawler.freshness.change_rates import ChangeRates
from crawler.freshness.information import information, net_gain
from crawler.freshness.params import PageParameters
from tests.freshness.page_values import crawl_value

QUANTILES = (np.arange(4000) + 0.5) / 4000


@pytest.mark.parametrize("x", [1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 25.0])
@pytest.mark.parametrize("rate", [0.01, 2.0])
def test_net_gain_is_freshness_minus_the_price_of_the_crawls(x: float, rate: float) -> None:
    """The page is crawled at intervals of x/rate, at which its value reaches the level."""
    interval = x / rate
    level = crawl_value(PageParameters(1.0, rate), interval)
    fresh = -math.expm1(-x) / rate
    assert net_gain(rate * level) == pytest.approx((fresh - level) / interval, rel=1e-5)


def test_a_page_whose_ceiling_is_below_the_level_has_no_net_gain() -> None:
    assert net_gain(1.0) == net_gain(7.0) == net_gain(math.inf) == 0.0
    assert net_gain(0.0) == 1.0


@pytest.mark.parametrize("shape", [0.5, 2.0])
@pytest.mark.parametrize("elapsed", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("price", [0.3, 1.5])
def test_information_is_the_expected_increase_of_the_net_gain(
    shape: float, elapsed: float, price: float
) -> None:
    span = 1.3
    from scipy.stats import (
        gamma,
    )  # imported here, because the import takes longer than those of all tests beside it

    rates = gamma.ppf(QUANTILES, shape, scale=1.0 / span)
    stay = np.exp(-rates * elapsed)
    after = [np.average(rates, weights=weights) for weights in (stay, 1.0 - stay)]
    found = [net_gain(mean * price) for mean in after]
    expected = stay.mean() * found[0] + (1.0 - stay.mean()) * found[1] - net_gain(rates.mean() * price)
    assert information(shape, span, elapsed, price) == pytest.approx(expected, rel=0.02, abs=1e-5)


def test_a_crawl_teaches_little_if_its_result_is_nearly_certain_or_the_rate_is_known() -> None:
    middle = information(1.0, 1.0, 1.0, 1.0)
    assert middle > 0.02
    assert information(1.0, 1.0, 1e-4, 1.0) < 0.01 * middle
    assert information(1.0, 1.0, 1e6, 1.0) < 0.01 * middle
    assert information(1e4, 1e4, 1.0, 1.0) < 0.01 * middle
    assert information(1.0, 1.0, 0.0, 1.0) == 0.0


def test_information_is_never_negative() -> None:
    rng = np.random.default_rng(1)
    for shape, span, elapsed, price in np.exp(rng.normal(0.0, 4.0, (3000, 4))).tolist():
        assert 0.0 <= information(shape, span, elapsed, price) <= 1.0
    assert information(1.0, 1.0, 1.0, math.inf) == 0.0


def test_the_mean_after_a_change_is_the_mean_that_is_learned() -> None:
    """`information` and `ChangeRates.match` must agree about what a crawl teaches."""
    rates = ChangeRates(1.0)
    site = rates.add_site()
    shape, elapsed = 1.0 / rates.variations[site], 3.0
    span = shape / rates.means[site]
    rates.match(site, 0.0, 0.0, elapsed)
    higher = (shape + rates.gain) / (span + rates.watched)
    quiet = (1.0 + elapsed / span) ** -shape
    price = 0.8 * span / shape
    expected = quiet * net_gain(shape / (span + elapsed) * price) + (1.0 - quiet) * net_gain(higher * price)
    assert information(shape, span, elapsed, price) == pytest.approx(
        expected - net_gain(0.8), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("restless", [0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("elapsed", [0.1, 3.0, 50.0])
@pytest.mark.parametrize("price", [0.5, 3.0])
def test_what_a_crawl_of_a_page_that_may_be_restless_teaches(
    restless: float, elapsed: float, price: float
) -> None:
    """Both results of the crawl are computed by Bayes' rule. A restless page is always found changed."""
    shape, span = 2.0, 4.0

    def gain(mean: float, share: float) -> float:
        """Return the net gain of a page whose value is multiplied by `share`."""
        return share * net_gain(mean * price / share)

    quiet = (1.0 + elapsed / span) ** -shape
    unchanged = (1.0 - restless) * quiet
    share = (1.0 - restless) * (1.0 - quiet) / (1.0 - unchanged)
    slow, mean = shape / (span + elapsed), shape / span
    fast = (mean - quiet * slow) / (1.0 - quiet)
    expected = (
        unchanged * gain(slow, 1.0) + (1.0 - unchanged) * gain(fast, share) - gain(mean, 1.0 - restless)
    )
    assert information(shape, span, elapsed, price, restless) == pytest.approx(max(expected, 0.0), abs=1e-9)


def test_a_page_that_seems_restless_is_tested_soon_after_its_last_crawl() -> None:
    """After a long time, it would be found changed even if it were not restless."""
    soon, late = (information(3.0, 1.0, elapsed, 0.2, 0.9) for elapsed in (0.05, 5.0))
    assert soon > 10.0 * late
