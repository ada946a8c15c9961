"""Test fetch slots: the number of fetch tasks that may start, in total and in one turn of the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from crawler.process.fetching.fetch_slots import START_TURN, STARTS_MAX, FetchSlots


class Frontier:
    """Gives out `left` fetch tasks, by default without end. Each start of a task advances the clock by `took`."""

    def __init__(self, left: int = 10**6, took: float = 0.0) -> None:
        self.left, self.took, self.now = left, took, 0.0
        self.requests = 0
        self.allowed: list[int] = []
        self.run_is_full = False
        self.asked: list[float] = []

    def limit_requests(self, requests_max: int, *, run_is_full: bool) -> None:
        self.allowed.append(requests_max)
        self.run_is_full = run_is_full

    def claim_next(self, now: float) -> object:
        self.asked.append(now)
        if not self.left:
            return None
        self.left -= 1
        self.requests += 1
        self.now += self.took
        return object()


class Made:
    """Fetch slots with a fake frontier, and with all values that the slots query."""

    def __init__(
        self, concurrency: int = 100, *, left: int = 10**6, took: float = 0.0, limit: int = 10**6
    ) -> None:
        self.frontier = Frontier(left, took)
        self.full, self.limit, self.ends = False, limit, 0
        self.in_sink = self.awaiting_commit = 0
        self.gate = asyncio.Event()
        self.asked_room: list[int] = []
        anything: Any = self
        self.places = FetchSlots(
            concurrency,
            frontier=anything.frontier,
            due=anything,
            fetch_tasks=anything,
            room=self._room,
            ended=self._ended,
            fail=lambda error: pytest.fail(str(error)),
            time=lambda: self.frontier.now,
        )

    def _room(self, free: int) -> int:
        self.asked_room.append(free)
        return min(free, self.limit)

    def _ended(self) -> None:
        self.ends += 1

    async def run(self, fetch_task: object) -> None:
        await self.gate.wait()


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_free_slots_are_counted() -> None:
    made = Made(10)
    made.frontier.requests, made.in_sink = 3, 2
    assert not made.places.limited, "nothing has been started"
    assert made.places.free == 5 and made.places.room() == 5 and made.asked_room == [5]
    made.full = True
    assert made.places.room() == 0, "a full DUE takes no more links"


async def test_the_frontier_gets_as_many_starts_as_there_is_room() -> None:
    made = Made(10, left=2)
    made.frontier.requests = 3
    assert not made.places.start(7.0), "the frontier has no more fetch tasks"
    assert made.frontier.allowed == [3 + 7] and made.frontier.asked == [7.0] * 3
    assert len(made.places) == 2 and not made.places.limited
    made.awaiting_commit = 1
    assert made.places.fetching == 1
    made.gate.set()
    await made.places.tasks.wait()
    assert made.ends == 2 and len(made.places) == 0


@pytest.mark.parametrize(("limit", "limited"), [(4, True), (10, False), (11, False)])
async def test_slots_left_empty_by_a_limit_are_remembered(limit: int, limited: bool) -> None:
    """If a limit keeps slots empty, the end of a fetch task makes room for another, so the schedule must be woken."""
    made = Made(10, left=0, limit=limit)
    made.places.start(0.0)
    assert made.places.limited is limited


async def test_starts_per_turn_are_bounded() -> None:
    made = Made(1000)
    assert made.places.start(0.0) and len(made.places) == STARTS_MAX
    made.gate.set()
    await made.places.tasks.wait()
    made = Made(1000, left=STARTS_MAX)
    assert made.places.start(0.0), "the limit was reached before the frontier was found to be empty"
    assert not made.places.start(0.0)
    made.gate.set()
    await made.places.tasks.wait()


@pytest.mark.parametrize(
    ("took", "begun"),
    [(0.0026, 4), (0.01, 1), (START_TURN, 1), (START_TURN / 2, 2), (0.0041, 2), (0.0, STARTS_MAX)],
)
async def test_starts_yield_to_the_event_loop_in_time(took: float, begun: int) -> None:
    """If a start takes long, for example because it checks a thousand rules, few tasks start in a turn of 8 ms."""
    made = Made(100, took=took)
    assert made.places.start(0.0), "more fetch tasks may be left"
    assert len(made.places) == begun
    made.gate.set()
    await made.places.tasks.wait()


async def test_the_frontier_learns_that_a_limit_of_the_run_keeps_slots_empty() -> None:
    made = Made(left=0, limit=0)
    made.places.start(0.0)
    assert made.frontier.run_is_full
    made.full = True
    made.places.start(0.0)
    assert not made.frontier.run_is_full, "the DUE is full"
    made.full, made.limit = False, 3
    made.places.start(0.0)
    assert not made.frontier.run_is_full
