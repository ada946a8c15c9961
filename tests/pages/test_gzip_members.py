"""Test that any reader can read the gzip member of a record, and that its parts can be read alone."""

import gzip
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import DamageError
from crawler.pages import gzip_members, reading, warc

LEVELS = [0, 1, 2, 3, 4, 9]
TEXT = " ".join(random.Random(1).choices(["page", "of", "some", "words", "\r\n\r\n"], k=3000)).encode()
UNEVEN = random.Random(3).randbytes(5000) + bytes(100_000) + TEXT
CODED = gzip.compress(random.Random(2).randbytes(5000))


def _response(payload: bytes, *fields: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the head of a WARC record, which includes the HTTP fields, and the whole record."""
    head = warc.http_head(b"HTTP/1.1 200 OK", [(b"Content-Type", b"text/html"), *fields])
    target = warc.target_fields("http://site.example/", "127.0.0.1", "HTTP/1.1")
    record = warc.response(
        warc.Heading(b"<urn:uuid:1>", b"2026-11-24T00:00:00Z", target), head, payload, bytes(20)
    )
    return record[: -len(payload) - 4], record


def _member(record: bytes, level: int = 1) -> bytes:
    return gzip_members.compressor(level)(record)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fields", [(), ((b"Content-Encoding", b"gzip"),)])
@pytest.mark.parametrize("payload", [TEXT, CODED, UNEVEN])
def test_each_part_of_a_member_can_be_read_alone(
    level: int, payload: bytes, fields: tuple[tuple[bytes, bytes], ...]
) -> None:
    head, record = _response(payload, *fields)
    member = _member(record, level)
    assert zlib.decompress(member, 31) == gzip.decompress(member) == reading.expand(member) == record
    parts = gzip_members.parts(member)
    assert parts is not None
    assert (parts.head(), parts.payload()) == (head, payload)
    for length in (0, 1, 4999, len(payload) - 1, len(payload)):
        assert parts.payload(length) == payload[:length]
    assert gzip.decompress(parts.gzip()) == payload
    assert len(parts.gzip()) == parts.gzip_length


@given(st.binary(max_size=3000), st.sampled_from(LEVELS))
def test_any_payload_survives(payload: bytes, level: int) -> None:
    head, record = _response(payload)
    member = _member(record, level)
    assert reading.expand(member) == record
    parts = gzip_members.parts(member)
    assert (parts is None) == (len(payload) < gzip_members.PAYLOAD_BYTES_MIN)
    if parts is not None:
        assert (parts.head(), parts.payload(), gzip.decompress(parts.gzip())) == (head, payload, payload)


@given(st.binary(max_size=3000), st.sampled_from(LEVELS))
def test_any_bytes_can_be_stored_as_a_member(data: bytes, level: int) -> None:
    assert reading.expand(_member(data, level)) == data


def test_the_dom_of_a_page_is_a_part_of_its_member() -> None:
    html = b"text/html; charset=utf-8"
    record = warc.resource(
        b"<urn:uuid:1>", b"2026-11-24T00:00:00Z", "urn:dom:http://s/", b"<urn:1>", html, TEXT
    )
    parts = gzip_members.parts(_member(record))
    assert parts is not None
    assert parts.payload() == TEXT


def test_a_coded_payload_is_stored_as_it_is() -> None:
    """A coded payload is not compressed again, because this would save nothing.

    If a payload does not have the coding that its header states, it is compressed.
    """
    head, record = _response(CODED, (b"content-encoding", b"gzip"))
    assert CODED in _member(record)
    _, record = _response(TEXT, (b"Content-Encoding", b"gzip"))
    assert len(_member(record)) < len(TEXT) / 2


def test_members_without_parts_are_read_as_a_whole() -> None:
    _, record = _response(TEXT)
    for other in (
        gzip.compress(record),
        gzip.compress(record)[:20],
        b"",
        _member(record)[:40],
        _member(record) + b"more",
        _member(_response(b"short")[1]),
    ):
        assert gzip_members.parts(other) is None


def test_damage_is_found() -> None:
    """If any byte of a member is changed, the reader returns the right parts or no parts, or raises an error."""
    head, record = _response(TEXT[:1500])
    member = _member(record)
    found = 0
    for at in range(len(member)):
        broken = bytearray(member)
        broken[at] ^= 0x10
        parts = gzip_members.parts(bytes(broken))
        if parts is None:
            continue
        try:
            payload = parts.payload()
        except DamageError:
            found += 1
            continue
        assert payload == TEXT[:1500]
        assert parts.length == 1500
    assert found > 200
    parts = gzip_members.parts(member.replace(member[40:60], bytes(20)))
    assert parts is not None
    with pytest.raises(DamageError):
        parts.head()
