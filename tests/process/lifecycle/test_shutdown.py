"""Test that a step of the shutdown is abandoned if it does not end.

The stacks of tasks and threads are then logged.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from crawler.errors import StoreError
from crawler.process.lifecycle.shutdown import (
    FRAMES_SHOWN,
    LOOKS,
    TASKS_SHOWN,
    Watchdog,
    in_thread,
    run,
    stacks,
    within,
)

SOON = 0.05  # seconds; this limit is short because the tests wait until it is exceeded


async def stubborn() -> None:
    """Wait forever, even when cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@pytest.mark.parametrize(
    ("error", "traceback"),
    [(ValueError("x"), True), (BrokenPipeError(32, "Broken pipe"), False), (StoreError("full"), False)],
)
def test_only_a_step_that_fails_because_of_a_bug_logs_a_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception, traceback: bool
) -> None:
    async def fails() -> None:
        raise error

    assert asyncio.run(within(5.0, "step", fails()))
    assert caplog.messages == [f"shutdown: step failed: {error}"]
    assert bool(caplog.records[0].exc_info) is traceback


def test_a_step_that_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("planted")

    async def play() -> list[bool]:
        asyncio.create_task(stubborn())  # a task left behind delays `run` by at most the limit
        return [await within(SOON, "stubborn step", stubborn()), await within(5.0, "failing step", fails())]

    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        assert run(play(), lambda: loop, SOON) == [False, True]
    loop.close()  # `run` left the loop open, because a task in the loop has not ended
    assert (
        "stubborn step did not end within 0.05 s" in caplog.text
        and "in stubborn" not in caplog.records[1].message
    )
    assert "test_shutdown.py" in caplog.records[0].message, "the stacks show where the step waits"
    assert "failing step failed: planted" in caplog.text


def test_a_hanging_thread_does_not_delay_the_exit() -> None:
    hang = threading.Event()

    async def play() -> bool:
        return await within(SOON, "thread", in_thread(hang.wait))

    loop = asyncio.new_event_loop()
    assert run(play(), lambda: loop, SOON) is False
    hang.set()
    loop.close()


def test_a_process_with_a_hanging_thread_ends_with_its_code() -> None:
    """At its exit, Python would wait without a limit for the threads of executors.

    The thread is logged, and the output is complete.
    """
    code = (
        "import threading; from concurrent.futures import ThreadPoolExecutor; print('output')\n"
        "from crawler.process.lifecycle import shutdown\n"
        "shutdown.LEAVE_LIMIT = 0.1; ThreadPoolExecutor(1).submit(threading.Event().wait)\n"
        "raise SystemExit(shutdown.leave(7))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, env=dict(os.environ), capture_output=True
    )
    assert ended.returncode == 7 and ended.stdout == b"output\n", ended
    assert b"ThreadPoolExecutor" in ended.stderr, ended


def test_the_watchdog_logs_where_the_event_loop_is_blocked() -> None:
    told, texts = threading.Event(), list[str]()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())
            told.set()

    async def play() -> threading.Thread:
        watchdog = Watchdog(SOON)
        before = set(threading.enumerate())
        watchdog.start()
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon, "otherwise it would delay the exit of the process"
        told.wait(30.0)  # this blocks the event loop
        watchdog.stop()
        return thread

    logger, handler = logging.getLogger("crawler"), Told()
    logger.addHandler(handler)
    try:
        asyncio.run(play()).join()
    finally:
        logger.removeHandler(handler)
    # On a busy machine, the loop may count as blocked before `play` blocks it. Even then, `play` is running.
    assert "the event loop is blocked for 0.05 s" in texts[0] and ", in play\n" in texts[0]


# -- without waiting -----------------------------------------------------------------------


def test_tasks_that_main_leaves_are_cancelled_and_the_loop_is_closed() -> None:
    cancelled = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def play() -> int:
        asyncio.create_task(left())
        await asyncio.sleep(0)
        return 5

    loop = asyncio.new_event_loop()
    assert run(play(), lambda: loop, 30.0) == 5
    assert cancelled == [1] and loop.is_closed()


async def test_an_abandoned_step_is_cancelled() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    assert not await within(0.0, "step", work)
    await asyncio.sleep(0)
    assert work.cancelled()
    gone = asyncio.ensure_future(asyncio.Event().wait())
    gone.cancel()
    assert await within(30.0, "cancelled step", gone)


async def test_a_caller_that_gave_up_gets_no_result() -> None:
    """The caller is cancelled. The thread ends later. At that time, the event loop may still run or may be closed."""
    complaints: list[object] = []
    release = threading.Event()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    ended, over = in_thread(release.wait), asyncio.Event()
    ended.cancel()
    call = loop.call_soon_threadsafe

    def noted(callback: Callable[..., object], *arguments: object) -> asyncio.Handle:
        handle = call(callback, *arguments)
        call(over.set)
        return handle

    loop.call_soon_threadsafe = noted  # type: ignore[method-assign, assignment]
    release.set()
    await over.wait()
    await asyncio.sleep(0)
    await in_thread(lambda: None)
    assert complaints == []


def test_stacks_show_a_bounded_number_of_tasks_and_frames() -> None:
    def deep(depth: int) -> str:  # two functions take turns, because a traceback merges equal frames
        return deeper(depth) if depth else stacks()

    def deeper(depth: int) -> str:
        return deep(depth - 1)

    async def play() -> tuple[str, str]:
        tasks = [asyncio.create_task(stubborn_once(), name=f"waits {n}") for n in range(TASKS_SHOWN + 4)]
        await asyncio.sleep(0)
        many = stacks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return many, stacks()

    async def stubborn_once() -> None:
        await asyncio.Event().wait()

    many, one = asyncio.run(play())
    # one of these tasks is `play`
    assert many.count("\ntask ") == TASKS_SHOWN and "\nand 5 more tasks\n" in many
    assert f'  File "{__file__}", line {stubborn_once_line(many)}' in many
    assert one.count("task ") == 1 and "more tasks" not in one
    assert f"thread {threading.current_thread().name}:\n" in one
    own = deep(60).partition(f"thread {threading.current_thread().name}:\n")[2].partition("thread ")[0]
    assert own.count("  File ") == FRAMES_SHOWN and ", in stacks\n" in own, "the innermost frames are shown"
    assert "\ntask " not in stacks(), "no loop runs here"


def stubborn_once_line(text: str) -> str:
    """Return the number of the line at which a task of the test above waits, according to its stack."""
    return text.partition("task waits ")[2].partition(", line ")[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ("tttttttttttt", 0),
        ("-", 0),
        ("t" + "-" * (LOOKS - 1) + "t", 0),
        ("t" + "-" * LOOKS, 1),
        ("t" + "-" * 5 * LOOKS, 1),
        (("t" + "-" * LOOKS) * 3, 3),
    ],
)
def test_a_loop_is_blocked_after_some_checks_without_a_turn(
    turns: str, said: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A blocked loop is logged once, and again only after it has made a turn.

    Each `t` in `turns` stands for a turn.
    """
    dog = Watchdog(10.0)
    looks = iter(turns)

    def wait(interval: float) -> bool:
        assert interval == 10.0 / LOOKS
        turn = next(looks, None)
        dog._turns += turn == "t"
        return turn is None

    monkeypatch.setattr(dog, "_over", SimpleNamespace(wait=wait))
    monkeypatch.setattr(dog, "_loop", None, raising=False)
    with caplog.at_level(logging.ERROR):
        dog._watch()
    assert [record.args[0] for record in caplog.records if record.args] == [10.0] * said  # type: ignore[index]


def test_the_watchdog_counts_turns_of_the_loop_until_it_is_stopped() -> None:
    calls: list[tuple[float, Callable[[], None]]] = []
    ended: list[int] = []

    class Loop:
        def call_later(self, delay: float, call: Callable[[], None]) -> object:
            calls.append((delay, call))
            return SimpleNamespace(cancel=lambda: ended.append(1))

    dog = Watchdog(10.0)
    dog.stop()  # harmless
    dog._loop = Loop()  # type: ignore[assignment]
    for turns in range(1, 4):
        dog._beat()
        assert dog._turns == turns and calls[-1] == (10.0 / LOOKS, dog._beat)
    dog.stop()
    assert ended == [1] and dog._over.is_set()
