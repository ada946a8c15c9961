"""Formats times for header fields and for the addresses of copies."""

from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import NamedTuple

_DAY = 86_400


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
    day, rest = divmod(second, _DAY)
    name, date = _day(day)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    http = f"{name} {clock} GMT"
    stamp = date.replace("-", "") + clock.replace(":", "")
    return Dates(http, http.encode(), f"{date}T{clock}Z".encode(), stamp)


@lru_cache(maxsize=4096)
def _day(number: int) -> tuple[str, str]:
    """Format the day with this number since the epoch in two ways: for HTTP dates, and for RFC 3339."""
    date = datetime.fromtimestamp(number * _DAY, UTC).strftime("%Y-%m-%d").zfill(10)
    return formatdate(number * _DAY, usegmt=True)[:16], date
