"""Test who commits a queued change: the caller before and after the run, and the commit loop during the run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crawler.process.committing import queued_changes as module
from crawler.process.committing.queued_changes import QueuedChanges
from crawler.storage.commit import Change
from tests.process.committing.test_commit_loop import Loop, make  # noqa: F401


@pytest.fixture
def parts(make: Callable[..., Loop]) -> tuple[Loop, QueuedChanges]:  # noqa: F811
    loop = make()
    return loop, QueuedChanges(loop.stages.commits, loop.commits, loop.run_end)


def change(key: bytes) -> Change:
    made = Change()
    made.put(key, b"value")
    return made


def is_kept(loop: Loop, key: bytes) -> bool:
    return loop.stages.store.get(key) is not None


def test_changes_wait_until_the_run_is_over(parts: tuple[Loop, QueuedChanges]) -> None:
    """After the run, there is no commit loop."""
    loop, changes = parts
    changes.queue(change(b"x/1"))
    changes.queue(lambda: change(b"x/2"))
    assert not is_kept(loop, b"x/1")
    changes.over = True
    changes.queue(change(b"x/3"))
    assert all(is_kept(loop, key) for key in (b"x/1", b"x/2", b"x/3"))


@pytest.mark.parametrize("why_not", ["failed", "writing"])
def test_nothing_is_committed_beside_a_write_or_after_a_failure(
    parts: tuple[Loop, QueuedChanges], why_not: str
) -> None:
    """A thread that still writes uses the store, and after a failed write, the order of the changes would be wrong."""
    loop, changes = parts
    if why_not == "failed":
        loop.run_end.fail(OSError("disk"), of_user=True)
    else:
        loop.commits.writing = True
    changes.queue(change(b"x/1"))
    changes.commit_rest()
    assert not is_kept(loop, b"x/1")
    loop.run_end.failure, loop.commits.writing = None, False
    changes.commit_rest()
    assert is_kept(loop, b"x/1")


@pytest.mark.parametrize("loop_runs", [False, True])
def test_a_client_waits_until_all_queued_changes_are_durable(
    parts: tuple[Loop, QueuedChanges], loop_runs: bool
) -> None:
    """While the commit loop runs, only the loop commits."""
    loop, changes = parts
    if loop_runs:
        changes.loop_runs = True
    changes.queue(change(b"x/1"))

    async def wait() -> bool:
        waiting = asyncio.ensure_future(changes.kept())
        for _ in range(10):
            await asyncio.sleep(0)
        assert waiting.done() is not loop_runs and is_kept(loop, b"x/1") is not loop_runs
        loop.stages.commits.commit_queued()
        return await waiting

    assert asyncio.run(wait()) and is_kept(loop, b"x/1")


def test_a_client_learns_that_its_change_is_not_durable_yet(
    parts: tuple[Loop, QueuedChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, changes = parts
    monkeypatch.setattr(module, "KEPT_WAIT", 0.0)
    changes.loop_runs = True
    assert not asyncio.run(changes.kept())
    loop.run_end.fail(OSError("disk"), of_user=True)
    changes.loop_runs = False
    assert not asyncio.run(changes.kept())


def test_a_client_waits_for_thirty_seconds(
    parts: tuple[Loop, QueuedChanges], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the event loop is virtual: it jumps to the next timer as soon as nothing else is to be done."""
    _, changes = parts
    changes.loop_runs = True

    async def waited() -> float:
        loop = asyncio.get_running_loop()
        begin = now = loop.time()

        def jump(timeout: float | None = None) -> list[Any]:
            nonlocal now
            now += timeout or 0.0
            return []

        monkeypatch.setattr(loop, "time", lambda: now)
        monkeypatch.setattr(loop._selector, "select", jump)  # type: ignore[attr-defined]
        assert not await changes.kept()
        return now - begin

    assert asyncio.run(waited()) == pytest.approx(30.0)
