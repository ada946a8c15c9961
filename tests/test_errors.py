"""Test what errors mean: the exit code, and whether the machine or the crawler is to blame."""

import errno
import logging

import pytest

from crawler.errors import (
    DamageError,
    StoreError,
    Unexpected,
    UsageError,
    blame_of_system,
    exit_code_of,
    system_failed,
)


def caused(error: Exception, number: int) -> Exception:
    """Return `error` with an OSError as its cause."""
    error.__cause__ = OSError(number, "cause")
    return error


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 75),
        (errno.EROFS, 75),
        (errno.EMFILE, 75),
        (errno.ENFILE, 75),
        (errno.ENOMEM, 75),
        (errno.ENOENT, 3),
    ],
)
def test_a_file_that_cannot_be_read_now_is_not_damaged(number: int, code: int) -> None:
    error = DamageError("a file cannot be read")
    caused(error, number)
    assert exit_code_of(error) == code and system_failed(error) is (code == 75)
    usage = UsageError("a file of the user")
    caused(usage, number)
    assert exit_code_of(usage) == 2


def test_work_is_not_skipped_because_the_machine_failed(caplog: pytest.LogCaptureFixture) -> None:
    """If it were, a page would be stored without its body when there are no file descriptors left."""
    unexpected = Unexpected()
    with pytest.raises(StoreError, match="^WARC records of u: Too many open files$"):
        unexpected.note(OSError(errno.EMFILE, "Too many open files"), "WARC records of u; no body is stored")
    with caplog.at_level(logging.ERROR):
        assert unexpected.note(ValueError("a bug"), "page") == "ValueError: a bug"
    assert sum(unexpected.counts.values()) == 1


NO_MEMORY = [MemoryError("unable to allocate an array"), RuntimeError("can't start new thread")]


@pytest.mark.parametrize("error", NO_MEMORY)
def test_a_lack_of_memory_is_not_a_bug(error: Exception) -> None:
    expected = blame_of_system(error)
    assert expected is not None and exit_code_of(expected) == 75 and "no memory" in str(expected)
    assert system_failed(error)
    with pytest.raises(StoreError):
        Unexpected().note(error, "page")


def test_a_file_that_vanishes_is_not_a_bug() -> None:
    expected = blame_of_system(
        FileNotFoundError(errno.ENOENT, "No such file or directory", "crawl/p0/due/1.run")
    )
    assert str(expected) == "crawl/p0/due/1.run: No such file or directory"
    assert isinstance(expected, StoreError)


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), KeyError("key"), AssertionError(), OSError("no number")]
)
def test_a_bug_is_not_blamed_on_the_system(error: Exception) -> None:
    assert blame_of_system(error) is None


def test_an_expected_error_stays_as_it_is() -> None:
    error = UsageError("usage")
    assert blame_of_system(error) is error
