"""Test which pages exploration chooses."""

import numpy as np

from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.settings import DAY

SIZE = 120
KNOWN, UNKNOWN, QUIET = range(0, SIZE, 3), range(1, SIZE, 3), range(2, SIZE, 3)
LEVEL = 0.6 * DAY


def explored(fetches: int, importance: float = 1.0, restless: int = SIZE, days: float = 2.0) -> list[int]:
    """Let a schedule take pages of a host; return the pages that were explored, in order.

    Pages of `KNOWN` surely change twice a day, so they are not worth a fetch. Nothing is known of pages of
    `UNKNOWN`, which have this importance. Pages of `QUIET` hardly change, and were just fetched. All pages of
    `KNOWN` have waited for this many days, longer than the other pages, and those from the number `restless` on are
    surely restless.
    """
    schedule = Schedule(Settings(neighbourhood=False, explore=0.25), level=LEVEL)
    schedule.pace.rate = 120.0 / DAY
    number = np.arange(SIZE)
    known, quiet = np.isin(number, KNOWN), np.isin(number, QUIET)
    found = np.where(known, np.where(number < restless, 400.0, -400.0), np.where(quiet, 4.0, 0.0))
    schedule.add_many(
        number.astype(np.uint64) + 1, np.ones(SIZE, np.uint64), np.ones(SIZE, np.uint64),
        np.where(known, -days * DAY - number, np.where(quiet, 0.0, -DAY)), np.where(known | quiet, 1.0, importance),
        0.0, changes=found,
        watched=np.where(known, 200.0 * DAY, np.where(quiet, 400.0 * DAY, 0.0)),
    )  # fmt: skip
    for page in np.flatnonzero(found < 0.0).tolist():
        schedule.records.restore_unrest(page, 96)
    # The log odds of restless pages are so high that such a page is nearly surely restless.
    schedule.records.bias = (*schedule.records.bias[:6], 2.0, 1e9)
    schedule.renew()
    chosen = []
    for tick in range(fetches):
        now = 60.0 * tick
        schedule.pace.level = LEVEL
        page = schedule.peek(now)
        if schedule.overview.page(page, now).state == "explored":
            chosen.append(page)
        changed = page in KNOWN and (page >= restless or schedule.overview.page(page, now).crawled_at < 0.0)
        schedule.acquire(page, now)
        result = RefreshOutcome.CHANGED if changed else RefreshOutcome.UNCHANGED
        schedule.record_outcome(page, now, result)
        schedule._check()
    return chosen


def test_three_of_four_explorations_go_to_pages_whose_fetch_teaches_most() -> None:
    assert [page in UNKNOWN for page in explored(33)] == 2 * [True, True, True, False]


def test_every_fourth_exploration_goes_to_the_page_longest_unvisited() -> None:
    assert explored(33)[3::4] == list(KNOWN)[-1:-3:-1]


def test_if_no_fetch_teaches_enough_the_page_longest_unvisited_is_explored() -> None:
    """Pages of no importance are not worth a fetch, whatever it teaches."""
    assert explored(33, importance=0.0) == list(KNOWN)[-1:-9:-1]


def test_restless_pages_wait_longer_for_their_exploration() -> None:
    """Their time counts an eighth. Pages of `UNKNOWN` have waited for a day."""
    assert explored(33, importance=0.0, restless=60) == list(KNOWN)[19:11:-1]
    assert explored(9, importance=0.0, restless=0, days=7.9) == list(UNKNOWN)[:2]
    assert set(explored(9, importance=0.0, restless=0, days=8.1)) < set(KNOWN)
