"""Test the assembly of an answer from arriving bytes. The result does not depend on how the bytes are split."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import FetchConfig
from crawler.fetcher.answer import Answer, AnswerState

LIMITS = FetchConfig()

ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX: 1\r\n\r\nhello\r\n\r\nyou",
    b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5;x=y\r\nhello\r\n6\n world\n0\nT: 1\n\n",
    b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
    b"\r\nHTTP/1.0 200\r\nX: a\r\n b\r\n\r\nto the end",
    b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"<html>no header</html>\n\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\npla\r\n2\r\nin\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: x-gzip\r\n\r\n" + gzip.compress(b"packed") + b"garbage",
]


def received(pieces: list[bytes], *, end: bool = True) -> tuple[object, ...]:
    answer = Answer(LIMITS)
    for piece in pieces:
        if answer.receive(piece):
            break
    if end and answer.state is not AnswerState.DONE:
        answer.end()
    return (answer.head, answer.body, answer.content, answer.failure, answer.truncated, answer.state)


@settings(max_examples=300)
@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 130), max_size=12), st.integers(0, 130))
def test_the_answer_is_the_same_however_its_bytes_are_cut(data: bytes, cuts: list[int], length: int) -> None:
    """The parser receives the answer whole, in pieces and byte by byte. The connection may end early."""
    for part in (data, data[:length]):
        ends = [0, *sorted(cut for cut in cuts if cut < len(part)), len(part)]
        pieces = [part[a:b] for a, b in zip(ends, ends[1:], strict=False) if b > a]
        whole = received([part]) if part else received([])
        assert received(pieces) == whole
        assert received([bytes([byte]) for byte in part]) == whole


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_end_in_an_outcome(pieces: list[bytes]) -> None:
    """Arbitrary bytes, with or without a status line before them, cause no exception, and the answer ends."""
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        answer = Answer(LIMITS)
        for piece in [start, *pieces]:
            if piece and answer.receive(piece):
                break
        answer.end()
        assert answer.state is AnswerState.DONE
        assert answer.head is not None or answer.failure is not None


def test_a_flood_of_blank_lines_ends_at_once() -> None:
    answer = Answer(LIMITS)
    assert answer.receive(b"\r\n" * 30_000)
    assert answer.failure is not None


def test_bytes_after_the_end_make_the_connection_unusable() -> None:
    answer = Answer(LIMITS)
    answer.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert answer.reusable
    answer = Answer(LIMITS)
    answer.receive(b"HTTP/1.1 304 Same\r\n\r\n!")
    assert not answer.reusable


def test_tiny_chunks_are_bounded_in_number_and_memory() -> None:
    """A chunk of two bytes takes 7 bytes on the wire. But each read adds only a single piece in memory."""
    answer = Answer(FetchConfig())
    answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    flood, reads = b"2\r\nab\r\n" * 9000, 0
    while answer.state is not AnswerState.DONE:
        answer.receive(flood)
        reads += 1
        assert len(answer._held._pieces) <= reads <= 20
    assert (answer.truncated, answer.error) == ("length", "too many chunks for the payload")
    assert answer.wire_bytes < 1 << 20


def test_small_chunks_of_a_small_page_are_accepted() -> None:
    """A server may send a page of 20,000 bytes in chunks of one byte."""
    answer = Answer(FetchConfig())
    answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000)
    answer.receive(b"0\r\n\r\n")
    assert (answer.truncated, answer.body) == ("", b"x" * 20_000)


@pytest.mark.parametrize("content", [bytes(100 << 20), b"end"], ids=["bomb", "garbage after the end"])
def test_a_coded_transfer_is_bounded(content: bytes) -> None:
    """The payload ends at the limit of bodies. Bytes after the coded stream count as framing."""
    answer = Answer(LIMITS)
    answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" + gzip.compress(content, 1))
    while answer.state is not AnswerState.DONE:
        answer.receive(bytes(64 << 10))
    assert (answer.truncated, answer.body) == ("length", content[: LIMITS.body_bytes_max])
    assert answer.wire_bytes < 1 << 20


def test_body_and_content_are_joined_once() -> None:
    answer = Answer(FetchConfig())
    answer.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
    answer.receive(b"def")
    assert answer.body == b"abcdef" and answer.content is answer.body


def test_the_number_of_chunks_is_bounded_by_the_payload() -> None:
    """The framing of six-byte chunks is small, but without a bound they would take seconds of CPU time."""
    answer = Answer(FetchConfig())
    answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while answer.state is not AnswerState.DONE:
        answer.receive(b"6\r\nabcdef\r\n" * 5000)
    assert (answer.truncated, answer.error) == ("length", "too many chunks for the payload")
    assert answer.body_bytes < 400_000
    large = Answer(FetchConfig())
    large.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(90):
        large.receive(b"64\r\n%b\r\n" % (b"x" * 100) * 1000)
    large.receive(b"0\r\n\r\n")
    assert (large.truncated, large.body_bytes) == ("", 9_000_000)
