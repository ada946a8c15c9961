"""Shuts a process down in bounded time. If something does not end in time, the stacks are logged.

`within` limits the time of a shutdown step. If the step exceeds its limit, all stacks are logged, and the
step is cancelled and abandoned. `run` and `leave` limit waits that Python itself does not limit: those for
tasks, executors and threads. A `Watchdog` logs the stacks when the event loop is blocked, whatever code
blocks it.

No data is lost: work that was not committed is done again in the next run.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from crawler.errors import blame_of_system
from crawler.printable import flush_output
from crawler.wording import several

T = TypeVar("T")

log = logging.getLogger("crawler")

TASKS_SHOWN = 20  # maximum number of tasks shown when all stacks are logged
FRAMES_SHOWN = 20  # maximum number of frames shown per task and thread
LEAVE_LIMIT = 2.0  # number of seconds to wait for threads of executors that have already been shut down
_left_alone: list[str] = []  # names of the abandoned shutdown steps and tasks of this process
LOOKS = 4  # number of checks that the watchdog makes within its limit


async def within(limit: float, step: str, work: Awaitable[object]) -> bool:
    """Wait at most `limit` seconds for `work`. Return whether it ended.

    An exception of `work` is only logged: in one line if the disk or a peer caused it, otherwise with its traceback.
    """
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=limit)
    if not done:
        log.error("shutdown: %s did not end within %g s; abandoned\n%s", step, limit, stacks())
        task.cancel()
        _left_alone.append(step)
        return False
    if not task.cancelled() and (error := task.exception()) is not None:
        bug = error if blame_of_system(error) is None else None
        log.error("shutdown: %s failed: %s", step, error, exc_info=bug)
    return True


def in_thread(function: Callable[[], object]) -> "asyncio.Future[None]":
    """Call `function` in a thread that the process does not wait for when it exits."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def work() -> None:
        try:
            function()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed, so no caller waits for the result
                loop.call_soon_threadsafe(tell)

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    return ended


def run(main: Coroutine[Any, Any, T], new_loop: Callable[[], asyncio.AbstractEventLoop], limit: float) -> T:
    """Run `main` like `asyncio.run`, but limit each step of the cleanup that follows to `limit` seconds."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    before = len(_left_alone)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(_clear(limit))
        asyncio.set_event_loop(None)
        if len(_left_alone) == before:  # if connections were left open, uvloop's `close` would wait for them
            loop.close()


async def _clear(limit: float) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, stubborn = await asyncio.wait(left, timeout=limit)
        _left_alone.extend(task.get_name() for task in stubborn)
    loop = asyncio.get_running_loop()
    await within(limit, "asynchronous generators", loop.shutdown_asyncgens())
    await within(limit, "threads of the loop", loop.shutdown_default_executor())


def leave(code: int) -> int:
    """Return the exit code. But if a running thread would delay the exit, end the process with this code at once."""
    end = time.monotonic() + LEAVE_LIMIT
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                log.error("shutdown: thread %s did not end; abandoned\n%s", thread.name, stacks())
                logging.shutdown()
                flush_output()
                os._exit(code)
    return code


def stacks(loop: asyncio.AbstractEventLoop | None = None) -> str:
    """Return the stacks of all threads and of the loop's tasks, outermost frames first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)[-FRAMES_SHOWN:])
        for ident, frame in sys._current_frames().items()
    ]
    try:
        tasks = asyncio.all_tasks(loop)
    except RuntimeError:  # this thread has no running loop, or a task was added while the tasks were listed
        tasks = set()
    for task in list(tasks)[:TASKS_SHOWN]:
        frames = [f'  File "{f.f_code.co_filename}", line {f.f_lineno}' for f in task.get_stack()]
        parts.append("\n".join([f"task {task.get_name()}:", *frames[-FRAMES_SHOWN:]]) + "\n")
    if len(tasks) > TASKS_SHOWN:
        parts.append(f"and {several(len(tasks) - TASKS_SHOWN, 'more task')}\n")
    return "".join(parts)


class Watchdog:
    """Logs all stacks when the event loop has been blocked for `limit` seconds, once per block.

    A process that was suspended as a whole and then continued does not count as blocked.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._interval = limit / LOOKS
        self._turns = 0
        self._over = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._beat()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching. If the watchdog was not started, do nothing."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._turns += 1
        self._timer = self._loop.call_later(self._interval, self._beat)

    def _watch(self) -> None:
        seen, looks = 0, 0
        while not self._over.wait(self._interval):
            looks = looks + 1 if self._turns == seen else 0
            seen = self._turns
            # Checks are counted instead of seconds, because a suspended process makes no checks.
            if looks == LOOKS:
                log.error("the event loop is blocked for %g s\n%s", self._limit, stacks(self._loop))
