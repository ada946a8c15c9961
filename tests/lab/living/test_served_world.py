"""Test a drawn world that is served over HTTP: its answers, and the result that is computed from its log."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from crawler.lab.league.world import Policy
from crawler.lab.living import answer_log
from crawler.lab.living.answer_log import Answered
from crawler.lab.living.course import Course
from crawler.lab.living.over_http import HttpArm, crawled
from crawler.lab.living.playing import UNIFORM, make, play
from crawler.lab.living.regimes import CHANGING, drawn
from crawler.lab.living.served_world import ServedWorld, can_serve
from crawler.lab.living.worlds import DAY, DrawnWorld, HostKind, WorldSpec, draw

START, SPEED = 1_000.0, 100_000.0
SERVED = ("faster-1x", "outage-1x", "alternating-1x", "honest-later-1x", "pause-30-1x", "readers-1x")
SMALL = WorldSpec("small", (HostKind(10, 10 * DAY),) * 3, visits=1.0, rounds=14.0, warm_up=0.5)


def world_of(name: str) -> DrawnWorld:
    """Return a short world with this regime."""
    return drawn(msgspec.structs.replace(CHANGING[name], rounds=4.0), 1)


def served(world: DrawnWorld) -> ServedWorld:
    return ServedWorld(world, start=START, speed=SPEED)


class Recorded(Policy):
    """Uniform refreshing that logs each fetch as the server of the world would log it."""

    def __init__(self, world: DrawnWorld) -> None:
        self.log: list[Answered] = []
        self._world, self._policy = world, make(UNIFORM, world)

    def _note(self, page: int, now: float) -> None:
        fails = self._world.course.spell(int(self._world.site[page]), now) is not None
        self.log.append(Answered(now, page, not fails))

    def add(self, page: int, now: float) -> None:
        self._note(page, now)
        self._policy.add(page, now)

    def claim_next(self, now: float) -> int:
        page = self._policy.claim_next(now)
        if page >= 0:
            self._note(page, now)
        return page

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)


@pytest.mark.parametrize("name", SERVED)
def test_the_log_of_a_game_has_the_result_of_the_game(name: str) -> None:
    """A game of the virtual clock is logged as a server would log it; the log then yields the same result."""
    world = world_of(name)
    policy = Recorded(world)
    run = play(world, policy)
    found = answer_log.result(world, policy.log)
    assert found.freshness == pytest.approx(run.freshness, rel=1e-9)
    assert found.course == pytest.approx(run.course, rel=1e-9)
    assert (found.fetches, found.largest) == (run.fetches, run.largest)


def test_answers_after_the_end_do_not_count() -> None:
    world = world_of("faster-1x")
    late = Answered(world.horizon + 1.0, 0)
    once = [Answered(0.0, page) for page in range(len(world))]
    assert answer_log.result(world, [*once, late]) == answer_log.result(world, once)


def test_a_failed_answer_is_no_copy() -> None:
    """A page is fetched again after it has changed: only an answer with the page makes its copy current."""
    world = world_of("faster-1x")
    half = world.spec.warm_up * world.horizon
    page = next(page for page, times in enumerate(world.changes) if times and times[-1] < half)
    once = [Answered(0.0, each) for each in range(len(world))]
    found, failed = (
        answer_log.result(world, [*once, Answered(half, page, whole)]) for whole in (True, False)
    )
    assert failed.freshness == answer_log.result(world, once).freshness < found.freshness
    assert failed.fetches == found.fetches == 1


def test_a_page_shows_the_version_of_the_world_s_time() -> None:
    world = world_of("faster-1x")
    web = served(world)
    page = next(page for page, times in enumerate(world.changes) if len(times) > 1)
    host, path = int(world.site[page]), web.url(page).removeprefix(web.origins[int(world.site[page])])
    before, after = (web.instant(world.changes[page][1] + lead) for lead in (-1.0, 1.0))
    first, second = web.answer(host, path, {}, before), web.answer(host, path, {}, after)
    assert first.status == second.status == 200 and first.body != second.body
    for tag, status in ((first.headers["ETag"], 200), (second.headers["ETag"], 304)):
        assert web.answer(host, path, {"if-none-match": tag}, after).status == status
    assert [each.page for each in web.log] == [page] * 4
    assert web.log[1].at == pytest.approx(world.changes[page][1] + 1.0, abs=0.1)


def test_other_paths_are_not_logged() -> None:
    web = served(world_of("faster-1x"))
    assert web.answer(0, "/robots.txt", {}, START).status == 200
    other_host = web.url(len(web.world) - 1).removeprefix(web.origins[-1])
    for path in ("/", "/d0/p999.html", other_host):
        assert web.answer(0, path, {}, START).status == 404
    assert not web.log


def test_a_host_that_fails_answers_500_and_leaves_copies_as_they_are() -> None:
    world = world_of("outage-1x")
    web, spell = served(world), world.course.spells[0]
    path = web.url(0).removeprefix(web.origins[0])
    times = (spell.begin - 1.0, spell.begin + 1.0, spell.end - 1.0, spell.end + 1.0)
    assert [web.answer(0, path, {}, web.instant(at)).status for at in times] == [200, 500, 500, 200]
    assert [each.whole for each in web.log] == [True, False, False, True]


def test_only_pages_that_alternate_have_two_texts() -> None:
    web = served(world_of("alternating-1x"))
    alternates = web.world.course.alternating
    for page, count in ((int(np.argmax(alternates)), 2), (int(np.argmin(alternates)), 1)):
        host = int(web.world.site[page])
        path = web.url(page).removeprefix(web.origins[host])
        assert len({web.answer(host, path, {}, START).body for _ in range(50)}) == count


def test_signals_arrive_once() -> None:
    web = served(world_of("honest-later-1x"))
    at = [START, START + 1.0, START + 2.5, web.instant(web.world.horizon)]
    told = [page for begin, end in zip(at[:-1], at[1:], strict=True) for page in web.signals(begin, end)]
    assert told == web.world.told_of[web.world.told_at > 0.0].tolist() and len(told) > 100


def test_worlds_whose_pages_come_and_go_are_not_served() -> None:
    refused = {"refused", "slow", "joins", "turnover", "leaves", "moves", "soft-outage"}
    names = {name.removesuffix("-1x") for name in CHANGING if name.endswith("-1x")}
    assert {name for name in names if not can_serve(world_of(f"{name}-1x"))} == refused
    with pytest.raises(ValueError, match="cannot be served"):
        served(world_of("leaves-1x"))


async def test_real_processes_crawl_a_world_over_http_and_stop_for_a_pause(tmp_path: Path) -> None:
    """Two processes crawl all pages at the given rate, send nothing during a pause, and go on after it."""
    rate, world = 20.0, draw(SMALL, 1)
    half = 0.5 * world.horizon
    pause = 0.3 * half
    world = msgspec.structs.replace(world, course=Course(pauses=((half, half + pause),)))
    run = await crawled(world, HttpArm("ncis", processes=2), rate, tmp_path)
    assert 0 < run.fetches < 1.1 * (half - pause) * world.spec.rate
    assert 0.0 < run.course[5] < run.course[0], "during the pause, copies become older"
    assert max(run.course[6:]) > run.course[5], "after the pause, pages are fetched again"
