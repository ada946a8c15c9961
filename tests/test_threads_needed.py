"""Test the check for threads, without which libuv would abort the process."""

import threading

import pytest

from crawler.errors import StoreError
from crawler.threads_needed import THREADS, check_threads


def test_the_threads_of_the_check_end() -> None:
    before = threading.active_count()
    check_threads()
    assert threading.active_count() == before


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_too_few_threads_are_reported_in_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    start, before = threading.Thread.start, threading.active_count()

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() >= before + 3:
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(
        StoreError, match=f"may start only 3 more threads, but needs {THREADS}; raise the limit"
    ):
        check_threads()
    assert threading.active_count() == before
