"""Test that valid frames and messages are decoded unchanged, and that all others raise a ProtocolError."""

import random
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.records import Link
from crawler.splitter import wire
from crawler.splitter.wire import (
    MAGIC,
    Ack,
    Challenge,
    Counters,
    Entries,
    FrameReader,
    Heartbeat,
    Hello,
    Open,
    OversizeError,
    ProtocolError,
    Reason,
    Refuse,
    Resync,
    TagError,
    Tagger,
    Welcome,
    decode_entry,
    encode_entries,
    encode_frame,
    link_count,
)
from tests.splitter.links import make_links

COUNTERS = Counters(
    b"boot", 7, 6, b"other", idle=True, outbox=1, appended=1 << 62, applied=3, pages=4, bytes=5, work=6
)
MESSAGES = [
    Open(MAGIC, 1, b"n" * 32),
    Challenge(b"m" * 32),
    Hello("crawl", "p0", "p1", b"boot", 3, b"d" * 16, 1, b"c" * 8, b"e" * 8),
    Welcome(b"boot", 12, 0),
    Refuse(Reason.TABLE, "tables differ: ä"),
    Entries(1, [b"", b"x" * 1000]),
    Ack(9, COUNTERS),
    Resync(4),
    Heartbeat(COUNTERS),
]


def encode_all(messages: list, key: bytes = b"") -> bytes:
    tagger = Tagger(key)
    return b"".join(encode_frame(message, tagger) for message in messages)


def read_all(reader: FrameReader) -> list:
    return list(iter(reader.next_message, None))


def test_bytes_fed_singly_or_whole_give_the_same_messages() -> None:
    stream = encode_all(MESSAGES)
    whole = FrameReader(1 << 20)
    whole.feed(stream)
    assert read_all(whole) == MESSAGES
    single = FrameReader(1 << 20)
    found = []
    for byte in stream:
        single.feed(bytes([byte]))
        found += read_all(single)
    assert found == MESSAGES
    assert len(single) == len(whole) == 0


@given(st.lists(st.integers(0, 400), max_size=12), st.randoms(use_true_random=False))
def test_any_cut_of_the_stream_gives_the_same_messages(cuts: list[int], rng: random.Random) -> None:
    stream = encode_all(MESSAGES, b"key")
    places = sorted({0, len(stream), *(min(cut * 5, len(stream)) for cut in cuts)})
    reader = FrameReader(1 << 20)
    reader.tagger.rekey(b"key")
    found = []
    for start, stop in zip(places, places[1:], strict=False):
        reader.feed(stream[start:stop])
        found += read_all(reader)
    assert found == MESSAGES


def test_the_bytes_of_a_frame_are_those_of_its_definition() -> None:
    """In the golden value, length, type and MessagePack were written by hand; openssl computed the tag.

    printf '\\0\\0\\0\\0\\0\\0\\0\\0\\x08\\x91\\x04' | openssl dgst -sha256 -mac HMAC -macopt hexkey:6b6579
    """
    frame = encode_frame(Resync(4), Tagger(b"key"))
    assert frame[:7] == b"\x00\x00\x00\x13\x08\x91\x04"
    assert frame[7:].hex() == GOLDEN_TAG


GOLDEN_TAG = "7bde27f1328c8e224a75dda0a245637c"


@pytest.mark.parametrize("length", [0, 16, (1 << 20) + 1, 0xFFFFFFFF])
def test_a_length_out_of_bounds_is_refused_before_bytes_are_kept(length: int) -> None:
    reader = FrameReader(1 << 20)
    reader.feed(length.to_bytes(4, "big"))
    with pytest.raises(OversizeError):
        reader.next_message()


def test_unidentified_peers_have_a_small_frame_limit() -> None:
    reader = FrameReader()
    reader.feed((wire.HANDSHAKE_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(OversizeError):
        reader.next_message()


def test_a_repeated_dropped_or_swapped_frame_has_a_wrong_tag() -> None:
    frames = [encode_frame(Resync(n), tagger) for tagger in [Tagger(b"k")] for n in range(3)]
    for order in ([0, 0], [1], [0, 2], [1, 0]):
        reader = FrameReader()
        reader.tagger.rekey(b"k")
        reader.feed(b"".join(frames[index] for index in order))
        with pytest.raises(TagError):
            read_all(reader)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_every_changed_byte_is_noticed(place: int, change: int) -> None:
    stream = bytearray(encode_all(MESSAGES, b"key"))
    stream[place % len(stream)] ^= change
    reader = FrameReader(1 << 20)
    reader.tagger.rekey(b"key")
    reader.feed(bytes(stream))
    with pytest.raises(ProtocolError):
        read_all(reader)
        assert len(reader), "a changed frame was accepted"
        raise TagError("the changed length is larger: the reader waits for more bytes")


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\xff\xff\xff\xff",  # announces 4 thousand million elements
        b"\xc6\xff\xff\xff\xff",  # announces 4 GiB of bytes
        b"\x91" * 4000,  # arrays that are nested deeper than the stack of any parser
        b"",
        b"\x92\x01\x91\xc6\xff\xff\xff\xff",
        msgspec.msgpack.encode([-1, []]),
        msgspec.msgpack.encode([1 << 63, []]),
        msgspec.msgpack.encode([1, [], 3]),  # has one field too many
    ],
)
def test_hostile_payloads_raise_a_protocol_error(payload: bytes) -> None:
    content = bytes([wire.Frame.ENTRIES]) + payload
    reader = FrameReader(1 << 20)
    reader.feed((len(content) + 16).to_bytes(4, "big") + content + Tagger().tag(content))
    with pytest.raises(ProtocolError):
        reader.next_message()


@given(st.integers(0, 80), st.integers(30, 1500), st.randoms(use_true_random=False))
def test_entries_hold_the_links_in_order_within_the_bound(count: int, bound: int, rng: random.Random) -> None:
    links = make_links(rng, count)
    entries = encode_entries(links, bound)
    assert [link for entry, _ in entries for link in decode_entry(entry)] == links
    for entry, number in entries:
        assert number == link_count(entry) == len(decode_entry(entry))
        assert len(entry) <= bound or number == 1


def test_entries_are_well_filled() -> None:
    links = make_links(random.Random(1), 20_000)
    entries = encode_entries(links, 8192)
    assert sum(len(entry) for entry, _ in entries) > 0.75 * 8192 * len(entries)


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_link_count_reads_every_form_of_the_header(count: int) -> None:
    ((entry, number),) = encode_entries([Link(1, "u")] * count, 1 << 30)
    assert link_count(entry) == number == count


def sealed(payload: bytes) -> bytes:
    return b"\x01" + zlib.crc32(payload).to_bytes(4, "little") + payload


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x01\x00\x00\x00\x00",
        b"\x02" + sealed(msgspec.msgpack.encode([]))[1:],
        sealed(b"\xdd\xff\xff\xff\xff"),
        sealed(b"\x91\x97\x01\xa1a\x00\x00\x00\x00" + b"\x91" * 100_000),
        sealed(msgspec.msgpack.encode([[-1, "u", 0, 0, 0, 0]])),
        sealed(msgspec.msgpack.encode([[1, "u", -1, 0, 0, 0]])),
        sealed(msgspec.msgpack.encode([[1, "u", 0, -1, 0, 0]])),
        sealed(msgspec.msgpack.encode([[1, "u", 0, 0, 1 << 40, 0]])),
        sealed(msgspec.msgpack.encode([[1, "u", 0, 0, 0, -1]])),
        sealed(msgspec.msgpack.encode([[1, 2, 0, 0, 0, 0]])),
        sealed(b"\x91\x92\x01\xa1\xff"),
    ],
)
def test_impossible_entries_raise_a_protocol_error(entry: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_entry(entry)


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_a_damaged_entry_is_noticed(noise: bytes, place: int) -> None:
    ((entry, _),) = encode_entries(make_links(random.Random(3), 20), 1 << 20)
    at = place % len(entry)
    damaged = entry[:at] + noise + entry[at + len(noise) :]
    if damaged != entry:
        with pytest.raises(ProtocolError):
            decode_entry(damaged)
