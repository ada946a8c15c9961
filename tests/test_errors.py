"""Test what errors mean: the exit code, and whether the machine or the crawler is to blame."""

import errno
import logging

import pytest

from crawler.errors import DamageError, StoreError, Unexpected, UsageError, exit_code_of, system_failed


def caused(error: Exception, number: int) -> Exception:
    """Return `error` with an OSError as its cause."""
    error.__cause__ = OSError(number, "cause")
    return error


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, 75), (errno.EMFILE, 75), (errno.ENFILE, 75), (errno.ENOMEM, 75), (errno.ENOENT, 3)],
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
