"""Test that sites whose change signals have turned are found soon, and that other sites are left alone."""

import numpy as np
import pytest

from crawler.change_signals import SOURCES
from crawler.freshness.learning import Learning

PAGES, RATE = 100, 0.1  # pages of the site, and changes of a page per day
SITEMAP = 0


class Site:
    """A site whose pages are crawled in turn, ten a day, and its signals: a share of the changes, or daily lies."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.learning = Learning(unit=1.0, scale=2.5)
        self.site, self.directory = self.learning.add_site(), self.learning.add_directory()
        self.k, self.t = np.zeros(PAGES, np.float32), np.zeros(PAGES, np.float32)
        self.crawled, self.trust, self.unrest = np.zeros(PAGES), np.zeros(PAGES), np.zeros(PAGES)
        self.changed, self.counts = np.zeros(PAGES, bool), np.zeros((PAGES, SOURCES))
        self.day, self.turns = 0, 0

    @property
    def precision(self) -> float:
        return self.learning.quality.sources.precision(self.site, SITEMAP)

    @property
    def recall(self) -> float:
        return self.learning.quality.recalls[self.site]

    def pass_days(self, days: int, recall: float, lies: float = 0.0, edits: tuple[int, ...] = ()) -> None:
        """Let pages change, and signals arrive. On the days `edits` of this call, all pages change."""
        for day in range(days):
            self.day += 1
            changed = (self.rng.random(PAGES) < -np.expm1(-RATE)) | (day in edits)
            self.changed |= changed
            self.counts[:, SITEMAP] += changed & (self.rng.random(PAGES) < recall)
            self.counts[:, SITEMAP] += self.rng.random(PAGES) < lies
            for page in (10 * self.day + np.arange(10)) % PAGES:
                self._crawl(page)
            self.learning._check()

    def _crawl(self, page: int) -> None:
        learning, before = self.learning, self.learning.evidence.turns.turned_at[self.site]
        self.k[page] = learning.observe(
            self.site, self.directory, self.k[page], self.t[page], self.day - self.crawled[page], self.day,
            self.counts[page], bool(self.changed[page]), self.trust[page], self.unrest[page],
        )  # fmt: skip
        self.t[page] += np.float32(learning.watched)
        self.trust[page], self.unrest[page] = learning.kinds.trust, learning.unrest
        self.crawled[page], self.changed[page], self.counts[page] = self.day, False, 0.0
        learning.renew_crawl()
        learning.renew(self.site)
        self.turns += learning.evidence.turns.turned_at[self.site] != before


def test_a_sitemap_that_begins_to_lie_is_soon_ignored() -> None:
    site = Site()
    site.pass_days(200, recall=0.95)
    assert site.precision > 0.9 and site.recall > 0.8
    site.pass_days(7, recall=0.0, lies=1.0)
    assert site.precision < 0.1 and site.recall == 0.0
    site.pass_days(100, recall=0.0, lies=1.0)
    assert site.precision < 0.1 and site.turns == 1


def test_a_sitemap_that_lied_is_soon_believed_when_it_is_right() -> None:
    """The first crawl of each page after the turn has the lies of the time before it."""
    site = Site()
    site.pass_days(200, recall=0.0, lies=1.0)
    assert site.precision < 0.1
    site.pass_days(20, recall=0.95)
    assert site.turns == 1 and site.precision > 0.5 and site.recall > 0.7
    site.pass_days(60, recall=0.95)
    assert site.precision > 0.9 and site.recall > 0.8 and site.turns == 1


@pytest.mark.parametrize(("recall", "lies"), [(0.95, 0.0), (0.5, 0.0), (0.9, 0.1), (0.0, 1.0), (0.0, 0.1)])
def test_signals_of_constant_quality_do_not_turn(recall: float, lies: float) -> None:
    for seed in range(3):
        site = Site(seed)
        site.pass_days(300, recall, lies)
        assert site.turns == 0


def test_an_edit_of_all_pages_does_not_make_a_lying_sitemap_right() -> None:
    site = Site()
    site.pass_days(400, recall=0.0, lies=0.3, edits=(200, 300))
    assert site.turns == 0 and site.precision < 0.1


def test_the_first_crawl_after_a_turn_teaches_no_clock() -> None:
    """The silence of the sitemap before the turn was right, so these crawls find fewer changes than the rates predict."""
    site = Site()
    site.pass_days(200, recall=0.95)
    for _ in range(10):
        if not site.turns:
            site.pass_days(1, recall=0.0, lies=1.0)
    assert site.turns
    learning = site.learning
    bias, counts = learning.biases.bias, np.asarray(learning.sites.expected_counts)[site.site]
    site.pass_days(7, recall=0.0, lies=1.0)
    assert learning.biases.bias == bias
    assert np.asarray(learning.sites.expected_counts)[site.site] == counts
    site.pass_days(10, recall=0.0, lies=1.0)
    assert learning.biases.bias != bias


def test_after_a_turn_the_bias_soon_forgets_the_crawls_before_it() -> None:
    """Most crawls of a site with a sitemap that is right follow a signal and find a change, so `bias` is high."""
    site = Site()
    site.pass_days(200, recall=0.95)
    learning = site.learning
    assert learning.biases.sums()[1] > 100.0
    site.pass_days(10, recall=0.0, lies=1.0)
    assert site.turns == 1 and learning.biases.sums()[1] <= 20.0
