"""Test when a URL without a copy is tried again."""

import math
from typing import Any

import pytest

from crawler.config import RefreshConfig
from crawler.frontier.later_tries import LaterTries
from crawler.records import LinkFlag, Outcome, PageRecord, PageState

HOUR, DAY = 3600.0, 86_400.0
FIRST = 1_000_000.0  # the instant of the first try
TRIES = LaterTries.of(RefreshConfig())


def failed(after: float = 0.0, **values: Any) -> PageRecord:
    """Return the record of a URL whose last try was `after` seconds after its first one."""
    values = {"status": 500, "fetched_at": FIRST + after, "changed_at": FIRST} | values
    state, outcome = values.pop("state", PageState.FAILED), values.pop("outcome", Outcome.TEMPORARY)
    return PageRecord("http://a.org/", state, outcome, **values)


def test_the_tries_of_a_month_become_ever_rarer() -> None:
    """Each wait is twice as long as the URL has been without a copy, from an hour to 30 days."""
    after, marks = 150.0, []
    while (at := TRIES.next_try(failed(after))) < math.inf:
        after = at - FIRST
        marks.append(after / HOUR)
    assert marks == pytest.approx([3.0**n * (1.0 + 150.0 / HOUR) for n in range(7)], rel=1e-6)
    assert 30 * DAY <= after < 32 * DAY


def test_a_wait_has_bounds() -> None:
    assert TRIES.wait(failed()) == HOUR
    assert TRIES.wait(failed(29 * DAY)) == 30 * DAY
    assert TRIES.wait(failed(-5.0)) == HOUR, "the clock was set back"


def test_the_wait_begins_with_a_try_that_got_no_answer() -> None:
    record = failed(0.0, status=0, fetched_at=0.0, unanswered_at=FIRST + 60.0, outcome=Outcome.RESET)
    assert TRIES.next_try(record) == FIRST + 60.0 + HOUR


@pytest.mark.parametrize(
    "values",
    [
        {"state": PageState.GONE, "outcome": Outcome.GONE},
        {"outcome": Outcome.CLIENT_ERROR},
        {"queued": True},
        {"fetches": 1},
        {"flags": LinkFlag.EXTERNAL},
        {"flags": LinkFlag.OWN_REQUEST},
        {"after": 30 * DAY},
    ],
    ids=str,
)
def test_other_urls_have_no_later_try(values: dict[str, Any]) -> None:
    assert TRIES.next_try(failed(**values)) == math.inf


def test_a_page_that_was_found_once_is_never_given_up() -> None:
    assert TRIES.is_over(failed(30 * DAY)) and not TRIES.is_over(failed(30 * DAY, fetches=1))


def test_later_tries_can_be_switched_off() -> None:
    assert LaterTries.of(RefreshConfig(retry_for=0)).next_try(failed()) == math.inf


def test_the_waits_are_those_of_the_clock_of_the_sites() -> None:
    fast = LaterTries.of(RefreshConfig(speed=60))
    assert (fast.shortest, fast.longest, fast.retry_for) == (60.0, 12 * HOUR, 12 * HOUR)
