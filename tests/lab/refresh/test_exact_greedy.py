"""Test that the exact greedy scheduler and brute force choose the same page at every tick."""

import numpy as np
import pytest

from crawler.freshness.params import Pages
from crawler.lab.refresh.crawl_value import crawl_values
from crawler.lab.refresh.exact_greedy import ExactGreedy

SIZE = 14


def _pages(rng: np.random.Generator) -> Pages:
    """Return pages that include every special case."""
    recall, false_rate = rng.beta(0.25, 0.25, SIZE), rng.uniform(0.1, 0.6, SIZE)
    recall[:5] = 0.0, 1.0, 1.0, 0.5, 0.0
    false_rate[[0, 2, 3]] = 0.0
    return Pages(rng.random(SIZE), rng.random(SIZE), recall, false_rate)


@pytest.mark.parametrize("by", ["greedy", "cis", "cis-nu0", "ncis", "approx-1", "approx-2", "cis+"])
def test_choices_equal_those_of_brute_force(by: str) -> None:
    """Signals arrive during the run, and the bandwidth changes twice."""
    rng = np.random.default_rng(5)
    pages = _pages(rng)
    scheduler = ExactGreedy(pages, by)
    last, counts, now = np.zeros(SIZE), np.zeros(SIZE, dtype=int), 0.0
    for tick in range(400):
        rate = (2.0, 8.0, 1.0)[tick // 134]
        now += 1.0 / rate
        for number in np.flatnonzero(rng.random(SIZE) < pages.signal_rate / rate):
            scheduler.note_change(number, now)
            counts[number] += 1
        taken = scheduler.claim_next(now)
        values = crawl_values(pages, now - last, counts, by=by)
        assert taken == np.argmax(values), (tick, taken, values)
        scheduler.record_outcome(taken, now)
        last[taken], counts[taken] = now, 0
    assert f"{SIZE} pages" in repr(scheduler)


def test_equal_values_go_to_the_smallest_page() -> None:
    scheduler = ExactGreedy(Pages(np.ones(4), np.full(4, 0.5)), "greedy")
    taken = []
    for tick in range(1, 9):
        taken.append(scheduler.claim_next(tick / 4))
        scheduler.record_outcome(taken[-1], tick / 4)
    assert taken == [0, 1, 2, 3, 0, 1, 2, 3]


def test_discarded_signals_do_not_count() -> None:
    pages = Pages(np.ones(2), np.full(2, 0.5), 0.5, 0.0)
    scheduler = ExactGreedy(pages, "ncis", discard_window=0.5)
    scheduler.note_change(1, 0.4)
    assert scheduler.claim_next(0.45) == 0
    scheduler.note_change(1, 0.6)
    assert scheduler.claim_next(0.65) == 1
