"""Tasks whose failure is the process's; waits that an event or their time ends."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from crawler.process.places import Places
from crawler.process.tasks import Tasks, wait_for


async def work(event: asyncio.Event, error: Exception | None = None) -> None:
    await event.wait()
    if error is not None:
        raise error


def test_what_a_task_raises_is_told_and_a_cancel_is_no_failure() -> None:
    async def play() -> None:
        failures: list[BaseException] = []
        ends = 0

        def ended() -> None:
            nonlocal ends
            ends += 1

        tasks, gate, error = Tasks(failures.append, ended), asyncio.Event(), ValueError("x")
        tasks.start(work(gate))
        tasks.start(work(gate, error))
        assert len(tasks) == 2
        gate.set()
        await tasks.wait()
        assert len(tasks) == 0 and failures == [error] and ends == 2
        tasks.start(work(asyncio.Event()))
        await tasks.wait(0.0)
        assert len(tasks) == 1
        tasks.cancel()
        await tasks.wait()
        assert len(tasks) == 0 and failures == [error] and ends == 3
        await tasks.wait()  # for none

    asyncio.run(play())


def test_a_wait_ends_with_its_event_or_its_time() -> None:
    async def play() -> None:
        event = asyncio.Event()
        await wait_for(event, 0.0)
        assert event.is_set()
        await wait_for(event, None)  # set already
        event.clear()
        asyncio.get_running_loop().call_soon(event.set)
        await wait_for(event, None)
        event.clear()
        waiting = asyncio.create_task(wait_for(event, 1000.0))
        await asyncio.sleep(0)
        event.set()
        await waiting

    asyncio.run(play())


def test_starts_give_the_loop_back_in_time() -> None:
    """Where each start takes 6 ms (a verdict by a thousand rules), four are begun in a turn, not all."""
    clock = [0.0]

    class Ready:
        requests = 0

        def allow(self, requests_max: int) -> None:
            pass

        def take(self, now: float) -> object:
            clock[0] += 0.006
            self.requests += 1
            return self.requests

    class Runs:
        in_sink = 0

        async def run(self, errand: object) -> None:
            pass

    async def play() -> None:
        frontier: Any = Ready()
        places = Places(
            100,
            frontier=frontier,
            due=cast(Any, SimpleNamespace(full=False)),
            errands=cast(Any, Runs()),
            room=lambda free: free,
            ended=lambda: None,
            fail=lambda error: None,
            time=lambda: clock[0],
        )
        assert places.start(0.0), "there may be more"
        assert frontier.requests == 2
        await places.tasks.wait()

    asyncio.run(play())
