"""What does not end is left alone, with its stacks in the log."""

import asyncio
import logging
import os
import subprocess
import sys
import threading

import pytest

from crawler.process.ending import Watchdog, in_thread, run, within

SOON = 0.05  # seconds: the limit is the subject


async def stubborn() -> None:
    """Takes no notice of being cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


def test_a_step_that_does_not_end_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("planted")

    async def play() -> list[bool]:
        asyncio.create_task(stubborn())  # what it leaves behind holds `run` up no longer than the limit
        return [await within(SOON, "stubborn step", stubborn()), await within(5.0, "failing step", fails())]

    with caplog.at_level(logging.ERROR):
        assert run(play(), asyncio.new_event_loop, SOON) == [False, True]
    assert (
        "stubborn step not over within 0.05 s" in caplog.text
        and "in stubborn" not in caplog.records[1].message
    )
    assert "test_ending.py" in caplog.records[0].message, "the stacks say where it stands"
    assert "failing step failed: planted" in caplog.text


def test_a_thread_that_hangs_holds_nothing_up() -> None:
    hang = threading.Event()

    async def play() -> bool:
        return await within(SOON, "thread", in_thread(hang.wait))

    assert run(play(), asyncio.new_event_loop, SOON) is False
    hang.set()


def test_a_process_with_a_hanging_thread_ends_with_its_code() -> None:
    """Python waits for the threads of executors, whatever they do."""
    code = (
        "import threading; from concurrent.futures import ThreadPoolExecutor; from crawler.process import ending\n"
        "ending.LEAVE_LIMIT = 0.1; ThreadPoolExecutor(1).submit(threading.Event().wait)\n"
        "raise SystemExit(ending.leave(7))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, env=dict(os.environ), capture_output=True
    )
    assert ended.returncode == 7, ended


def test_the_watchdog_says_where_the_loop_stands(caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def play() -> None:
        watchdog = Watchdog(SOON)
        watchdog.start()
        told.wait(30.0)  # the loop stands here
        watchdog.stop()

    logger, handler = logging.getLogger("crawler"), Told()
    logger.addHandler(handler)
    try:
        asyncio.run(play())
    finally:
        logger.removeHandler(handler)
    assert "the loop stands for 0.05 s" in caplog.text and "told.wait(30.0)" in caplog.text
