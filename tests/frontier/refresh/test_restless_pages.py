"""Test how often pages that differ at every visit are fetched, and that none of them is given up."""

import math
import random

from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.settings import DAY

PAGES, RESTLESS = 100, 10
RATE = 50.0 / DAY  # each page is fetched every two days on average


def run(made: Schedule, rng: random.Random, restless: range, begin: float, end: float) -> list[list[float]]:
    """Fetch pages, which change every four days on average. Return the instants of the fetches of each page.

    The pages of `restless` differ at every visit.
    """
    asked = [[begin] for _ in range(PAGES)]
    now = begin
    while now < end:
        now += 1.0 / RATE
        page = made.claim_next(now)
        gap = now - made.records.page_state(page)[3]
        changed = page in restless or rng.random() < -math.expm1(-gap / (4.0 * DAY))
        made.record_outcome(page, now, RefreshOutcome.CHANGED if changed else RefreshOutcome.UNCHANGED, now)
        asked[page].append(now)
    return asked


def schedule(explore: float, seed: int = 1) -> Schedule:
    made = Schedule(Settings(explore=explore, neighbourhood=False), seed=seed)
    made.pace.rate = RATE
    for number in range(PAGES):
        made.add(number + 1, 1, 1, 0.0, 0.0)
    return made


def test_restless_pages_are_fetched_less_often_but_are_never_given_up() -> None:
    """A tenth of the pages differ at every visit for 600 days."""
    made = schedule(0.05)
    run(made, random.Random(1), range(RESTLESS), 0.0, 100.0 * DAY)
    asked = run(made, random.Random(2), range(RESTLESS), 100.0 * DAY, 600.0 * DAY)
    counts = [len(each) for each in asked]
    assert max(counts[:RESTLESS]) < 0.5 * min(counts[RESTLESS:])
    for each in asked[:RESTLESS]:
        gaps = [after - before for before, after in zip(each, [*each[1:], 600.0 * DAY], strict=True)]
        assert len(each) >= 5 and max(gaps) < 200.0 * DAY
    made._check()


def test_without_exploration_a_page_that_stopped_being_restless_regains_its_value() -> None:
    """The crawl learns for 300 days which pages differ at every visit. Then they change like the other pages."""
    made = schedule(0.0)
    run(made, random.Random(1), range(RESTLESS), 0.0, 300.0 * DAY)
    assert all(made.records.unrest_state(page) > 0 for page in range(RESTLESS))
    asked = run(made, random.Random(2), range(0), 300.0 * DAY, 900.0 * DAY)
    assert all(made.records.page_state(page)[4] > 0.0 for page in range(RESTLESS))
    late = [sum(at > 700.0 * DAY for at in each) for each in asked]
    assert min(late[:RESTLESS]) > 0.5 * sum(late) / PAGES
