"""Test the outbox against a model. Commits, connections, confirmations, restarts and compactions are random."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import SplitterConfig
from crawler.errors import DamageError, DirectoryError
from crawler.records import Link, LinkFlag
from crawler.splitter.compaction import Compaction, first_occurrences
from crawler.splitter.outbox import Outbox
from crawler.splitter.spool import Greeting, state_key
from crawler.splitter.wire import ProtocolError, chained, decode_entry
from crawler.storage.kv import MemoryStore, scan_prefix
from tests.splitter.links import Unread, make_links

CONFIG = SplitterConfig(window_bytes=400, entry_bytes=120, spool_bytes_max=1500)


def commit(store: MemoryStore, outbox: Outbox, items: list, *, sync: bool = True) -> None:
    batch = store.batch(sync=sync)
    outbox.write(items)
    outbox.stage(batch)
    store.write(batch)
    outbox.committed()


def retire(outbox: Outbox) -> Compaction | None:
    """Return the compaction that retires the URLs that contain a 7."""
    return outbox.retirement("p1", lambda url: "7" in url)


def compact(
    store: MemoryStore, outbox: Outbox, planned: Callable[[Outbox], Compaction | None] = Outbox.compaction
) -> None:
    compaction = planned(outbox)
    if compaction is None:
        return
    compaction.run()
    if outbox.adopt(compaction):
        commit(store, outbox, [])
    compaction.sweep()


class Receiver:
    """A minimal receiver of a queue, which keeps the entries in the order in which they arrive."""

    def __init__(self) -> None:
        self.epoch = b""
        self.durable = self.chain = self.applied = 0
        self.links: list[Link] = []

    def connect(self, outbox: Outbox, peer: str) -> Greeting:
        epoch = outbox.spools[peer].state.epoch
        if epoch != self.epoch:
            self.epoch, self.durable, self.chain = epoch, 0, 0
        return outbox.welcome(peer, epoch, self.durable, self.chain, self.applied)

    def take(self, first: int, entries: list[bytes], limit: int) -> None:
        for sequence, entry in enumerate(entries[:limit], first):
            assert sequence == self.durable + 1
            self.durable, self.chain = sequence, chained(self.chain, entry)
            links = decode_entry(entry)
            self.links += links
            self.applied += len(links)


@given(st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_every_link_arrives_once_and_in_order_whatever_happens(seed: int) -> None:
    """The events are cuts, partial deliveries, and restarts before deletes are committed.

    Lost disks and compactions do not occur.
    """
    rng = random.Random(seed)
    store, receiver, sent = MemoryStore(keep_durable=True), Receiver(), []
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    for step in range(60):
        spool = outbox.spools["p1"]
        action = rng.choice(["commit", "commit", "connect", "send", "send", "ack", "cut", "restart"])
        if action == "commit":
            links = make_links(rng, rng.randrange(6))
            commit(store, outbox, [("p1", links[:2]), ("p1", links[2:])])
            sent += links
        elif action == "connect" and not spool.connected:
            assert receiver.connect(outbox, "p1") is Greeting.GO_ON
        elif action == "send":
            first, entries = spool.take_unsent()
            receiver.take(first, entries, rng.randrange(5))
            if entries and receiver.durable < first + len(entries) - 1 and spool.connected:
                spool.resync(receiver.durable)
        elif action == "ack" and spool.connected:
            spool.acknowledge(rng.randrange(spool.acked - spool.state.base, receiver.durable + 1))
        elif action == "cut":
            spool.disconnect()
        elif action == "restart":
            store = MemoryStore(store.durable, keep_durable=True)
            outbox = Outbox(store, ["p1"], CONFIG, rng)
        outbox._check()
        assert receiver.links == sent[: len(receiver.links)], step
    spool = outbox.spools["p1"]
    receiver.connect(outbox, "p1")
    while spool.sent < spool.committed:
        first, entries = spool.take_unsent()
        receiver.take(first, entries, 1 << 30)
        spool.acknowledge(receiver.durable)
    assert receiver.links == sent
    assert (spool.links, spool.bytes, outbox.sent) == (0, 0, len(sent))
    assert outbox.sent_entries == spool.committed - spool.state.base
    assert outbox.sent_bytes > 20 * len(sent)
    commit(store, outbox, [])
    assert list(scan_prefix(store, b"o/")) == []


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_compactions_lose_no_link_and_keep_the_order_of_discovery(seed: int) -> None:
    rng = random.Random(seed)
    store, receiver, sent = MemoryStore(keep_durable=True), Receiver(), []
    outbox = Outbox(store, ["p1", "p2"], CONFIG, rng)
    pool = make_links(rng, 40)
    for _ in range(40):
        spool = outbox.spools["p1"]
        action = rng.choice(["commit", "commit", "commit", "drain", "compact", "restart"])
        if action == "commit":
            links = [rng.choice(pool) for _ in range(rng.randrange(12))]
            commit(store, outbox, [("p1", links), ("p2", links[:1])])
            sent += links
        elif action == "drain" and not spool.connected:
            assert receiver.connect(outbox, "p1") is Greeting.GO_ON
            first, entries = spool.take_unsent()
            receiver.take(first, entries, 1 << 30)
            spool.acknowledge(receiver.durable)
            spool.disconnect()
        elif action == "compact":
            compact(store, outbox)
        elif action == "restart":
            store = MemoryStore(store.durable, keep_durable=True)
            outbox = Outbox(store, ["p1", "p2"], CONFIG, rng)
        outbox._check()
    waiting = waiting_links(store, outbox, "p1")
    assert set(receiver.links + waiting) == set(sent)
    assert len(waiting) + outbox.spools["p1"].confirmed.links + outbox.spools["p1"].state.repeated == len(
        sent
    )
    assert dedupe(receiver.links + waiting) == dedupe(sent)


def dedupe(links: list[Link]) -> list[Link]:
    return list(dict.fromkeys(links))


def waiting_links(store: MemoryStore, outbox: Outbox, peer: str) -> list[Link]:
    spool = outbox.spools[peer]
    entries = [spool._read(number) for number in range(spool.acked + 1, spool.committed + 1)]
    return [link for entry in entries for link in decode_entry(entry)]


def fill(store: MemoryStore, outbox: Outbox, rng: random.Random, *, repeats: int = 3) -> list[Link]:
    links = make_links(rng, 40) * repeats
    for start in range(0, len(links), 5):
        commit(store, outbox, [("p1", links[start : start + 5])])
    return links


def test_retired_links_are_marked_and_none_is_lost() -> None:
    """Messages are not links, so they are not marked. A retirement that matches nothing changes nothing."""
    rng = random.Random(7)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    assert retire(outbox) is None, "nothing waits"
    links = fill(store, outbox, rng)
    told = [
        Link(1, "http://7.org/", flags=flag) for flag in (LinkFlag.SCOPE, LinkFlag.SIGNAL, LinkFlag.CREDIT)
    ]
    commit(store, outbox, [("p1", told)])
    before = outbox.spools["p1"].state
    compact(store, outbox, lambda outbox: outbox.retirement("p1", lambda url: ""))
    assert outbox.spools["p1"].state == before
    plan = retire(outbox)
    assert plan is not None and outbox.compacting and retire(outbox) is None, "one at a time"
    compact(store, outbox, lambda _: plan)
    outbox._check()
    found = waiting_links(store, outbox, "p1")
    marked = [link for link in found if link.flags & LinkFlag.RETIRED]
    assert [link.url for link in marked] == [link.url for link in links if "7" in link.url]
    assert 0 < len(marked) == plan.retired < len(found)
    assert [link.url for link in found] == [link.url for link in links + told] and not outbox.repeated
    compact(store, outbox, retire)
    assert waiting_links(store, outbox, "p1") == found, "a link is marked once"
    outbox.spools["p1"].connected = True
    assert retire(outbox) is None, "the links of a connected peer are on their way"


def test_a_crash_at_any_write_of_a_compaction_leaves_a_whole_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash at any write of a compaction, swap or sweep, the reopened store has the same set of links."""
    import crawler.splitter.compaction as compaction_module

    monkeypatch.setattr(compaction_module, "_BATCH_BYTES", 300)
    rng = random.Random(2)
    store = MemoryStore(keep_durable=True)
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    links = fill(store, outbox, rng)
    snapshots: list[dict[bytes, bytes]] = []
    write = store.write

    def recording(batch: object) -> None:
        write(batch)
        snapshots.append(dict(store._data))

    store.write = recording
    compact(store, outbox)
    assert len(snapshots) > 6
    sizes = set()
    for snapshot in snapshots:
        again = MemoryStore(snapshot)
        opened = Outbox(again, ["p1"], CONFIG, rng)
        opened._check()
        waiting = waiting_links(again, opened, "p1")
        assert dedupe(waiting) == dedupe(links)
        sizes.add(len(waiting))
        left = sum(1 for _ in scan_prefix(again, b"o/"))
        assert left == opened.spools["p1"].committed - opened.spools["p1"].acked
    assert sizes == {len(links), len(dedupe(links))}


def test_an_outbox_that_was_compacted_can_be_compacted_again() -> None:
    """The second compaction rewrites the entries of the first one and those appended since. No old entry remains."""
    rng = random.Random(5)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    links = fill(store, outbox, rng)
    generations, epochs = [], []
    for seed in range(3):
        compact(store, outbox)
        state = outbox.spools["p1"].state
        generations.append(state.generation)
        epochs.append(state.epoch)
        assert waiting_links(store, outbox, "p1") == dedupe(links)
        assert state.repeated == len(links) - len(dedupe(links))
        outbox = Outbox(store, ["p1"], CONFIG, rng)  # the new queue is found after a restart
        outbox._check()
        links += fill(store, outbox, random.Random(seed))
        assert waiting_links(store, outbox, "p1")[-120:] == links[-120:]
    compact(store, outbox)
    spool = outbox.spools["p1"]
    assert sum(1 for _ in scan_prefix(store, b"o/")) == spool.committed - spool.acked
    assert generations == sorted(set(generations)) and len(set(epochs)) == 3


def test_entries_committed_during_a_compaction_follow_it() -> None:
    rng = random.Random(3)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    links = fill(store, outbox, rng)
    compaction = outbox.compaction()
    assert outbox.compaction() is None, "only one compaction at a time"
    more = make_links(rng, 20)
    commit(store, outbox, [("p1", more[:10])])
    compaction.run()
    assert outbox.adopt(compaction)
    assert outbox.urgent and not outbox.spools["p1"].ready
    commit(store, outbox, [("p1", more[10:])])
    assert outbox.spools["p1"].ready
    compaction.sweep()
    outbox._check()
    assert waiting_links(store, outbox, "p1") == dedupe(links) + more
    assert outbox.repeated == len(links) - len(dedupe(links))


def test_a_group_staged_after_a_compaction_does_not_undo_it() -> None:
    """The first group contains the state of the compaction.

    The second group is staged before `committed` is called for the first one.
    """
    rng = random.Random(12)
    store = MemoryStore(keep_durable=True)
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    links = fill(store, outbox, rng)
    compaction = outbox.compaction()
    compaction.run()
    assert outbox.adopt(compaction)
    more = make_links(rng, 4)
    for part in (more[:2], more[2:]):
        batch = store.batch(sync=True)
        outbox.write([("p1", part)])
        outbox.stage(batch)
        store.write(batch)
    again = MemoryStore(store.durable)
    opened = Outbox(again, ["p1"], CONFIG, rng)
    opened._check()
    assert waiting_links(again, opened, "p1") == dedupe(links) + more
    outbox.committed()
    outbox.committed()
    outbox._check()


def test_a_compaction_is_dropped_if_the_peer_came_back() -> None:
    rng = random.Random(4)
    store, receiver = MemoryStore(), Receiver()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    links = fill(store, outbox, rng)
    compaction = outbox.compaction()
    receiver.connect(outbox, "p1")
    compaction.run()
    assert not outbox.adopt(compaction)
    compaction.sweep()
    outbox._check()
    assert waiting_links(store, outbox, "p1") == links
    assert (
        sum(1 for _ in scan_prefix(store, b"o/")) == outbox.spools["p1"].committed - outbox.spools["p1"].acked
    )


def test_a_queue_is_compacted_at_its_limit_and_full_at_twice_its_limit() -> None:
    rng = random.Random(5)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    while outbox.bytes < CONFIG.spool_bytes_max:
        assert outbox.compaction() is None
        commit(store, outbox, [("p1", make_links(rng, 3))])
    compact(store, outbox)
    assert outbox.compaction() is None, (
        "no link was repeated, so the next one waits until the queue grows by half"
    )
    assert not outbox.full
    while outbox.bytes < 2 * CONFIG.spool_bytes_max:
        commit(store, outbox, [("p1", make_links(rng, 3))])
    assert outbox.full


@given(st.lists(st.integers(0, 40), max_size=200))
def test_first_occurrences_are_those_of_a_set(values: list[int]) -> None:
    import numpy as np

    seen: set[int] = set()
    expected = [not (value in seen or seen.add(value)) for value in values]
    assert first_occurrences(np.array(values, dtype=np.uint64)).tolist() == expected


def test_a_fresh_epoch_is_not_used_before_it_is_durable() -> None:
    rng = random.Random(6)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    commit(store, outbox, [("p1", make_links(rng, 3))])
    old = outbox.spools["p1"].state.epoch
    assert outbox.welcome("p1", old, 99, 0, 0) is Greeting.TAIL_LOST
    assert outbox.urgent
    assert outbox.welcome("p1", old, 0, 0, 0) is Greeting.STALE
    commit(store, outbox, [])
    assert not outbox.urgent
    assert outbox.welcome("p1", old, 0, 0, 0) is Greeting.STALE
    assert outbox.welcome("p1", outbox.spools["p1"].state.epoch, 0, 0, 0) is Greeting.GO_ON
    assert Outbox(store, ["p1"], CONFIG, rng).spools["p1"].state.epoch == outbox.spools["p1"].state.epoch


def test_two_groups_may_be_staged_before_the_first_is_reported_committed() -> None:
    rng = random.Random(7)
    store, receiver = MemoryStore(), Receiver()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    receiver.connect(outbox, "p1")
    links = make_links(rng, 6)
    for part in (links[:3], links[3:]):
        batch = store.batch(sync=True)
        outbox.write([("p1", part)])
        outbox.stage(batch)
        store.write(batch)
    assert outbox.spools["p1"].take_unsent()[1] == []
    outbox.committed()
    first, entries = outbox.spools["p1"].take_unsent()
    receiver.take(first, entries, 100)
    assert receiver.links == links[:3]
    outbox.committed()
    first, entries = outbox.spools["p1"].take_unsent()
    receiver.take(first, entries, 100)
    assert receiver.links == links
    outbox._check()


def test_each_committed_group_frees_its_own_entries() -> None:
    rng = random.Random(13)
    store = MemoryStore()
    outbox = Outbox(store, ["p1", "p2"], CONFIG, rng)
    for peer in ("p1", "p2"):
        batch = store.batch(sync=True)
        outbox.write([(peer, make_links(rng, 2))])
        outbox.stage(batch)
        store.write(batch)
    waiting = []
    for _ in range(2):
        outbox.committed()
        waiting.append({peer: spool.links for peer, spool in outbox.spools.items()})
    assert waiting == [{"p1": 2, "p2": 0}, {"p1": 2, "p2": 2}]


def test_a_confirmation_of_an_unsent_entry_is_a_protocol_error() -> None:
    rng = random.Random(8)
    store, receiver = MemoryStore(), Receiver()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    commit(store, outbox, [("p1", make_links(rng, 3))])
    receiver.connect(outbox, "p1")
    spool = outbox.spools["p1"]
    for call in (spool.acknowledge, spool.resync):
        with pytest.raises(ProtocolError):
            call(1)
    outbox._check()


def test_links_for_an_unknown_process_are_not_forgotten() -> None:
    rng = random.Random(9)
    store = MemoryStore()
    outbox = Outbox(store, ["p1", "p2"], CONFIG, rng)
    Outbox(store, ["p1"], CONFIG, rng)
    commit(store, outbox, [("p2", make_links(rng, 3))])
    with pytest.raises(DirectoryError, match="reshard"):
        Outbox(store, ["p1"], CONFIG, rng)


def test_damage_is_reported_by_name() -> None:
    rng = random.Random(10)
    store = MemoryStore()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    commit(store, outbox, [("p1", make_links(rng, 30))])
    keys = [key for key, _ in scan_prefix(store, b"o/")]
    assert len(keys) > 3
    whole = dict(store._data)
    with pytest.raises(DamageError, match="missing"):
        Outbox(
            MemoryStore({key: value for key, value in whole.items() if key != keys[1]}), ["p1"], CONFIG, rng
        )
    with pytest.raises(DamageError):
        Outbox(MemoryStore({**whole, state_key("p1"): b"\x01\x00\x00\x00\x00"}), ["p1"], CONFIG, rng)
    damaged = Outbox(MemoryStore({**whole, keys[0]: whole[keys[0]][:-1] + b"\xff\xff"}), ["p1"], CONFIG, rng)
    damaged.welcome("p1", damaged.spools["p1"].state.epoch, 0, 0, 0)
    with pytest.raises(DamageError):
        damaged.spools["p1"].take_unsent()


def test_memory_holds_no_more_than_a_window_a_connected_peer() -> None:
    rng = random.Random(11)
    store, receiver = MemoryStore(), Receiver()
    outbox = Outbox(store, ["p1"], CONFIG, rng)
    commit(store, outbox, [("p1", make_links(rng, 50))])
    spool = outbox.spools["p1"]
    assert not spool._recent
    receiver.connect(outbox, "p1")
    commit(store, outbox, [("p1", make_links(rng, 50))])
    assert sum(map(len, spool._recent)) <= CONFIG.window_bytes
    while spool.sent < spool.committed:
        first, entries = spool.take_unsent()
        receiver.take(first, entries, 100)
        spool.acknowledge(receiver.durable)
        assert spool.in_flight_bytes <= CONFIG.window_bytes
        commit(store, outbox, [("p1", make_links(rng, 1))] if rng.random() < 0.3 else [])
        outbox._check()


def test_totals_are_read_without_a_loop_over_the_queues() -> None:
    """Every heartbeat contains the totals over the queues. Every fetch and every group reads these totals, too."""
    rng = random.Random(1)
    store, peers = MemoryStore(), ["p1", "p2", "p3"]
    outbox = Outbox(store, peers, CONFIG, rng)
    commit(store, outbox, [(peer, make_links(rng, 3)) for peer in peers])
    # this confirms more entries than were sent
    outbox.welcome("p1", outbox.spools["p1"].state.epoch, 7, 0, 0)
    outbox._check()
    outbox.spools = Unread(outbox.spools)
    assert (outbox.links, outbox.appended, outbox.urgent) == (9, 9, True)
    assert outbox.bytes < CONFIG.spool_bytes_max and not outbox.full and outbox.compaction() is None
