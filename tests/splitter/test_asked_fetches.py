"""Test the answers to requests that a process makes for a peer: what arrives is what was sent, or an error."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.records import Fetch, Outcome, Rendering
from crawler.splitter.asked_fetches import decode_fetch, encode_fetch, is_too_long
from crawler.splitter.wire import ANSWER_BYTES_MAX, REQUEST_FIELDS_MAX, AskedRequest, ProtocolError
from crawler.storage.parts import Part, PartHead

URL = "http://a.org/robots.txt"


def answer(body: bytes) -> Fetch:
    return Fetch(
        URL, Outcome.FETCHED, status=200, headers=((b"A", b"\xff"),), body=body, content=body, began=1e9
    )


def test_an_answer_arrives_as_it_was_received() -> None:
    for body in (b"", b"User-agent: *\n", bytes(10 << 20)):
        assert decode_fetch(encode_fetch(answer(body))) == answer(body)


def test_an_answer_that_is_too_long_or_in_a_file_is_not_sent(tmp_path: Path) -> None:
    room = ANSWER_BYTES_MAX - len(encode_fetch(answer(b"")))
    assert encode_fetch(answer(b"x" * (room // 2 - 99)))
    assert encode_fetch(answer(b"x" * (room // 2 + 1))) == b""
    assert encode_fetch(msgspec.structs.replace(answer(b"x"), rendering=Rendering(dom=b""))) == b""
    part = Part(tmp_path / "part", PartHead(URL, 1e9, 200, "OK", "HTTP/1.1", ()))
    assert encode_fetch(msgspec.structs.replace(answer(b"x"), part=part)) == b""


def test_a_request_is_too_long_by_its_bytes_or_by_its_header_lines() -> None:
    request = AskedRequest(URL, "POST", body=bytes(900))
    size = len(msgspec.msgpack.encode(request))
    assert not is_too_long(request, size) and is_too_long(request, size - 1)
    for lines, long in ((REQUEST_FIELDS_MAX, False), (REQUEST_FIELDS_MAX + 1, True)):
        assert is_too_long(AskedRequest(URL, headers=("A: b",) * lines), 1 << 20) == long


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    for each in (garbage, encode_fetch(answer(b"x"))[:-3], msgspec.msgpack.encode({"url": 1})):
        with pytest.raises(ProtocolError):
            decode_fetch(each)
