"""Test a crawl that is stopped, and opened again from its LevelDB store after 1, 7 or 30 days, on a virtual clock."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from crawler.frontier.refresh import Schedule, Settings
from crawler.lab.league.shipped import Shipped
from crawler.lab.living.course import Course
from crawler.lab.living.playing import REOPENED, make, play
from crawler.lab.living.regimes import EVERY, HALF
from crawler.lab.living.reopened import Reopened
from crawler.lab.living.worlds import DAY, DrawnWorld, HostKind, WorldSpec, draw

DAYS = (1.0, 7.0, 30.0)
SITES = 3


class Compared(Exception):
    """Ends a game whose schedules were compared."""


def paused(days: float, **more: object) -> DrawnWorld:
    """Return a world whose crawl is stopped for this time at half time, and a page of which is fetched once a day."""
    spec = WorldSpec("small", (HostKind(40, EVERY),) * SITES, visits=10.0, rounds=120.0, warm_up=HALF, **more)  # type: ignore[arg-type]
    world = draw(spec, 1)
    half = HALF * world.horizon
    return msgspec.structs.replace(world, course=Course(pauses=((half, half + days * DAY),)))


def learned(schedule: Schedule) -> list[object]:
    """Return what a schedule has learned, except what belongs to sites."""
    pages = [schedule.find(page + 1) for page in range(len(schedule))]
    records = schedule.records
    return [
        [(records.page_state(page), records.trust_state(page), records.unrest_state(page)) for page in pages],
        [records.directory_state(page) for page in pages],
        (records.bias, schedule.pace.level, schedule.pace.revisit, schedule.pace.rate),
    ]


def sites(schedule: Schedule) -> list[list[float]]:
    """Return what a schedule has learned of each site."""
    return [schedule.records.site_state(schedule.host(site + 1))[1] for site in range(SITES)]


def watched(policy: Reopened, note: Callable[[Schedule, Schedule, float], None]) -> Reopened:
    """Call `note` with the schedules before and after the pause, and the instant of its end."""
    resume = policy.resume

    def resumed(now: float) -> None:
        before = policy.schedule
        resume(now)
        note(before, policy.schedule, now)

    policy.resume = resumed  # type: ignore[method-assign]
    return policy


@pytest.mark.parametrize("days", DAYS)
@pytest.mark.parametrize("signals", ["none", "noisy"])
def test_a_pause_takes_nothing_that_was_learned(days: float, signals: str) -> None:
    """Rates, signal quality, neighbourhoods, level and revisit interval are those of the schedule that was closed."""
    world, seen = paused(days, signals=signals), list[float]()

    def note(before: Schedule, after: Schedule, now: float) -> None:
        assert learned(after) == learned(before)
        for old, new in zip(sites(before), sites(after), strict=True):
            assert new == pytest.approx(old, rel=1e-12)  # the rhythm of a site is scaled again
        seen.append(now)

    play(world, watched(Reopened(world, Settings()), note))
    assert seen == [world.course.pauses[0][1]]


@pytest.mark.parametrize("days", DAYS)
def test_the_order_after_a_pause_is_right_at_once(days: float) -> None:
    """The first 30 fetches after the pause are worth as much as if the schedule had stayed open."""
    world = paused(days)

    def note(before: Schedule, after: Schedule, now: float) -> None:
        worth = []
        for schedule in (before, after):
            total = 0.0
            for _ in range(30):
                page = schedule.claim_next(now)
                total += schedule.overview.page(page, now).value
                schedule.give_back(page, now, now)
                schedule.remove(page)
            worth.append(total)
        assert worth[1] > 0.95 * worth[0]
        raise Compared

    policy = watched(Reopened(world, Settings()), note)
    with pytest.raises(Compared):
        play(world, policy)
    policy.close()


@pytest.mark.parametrize("days", DAYS)
def test_the_level_returns_in_the_third_revisit_interval(days: float) -> None:
    """While all pages are overdue, the level rises. It does so without a restart, too."""
    world = paused(days)
    end, levels = world.course.pauses[0][1], []
    for name in ("ncis", REOPENED):
        policy, seen = make(name, world), list[tuple[float, float]]()
        assert isinstance(policy, Shipped)
        claim_next = policy.claim_next

        def noted(
            now: float, policy: Shipped = policy, seen: list = seen, claim_next: Any = claim_next
        ) -> int:
            seen.append((now - end, policy.schedule.pace.level))
            return int(claim_next(now))

        policy.claim_next = noted  # type: ignore[method-assign]
        play(world, policy)
        at, level = np.array(seen).T
        before = np.log(level[at < -days * DAY][-500:]).mean()
        levels.append(
            np.exp([np.log(level[(at > n * DAY) & (at < (n + 1) * DAY)]).mean() - before for n in range(3)])
        )
    assert levels[1] == pytest.approx(levels[0], rel=0.1)
    assert 0.8 < levels[1][2] < 1.25


@pytest.mark.parametrize("days", DAYS)
def test_a_reopened_crawl_is_as_fresh_as_one_that_waited(days: float) -> None:
    world = paused(days)
    waited, reopened = (play(world, make(name, world)) for name in ("ncis", REOPENED))
    assert reopened.freshness == pytest.approx(waited.freshness, abs=0.003)
    assert reopened.fetches == waited.fetches
