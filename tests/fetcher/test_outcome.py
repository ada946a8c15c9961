"""Test how header fields with types, dates, delays and lengths are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.fetcher import outcome
from crawler.fetcher.framing import Head, parse_head
from crawler.records import Outcome

NOW = 1_000_000_000.0  # 2001-09-09T01:46:40Z


def parsed(*lines: str, status: int = 200) -> Head:
    block = "\r\n".join((f"HTTP/1.1 {status} X", *lines, "", "")).encode("latin-1")
    return parse_head(block, fields_max=50, field_bytes_max=1000)


WAITS = [
    (["Retry-After: 120"], 503, 120.0),
    (["Retry-After: 120"], 429, 120.0),
    (["Retry-After: 120"], 301, 120.0),
    (["Retry-After: 120"], 200, 0.0),
    (["Retry-After: 0"], 503, 0.0),
    (["Retry-After: -5"], 503, 0.0),
    (["Retry-After: 1.5"], 503, 0.0),
    (["Retry-After: soon"], 503, 0.0),
    (["Retry-After:"], 503, 0.0),
    (["Retry-After: " + "9" * 400], 503, 999_999_999_999_999.0),
    (["Retry-After: 5", "Retry-After: 9"], 503, 5.0),
    (["Retry-After: Sun, 09 Sep 2001 01:47:40 GMT"], 503, 60.0),
    (["Retry-After: Sunday, 09-Sep-01 01:47:40 GMT"], 503, 60.0),
    (["Retry-After: Sun Sep  9 01:47:40 2001"], 503, 60.0),
    (["Retry-After: Sun, 09 Sep 2001 01:00:00 GMT"], 503, 0.0),
    ([], 503, 0.0),
]


@pytest.mark.parametrize(("lines", "status", "seconds"), WAITS, ids=str)
def test_retry_after(lines: list[str], status: int, seconds: float) -> None:
    assert outcome.retry_after_of(parsed(*lines, status=status), NOW) == seconds


TYPES = [
    (["Content-Type: text/html"], ("text/html", "")),
    (["content-type: TEXT/HTML;charset=UTF-8"], ("text/html", "utf-8")),
    (['Content-Type: text/html ; a=b ; Charset = "ISO-8859-1" ; c'], ("text/html", "iso-8859-1")),
    (["Content-Type: text/html; charset='gbk'"], ("text/html", "gbk")),
    (['Content-Type: text/html; charset="broken'], ("text/html", "broken")),
    (["Content-Type: text/html; xcharset=utf-8"], ("text/html", "")),
    (["Content-Type: text/html; charset="], ("text/html", "")),
    (["Content-Type: text/plain", "Content-Type: text/html; charset=x"], ("text/html", "x")),
    (["Content-Type: text/html", "Content-Type: nonsense"], ("text/html", "")),
    (["Content-Type: */*"], ("", "")),
    (["Content-Type: text"], ("", "")),
    (["Content-Type: /"], ("", "")),
    (["Content-Type:"], ("", "")),
    ([], ("", "")),
]


@pytest.mark.parametrize(("lines", "expected"), TYPES, ids=str)
def test_content_type(lines: list[str], expected: tuple[str, str]) -> None:
    assert parsed(*lines).media_type() == expected


@given(st.integers(0, 999), st.booleans(), st.booleans(), st.booleans())
def test_every_status_has_one_outcome_and_redirects_need_a_location(
    status: int, conditional: bool, has_body: bool, has_location: bool
) -> None:
    got = outcome.of_status(status, conditional=conditional, has_body=has_body, has_location=has_location)
    assert isinstance(got, Outcome)
    assert (got is Outcome.REDIRECT) == (status in (301, 302, 303, 307, 308) and has_location)
    assert (got is Outcome.UNCHANGED) == (status == 304 and conditional)
    assert (got in (Outcome.FETCHED, Outcome.EMPTY)) == (200 <= status < 300 and status != 206)


def test_every_outcome_has_a_blame() -> None:
    for got in Outcome:
        outcome.blame_of(got)


def test_fields_are_kept_as_received() -> None:
    head = parsed("A: 1", "a: 2", "B:  x  y ", "C:", "Set-Cookie: k=v, w")
    assert head.fields == (
        (b"A", b"1"),
        (b"a", b"2"),
        (b"B", b"x  y"),
        (b"C", b""),
        (b"Set-Cookie", b"k=v, w"),
    )
    assert head.values(b"a") == [b"1", b"2"] and head.values(b"none") == []
    assert head.tokens(b"set-cookie") == [b"k=v", b"w"]
