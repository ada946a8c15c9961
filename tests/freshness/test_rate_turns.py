"""Test which pages are taken for pages whose change rate has turned, and what happens to their history."""

import math

import numpy as np
import pytest

from crawler.freshness.change_rates import ChangeRates
from crawler.freshness.learning import Learning
from crawler.freshness.rate_turns import RateTurns

SILENCE = np.zeros(8)
ONE_SIGNAL = np.array([1.0, *[0.0] * 7])
FACTOR, NEEDED = 8.0, 7.5


def learning_of_one_site() -> tuple[Learning, int, int]:
    learning = Learning(unit=1.0, neighbourhood=False)
    return learning, learning.add_site(), learning.add_directory()


class Page:
    """A page of a site of its own, and what a crawl keeps of it."""

    def __init__(self) -> None:
        self.learning, self.site, self.directory = learning_of_one_site()
        self.k, self.t, self.evidence, self.now, self.turns = 0.0, np.float32(0.0), 0.0, 0.0, 0

    @property
    def rate(self) -> float:
        return self.learning.rates.rate(self.site, self.k, float(self.t))

    def crawl(self, changed: bool, every: float = 1.0, counts: np.ndarray = SILENCE) -> None:
        before, self.now = float(self.t), self.now + every
        self.k = self.learning.observe(
            self.site, self.directory, self.k, before, every, self.now, counts, changed, 0.0, self.evidence
        )
        self.t, self.evidence = self.t + np.float32(self.learning.watched), self.learning.unrest
        self.turns += float(self.t) < before
        self.learning.renew_crawl()
        self.learning.renew(self.site)

    def watch(self, rng: np.random.Generator, rate: float, crawls: int, every: float = 1.0) -> None:
        for _ in range(crawls):
            self.crawl(bool(rng.random() < -math.expm1(-rate * every)), every)


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0, 3.0])
def test_a_constant_rate_rarely_turns(rate: float) -> None:
    """20 pages of each rate are crawled 300 times. The bound for a known rate is one turn in exp(7.5), 1,808 crawls."""
    rng, pages = np.random.default_rng(7), [Page() for _ in range(20)]
    for page in pages:
        page.watch(rng, rate, 300)
    assert sum(page.turns for page in pages) <= 6000 / 800
    assert np.mean([page.rate for page in pages]) == pytest.approx(rate, rel=0.35)


def test_quiet_hours_are_weak_evidence_of_a_turn_on_a_site_with_a_rhythm() -> None:
    """A page that changed every 50 minutes is quiet for 20 hours.

    All hours of the rhythm are alike, so that quiet hours are as unlikely as on a site without a rhythm.
    """
    pages = [Page() for _ in range(2)]
    pages[1].learning.seasons.restore(pages[1].site, [*[1.0] * 31, 200.0, *[1e6] * 31, 0.0, 0.0, 0.0])
    for page in pages:
        page.crawl(False, 0.02)
        for _ in range(40):
            page.crawl(changed=True, every=0.04)
            page.crawl(changed=False, every=0.01)
        for _ in range(20):
            page.crawl(changed=False, every=0.04)
    assert [page.turns > 0 for page in pages] == [True, False]


@pytest.mark.parametrize(("before", "after"), [(0.03, 1.0), (0.1, 1.0), (3.0, 0.1), (1.0, 0.05)])
def test_the_estimate_follows_a_rate_that_turns(before: float, after: float) -> None:
    """Without turns, the old crawls would outweigh the new ones: rates would be off by more than a factor of 2.5."""
    rng, found = np.random.default_rng(3), []
    for _ in range(20):
        page = Page()
        page.watch(rng, before, 100)
        page.watch(rng, after, 25)
        found.append(page.rate)
    assert 1 / 2.0 < np.exp(np.mean(np.log(found))) / after < 2.0
    plain = (100 * before + 25 * after) / 125
    assert abs(math.log(plain / after)) > math.log(2.5)


def test_the_evidence_compares_two_predictions() -> None:
    """The evidence is the log of the ratio of the likelihoods, for a rate with a Gamma distribution."""
    rates = ChangeRates(unit=1.0)
    site, turns = rates.add_site(), RateTurns(rates)
    k, t, clock = 6.0, 30.0, 2.0
    shape, rate = rates.shape(site, k), rates.rate(site, k, t)

    def quiet(times: float) -> float:
        return (1.0 + times * rate * clock / shape) ** -shape

    assert turns.learn(site, k, t, clock, True, 0.0) == 0
    up = math.log((1.0 - quiet(FACTOR)) / (1.0 - quiet(1.0)))
    assert turns.evidence == pytest.approx(up)
    turns.learn(site, k, t, clock, False, 3.0)
    assert turns.evidence == pytest.approx(3.0 + math.log(quiet(FACTOR) / quiet(1.0)))
    turns.learn(site, k, t, clock, False, 0.0)
    down = math.log(quiet(1.0 / FACTOR) / quiet(1.0))
    assert turns.evidence == pytest.approx(-down)
    turns.learn(site, k, t, clock, True, -3.0)
    assert turns.evidence == pytest.approx(-3.0 - math.log((1.0 - quiet(1.0 / FACTOR)) / (1.0 - quiet(1.0))))


def test_contradicted_evidence_begins_anew_in_the_other_direction() -> None:
    rates = ChangeRates(unit=1.0)
    site, turns = rates.add_site(), RateTurns(rates)
    turns.learn(site, 6.0, 30.0, 2.0, True, -0.01)
    first = turns.evidence
    turns.learn(site, 6.0, 30.0, 2.0, True, 0.0)
    assert first == turns.evidence > 0.0
    turns.learn(site, 6.0, 30.0, 2.0, False, 0.01)
    assert turns.evidence < 0.0


@pytest.mark.parametrize("t", [10.0, 1e3, 1e6])
def test_a_single_change_turns_no_rate(t: float) -> None:
    """All pages of a site may be edited once, in a redesign. The change adds at most ln 8 nats."""
    rates = ChangeRates(unit=1.0)
    site, turns = rates.add_site(), RateTurns(rates)
    assert turns.learn(site, 0.1, t, t / 100.0, True, 0.0) == 0
    assert 0.0 < turns.evidence <= math.log(FACTOR) + 1e-9


@pytest.mark.parametrize("direction", [1, -1])
def test_a_turned_page_keeps_two_changes_at_the_new_rate(direction: int) -> None:
    rates = ChangeRates(unit=1.0)
    site, turns = rates.add_site(), RateTurns(rates)
    k, t = 6.0, 30.0
    rate = rates.rate(site, k, t)
    assert (
        turns.learn(site, k, t, 1.0 if direction > 0 else 20.0, direction > 0, direction * (NEEDED - 0.01))
        == direction
    )
    assert turns.evidence == 0.0 and turns.changes == 2.0
    assert turns.changes / turns.watched == pytest.approx(rate * FACTOR**direction)


def test_a_page_that_turned_to_a_high_rate_may_become_restless() -> None:
    """A clock appears on a page with a long history. Once, such a page could never be taken for restless."""
    page = Page()
    page.watch(np.random.default_rng(1), 0.05, 200)
    assert page.k > 0.0
    for _ in range(50):
        if page.k > 0.0:
            page.crawl(True)
    assert page.k < 0.0 and page.evidence == 0.0
    for _ in range(8):
        page.crawl(True)
    assert page.k < 0.0 and page.evidence > 0.3
    page.crawl(False)
    assert page.k > 0.0


def test_a_signal_leaves_the_evidence() -> None:
    """A change that a signal has announced says nothing about changes without a signal."""
    page = Page()
    page.watch(np.random.default_rng(1), 0.05, 100)
    page.crawl(True)
    evidence = page.evidence
    assert evidence > 1.0
    for changed in (True, False):
        page.crawl(changed, counts=ONE_SIGNAL)
        assert page.evidence == evidence
