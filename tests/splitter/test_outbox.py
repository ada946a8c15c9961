"""Test the outbox against a model. Commits, connections, confirmations, restarts and compactions are random."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import SplitterConfig
from crawler.errors import DamageError, DirectoryError
from crawler.records import Link, LinkFlag
from crawler.splitter.compaction import Compaction, first_occurrences
from crawler.splitter.outbox import Outbox
from crawler.splitter.spool import Greeting, Spool, state_key
from crawler.splitter.wire import ProtocolError, chained, decode_entry
from crawler.storage.kv import MemoryStore, scan_prefix
from tests.splitter.links import Unread, make_links

CONFIG = SplitterConfig(window_bytes=400, entry_bytes=120, spool_bytes_max=1500)


class Receiver:
    """A minimal receiver of a queue, which keeps the entries in the order in which they arrive."""

    def __init__(self) -> None:
        self.epoch = b""
        self.durable = self.chain = self.applied = 0
        self.links: list[Link] = []

    def connect(self, outbox: Outbox) -> Greeting:
        epoch = outbox.spools["p1"].state.epoch
        if epoch != self.epoch:
            self.epoch, self.durable, self.chain = epoch, 0, 0
        return outbox.welcome("p1", epoch, self.durable, self.chain, self.applied)

    def take(self, outbox: Outbox, limit: int = 1 << 30) -> int:
        """Take at most `limit` of the entries that are sent now; return how many were sent."""
        first, entries = outbox.spools["p1"].take_unsent()
        for sequence, entry in enumerate(entries[:limit], first):
            assert sequence == self.durable + 1
            self.durable, self.chain = sequence, chained(self.chain, entry)
            links = decode_entry(entry)
            self.links += links
            self.applied += len(links)
        return len(entries)


class Bench:
    """An outbox with the queue for `p1`, over a store in memory. `links` are those which were committed for p1."""

    def __init__(self, seed: int, *peers: str) -> None:
        self.rng, self.peers, self.receiver = random.Random(seed), ["p1", *peers], Receiver()
        self.links: list[Link] = []
        self.open({})

    def open(self, data: dict[bytes, bytes]) -> None:
        """Open an outbox over a store with this state."""
        self.store = MemoryStore(data, keep_durable=True)
        self.outbox = Outbox(self.store, self.peers, CONFIG, self.rng)
        self.outbox._check()

    @property
    def spool(self) -> Spool:
        return self.outbox.spools["p1"]

    @property
    def entries(self) -> int:
        """The number of the entries in the store."""
        return sum(1 for _ in scan_prefix(self.store, b"o/"))

    def make(self, count: int) -> list[Link]:
        return make_links(self.rng, count)

    def stage(self, links: Sequence[Link] = (), others: Sequence[Link] = ()) -> None:
        """Write a group to the store, with `links` of two pages and `others` for p2. Do not report it committed."""
        batch = self.store.batch(sync=True)
        self.outbox.write([("p1", links[:2]), ("p1", links[2:]), *([("p2", others)] if others else [])])
        self.outbox.stage(batch)
        self.store.write(batch)
        self.links += links

    def commit(self, links: Sequence[Link] = (), others: Sequence[Link] = ()) -> None:
        self.stage(links, others)
        self.outbox.committed()
        self.outbox._check()

    def fill(self, *, repeats: int = 3) -> None:
        links = self.make(40) * repeats
        for start in range(0, len(links), 5):
            self.commit(links[start : start + 5])

    def connect(self) -> Greeting:
        return self.receiver.connect(self.outbox)

    def take(self, limit: int = 1 << 30) -> int:
        return self.receiver.take(self.outbox, limit)

    def waiting(self) -> list[Link]:
        """Return the links that the peer has not confirmed."""
        entries = [
            self.spool._read(number) for number in range(self.spool.acked + 1, self.spool.committed + 1)
        ]
        return [link for entry in entries for link in decode_entry(entry)]

    def retirement(self) -> Compaction | None:
        """Return the compaction that retires the URLs that contain a 7."""
        return self.outbox.retirement("p1", lambda url: "7" in url)

    def run(self, compaction: Compaction | None) -> None:
        """Run a compaction, adopt its result, and delete the old entries."""
        if compaction is None:
            return
        compaction.run()
        if self.outbox.adopt(compaction):
            self.commit()
        compaction.sweep()
        self.outbox._check()


def dedupe(links: list[Link]) -> list[Link]:
    return list(dict.fromkeys(links))


@given(st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_every_link_arrives_once_and_in_order_whatever_happens(seed: int) -> None:
    """The events are cuts, partial deliveries, and restarts before deletes are committed.

    Lost disks and compactions do not occur.
    """
    bench = Bench(seed)
    rng, receiver = bench.rng, bench.receiver
    for step in range(60):
        spool = bench.spool
        action = rng.choice(["commit", "commit", "connect", "send", "send", "ack", "cut", "restart"])
        if action == "commit":
            bench.commit(bench.make(rng.randrange(6)))
        elif action == "connect" and not spool.connected:
            assert bench.connect() is Greeting.GO_ON
        elif action == "send":
            bench.take(rng.randrange(5))
            if receiver.durable < spool.sent - spool.state.base and spool.connected:
                spool.resync(receiver.durable)
        elif action == "ack" and spool.connected:
            spool.acknowledge(rng.randrange(spool.acked - spool.state.base, receiver.durable + 1))
        elif action == "cut":
            spool.disconnect()
        elif action == "restart":
            bench.open(bench.store.durable)
        bench.outbox._check()
        assert receiver.links == bench.links[: len(receiver.links)], step
    bench.connect()
    spool, outbox = bench.spool, bench.outbox
    while spool.sent < spool.committed:
        bench.take()
        spool.acknowledge(receiver.durable)
    assert receiver.links == bench.links
    assert (spool.links, spool.bytes, outbox.sent) == (0, 0, len(bench.links))
    assert outbox.sent_entries == spool.committed - spool.state.base
    assert outbox.sent_bytes > 20 * len(bench.links)
    bench.commit()
    assert not bench.entries


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_compactions_lose_no_link_and_keep_the_order_of_discovery(seed: int) -> None:
    bench = Bench(seed, "p2")
    rng, receiver = bench.rng, bench.receiver
    pool = bench.make(40)
    for _ in range(40):
        action = rng.choice(["commit", "commit", "commit", "drain", "compact", "restart"])
        if action == "commit":
            links = [rng.choice(pool) for _ in range(rng.randrange(12))]
            bench.commit(links, links[:1])
        elif action == "drain" and not bench.spool.connected:
            assert bench.connect() is Greeting.GO_ON
            bench.take()
            bench.spool.acknowledge(receiver.durable)
            bench.spool.disconnect()
        elif action == "compact":
            bench.run(bench.outbox.compaction())
        elif action == "restart":
            bench.open(bench.store.durable)
        bench.outbox._check()
    waiting = bench.waiting()
    assert set(receiver.links + waiting) == set(bench.links)
    assert len(waiting) + bench.spool.confirmed.links + bench.spool.state.repeated == len(bench.links)
    assert dedupe(receiver.links + waiting) == dedupe(bench.links)


def test_retired_links_are_marked_and_none_is_lost() -> None:
    """Messages are not links, so they are not marked. A retirement that matches nothing changes nothing."""
    bench = Bench(7)
    assert bench.retirement() is None, "nothing waits"
    bench.fill()
    links = list(bench.links)
    bench.commit(
        [Link(1, "http://7.org/", flags=flag) for flag in (LinkFlag.SCOPE, LinkFlag.SIGNAL, LinkFlag.CREDIT)]
    )
    before = bench.spool.state
    bench.run(bench.outbox.retirement("p1", lambda url: ""))
    assert bench.spool.state == before
    plan = bench.retirement()
    assert plan is not None and bench.outbox.compacting and bench.retirement() is None, "one at a time"
    bench.run(plan)
    found = bench.waiting()
    marked = [link for link in found if link.flags & LinkFlag.RETIRED]
    assert [link.url for link in marked] == [link.url for link in links if "7" in link.url]
    assert 0 < len(marked) == plan.retired < len(found)
    assert [link.url for link in found] == [link.url for link in bench.links] and not bench.outbox.repeated
    bench.run(bench.retirement())
    assert bench.waiting() == found, "a link is marked once"
    bench.spool.connected = True
    assert bench.retirement() is None, "the links of a connected peer are on their way"


def test_a_crash_at_any_write_of_a_compaction_leaves_a_whole_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash at any write of a compaction, swap or sweep, the reopened store has the same set of links."""
    monkeypatch.setattr("crawler.splitter.compaction._BATCH_BYTES", 300)
    bench = Bench(2)
    bench.fill()
    snapshots: list[dict[bytes, bytes]] = []
    write = bench.store.write

    def recording(batch: object) -> None:
        write(batch)
        snapshots.append(dict(bench.store._data))

    bench.store.write = recording
    bench.run(bench.outbox.compaction())
    assert len(snapshots) > 6
    sizes = set()
    for snapshot in snapshots:
        bench.open(snapshot)
        assert dedupe(bench.waiting()) == dedupe(bench.links)
        sizes.add(len(bench.waiting()))
        assert bench.entries == bench.spool.committed - bench.spool.acked
    assert sizes == {len(bench.links), len(dedupe(bench.links))}


def test_an_outbox_that_was_compacted_can_be_compacted_again() -> None:
    """The second compaction rewrites the entries of the first one and those appended since. No old entry remains."""
    bench = Bench(5)
    bench.fill()
    generations, epochs = [], []
    for _ in range(3):
        bench.run(bench.outbox.compaction())
        state = bench.spool.state
        generations.append(state.generation)
        epochs.append(state.epoch)
        assert bench.waiting() == dedupe(bench.links)
        assert state.repeated == len(bench.links) - len(dedupe(bench.links))
        bench.open(bench.store.durable)  # the new queue is found after a restart
        bench.fill()
        assert bench.waiting()[-120:] == bench.links[-120:]
    bench.run(bench.outbox.compaction())
    assert bench.entries == bench.spool.committed - bench.spool.acked
    assert generations == sorted(set(generations)) and len(set(epochs)) == 3


def test_entries_committed_during_a_compaction_follow_it() -> None:
    bench = Bench(3)
    bench.fill()
    compaction = bench.outbox.compaction()
    assert bench.outbox.compaction() is None, "only one compaction at a time"
    bench.commit(bench.make(10))
    compaction.run()
    assert bench.outbox.adopt(compaction)
    assert bench.outbox.urgent and not bench.spool.ready
    bench.commit(bench.make(10))
    assert bench.spool.ready
    compaction.sweep()
    bench.outbox._check()
    assert bench.waiting() == dedupe(bench.links)
    assert bench.outbox.repeated == len(bench.links) - len(dedupe(bench.links))


def test_a_group_staged_after_a_compaction_does_not_undo_it() -> None:
    """The first group contains the state of the compaction.

    The second group is staged before `committed` is called for the first one.
    """
    bench = Bench(12)
    bench.fill()
    compaction = bench.outbox.compaction()
    compaction.run()
    assert bench.outbox.adopt(compaction)
    bench.stage(bench.make(2))
    bench.stage(bench.make(2))
    staged = bench.outbox
    bench.open(bench.store.durable)
    assert bench.waiting() == dedupe(bench.links)
    staged.committed()
    staged.committed()
    staged._check()


def test_a_compaction_is_dropped_if_the_peer_came_back() -> None:
    bench = Bench(4)
    bench.fill()
    compaction = bench.outbox.compaction()
    bench.connect()
    compaction.run()
    assert not bench.outbox.adopt(compaction)
    compaction.sweep()
    bench.outbox._check()
    assert bench.waiting() == bench.links
    assert bench.entries == bench.spool.committed - bench.spool.acked


def test_a_queue_is_compacted_at_its_limit_and_full_at_twice_its_limit() -> None:
    bench = Bench(5)
    outbox = bench.outbox
    while outbox.bytes < CONFIG.spool_bytes_max:
        assert outbox.compaction() is None
        bench.commit(bench.make(3))
    bench.run(outbox.compaction())
    assert outbox.compaction() is None, (
        "no link was repeated, so the next one waits until the queue grows by half"
    )
    assert not outbox.full
    while outbox.bytes < 2 * CONFIG.spool_bytes_max:
        bench.commit(bench.make(3))
    assert outbox.full


@given(st.lists(st.integers(0, 40), max_size=200))
def test_first_occurrences_are_those_of_a_set(values: list[int]) -> None:
    seen: set[int] = set()
    expected = [not (value in seen or seen.add(value)) for value in values]
    assert first_occurrences(np.array(values, dtype=np.uint64)).tolist() == expected


def test_a_fresh_epoch_is_not_used_before_it_is_durable() -> None:
    bench = Bench(6)
    bench.commit(bench.make(3))
    outbox, old = bench.outbox, bench.spool.state.epoch
    assert outbox.welcome("p1", old, 99, 0, 0) is Greeting.TAIL_LOST
    assert outbox.urgent
    assert outbox.welcome("p1", old, 0, 0, 0) is Greeting.STALE
    bench.commit()
    assert not outbox.urgent
    assert outbox.welcome("p1", old, 0, 0, 0) is Greeting.STALE
    epoch = bench.spool.state.epoch
    assert outbox.welcome("p1", epoch, 0, 0, 0) is Greeting.GO_ON
    bench.open(bench.store.durable)
    assert bench.spool.state.epoch == epoch


def test_two_groups_may_be_staged_before_the_first_is_reported_committed() -> None:
    bench = Bench(7)
    bench.connect()
    bench.stage(bench.make(3))
    bench.stage(bench.make(3))
    assert bench.take() == 0
    for arrived in (3, 6):
        bench.outbox.committed()
        bench.take()
        assert bench.receiver.links == bench.links[:arrived]
    bench.outbox._check()


def test_each_committed_group_frees_its_own_entries() -> None:
    bench = Bench(13, "p2")
    bench.stage(bench.make(2))
    bench.stage((), bench.make(2))
    waiting = []
    for _ in range(2):
        bench.outbox.committed()
        waiting.append({peer: spool.links for peer, spool in bench.outbox.spools.items()})
    assert waiting == [{"p1": 2, "p2": 0}, {"p1": 2, "p2": 2}]


def test_a_confirmation_of_an_unsent_entry_is_a_protocol_error() -> None:
    bench = Bench(8)
    bench.commit(bench.make(3))
    bench.connect()
    for call in (bench.spool.acknowledge, bench.spool.resync):
        with pytest.raises(ProtocolError):
            call(1)
    bench.outbox._check()


def test_links_for_an_unknown_process_are_not_forgotten() -> None:
    bench = Bench(9, "p2")
    Outbox(bench.store, ["p1"], CONFIG, bench.rng)
    bench.commit((), bench.make(3))
    with pytest.raises(DirectoryError, match="reshard"):
        Outbox(bench.store, ["p1"], CONFIG, bench.rng)


def test_damage_is_reported_by_name() -> None:
    bench = Bench(10)
    bench.commit(bench.make(30))
    keys = [key for key, _ in scan_prefix(bench.store, b"o/")]
    assert len(keys) > 3
    whole = bench.store.durable
    with pytest.raises(DamageError, match="missing"):
        bench.open({key: value for key, value in whole.items() if key != keys[1]})
    with pytest.raises(DamageError):
        bench.open({**whole, state_key("p1"): b"\x01\x00\x00\x00\x00"})
    damaged = MemoryStore({**whole, keys[0]: whole[keys[0]][:-1] + b"\xff\xff"})
    outbox = Outbox(damaged, ["p1"], CONFIG, bench.rng)
    bench.receiver.connect(outbox)
    with pytest.raises(DamageError):
        outbox.spools["p1"].take_unsent()


def test_memory_holds_no_more_than_a_window_a_connected_peer() -> None:
    bench = Bench(11)
    bench.commit(bench.make(50))
    spool = bench.spool
    assert not spool._recent
    bench.connect()
    bench.commit(bench.make(50))
    assert sum(map(len, spool._recent)) <= CONFIG.window_bytes
    while spool.sent < spool.committed:
        bench.take()
        spool.acknowledge(bench.receiver.durable)
        assert spool.in_flight_bytes <= CONFIG.window_bytes
        bench.commit(bench.make(1) if bench.rng.random() < 0.3 else [])


def test_totals_are_read_without_a_loop_over_the_queues() -> None:
    """Every heartbeat contains the totals over the queues. Every fetch and every group reads these totals, too."""
    bench = Bench(1, "p2", "p3")
    outbox = bench.outbox
    bench.commit(bench.make(3), bench.make(6))
    # this confirms more entries than were sent
    outbox.welcome("p1", bench.spool.state.epoch, 7, 0, 0)
    outbox._check()
    outbox.spools = Unread(outbox.spools)
    assert (outbox.links, outbox.appended, outbox.urgent) == (9, 9, True)
    assert outbox.bytes < CONFIG.spool_bytes_max and not outbox.full and outbox.compaction() is None
