"""Test how long the last work of a run may take, and which error ends it."""

import logging
import math

import pytest

from crawler.clock import VirtualClock
from crawler.errors import StoreError
from crawler.process.lifecycle.limits import STOP_GRACE
from crawler.process.lifecycle.run_end import RunEnd


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_the_caller_of_a_stop_chooses_the_grace_period(clock: VirtualClock) -> None:
    """`Crawl.stop(grace=60)` once had no more than the default of 2.5 s. A further stop only shortens the period."""
    end = RunEnd(clock.now)
    assert end.time_left() == math.inf and not end.stopping()
    end.stop("had enough", grace=60.0)
    clock.advance(10.0)
    assert (end.time_left(), end.time_left(20.0)) == (50.0, 10.0)
    end.stop("signal", grace=30.0)
    end.stop("again", grace=90.0)
    assert (end.time_left(), end.reason) == (20.0, "had enough")


@pytest.mark.parametrize(
    ("reason", "on_purpose"), [("", False), ("done", False), ("patience", False), ("max_pages", True)]
)
def test_a_lack_of_work_is_no_purpose(clock: VirtualClock, reason: str, on_purpose: bool) -> None:
    end = RunEnd(clock.now)
    if reason:
        end.stop(reason)
    assert end.on_purpose() is on_purpose and end.stopping() is bool(reason) is end.news.is_set()


def test_the_first_error_ends_the_run(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Only an error that is a bug of the crawler is logged here."""
    end = RunEnd(clock.now)
    stops: list[str] = []
    end.on_stop = lambda: stops.append(end.reason)
    first = StoreError("the disk is full")
    end.fail(first)
    end.fail(KeyError("of the user"), of_user=True)
    assert not caplog.records
    end.fail(KeyError("of the crawler"))
    assert end.failure is first and stops == ["error"] * 3 and end.time_left() == STOP_GRACE
    bug = RunEnd(clock.now)
    bug.fail(KeyError("of the user"), of_user=True)
    assert not caplog.records
    bug = RunEnd(clock.now)
    bug.fail(KeyError("of the crawler"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and "a bug in the crawler" in record.getMessage()


@pytest.mark.parametrize(
    "error", [MemoryError(), FileNotFoundError(2, "No such file or directory", "p0/due/1.run")]
)
def test_a_failure_of_the_environment_is_not_logged_as_a_bug(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    end = RunEnd(clock.now)
    end.fail(error)
    assert isinstance(end.failure, StoreError) and end.failure.__cause__ is error and not caplog.records
