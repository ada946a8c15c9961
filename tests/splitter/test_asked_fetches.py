"""Test the answers to requests that a process makes for a peer: what arrives is what was sent, or an error."""

import os
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.records import Fetch, Outcome
from crawler.splitter.asked_fetches import _BYTES_MAX, decode_fetch, encode_fetch
from crawler.splitter.wire import ProtocolError

URL = "http://a.org/robots.txt"
BYTES_MAX = 1 << 19


def answer(body: bytes) -> Fetch:
    return Fetch(
        URL, Outcome.FETCHED, status=200, headers=((b"A", b"\xff"),), body=body, content=body, began=1e9
    )


def test_an_answer_arrives_as_it_was_received() -> None:
    """A robots.txt of the maximum length fits into a frame."""
    for body in (b"", b"User-agent: *\n", b"Disallow: /some/path\n" * 24_000):
        assert decode_fetch(encode_fetch(answer(body), BYTES_MAX)) == answer(body)


def test_an_answer_that_is_too_long_is_not_sent() -> None:
    assert encode_fetch(answer(os.urandom(BYTES_MAX)), BYTES_MAX) == b""
    assert encode_fetch(answer(b"x" * _BYTES_MAX), BYTES_MAX) == b""


def test_an_answer_that_expands_too_far_is_refused() -> None:
    bomb = zlib.compress(msgspec.msgpack.encode(answer(b"x" * _BYTES_MAX)))
    with pytest.raises(ProtocolError, match="too long"):
        decode_fetch(bomb)
    with pytest.raises(ProtocolError, match="incomplete"):
        decode_fetch(encode_fetch(answer(b"x"), BYTES_MAX)[:-3])


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_garbage_is_refused(garbage: bytes, packed: bytes) -> None:
    for each in (garbage, zlib.compress(packed), zlib.compress(msgspec.msgpack.encode({"url": 1}))):
        with pytest.raises(ProtocolError):
            decode_fetch(each)
