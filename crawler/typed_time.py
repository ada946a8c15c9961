"""Reads dates and times that users type, for all commands and servers.

A text names a period: `2026` is a year, `2026-11` a month, `2026-11-24` a day, `2026-11-24T12` an hour, and so on. The
separators may be left out, as in the stamps of archives: `202611`, `20261124120000`. A zone (`Z`, `+01:00`) may follow
the time of day; without one, the period is in UTC. A period is used in three ways:

    before PERIOD    before the first instant of the period     `crawler withdraw --before`
    at PERIOD        the last second of the period              `at=` of the page server, as in other archives (pywb 2.10)
    TIME == PERIOD   the period contains the time               `crawler export --where`, as also `<` and the like
"""

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from crawler.errors import UsageError

FORMS = "2026, 2026-11, 2026-11-24, 2026-11-24T12:00:00Z or 20261124120000"
_TYPED = re.compile(
    r"([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2})(?:[T ]?([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2})([.,][0-9]{1,9})?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?)?)?",
    re.IGNORECASE,
)
_ENDS = (0, 4, 7, 10, 13, 16, 19)  # length of ISO 8601 text by the number of its parts
_MINUTES = 5  # the number of parts of a text that states the minute
_SHOWN_MAX = 40  # maximum number of characters of a wrong text that a message shows


class Period(NamedTuple):
    """The first instant and the last second of a period, in seconds since the epoch; equal for a time with seconds."""

    first: float
    last: float


def typed_period(text: str) -> Period:
    """Return the period that a text names.

    Raises:
        UsageError: the text is neither a date nor a time.
    """
    match = _TYPED.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        *parts, fraction, zone = match.groups()
        given = [int(part) for part in parts if part is not None]
        first = _instant([*given, *(1, 1, 1, 0, 0, 0)[len(given) :]], zone)
        if fraction:
            exact = first + float(f"0.{fraction[1:]}")
            return Period(exact, exact)
        days = monthrange(given[0], given[1])[1] if len(given) == len(("year", "month")) else 31
        return Period(first, _instant([*given, *(1, 12, days, 23, 59, 59)[len(given) :]], zone))
    except (ValueError, OverflowError):
        raise UsageError(f"{text[:_SHOWN_MAX]!r} is not a date or time; write {FORMS}") from None


def iso_prefix(text: str) -> str:
    """Return the period that a text names as the beginning of ISO 8601 text in UTC: `2026-11`, `2026-11-24T12`.

    Raises:
        UsageError: the text is neither a date nor a time, or names an hour that begins at half past in UTC.
    """
    first = datetime.fromtimestamp(typed_period(text).first, UTC)
    match = _TYPED.fullmatch(text)
    assert match is not None, text
    *parts, fraction, _ = match.groups()
    given = sum(part is not None for part in parts)
    if first.minute and given < _MINUTES:
        raise UsageError(f"{text!r}: write the minutes, because this hour begins at half past in UTC")
    written = first.replace(tzinfo=None).isoformat(timespec="seconds")
    return written[: _ENDS[given]] + (fraction or "").replace(",", ".")


def _instant(parts: list[int], zone: str | None) -> float:
    year, month, day, hour, minute, second = parts
    return datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone)).timestamp()


def _zone(text: str | None) -> timezone:
    if not text or text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
