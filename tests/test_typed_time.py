"""Test the dates and times that users type: the parser, and that all interfaces use it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.admin.withdrawal import TakeDown
from crawler.clock import iso_time
from crawler.errors import UsageError
from crawler.pages.formats.where import compile_where
from crawler.serve.http_error import HttpError
from crawler.serve.request_parsing import parse
from crawler.typed_time import typed_period

DAY = 86400.0
PERIODS = {
    "1970": (0.0, 365 * DAY - 1.0),
    "1970-02": (31 * DAY, (31 + 28) * DAY - 1.0),
    "1972-02": (761 * DAY, 790 * DAY - 1.0),
    "1970-01-02": (DAY, 2 * DAY - 1.0),
    "1970-01-02T03": (DAY + 3 * 3600.0, DAY + 4 * 3600.0 - 1.0),
    "1970-01-02 03": (DAY + 3 * 3600.0, DAY + 4 * 3600.0 - 1.0),
    "1970-01-02T03:04": (DAY + 11_040.0, DAY + 11_099.0),
    "1970-01-02T03:04Z": (DAY + 11_040.0, DAY + 11_099.0),
    "1970-01-01T00:00:02Z": (2.0, 2.0),
    "1970-01-01t00:00:02z": (2.0, 2.0),
    "1970-01-01T00:00:02.5Z": (2.5, 2.5),
    "1970-01-01T01:00:00+01:00": (0.0, 0.0),
    "1969-12-31T18:30:00-0530": (0.0, 0.0),
    "1970-01-01T05+05": (0.0, 3599.0),
}
WRONG = (
    "", "yesterday", "20261", "202613", "2026-13", "2026-02-30", "20261399", "000000", "0000-01-01", "2026-W05",
    "2026-11-24T25", "2026-11-24T12:60", "2026-11-24Z", "1e9", "-1", " 2026", "2026\n", "2026-11-24T12:00:00+99:00",
    "\u0662\u0660\u0662\u0666", "10000", "99999999999999",
)  # fmt: skip


@pytest.mark.parametrize(("text", "period"), PERIODS.items())
def test_periods(text: str, period: tuple[float, float]) -> None:
    assert typed_period(text) == period


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(1, 6), st.booleans())
def test_a_period_is_the_same_with_and_without_separators(moment: datetime, parts: int, plain: bool) -> None:
    """A period begins where its text says, contains the moment, and ends before the next period begins."""
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    stamp = moment.strftime("%Y%m%d%H%M%S").zfill(14)[: (0, 4, 6, 8, 10, 12, 14)[parts]]
    pieces = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second][:parts]
    written = "%04d-%02d-%02dT%02d:%02d:%02d"[: (0, 4, 9, 14, 19, 24, 29)[parts]] % tuple(pieces)
    period = typed_period(stamp if plain else written)
    assert period == typed_period(written if plain else stamp)
    assert period.first <= moment.timestamp() <= period.last
    first = datetime(*(pieces + [1, 1, 1, 0, 0, 0][parts:]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    assert period.first == first.timestamp()
    after = datetime.fromtimestamp(0, UTC) + timedelta(seconds=period.last + 1.0)
    assert after.timetuple()[parts - 1] != moment.timetuple()[parts - 1]


@pytest.mark.parametrize("text", [*PERIODS, *WRONG])
def test_all_interfaces_read_a_time_in_the_same_way(text: str) -> None:
    """Command line, HTTP and Python give `before` to a `TakeDown`; the page server reads `at=`.

    `at=2026-11` was rejected, `at=20261124` and `at=2026-11-24` were different instants, and `--before` took neither
    `202611` nor `2026`.
    """
    said = {}
    escaped = "".join(f"%{byte:02x}" for byte in text.encode())
    for name, read in (
        ("before", lambda: msgspec.convert({"before": text, "host": "a.example"}, TakeDown).rule(9.0).before),
        ("at", lambda: parse(f"/page?url=http://a.example/&at={escaped}").at),
        ("view", lambda: parse(f"/view?url=http://a.example/&at={escaped}").at),
        ("where", lambda: compile_where(f"fetched_at == {text!r}", {"fetched_at": str})),
    ):
        try:
            said[name] = read()
        except (HttpError, UsageError) as error:
            said[name] = str(error).removeprefix("400 bad_request: ").removeprefix("--where: fetched_at: ")
    if text in PERIODS:
        first, last = PERIODS[text]
        test = said.pop("where").test
        assert [test({"fetched_at": iso_time(at)}) for at in (first - 1.0, first, last, last + 1.0)] == [
            False, True, True, False,
        ]  # fmt: skip
        assert said == {"before": first, "at": last, "view": last}
    elif text:
        assert len({*said.values()}) == 1 and repr(text)[:30] in said["at"], said
