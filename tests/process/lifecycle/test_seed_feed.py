"""Test that seeds are queued piece by piece, and until when they are queued after a stop."""

import asyncio
from collections.abc import Callable

import pytest

from crawler.clock import VirtualClock
from crawler.process.lifecycle import seed_feed as module
from crawler.process.lifecycle.run_end import RunEnd
from crawler.process.lifecycle.seed_feed import SeedFeed
from crawler.storage.commit import Change, Maker

COUNT = 5


class Feeding:
    """A seed feed whose commits `commit` counts; `after` is called after each change that is queued."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: Callable[["Feeding"], None]) -> None:
        self.clock = VirtualClock()
        self.run_end = RunEnd(self.clock.now)
        self.queued: list[Change | Maker] = []
        self.waiting, self.most, self.naps, self.after = 0, 2, 0, after
        self.changes = [Change() for _ in range(COUNT)]
        self.feed = SeedFeed(
            (lambda change=change: change for change in self.changes),  # type: ignore[misc]
            self.queue,
            lambda: self.waiting < self.most,
            self.run_end,
        )
        monkeypatch.setattr(module.asyncio, "sleep", self.nap)

    def queue(self, change: Change | Maker) -> None:
        assert self.feed.feeding and self.waiting < self.most
        self.queued.append(change)
        self.waiting += 1
        self.after(self)

    async def nap(self, seconds: float) -> None:
        """Commit a change at every third nap."""
        assert 0.0 < seconds < 0.1, "a seed does not wait long after a commit"
        self.naps += 1
        self.clock.advance(seconds)
        if self.naps % 3 == 0:
            self.waiting -= 1

    def run(self) -> int:
        """Return the number of changes that the feed queues."""
        assert self.feed.feeding
        asyncio.run(self.feed.run())
        assert not self.feed.feeding and self.run_end.news.is_set()
        return len(self.queued)


def test_seeds_are_never_far_ahead_of_the_commits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A seed that may not be queued yet waits for a commit."""
    feeding = Feeding(monkeypatch, lambda self: None)
    assert feeding.run() == COUNT and feeding.naps == 3 * (COUNT - 1)
    assert [maker() for maker in feeding.queued] == feeding.changes  # type: ignore[operator]
    assert not caplog.records


@pytest.mark.parametrize(
    ("grace", "passed", "queued"),
    [(60.0, 0.0, COUNT), (60.0, 2.5, 3), (60.0, 4.9, 2), (60.0, 5.1, 1), (2.5, 2.5, 2)],
)
def test_seeds_are_queued_for_a_while_after_a_stop(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    grace: float,
    passed: float,
    queued: int,
) -> None:
    """If some seeds were not queued, a line in the log tells the user to give them again."""

    def after(self: Feeding) -> None:
        if not self.run_end.stopping():
            self.run_end.stop("stopped", grace=grace)
        self.clock.advance(passed)

    feeding = Feeding(monkeypatch, after)
    feeding.most = COUNT + 1
    assert feeding.run() == queued
    assert ("give the remaining seeds again" in caplog.text) is (queued < COUNT)


@pytest.mark.parametrize("most", [1, COUNT + 1])
def test_no_seed_is_queued_after_a_failure(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A seed that waits for room does not wait any longer, because nothing will be committed."""
    feeding = Feeding(monkeypatch, lambda self: self.run_end.fail(OSError("disk"), of_user=True))
    feeding.most = most
    assert feeding.run() == 1 and feeding.naps == 0
