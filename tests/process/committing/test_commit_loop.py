"""Test the state, the waits and the actions of the commit loop in each of its steps, with real files."""

import asyncio
import gc
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.due.plans import CompactionPlan, FlushPlan
from crawler.errors import StoreError
from crawler.pages.captures import Capturing
from crawler.pages.erasure import Blanked
from crawler.process.committing import commit_loop as module
from crawler.process.committing.commit_loop import (
    SMALL_BYTES,
    SMALL_GROUP,
    SMALL_LINKS,
    CommitLoop,
    _is_small,
)
from crawler.process.committing.committer import SIBLINGS, Step
from crawler.process.lifecycle.run_end import RunEnd
from crawler.process.opening.stages import Stages
from crawler.records import Fetch, FetchTask, Link, Outcome, TaskKind
from crawler.storage.commit import Change, Making
from tests.process.support import hosts, new_links


class Loop:
    """Runs a commit loop, and takes the place of the process that the loop belongs to."""

    def __init__(self, folder: Path, **tree: Any) -> None:
        self.clock = VirtualClock()
        tree = {"store": {"durability": "process", "commit_delay": 0.2}, "cache": {"bits": 8}} | tree
        self.stages = Stages(convert(tree), folder / "p0", bytes(16), clock=self.clock)
        self.in_flight, self.seeds = 0, False
        self.told: list[str] = []
        self.run_end = RunEnd(self.clock.now)
        self.run_end.wake = lambda: self.told.append("wake")  # type: ignore[method-assign]
        self.commits = CommitLoop(
            self.stages.commits,
            self.stages.config,
            folder / "pages.jsonl",
            self,
            self.run_end,
            self.stages.context.environment.in_thread,
        )
        self.folder = folder

    def fetching(self) -> int:
        return self.in_flight

    def seeding(self) -> bool:
        return self.seeds

    def set_stopped(self, stopped: bool = True) -> None:
        self.run_end.reason = "stopped" if stopped else ""

    def decided(self) -> None:
        self.told.append("decided")

    def committed(self) -> None:
        self.told.append("committed")

    def links(self, count: int, first: int = 1) -> Change:
        return new_links(self.stages, hosts(count, first))

    def do(self, step: Callable[[], Any]) -> None:
        async def play() -> None:
            await step()

        asyncio.run(play())

    def close(self) -> None:
        self.commits.close_file()
        self.commits._writer.shutdown()
        self.commits.merger.shutdown()
        self.stages.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    made: list[Loop] = []

    def one(**tree: Any) -> Loop:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Loop(folder, **tree))
        return made[-1]

    yield one
    for loop in made:
        loop.close()


@pytest.fixture
def loop(make: Callable[..., Loop]) -> Loop:
    return make()


# -- its state


def heavy() -> Change:
    return Change()


def test_the_state_counts_queued_changes_and_fetches_in_flight(loop: Loop) -> None:
    now = loop.clock.now()
    state = loop.commits._state(now)
    assert (state.queued, state.undecided, state.fetching, state.flush, state.hurry) == (
        0,
        0,
        0,
        False,
        False,
    )
    loop.commits.queue(Change())
    loop.commits.queue(Change)
    loop.commits.queue_heavy(heavy)
    loop.in_flight = 7
    state = loop.commits._state(now)
    assert (state.queued, state.undecided, state.fetching) == (3, 2, 7), (
        "one of the three changes is already made"
    )
    loop.stages.point.take()


@pytest.mark.parametrize("reason", ["seeds", "stopped", "full"])
def test_reasons_to_commit_a_group_at_once(loop: Loop, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "full":
        monkeypatch.setattr(type(loop.stages.due), "full", property(lambda self: True))
    elif reason == "stopped":
        loop.set_stopped()
    else:
        loop.seeds = True
    assert loop.commits._state(loop.clock.now()).hurry
    monkeypatch.undo()


def test_a_result_with_many_links_waits_for_room_in_the_due(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a result with many links did not wait, its links would fill the DUE, and all other results would wait.

    During a stop, no result waits.
    """
    most = loop.stages.config.due.buffer_entries_max
    loop.commits.queue(Change)
    loop.commits.queue_heavy(heavy)
    for pending, stopped, taken in ((most - 1, False, 2), (most, False, 1), (most, True, 2)):
        monkeypatch.setattr(type(loop.stages.due), "pending", property(lambda self, n=pending: n))
        monkeypatch.setattr(type(loop.stages.due), "wants_flush", lambda *_, **__: False)
        loop.set_stopped(stopped)
        state = loop.commits._state(loop.clock.now())
        assert (state.queued, state.undecided) == (taken, taken)
    monkeypatch.undo()
    loop.stages.point.take()


# -- its waits


@pytest.mark.parametrize(
    ("wakeup", "early", "pending", "waits"),
    [
        (math.inf, 0.0, 0, None),
        (7.0, 0.0, 0, 7.0),
        (-1.0, 0.0, 0, 0.0),
        (7.0, 3.0, 2, 3.0),
        (math.inf, 3.0, 2, 3.0),
        (7.0, 3.0, 0, 7.0),
        (2.0, 3.0, 2, 2.0),
    ],
)
def test_the_loop_waits_for_news_or_for_the_due(
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    wakeup: float,
    early: float,
    pending: int,
    waits: float | None,
) -> None:
    found: list[float | None] = []

    async def wait_for(event: asyncio.Event, delay: float | None) -> None:
        assert event is loop.commits._news
        found.append(delay)

    now = loop.clock.now()
    monkeypatch.setattr(module, "wait_for", wait_for)
    monkeypatch.setattr(loop.stages.due, "next_wakeup", lambda: now + wakeup)
    monkeypatch.setattr(type(loop.stages.due), "pending", property(lambda self: pending))
    loop.commits._committer.early_flush_at = now + early
    loop.do(loop.commits._wait)
    assert found == [None if waits is None else pytest.approx(waits)]
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("fetching", "stopped", "ends"), [(SIBLINGS, False, True), (SIBLINGS + 1, False, False), (9, True, True)]
)
def test_a_gathering_ends_when_few_are_in_flight(
    loop: Loop, fetching: int, stopped: bool, ends: bool
) -> None:
    loop.set_stopped(stopped)
    loop.in_flight = fetching
    loop.commits._few_in_flight.clear()
    loop.commits.look_at_flight()
    assert loop.commits._few_in_flight.is_set() is ends
    loop.commits._few_in_flight.clear()
    loop.commits.queue(Change())
    assert loop.commits._few_in_flight.is_set() is ends and loop.commits._news.is_set()
    loop.commits._news.clear()
    loop.commits._few_in_flight.clear()
    loop.commits.queue_heavy(heavy)
    assert loop.commits._few_in_flight.is_set() is ends and loop.commits._news.is_set()
    loop.stages.point.take()


def test_the_process_is_woken_once_when_the_loop_becomes_idle(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is woken when the loop has no work left. A failed write ends the loop and wakes the process, too."""
    steps = [Step.WAIT, Step.COMMIT, Step.WAIT, Step.WAIT]
    seen: list[bool] = []

    async def done() -> None:
        seen.append(loop.commits.busy)
        if not steps:
            raise StoreError("disk")

    monkeypatch.setattr(loop.commits._committer, "next_step", lambda state, now: steps.pop(0))
    loop.commits._steps = dict.fromkeys(Step, done)
    loop.do(loop.commits.run)
    assert seen == [False, True, False, False] and loop.told == ["wake", "wake"]
    assert str(loop.run_end.failure) == "disk"


# -- its actions


def test_a_group_is_written_and_reported_and_its_log_lines_are_kept(loop: Loop) -> None:
    for text in (b"one\n", b"two\n"):
        change = Change()
        change.line = text
        loop.commits.queue(change)
    took: list[str] = []
    loop.commits.observe = lambda name, seconds: took.append(name)
    loop.do(loop.commits._commit)
    assert (loop.folder / "pages.jsonl").read_bytes() == b"one\ntwo\n"
    assert loop.told == ["committed"] and took == ["commit"] and len(loop.stages.point) == 0


@pytest.mark.parametrize(
    ("fetching", "address", "small", "inline"),
    [
        (0, "", True, True),
        (SIBLINGS, "", True, True),
        (SIBLINGS + 1, "", True, False),
        (0, "127.0.0.1:0", True, False),
        (0, "", False, False),
    ],
)
def test_a_small_group_is_written_in_the_loop_when_it_would_only_wait(
    make: Callable[..., Loop],
    monkeypatch: pytest.MonkeyPatch,
    fetching: int,
    address: str,
    small: bool,
    inline: bool,
) -> None:
    loop = make(serve={"address": address})
    link_context: list[int] = []

    async def noted(function: Callable[[], None]) -> None:
        link_context.append(1)
        function()

    monkeypatch.setattr(loop.commits, "_in_writer_thread", noted)
    monkeypatch.setattr(module, "_is_small", lambda group: small)
    loop.in_flight = fetching
    loop.commits.queue(Change())
    loop.do(loop.commits._commit)
    assert link_context == ([] if inline else [1]) and loop.told == ["committed"]


def test_a_log_that_cannot_be_written_is_a_failed_disk(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("crawler.storage.rotating_file.write_all", full)
    change = Change()
    change.line = b"{}\n"
    with pytest.raises(StoreError, match=r"pages\.jsonl: cannot write: No space left"):
        loop.commits._write([change])


async def test_decisions_are_made_while_a_write_is_under_way(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only light decisions are made during a write.

    If the write fails, its exception is raised after these decisions.
    """
    monkeypatch.setattr(module, "DECISION_DELAY", 0.001)
    loop.commits.queue(Change)
    loop.commits.queue_heavy(heavy)

    writing = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(loop.commits, "_in", lambda executor, function: writing)

    def decided() -> None:
        loop.told.append("decided")
        writing.set_exception(StoreError("disk"))

    monkeypatch.setattr(loop, "decided", decided)
    with pytest.raises(StoreError, match="disk"):
        await loop.commits._in_writer_thread(lambda: None)
    assert loop.told == ["decided"] and (loop.stages.point.unmade_light, loop.stages.point.unmade) == (0, 1)
    loop.stages.point.take()


async def test_a_write_that_fails_after_the_process_has_failed_prints_no_traceback(loop: Loop) -> None:
    printed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: printed.append(context))
    begun, full = threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        full.wait(10)
        raise StoreError("disk full")

    writing = asyncio.create_task(loop.commits._in_writer_thread(write))
    while not begun.is_set():
        await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    full.set()
    await asyncio.to_thread(loop.commits._writer.shutdown)
    await asyncio.sleep(0)
    gc.collect()
    assert not printed


def test_decisions_hold_the_loop_for_a_moment_only(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks get a turn every 4 ms. If they queue results, these are left for the next call."""
    clock, naps = [0.0], []

    def make_one() -> Change:
        clock[0] += 0.003
        return Change()

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        loop.commits.queue(make_one)

    async def play() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0], raising=False)
        monkeypatch.setattr(module.asyncio, "sleep", nap)
        await loop.commits._decide()

    for _ in range(5):
        loop.commits.queue(make_one)
    try:
        asyncio.run(play())
    finally:
        monkeypatch.undo()
    assert naps == [0, 0]
    assert loop.stages.point.made == 5 and loop.told == ["decided"]
    loop.stages.point.take()


def test_a_change_that_waits_for_a_thread_leaves_the_loop_free(loop: Loop) -> None:
    """The wait ends when the loop runs a callback. Without it, the wait would take until its limit."""

    class Waiting:
        def __init__(self) -> None:
            self.ended: Future[None] = Future()

        def left(self) -> float:
            if not self.ended.done():
                asyncio.get_running_loop().call_soon(self.ended.set_result, None)
            return 0.5

    ended_in_time: list[bool] = []

    def make_one() -> Making:
        wait = Waiting()
        yield wait
        ended_in_time.append(wait.ended.done())
        return Change()

    loop.commits.queue(make_one)
    loop.do(loop.commits._decide)
    assert ended_in_time == [True] and loop.stages.point.made == 1
    loop.stages.point.take()


def test_a_flush_goes_through_the_queue_and_is_timed(loop: Loop) -> None:
    loop.stages.commits.commit(loop.links(5))
    took: list[str] = []
    loop.commits.observe = lambda name, seconds: took.append(name)
    loop.do(loop.commits._flush)
    assert took == ["flush"] and len(loop.stages.point) == 1 and loop.stages.due.new == 0
    loop.do(loop.commits._commit)
    assert loop.stages.due.new == 5 and loop.stages.due.pending == 0


def test_a_flush_that_fails_is_left_for_later(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Any) -> None:
        raise StoreError("disk full")

    loop.stages.commits.commit(loop.links(5))
    monkeypatch.setattr("crawler.due.plans.FlushPlan.run", fails)
    loop.do(loop.commits._flush)
    assert "DUE: cannot flush: disk full; will retry later" in caplog.text and len(loop.stages.point) == 0
    assert loop.stages.due.pending == 5 and not loop.stages.due.wants_flush(loop.clock.now(), dry=True)


def test_the_process_ends_after_a_minute_of_failed_flushes(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that succeeds in between begins the count anew."""
    run = FlushPlan.run

    def fails(self: Any) -> None:
        raise StoreError("disk full")

    def fail(times: int) -> None:
        monkeypatch.setattr(FlushPlan, "run", fails)
        for _ in range(times):
            loop.clock.advance(5.0)
            loop.do(loop.commits._flush)

    loop.stages.commits.commit(loop.links(5))
    fail(module.FLUSH_FAILURES_MAX - 1)
    monkeypatch.setattr(FlushPlan, "run", run)
    loop.do(loop.commits._flush)
    loop.do(loop.commits._commit)
    assert loop.stages.due.new == 5
    loop.stages.commits.commit(loop.links(5, first=6))
    fail(module.FLUSH_FAILURES_MAX - 1)
    with pytest.raises(StoreError, match="disk full"):
        fail(1)
    assert loop.stages.due.pending == 5


@pytest.mark.parametrize("fails", [False, True])
def test_one_merge_at_a_time_and_the_next_after_its_commit(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    due = loop.stages.due

    def full(plan: CompactionPlan) -> None:
        raise StoreError("disk full")

    def flush_twice(first: int) -> None:
        """Add two runs of equal length, so that a merge is due."""
        for begin in (first, first + 5):
            loop.stages.commits.commit_now(loop.links(5, begin))

    if fails:
        monkeypatch.setattr(CompactionPlan, "run", full)
    flush_twice(1)

    async def play() -> None:
        loop.commits._compact()
        flush_twice(11)
        loop.commits._compact()
        assert len(due.known_set.runs) == 4 and len(loop.commits._background) == 1
        await loop.commits._background.wait()

    asyncio.run(play())
    assert len(due.known_set.runs) == 4 and len(loop.stages.point) == (not fails)
    assert loop.commits._compacting is not fails
    if fails:
        assert "the runs remain separate" in caplog.text
        assert due.compactor.begin() is not None, "the merge can be tried again"
        return

    async def commit() -> None:
        await loop.commits._commit()
        await loop.commits._background.wait()

    asyncio.run(commit())
    assert len(due.known_set.runs) == 3 and loop.commits._compacting, "the second merge is under way"
    asyncio.run(commit())
    assert len(due.known_set.runs) == 1 and due.new == 20 and not loop.commits._compacting


def test_no_merge_is_started_once_the_threads_have_ended(loop: Loop) -> None:
    """A merge that ends during the shutdown is committed afterwards. Its commit found that another merge was due."""
    due = loop.stages.due

    async def play() -> None:
        for first in (1, 6):
            loop.stages.commits.commit_now(loop.links(5, first))
        loop.commits._compact()
        for first in (11, 16):
            loop.stages.commits.commit_now(loop.links(5, first))
        await loop.commits._background.wait()
        await loop.commits.close(3.0)
        loop.stages.commits.commit_queued()
        await loop.commits._background.wait()

    asyncio.run(play())
    assert loop.run_end.failure is None
    assert len(due.known_set.runs) == 3, "the next run of the process merges the others"


@pytest.mark.parametrize("ends", [True, False])
def test_a_write_that_does_not_end_keeps_its_files_open(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    steps: list[tuple[float, str]] = []

    async def within(limit: float, name: str, work: Any) -> bool:
        steps.append((limit, name))
        await work
        return ends or name != "writer"

    monkeypatch.setattr(module, "within", within)
    loop.do(lambda: loop.commits.close(3.0))
    assert steps == [(3.0, "merges"), (3.0, "writer"), (3.0, "merger")]
    assert loop.commits.writing is not ends and loop.commits._lines.closed is ends


# -- a small group


def group(changes: int = 1, links: int = 0, sizes: tuple[int, ...] = ()) -> list[Change]:
    made = [Change() for _ in range(changes)]
    made[0].links = [Link(n, "") for n in range(links)]
    task = FetchTask(TaskKind.PAGE, 0, "", "")
    made[-1].captures = [
        Capturing(Fetch("", Outcome.FETCHED), task, 0, b"", 0.0, True, bytes(size), b"", b"")
        for size in sizes
    ]
    return made


@pytest.mark.parametrize(
    ("some", "small"),
    [
        (group(), True),
        (group(SMALL_GROUP), True),
        (group(SMALL_GROUP + 1), False),
        (group(2, SMALL_LINKS), True),
        (group(2, SMALL_LINKS + 1), False),
        (group(2, 0, (SMALL_BYTES // 2, SMALL_BYTES // 2)), True),
        (group(2, 0, (SMALL_BYTES // 2, SMALL_BYTES // 2 + 1)), False),
    ],
)
def test_small_groups_are_recognized(some: list[Change], small: bool) -> None:
    assert _is_small(some) is small


def test_a_group_that_erases_bytes_is_not_small() -> None:
    """An erasure has no payload.

    An attempt to read the size of its payload once ended a process that was nearly idle.
    """
    change = Change(sync=True)
    change.captures.append(Blanked({b"j/name": 10}))
    assert not _is_small([change])
    assert (SMALL_GROUP, SMALL_LINKS, SMALL_BYTES) == (16, 1000, 262_144)


# -- who commits a queued change: the caller before and after the run, and the loop during the run


def change(key: bytes) -> Change:
    made = Change()
    made.put(key, b"value")
    return made


def is_kept(loop: Loop, key: bytes) -> bool:
    return loop.stages.store.get(key) is not None


def test_changes_wait_until_the_run_is_over(loop: Loop) -> None:
    """After the run, there is no commit loop."""
    loop.commits.queue(change(b"x/1"))
    loop.commits.queue(lambda: change(b"x/2"))
    assert not is_kept(loop, b"x/1")
    loop.commits._over = True
    loop.commits.queue(change(b"x/3"))
    assert all(is_kept(loop, key) for key in (b"x/1", b"x/2", b"x/3"))


@pytest.mark.parametrize("why_not", ["failed", "writing"])
def test_nothing_is_committed_beside_a_write_or_after_a_failure(loop: Loop, why_not: str) -> None:
    """A thread that still writes uses the store, and after a failed write, the order of the changes would be wrong."""
    if why_not == "failed":
        loop.run_end.fail(OSError("disk"), of_user=True)
    else:
        loop.commits.writing = True
    loop.commits.queue(change(b"x/1"))
    loop.commits.commit_rest()
    assert not is_kept(loop, b"x/1")
    loop.run_end.failure, loop.commits.writing = None, False
    loop.commits.commit_rest()
    assert is_kept(loop, b"x/1")


@pytest.mark.parametrize("running", [False, True])
def test_a_client_waits_until_all_queued_changes_are_durable(loop: Loop, running: bool) -> None:
    """While the commit loop runs, only the loop commits."""
    if running:
        loop.commits.running = True
    loop.commits.queue(change(b"x/1"))

    async def wait() -> bool:
        waiting = asyncio.ensure_future(loop.commits.kept())
        for _ in range(10):
            await asyncio.sleep(0)
        assert waiting.done() is not running and is_kept(loop, b"x/1") is not running
        loop.stages.commits.commit_queued()
        return await waiting

    assert asyncio.run(wait()) and is_kept(loop, b"x/1")


def test_a_client_learns_that_its_change_is_not_durable_yet(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_WAIT", 0.0)
    loop.commits.running = True
    assert not asyncio.run(loop.commits.kept())
    loop.run_end.fail(OSError("disk"), of_user=True)
    loop.commits.running = False
    assert not asyncio.run(loop.commits.kept())


def test_a_client_waits_for_thirty_seconds(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the event loop is virtual: it jumps to the next timer as soon as nothing else is to be done."""
    loop.commits.running = True

    async def waited() -> float:
        events = asyncio.get_running_loop()
        begin = now = events.time()

        def jump(timeout: float | None = None) -> list[Any]:
            nonlocal now
            now += timeout or 0.0
            return []

        monkeypatch.setattr(events, "time", lambda: now)
        monkeypatch.setattr(events._selector, "select", jump)  # type: ignore[attr-defined]
        assert not await loop.commits.kept()
        return now - begin

    assert asyncio.run(waited()) == pytest.approx(30.0)
