"""Test when a child that has ended is started again."""

import itertools

import pytest

from crawler.errors import ConfigError, CrawlerError, DamageError, DirectoryError, StoreError, UsageError
from crawler.supervision.restarts import (
    ABORTED,
    LASTED,
    RESTART_DELAY_MAX,
    RESTARTS_MAX,
    WRITES_AGAIN,
    Next,
    Restarts,
)


@pytest.mark.parametrize(("code", "stopping"), [(0, False), (0, True), (1, True), (-9, True), (2, True)])
def test_an_expected_end_is_final(code: int, stopping: bool) -> None:
    assert Restarts().ended(code, 1.0, stopping=stopping) is Next.NOTHING


@pytest.mark.parametrize("error", [UsageError, ConfigError, DirectoryError, DamageError])
def test_errors_that_a_restart_cannot_fix_fail_at_once(error: type[CrawlerError]) -> None:
    assert Restarts().ended(error.exit_code, 10 * LASTED, stopping=False) is Next.FAIL


@pytest.mark.parametrize("code", [CrawlerError.exit_code, StoreError.exit_code, 4, -9])
def test_errors_that_may_pass_cause_a_restart(code: int) -> None:
    assert Restarts().ended(code, 0.0, stopping=False) is Next.START


def test_the_numbers_are_those_of_the_readme() -> None:
    """As `supervision/README.md` states, the delays before restarts double from 0.2 s to 30 s.

    The crawl fails if a child ends within 60 s after each of 10 restarts in a row.
    """
    restarts, delays = Restarts(), []
    while restarts.ended(-9, 59.9, stopping=False) is Next.START:
        delays.append(restarts.delay)
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])
    assert restarts.ended(-9, 60.0, stopping=False) is Next.START


@pytest.mark.parametrize("code", [1, 5, -9, -11])
def test_each_short_run_doubles_the_delay_until_the_last_restart(code: int) -> None:
    restarts, delays = Restarts(), []
    for _ in range(RESTARTS_MAX):
        assert restarts.ended(code, LASTED - 0.1, stopping=False) is Next.START
        delays.append(restarts.delay)
    assert restarts.ended(code, 0.0, stopping=False) is Next.FAIL
    assert delays[:3] == [0.2, 0.4, 0.8] and delays[-1] == RESTART_DELAY_MAX
    assert all(two == min(2 * one, RESTART_DELAY_MAX) for one, two in itertools.pairwise(delays))


def test_a_start_that_lasted_begins_a_new_count() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(-9, 0.0, stopping=False)
    assert restarts.ended(-9, LASTED, stopping=False) is Next.START and restarts.delay == 0.2
    for _ in range(RESTARTS_MAX):
        assert restarts.ended(-9, 0.0, stopping=False) is Next.START
    assert restarts.ended(-9, 0.0, stopping=False) is Next.FAIL


FULL = StoreError.exit_code


@pytest.mark.parametrize("lasted", [0.0, LASTED, WRITES_AGAIN - 1])
def test_a_second_full_disk_in_a_row_ends_the_crawl(lasted: float) -> None:
    """A restart cannot help if the disk is still full; a flush that is tried again may last more than `LASTED`."""
    restarts = Restarts()
    assert restarts.ended(FULL, 0.0, stopping=False) is Next.START
    assert restarts.delay == 0.2
    assert restarts.ended(FULL, lasted, stopping=False) is Next.FAIL


@pytest.mark.parametrize(("first", "second"), [(ABORTED, ABORTED), (ABORTED, FULL), (FULL, ABORTED)])
def test_a_second_abort_in_a_row_ends_the_crawl(first: int, second: int) -> None:
    """Libraries abort if they get no memory; after a start that lasted, the abort may have another cause."""
    for lasted, then in ((LASTED - 1, Next.FAIL), (LASTED, Next.START)):
        restarts = Restarts()
        assert restarts.ended(first, 0.0, stopping=False) is Next.START
        assert restarts.ended(second, lasted, stopping=False) is then


@pytest.mark.parametrize(("between", "lasted"), [(FULL, WRITES_AGAIN), (-9, 0.0)])
def test_a_full_disk_that_had_room_in_between_is_a_first_one(between: int, lasted: float) -> None:
    restarts = Restarts()
    for code, length in ((FULL, 0.0), (between, lasted)):
        assert restarts.ended(code, length, stopping=False) is Next.START
    if between != FULL:
        assert restarts.ended(FULL, 0.0, stopping=False) is Next.START
    assert restarts.ended(FULL, 0.0, stopping=False) is Next.FAIL
