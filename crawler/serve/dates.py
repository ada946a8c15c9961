"""Formats times for header fields and for the addresses of copies.

The text for each day is cached, so formatting costs little.
"""

from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import NamedTuple

_DAY = 86_400


def http_date(second: int) -> str:
    """Format a time, in whole seconds, as an HTTP date."""
    day, rest = divmod(second, _DAY)
    return f"{_day(day)[0]} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02} GMT"


def stamp(instant: float) -> str:
    """Return a time as 14 digits, in UTC."""
    day, rest = divmod(int(instant), _DAY)
    return f"{_day(day)[1]}{rest // 3600:02}{rest // 60 % 60:02}{rest % 60:02}"


def rfc3339(instant: float) -> bytes:
    """Format a time in UTC, to the second."""
    day, rest = divmod(int(instant), _DAY)
    return b"%bT%02d:%02d:%02dZ" % (_day(day)[2], rest // 3600, rest // 60 % 60, rest % 60)


@lru_cache(maxsize=4096)
def _day(number: int) -> tuple[str, str, bytes]:
    """Format the day with this number since the epoch in three ways: for HTTP dates, as 8 digits, and for RFC 3339."""
    date = datetime.fromtimestamp(number * _DAY, UTC).strftime("%Y-%m-%d").zfill(10)
    return formatdate(number * _DAY, usegmt=True)[:16], date.replace("-", ""), date.encode()


class Dates(NamedTuple):
    """One time in the four forms that an answer contains.

    `http` and `field` are the HTTP date as text and as bytes, and `rfc3339` is the form of RFC 3339. `stamp` has
    the 14 digits that the address of a copy contains.
    """

    http: str
    field: bytes
    rfc3339: bytes
    stamp: str


@lru_cache(maxsize=1024)
def dates_of(second: int) -> Dates:
    """Return a time, given in whole seconds, in all formats.

    Pages that were fetched in the same second share one object.
    """
    text = http_date(second)
    return Dates(text, text.encode(), rfc3339(second), stamp(second))
