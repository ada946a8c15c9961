"""Test the limits and the end of a crawl. The same rules apply to a single process and to a process with peers."""

import asyncio
import math
from collections.abc import Callable, Container, Hashable, Iterator
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.topology import Topology
from crawler.errors import StoreError
from crawler.frontier.refresh.rate_balancing import LevelReport
from crawler.frontier.refresh.refreshing import Refresh
from crawler.process.exchange import exchange as exchange_module
from crawler.process.exchange import peer_exchange as module
from crawler.process.exchange.agreed_end import GONE_PATIENCES, LAST_WORDS
from crawler.process.exchange.exchange import Exchange, Loops, Member, _run_before, pages_of
from crawler.process.exchange.peer_exchange import PeerExchange, make_exchange
from crawler.process.fetching.single_requests import HOST_WAIT_MAX
from crawler.process.opening.stages import Stages
from crawler.records import Blame, Fetch, Link, Outcome
from crawler.splitter.asked_fetches import decode_fetch, encode_fetch
from crawler.splitter.coordination import Progress, Weights
from crawler.splitter.partition import Partition
from crawler.splitter.session import Listener
from crawler.splitter.wire import REQUEST_FIELDS_MAX, Ask, AskedRequest, Counters, PastEnd
from crawler.storage.commit import Change
from crawler.storage.keys import OUTBOX
from crawler.storage.kv import scan_prefix
from tests.process.support import made

REAL_SLEEP = asyncio.sleep


class Here:
    """Takes the place of the process that an exchange belongs to. Its stages are real."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...] = ("p0",),
        more: dict[str, dict[str, Any]] | None = None,
        **crawl: Any,
    ) -> None:
        self.folder, self.names = folder, names
        self.tree = (more or {}) | {"crawl": crawl}
        self.idle, self.in_flight, self.pages_ended = False, 0, 0
        self.queued: list[Any] = []
        self.commits = False  # True if queued changes are committed at once
        self.woken = 0
        self.stages = self.open()

    def open(self) -> Stages:
        topology = Topology("p0", Partition.equal_ranges(list(self.names)))
        config = convert(self.tree)
        return Stages(config, self.folder / "p0", bytes(16), clock=VirtualClock(), topology=topology)

    def again(self) -> None:
        """Close the process and start it again."""
        self.stages.close()
        self.stages, self.pages_ended = self.open(), 0

    def exchange(self, **member: Any) -> Exchange:
        loops = Loops(
            queue=self.queue,
            wake=self.wake,
            fail=lambda error: pytest.fail(str(error)),
            idle=lambda: self.idle,
            in_flight=lambda: self.in_flight,
            pages_ended=lambda: self.pages_ended,
            in_background=lambda work: work.close(),
            worker=cast(Executor, None),
            fetch=self.fetch_for_peer,
            let_go=lambda charged: None,
        )
        return make_exchange(self.stages, Member("p0", **member), loops)

    async def fetch_for_peer(self, asked: AskedRequest, charged: Hashable) -> Fetch:
        raise AssertionError(asked)

    def peer_exchange(self, **member: Any) -> PeerExchange:
        exchange = self.exchange(**member)
        assert isinstance(exchange, PeerExchange)
        return exchange

    def queue(self, change: Any) -> None:
        if self.commits:
            self.stages.commits.commit(change)
        else:
            self.queued.append(change)

    def wake(self) -> None:
        self.woken += 1

    def fetch(self, pages: int, size: int = 0) -> None:
        """Commit counts as if `pages` pages with `size` bytes in total had been fetched."""
        change = Change()
        change.count("pages.fetched", pages)
        change.count("bytes.wire", size)
        self.stages.commits.commit(change)
        self.pages_ended += pages


def test_a_single_process_has_all_slots_and_no_limit(tmp_path: Path) -> None:
    here = Here(tmp_path)
    exchange = here.exchange()
    assert type(exchange) is Exchange
    assert exchange.room(7) == 7 and exchange.limit_reached == "" and exchange.status() == {}
    exchange.committed()
    exchange.stop_listening()
    assert not here.queued


def test_alone_the_crawl_has_ended_when_this_process_is_idle(tmp_path: Path) -> None:
    here = Here(tmp_path)
    exchange = here.exchange()
    exchange.advance()
    assert not exchange.ended
    here.idle = True
    assert not exchange.ended, "it ends only when `advance` is called"
    exchange.advance()
    assert exchange.ended


@pytest.mark.parametrize("names", [("p0",), ("p0", "p1")], ids=["alone", "with a peer"])
def test_pages_in_flight_count_against_the_limit(tmp_path: Path, names: tuple[str, ...]) -> None:
    here = Here(tmp_path, names, max_pages=10)
    exchange = here.exchange()
    assert [exchange.room(20), exchange.room(4)] == [10, 4]
    here.in_flight, here.pages_ended = 3, 5
    assert [exchange.room(20), exchange.limit_reached] == [2, ""]
    here.in_flight, here.pages_ended = 0, 10
    assert [exchange.room(20), exchange.limit_reached] == [0, "max_pages"]


@pytest.mark.parametrize("names", [("p0",), ("p0", "p1")], ids=["alone", "with a peer"])
def test_limits_apply_to_one_run(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A start without a run name begins a new run. A start with the name of the last run continues that run."""
    here = Here(tmp_path, names, max_pages=10, max_bytes=1000)
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
    for run in ("", "", "two"):
        here.again()
        exchange = here.exchange(run=run)
        assert exchange.room(20) == 10 and exchange.limit_reached == ""
        here.fetch(4)
        assert exchange.room(20) == 6


def test_with_peers_an_idle_process_does_not_end_the_crawl(tmp_path: Path) -> None:
    here = Here(tmp_path, ("p0", "p1"))
    exchange = here.peer_exchange()
    here.idle = True
    exchange.advance()
    assert not exchange.ended
    exchange.learn_end()
    assert exchange.ended and here.woken == 1


def test_a_full_outbox_and_no_share_of_the_rate_leave_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(tmp_path, ("p0", "p1"))
    exchange = here.exchange()
    assert exchange.room(5) == 5
    monkeypatch.setattr(type(here.stages.outbox), "full", property(lambda _: True))
    assert exchange.room(5) == 0


def test_a_process_started_after_the_end_knows_it(tmp_path: Path) -> None:
    assert Here(tmp_path, ("p0", "p1")).exchange(ended=True).ended


# -- with peers: sending, receiving, confirming


class Peered:
    """The exchange between p0 and its peer p1, which cannot be reached. Only the queues of p0 change."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        names: tuple[str, ...] = ("p0", "p1"),
        **member: Any,
    ) -> None:
        self.here = Here(folder, names, {"splitter": {"heartbeat": 0.5}})
        self.exchange = exchange = self.here.peer_exchange(**member)
        self.flushes = 0
        monkeypatch.setattr(exchange.peers, "flush", self._flush)
        self.naps: list[float] = []
        monkeypatch.setattr(module.asyncio, "sleep", self._sleep)

    def _flush(self, peers: Container[str]) -> None:
        self.flushes += 1

    async def _sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.here.stages.clock.advance(seconds)  # type: ignore[attr-defined]

    def foreign(self, count: int) -> None:
        """Commit `count` links for p1."""
        change = Change()
        change.foreign.append(("p1", [Link(n, f"http://x{n}.org/") for n in range(count)]))
        self.here.stages.commits.commit(change)


@pytest.fixture
def peered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Peered]]:
    made: list[Peered] = []

    def make(**member: Any) -> Peered:
        made.append(Peered(tmp_path / str(len(made)), monkeypatch, **member))
        return made[-1]

    yield make
    for one in made:
        one.here.stages.close()


def test_accepted_entries_are_queued_while_the_due_has_room(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = peered()
    inbox = one.here.stages.inbox
    monkeypatch.setattr(inbox, "take", lambda: iter(["first", "second"]))
    with monkeypatch.context() as patch:
        patch.setattr(type(one.here.stages.due), "full", property(lambda self: True))
        one.exchange._take()
        assert one.here.queued == [], "the entry waits in the inbox"
    one.exchange._take()
    assert [maker.args for maker in one.here.queued] == [("first",), ("second",)]
    one.exchange.stop_listening()
    one.exchange._take()
    assert len(one.here.queued) == 2, "entries that peers send later are not accepted"


def test_a_fresh_epoch_is_committed_once(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = peered()
    monkeypatch.setattr(type(one.here.stages.outbox), "urgent", property(lambda self: True))
    one.exchange._take()
    one.exchange._take()
    (change,) = one.here.queued
    assert change.sync
    (after,) = change.after
    after()
    one.exchange._take()
    assert len(one.here.queued) == 2, "the next epoch gets its own group"


@pytest.mark.parametrize(
    ("outbox", "inbox", "flushes"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_a_commit_sends_and_confirms_its_entries(
    peered: Callable[..., Peered], outbox: bool, inbox: bool, flushes: int
) -> None:
    one = peered()
    one.here.stages.outbox.news = {"p1": None} if outbox else {}
    one.here.stages.inbox.news = {"p1": None} if inbox else {}
    one.exchange.committed()
    assert one.flushes == flushes
    one.exchange.committed()
    assert one.flushes == flushes, "without new entries nothing is flushed"


async def test_a_crawl_at_rest_reports_no_link_as_waiting_that_its_peer_has_confirmed(
    peered: Callable[..., Peered],
) -> None:
    """A confirmation that arrived after the last commit was once lost, so `status` reported links as waiting."""
    one = peered()
    one.here.commits = True
    one.foreign(3)
    outbox = one.here.stages.outbox
    spool = outbox.spools["p1"]
    outbox.welcome("p1", spool.state.epoch, durable=0, chain=0, applied=0)
    first, entries = spool.take_unsent()
    spool.acknowledge(first + len(entries) - 1)
    spool.disconnect()
    await one.exchange.close()
    one.here.again()
    assert one.here.stages.views.waiting_for_peers()["p1"].outbox_links == 0


def test_a_commit_takes_entries_that_waited_for_room(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, taken = peered(), []
    monkeypatch.setattr(one.exchange, "_take", lambda: taken.append(1))
    one.exchange.committed()
    assert taken == []
    monkeypatch.setattr(type(one.here.stages.inbox), "waiting", property(lambda self: 3))
    one.exchange.committed()
    assert taken == [1]


@pytest.mark.parametrize("adopted", [True, False])
async def test_the_queue_of_a_peer_that_is_away_is_rewritten(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    """The rewritten queue is durable before the old queue is deleted."""
    one, begun = peered(), []
    outbox, store = one.here.stages.outbox, one.here.stages.store
    one.foreign(20)
    one.foreign(20)
    old = dict(scan_prefix(store, OUTBOX))
    monkeypatch.setattr(outbox, "_config", msgspec.structs.replace(outbox._config, spool_bytes_max=1))
    one.exchange._loops = msgspec.structs.replace(one.exchange._loops, in_background=begun.append)
    one.exchange.committed()
    outbox.spools["p1"].connected = not adopted

    loop = asyncio.get_running_loop()

    async def at_once(executor: Any, function: Callable[[], None]) -> None:
        function()

    monkeypatch.setattr(loop, "run_in_executor", at_once, raising=False)
    work = asyncio.ensure_future(begun[0])
    for _ in range(3):
        await REAL_SLEEP(0)
    if adopted:
        (change,) = one.here.queued
        assert change.sync and not work.done() and old.items() < dict(scan_prefix(store, OUTBOX)).items()
        one.here.stages.commits.commit(change)
    await work
    kept = dict(scan_prefix(store, OUTBOX))
    assert (outbox.links, outbox.repeated) == ((20, 20) if adopted else (40, 0))
    assert len(one.here.queued) == adopted and (old.keys().isdisjoint(kept) if adopted else kept == old)


@pytest.mark.parametrize(
    ("supervised", "ended", "stopped_by", "naps"),
    [
        (True, True, "done", []),
        (True, False, "max_pages", []),
        (False, False, "signal", []),
        (False, False, "done", []),
        (False, False, "max_pages", [LAST_WORDS]),
    ],
)
def test_a_process_stays_until_its_peers_know(
    peered: Callable[..., Peered], supervised: bool, ended: bool, stopped_by: str, naps: list[float]
) -> None:
    one = peered(supervised=supervised, ended=ended)
    one.here.commits = True
    beat = one.here.stages.config.splitter.heartbeat
    asyncio.run(one.exchange.part(stopped_by))
    assert one.naps == [beat * nap for nap in naps]


@pytest.mark.parametrize("all_know", [0, 3, None])
def test_a_process_announces_the_end_until_all_know_or_are_silent(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch, all_know: int | None
) -> None:
    one = peered(ended=True)
    one.here.commits = True
    config, patience = one.here.stages.config.splitter, one.here.stages.config.crawl.patience
    assert patience > config.silence_max
    know = property(lambda self: all_know is not None and len(one.naps) >= all_know)
    monkeypatch.setattr(type(one.exchange.coordination), "all_know", know)
    asyncio.run(one.exchange.part("done"))
    *looks, last = one.naps
    assert last == LAST_WORDS * config.heartbeat and set(looks) <= {config.heartbeat / 4}
    assert len(looks) == (all_know if all_know is not None else math.ceil(patience / config.heartbeat * 4))


def counters(one: Peered, **said: Any) -> Counters:
    """Return the counters that p1 reports."""
    own = one.exchange.coordination.counters_for("p1")
    return msgspec.structs.replace(own, boot=b"boot of p1", echo_boot=own.boot, **said)


def test_the_end_is_announced_only_once_it_is_durable(peered: Callable[..., Peered]) -> None:
    """A process leaves as soon as it knows that the crawl has ended.

    If a peer then forgot the end of the crawl in a crash, this peer would wait forever.
    """
    one = peered()
    exchange, coordination, told = one.exchange, one.exchange.coordination, []
    exchange.learn_end()
    told.append(coordination.counters_for("p1").ended)

    def commit(change: Change) -> None:
        told.append(coordination.counters_for("p1").ended)
        one.here.stages.commits.commit(change)

    one.here.queue = commit  # type: ignore[method-assign]
    exchange._end._loops = msgspec.structs.replace(exchange._loops, queue=commit)
    asyncio.run(exchange.part("done"))
    assert told[:2] == [False, False] and coordination.counters_for("p1").ended
    assert peered(supervised=True, ended=True).exchange.coordination.counters_for("p1").ended


def knew(one: Peered, *, cleanly: bool = False) -> PeerExchange:
    """Let p0 announce the end of the crawl, then kill or stop p0, and start it again; return its new exchange."""
    one.here.commits = True
    one.exchange.learn_end()
    asyncio.run(one.exchange.part("done"))
    if cleanly:
        one.here.again()
    again = one.here.peer_exchange()
    one.here.idle = True
    return again


def silence(one: Peered, exchange: PeerExchange) -> bool:
    """Let `silence_max` seconds pass; return whether the exchange then applies the stored end of the crawl."""
    exchange._end.is_recalled()
    one.here.stages.clock.advance(one.here.stages.config.splitter.silence_max)  # type: ignore[attr-defined]
    return exchange._end.is_recalled()


@pytest.mark.parametrize("cleanly", [False, True])
def test_a_stored_end_is_recalled_when_peers_have_left(peered: Callable[..., Peered], cleanly: bool) -> None:
    one = peered()
    again = knew(one, cleanly=cleanly)
    assert not again._end.is_recalled(), "a peer may still come back"
    one.here.idle = False
    assert not silence(one, again), "this process has work"
    one.here.idle = True
    assert silence(one, again) is not cleanly


@pytest.mark.parametrize("unlike", ["", "applied", "busy", "reachable"])
def test_the_last_messages_of_peers_that_left_prove_the_end(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch, unlike: str
) -> None:
    """Once, a process that was cut off while its peers ended waited for them forever.

    Now such a process leaves when the machines of its peers have refused connections for long. But it stays
    if a peer had work, or had not applied all links, or if the machine does not answer.
    """
    one = peered()
    exchange, clock, here = one.exchange, one.here.stages.clock, one.here
    here.idle = True
    here.stages.outbox.spools["p1"].confirmed = msgspec.structs.replace(
        here.stages.outbox.spools["p1"].confirmed, links=7
    )
    weights = Weights("p1", ["p0"])
    said = counters(
        one,
        idle=unlike != "busy",
        sent_sum=0,
        applied_sum=weights.applied_sum({"p0": 6 if unlike == "applied" else 7}),
    )
    exchange.coordination.record_counters("p1", said, clock.now())
    gone = here.stages.config.crawl.patience * GONE_PATIENCES
    for passed in (0.0, gone / 2):
        clock.advance(passed)  # type: ignore[attr-defined]
        if unlike != "reachable":
            exchange.peers._closed_since.setdefault("p1", clock.now())
        assert not exchange._end.is_known(exchange.peers), passed
    clock.advance(gone)  # type: ignore[attr-defined]
    assert exchange._end.is_known(exchange.peers) is (unlike == "")


def test_a_peer_that_is_at_rest_only_after_the_end_was_stored_is_informed_later(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process p2 says that the crawl has ended. The message in which p1 reports its rest comes a moment later.

    Then p1 is killed, and does not know of the end.
    """
    one = peered(names=("p0", "p1", "p2"))
    one.here.commits = True
    coordination, sleep = one.exchange.coordination, one._sleep
    coordination.record_counters("p1", counters(one, ended=False, appended=2, applied=3), 0.0)
    rest = counters(one, ended=False, idle=True, outbox=0, appended=2, applied=4, number=2)

    async def hear(seconds: float) -> None:
        coordination.record_counters("p1", rest, 0.0)
        await sleep(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", hear)
    one.exchange.learn_end()
    asyncio.run(one.exchange.part("done"))
    one.here.again()
    one.here.idle = True
    again = one.here.peer_exchange()
    assert not again._end.is_recalled()
    again.coordination.record_counters("p1", msgspec.structs.replace(rest, number=1), 0.0)
    assert again._end.is_recalled()


@pytest.mark.parametrize("unlike", ["", "worked", "busy", "reachable", "supervised"])
def test_a_process_started_after_the_end_leaves_when_its_peers_are_gone_for_good(
    peered: Callable[..., Peered], unlike: str
) -> None:
    """Once, a process that was started to inform a peer waited forever if the peer had ended in the meantime."""
    one = peered()
    knew(one, cleanly=True)
    again = one.here.peer_exchange(supervised=unlike == "supervised")
    if unlike == "worked":
        one.here.fetch(1)
    one.here.idle = unlike != "busy"
    clock, gone = one.here.stages.clock, one.here.stages.config.crawl.patience * GONE_PATIENCES
    if unlike != "reachable":
        again.peers._closed_since["p1"] = clock.now()
    clock.advance(gone * 0.9)  # type: ignore[attr-defined]
    assert not again._end.is_known(again.peers), "a new run waits for its peers"
    clock.advance(gone * 0.2)  # type: ignore[attr-defined]
    assert again._end.is_known(again.peers) is (unlike == "")


@pytest.mark.parametrize("given", [0, 2, 3, 4])
def test_only_new_seeds_void_a_stored_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int
) -> None:
    """All seeds may be given again, or some, or none. Starts that were stopped before the end do not matter."""
    one = Peered(tmp_path, monkeypatch)
    owner = one.here.stages.topology.partition.owner
    urls = (f"http://h{n}.org/" for n in range(100))
    seeds = [url for url in urls if owner(one.here.stages.fingerprinter.fingerprint(url)) == "p1"]

    def give(count: int) -> None:
        one.here.stages.commits.commit_now(made(one.here.stages.decisions.admission.seeds(seeds[:count]))[0])

    give(3)
    knew(one, cleanly=True)
    for start in range(3):
        give(3 - start)
        one.here.again()
    if given:
        give(given)
    again = one.here.peer_exchange()
    assert again._end._stored.past_end is (PastEnd.VOID if given > 3 else PastEnd.HOLDS)
    one.here.stages.close()


@pytest.mark.parametrize("new", ["pages", "links"])
def test_a_stored_end_is_void_after_later_work(peered: Callable[..., Peered], new: str) -> None:
    one = peered()
    again = knew(one)
    if new == "pages":
        one.here.fetch(1)
    else:
        one.foreign(1)
    assert not silence(one, again), "these are seeds of a new run, whose peers are still to come"


def test_an_idle_process_warns_once_about_missing_peers(
    peered: Callable[..., Peered], caplog: pytest.LogCaptureFixture
) -> None:
    one = peered(names=("p0", "p1", "p2"))
    one.here.idle = True

    def waited(**member: Any) -> list[str]:
        exchange = one.here.peer_exchange(**member)
        caplog.clear()
        for beat in range(6):
            now = one.here.stages.clock.now()
            if beat < 3:
                said = counters(one, ended=False, idle=True, number=beat + 1, echo=1)
                exchange.coordination.counters_for("p1")
                exchange.coordination.record_counters(
                    "p1", msgspec.structs.replace(said, echo_boot=exchange.coordination.boot), now
                )
            exchange._end.warn_of_missing()
            one.here.stages.clock.advance(0.6 * exchange._config.silence_max)  # type: ignore[attr-defined]
        return [record.getMessage().split("without ")[1].split(" (")[0] for record in caplog.records]

    assert waited() == ["p2", "p1, p2"]
    assert waited(ended=True) == [], "it does not wait, and a peer that is started again would not find it"
    assert waited(supervised=True) == [], "the supervisor warns instead"
    one.here.idle = False
    assert waited() == []


def test_only_peers_with_work_void_a_stored_end(peered: Callable[..., Peered]) -> None:
    one = peered(names=("p0", "p1", "p2"))
    again = knew(one)
    for number, (idle, outbox) in enumerate([(False, 0), (True, 3), (True, 0)], start=1):
        said = counters(one, ended=False, idle=idle, outbox=outbox, number=number)
        again.coordination.record_counters("p1", said, 0.0)
        assert silence(one, again) is (idle and not outbox)


def test_with_all_peers_present_the_end_is_found_in_rounds(peered: Callable[..., Peered]) -> None:
    one = peered()
    again = knew(one)
    again.coordination.record_counters("p1", counters(one, ended=False, idle=True, outbox=0), 0.0)
    assert not silence(one, again)


def test_each_heartbeat_shares_the_rate_and_checks_for_the_end(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, rates, looks = peered(), [], []
    exchange, frontier = one.exchange, one.here.stages.frontier
    monkeypatch.setattr(frontier, "set_rate", rates.append)
    monkeypatch.setattr(exchange.coordination, "advance", lambda: looks.append(1))
    shares = [0.25, 0.0, 0.0]
    monkeypatch.setattr(exchange.coordination, "share", lambda now: shares.pop(0))
    exchange.set_rate(8.0)
    assert rates == [], "the next heartbeat divides the rate"
    beats = exchange._beat()
    with pytest.raises(IndexError):
        beats.send(None)
    assert rates == [2.0, 0.0, 0.0] and len(looks) == 3 and one.here.woken == 3
    assert one.naps == [one.here.stages.config.splitter.heartbeat] * 3
    assert exchange.room(5) == 0, "without a share of the rate nothing may start"
    shares.append(0.25)
    exchange._share_rate()
    assert exchange.room(5) == 5, "any share of the rate is enough"
    exchange.coordination.rate = 0.0
    shares.append(0.0)
    exchange._share_rate()
    assert exchange.room(5) == 5, "without a limit of the rate no share is needed"


def test_a_refused_process_starts_no_fetch(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = peered()
    monkeypatch.setattr(type(one.exchange.peers), "is_outcast", property(lambda self: True))
    assert one.exchange.room(5) == 0


def test_a_single_process_has_the_whole_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, rates = Here(tmp_path), []
    exchange = here.exchange()
    monkeypatch.setattr(here.stages.frontier, "set_rate", rates.append)
    exchange.set_rate(8.0)
    assert rates == [8.0] and exchange.coordination.rate == 8.0
    here.stages.close()
    here = Here(tmp_path / "fresh", more={"refresh": {"endless": True, "share": 0.5}})
    monkeypatch.setattr(here.stages.refresh.portion, "set_rate", rates.append)
    here.exchange().set_rate(4.0)
    assert rates == [8.0, 4.0] and here.stages.refresh is not None, "known pages have the same rate"
    here.stages.close()


def test_the_progress_in_heartbeats(peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats report the number of hosts with work, which is counted only at intervals."""
    one, counts = peered(), [7, 9]
    monkeypatch.setattr(one.here.stages.frontier.views, "hosts_with_work", lambda: counts.pop(0))
    one.here.fetch(3, 500)
    one.foreign(2)
    one.here.idle, one.here.in_flight = True, 4
    said = one.exchange._progress()
    assert (said.idle, said.outbox, said.appended, said.applied) == (True, 2, 2, 0)
    assert (said.pages, said.bytes, said.in_flight, said.work) == (3, 500, 4, 7)
    assert (said.level, said.weight, said.busy) == (0.0, 0.0, False), "no page is known yet"
    monkeypatch.setattr(type(one.here.stages.inbox), "waiting", property(lambda self: 1))
    assert not one.exchange._progress().idle and one.exchange._progress().work == 7
    one.here.stages.clock.advance(exchange_module._WORK_AGE_MAX)  # type: ignore[attr-defined]
    assert one.exchange._progress().work == 7
    one.here.stages.clock.advance(0.1)  # type: ignore[attr-defined]
    assert one.exchange._progress().work == 9


def test_a_peer_that_moved_is_dialled_where_it_listens(peered: Callable[..., Peered]) -> None:
    """After a peer has been restarted, the supervisor announces its new address."""
    one = peered()
    one.exchange.set_address("p1", ("127.0.0.3", 7))
    assert one.exchange.status()["p1"].address == "127.0.0.3:7"


def test_each_start_has_a_number_above_all_before(tmp_path: Path) -> None:
    """In a new folder, the first start number comes from the clock.

    So it exceeds all numbers of a folder that was lost.
    """
    here = Here(tmp_path, ("p0", "p1"))
    first = module._next_incarnation(here.stages.store, here.stages.clock.now())
    assert first == int(here.stages.clock.now() * 1000)
    assert [module._next_incarnation(here.stages.store, here.stages.clock.now()) for _ in range(2)] == [
        first + 1,
        first + 2,
    ]
    here.stages.close()


def test_a_start_whose_clock_is_behind_continues_under_a_later_number(
    peered: Callable[..., Peered], caplog: pytest.LogCaptureFixture
) -> None:
    """The higher number is durable before it is used. If the peer demands this number again, nothing changes."""
    one = peered()
    before = one.exchange._common.identity.incarnation
    one.exchange._overtake(before + 5000)
    (change,) = one.here.queued
    assert change.sync and one.exchange._common.identity.incarnation == before
    assert "the clock is behind" in caplog.text
    one.here.stages.commits.commit(change)
    assert one.exchange._common.identity.incarnation == before + 5001
    store, now = one.here.stages.store, one.here.stages.clock.now()
    assert module._next_incarnation(store, now) == before + 5002
    one.exchange._overtake(before + 5000)
    assert len(one.here.queued) == 1


def test_pages_are_fetches_of_any_outcome() -> None:
    counters = {
        "pages.fetched": 3,
        "pages.gone": 2,
        "refresh.unchanged": 4,
        "refresh.gone": 1,
        "robots.gone": 9,
    }
    assert pages_of(counters) == 10


def test_counters_of_a_run_are_kept_separate_from_other_runs(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.fetch(2, 30)
    here.again()
    before = _run_before(here.stages.store, here.stages.counters_before, "one")
    assert (before["pages.fetched"], before["bytes.wire"]) == (2, 30)
    here.fetch(1)
    here.again()
    assert _run_before(here.stages.store, here.stages.counters_before, "one") == before
    assert _run_before(here.stages.store, here.stages.counters_before, "two")["pages.fetched"] == 3
    assert _run_before(here.stages.store, here.stages.counters_before, "one")["pages.fetched"] == 3, (
        "another run came in between"
    )
    here.stages.close()


def test_life_of_an_exchange_with_peers(
    peered: Callable[..., Peered], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange listens, sends heartbeats, and receives the entries that wait for this process.

    Before it closes, it sends all confirmations that it owes.
    """
    one, done = peered(), []
    exchange = one.exchange

    async def start() -> tuple[str, int]:
        return "127.0.0.9", 9

    async def close() -> None:
        done.append(("closed", one.flushes))

    async def beat() -> None:
        try:
            await REAL_SLEEP(1000.0)
        finally:
            await REAL_SLEEP(0)
            done.append(("beat over", one.flushes))

    monkeypatch.setattr(exchange.peers, "start", start)
    monkeypatch.setattr(exchange.peers, "close", close)
    monkeypatch.setattr(exchange, "_beat", beat)
    monkeypatch.setattr(exchange, "_take", lambda: done.append(("took", one.flushes)))

    async def play() -> None:
        assert exchange.address == ("", 0)
        assert await exchange.start() == exchange.address == ("127.0.0.9", 9)
        await REAL_SLEEP(0)
        await exchange.close()

    asyncio.run(play())
    assert done == [("took", 0), ("beat over", 0), ("closed", 1)]
    asyncio.run(peered().exchange.peers.close())


@pytest.fixture
def refresh(tmp_path: Path) -> Iterator[Refresh]:
    here = Here(tmp_path / "refreshed", ("p0",), {"refresh": {"share": 0.5}})
    assert here.stages.refresh is not None and here.stages.refresh.portion.share.refresh == 0.5
    yield here.stages.refresh
    here.stages.close()


def test_new_and_known_pages_share_the_part_of_the_rate(
    peered: Callable[..., Peered], refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The division of the rate depends on which kinds of work any process has: known pages, or new URLs."""
    exchange, told, asked = peered().exchange, [], []
    said = {"p0": Progress(work=0, weight=0.0), "p1": Progress(work=3, weight=2.0)}
    monkeypatch.setattr(refresh.portion, "divide", lambda *portion: told.append(portion))

    def portions(*args: Any, **flags: Any) -> tuple[float, float]:
        asked.append((args, flags))
        return 0.25, 0.125

    monkeypatch.setattr(module, "portions", portions)
    monkeypatch.setattr(exchange.coordination, "rates_stated", lambda: said)
    monkeypatch.setattr(exchange.coordination, "share", lambda now: 0.4)
    monkeypatch.setattr(exchange.coordination, "refresh_share", lambda: 0.3)
    exchange.coordination.rate = 8.0
    assert exchange._both_shares(refresh, 5.0) == 0.375
    assert told == [(0.25, 0.125, 8.0)]
    assert asked == [((0.4, 0.3, 0.5), {"work": True, "pages": True})]
    del said["p1"]
    exchange._both_shares(refresh, 5.0)
    assert asked[1][1] == {"work": False, "pages": False}


def test_the_weight_of_known_pages_follows_all_levels(
    peered: Callable[..., Peered], refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, asked = peered().exchange, []

    def level(*args: Any) -> LevelReport:
        asked.append(args)
        return LevelReport(7.0, 2.0, True)

    said = {"p1": Progress(level=3.0, weight=2.0, busy=True)}
    monkeypatch.setattr(exchange.coordination, "rates_stated", lambda: said)
    monkeypatch.setattr(exchange._frontier.views, "why_slow", lambda now: {"rate": 0.75})
    monkeypatch.setattr(refresh.portion, "exchange_levels", level)
    exchange._tell_level(refresh, 5.0)
    assert asked == [({"p1": LevelReport(3.0, 2.0, True)}, 0.75, 5.0)]
    now = exchange._progress()
    assert (now.level, now.weight, now.busy) == (7.0, 2.0, True)


def test_the_check_differs_if_fingerprints_differ(tmp_path: Path) -> None:
    checks = []
    for n, tree in enumerate(({}, {}, {"partition": "host"}, {"strip_session_ids": False})):
        stages = Stages(convert({"urls": tree}), tmp_path / str(n), bytes(16), clock=VirtualClock())
        checks.append(module._check(stages.config.urls, stages.fingerprinter))
        stages.close()
    assert checks[0] == checks[1] and len(set(checks)) == 3 and {len(each) for each in checks} == {16}


# ---- requests for peers ----


def robots_url(here: Here, name: str) -> str:
    """Return the robots.txt of a host that a process owns."""
    owner, key = here.stages.topology.partition.owner, here.stages.fingerprinter.host_key
    return next(f"http://h{n}.org/robots.txt" for n in range(99) if owner(key(f"h{n}.org")) == name)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("good", Outcome.GONE),
        ("other", Outcome.CONNECT_ERROR),
        ("garbage", Outcome.CONNECT_ERROR),
        ("none", Outcome.CONNECT_ERROR),
        ("older", None),
    ],
)
async def test_the_owner_of_a_host_is_asked(tmp_path: Path, answer: str, outcome: Outcome | None) -> None:
    """Without an answer, the file counts as unreachable. An owner of an earlier version is not asked."""
    here = Here(tmp_path, ("p0", "p1"))
    exchange, url = here.peer_exchange(), robots_url(here, "p1")
    asked = AskedRequest(url, patience=7.0)
    answers = {
        "good": encode_fetch(Fetch(url, Outcome.GONE, status=404)),
        "other": encode_fetch(Fetch("http://other.org/", Outcome.GONE)),
        "garbage": b"garbage",
        "none": b"",
        "older": None,
    }

    async def ask(peer: str, request: AskedRequest, patience: float) -> bytes | None:
        assert (peer, request) == ("p1", asked) and patience > HOST_WAIT_MAX
        return answers[answer]

    exchange.peers.questions.ask = ask  # type: ignore[method-assign]
    found = await exchange.fetch_at_owner(asked)
    assert (found and found.outcome) == outcome
    if outcome is Outcome.CONNECT_ERROR:
        assert found is not None and found.blame is Blame.URL and "p1" in found.error


async def test_a_request_that_is_too_long_for_a_frame_is_not_sent(tmp_path: Path) -> None:
    here = Here(tmp_path, ("p0", "p1"))
    exchange, url = here.peer_exchange(), robots_url(here, "p1")
    sent: list[AskedRequest] = []

    async def ask(peer: str, request: AskedRequest, patience: float) -> bytes:
        sent.append(request)
        return b""

    exchange.peers.questions.ask = ask  # type: ignore[method-assign]
    room = here.stages.config.splitter.frame_bytes_max // 2 - 1000
    requests = [
        AskedRequest(url, "POST", body=bytes(room)),
        AskedRequest(url, "POST", body=bytes(room + 1000)),
        AskedRequest(url, headers=("A: b",) * REQUEST_FIELDS_MAX),
        AskedRequest(url, headers=("A: b",) * (REQUEST_FIELDS_MAX + 1)),
    ]
    errors = [(await exchange.fetch_at_owner(each)).error for each in requests]  # type: ignore[union-attr]
    assert sent == [requests[0], requests[2]]
    assert ["too long" in error for error in errors] == [False, True, False, True]


def test_a_process_without_peers_asks_nobody(tmp_path: Path) -> None:
    here = Here(tmp_path)
    assert asyncio.run(here.exchange().fetch_at_owner(AskedRequest(robots_url(here, "p0")))) is None


class Asking:
    """Takes the place of the session of a peer that asks."""

    ending = None

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answer(self, number: int, fetch: bytes, sent: Callable[[], object]) -> None:
        self.answers.append(fetch)
        sent()


@pytest.mark.parametrize("raises", [False, True])
async def test_only_requests_to_own_hosts_are_made_for_a_peer(tmp_path: Path, raises: bool) -> None:
    """A question always gets an answer, even if the request ends with an exception. Then its memory is released."""
    here, session = Here(tmp_path, ("p0", "p1")), Asking()
    exchange, own = here.peer_exchange(), robots_url(here, "p0")
    asked, made, let_go = [], [], []

    async def fetch(request: AskedRequest, charged: Hashable) -> Fetch:
        asked.append((request, charged))
        if raises:
            raise StoreError("the disk failed")
        return Fetch(request.url, Outcome.FETCHED, content=b"x")

    exchange._loops = msgspec.structs.replace(
        exchange._loops, fetch=fetch, in_background=made.append, let_go=let_go.append
    )
    wrong = [AskedRequest(url) for url in (robots_url(here, "p1"), "ftp://a.org/", "http://A.org/", "")]
    wrong += [AskedRequest(own, "BREW"), AskedRequest(own, headers=("A: b\r\nC: d",))]
    wrong += [AskedRequest(own, headers=("A: b\nC: d",)), AskedRequest(own, cookies="a=b\r\n\r\n")]
    for request in (*wrong, AskedRequest(own, headers=("A: b",), cookies="a=b")):
        exchange._asked(cast(Listener, session), Ask(1, request))
    assert session.answers == [b""] * len(wrong) and len(made) == 1 and not let_go
    with pytest.raises(StoreError) if raises else nullcontext():
        await made[0]
    assert [request.url for request, _ in asked] == [own] and let_go == [asked[0][1]]
    answer = session.answers[len(wrong)]
    assert answer == b"" if raises else decode_fetch(answer).content == b"x"
    exchange.stop_listening()
    exchange._asked(cast(Listener, session), Ask(2, AskedRequest(own)))
    assert session.answers[-1] == b"" and len(made) == 1
