"""Test when pages that are gone, moved or denied are fetched again: alone, in outages, and after restarts."""

import math
import random
from collections.abc import Callable

import pytest

from crawler.frontier.refresh import state
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import DAY, RefreshOutcome, Settings
from crawler.storage.kv import MemoryStore

HOUR = 3600.0
GONE, UNCHANGED = RefreshOutcome.GONE, RefreshOutcome.UNCHANGED


class Site:
    """A schedule whose fetches take place at a constant rate, on hosts whose pages may be away.

    `answers` maps (page, now) to the outcome of a fetch. `vain` lists the fetches of pages that were away at
    their previous fetch, and still are. `returned` maps a page to the instant at which a fetch found it back.
    """

    def __init__(
        self, pages: int, hosts: int, interval: float, answers: Callable[[int, float], RefreshOutcome]
    ) -> None:
        rng = random.Random(1)
        self.schedule = Schedule(Settings(), track=True)
        self.rate = pages / interval
        self.schedule.pace.rate = self.rate
        for page in range(pages):
            host = 1 + page % hosts
            self.schedule.add(page + 1, host, host, -rng.random() * interval, 0.0)
        self.answers = answers
        self.now = 0.0
        self.takes = 0
        self.away: set[int] = set()
        self.vain: list[tuple[float, int]] = []
        self.returned: dict[int, float] = {}

    def run(self, until: float) -> None:
        while self.now < until:
            self.now += 1.0 / self.rate
            page = self.schedule.claim_next(self.now)
            if page < 0:
                continue
            self.takes += 1
            result = self.answers(page, self.now)
            if result > RefreshOutcome.CHANGED:
                if page in self.away:
                    self.vain.append((self.now, page))
                self.away.add(page)
            elif page in self.away:
                self.away.discard(page)
                self.returned[page] = self.now
            self.schedule.record_outcome(page, self.now, result, self.now + 1.0)
        self.schedule._check()


def earn(schedule: Schedule, page: int, now: float, fetches: int) -> None:
    """Fetch a page often, so that the budget allows fetches of pages that are away."""
    for _ in range(fetches):
        schedule.acquire(page, now)
        schedule.record_outcome(page, now, UNCHANGED, now)


def ask(schedule: Schedule, page: int, now: float, result: RefreshOutcome) -> float:
    """Fetch a page that is due at `now`; return the length of its wait after that."""
    schedule.peek(now)
    schedule.acquire(page, now)
    schedule.record_outcome(page, now, result, now)
    return schedule.overview.due_at(page, now) - now


def alone() -> tuple[Schedule, int, int]:
    """Return a schedule with two pages of a host."""
    schedule = Schedule(Settings(explore=0.0), level=1e9)
    return schedule, schedule.add(1, 1, 1, 0.0, 0.0), schedule.add(2, 1, 1, 0.0, 0.0)


def one_is_back(size: int) -> tuple[Schedule, list[int], int, float]:
    """Return a schedule, its pages, one that is back after an hour while the others are away, and the present instant."""
    schedule = Schedule(Settings(explore=0.0), level=1e9, track=True)
    pages = [schedule.add(number, 1, 1, 0.0, 0.0) for number in range(1, size + 1)]
    for page in pages:
        ask(schedule, page, 1.0, GONE)
    now = 1.0 + HOUR
    back = schedule.claim_next(now)
    schedule.record_outcome(back, now, UNCHANGED, now)
    return schedule, pages, back, now


def test_the_waits_of_a_page_grow_by_the_same_factor() -> None:
    schedule, gone, other = alone()
    now, waits = 1.0, []
    for _ in range(9):
        waits.append(ask(schedule, gone, now, GONE))
        earn(schedule, other, now, 800)
        now += waits[-1] + 1.0
    factor = (30.0 * DAY / HOUR) ** (1.0 / 6.0)
    assert waits == pytest.approx([min(HOUR * factor**rung, 30.0 * DAY) for rung in range(9)])


def test_a_failure_tells_nothing_about_a_page_that_is_away() -> None:
    """The wait of the page does not start again from its shortest length."""
    schedule, gone, other = alone()
    now = 1.0
    for _ in range(4):
        wait = ask(schedule, gone, now, GONE)
        earn(schedule, other, now, 800)
        now += wait + 1.0
    assert ask(schedule, gone, now, RefreshOutcome.FAILED) == pytest.approx(wait)
    assert schedule.overview.page(gone, now).away


def test_a_page_that_comes_and_goes_waits_longer() -> None:
    """A page that was away until its last fetch begins with the third wait; after two good answers, with the first."""
    schedule, page, other = alone()
    earn(schedule, other, 0.5, 800)
    results = [GONE, UNCHANGED, GONE, UNCHANGED, UNCHANGED, GONE]
    waits = [ask(schedule, page, 1.0 + DAY * place, result) for place, result in enumerate(results)]
    assert waits[0] == waits[5] == HOUR
    assert waits[2] == pytest.approx(HOUR * 720 ** (2.0 / 6.0))


@pytest.mark.parametrize("result", [GONE, RefreshOutcome.MOVED, RefreshOutcome.DENIED, RefreshOutcome.FAILED])
@pytest.mark.parametrize("length", [HOUR, 6.0 * HOUR])
def test_after_an_outage_all_pages_of_the_host_soon_have_new_copies(
    result: RefreshOutcome, length: float
) -> None:
    """Half of the pages of each host are fetched in six hours, so the outage of one host affects many of its pages."""
    began = 10.0 * DAY

    def answer(page: int, now: float) -> RefreshOutcome:
        return result if page % 4 == 0 and began <= now < began + length else UNCHANGED

    site = Site(2000, 4, DAY / 2, answer)
    site.run(began + length)
    away = set(site.away)
    assert len(away) > 0.05 * 500 * length / HOUR
    probes = len(site.vain)
    site.run(began + 3.0 * length)
    assert not site.away
    late = [site.returned[page] - began - length for page in away]
    assert max(late) < 0.5 * length + HOUR, "a probe, then a recall"
    if result is not RefreshOutcome.FAILED:  # the frontier lets hosts wait whose fetches fail
        assert probes <= 4


def test_pages_that_are_gone_for_good_get_a_hundredth_of_the_fetches() -> None:
    """A tenth of the pages goes away in the first ten days, and stays away."""
    rng = random.Random(2)
    ends = [rng.random() * 10.0 * DAY if rng.random() < 0.1 else math.inf for _ in range(2000)]
    site = Site(2000, 10, 5.0 * DAY, lambda page, now: GONE if now >= ends[page] else UNCHANGED)
    site.run(60.0 * DAY)
    assert 0.003 < len(site.vain) / site.takes <= 0.01


def test_a_page_that_is_back_recalls_few_pages_that_are_gone_for_good() -> None:
    """Of 200 pages that went away in the same hour, one comes back; hardly any other page is fetched for this reason."""
    schedule, _, back, now = one_is_back(200)
    asked = 0
    for _ in range(1000):
        now += 1.0
        page = schedule.claim_next(now)
        if page >= 0 and page != back:
            schedule.record_outcome(page, now, GONE, now)
            asked += 1
        elif page >= 0:
            schedule.record_outcome(page, now, UNCHANGED, now)
    assert 1 <= asked <= 20, "8 at the start, and a hundredth of 1,000 fetches"
    schedule._check()


def test_a_change_of_the_rules_recalls_all_pages_that_are_away() -> None:
    """The pages were denied for so long that their own next checks are days away."""
    schedule = Schedule(Settings(explore=0.0), level=1e9)
    pages = [schedule.add(number, 1, 1, 0.0, 0.0) for number in range(1, 101)]
    other = schedule.add(1000, 2, 2, 0.0, 0.0)
    for page in pages:
        ask(schedule, page, 1.0, RefreshOutcome.DENIED)
    earn(schedule, other, 2.0, 1000)
    assert schedule.peek(3.0) == other
    schedule.facts.note_new_rules(schedule.host(1))
    now, found = 3.0, set()
    while not found >= set(pages) and now < 3.0 + HOUR:
        now += 1.0
        page = schedule.claim_next(now)
        if page >= 0:
            found.add(page)
            schedule.record_outcome(page, now, UNCHANGED, now + 1.0)
    assert found >= set(pages)
    schedule._check()


def test_a_blocked_host_does_not_use_up_the_budget() -> None:
    schedule = Schedule(Settings(explore=0.0), level=1e9)
    pages = [schedule.add(number, 1 + number % 2, 1 + number % 2, 0.0, 0.0) for number in range(1, 21)]
    for page in pages:
        ask(schedule, page, 1.0, GONE)
    schedule.block(schedule.host(1), math.inf)
    page = schedule.claim_next(2.0 + HOUR)
    assert schedule.host_of(page) == schedule.host(2)


def test_a_recall_is_stored() -> None:
    """The process is killed while a recall is under way. After the restart, the recalled pages are due soon."""
    schedule, pages, back, now = one_is_back(50)
    schedule.peek(now + 1.0)
    store = MemoryStore()
    batch = store.batch()
    for page in pages:
        state.stage(schedule, page, batch)
    assert set(schedule.signals.pop_touched()) == set(pages) - {back}, (
        "their records are written with the next batch"
    )
    store.write(batch)
    again = Schedule(Settings(explore=0.0), track=True)
    state.load(again, store, now + 2.0)
    recalled = [again.find(schedule.records.page_state(page)[0]) for page in set(pages) - {back}]
    assert max(again.overview.due_at(page, now) for page in recalled) < now + 0.1 * HOUR


def test_the_return_of_a_page_teaches_nothing() -> None:
    """After an outage, an unchanged page must not count as a page that changed in the outage."""
    schedule, page, _ = alone()
    before = schedule.overview.page(page, 1.0)
    ask(schedule, page, 1.0, GONE)
    ask(schedule, page, 1.0 + HOUR, RefreshOutcome.CHANGED)
    after = schedule.overview.page(page, 2.0 + HOUR)
    assert (after.changes, after.watched) == (before.changes, before.watched)


def test_in_a_changing_neighbourhood_a_recalled_page_does_not_wait_behind_pages_just_fetched() -> None:
    """The pages seem to change all the time, so each page is due soon after its fetch, as if it had been due for long."""
    schedule = Schedule(Settings(explore=0.0, retry_age=2.0, gone_age=20.0))
    pages = [schedule.add(number, 1, 1, 0.0, 0.0) for number in range(1, 13)]
    now, taken = 10.0, []
    while len(taken) < 20:
        now += 0.025
        page = schedule.claim_next(now)
        if page >= 0:
            outcome = GONE if 90.0 < now < 92.5 else UNCHANGED
            schedule.record_outcome(page, now, outcome, now + 0.02)
            if now > 92.5:
                schedule.records.restore_directory(1, 1, (1e3, 1.0, now), (0.0, 0.0, now))
                taken.append(page)
    assert set(taken) == set(pages)


@pytest.mark.parametrize("size", [2, 5])
def test_each_page_of_a_host_that_is_away_is_fetched_again(size: int) -> None:
    """All pages of the host have gone away within seconds, and no other page is fetched."""
    schedule = Schedule(Settings(explore=0.0), level=1e9)
    pages = [schedule.add(number, 1, 1, 0.0, 0.0) for number in range(1, size + 1)]
    for second, page in enumerate(pages):
        ask(schedule, page, 1.0 + second, GONE)
    fetched, now = set(), 0.0
    while now < 120.0 * DAY:
        now += HOUR / 10
        page = schedule.claim_next(now)
        if page >= 0:
            fetched.add(page)
            schedule.record_outcome(page, now, GONE, now)
    schedule._check()
    assert fetched == set(pages)
