"""Compare the page that the schedule takes first with an exact computation of when each page is due."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.frontier.refresh import Schedule, Settings

DAY = 86_400.0
HORIZON = np.linspace(0.0, 150 * DAY, 301)


def value(schedule: Schedule, page: int, at: float) -> float:
    return schedule.overview.page(page, at).value


def due_at(schedule: Schedule, page: int, level: float, now: float, before: float) -> float:
    """Return the first instant from `now` on at which the value of a page reaches the level.

    The result is infinite if this instant is later than HORIZON, or if it is surely not before `before`. The
    excess of the page's neighbourhood decays meanwhile. No crawl and no signal follows.
    """
    instants = (now + wait for wait in HORIZON if now + wait < before + HORIZON[1])
    at = next((at for at in instants if value(schedule, page, at) >= level), math.inf)
    if at in (now, math.inf):
        return at
    low, high = at - HORIZON[1], at
    for _ in range(10):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if value(schedule, page, middle) >= level else (middle, high)
    return high


def fix_level(schedule: Schedule, level: float, now: float) -> None:
    """Compute all keys for this level. A key is computed again only after a large move of the level."""
    for moved in (2.0 * level, level):
        schedule.pace.level = moved
        while schedule.work(now) or schedule.overview.sweeping:
            pass


@given(st.integers(0, 2**32 - 1), st.integers(4, 40), st.integers(1, 3), st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_page_taken_first_is_the_page_that_is_due_first(
    seed: int, size: int, directories: int, is_one_host: bool
) -> None:
    """Directories change, cool down and are quiet, and pages are crawled at random. Each turn has another
    level, which each page reaches in the end.

    A page that is not due is taken if its key is at most 4 % too early, and a search is precise to 1 %. So when the
    page that is due first reaches the level, the page taken is worth at least 0.6 of the level. If the page that is due
    first is worth less than half of the level now, a page is taken that is not worth much less than the best page.
    """
    rng = np.random.default_rng(seed)
    schedule = Schedule(Settings(explore=0.0))
    keys = np.arange(1, size + 1, dtype=np.uint64)
    of_page = rng.integers(0, directories, size).astype(np.uint64)
    schedule.add_many(
        keys, np.zeros(size) if is_one_host else of_page, of_page, -rng.random(size) * 30 * DAY,
        rng.uniform(1.0, 1.5, size), 0.0, changes=rng.uniform(0.5, 1.5, size), watched=200 * DAY,
    )  # fmt: skip
    schedule.renew()
    schedule.pace.rate = size / (30 * DAY)
    now = 0.0
    for _ in range(15):
        now += rng.exponential(DAY)
        heat = rng.choice([0.1, 0.8])
        for page in rng.integers(0, size, rng.integers(0, 4)).tolist():
            schedule.acquire(page, now)
            schedule.record_outcome(page, now, int(rng.random() < heat), now + 1.0)
            now += 2.0
        values = [value(schedule, page, now) for page in range(size)]
        ceiling = min(schedule.overview.page(page, now).ceiling for page in range(size))
        level = min(0.7 * ceiling, max(values) * rng.choice([0.7, 1.02, 1.1, 1.5, 3.0]))
        fix_level(schedule, level, now)
        first = schedule.peek(now)
        schedule.pace.level = level
        if max(values) >= level:
            assert values[first] >= 0.97 * level
            continue
        assert values[first] >= 0.1 * min(0.49 * level, max(values))
        earliest, ahead = math.inf, 0
        for page in sorted(range(size), key=values.__getitem__, reverse=True):
            if (at := due_at(schedule, page, level, now, earliest)) < earliest:
                earliest, ahead = at, page
        if earliest < math.inf and values[ahead] > 0.75 * level:
            assert value(schedule, first, earliest) >= 0.6 * level
    schedule._check()
