"""Test which pages are taken for pages whose change rate has turned, and what happens to their history."""

import math

import numpy as np
import pytest

from crawler.freshness.change_rates import ChangeRates
from crawler.freshness.learning import Learning
from crawler.freshness.rate_turns import RateTurns

SILENCE = np.zeros(8)
ONE_SIGNAL = np.array([1.0, *[0.0] * 7])
FACTOR, BOUND, BOUND_LEAST = 8.0, 7.5, 3.0


def turns_of_one_site() -> tuple[ChangeRates, RateTurns, int]:
    learning, site, _ = learning_of_one_site()
    return learning.rates, learning.turns, site


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
    rates, turns, site = turns_of_one_site()
    k, t, clock = 6.0, 30.0, 2.0
    shape, rate = rates.shape(site, k), rates.rate(site, k, t)

    def quiet(times: float) -> float:
        return (1.0 + times * rate * clock / shape) ** -shape

    assert not turns.learn(site, k, t, clock, True, 0.0)
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
    rates, turns, site = turns_of_one_site()
    turns.learn(site, 6.0, 30.0, 2.0, True, -0.01)
    first = turns.evidence
    turns.learn(site, 6.0, 30.0, 2.0, True, 0.0)
    assert first == turns.evidence > 0.0
    turns.learn(site, 6.0, 30.0, 2.0, False, 0.01)
    assert turns.evidence < 0.0


@pytest.mark.parametrize("t", [10.0, 1e3, 1e6])
def test_a_single_change_turns_no_rate(t: float) -> None:
    """All pages of a site may be edited once, in a redesign. The change adds at most ln 8 nats."""
    rates, turns, site = turns_of_one_site()
    assert not turns.learn(site, 0.1, t, t / 100.0, True, 0.0)
    assert 0.0 < turns.evidence <= math.log(FACTOR) + 1e-9


def turn(turns: RateTurns, site: int, higher: bool, evidence: float = BOUND - 0.01) -> bool:
    """Learn from a crawl that adds more than 0.1 nats of evidence to a page of this site; return whether it turns."""
    return bool(
        turns.learn(site, 6.0, 30.0, 1.0 if higher else 5.0, higher, evidence if higher else -evidence)
    )


@pytest.mark.parametrize("higher", [True, False])
def test_a_turned_page_keeps_two_changes_at_the_new_rate_and_the_last_crawl(higher: bool) -> None:
    rates, turns, site = turns_of_one_site()
    rate = rates.rate(site, 6.0, 30.0) * FACTOR ** (1 if higher else -1)
    assert turn(turns, site, higher) and turns.evidence == 0.0
    if higher:
        rates.match(site, 2.0, 2.0 / rate, 1.0)
        expected = (2.0 + rates.gain, 2.0 / rate + rates.watched)
    else:
        expected = (2.0, 2.0 / rate + 5.0)
    assert (turns.changes, turns.watched) == pytest.approx(expected)


@pytest.mark.parametrize("higher", [True, False])
def test_pages_turn_sooner_after_pages_of_their_site(higher: bool) -> None:
    """The bound falls with each turn in the same direction. Other sites, and the other direction, keep theirs."""
    learning, site, _ = learning_of_one_site()
    other, turns = learning.add_site(), learning.turns
    # the evidence before the crawl, which adds 0.5 to 2.1 nats
    for before in (5.5, 3.2):
        assert not turn(turns, site, higher, evidence=before - 2.5)
        assert turn(turns, site, higher) and turn(turns, site, higher, evidence=before)
        assert not turn(turns, site, not higher, evidence=before)
        assert not turn(turns, other, higher, evidence=before)
    for _ in range(400):
        turns.learn(site, 6.0, 30.0, 1.0, True, 0.0)
    assert not turn(turns, site, higher, evidence=BOUND - 2.5)


def test_two_turns_on_a_site_do_not_let_a_single_change_turn_a_page() -> None:
    """An edit of all pages of a site with rates that turn is still an edit."""
    learning, site, _ = learning_of_one_site()
    for _ in range(4):
        assert turn(learning.turns, site, True)
    assert not learning.turns.learn(site, 0.1, 1e6, 1e4, True, 0.0)
    assert 0.0 < learning.turns.evidence < BOUND_LEAST


def test_a_crawl_that_contradicts_the_evidence_turns_no_rate() -> None:
    """The site has a low bound in the direction of the crawl, but the evidence of the page is for the other one."""
    learning, site, _ = learning_of_one_site()
    for _ in range(3):
        assert turn(learning.turns, site, False)
    assert not learning.turns.learn(site, 6.0, 30.0, 1e-3, False, BOUND_LEAST + 2.0)
    assert learning.turns.evidence > BOUND_LEAST


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
