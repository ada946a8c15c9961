"""Test the inbox: each entry is applied once, in order, and confirmed only when it is durable."""

import random

import pytest

from crawler.config import SplitterConfig
from crawler.errors import DamageError
from crawler.splitter.inbox import Arrival, Inbox
from crawler.splitter.partition import Partition
from crawler.splitter.wire import NotOwnedError, ProtocolError, encode_entries
from crawler.storage.kv import MemoryStore
from tests.splitter.links import make_links

CONFIG = SplitterConfig(window_bytes=2000, frame_bytes_max=2000)
TABLE = Partition.equal_ranges(["p0", "p1"])
ONE, TWO = b"epoch--1", b"epoch--2"


def entry(count: int = 3, *, first: int = 0, last: int = 1 << 15) -> bytes:
    return encode_entries(make_links(random.Random(count), count, first=first, last=last), 1 << 20)[0][0]


def make(store: MemoryStore | None = None) -> tuple[MemoryStore, Inbox]:
    store = store or MemoryStore(keep_durable=True)
    return store, Inbox(store, TABLE, "p0", ["p1"], CONFIG)


def commit(store: MemoryStore, inbox: Inbox, received: list) -> None:
    batch = store.batch(sync=True)
    inbox.write(received)
    inbox.stage(batch)
    store.write(batch)
    inbox.committed()


def test_order_and_durability() -> None:
    store, inbox = make()
    assert inbox.greet("p1", ONE) == 0
    assert inbox.accept("p1", 2, entry()) is Arrival.GAP
    assert inbox.accept("p1", 1, entry()) is Arrival.QUEUED
    assert inbox.accept("p1", 1, entry()) is Arrival.REPEATED
    assert inbox.accept("p1", 2, entry(4)) is Arrival.QUEUED
    assert (inbox.accepted("p1"), inbox.durable("p1")) == (2, 0)
    received = inbox.take()
    assert [len(each.links) for each in received] == [3, 4]
    assert not inbox.waiting and inbox.greet("p1", ONE) is None
    commit(store, inbox, received[:1])
    assert inbox.durable("p1") == 1
    inbox._check()
    commit(store, inbox, received[1:])
    assert inbox.greet("p1", ONE) == 2
    assert inbox.applied == 7
    inbox._check()


def test_durable_entries_survive_and_the_rest_is_requested_again() -> None:
    store, inbox = make()
    inbox.greet("p1", ONE)
    for sequence in (1, 2, 3):
        inbox.accept("p1", sequence, entry(sequence))
    commit(store, inbox, inbox.take()[:2])
    _, again = make(MemoryStore(store.durable))
    assert again.greet("p1", ONE) == 2
    assert again.applied == 3


def test_a_new_epoch_begins_at_one_and_the_old_one_is_forgotten_only_then() -> None:
    store, inbox = make()
    inbox.greet("p1", ONE)
    inbox.accept("p1", 1, entry())
    commit(store, inbox, inbox.take())
    assert inbox.greet("p1", TWO) == 0
    _, again = make(MemoryStore(store.durable))
    assert again.greet("p1", ONE) == 1, "no entry of the new epoch was durable"
    assert inbox.accept("p1", 1, entry(5)) is Arrival.QUEUED
    commit(store, inbox, inbox.take())
    assert inbox.durable("p1") == 1
    _, again = make(MemoryStore(store.durable))
    assert again.greet("p1", ONE) == 0
    assert again.greet("p1", TWO) == 1
    assert again.applied == 8


def test_groups_staged_ahead_are_confirmed_one_by_one() -> None:
    store, inbox = make()
    inbox.greet("p1", ONE)
    inbox.accept("p1", 1, entry())
    inbox.accept("p1", 2, entry())
    received = inbox.take()
    for each in received:
        batch = store.batch()
        inbox.write([each])
        inbox.stage(batch)
        store.write(batch)
    assert inbox.durable("p1") == 0
    inbox.committed()
    assert inbox.durable("p1") == 1
    inbox.committed()
    assert inbox.durable("p1") == 2


def test_an_entry_with_a_foreign_link_is_refused_as_a_whole() -> None:
    _, inbox = make()
    inbox.greet("p1", ONE)
    with pytest.raises(NotOwnedError):
        inbox.accept("p1", 1, entry(9, last=1 << 16))
    assert inbox.accepted("p1") == 0 and not inbox.waiting
    inbox._check()


def test_more_than_twice_the_window_is_a_protocol_error() -> None:
    _, inbox = make()
    inbox.greet("p1", ONE)
    with pytest.raises(ProtocolError, match="unconfirmed"):
        for sequence in range(1, 1000):
            inbox.accept("p1", sequence, entry())
    inbox._check()  # also checks that the queued bytes are within their limit


def test_a_damaged_value_raises_a_damage_error() -> None:
    with pytest.raises(DamageError):
        make(MemoryStore({b"i/p1": b"\x01\x00\x00\x00\x00"}))
