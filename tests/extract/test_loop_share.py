"""Test that pages are read in order, within a share of each turn of the event loop, and that no page waits forever."""

import asyncio

import pytest

from crawler.extract.loop_share import LoopShare


class Readers:
    """Tasks that each need `cost` seconds on a fake clock to read a page.

    `read` lists a pair (turn of the event loop, number of the task) for each page that was read.
    """

    def __init__(self, seconds: float, cost: float) -> None:
        self.now = 0.0
        self.turn = 0
        self.cost = cost
        self.share = LoopShare(seconds, lambda: self.now)
        self.read: list[tuple[int, int]] = []

    async def one(self, number: int) -> None:
        await self.share.mine()
        with self.share:
            self.now += self.cost
            self.read.append((self.turn, number))

    async def turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def all(self, count: int, cancelled: frozenset[int] = frozenset()) -> None:
        ticking = asyncio.create_task(self.turns())
        tasks = [asyncio.create_task(self.one(number)) for number in range(count)]
        await asyncio.sleep(0)
        for number in cancelled:
            tasks[number].cancel()
        async with asyncio.timeout(120):
            await asyncio.gather(*tasks, return_exceptions=True)
        ticking.cancel()
        assert len(self.share) == 0


@pytest.mark.parametrize(("seconds", "cost"), [(0.003, 0.001), (0.003, 0.0004), (0.003, 0.02), (0.0, 0.001)])
def test_a_turn_stays_within_its_share(seconds: float, cost: float) -> None:
    """Pages are read in order. Even if many pages wait, a turn exceeds its share by at most one page."""
    readers = Readers(seconds, cost)
    asyncio.run(readers.all(100))
    assert [number for _, number in readers.read] == list(range(100))
    by_turn: dict[int, int] = {}
    for turn, _ in readers.read:
        by_turn[turn] = by_turn.get(turn, 0) + 1
    assert max(by_turn.values()) * cost <= seconds + cost + 1e-9


def test_a_cancelled_reader_uses_no_share() -> None:
    readers = Readers(0.0, 0.001)
    gone = frozenset(range(1, 50, 2))
    asyncio.run(readers.all(50, gone))
    assert [number for _, number in readers.read] == [n for n in range(50) if n not in gone]
