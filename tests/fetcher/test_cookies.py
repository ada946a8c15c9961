"""Test cookies and their limits (RFC 6265; `fetcher/README.md`, "Cookies, credentials and TLS")."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crawler.errors import ConfigError
from crawler.fetcher.cookies import (
    PER_DOMAIN_MAX,
    REQUEST_BYTES_MAX,
    CookieJar,
    as_file,
    load_cookies,
    parse_cookie_date,
)
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.records import Outcome
from tests.fetcher.scripted import OK, Server, make_client, small

NOW = 1_000_000.0


def jar_of(url: str, *lines: str) -> CookieJar:
    jar = CookieJar()
    jar.store(split(url), [line.encode() for line in lines], NOW)
    jar._check()
    return jar


# (URL that sets the cookie, Set-Cookie, requested URL, Cookie sent)
CASES = [
    ("http://a.test/", "k=v", "http://a.test/", "k=v"),
    ("http://a.test/", " k = v ; x", "http://a.test/", "k=v"),
    ("http://a.test/", "v", "http://a.test/", "v"),
    ("http://a.test/", "=v", "http://a.test/", "v"),
    ("http://a.test/", "", "http://a.test/", ""),
    ("http://a.test/", 'k="v=w"', "http://a.test/", 'k="v=w"'),
    ("http://a.test/", "k=a\x01b", "http://a.test/", ""),
    ("http://a.test/", "k=v", "http://b.test/", ""),
    ("http://a.example.com/", "k=v", "http://example.com/", ""),
    ("http://example.com/", "k=v", "http://a.example.com/", ""),
    ("http://example.com/", "k=v; Domain=example.com", "http://a.example.com/", "k=v"),
    ("http://a.example.com/", "k=v; domain=.Example.com", "http://b.example.com/", "k=v"),
    ("http://a.example.com/", "k=v; domain=b.example.com", "http://b.example.com/", ""),
    ("http://a.example.com/", "k=v; domain=com", "http://b.com/", ""),
    ("http://a.co.uk/", "k=v; domain=co.uk", "http://b.co.uk/", ""),
    ("http://a.github.io/", "k=v; domain=github.io", "http://b.github.io/", ""),
    ("http://badexample.com/", "k=v; domain=example.com", "http://example.com/", ""),
    ("http://1.2.3.4/", "k=v; domain=3.4", "http://1.2.3.4/", ""),
    ("http://1.2.3.4/", "k=v; domain=1.2.3.4", "http://1.2.3.4/", "k=v"),
    ("http://a.test/x/y", "k=v", "http://a.test/x/z?q", "k=v"),
    ("http://a.test/x/y", "k=v", "http://a.test/", ""),
    ("http://a.test/x", "k=v; path=/p", "http://a.test/p/q", "k=v"),
    ("http://a.test/x", "k=v; path=/p", "http://a.test/pq", ""),
    ("http://a.test/x", "k=v; path=p", "http://a.test/", "k=v"),
    ("https://a.test/", "k=v; Secure", "http://a.test/", ""),
    ("https://a.test/", "k=v; Secure; HttpOnly", "https://a.test/", "k=v"),
    ("http://a.test/", "k=v; Secure", "https://a.test/", ""),
    ("https://a.test/", "__Secure-k=v; Secure", "https://a.test/", "__Secure-k=v"),
    ("https://a.test/", "__Secure-k=v", "https://a.test/", ""),
    ("http://a.test/", "__secure-k=v; Secure", "https://a.test/", ""),
    ("https://a.test/", "__Host-k=v; Secure; Path=/", "https://a.test/", "__Host-k=v"),
    ("https://a.test/", "__Host-k=v; Secure; Path=/x", "https://a.test/x", ""),
    (
        "https://a.example.com/",
        "__HOST-k=v; Secure; Path=/; Domain=example.com",
        "https://a.example.com/",
        "",
    ),
    ("https://a.test/", "__Host-k=v; Path=/", "https://a.test/", ""),
    ("https://a.test/", "=__Host-k=v; Secure; Path=/", "https://a.test/", ""),
    ("http://a.test/", "k=v; max-age=1", "http://a.test/", "k=v"),
    ("http://a.test/", "k=v; max-age=0", "http://a.test/", ""),
    ("http://a.test/", "k=v; max-age=-1", "http://a.test/", ""),
    ("http://a.test/", "k=v; max-age=x", "http://a.test/", "k=v"),
    ("http://a.test/", "k=v; expires=Thu, 01 Jan 1970 00:00:00 GMT", "http://a.test/", ""),
    ("http://a.test/", "k=v; expires=Thu, 01 Jan 1970 00:00:00 GMT; max-age=9", "http://a.test/", "k=v"),
    ("http://a.test/", "k=v; expires=Wed, 09 Jun 2100 10:18:14 GMT", "http://a.test/", "k=v"),
    ("http://a.test/", "k=" + "v" * 5000, "http://a.test/", ""),
]


@pytest.mark.parametrize(("set_by", "line", "asked", "sent"), CASES, ids=[case[1][:40] for case in CASES])
def test_cookie_rules(set_by: str, line: str, asked: str, sent: str) -> None:
    assert jar_of(set_by, line).header(split(asked), NOW) == sent


def test_plain_http_does_not_replace_a_secure_cookie() -> None:
    """An attacker who can change answers over plain http cannot choose the session that https uses."""
    jar = jar_of("https://a.example.com/", "k=safe; Secure; Domain=example.com")
    jar.store(split("http://a.example.com/"), [b"k=evil", b"k=evil; Domain=example.com", b"other=1"], NOW)
    assert jar.header(split("https://a.example.com/"), NOW) == "k=safe; other=1"
    jar.store(split("https://a.example.com/"), [b"k=new; Secure; Domain=example.com"], NOW)
    assert jar.header(split("https://a.example.com/"), NOW) == "k=new; other=1"


def test_no_cookie_of_a_public_suffix_is_kept() -> None:
    assert len(jar_of("http://a.co.uk/", "k=v; domain=co.uk", "l=v; domain=uk", "m=v; domain=a.co.uk")) == 1


def test_cookies_with_longer_paths_come_first_then_older_ones() -> None:
    jar = jar_of("http://a.test/x/", "a=1; path=/", "b=2; path=/x", "c=3; path=/", "a=9; path=/")
    assert jar.header(split("http://a.test/x/y"), NOW) == "b=2; a=9; c=3"


def test_cookies_expire() -> None:
    jar = jar_of("http://a.test/", "k=v; max-age=10")
    assert jar.header(split("http://a.test/"), NOW + 9.0) == "k=v"
    assert jar.header(split("http://a.test/"), NOW + 10.0) == ""
    jar.store(split("http://a.test/"), [b"k=; max-age=0"], NOW)
    assert len(jar) == 0


# Formats of dates found on the web, which are read as in RFC 6265 5.1.1. The time is always
# 1994-11-06T08:49:37Z.
@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "sun 6-nov-1994 8:49:37",
        "1994 November 06 08:49:37 (whatever)",
    ],
)
def test_cookie_dates(text: str) -> None:
    assert parse_cookie_date(text) == datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text", ["", "Sun", "06 Nov 08:49:37", "32 Nov 1994 08:49:37", "06 Nov 1994 25:49:37"]
)
def test_unreadable_cookie_dates(text: str) -> None:
    assert parse_cookie_date(text) is None


def test_cookie_caps() -> None:
    """The jar keeps 50 cookies per domain, and `domains_max` domains, the newest; it sends 8 KiB per request."""
    generator = random.Random(7)
    jar = CookieJar(domains_max=3)
    for number in range(600):
        host = f"{generator.choice('abc')}.{generator.choice('uvwxyz')}.test"
        value = "v" * generator.randrange(1000)
        jar.store(split(f"http://{host}/"), [f"k{number}={value}".encode()], NOW)
        jar._check()
    for host in (f"{a}.{b}.test" for a in "abc" for b in "uvwxyz"):
        assert len(jar.header(split(f"http://{host}/"), NOW)) <= REQUEST_BYTES_MAX
    full = jar_of("http://a.test/", *(f"k{number}=v" for number in range(PER_DOMAIN_MAX + 1)))
    assert "k0=" not in full.header(split("http://a.test/"), NOW) and len(full) == PER_DOMAIN_MAX


SETTING = OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: s=1\r\nset-cookie: t=2; path=/\r\n\r\n", 1)


@pytest.mark.parametrize(("cookies", "own_jar"), [(False, False), (True, False), (False, True)])
async def test_cookies_are_sent_only_if_enabled(cookies: bool, own_jar: bool) -> None:
    """A setting enables cookies; a redirect chain with its own jar also uses them."""
    async with make_client(small(cookies=cookies)) as client, Server([SETTING]) as server:
        jar = CookieJar() if own_jar else None
        for _ in range(2):
            got = await client.fetch(server.request(jar=jar))
            assert got.outcome is Outcome.FETCHED
        assert b"Cookie:" not in server.requests[0]
        assert (b"\r\nCookie: s=1; t=2\r\n" in server.requests[1]) is (cookies or own_jar)
        await client.fetch(server.request())
        assert (b"Cookie:" in server.requests[2]) is cookies


FILE = """\
# Netscape HTTP Cookie File
# http://curl.se/docs/http-cookies.html

.example.com\tTRUE\t/\tFALSE\t2000000000\tall\t1
example.com\tFALSE\t/docs\tFALSE\t0\thost\t2
#HttpOnly_www.example.com\tFALSE\t/\tTRUE\t0\tsecure\t3
old.example.com\tFALSE\t/\tFALSE\t999\tgone\t4
.com\tTRUE\t/\tFALSE\t0\tpublic\t5
"""


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://example.com/", "all=1"),
        ("http://example.com/docs/x", "host=2; all=1"),
        ("http://www.example.com/docs/", "all=1"),
        ("https://www.example.com/", "all=1; secure=3"),
        ("http://old.example.com/", "all=1"),
        ("http://other.com/", ""),
    ],
)
def test_a_cookie_file(tmp_path: Path, url: str, sent: str) -> None:
    """All fields of Netscape's format are obeyed, and no cookie is sent to all hosts of a public suffix."""
    path = tmp_path / "cookies.txt"
    path.write_text(FILE, encoding="utf-8-sig")
    jar = load_cookies(str(path), NOW)
    jar._check()
    assert jar.lasts and jar.header(split(url), NOW) == sent
    path.write_text(as_file(jar), encoding="utf-8")
    again = load_cookies(str(path), NOW)
    assert again.header(split(url), NOW) == sent and len(again) == len(jar)


@pytest.mark.parametrize(
    "line", ["k=v", "a.test\tTRUE\t/\tFALSE\tnever\tk\tsecret", "a\tmaybe\t/\tFALSE\t0\tk\tsecret"]
)
def test_an_invalid_cookie_line_is_reported_by_number_only(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cookies.txt"
    path.write_text(f"# {FILE}\n{line}\n")
    with pytest.raises(ConfigError, match="line [0-9]+ is not a cookie") as raised:
        load_cookies(str(path), NOW)
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match="No such file"):
        load_cookies(str(tmp_path / "none"), NOW)


async def test_cookies_of_a_file_are_not_recorded(tmp_path: Path) -> None:
    """Two kinds of cookies are not recorded: those that are sent, and those by which the server renews the login."""
    path = tmp_path / "cookies.txt"
    path.write_text("host.test\tFALSE\t/\tFALSE\t0\tsid\tsecret\n")
    answer = OK.replace(b"Content-Type", b"Set-Cookie: sid=newsecret; Path=/\r\nContent-Type")

    async with Server([answer]) as server, make_client(small(cookies_file=str(path))) as client:
        for _ in range(2):
            got = await client.fetch(server.request())
            assert b"secret" not in got.request_head + repr(got.headers).encode()
            assert got.header(b"set-cookie") == b"sid=[redacted]"
        assert b"Cookie: sid=secret\r\n" in server.requests[0]
        assert b"Cookie: sid=newsecret\r\n" in server.requests[1]


async def test_cookies_sent_by_a_jar_are_not_recorded(tmp_path: Path) -> None:
    """Cookie values that are sent are always hidden, and those that the jar of a crawl receives."""
    path = tmp_path / "cookies.txt"
    path.write_text("host.test\tFALSE\t/\tFALSE\t0\tsid\tsecret\n")
    answer = OK.replace(b"Content-Type", b"Set-Cookie: sid=secret; Path=/\r\nContent-Type")
    chain = FetchRequest("", ("127.0.0.1",), jar=CookieJar())
    by_hand = FetchRequest("", ("127.0.0.1",), headers=("Cookie: sid=secret",))
    ways = [
        (small(cookies=True), FetchRequest("", ("127.0.0.1",)), True),
        (small(cookies_file=str(path)), FetchRequest("", ("127.0.0.1",)), True),
        (small(), chain, False),
        (small(), by_hand, False),
    ]

    for config, request, lasts in ways:
        async with Server([answer]) as server, make_client(config) as client:
            request.url = server.url()
            await client.fetch(request)
            got = await client.fetch(request)
            assert b"Cookie: sid=secret\r\n" in server.requests[1]
            assert b"secret" not in got.request_head and b"Cookie: [redacted]\r\n" in got.request_head
            assert got.header(b"set-cookie") == (b"sid=[redacted]" if lasts else b"sid=secret; Path=/")
