"""Test that user code which blocks leaves turns to the event loop, and is not called after the end."""

import asyncio
import logging

import pytest

from crawler.turn_share import SLOW, UserTurns


class Calls:
    """Tasks that call user code, which takes `cost` seconds on a fake clock.

    `turns` lists the turn of the event loop for each call, in the order of the calls.
    """

    def __init__(self, cost: float) -> None:
        self.now, self.turn, self.cost = 0.0, 0, cost
        self.turns: list[int] = []
        self.numbers: list[int] = []
        self.user_turns = UserTurns(0.005, lambda: self.now)

    async def one(self, number: int) -> None:
        await self.user_turns.mine(f"callback {number}")
        self.now += self.cost
        self.turns.append(self.turn)
        self.numbers.append(number)

    async def tick(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def run(self, count: int, *, end_after: int = -1) -> int:
        """Run `count` tasks, and `end` after some calls. Return the number of cancelled tasks."""
        ticking = asyncio.create_task(self.tick())
        tasks = [asyncio.create_task(self.one(number)) for number in range(count)]
        while end_after >= 0 and len(self.turns) < end_after:
            await asyncio.sleep(0)
        if end_after >= 0:
            self.user_turns.end()
        async with asyncio.timeout(60):
            await asyncio.wait(tasks)
        ticking.cancel()
        return sum(task.cancelled() for task in tasks)


@pytest.mark.parametrize("cost", [0.01, 1.0])
def test_slow_calls_have_a_turn_each(cost: float) -> None:
    calls = Calls(cost)
    assert asyncio.run(calls.run(30)) == 0
    assert calls.numbers == list(range(30))
    assert max(calls.turns.count(turn) for turn in calls.turns) == 1


def test_fast_calls_share_turns() -> None:
    calls = Calls(0.001)
    asyncio.run(calls.run(30))
    assert calls.numbers == list(range(30))
    assert max(calls.turns.count(turn) for turn in calls.turns) == 5


def test_the_call_of_a_task_that_waited_uses_up_its_turn() -> None:
    calls = Calls(1.0)

    async def twice(number: int) -> None:
        await calls.one(number)
        await calls.one(number)

    async def run() -> None:
        ticking = asyncio.create_task(calls.tick())
        async with asyncio.timeout(60):
            await asyncio.gather(twice(1), twice(2))
        ticking.cancel()

    asyncio.run(run())
    assert sorted(calls.numbers) == [1, 1, 2, 2] and len(set(calls.turns)) == 4


def test_after_the_end_no_call_begins() -> None:
    """Tasks that wait, and tasks that come later, are cancelled."""
    calls = Calls(1.0)
    cancelled = asyncio.run(calls.run(30, end_after=4))
    assert len(calls.turns) + cancelled == 30 and 4 <= len(calls.turns) <= 6

    async def late() -> None:
        with pytest.raises(asyncio.CancelledError):
            await calls.user_turns.mine("late")

    asyncio.run(late())


def test_a_cancelled_task_loses_nobody_s_turn() -> None:
    calls = Calls(1.0)

    async def run() -> None:
        tasks = [asyncio.create_task(calls.one(number)) for number in range(10)]
        await asyncio.sleep(0)
        for number in (2, 3, 7):
            tasks[number].cancel()
        async with asyncio.timeout(60):
            await asyncio.wait(tasks)

    asyncio.run(run())
    assert calls.numbers == [0, 1, 4, 5, 6, 8, 9]


def test_a_call_that_blocks_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="crawler"):
        asyncio.run(Calls(SLOW - 0.1).run(20))
        assert not caplog.records
        asyncio.run(Calls(SLOW).run(20))
    assert [record.getMessage() for record in caplog.records] == [
        f"your code blocked the crawl for {SLOW} s (callback 0); while a call runs, nothing else can happen"
    ]
