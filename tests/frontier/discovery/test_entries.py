"""Test queue entries: their order, their keys, and the short form of their URLs."""

import zlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crawler.errors import DamageError
from crawler.frontier.discovery.entries import (
    DEPTH_MAX,
    Todo,
    decode,
    encode,
    entry_key,
    join_url,
    make_key,
    make_order,
    order_depth,
    read_queue,
    record,
    split_authority,
    split_url,
)
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import NO_ORDER
from crawler.storage.keys import TODO
from crawler.storage.kv import MemoryStore


@pytest.mark.parametrize(
    ("url", "name", "tail"),
    [
        ("https://a.org/", "a.org", "/"),
        ("http://a.org/x?y=http://b.org/", "a.org", "h/x?y=http://b.org/"),
        ("https://a.org:8443/x", "a.org", ":8443/x"),
        ("http://[2001:db8::1]:81/x", "[2001:db8::1]", "h:81/x"),
        ("https://[::1]/", "[::1]", "/"),
        ("http://10.0.0.1/:", "10.0.0.1", "h/:"),
        ("http://https/", "https", "h/"),
    ],
)
def test_short_form(url: str, name: str, tail: str) -> None:
    assert split_url(url) == (name, tail)
    assert join_url(name, tail) == url


def test_split_authority() -> None:
    assert split_authority("http://[::1]:81/a?b") == ("http://[::1]:81", "/a?b")


NUMBERS = st.tuples(st.integers(0, 255), st.integers(0, 70_000), st.integers(1, (1 << 40) - 1))


@given(NUMBERS, NUMBERS)
def test_order_is_by_priority_then_depth_then_age(
    one: tuple[int, int, int], two: tuple[int, int, int]
) -> None:
    low, high = ((p, min(d, DEPTH_MAX), s) for p, d, s in (one, two))
    assert (make_order(*one) < make_order(*two)) == (low < high)
    assert order_depth(make_order(*one)) == min(one[1], DEPTH_MAX)
    assert make_order(*one) < NO_ORDER


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, NO_ORDER - 1)), max_size=8))
def test_keys_sort_by_host_and_order(pairs: list[tuple[int, int]]) -> None:
    keys = [make_key(TODO, host, order) for host, order in pairs]
    assert sorted(keys) == [make_key(TODO, host, order) for host, order in sorted(pairs)]
    assert keys == [entry_key(TODO + host.to_bytes(8, "big"), order) for host, order in pairs]


def test_reading_stays_within_one_host() -> None:
    """The hosts whose keys are tested are the first two and the last two of the key space."""
    hosts = [0, 1, (1 << 64) - 2, (1 << 64) - 1]
    store = MemoryStore()
    batch = store.batch()
    for host in hosts:
        for order in range(5):
            batch.put(*record(TODO + host.to_bytes(8, "big"), order, Todo(f"/{host}/{order}", order)))
    batch.put(b"t0", b"no entry")
    store.write(batch)
    for host in hosts:
        found = list(read_queue(store, TODO + host.to_bytes(8, "big"), 2))
        assert [(order, entry.tail) for order, entry in found] == [(n, f"/{host}/{n}") for n in (2, 3, 4)]


def test_a_damaged_entry_is_reported_by_its_key() -> None:
    for entry in (Todo("/a", 1), Todo("/a", 1, attempt=1)):
        key, value = record(TODO + bytes(8), 1, entry)
        for bit in range(8 * len(value)):
            damaged = bytearray(value)
            damaged[bit >> 3] ^= 1 << (bit & 7)
            with pytest.raises(DamageError, match="t/"):
                decode(key, bytes(damaged))


WORDS, BYTES = st.integers(0, (1 << 64) - 1), st.integers(0, 255)


@given(
    tail=st.tuples(st.sampled_from(["/", ":81/", "h/", "h:8080/"]), st.text()).map("".join),
    host=WORDS,
    fingerprint=WORDS,
    beside=st.booleans(),
    via=WORDS,
    rest=st.one_of(st.just((0,) * 6), st.tuples(BYTES, BYTES, BYTES, st.integers(0, 1 << 40), BYTES, BYTES)),
)
def test_entries_survive_encoding_and_decoding(
    tail: str, host: int, fingerprint: int, beside: bool, via: int, rest: tuple[int, ...]
) -> None:
    """The short form is used if only `tail`, `via` and `fingerprint` are set, and if the key has the same bucket."""
    assume(tail.isprintable())  # lone surrogates, for example, are not printable, and no URL contains them
    low = (1 << 48) - 1
    if beside:
        fingerprint = host & ~low | fingerprint & low
    entry = Todo(tail, fingerprint, via, *rest)
    key, value = record(TODO + host.to_bytes(8, "big"), 7, entry)
    assert decode(key, value) == entry
    is_short = not any(rest) and fingerprint & ~low == host & ~low
    assert (value[5:] == tail.encode() + value[-14:]) == is_short


def test_the_stored_form_of_an_entry() -> None:
    """The expected checksum is computed with zlib.crc32; the other expected bytes were computed by hand."""
    key = bytes.fromhex("742f0102 0000000000ff80 0001 0000000007")
    payload = b"h/a?b" + bytes.fromhex("0800000000000000eeffc0de0000")
    value = b"\x01" + zlib.crc32(payload).to_bytes(4, "little") + payload
    entry = Todo("h/a?b", 0x0102_0000_DEC0_FFEE, 8)
    assert encode(key, entry) == value and decode(key, value) == entry


def test_entries_of_earlier_versions_can_be_read() -> None:
    """Version 0.1.0 stored every entry as an array of nine fields."""
    key = bytes.fromhex("742f0102 0000000000ff80 0001 0000000007")
    payload = bytes.fromhex("99a22f61cf01020000dec0ffee08000001ce650000000002")
    value = b"\x01" + zlib.crc32(payload).to_bytes(4, "little") + payload
    assert decode(key, value) == Todo(
        "/a", 0x0102_0000_DEC0_FFEE, 8, attempt=1, retry_at=0x65000000, strikes=2
    )
    plain = bytes.fromhex("99a22f61cf01020000dec0ffee08000000000000")
    value = b"\x01" + zlib.crc32(plain).to_bytes(4, "little") + plain
    assert decode(key, value) == Todo("/a", 0x0102_0000_DEC0_FFEE, 8)


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 5), st.integers(1, 4))
def test_spilling_and_reading_again_loses_nothing(orders: set[int], keep: int, count: int) -> None:
    store = MemoryStore()
    batch = store.batch()
    host = FrontHost(0, 9, "a.org", 0, NO_ORDER)
    for order in sorted(orders):
        batch.put(*record(TODO + (9).to_bytes(8, "big"), order, Todo(f"/{order}", order)))
        host.push(order, Todo(f"/{order}", order))
    store.write(batch)
    if len(orders) > 3:
        host.put_off_first(50.0, 10)
        host.put_off_first(10.0, 10)
    if len(host.queue) > keep:
        host.spill(keep)
    found = []
    for now in range(0, 1000, 5):
        host.recall(now)
        if not host.queue and host.read_to != NO_ORDER:
            host.read_ahead(store, count, now, 10)
        if host.queue:
            found.append(host.take_first()[0])
            batch = store.batch()
            batch.delete(make_key(TODO, 9, found[-1]))
            store.write(batch)
            host.busy = None
        assert host.cursor() <= min(orders - set(found), default=NO_ORDER)
    assert sorted(found) == sorted(orders)


def test_spilling_again_skips_no_entry_that_was_never_read() -> None:
    """An entry that was moved into memory may lie beyond `read_to`.

    The entries between `read_to` and this entry are only on disk.
    """
    host = FrontHost(0, 9, "a.org", 0, 10)
    for order in (1, 2):
        host.push(order, Todo(f"/{order}", order))
    host.postpone(5.0, (30, Todo("/30", 30)))
    host.recall(5.0)
    host.spill(2)
    assert host.read_to == 10 and [order for order, _ in host.queue] == [1, 2]
