"""Test HTTP dates.

Our parser reads the usual form of a date, with the same result as Python's email parser. Dates in any other
form are left to Python's email parser.
"""

import random
from datetime import datetime
from email.utils import parsedate_to_datetime

import pytest

from crawler import http_dates


def _result(parse: object, text: str) -> object:
    try:
        moment = parse(text)  # type: ignore[operator]
    except (ValueError, TypeError, OverflowError) as error:
        return type(error)
    assert isinstance(moment, datetime)
    return moment, moment.utcoffset()


@pytest.mark.parametrize("seed", range(300))
def test_any_text_is_read_as_the_email_parser_reads_it(seed: int) -> None:
    """Read correct dates, dates out of range, and dates in which characters were replaced, inserted or deleted."""
    draw = random.Random(seed)
    month = draw.choice(["Jan", "Feb", "Sep", "Dec", "dec", "Foo", "MAY"])
    zone = draw.choice(["GMT"] * 4 + ["EST", "gmt", "-0000", ""])
    text = (
        f"{draw.choice(['Sun', 'Mon', 'Xyz', 'sun'])}, {draw.randrange(33):02} {month} "
        f"{draw.choice([1994, 2026, 9999, 1000, '0094', '94', '0000'])} "
        f"{draw.randrange(25):02}:{draw.randrange(61):02}:{draw.randrange(62):02} {zone}"
    )
    for _ in range(draw.choice([0, 0, 1, 2])):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(["", " ", "1", "x", "-", "\u0661", "\n"]) + text[at + 1 :]
    assert _result(http_dates.parse_date, text) == _result(parsedate_to_datetime, text)


def test_the_usual_form_needs_no_email_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("email.utils.parsedate_to_datetime", None)
    moment = http_dates.parse_date("Sun, 06 Nov 1994 08:49:37 GMT")
    assert moment.timestamp() == 784111777.0
