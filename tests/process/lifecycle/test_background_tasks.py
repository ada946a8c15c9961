"""Test that a process fails if a background task fails, and that waits end at an event or a time limit."""

import asyncio

from crawler.process.lifecycle.background_tasks import Tasks, wait_for


async def work(event: asyncio.Event, error: Exception | None = None) -> None:
    await event.wait()
    if error is not None:
        raise error


async def test_an_exception_of_a_task_is_reported_but_not_a_cancellation() -> None:
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


async def test_a_wait_ends_with_its_event_or_its_time() -> None:
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
