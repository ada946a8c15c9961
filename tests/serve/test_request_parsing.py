"""Test the parsing of request targets, times and Accept-Datetime."""

import pytest

from crawler.serve.http_error import HttpError
from crawler.serve.request_parsing import ParsedRequest, Route, accept_datetime, parse

PAGE = "http://site.example/"


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("/page?url=http://site.example/", ParsedRequest(Route.PAGE, PAGE)),
        ("/page?url=site.example", ParsedRequest(Route.PAGE, PAGE)),
        ("/page?url=HTTP%3A%2F%2FSite.EXAMPLE%3A80%2Fa%2F..%2F", ParsedRequest(Route.PAGE, PAGE)),
        ("/page?url=http://site.example/%3Fa=1%26b=2", ParsedRequest(Route.PAGE, "http://site.example/?a=1&b=2")),
        ("/page?url=http://site.example/&rewrite=1", ParsedRequest(Route.PAGE, PAGE, rewrite=True)),
        ("/page?url=http://site.example/&refresh=1&max-stale=30",
         ParsedRequest(Route.PAGE, PAGE, max_stale=30.0, refresh=True)),
        ("/page?url=http://site.example/&at=20260131120000", ParsedRequest(Route.PAGE, PAGE, at=1769860800.0)),
        ("http://site.example/", ParsedRequest(Route.PROXY, PAGE)),
        ("http://site.example", ParsedRequest(Route.PROXY, PAGE)),
        ("/timegate/http://site.example/?a=1&b=2", ParsedRequest(Route.TIMEGATE, "http://site.example/?a=1&b=2")),
        ("/timegate/http%3A%2F%2Fsite.example%2F", ParsedRequest(Route.TIMEGATE, PAGE)),
        ("/timemap/link/http://site.example/", ParsedRequest(Route.TIMEMAP, PAGE)),
        ("/websub/abc", ParsedRequest(Route.WEBSUB, rest="abc")),
        ("/indexnow?url=x", ParsedRequest(Route.INDEXNOW)),
    ],
)  # fmt: skip
def test_valid_targets(target: str, asked: ParsedRequest) -> None:
    assert parse(target) == asked


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/page", 400),
        ("/page?url=", 400),
        ("/page?url=javascript:alert(1)", 400),
        ("/page?url=file:///etc/passwd", 400),
        ("/page?url=http://[::1/", 400),
        ("/page?url=http://a.example/%ff%fe&at=x", 400),
        ("/page?url=http://a.example/&at=yesterday", 400),
        ("/page?url=http://a.example/&at=20261399", 400),
        ("/page?url=http://a.example/&at=202613", 400),
        ("/page?url=http://a.example/&at=20261", 400),
        ("/page?url=http://a.example/&at=000000", 400),
        ("/page?url=http://a.example/&max-stale=-1", 400),
        ("/page?url=http://a.example/&max-stale=inf", 400),
        ("/page?url=http://a.example/&rewrite=yes", 400),
        ("/page?" + "&".join(f"a{i}=1" for i in range(50)), 400),
        ("/page/../../etc/passwd?url=http://a.example/", 404),
        ("/../../etc/passwd", 404),
        ("//etc/passwd", 404),
        ("/page%00", 404),
        ("/static/..%2f..%2fetc/passwd", 404),
        ("ftp://a.example/", 400),
        ("*", 400),
        ("a.example:443", 400),
        ("/page?url=http://a.example/" + "a" * 20_000, 414),
        ("/timegate/", 400),
        ("/timemap/json/http://a.example/", 404),
    ],
)
def test_invalid_targets(target: str, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        parse(target)
    assert caught.value.status == status


@pytest.mark.parametrize("endpoint", ["/page", "/view", "/held"])
@pytest.mark.parametrize("rest", ["b=2", "b", "url=http://other.example/", "at=2026&at=2025", "&&x=1", "=1"])
def test_a_url_that_is_not_escaped_is_refused_instead_of_cut(endpoint: str, rest: str) -> None:
    """In `?url=U?a=1&b=2`, the parameter `b` was ignored, and the answer was about `U?a=1`."""
    with pytest.raises(HttpError) as caught:
        parse(f"{endpoint}?url=http://site.example/?a=1&{rest}")
    assert caught.value.status == 400 and "percent-encoded" in str(caught.value)
    assert (
        parse(f"{endpoint}?url=http%3A//site.example/?a=1%26b=2&at=2026").url
        == "http://site.example/?a=1&b=2"
    )


def test_accept_datetime() -> None:
    """The example date of RFC 7089, 2.1.1, is accepted. Text that is not a date is rejected (RFC 7089, 4.5.3)."""
    assert accept_datetime("") is None
    assert accept_datetime("Thu, 31 May 2007 20:35:00 GMT") == 1180643700.0
    for text in ("yesterday", "2007-05-31", "Thu, 99 May 2007 20:35:00 GMT", "\x00"):
        with pytest.raises(HttpError):
            accept_datetime(text)
