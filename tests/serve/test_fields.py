"""Which fields pass, content codings, 304."""

import pytest

from crawler.errors import ConfigError
from crawler.serve import fields
from crawler.serve.listener import check_host, is_bot, parse_address
from crawler.serve.refusal import Refusal

DANGEROUS = [
    "Set-Cookie", "Set-Cookie2", "Strict-Transport-Security", "Public-Key-Pins", "Alt-Svc", "Clear-Site-Data",
    "Refresh", "Service-Worker-Allowed", "Service-Worker-Navigation-Preload", "Access-Control-Allow-Origin",
    "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "TE", "Proxy-Authenticate",
    "Content-Security-Policy", "Content-Length", "Link", "WWW-Authenticate", "NEL", "Report-To", "X-Frame-Options",
    "X-Crawled-At", "Memento-Datetime", "Age", "ETag", "X-Crawler-Transfer-Encoding",
]  # fmt: skip


@pytest.mark.parametrize("name", DANGEROUS)
@pytest.mark.parametrize("case", [str, str.lower, str.upper])
def test_a_field_that_must_not_pass(name: str, case: object) -> None:
    kept = (b"Content-Type", b"text/html")
    assert fields.passed_on([(case(name).encode(), b"x"), kept]) == [kept]  # type: ignore[operator]


def test_fields_named_by_connection_do_not_pass() -> None:
    headers = [(b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"X-End", b"2")]
    assert fields.passed_on(headers) == [(b"X-End", b"2")]


@pytest.mark.parametrize(
    "field", [(b"X", b"a\r\nSet-Cookie: b"), (b"X", b"a\x00"), (b"X Y", b"a"), (b"", b"a"), (b"X\r\nY", b"a")]
)
def test_a_field_cannot_smuggle_another(field: tuple[bytes, bytes]) -> None:
    assert fields.passed_on([field]) == []


def test_a_reason_cannot_smuggle_a_field() -> None:
    assert fields.head(200, "OK\r\nX: y", []) == b"HTTP/1.1 200 OKX: y\r\n"


@pytest.mark.parametrize(
    ("field", "taken"),
    [
        ("", set()),
        ("gzip", {b"gzip", b"x-gzip"}),
        ("gzip, br;q=0.5", {b"gzip", b"x-gzip", b"br"}),
        ("gzip;q=0", set()),
        ("identity", set()),
        ("GZIP;q=1.0", {b"gzip", b"x-gzip"}),
        ("gzip;q=nonsense", set()),
        ("*;q=0", set()),
        ("*", {b"gzip", b"x-gzip", b"br", b"deflate", b"zstd", b"compress"}),
        ("*, br;q=0", {b"gzip", b"x-gzip", b"deflate", b"zstd", b"compress"}),
    ],
)
def test_codings_a_client_takes(field: str, taken: set[bytes]) -> None:
    assert fields.accepted(field) == taken


@pytest.mark.parametrize(
    ("match", "since", "expected"),
    [
        ("", None, False),
        ('"a"', None, True),
        ('W/"a"', None, True),
        ('"b", "a"', None, True),
        ('"b"', None, False),
        ("*", None, True),
        ("", 100.0, True),
        ("", 99.0, False),
        ('"b"', 1000.0, False),  # If-None-Match decides alone (RFC 9110, 13.1.3)
    ],
)
def test_not_modified(match: str, since: float | None, expected: bool) -> None:
    assert fields.not_modified(match, since, '"a"', 100.9) is expected


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "localhost:1", "LOCALHOST", "cache.example", "10.1.2.3"],
)
def test_hosts_that_are_ours(host: str) -> None:
    assert check_host([host], frozenset({"cache.example"})) == host


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        ([""], 400),
        (["127.0.0.1", "evil.example"], 400),
        (["evil.example"], 421),
        (["evil.example:8080"], 421),
        (["localhost.evil.example"], 421),
        (["127.0.0.1.evil.example"], 421),
        (["cache.example.evil.example"], 421),
        (["localhost@evil.example"], 421),
        (["a" * 100_000], 421),
        (["0x7f000001"], 421),
    ],
)
def test_hosts_that_are_not(hosts: list[str], status: int) -> None:
    """DNS rebinding: a name that leads to us is not therefore ours."""
    with pytest.raises(Refusal) as caught:
        check_host(hosts, frozenset({"cache.example"}))
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:80", ("::1", 80)),
        ("8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "serve.address") == address


@pytest.mark.parametrize("text", ["", "a:b", ":80", "1.2.3.4:99999", "http://a:80"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="serve.address"):
        parse_address(text, "serve.address")


def test_robots_say_so() -> None:
    assert is_bot("Mozilla/5.0 (compatible; Googlebot/2.1)") and is_bot("example-crawler/1.0")
    assert (
        not is_bot("Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0")
        and not is_bot("curl/8.0")
        and not is_bot("")
    )
