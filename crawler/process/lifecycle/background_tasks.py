"""Background tasks of a process: if one of them raises an exception, the whole process fails."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

Fail = Callable[[BaseException], None]


class Tasks:
    """The tasks that are running. `ended` is called whenever a task has ended."""

    def __init__(self, fail: Fail, ended: Callable[[], None] = lambda: None) -> None:
        self._fail = fail
        self._ended = ended
        # a dict is ordered, so a simulated run can be repeated exactly
        self._running: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator["asyncio.Task[None]"]:
        return iter(list(self._running))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` concurrently."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def wait(self, limit: float | None = None) -> None:
        """Wait until all tasks that are running now have ended, for at most `limit` seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=limit)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.pop(task, None)
        self._ended()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


async def wait_for(event: asyncio.Event, delay: float | None) -> None:
    """Wait for the event, and set it after `delay` seconds at the latest. If `delay` is None, wait without limit.

    Yield to the event loop at least once.
    """
    if event.is_set():
        return await asyncio.sleep(0)
    timer = None if delay is None else asyncio.get_running_loop().call_later(delay, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()
