"""Limits and end of a crawl as one process sees them: alone by the same rules as among many."""

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, cast

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.topology import Topology
from crawler.process.exchange import Exchange, Loops, Member, PeerExchange, exchange_of
from crawler.process.stages import Stages
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change


class Here:
    """The loops of a process that runs none, and the exchange that asks them."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("p0",), **crawl: Any) -> None:
        self.folder, self.names, self.crawl = folder, names, crawl
        self.idle, self.in_flight, self.pages_ended = False, 0, 0
        self.queued: list[Any] = []
        self.woken = 0
        self.stages = self.open()

    def open(self) -> Stages:
        topology = Topology("p0", Partition.equal_ranges(list(self.names)))
        config = convert({"crawl": self.crawl})
        return Stages(config, self.folder / "p0", bytes(16), clock=VirtualClock(), topology=topology)

    def again(self) -> None:
        """The process ends and is started again."""
        self.stages.close()
        self.stages, self.pages_ended = self.open(), 0

    def exchange(self, **member: Any) -> Exchange:
        loops = Loops(
            queue=self.queued.append,
            wake=self.wake,
            fail=lambda error: pytest.fail(str(error)),
            idle=lambda: self.idle,
            in_flight=lambda: self.in_flight,
            pages_ended=lambda: self.pages_ended,
            in_background=lambda work: work.close(),
            worker=cast(Executor, None),
        )
        return exchange_of(self.stages, Member("p0", **member), loops)

    def wake(self) -> None:
        self.woken += 1

    def fetch(self, pages: int, size: int = 0) -> None:
        """So many pages were fetched, of `size` bytes in all, and committed."""
        change = Change()
        change.count("pages.fetched", pages)
        change.count("bytes.wire", size)
        self.stages.commit(change)
        self.pages_ended += pages


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


def test_a_process_alone_has_all_places_and_no_limit(folder: Path) -> None:
    here = Here(folder)
    exchange = here.exchange()
    assert type(exchange) is Exchange
    assert exchange.room(7) == 7 and exchange.limit_reached == "" and exchange.status() == {}
    exchange.committed()
    exchange.close_doors()
    assert not here.queued


def test_alone_the_crawl_has_ended_when_this_process_is_idle(folder: Path) -> None:
    here = Here(folder)
    exchange = here.exchange()
    exchange.advance()
    assert not exchange.ended
    here.idle = True
    assert not exchange.ended, "nobody has looked"
    exchange.advance()
    assert exchange.ended


@pytest.mark.parametrize("names", [("p0",), ("p0", "p1")], ids=["alone", "with a peer"])
def test_pages_in_flight_count_against_the_limit(folder: Path, names: tuple[str, ...]) -> None:
    here = Here(folder, names, max_pages=10)
    exchange = here.exchange()
    assert [exchange.room(20), exchange.room(4)] == [10, 4]
    here.in_flight, here.pages_ended = 3, 5
    assert [exchange.room(20), exchange.limit_reached] == [2, ""]
    here.in_flight, here.pages_ended = 0, 10
    assert [exchange.room(20), exchange.limit_reached] == [0, "max_pages"]


@pytest.mark.parametrize("names", [("p0",), ("p0", "p1")], ids=["alone", "with a peer"])
def test_limits_are_those_of_a_run(folder: Path, names: tuple[str, ...]) -> None:
    """A start without a name for its run is a run of its own; a named one goes on after a restart."""
    here = Here(folder, names, max_pages=10, max_bytes=1000)
    exchange = here.exchange(run="one")
    here.fetch(4, 600)
    assert exchange.room(20) == 6 and exchange.limit_reached == ""
    here.again()
    exchange = here.exchange(run="one")
    assert exchange.room(20) == 6
    here.fetch(1, 400)
    assert exchange.limit_reached == "max_bytes"
    here.again()
    assert here.exchange(run="one").limit_reached == "max_bytes"
    for run in ("", "two"):
        here.again()
        exchange = here.exchange(run=run)
        assert exchange.room(20) == 10 and exchange.limit_reached == ""


def test_with_peers_idleness_alone_is_no_end(folder: Path) -> None:
    here = Here(folder, ("p0", "p1"))
    exchange = here.exchange()
    assert isinstance(exchange, PeerExchange)
    here.idle = True
    exchange.advance()
    assert not exchange.ended
    exchange.learn_end()
    assert exchange.ended and here.woken == 1


def test_a_full_outbox_and_no_share_of_the_rate_leave_no_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(folder, ("p0", "p1"))
    exchange = here.exchange()
    assert exchange.room(5) == 5
    monkeypatch.setattr(type(here.stages.outbox), "full", property(lambda _: True))
    assert exchange.room(5) == 0


def test_who_is_told_of_the_end_knows_it_from_the_start(folder: Path) -> None:
    assert Here(folder, ("p0", "p1")).exchange(ended=True).ended
