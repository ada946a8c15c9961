"""Test the change rates that are pooled by site: their sums, their limits, and the bounded influence of a page."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.change_rates import ChangeRates, gain_of
from crawler.freshness.learning import Learning

DAY = 86_400.0


def _direct(site: np.ndarray, k: np.ndarray, t: np.ndarray, sites: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute m_s and c_s in days, page by page, by the formulas in the docstring of the module under test."""
    m = (k.sum() + 0.5) / (t.sum() + 25.0)
    spread = ((k - m * t) ** 2 - m * t).sum()
    c = np.clip((spread + 50.0) / (m * m * (t * t).sum() + 50.0), 0.3, 4.0)
    means, variations = np.zeros(sites), np.zeros(sites)
    for s in range(sites):
        mine_k, mine_t = k[site == s], t[site == s]
        means[s] = (mine_k.sum() + 5.0) / (mine_t.sum() + 5.0 / m)
        spread = ((mine_k - means[s] * mine_t) ** 2 - means[s] * mine_t).sum()
        variations[s] = np.clip((spread + 50.0 * c) / (means[s] ** 2 * (mine_t**2).sum() + 50.0), 0.2, 5.0)
    return means, variations


def _crawled(rng: np.random.Generator, pages: int, sites: int, crawls: int) -> tuple:
    """Crawl pages whose change rates per day are Gamma distributed; return the estimator and its observations."""
    rates = ChangeRates(unit=1.0)
    for _ in range(sites):
        rates.add_site()
    site = rng.integers(0, sites, pages)
    true = rng.gamma(1.0, 0.01 * (1 + site), pages)
    k, t = np.zeros(pages, np.float32), np.zeros(pages, np.float32)
    for _ in range(crawls):
        page = int(rng.integers(pages))
        clock = float(rng.exponential(20.0))
        changed = rng.random() < -math.expm1(-true[page] * clock)
        x = rates.rate(int(site[page]), k[page], t[page]) * clock
        gain = gain_of(x) if changed else 0.0
        k[page] = rates.observe(int(site[page]), k[page], t[page], clock, gain)
        t[page] = np.float32(t[page] + np.float32(clock))
        if rng.random() < 0.01:
            rates.renew_crawl()
            rates.renew(int(site[page]))
    return rates, site, true, k, t


def test_sums_give_what_a_pass_over_all_pages_gives() -> None:
    rates, site, _, k, t = _crawled(np.random.default_rng(1), 200, 5, 5_000)
    rates.renew_crawl()
    for s in range(5):
        rates.renew(s)
    means, variations = _direct(site, k.astype(float), t.astype(float), 5)
    assert np.asarray(rates.means)[:5] == pytest.approx(means, rel=1e-4)
    assert np.asarray(rates.variations)[:5] == pytest.approx(variations, rel=1e-2)
    rates._check()


def test_true_rates_are_learned() -> None:
    """After 60 crawls of each page, the means of sites are within 25 % of the truth, and pages are ranked well.

    The means are not closer because the gains of early crawls depend on early estimates of the rates.
    """
    rates, site, true, k, t = _crawled(np.random.default_rng(2), 1_000, 4, 60_000)
    for s in range(4):
        rates.renew(s)
        assert rates.means[s] == pytest.approx(true[site == s].mean(), rel=0.25)
        assert 0.3 < rates.variations[s] < 1.5  # the variation of the Gamma distribution is 1
    out = [rates.rate(int(site[page]), k[page], t[page]) for page in range(1_000)]
    assert np.corrcoef(out, true)[0, 1] > 0.9


def test_no_page_or_site_starts_with_a_high_rate() -> None:
    """An unknown page gets the rate of its site. An unknown site gets the rate of the crawl."""
    rates, *_ = _crawled(np.random.default_rng(3), 300, 3, 20_000)
    rates.renew_crawl()
    site = rates.add_site()
    assert rates.rate(site, 0.0, 0.0) == pytest.approx(rates.crawl_mean)
    assert rates.rate(0, 0.0, 0.0) == pytest.approx(rates.means[0])


def test_units_do_not_matter() -> None:
    days, seconds = ChangeRates(unit=1.0), ChangeRates()
    for rates, unit in ((days, 1.0), (seconds, DAY)):
        rates.add_site()
        rates.observe(0, 0.0, 0.0, 3.0 * unit, 1.0)
        rates.renew_crawl()
        rates.renew(0)
    assert days.rate(0, 1.0, 3.0) == pytest.approx(DAY * seconds.rate(0, 1.0, 3.0 * DAY), rel=1e-6)
    assert days.variations[0] == pytest.approx(seconds.variations[0], rel=1e-6)


@given(k=st.floats(0.0, 50.0), t=st.floats(0.0, 1e4), clock=st.floats(1e-3, 1e4), more=st.floats(0.01, 1e3))
@settings(max_examples=100, deadline=None)
def test_a_change_raises_the_rate_and_quiet_time_lowers_it(
    k: float, t: float, clock: float, more: float
) -> None:
    rates = ChangeRates(unit=1.0)
    rates.add_site()
    rate = rates.rate(0, k, t)
    assert rates.rate(0, k + 1.0, t) > rate > rates.rate(0, k, t + more) > 0.0
    expected = rates.expected(0, k, t, clock)
    assert 0.0 < expected <= rates.expected(0, k, t, clock + more) <= 1.0
    # The predicted change of a mixture of rates is less than that of its mean rate.
    assert expected <= -math.expm1(-rate * clock) * (1 + 1e-9)


@given(x=st.floats(1e-9, 700.0))
@settings(max_examples=100, deadline=None)
def test_gain_is_the_number_of_changes_expected_in_a_changed_interval(x: float) -> None:
    assert max(1.0, x) <= gain_of(x) <= 1.0 + x
    assert gain_of(x) == pytest.approx(x / -math.expm1(-x))


def test_a_forgotten_page_leaves_no_trace() -> None:
    rates = ChangeRates(unit=1.0)
    for _ in range(40):  # also grows
        rates.add_site()
    rates.observe(33, 0.0, 0.0, 8.0, 2.0)
    rates.renew(33)
    assert rates.means[33] > rates.means[32]
    rates.forget(33, 2.0, 8.0)
    rates.renew(33)
    assert rates.means[33] == pytest.approx(rates.means[32])
    rates._check()


def test_extreme_histories_stay_within_bounds() -> None:
    rates = ChangeRates()
    site = rates.add_site()
    k = t = 0.0
    for clock, gain in ((1e-9, 1.0), (1e12, 0.0), (1e-9, 1e6), (3e7, 8.0)):
        k = rates.observe(site, k, t, clock, gain)
        t = float(np.float32(t + clock))
        rates.renew_crawl()
        rates.renew(site)
        assert 0.0 < rates.rate(site, k, t) < math.inf
        assert 0.0 <= rates.expected(site, k, t, 1e9) <= 1.0
    rates._check()


@pytest.mark.parametrize("k,t", [(0.0, 0.0), (0.0, 300.0), (3.0, 40.0), (200.0, 4_000.0)])
@pytest.mark.parametrize("clock", [0.01, 1.0, 30.0, 2_000.0])
@pytest.mark.parametrize("unsaid", [1.0, 0.6, 1e-3])
def test_a_change_leaves_the_mean_and_variance_of_what_is_known(
    k: float, t: float, clock: float, unsaid: float
) -> None:
    """`match` gives the moments of the Gamma distribution after it is weighted by the probability of a change."""
    rates = ChangeRates(unit=1.0)
    site = rates.add_site()
    prior = 1.0 / rates.variations[site]
    shape, span = prior + k, prior / rates.means[site] + t
    rate = np.linspace(0.0, (shape + 30.0 * math.sqrt(shape) + 30.0) / span, 400_001)[1:]
    weight = np.exp(
        (shape - 1.0) * np.log(rate) - span * rate - np.max((shape - 1.0) * np.log(rate) - span * rate)
    )
    weight *= -np.expm1(math.log(unsaid) - rate * clock)
    mean = float((weight * rate).sum() / weight.sum())
    variance = float((weight * (rate - mean) ** 2).sum() / weight.sum())
    rates.match(site, k, t, clock, unsaid)
    found, seen = shape + rates.gain, span + rates.watched
    assert found / seen == pytest.approx(mean, rel=1e-3)
    # `match` never lowers k or T, so it cannot keep a variance that is greater than the earlier one
    if rates.watched > 0.0:
        assert found / seen**2 == pytest.approx(variance, rel=1e-3)
    else:
        assert found / seen**2 <= variance * 1.001
    assert 0.0 <= rates.watched <= clock and rates.gain >= 0.0


def _score(variation: float, visits: float, *, learned: bool) -> tuple[float, float]:
    """Crawl pages `visits` times per change. Return the mean log score of the predictions in nats, and c_s.

    The rates of the pages have a Gamma distribution of this variation. `learned` is whether f is learned.
    """
    rng = np.random.default_rng(5)
    learning, size, rounds = Learning(unit=1.0, neighbourhood=False), 600, 12
    site, directory = learning.add_site(), learning.add_directory()
    true = rng.gamma(1.0 / variation, 0.01 * variation, size)
    k, t, counts = np.zeros(size, np.float32), np.zeros(size, np.float32), np.zeros(8)
    total = 0.0
    for _ in range(rounds):
        for page in range(size):
            elapsed = rng.exponential(100.0 / visits)
            changed = rng.random() < -math.expm1(-true[page] * elapsed)
            expected = learning.rates.expected(site, k[page], t[page], elapsed)
            total += math.log(expected if changed else 1.0 - expected)
            k[page] = learning.observe(site, directory, k[page], t[page], elapsed, 0.0, counts, changed)
            t[page] += np.float32(learning.watched)
            if not learned:
                learning.rates.restore_factor()
            learning.renew_crawl()
            learning.renew(site)
    return total / (rounds * size), learning.rates.variations[site]


@pytest.mark.parametrize("visits", [0.3, 1.0])
@pytest.mark.parametrize("variation", [1.0, 2.0])
def test_the_variation_is_learned_from_the_results_of_crawls(variation: float, visits: float) -> None:
    """Without the factor f, c_s is too low, because the pages are fetched too rarely to count their changes."""
    plain, low = _score(variation, visits, learned=False)
    score, found = _score(variation, visits, learned=True)
    assert low < 0.8 * variation < found < 2.0 * variation
    assert score > plain + 0.002


def test_a_low_variation_does_no_harm() -> None:
    plain, _ = _score(0.25, 0.3, learned=False)
    score, found = _score(0.25, 0.3, learned=True)
    assert found < 0.4
    assert score > plain - 0.001


def test_a_few_sites_that_change_at_once_do_not_drive_the_variation_to_its_bounds() -> None:
    """All thirty pages of a site change together, so 4,500 crawls show only 150 independent events."""
    rng, learning = np.random.default_rng(6), Learning(unit=1.0, neighbourhood=False)
    sites, pages, counts = 50, 30, np.zeros(8)
    numbers, directory = [learning.add_site() for _ in range(sites)], learning.add_directory()
    rates = rng.gamma(1.0, 0.01, sites)
    k, t = np.zeros((sites, pages), np.float32), np.zeros((sites, pages), np.float32)
    for turn in range(3):
        for site in rng.permutation(sites).tolist():
            changed = bool(rng.random() < -math.expm1(-rates[site] * 100.0))
            for page in range(pages):
                k[site, page] = learning.observe(
                    numbers[site],
                    directory,
                    k[site, page],
                    t[site, page],
                    100.0,
                    100.0 * turn,
                    counts,
                    changed,
                )
                t[site, page] += np.float32(learning.watched)
                learning.renew_crawl()
                learning.renew(numbers[site])
                assert 0.35 < learning.rates.factor < 2.0


def test_one_crawl_changes_the_variation_little_and_within_bounds() -> None:
    rates = ChangeRates(unit=1.0)
    site = rates.add_site()
    for changed in (True, False):
        for k, t, clock in (
            (0.0, 0.0, 1e-9),
            (0.0, 0.0, 1e12),
            (1e6, 1e-9, 1e-9),
            (0.0, 1e12, 1e9),
            (5.0, 1.0, 0.0),
        ):
            before = rates.factor
            rates.learn_variation(site, k, t, clock, changed)
            assert 0.25 <= rates.factor <= 4.0
            assert before / math.e <= rates.factor * (1.0 + 1e-12) <= before * math.e * (1.0 + 1e-9)
            assert math.isfinite(rates.information)


def test_long_intervals_before_anything_is_known_do_no_lasting_harm() -> None:
    """Pages that change every 8 days are refetched only after 60 days, as if the crawl had been down for a while."""
    rng = np.random.default_rng(4)
    learning = Learning(unit=1.0, neighbourhood=False)
    site, directory = learning.add_site(), learning.add_directory()
    true = rng.lognormal(-0.5, 1.0, 100) / 8.0
    k, t, counts = np.zeros(100, np.float32), np.zeros(100, np.float32), np.zeros(8)
    predicted = found = 0.0
    for visit in range(8):
        for page in range(100):
            elapsed = 60.0 if visit == 0 else rng.uniform(3.0, 9.0)
            changed = rng.random() < -math.expm1(-true[page] * elapsed)
            if visit:
                predicted += learning.rates.expected(site, float(k[page]), float(t[page]), elapsed)
                found += changed
            k[page] = learning.observe(
                site, directory, float(k[page]), float(t[page]), elapsed, 0.0, counts, changed
            )
            t[page] += np.float32(learning.watched)
            if page % 10 == 0:
                learning.renew(site)
                learning.renew_crawl()
    # the ratio would be 1.8 if each change were counted with the whole interval
    assert 0.9 < found / predicted < 1.25
