"""Test that requests are parsed however their bytes are divided, and that invalid bytes are rejected."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.serve.request_reader import FIELDS_MAX, RequestReader, ServedRequest

LIMIT = 2048
GET = b"GET /page?url=x HTTP/1.1\r\nHost: a\r\nX: \xe2\x82\xac\xff\r\n\r\n"
HEAD = b"HEAD http://a.org/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
SIZED = b"POST /signal HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nGET / HTT"
CHUNKED = b"POST /s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nbody\r\n1\r\n.\r\n0\r\nTrailer: t\r\n\r\n"
# For each request: method, target, version, body.
WHOLE = {
    GET: ("GET", "/page?url=x", (1, 1), b""),
    HEAD: ("HEAD", "http://a.org/", (1, 0), b""),
    SIZED: ("POST", "/signal", (1, 1), b"GET / HTT"),
    CHUNKED: ("POST", "/s", (1, 1), b"body."),
}


def said(requests: list[ServedRequest]) -> list[tuple[object, ...]]:
    return [(each.method, each.raw_path, each.version, b"".join(each.take())) for each in requests]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(list(WHOLE)), min_size=1, max_size=6), st.data())
def test_requests_may_be_cut_anywhere(sent: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=8)))
    reader, found = RequestReader(LIMIT), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[begin:end])
    assert said(found) == [WHOLE[each] for each in sent]
    assert all(each.complete and each.keep_alive and not each.broken for each in found)
    assert reader.at_rest and reader.refusal is None and not reader.busy


def test_requests_that_arrive_byte_by_byte() -> None:
    reader, found = RequestReader(LIMIT), []
    for byte in GET + CHUNKED + GET:
        found += reader.feed(bytes([byte]))
    assert said(found) == [WHOLE[GET], WHOLE[CHUNKED], WHOLE[GET]]
    assert found[0].headers["x"] == "\u20ac\udcff" and found[0].headers.getall("HOST") == ["a"]
    assert "Trailer" not in found[1].headers and not any(each.raw for each in found)


def test_only_a_request_that_arrived_alone_keeps_its_bytes() -> None:
    """`ClientHeadersCache` remembers the bytes of such a request, so they must not contain another request or a body."""
    assert RequestReader(LIMIT).feed(GET)[0].raw == GET
    for parts in (
        [GET + GET],
        [GET[:9], GET[9:]],
        [SIZED],
        [CHUNKED],
        [b"\r\n", GET],
        [b"\r\n" + GET + b"\r\n"],
    ):
        reader, found = RequestReader(LIMIT), []
        for part in parts:
            found += reader.feed(part)
        assert found and not any(each.raw for each in found), parts


@pytest.mark.parametrize(
    "data",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\nHost: a\n\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n",
     b"GET /a b HTTP/1.1\r\n\r\n", b"GET /\x01 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX : a\r\n\r\n",
     b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", b"GET / HTTP/1.1\r\nX: \0\r\n\r\n", b"GET / HTTP/1.1\rX: a\r\n\r\n",
     b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
     b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
     b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n",
     b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, x\r\n\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_invalid_requests_are_rejected(data: bytes, step: int) -> None:
    reader, found = RequestReader(LIMIT), []
    for begin in range(0, len(data), step):
        found += reader.feed(data[begin : begin + step])
    assert reader.refusal is not None and reader.refusal.status == 400
    assert all(each.broken for each in found), "a request whose body can never arrive is not complete"
    assert reader.feed(GET) == [] and not reader.at_rest


@pytest.mark.parametrize(
    "data",
    [GET[:-2] + b"Y: " + b"a" * LIMIT + b"\r\n\r\n", GET[:-2] + b"Y: a\r\n" * (FIELDS_MAX - 1) + b"\r\n",
     b"GET /" + b"a" * LIMIT + b" HTTP/1.1\r\n\r\n", b"\r\n" * LIMIT, GET[:-2] + b"Y: " + b"a" * LIMIT,
     CHUNKED[:-2] + b"Y: " + b"a" * LIMIT + b"\r\n\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("step", [7, 1 << 20])
def test_a_header_that_is_too_long(data: bytes, step: int) -> None:
    """The limit applies to complete headers and to headers that never end."""
    reader = RequestReader(LIMIT)
    for begin in range(0, len(data), step):
        reader.feed(data[begin : begin + step])
    assert reader.refusal is not None and reader.refusal.status == 431
    fits = RequestReader(LIMIT)
    assert fits.feed(GET[:-2] + b"Y: a\r\n" * (FIELDS_MAX - 2) + b"\r\n") and fits.refusal is None


@pytest.mark.parametrize(
    "request_text",
    [b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", GET[:-2] + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"],
)
def test_requests_for_other_protocols_are_not_followed(request_text: bytes) -> None:
    """The request is answered as if it had no Upgrade field. Later bytes on the connection are ignored."""
    reader = RequestReader(LIMIT)
    (request,) = reader.feed(request_text + b"\x00\x01")
    assert request.complete and not request.keep_alive and reader.feed(GET) == []
    assert reader.ended and not reader.at_rest and reader.refusal is None


def test_a_header_may_be_as_long_as_the_limit() -> None:
    """The limit is for the sum of the target and the fields. For each field, four bytes are added for its separators.

    Each request has its own limit.
    """
    fits = b"GET /%b HTTP/1.1\r\nY: %b\r\n\r\n" % (b"a" * 99, b"b" * (LIMIT - 100 - 5))
    reader = RequestReader(LIMIT)
    assert len(reader.feed(fits * 3)) == 3 and reader.refusal is None
    assert reader.feed(fits.replace(b"Y: ", b"Y: b")) == [] and reader.refusal is not None
    junk = RequestReader(LIMIT)
    junk.feed(b"\r\n" * (LIMIT // 2))
    assert junk.refusal is None and not junk.at_rest
    junk.feed(b"\r")
    assert junk.refusal is not None and junk.refusal.status == 431


def test_a_body_that_ends_too_early_is_broken() -> None:
    reader = RequestReader(LIMIT)
    (request,) = reader.feed(SIZED[:-3])
    assert reader.busy and request.held == 6 and not request.broken
    reader.end()
    assert request.broken and not request.complete and reader.feed(SIZED[-3:]) == [] and not request.complete
    reader = RequestReader(LIMIT)
    (request,) = reader.feed(CHUNKED[:60])
    reader.feed(b"no chunk\r\n")
    assert request.broken and reader.refusal is not None


@pytest.mark.parametrize(
    ("after", "status"),
    [(b"BREW / HTTP/1.1\r\n\r\n", 501), (b"\r\nBREW / HTTP/1.1\r\n\r\n", 501), (b"nonsense\r\n\r\n", 400)],
)
@pytest.mark.parametrize("cut", range(1, 7))
def test_a_method_behind_the_end_of_a_body_is_judged_from_its_first_byte(
    after: bytes, status: int, cut: int
) -> None:
    """An unknown method that arrived together with the end of a body once got 400."""
    reader = RequestReader(LIMIT)
    (request,) = reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n" + b"a b\ncd"[:cut])
    reader.feed(b"a b\ncd"[cut:] + after)
    assert reader.refusal is not None and reader.refusal.status == status
    assert request.complete and b"".join(request.take()) == b"a b\ncd"


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501), (b"get / HTTP/1.1\r\n\r\n", 501), (b"GETT / HTTP/1.1\r\n\r\n", 501),
     (b"\r\nDESCRIBE / HTTP/1.1\r\n\r\n", 501), (b"A" * 60 + b" / HTTP/1.1\r\n\r\n", 501),
     (GET + b"BREW / HTTP/1.1\r\n\r\n", 501),
     (b"A" * 100 + b" / HTTP/1.1\r\n\r\n", 400), (b"nonsense\r\n\r\n", 400), (b"\x16\x03\x01\x02", 400),
     (b"G@T / HTTP/1.1\r\n\r\n", 400),
     (GET + b"nonsense\r\n\r\n", 400), (GET + GET + b"BR\r\n", 400), (b"SSH-2.0-OpenSSH_9.6\r\n", 400)],
)  # fmt: skip
def test_a_method_that_no_server_knows_gets_501_and_other_bytes_400(data: bytes, status: int) -> None:
    """RFC 9110, 15.6.2. Requests in front of such a request are answered first."""
    reader = RequestReader(LIMIT)
    found = reader.feed(data)
    assert reader.refusal is not None and reader.refusal.status == status
    assert len(found) == data.count(b"Host: a\r\n") - data.startswith(b"BREW")
    for cut in range(1, len(data)):
        pieces = RequestReader(LIMIT)
        assert len(pieces.feed(data[:cut]) + pieces.feed(data[cut:])) == len(found)
        assert pieces.refusal is not None and pieces.refusal.status == status, cut
        assert not pieces.at_rest
    bytewise = RequestReader(LIMIT)
    for byte in data:
        bytewise.feed(bytes([byte]))
    assert bytewise.refusal is not None and bytewise.refusal.status == status
