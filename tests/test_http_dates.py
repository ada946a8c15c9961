"""Test HTTP dates, and compare all readers of dates with each other."""

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime

import pytest

from crawler import http_dates
from crawler.extract.feed import read_feed
from crawler.fetcher import outcome
from crawler.fetcher.framing import parse_head
from crawler.records import Fetch, Outcome
from crawler.render.shared_cache import fresh_for
from crawler.serve.request_parsing import accept_datetime

# RFC 9110, section 5.6.7, shows the same time in three formats. The other texts are common mistakes.
EXAMPLE = 784111777.0
FORMS = [
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "sun, 06 nov 1994 08:49:37 gmt",
    "Sun, 6 Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 08:49:37",
    "Sun, 06 Nov 1994 08:49:37 -0000",
    "Sun, 06 Nov 1994 09:49:37 +0100",
]
BAD = [
    "",
    "yesterday",
    "Sun, 06 Nov 1994",
    "Sun, 31 Feb 1994 08:49:37 GMT",
    "Sun, 06 Foo 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 25:49:37 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT",
    "Sun, 06 Nov 99999999999999999999 08:49:37 GMT",
    "Sun, 06 Nov 1994 08:49:37 +99999999999999999999",
]


@pytest.fixture(autouse=True, params=["UTC", "Asia/Tokyo"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in two time zones, because no result may depend on the zone of the machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _feed(text: str) -> float | None:
    item = f"<item><link>http://a.test/</link><pubDate>{text}</pubDate></item>"
    return (
        read_feed(f"<rss><channel>{item}</channel></rss>".encode(), 10, "http://a.test/").entries[0].lastmod
    )


def _retry_after(text: str) -> float | None:
    block = f"HTTP/1.1 503 X\r\nRetry-After: {text}\r\n\r\n".encode()
    return outcome.retry_after_of(parse_head(block, fields_max=9, field_bytes_max=999), 0.0) or None


def _expires(text: str) -> float | None:
    fields = ((b"Expires", text.encode()), (b"Date", b"Thu, 01 Jan 1970 00:00:01 GMT"))
    fetch = Fetch(
        "http://a.test/", Outcome.FETCHED, outcome.blame_of(Outcome.FETCHED), status=200, headers=fields
    )
    return fresh_for(fetch, 1.0) or None


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("read", [http_dates.instant, _feed, _retry_after, accept_datetime])
def test_every_reader_reads_every_form_as_utc(read: Callable[[str], float | None], text: str) -> None:
    assert read(text) == EXAMPLE


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("read", [http_dates.instant, _feed, _retry_after])
def test_no_reader_reads_other_text(read: Callable[[str], float | None], text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("text", FORMS)
def test_the_cache_of_the_browser_reads_every_form(text: str) -> None:
    """An answer that has expired long ago is not fresh; a year in the future makes it fresh."""
    assert _expires(text) == _expires(FORMS[0])


@pytest.mark.parametrize("text", BAD)
def test_an_unreadable_date_has_expired(text: str) -> None:
    assert _expires(text or "0") is None


@pytest.mark.parametrize("seed", range(300))
def test_any_text_is_read_as_the_email_parser_reads_it(seed: int) -> None:
    """Read correct dates, dates out of range, and dates in which characters were replaced, inserted or deleted."""
    draw = random.Random(seed)
    month = draw.choice(["Jan", "Feb", "Sep", "Dec", "dec", "Foo", "MAY"])
    zone = draw.choice(["GMT"] * 4 + ["EST", "gmt", "-0000", ""])
    text = (
        f"{draw.choice(['Sun', 'Mon', 'Xyz', 'sun'])}, {draw.randrange(33):02} {month} "
        f"{draw.choice([1994, 2026, 9999, 1000, '0094', '94', '0000'])} "
        f"{draw.randrange(25):02}:{draw.randrange(61):02}:{draw.randrange(60):02} {zone}"
    )
    for _ in range(draw.choice([0, 0, 1, 2])):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(["", " ", "1", "x", "-", "\u0661", "\n"]) + text[at + 1 :]
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        expected = None
    else:
        expected = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    assert http_dates.instant(text) == expected


def test_a_leap_second_is_the_second_before_midnight_plus_one() -> None:
    assert http_dates.instant("Sat, 31 Dec 2016 23:59:60 GMT") == http_dates.instant(
        "Sun, 01 Jan 2017 00:00:00 GMT"
    )


def test_the_usual_form_needs_no_email_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("email.utils.parsedate_tz", None)
    assert http_dates.instant(FORMS[0]) == EXAMPLE


@pytest.mark.parametrize(
    ("modified", "date", "strong"),
    [
        (FORMS[0], "Sun, 06 Nov 1994 08:49:39 GMT", True),
        (FORMS[2], "Sun, 06 Nov 1994 08:49:39 GMT", True),
        (FORMS[0], "Sun, 06 Nov 1994 08:49:38 GMT", False),
        (FORMS[0], "", None),
        (BAD[7], FORMS[0], None),
    ],
)
def test_a_strong_validator_is_two_seconds_older_than_the_answer(
    modified: str, date: str, strong: bool | None
) -> None:
    assert http_dates.is_strong(modified, date) is strong
