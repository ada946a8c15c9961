"""Test that signal quality is learned by site and source, and that false and hostile sources have little effect."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.change_signals import COUNTER_BITS, SOURCES
from crawler.freshness.false_signals import precision_at
from crawler.freshness.learning import Learning
from crawler.freshness.signal_quality import SignalQuality
from crawler.freshness.source_precision import WEIGHT_MAX
from crawler.freshness.value_kernel import GREEDY, NOISY, Parameters

COUNTED_MAX = 2**COUNTER_BITS - 1  # the largest number that the counter of a source can hold


def _site_knowledge(
    rng: np.random.Generator,
    crawls: int,
    rate: float,
    recall: float,
    false_rates: dict[int, float],
    interval: float = 5.0,
) -> SignalQuality:
    """Simulate a site with several sources.

    Each source signals the share `recall` of the changes, and also sends false signals.
    """
    quality = SignalQuality()
    quality.add_site()
    quality.renew(0, rate)
    for _ in range(crawls):
        changes = rng.poisson(rate * interval)
        told = rng.binomial(changes, recall)
        counts = np.zeros(SOURCES)
        for source, false in false_rates.items():
            counts[source] = told + rng.poisson(false * interval)
        quality.observe(0, counts, rate, interval, changes > 0)
        quality._check()
    return quality


def test_a_true_source_is_believed() -> None:
    quality = _site_knowledge(np.random.default_rng(1), 3_000, 0.05, 0.9, {0: 0.001})
    assert quality.sources.precision(0, 0) > 0.85
    assert quality.recalls[0] == pytest.approx(0.9, abs=0.1)


def test_a_lying_source_is_not_believed() -> None:
    """The source sends ten signals per change, but they are unrelated to the changes. So its precision is near 0."""
    quality = _site_knowledge(np.random.default_rng(2), 3_000, 0.02, 0.0, {0: 0.2})
    assert quality.sources.precision(0, 0) < 0.1
    assert quality.sources.weight(0, 0) < 0.11


def test_sources_are_judged_separately() -> None:
    """A correct sitemap and a feed that sends only noise are distinguished."""
    quality = _site_knowledge(np.random.default_rng(3), 5_000, 0.05, 0.9, {0: 0.0})
    assert quality.sources.precision(0, 0) > 0.9
    rng = np.random.default_rng(4)
    for _ in range(3_000):
        changes = rng.poisson(0.25)
        counts = np.zeros(SOURCES)
        counts[0], counts[1] = rng.binomial(changes, 0.9), rng.poisson(1.0)
        quality.observe(0, counts, 0.05, 5.0, changes > 0)
    assert quality.sources.precision(0, 0) > 0.75
    assert quality.sources.precision(0, 1) < 0.15


def test_only_a_trusted_source_watches_pages_between_crawls() -> None:
    counts = np.zeros(SOURCES)
    counts[0] = 3.0
    right = _site_knowledge(np.random.default_rng(1), 300, 0.05, 0.9, {0: 0.001})
    assert right.share_watched(0) == right.recalls[0] > 0.5
    assert right.sources.announced_changes(0, counts) == pytest.approx(3.0 * right.sources.precision(0, 0))
    assert right.sources.announced_changes(0, np.roll(counts, 1)) == 0.0  # a source without signals
    # a source that was hardly observed, then a source that sends mostly false signals
    for crawls, false in ((2, 0.001), (300, 0.2)):
        other = _site_knowledge(
            np.random.default_rng(2), crawls, 0.02, 0.0 if false > 0.1 else 0.9, {0: false}
        )
        assert other.share_watched(0) == other.sources.announced_changes(0, counts) == 0.0


@pytest.mark.parametrize("recall", [1.0, 0.5])
def test_the_recall_is_learned_from_pages_without_a_signal(recall: float) -> None:
    """If there are few fetches, two thirds of them go to pages with a signal.

    These fetches say nothing about changes that no signal announced.
    """
    quality, rng = SignalQuality(), np.random.default_rng(12)
    quality.add_site()
    quality.renew(0, 0.02)
    crawled = {True: 0, False: 0}
    while crawled[False] < 200:
        told, silent = rng.poisson(recall), rng.poisson(1.0 - recall)
        if crawled[told > 0] <= (2 * crawled[False] if told else 10**9):
            crawled[told > 0] += 1
            counts = np.zeros(SOURCES)
            counts[0] = told
            quality.observe(0, counts, 0.02, 50.0, told + silent > 0)
    assert quality.recalls[0] == pytest.approx(recall, abs=0.1)


@pytest.mark.parametrize("recall", [0.1, 0.3, 0.6])
def test_the_uncertainty_of_the_rates_does_not_raise_the_recall(recall: float) -> None:
    """No page has a signal, and the mean of each rate is right, but rates vary about their means."""
    rng, quality = np.random.default_rng(14), SignalQuality()
    site, counts, estimates = quality.add_site(), np.zeros(SOURCES), []
    quality.note_signal(site, 0)
    for crawl in range(2_000):
        rate = rng.exponential(0.01)
        changed = bool(rng.random() < -math.expm1(-(1.0 - recall) * rate * 150.0))
        quality.observe(site, counts, 0.01, 150.0, changed, 7.0, 0.0, 0.01, 1.0)
        if crawl >= 500:
            estimates.append(quality.recalls[site])
    assert np.mean(estimates) == pytest.approx(recall, abs=0.06)


def test_a_site_without_signals_has_no_recall() -> None:
    quality = SignalQuality()
    quality.add_site()
    assert quality.observe(0, np.zeros(SOURCES), 0.1, 2.0, True) == pytest.approx(0.2 / -math.expm1(-0.2))
    assert quality.observe(0, np.zeros(SOURCES), 0.1, 2.0, False) == 0.0
    assert quality.recalls[0] == quality.weights[0] == 0.0
    quality.note_signal(0, 3)
    assert quality.sources.heard(0) and 0.0 < quality.sources.precision(0, 3) <= 0.7


def test_the_pooled_signal_keeps_drift_and_announced_changes() -> None:
    """If the sources are pooled, two sums over the sources stay the same.

    One is the sum of rate times weight, the other the sum of rate times precision.
    """
    quality = _site_knowledge(np.random.default_rng(5), 400, 0.05, 0.6, {0: 0.01, 2: 0.05})
    assert quality.sources.used(0, 0) and quality.sources.used(0, 2)
    heard = quality.sums_of(0)[SOURCES : 2 * SOURCES]
    precision = np.array([quality.sources.precision(0, source) for source in range(SOURCES)])
    weight = np.array([quality.sources.weight(0, source) for source in range(SOURCES)])
    b = quality.weights[0]
    gamma = (heard * precision).sum() / -math.expm1(-b)
    assert gamma * b == pytest.approx((heard * weight).sum(), rel=1e-6)
    counts = np.array([2.0, 0, 3.0, 0, 0, 0, 0, 0])
    assert quality.signals(0, counts) * b == pytest.approx((counts * weight).sum())


@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0, 0, 1, 3, COUNTED_MAX]), min_size=SOURCES, max_size=SOURCES),
            st.floats(1e-9, 10.0),
            st.floats(1e-9, 1e6),
            st.booleans(),
        ),
        max_size=40,
    )
)
@settings(max_examples=100, deadline=None)
def test_a_hostile_source_is_bounded(rows: list[tuple[list[int], float, float, bool]]) -> None:
    """Whatever a source sends, shares stay between 0 and 1, gains are bounded, and other sites are not affected."""
    quality = SignalQuality()
    quality.add_site()
    quality.add_site()
    quality.renew(0, 0.01)
    for given_counts, rate, clock, changed in rows:
        counts = np.array(given_counts, dtype=float)
        gain = quality.observe(0, counts, rate, clock, changed)
        assert (
            gain == 0.0 if not changed else 1.0 <= gain <= 16.0 + rate * clock + 3.0 * math.sqrt(rate * clock)
        )
        assert 0.0 <= quality.sources.staleness(0, counts) <= SOURCES * COUNTED_MAX * (WEIGHT_MAX + 0.1)
        assert 0.0 <= quality.signals(0, counts) < math.inf
        quality._check()
    assert not quality.sources.heard(1)


def test_stored_sums_can_be_restored() -> None:
    quality = _site_knowledge(np.random.default_rng(6), 300, 0.05, 0.6, {0: 0.01, 2: 0.3})
    again = SignalQuality()
    for _ in range(40):
        again.add_site()
    again.renew(39, 0.05)
    again.restore(39, quality.sums_of(0))
    assert again.sources.precision(39, 0) == quality.sources.precision(0, 0)
    assert again.recalls[39] == quality.recalls[0] and again.weights[39] == quality.weights[0]
    assert "40 sites, 1 of them heard" in repr(again)


# ---------------------------------------------------------------------------
# All estimators together


def _crawl_of(learning: Learning, rng: np.random.Generator, crawls: int, false_rate: float) -> tuple:
    """Crawl 50 pages of a site in turn, with a source that sends all true signals and some false ones."""
    site, directory = learning.add_site(), learning.add_directory()
    k, t = np.zeros(50, np.float32), np.zeros(50, np.float32)
    counts = np.zeros(SOURCES)
    calibration = []
    for crawl in range(crawls):
        page = crawl % 50
        now = float(crawl)
        changes = rng.poisson(0.01 * 50.0)
        counts[0] = changes + rng.poisson(false_rate * 50.0)
        if counts[0]:
            learning.quality.note_signal(site, 0)
        clock = learning.clock(site, directory, 50.0, now)
        calibration.append(
            (learning.expected(site, float(k[page]), float(t[page]), clock, counts), changes > 0)
        )
        k[page] = learning.observe(
            site, directory, float(k[page]), float(t[page]), 50.0, now, counts, changes > 0
        )
        t[page] = np.float32(t[page] + np.float32(learning.watched))
        if crawl % 100 == 0:
            learning.renew_crawl()
            learning.renew(site)
    learning._check()
    return site, k, t, np.array(calibration, dtype=float)


@pytest.mark.parametrize("false_rate", [0.0, 0.01, 1.0, 10.0])
def test_predicted_changes_equal_found_changes(false_rate: float) -> None:
    """The predictions are calibrated: the number of changes found in 5,000 crawls is within 10 % of the prediction."""
    learning = Learning(unit=1.0, scale=30.0)
    _, _, _, calibration = _crawl_of(learning, np.random.default_rng(7), 5_000, false_rate)
    predicted, found = calibration[1_000:].mean(axis=0)
    assert predicted == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize(
    "odd", [(0.95, 0.0), (0.0, 3.0)], ids=["like the others", "no change and three false signals per change"]
)
def test_pages_of_one_site_can_have_good_and_worthless_signals(odd: tuple[float, float]) -> None:
    """Pages with even numbers have signals for 95 % of their changes.

    Pages with odd numbers have either the same signals, or only false ones.
    """
    rng, learning, counts = np.random.default_rng(5), Learning(unit=1.0, scale=30.0), np.zeros(SOURCES)
    site, directory = learning.add_site(), learning.add_directory()
    k, t, trust, stated = np.zeros(40), np.zeros(40), np.zeros(40), []
    for crawl in range(4_000):
        page, now = crawl % 40, float(crawl)
        recall, noise = odd if page % 2 else (0.95, 0.0)
        changes = rng.poisson(0.02 * 40.0)
        counts[0] = rng.binomial(changes, recall) + rng.poisson(noise * 0.02 * 40.0)
        clock = learning.clock(site, directory, 40.0, now)
        predicted = learning.expected(site, k[page], t[page], clock, counts, trust[page])
        k[page] = learning.observe(
            site, directory, k[page], t[page], 40.0, now, counts, bool(changes), trust[page]
        )
        t[page] = np.float32(t[page] + learning.watched)
        trust[page] = learning.kinds.trust
        learning.renew(site)
        learning.renew_crawl()
        stated.append((predicted, changes > 0))
    w = [learning.kinds.reliability(site, each) for each in trust]
    assert min(w[::2]) > 0.9 and learning.quality.sources.precision(site, 0) > 0.9
    assert learning.quality.recalls[site] > 0.8
    assert max(w[1::2]) < 0.1 if odd[1] else min(w[1::2]) > 0.9
    predicted, found = np.mean(stated[1_000:], axis=0)
    assert predicted == pytest.approx(found, rel=0.1)
    learning._check()


def test_a_page_has_a_quality_of_its_own_only_where_this_improves_predictions() -> None:
    quality = SignalQuality()
    site = quality.add_site()
    share = quality.kinds.reliability(site, 0.0)
    for _ in range(50):
        quality.kinds.split(site, 0.1)
    assert quality.kinds.reliability(site, 5.0) > 0.99 and quality.kinds.reliability(site, -5.0) < 0.05
    for _ in range(150):
        quality.kinds.split(site, -0.1)
    assert quality.kinds.reliability(site, 5.0) == quality.kinds.reliability(site, -5.0) == share
    quality._check()


def _signalled(noise: str) -> tuple[Learning, np.ndarray, np.ndarray, np.ndarray]:
    """Crawl 60 pages 20 times; half of the changes have a signal. There are two false signals per change.

    The false signals go to pages in proportion to their rates ("changes"), to all pages alike ("alike"), or
    to pages in proportion to the rates of other pages ("others"). Return the learned state and, for each
    page, its true rate, its number of changes and its watched time.
    """
    rng, learning, counts = np.random.default_rng(6), Learning(unit=1.0, scale=30.0), np.zeros(SOURCES)
    site, directory = learning.add_site(), learning.add_directory()
    rates = rng.lognormal(0.0, 1.0, 60) / 60.0
    false = {"changes": 2.0 * rates, "alike": np.full(60, 2.0 * rates.mean()), "others": 2.0 * rates[::-1]}
    k, t, trust = np.zeros(60, np.float32), np.zeros(60, np.float32), np.zeros(60)
    for crawl in range(1_200):
        page, now = crawl % 60, float(crawl)
        changes = rng.poisson(rates[page] * 60.0)
        counts[0] = min(rng.binomial(changes, 0.5) + rng.poisson(false[noise][page] * 60.0), 15)
        if counts[0]:
            learning.quality.note_signal(site, 0)
        k[page] = learning.observe(
            site, directory, k[page], t[page], 60.0, now, counts, changes > 0, trust[page]
        )
        t[page] += np.float32(learning.watched)
        trust[page] = learning.kinds.trust
        learning.renew(site)
        learning.renew_crawl()
    learning._check()
    return learning, rates, k, t


def test_the_number_of_signals_is_evidence_only_where_it_goes_with_the_changes() -> None:
    learning, true, k, t = _signalled("changes")
    assert learning.quality.false_signals.counted[0] > 0.9
    assert learning.quality.per_change(0) == pytest.approx(2.5, rel=0.25)
    learned = np.array([learning.rates.rate(0, float(a), float(b)) for a, b in zip(k, t, strict=True)])
    assert np.corrcoef(np.log(learned), np.log(true))[0, 1] > 0.95
    assert learned.mean() == pytest.approx(true.mean(), rel=0.15)
    for noise in ("alike", "others"):
        assert _signalled(noise)[0].quality.false_signals.counted[0] == 0.0


def test_parameters_follow_what_was_learned() -> None:
    learning, page = Learning(unit=1.0, scale=30.0), Parameters()
    quiet = learning.add_site()
    learning.assign(page, quiet, 0.0, 0.0, 2.0)
    assert page.form == GREEDY and page.importance == 2.0
    site, k, t, _ = _crawl_of(learning, np.random.default_rng(8), 3_000, 0.002)
    learning.assign(page, site, float(k[0]), float(t[0]), 1.0)
    assert page.form == NOISY
    assert page.change_rate == pytest.approx(learning.rates.rate(site, k[0], t[0]))
    assert page.false_rate < page.signal_rate
    counts = np.zeros(SOURCES)
    alone = page.wait(0.5 * page.ceiling, learning.signals(site, counts), 0.0, 1e-9)
    counts[0] = 1.0
    assert page.wait(0.5 * page.ceiling, learning.signals(site, counts), 0.0, 1e-9) < alone


def test_announced_changes_leave_the_neighbours_clocks_alone() -> None:
    """A change that a trusted source announced does not speed up the clocks of pages without a signal."""
    learning = Learning(unit=1.0, scale=30.0)
    site, _, _, _ = _crawl_of(learning, np.random.default_rng(13), 1_000, 0.0)
    assert learning.quality.share_watched(site) > 0.5
    counts, before = np.zeros(SOURCES), learning.excess(site, 0, 1_000.0)
    counts[0] = 1.0
    for _ in range(20):
        learning.observe(site, 0, 1.0, 200.0, 50.0, 1_000.0, counts, True)
    assert learning.excess(site, 0, 1_000.0) == pytest.approx(before, abs=0.05)
    counts[0] = 0.0
    for _ in range(20):
        learning.observe(site, 0, 1.0, 200.0, 50.0, 1_000.0, counts, True)
    assert learning.excess(site, 0, 1_000.0) > before + 0.5


def test_a_burst_does_not_make_a_site_fast() -> None:
    """Each page gets a hundred signals before each crawl. Once, this multiplied all rates of the site by six."""
    learning = Learning(unit=1.0, scale=30.0)
    site, k, t, _ = _crawl_of(learning, np.random.default_rng(10), 1_000, 10.0)
    learning.renew(site)
    assert learning.rates.means[site] == pytest.approx(0.01, rel=0.6)
    assert not learning.quality.sources.used(site, 0)


def test_the_honesty_of_a_source_is_learned_over_sites() -> None:
    """A source that was right elsewhere is trusted on a new site at once. A source that was wrong is trusted less."""
    right, wrong = SignalQuality(), SignalQuality()
    for quality, true in ((right, 1.0), (wrong, 0.3)):
        rng = np.random.default_rng(11)
        for site in range(20):
            quality.add_site()
            for _ in range(60):
                change = rng.random() < 0.2
                told = float(rng.random() < 0.2) if rng.random() > true else float(change)
                counts = np.zeros(SOURCES)
                counts[4] = told
                quality.observe(site, counts, 0.04, 5.0, change)
            quality.renew(site, 0.04)
        new = quality.add_site()
        quality.renew(new, 0.04)
        quality.note_signal(new, 4)
    assert right.sources.precision(20, 4) > 0.9 > 0.75 > wrong.sources.precision(20, 4)
    assert right.recalls[20] > wrong.recalls[20]
    assert right.sources.honesty.share(3) == 0.7


def test_without_a_neighbourhood_the_clock_is_the_time() -> None:
    learning = Learning(neighbourhood=False, unit=1.0)
    site, directory = learning.add_site(), learning.add_directory()
    learning.observe(site, directory, 0.0, 0.0, 5.0, 5.0, np.zeros(SOURCES), False)
    assert learning.clock(site, directory, 7.0, 6.0) == 7.0 and learning.watched == 5.0
    assert learning.excess(site, directory, 6.0) == 0.0
    changing = Learning(unit=1.0, scale=10.0)
    site, directory = changing.add_site(), changing.add_directory()
    changing.observe(site, directory, 0.0, 0.0, 5.0, 5.0, np.zeros(SOURCES), True)
    assert changing.clock(site, directory, 7.0, 6.0) > 7.0


def test_false_signals_come_to_slow_pages_too() -> None:
    """If all pages get equally many false signals, these are only a small part of the signals of fast pages."""
    rng, quality, false, interval = np.random.default_rng(3), SignalQuality(), 0.05, 4.0
    rates = [0.01, 0.19]
    quality.add_site()
    quality.renew(0, 0.1)
    for turn in range(8_000):
        rate = rates[turn % 2]
        changes, counts = rng.poisson(rate * interval), np.zeros(SOURCES)
        counts[0] = rng.binomial(changes, 0.8) + rng.poisson(false * interval)
        quality.observe(0, counts, rate, interval, changes > 0)
    for rate in rates:
        truth = 0.8 * rate / (0.8 * rate + false)
        assert precision_at(quality.sources.precision(0, 0), rate, 0.1) == pytest.approx(truth, abs=0.15)


RATES = st.floats(0.0, 1e6, allow_subnormal=False)  # fractions of subnormal rates have too few digits


@given(st.floats(0.0, 0.999999), RATES, RATES)
def test_the_precision_of_a_page_rises_with_its_rate(precision: float, rate: float, mean: float) -> None:
    own = precision_at(precision, rate, mean)
    assert 0.0 <= own <= 0.999999
    assert own <= precision_at(precision, 2.0 * rate, mean)
    if mean > 0.0:
        assert precision_at(precision, mean, mean) == pytest.approx(precision)
