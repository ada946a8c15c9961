"""Reads HTTP dates (RFC 9110, 5.6.7), for all parts of the crawler.

Nearly all dates have the same form. This module parses that form in a third of the time that Python's email
parser needs. The email parser reads the two obsolete forms, and the forms that servers write by mistake.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_fixed = re.compile(
    r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([1-9][0-9]{3}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
).fullmatch


_FIXED_LENGTH = 29
_DAY = 86400.0
_LEAP = 60  # the number of a leap second
_STRONG_SECONDS = 2.0


def instant(text: str) -> float | None:
    """Return the time that a date names, in seconds since the epoch; None if the text is not a date.

    A date without a zone is in UTC, as all HTTP dates are.
    """
    return (_fixed_date(text) if len(text) == _FIXED_LENGTH else None) or _other_date(text)


def is_strong(modified: str, date: str) -> bool | None:
    """Return whether Last-Modified is so much older than Date that it is a strong validator (RFC 9110, 8.8.2.2).

    If it is not, the page may have changed again within the same second. Return None if a date is missing or
    cannot be read.
    """
    changed_at, sent_at = instant(modified), instant(date)
    return None if changed_at is None or sent_at is None else sent_at - changed_at >= _STRONG_SECONDS


# cached, because answers of the same second have the same Date, and files of one release have the same
# Last-Modified
@lru_cache(maxsize=512)
def _fixed_date(text: str) -> float | None:
    """Parse a date in the usual form; return None if `text` has another form."""
    match = _fixed(text)
    if match is None or (month := _MONTHS.get(match[2])) is None:
        return None
    day, _, year, *clock = match.groups()
    return _seconds(int(year), month, int(day), *map(int, clock))


def _other_date(text: str) -> float | None:
    """Parse a date in any form that mail programs accept."""
    from email.utils import parsedate_tz  # imported here, because dates in other forms are rare

    try:
        parts = parsedate_tz(text)
    except (ValueError, IndexError, TypeError):
        return None
    if parts is None or abs(zone := parts[9] or 0) >= _DAY:
        return None
    found = _seconds(*parts[:6])
    return None if found is None else found - zone


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    leap = second == _LEAP
    try:
        return datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC).timestamp() + leap
    except (ValueError, OverflowError):
        return None
