"""Test the thread that calls the order of a package: orders that block, fail or are slow. The clock is virtual."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent import futures
from threading import Event

import pytest

from crawler.clock import VirtualClock
from crawler.orders.classes import NEUTRAL, score_of
from crawler.orders.order import FoundLink, FoundOn, Ranking
from crawler.orders.order_thread import STOP_WAIT, OrderThread, Scoring

PAGE = FoundOn("http://a.org/")
LIMIT = 60.0  # real seconds; a wait that is longer fails the test


class Blocking:
    """An order whose `score` blocks at the links whose URLs contain "block", until `go` is set.

    For links whose URLs contain "raise", it raises the exception `error`.
    """

    def __init__(self) -> None:
        self.go, self.entered = Event(), Event()
        self.error: type[BaseException] = Exception
        self.urls: list[str] = []

    def score(self, link: FoundLink, context: FoundOn) -> float:
        self.urls.append(link.url)
        if "raise" in link.url:
            raise self.error
        if "block" in link.url:
            self.entered.set()
            assert self.go.wait(LIMIT)
        return 0.25


class Caller:
    """A thread with the allowance 1 s, of which a half grows back each second."""

    def __init__(self) -> None:
        self.clock, self.order = VirtualClock(), Blocking()
        self.thread = OrderThread(Ranking(self.order, own=False), "mine", 1.0, 0.5, self.clock.now)

    def begin(self, *names: str) -> Scoring:
        return self.thread.begin([FoundLink(name) for name in names], PAGE)

    def scored(self, *names: str) -> list[float]:
        """Return the scores of links, none of which blocks."""
        scoring = self.begin(*names)
        futures.wait([scoring.ended], LIMIT)
        return self.thread.end(scoring)

    def blocked(self, seconds: float) -> list[float]:
        """Wait `seconds` for two links, of which the second blocks. Return the scores."""
        self.order.go.clear()
        self.order.entered.clear()
        scoring = self.begin("ok", "block", "late")
        assert self.order.entered.wait(LIMIT) and scoring.left() > 0.0
        self.clock.advance(seconds)
        return self.thread.end(scoring)

    def unblock(self) -> None:
        latest = self.thread._latest
        assert latest is not None
        self.order.go.set()
        futures.wait([latest.ended], LIMIT)


@pytest.fixture
def caller() -> Iterator[Caller]:
    caller = Caller()
    yield caller
    caller.thread.close()
    caller.order.go.set()
    if caller.thread._thread is not None:
        caller.thread._thread.join(LIMIT)
        assert not caller.thread._thread.is_alive()


def test_links_are_scored_in_order(caller: Caller) -> None:
    assert caller.scored("a", "b") == [0.25, 0.25] and caller.scored() == []
    assert caller.order.urls == ["a", "b"]


def test_a_caller_waits_only_for_its_allowance(caller: Caller) -> None:
    """The scores until then count. Links after the one that blocks are never scored."""
    scoring = caller.begin("ok", "block", "late")
    assert caller.order.entered.wait(LIMIT) and scoring.left() == pytest.approx(1.0)
    caller.clock.advance(1.0)
    assert scoring.left() == 0.0 and not scoring.ended.done()
    assert caller.thread.end(scoring) == [0.25]
    caller.unblock()
    assert caller.order.urls == ["ok", "block"]


def test_while_a_call_blocks_nobody_waits(caller: Caller) -> None:
    caller.blocked(0.25)
    scoring = caller.begin("a", "b")
    assert scoring.left() == 0.0 and caller.thread.end(scoring) == []
    caller.unblock()
    assert caller.scored("a", "b") == [0.25, 0.25]


def test_a_slow_order_uses_at_most_its_share_of_the_time(caller: Caller) -> None:
    began, waited = caller.clock.now(), 0.0
    for _ in range(50):
        scoring = caller.begin("block")
        if (left := scoring.left()) > 0.0:
            assert left <= 1.0
            caller.clock.advance(left)
            waited += left
        caller.thread.end(scoring)
        caller.unblock()
        caller.order.go.clear()
        caller.clock.advance(0.25)
    assert 0.4 < waited / (caller.clock.now() - began) < 0.55


def test_after_a_stop_the_wait_is_short(caller: Caller) -> None:
    stopped_at = caller.clock.now()
    caller.thread.time_left = lambda limit: stopped_at + min(limit, 9.0) - caller.clock.now()
    caller.clock.advance(STOP_WAIT - 0.25)
    scoring = caller.begin("a", "block")
    assert scoring.left() <= 0.25
    caller.clock.advance(0.25)
    caller.thread.end(scoring)
    caller.unblock()
    assert caller.begin("a").left() == 0.0


def test_a_long_rest_lets_no_decision_wait_longer_than_the_limit(caller: Caller) -> None:
    assert caller.scored("a") == [0.25]
    caller.clock.advance(1000.0)
    scoring = caller.begin("block")
    assert scoring.left() == pytest.approx(1.0)
    caller.thread.end(scoring)
    caller.unblock()


def test_after_the_end_no_further_link_is_scored(caller: Caller) -> None:
    caller.begin("block", "late")
    assert caller.order.entered.wait(LIMIT)
    caller.thread.close()
    caller.unblock()
    assert caller.order.urls == ["block"]


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_no_exception_of_an_order_ends_its_thread(caller: Caller, error: type[BaseException]) -> None:
    """Only the link for which the order raised the exception has no score."""
    caller.order.error = error
    assert caller.scored("a", "raise", "b") == [0.25, score_of(NEUTRAL), 0.25]
    assert caller.scored("a") == [0.25]


def test_an_order_that_raises_gives_no_score(caller: Caller) -> None:
    caller.order.score = None  # type: ignore[method-assign, assignment]
    caller.thread = OrderThread(
        Ranking(type("Raises", (), {"score": lambda *_: 1 / 0})(), own=False), "x", 1.0, 0.5, caller.clock.now
    )
    assert caller.scored("a") == [score_of(NEUTRAL)]


def test_one_line_names_the_order_and_the_links(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="crawler"):
        caller.blocked(1.0)
        caller.unblock()
        for _ in range(5):
            caller.clock.advance(2.0)
            caller.blocked(1.0)
            caller.unblock()
    assert [record.getMessage() for record in caplog.records] == [
        "order mine took 1.0 s for 1 of 3 links of http://a.org/; links are not scored if they would have to wait "
        "longer (order.wait_max, order.wait_share): 2 links so far, counted in urls.unscored"
    ]
