"""Test the client against a misbehaving server (`fetcher/README.md`)."""

import asyncio
import gzip
import socket
import time

import pytest

from crawler.config import ByteCount, IdentityConfig, NetworkConfig, Seconds
from crawler.fetcher.connection import READ_BYTES, REST_BYTES, SHORT_BYTES, Connection
from crawler.fetcher.fetch_request import FetchRequest
from crawler.records import Blame, Fetch, Outcome
from tests.fetcher.scripted import HASTY, OK, PATIENT, Do, Server, fetch, make_client, run, small


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((status, *lines, "", "")).encode("latin-1")


def test_a_plain_answer_fills_the_record() -> None:
    got = fetch(
        b"HTTP/1.1 200 Fine\r\nContent-Type: Text/HTML; Charset=UTF-8\r\nX-Y: 1\r\n"
        b"Content-Length: 5\r\n\r\nhello"
    )
    assert (got.outcome, got.blame, got.status, got.reason) == (Outcome.FETCHED, Blame.NONE, 200, "Fine")
    assert got.version == "HTTP/1.1"
    assert got.headers == (
        (b"Content-Type", b"Text/HTML; Charset=UTF-8"),
        (b"X-Y", b"1"),
        (b"Content-Length", b"5"),
    )
    assert (got.body, got.content, got.content_type, got.charset) == (
        b"hello",
        b"hello",
        "text/html",
        "utf-8",
    )
    assert (got.truncated, got.address, got.error, got.tls_ok) == ("", "127.0.0.1", "", True)
    assert got.wire_bytes == 93
    assert got.request_head.startswith(b"GET / HTTP/1.1\r\nHost: host.test:")


# The rows of the table in `fetcher/README.md`, "Status and outcome".
STATUSES = [
    ("HTTP/1.1 203 Non-Authoritative", "x", Outcome.FETCHED, Blame.NONE),
    ("HTTP/1.1 299 Odd", "x", Outcome.FETCHED, Blame.NONE),
    ("HTTP/1.1 200 OK", "", Outcome.EMPTY, Blame.NONE),
    ("HTTP/1.1 205 Reset Content", "", Outcome.EMPTY, Blame.NONE),
    ("HTTP/1.1 206 Partial Content", "x", Outcome.UNEXPECTED_STATUS, Blame.NONE),
    ("HTTP/1.1 300 Multiple Choices", "x", Outcome.BAD_REDIRECT, Blame.NONE),
    ("HTTP/1.1 301 Moved", "x", Outcome.BAD_REDIRECT, Blame.NONE),
    ("HTTP/1.1 305 Use Proxy", "x", Outcome.BAD_REDIRECT, Blame.NONE),
    ("HTTP/1.1 306 Unused", "x", Outcome.BAD_REDIRECT, Blame.NONE),
    ("HTTP/1.1 404 Not Found", "x", Outcome.GONE, Blame.NONE),
    ("HTTP/1.1 410 Gone", "x", Outcome.GONE, Blame.NONE),
    ("HTTP/1.1 400 Bad", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 401 Unauthorized", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 401 Pay\r\nWWW-Authenticate: License error=x", "x", Outcome.LICENSE_REQUIRED, Blame.NONE),
    ("HTTP/1.1 401 Pay\r\nWWW-Authenticate: Licensee", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    (
        "HTTP/1.1 401 Pay\r\nWWW-Authenticate: Basic\r\nwww-authenticate: LICENSE",
        "x",
        Outcome.LICENSE_REQUIRED,
        Blame.NONE,
    ),
    ("HTTP/1.1 403 Pay\r\nWWW-Authenticate: License", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 403 Forbidden", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 407 Proxy", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 451 Legal", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 499 Odd", "x", Outcome.CLIENT_ERROR, Blame.NONE),
    ("HTTP/1.1 408 Timeout", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 500 Error", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 502 Bad Gateway", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 504 Gateway", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 522 Cloudflare", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 599 Odd", "x", Outcome.TEMPORARY, Blame.URL),
    ("HTTP/1.1 429 Too Many", "x", Outcome.HOST_BUSY, Blame.HOST),
    ("HTTP/1.1 503 Unavailable", "x", Outcome.HOST_BUSY, Blame.HOST),
    ("HTTP/1.1 600 Odd", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 999 Denied", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 099 Low", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 99 Low", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 000 None", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 abc Hm", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 2000 Long", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1 -20 Minus", "x", Outcome.BAD_STATUS, Blame.NONE),
    ("HTTP/1.1", "x", Outcome.FRAMING, Blame.URL),
]


@pytest.mark.parametrize(("line", "body", "outcome", "blame"), STATUSES, ids=[row[0] for row in STATUSES])
def test_status_table(line: str, body: str, outcome: Outcome, blame: Blame) -> None:
    got = fetch(head(f"Content-Length: {len(body)}", status=line) + body.encode())
    assert (got.outcome, got.blame) == (outcome, blame)


def test_204_and_304_have_no_body_whatever_their_length_field() -> None:
    for status, etag, outcome in (("204 None", "", Outcome.EMPTY), ("304 Same", '"e"', Outcome.UNCHANGED)):
        got = fetch(head("Content-Length: 999", status=f"HTTP/1.1 {status}"), etag=etag)
        assert (got.outcome, got.body, got.truncated) == (outcome, b"", "")


def test_an_unsolicited_304_is_an_error() -> None:
    assert fetch(head(status="HTTP/1.1 304 Same")).outcome is Outcome.UNEXPECTED_STATUS


@pytest.mark.parametrize(
    ("count", "outcome"), [(1, Outcome.FETCHED), (16, Outcome.FETCHED), (17, Outcome.UNEXPECTED_STATUS)]
)
def test_interim_answers_are_skipped_up_to_16(count: int, outcome: Outcome) -> None:
    kinds = [b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>", b"HTTP/1.1 100 Continue", b"HTTP/1.1 199 Odd"]
    interim = b"".join(kinds[number % 3] + b"\r\n\r\n" for number in range(count))
    assert fetch(interim, OK).outcome is outcome


async def test_an_unsolicited_101_is_an_error_and_closes_the_connection() -> None:
    async with (
        make_client() as client,
        Server([b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"], [OK]) as server,
    ):
        for outcome in (Outcome.UNEXPECTED_STATUS, Outcome.FETCHED):
            got = await client.fetch(server.request(keep_alive=5.0))
            assert got.outcome is outcome
        assert server.connections == 2


# -- redirects
LOCATIONS = [
    (["Location: /next"], "/next", Outcome.REDIRECT),
    (["location:  http://other.test/a b "], "http://other.test/a b", Outcome.REDIRECT),
    (["Location: /a", "Location: /a"], "/a", Outcome.REDIRECT),
    (["Location: /a", "Location: /b"], "", Outcome.BAD_REDIRECT),
    (["Location:"], "", Outcome.BAD_REDIRECT),
    (["Location: /\xc3\xa4"], "/ä", Outcome.REDIRECT),
    (["Location: /\xe4"], "/ä", Outcome.REDIRECT),  # invalid UTF-8 is read as windows-1252
]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("lines", "location", "outcome"), LOCATIONS, ids=[str(row[0]) for row in LOCATIONS])
def test_location(status: int, lines: list[str], location: str, outcome: Outcome) -> None:
    got = fetch(head(*lines, "Content-Length: 0", status=f"HTTP/1.1 {status} Moved"))
    assert (got.outcome, got.location, got.blame) == (outcome, location, Blame.NONE)


# -- message framing
CHUNKED = "Transfer-Encoding: chunked"
PACKED = gzip.compress(b"hello")
WHOLE = [
    ("HTTP/1.0", [b"HTTP/1.0 200 OK\r\n\r\nhello", Do.CLOSE]),
    ("HTTP/1.1, no length", [head() + b"hello", Do.CLOSE]),
    ("no reason", [head("Content-Length: 5", status="HTTP/1.1 200") + b"hello"]),
    ("no reason, blank", [head("Content-Length: 5", status="HTTP/1.1 200 ") + b"hello"]),
    ("obsolete folding", [head("X: a", "  b", "Content-Length: 5") + b"hello"]),
    ("folded length", [head("Content-Length:", " 5") + b"hello"]),
    ("8-bit values", [head("X: \xe4\xff", "Content-Length: 5", status="HTTP/1.1 200 \xe4") + b"hello"]),
    ("bare LF", [b"HTTP/1.1 200 OK\nX: 1\nContent-Length: 5\n\nhello"]),
    ("mixed line ends", [b"HTTP/1.1 200 OK\r\nX: 1\nContent-Length: 5\r\n\nhello"]),
    ("blank line first", [b"\r\n" + head("Content-Length: 5") + b"hello"]),
    ("blank before colon", [head("X : 1", "Content-Length : 5") + b"hello"]),
    ("line without colon", [head("nonsense", "Content-Length: 5") + b"hello"]),
    ("NUL in a value", [head("X: a\0b", "Content-Length: 5") + b"hello"]),
    ("HTTP/2 in text", [head("Content-Length: 5", status="HTTP/2 200 OK") + b"hello"]),
    ("equal lengths", [head("Content-Length: 5", "Content-Length: 5") + b"hello"]),
    ("equal lengths in one", [head("Content-Length: 5, 5") + b"hello"]),
    ("bytes after the end", [head("Content-Length: 5") + b"helloGARBAGE"]),
    ("an answer after the end", [head("Content-Length: 5") + b"hello" + OK]),
    ("chunked", [head(CHUNKED) + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"]),
    ("chunked beats length", [head("Content-Length: 2", CHUNKED) + b"5\r\nhello\r\n0\r\n\r\n"]),
    ("chunked, letter case", [head("tRANSFER-eNCODING: CHUNKED") + b"5\r\nhello\r\n0\r\n\r\n"]),
    ("chunk extensions", [head(CHUNKED) + b'5;a=b;c="d"\r\nhello\r\n0;z\r\n\r\n']),
    ("chunk size padded", [head(CHUNKED) + b"0005 \r\nhello\r\n000\r\n\r\n"]),
    ("trailers", [head(CHUNKED) + b"5\r\nhello\r\n0\r\nX: 1\r\nContent-Length: 9\r\n\r\n"]),
    ("chunks with bare LF", [head(CHUNKED) + b"5\nhello\n0\n\n"]),
    ("bytes after the chunks", [head(CHUNKED) + b"5\r\nhello\r\n0\r\n\r\nGARBAGE"]),
    ("identity", [head("Transfer-Encoding: identity", "Content-Length: 5") + b"hello"]),
    (
        "coded transfer",
        [head("Transfer-Encoding: gzip, chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(PACKED), PACKED)],
    ),
    ("coded transfer, to the end", [head("Transfer-Encoding: gzip") + PACKED, Do.CLOSE]),
    ("unknown transfer coding", [head("Transfer-Encoding: x", "Content-Length: 9") + b"hello", Do.CLOSE]),
    ("in small pieces", [OK[at : at + 7] for at in range(0, len(OK), 7)]),
]


@pytest.mark.parametrize(("name", "script"), WHOLE, ids=[row[0] for row in WHOLE])
def test_accepted_framing(name: str, script: list[bytes | Do | float]) -> None:
    got = fetch(*script)
    assert (got.outcome, got.body, got.content, got.truncated) == (Outcome.FETCHED, b"hello", b"hello", ""), (
        got
    )


BROKEN = [
    ("HTTP/0.9", [b"<html>hello</html>", Do.CLOSE], Outcome.FRAMING),
    ("HTTP/0.9, open", [b"<html>hello</html>", Do.HANG], Outcome.FRAMING),
    ("TLS alert", [b"\x15\x03\x01\x00\x02\x02\x46", Do.HANG], Outcome.FRAMING),
    ("ICY", [b"ICY 200 OK\r\n\r\n", Do.CLOSE], Outcome.FRAMING),
    ("differing lengths", [head("Content-Length: 5", "Content-Length: 6") + b"hello"], Outcome.FRAMING),
    ("differing lengths in one", [head("Content-Length: 5, 6") + b"hello"], Outcome.FRAMING),
    ("negative length", [head("Content-Length: -5") + b"hello"], Outcome.FRAMING),
    ("signed length", [head("Content-Length: +5") + b"hello"], Outcome.FRAMING),
    ("no number", [head("Content-Length: five") + b"hello"], Outcome.FRAMING),
    ("endless length", [head("Content-Length: " + "9" * 5000) + b"hello"], Outcome.FRAMING),
    ("bad chunk size", [head(CHUNKED) + b"zz\r\nhello\r\n0\r\n\r\n"], Outcome.FRAMING),
    ("negative chunk size", [head(CHUNKED) + b"-5\r\nhello\r\n0\r\n\r\n"], Outcome.FRAMING),
    ("chunk size too large", [head(CHUNKED) + b"F" * 17 + b"\r\nhello"], Outcome.FRAMING),
    ("chunk without end", [head(CHUNKED) + b"5\r\nhelloworld\r\n0\r\n\r\n"], Outcome.FRAMING),
    ("chunk line without end", [head(CHUNKED) + b"5;" + b"x" * 20_000], Outcome.FRAMING),
    ("reset, no byte", [Do.RESET], Outcome.RESET),
    ("closed, no byte", [Do.CLOSE], Outcome.RESET),
    ("closed in the header block", [b"HTTP/1.1 200 OK\r\nX: 1\r\n", Do.CLOSE], Outcome.RESET),
    ("short body", [head("Content-Length: 50") + b"hello", Do.CLOSE], Outcome.TRUNCATED),
    ("reset in the body", [head("Content-Length: 50") + b"hello", 0.02, Do.RESET], Outcome.TRUNCATED),
    ("reset, no length", [head() + b"hello", 0.02, Do.RESET], Outcome.TRUNCATED),
    ("chunks cut", [head(CHUNKED) + b"5\r\nhello\r\n", Do.CLOSE], Outcome.TRUNCATED),
    ("chunk cut", [head(CHUNKED) + b"50\r\nhello", Do.CLOSE], Outcome.TRUNCATED),
    ("trailers cut", [head(CHUNKED) + b"5\r\nhello\r\n0\r\nX: 1\r\n", Do.CLOSE], Outcome.TRUNCATED),
]


@pytest.mark.parametrize(("name", "script", "outcome"), BROKEN, ids=[row[0] for row in BROKEN])
def test_rejected_framing(name: str, script: list[bytes | Do | float], outcome: Outcome) -> None:
    got = fetch(*script)
    assert got.outcome is outcome, got
    assert got.error and "\n" not in got.error
    if outcome is Outcome.TRUNCATED:
        assert (got.body, got.content, got.truncated, got.blame) == (
            b"hello",
            b"hello",
            "disconnect",
            Blame.URL,
        )
    assert got.blame is (Blame.HOST if outcome is Outcome.RESET else Blame.URL)


# -- limits of time and size
def test_a_late_header_block_is_a_header_timeout() -> None:
    got = fetch(Do.HANG, config=HASTY)
    assert (got.outcome, got.blame) == (Outcome.HEADER_TIMEOUT, Blame.URL)


def test_silence_in_the_body() -> None:
    got = fetch(head("Content-Length: 50") + b"hello", Do.HANG, config=HASTY)
    assert (got.outcome, got.truncated, got.content) == (Outcome.TRUNCATED, "time", b"hello")


def test_the_whole_fetch_is_bounded() -> None:
    """A body that never ends is cut off at the total time limit."""
    drip = [head(CHUNKED)] + [b"1\r\nx\r\n", 0.03] * 40
    got = fetch(*drip, config=small(total_timeout=Seconds(0.25)))
    assert (got.outcome, got.truncated) == (Outcome.TRUNCATED, "time")
    assert 0 < len(got.content) < 40


def test_the_limit_of_a_request_replaces_the_clients() -> None:
    got = fetch(head("Content-Length: 50") + b"x" * 50, body_bytes_max=20)
    assert (got.outcome, got.truncated, got.content) == (Outcome.FETCHED, "length", b"x" * 20)
    drip = [head(CHUNKED)] + [b"1\r\nx\r\n", 0.03] * 40
    assert fetch(*drip, total_timeout=0.2).truncated == "time"


@pytest.mark.parametrize(("size", "truncated"), [(100, ""), (101, "length"), (5000, "length")])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_body_limit(size: int, truncated: str, framing: str) -> None:
    lines = {"length": f"Content-Length: {size}", "chunked": CHUNKED, "close": "X: 1"}
    body = b"x" * size
    if framing == "chunked":
        body = f"{size:x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    end = Do.HANG if truncated else Do.CLOSE
    got = fetch(head(lines[framing]) + body, end, config=small(body_bytes_max=ByteCount(100)))
    assert (got.outcome, got.truncated) == (Outcome.FETCHED, truncated)
    assert got.body == got.content == b"x" * min(size, 100)


def test_wire_limit_on_an_endless_body() -> None:
    got = fetch(head() + b"x" * 100, b"y" * 10_000, Do.POUR, config=small(wire_bytes_max=ByteCount(100_000)))
    assert (got.outcome, got.truncated, len(got.body)) == (Outcome.FETCHED, "length", 100_000)
    assert got.wire_bytes < 100_000 + (64 << 10) + 200


def test_chunks_of_one_byte_are_bounded_on_the_wire() -> None:
    config = small(wire_bytes_max=ByteCount(10_000), header_bytes_max=ByteCount(1000))
    got = fetch(head(CHUNKED), b"000000001\r\nx\r\n" * 500, Do.POUR, config=config)
    assert (got.outcome, got.truncated) == (Outcome.FETCHED, "length")
    assert got.wire_bytes < 21_000 + (64 << 10)


def test_header_of_16_kib_field_and_128_fields_is_accepted() -> None:
    lines = [f"X-{number}: y" for number in range(126)]
    got = fetch(head("Big: " + "z" * 16_384, *lines, "Content-Length: 5") + b"hello")
    assert (got.outcome, len(got.headers)) == (Outcome.FETCHED, 128)


@pytest.mark.parametrize(("fields", "outcome"), [(256, Outcome.FETCHED), (257, Outcome.HEADER_TOO_LARGE)])
def test_header_fields_limit(fields: int, outcome: Outcome) -> None:
    got = fetch(head(*["X: 1"] * (fields - 1), "Content-Length: 5") + b"hello")
    assert (got.outcome, got.blame) == (outcome, Blame.NONE)


def test_header_bytes_limit() -> None:
    for script in (
        [b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n", Do.POUR],
        [b"HTTP/1.1 200 OK\r\nX: ", b"z" * 4000, Do.POUR],
        [b"HTTP/1.1 103 Early Hints\r\nX: " + b"z" * 9000 + b"\r\n\r\n", Do.POUR],
    ):
        got = fetch(*script)
        assert (got.outcome, got.blame) == (Outcome.HEADER_TOO_LARGE, Blame.NONE)
        assert got.wire_bytes < 2 * (64 << 10) + (64 << 10)


def test_one_field_can_have_its_own_limit() -> None:
    config = small(header_field_bytes_max=ByteCount(100))
    assert (
        fetch(head("X: " + "y" * 90, "Content-Length: 5") + b"hello", config=config).outcome
        is Outcome.FETCHED
    )
    got = fetch(head("X: " + "y" * 190, "Content-Length: 5") + b"hello", config=config)
    assert got.outcome is Outcome.HEADER_TOO_LARGE


# -- content codings
def test_coded_body_is_kept_and_decoded() -> None:
    coded = gzip.compress(b"hello" * 100)
    got = fetch(head("Content-Encoding: GZIP", f"Content-Length: {len(coded)}") + coded)
    assert (got.body, got.content, got.truncated) == (coded, b"hello" * 100, "")


def test_gzip_bomb_stays_within_the_limit() -> None:
    coded = gzip.compress(bytes(4 << 20))
    config = small(body_bytes_max=ByteCount(100_000))
    got = fetch(head("Content-Encoding: gzip", f"Content-Length: {len(coded)}") + coded, config=config)
    assert (got.outcome, got.truncated, len(got.content)) == (Outcome.FETCHED, "length", 100_000)


def test_unknown_coding_is_kept_and_not_parsed() -> None:
    got = fetch(head("Content-Encoding: zstd", "Content-Length: 5") + b"hello")
    assert (got.outcome, got.body, got.content) == (Outcome.FETCHED, b"hello", b"")
    assert "zstd" in got.error


# -- addresses and connections
async def test_a_closed_port_is_a_connect_error() -> None:
    async with make_client() as client:
        async with Server([OK]) as server:
            pass
        got = await client.fetch(server.request())
        assert (got.outcome, got.blame) == (Outcome.CONNECT_ERROR, Blame.HOST)
        assert got.error.startswith("ConnectionRefusedError: Connection refused")


DENIED = [
    ("127.0.0.2",),
    ("10.1.2.3", "::1"),
    ("::ffff:127.0.0.2",),
    ("64:ff9b::7f00:2",),
    ("not an address",),
]


@pytest.mark.parametrize("addresses", DENIED)
async def test_denied_addresses(addresses: tuple[str, ...]) -> None:
    async with (
        make_client(network=NetworkConfig(allow_networks=("127.0.0.1/32",))) as client,
        Server([OK]) as server,
    ):
        got = await client.fetch(FetchRequest(server.url(), addresses))
        assert (got.outcome, got.blame, server.connections) == (Outcome.ADDRESS_DENIED, Blame.NONE, 0)
        got = await client.fetch(server.request(host="127.0.0.2"))
        assert (got.outcome, server.connections) == (Outcome.ADDRESS_DENIED, 0), (
            "a literal host is its address"
        )
        got = await client.fetch(FetchRequest(server.url(host="[::1]")))
        assert (got.outcome, server.connections) == (Outcome.ADDRESS_DENIED, 0)
        got = await client.fetch(FetchRequest(server.url(), (*addresses, "127.0.0.1")))
        assert (got.outcome, got.address) == (Outcome.FETCHED, "127.0.0.1")


async def test_a_request_without_addresses_fails() -> None:
    async with make_client() as client:
        assert (await client.fetch(FetchRequest("http://host.test/"))).outcome is Outcome.DNS_NOT_FOUND


async def test_connections_are_kept_per_host_and_for_the_requested_time() -> None:
    async with make_client() as client, Server([OK]) as server, Server([OK]) as other:
        for keep_alive in (5.0, 5.0, 0.0, 0.05):
            await client.fetch(server.request(keep_alive=keep_alive))
        assert server.connections == 2, "the first connection is reused twice and then closed"
        assert server.requests[2].count(b"Connection: close") == 1
        assert b"Connection" not in server.requests[1]
        assert len(client._idle) == 1
        for _ in range(40):
            await asyncio.sleep(0.01)
            if not len(client._idle):
                break
        assert not len(client._idle), "expired by the timer"
        await client.fetch(server.request(keep_alive=5.0))
        await client.fetch(other.request(keep_alive=5.0))
        assert len(client._idle) == 1, "one connection is kept per host, whatever its port"
        client._idle._check()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"GARBAGE",
        OK + OK,
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1),
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
        head("Content-Length: 50") + b"x" * 50,
        head("Content-Length: 2", CHUNKED) + b"5\r\nhello\r\n0\r\n\r\n",
        head(CHUNKED) + b"5\r\nhello\r\n0\r\n\r\nGARBAGE",
    ],
    ids=["garbage", "second answer", "close", "HTTP/1.0", "truncated", "two lengths", "after chunks"],
)
async def test_connections_that_are_not_used_again(answer: bytes) -> None:
    """Surplus bytes that arrive with one answer can never be mistaken for the next answer."""
    async with (
        make_client(small(body_bytes_max=ByteCount(20))) as client,
        Server([answer], [head("Content-Length: 4") + b"next"]) as server,
    ):
        request = server.request(keep_alive=5.0)
        await client.fetch(request)
        got = await client.fetch(request)
        assert (got.content, server.connections) == (b"next", 2)


async def test_bytes_received_while_idle_close_the_connection() -> None:
    async with (
        make_client() as client,
        Server([OK, 0.02, OK], [head("Content-Length: 4") + b"next"]) as server,
    ):
        request = server.request(keep_alive=5.0)
        await client.fetch(request)
        for _ in range(50):
            await asyncio.sleep(0.01)
            if not len(client._idle):
                break
        assert not len(client._idle)
        assert (await client.fetch(request)).content == b"next"


async def test_unread_bytes_in_the_socket_close_the_connection() -> None:
    """The bytes are still in the socket when the next request is about to be sent, so they cannot be its answer."""
    async with make_client() as client:
        for late in (OK, b""):
            async with Server([OK], [head("Content-Length: 4") + b"next"]) as server:
                request = server.request(keep_alive=5.0)
                await client.fetch(request)
                await _send_unread(server, late)
                got = await client.fetch(request)
                assert (got.content, got.connection, server.connections) == (b"next", "plain", 2)


async def _send_unread(server: Server, late: bytes) -> None:
    """In this turn of the event loop, send `late` on the server's only connection; if `late` is empty, close it."""
    (writer,) = server.writers
    sock = writer.get_extra_info("socket").dup()
    sock.setblocking(True)
    if late:
        sock.sendall(late)
    else:
        sock.shutdown(socket.SHUT_WR)
    sock.close()


async def test_the_time_of_an_exchange_excludes_connecting_and_our_own_lag() -> None:
    """The server answers at once, while our event loop is busy for 0.3 s."""
    async with make_client() as client, Server([0.05, OK]) as server:
        fetching = asyncio.create_task(client.fetch(server.request(keep_alive=5.0)))
        while not server.requests:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.06)  # by now the answer is in transit or has arrived
        if fetching.done():
            pytest.skip("it was read already")
        time.sleep(0.3)
        assert (await fetching).took < 0.2


async def test_the_connection_is_kept_for_the_gap_that_follows() -> None:
    """The idle time is ten times the duration of the last answer, plus `keep_alive_extra`."""
    async with make_client() as client, Server([0.2, OK]) as server:
        request = server.request(keep_alive=1.0, keep_alive_factor=10.0)
        before = time.monotonic()
        got = await client.fetch(request)
        (connection,) = client._idle._by_hostname.values()
        expected = 10.0 * got.took + PATIENT.keep_alive_extra
        assert got.took >= 0.15 and connection.idle_until >= before + expected


async def test_a_request_that_fails_on_a_reused_connection_is_resent_once() -> None:
    async with make_client() as client:
        for end in (Do.CLOSE, Do.RESET):
            async with Server([OK], [end], [OK], [end], [end], [OK]) as server:
                request = server.request(host=f"{end.value}.test", keep_alive=5.0)
                outcomes = [(await client.fetch(request)).outcome for _ in range(3)]
                assert outcomes == [Outcome.FETCHED, Outcome.FETCHED, Outcome.RESET]
                assert (len(server.requests), server.connections) == (5, 3)


async def test_a_request_that_fails_on_a_new_connection_is_not_resent() -> None:
    async with make_client() as client, Server([Do.CLOSE]) as server:
        got = await client.fetch(server.request(keep_alive=5.0))
        assert (got.outcome, len(server.requests)) == (Outcome.RESET, 1)


async def test_a_request_with_a_partial_answer_is_not_resent() -> None:
    async with make_client() as client, Server([OK], [b"HTTP/1.1 200", Do.CLOSE], [OK]) as server:
        request = server.request(keep_alive=5.0)
        await client.fetch(request)
        assert (await client.fetch(request)).outcome is Outcome.RESET
        assert len(server.requests) == 2


async def test_cancelling_closes_the_connection() -> None:
    async with make_client() as client, Server([Do.HANG]) as server:
        task = asyncio.create_task(client.fetch(server.request(keep_alive=5.0)))
        while not server.requests:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not client._active and not len(client._idle)


# -- the bytes of a request
async def test_the_bytes_of_a_request() -> None:
    identity = IdentityConfig(token="bot", contact="https://bot.example/", headers=("X-Study: 7",))
    async with make_client(identity=identity) as client, Server([OK]) as server:
        request = server.request(
            "/a%27b%2Fc//d;x?q=+&%26",
            etag='W/"x"',
            last_modified="Sat, 01 Jan 2000 00:00:00 GMT",
            keep_alive=5.0,
        )
        got = await client.fetch(request)
        expected = (
            f"GET /a%27b%2Fc//d;x?q=+&%26 HTTP/1.1\r\nHost: host.test:{server.port}\r\n"
            "User-Agent: bot/0.1.0 (+https://bot.example/)\r\n"
            "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
            "Accept-Language: en;q=0.9,*;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nX-Study: 7\r\n"
            'If-None-Match: W/"x"\r\nIf-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\n'
        ).encode()
        assert server.requests == [expected]
        assert got.request_head == expected


def test_ports_of_other_protocols_are_not_connected_to() -> None:
    """This also applies to redirect targets. The error message names the setting that allows the port."""

    async def play(ports: tuple[int, ...]) -> Fetch:
        async with make_client(
            network=NetworkConfig(allow_networks=("127.0.0.0/8",), allow_ports=ports)
        ) as client:
            return await client.fetch(FetchRequest("http://127.0.0.1:6000/"))

    refused = run(play(()))
    assert refused.outcome is Outcome.ADDRESS_DENIED and "network.allow_ports" in refused.error
    assert run(play((6000,))).outcome is Outcome.CONNECT_ERROR


async def test_a_received_body_is_charged_to_its_owner_before_others_resume() -> None:
    """Of two bodies of 600 bytes within a limit of 500, the second is read once the owner of the first releases it."""
    client = make_client(small(held_bytes_max=ByteCount(500)))
    client.account._small = 0
    await client.start()
    whole = [head("Content-Length: 600") + b"x" * 200, 0.05, b"x" * 200, 0.05, b"x" * 200]
    async with Server(whole, whole) as server:

        def begin(owner: str) -> asyncio.Task[Fetch]:
            request = server.request(host=f"{owner}.test", owner=owner)
            return asyncio.create_task(client.fetch(request))

        first, second = begin("a"), begin("b")
        while not (first.done() or second.done()):
            await asyncio.sleep(0.005)
        one, other = ("a", second) if first.done() else ("b", first)
        assert client.account._charges == {one: 600}
        assert len(client.account._waiting) == 1 and client.account.held == 600
        client.let_go(one)
        assert len((await other).body) == 600
        client.account._check()
        assert client.account.held == client.account.charged == 600
    await client.close()


async def test_bodies_beyond_the_memory_limit_wait() -> None:
    """The time limits of waiting bodies stop, so these bodies arrive complete, but late.

    A busy machine delays each step. If it delays them too much, all time limits and pauses are five times as long.
    """
    found = await _bodies_beyond_the_memory_limit(1.0) or await _bodies_beyond_the_memory_limit(5.0)
    assert found == [(Outcome.FETCHED, 600)] * 3


async def _bodies_beyond_the_memory_limit(scale: float) -> list[tuple[Outcome, int]]:
    """Fetch four bodies, and cancel one that waits. Return the outcomes and sizes, or [] if a time limit ended one."""
    limits = {name: Seconds(0.8 * scale) for name in ("total_timeout", "silence_timeout")}
    client = make_client(small(held_bytes_max=ByteCount(300), **limits))
    client.account._small = 0
    await client.start()
    start = head("Content-Length: 600") + b"x" * 200
    first = [start, 0.3 * scale, b"x" * 400]
    late = [start, 0.7 * scale, b"x" * 200, 0.25 * scale, b"x" * 200]
    async with Server(first, late) as server:

        def begin(number: int) -> asyncio.Task[Fetch]:
            request = server.request(host=f"{number}.test")
            return asyncio.create_task(client.fetch(request))

        tasks = [begin(0)]
        while not client.account.held and not tasks[0].done():
            await asyncio.sleep(0.005)
        tasks += [begin(number) for number in range(1, 4)]
        while len(client.account._waiting) < 3 and not any(task.done() for task in tasks):
            await asyncio.sleep(0.005)
        in_time = not any(task.done() for task in tasks)
        assert not in_time or (client.account.held == 200 and len(client._active) == 4)
        tasks[2].cancel()
        fetches = await asyncio.gather(tasks[0], tasks[1], tasks[3])
        client.account._check()
        assert client.account.held == 0
    await client.close()
    found = [(got.outcome, len(got.body)) for got in fetches]
    return found if in_time and all(size == 600 for _, size in found) else []


async def test_the_guard_checks_each_socket() -> None:
    """Whatever address is chosen, no socket is opened to a denied address."""
    async with make_client(network=NetworkConfig()) as client:
        factory = client._connector._socket
        assert factory is not None
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with pytest.raises(OSError, match="not allowed"):
                factory((family, socket.SOCK_STREAM, 0, "", (address, 80)))


@pytest.mark.parametrize(
    ("sent", "outcome", "truncated"),
    [(b"", Outcome.HEADER_TIMEOUT, ""), (head("Content-Length: 9") + b"part", Outcome.TRUNCATED, "time")],
)
def test_a_request_ends_when_its_slot_is_needed(sent: bytes, outcome: Outcome, truncated: str) -> None:
    """The request ends in the same way as after its time limit. The bytes received so far are kept."""

    class Needed:
        asked = 0

        def is_needed(self) -> bool:
            self.asked += 1
            return self.asked == 2

        def give(self) -> None:
            raise AssertionError("the request must wait only for its server, not for memory")

    got = fetch(sent, Do.HANG, slot=Needed())
    assert (got.outcome, got.truncated, got.content) == (outcome, truncated, sent[-4:])
    assert got.error == "not complete when its fetch slot was needed"


async def test_a_large_answer_rests_and_is_received_in_full() -> None:
    """Reading a large answer pauses after each 128 KiB, so that a short answer does not wait for the large one."""
    async with make_client() as client:
        rests: list[int] = []
        rest = client.rests
        client.rests = lambda connection: (rests.append(1), rest(connection))[1]  # type: ignore[method-assign]
        body = bytes(range(256)) * 4096
        async with Server([head(f"Content-Length: {len(body)}") + body]) as server:
            requests = [server.request(host=f"{n}.test") for n in range(12)]
            fetches = await asyncio.gather(*map(client.fetch, requests))
        assert [got.body == body for got in fetches] == [True] * 12
        assert len(rests) >= 12 * (len(body) // (REST_BYTES + READ_BYTES)) and not client._resting


async def test_reads_are_short_once_a_turns_share_is_used() -> None:
    async with make_client() as client:
        connection = Connection(("http", "a", 80, "verify"), client._view, client)
        assert client.has_time() and len(connection.get_buffer(-1)) == READ_BYTES
        client.spent(1.0)
        assert not client.has_time() and len(connection.get_buffer(-1)) == SHORT_BYTES
        await asyncio.sleep(0)
        assert client.has_time(), "the next turn of the event loop has time again"


@pytest.mark.parametrize(("late", "excused"), [(0.5, False), (600.0, True)])
def test_a_late_timer_excuses_requests(monkeypatch: pytest.MonkeyPatch, late: float, excused: bool) -> None:
    """The first timer after SIGCONT runs before the answers in the kernel are read. Once, it ended all of them."""
    excuses: list[float] = []
    monkeypatch.setattr(Connection, "excuse", lambda _, seconds: excuses.append(seconds))

    async def play() -> Fetch:
        async with Server([OK[:20], 0.1, OK[20:]]) as server, make_client(PATIENT) as client:
            task = asyncio.ensure_future(client.fetch(server.request()))
            while not client._active:
                await asyncio.sleep(0)
            client._due = time.monotonic() - late
            client._on_timer()
            return await task

    assert run(play()).outcome is Outcome.FETCHED
    assert [seconds >= late for seconds in excuses] == [True] * excused
