"""Test when and why a process stops, what it still does while it stops, and what it closes. No page is fetched."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.errors import StoreError
from crawler.frontier.refresh import RefreshOutcome  # noqa: F401  so that the refresh modules are loaded
from crawler.process import process as module
from crawler.process.lifecycle import disk_watch, garbage_collection, seed_feed
from crawler.process.opening.stages import Stages
from crawler.process.process import SEEDS_AHEAD, Process
from crawler.storage.commit import Change, load_counters
from tests.process.support import hosts, new_links

SEEDS = [["http://a.org/"], ["http://b.org/"], ["http://c.org/"], ["http://d.org/"], ["http://e.org/"]]


class Alone:
    """A process whose frontier gives out no fetch tasks, on a virtual clock."""

    def __init__(self, folder: Path, *, seeds: Any = (), sink: Any = None, **tree: Any) -> None:
        self.clock = VirtualClock()
        tree = {"store": {"durability": "process"}, "cache": {"bits": 8}} | tree
        self.stages = Stages(convert(tree), folder / "p0", bytes(16), clock=self.clock)
        self.process = Process(self.stages, pages_file=folder / "pages.jsonl", seeds=seeds, sink=sink)
        self.stages.frontier.pauses.pause("test")

    def run(self) -> None:
        async def play() -> None:
            await self.process.run()

        asyncio.run(play())

    def stop_at_once(self, reason: str = "stopped", **options: Any) -> None:
        """Stop the run in the first turn of its loop."""

        async def play() -> None:
            asyncio.get_running_loop().call_soon(lambda: self.process.run_end.stop(reason, **options))
            await self.process.run()

        asyncio.run(play())

    def close(self) -> None:
        self.process.close()
        self.process.commits._writer.shutdown()
        self.process.commits.merger.shutdown()
        self.stages.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., Alone]]:
    made: list[Alone] = []

    def make(**options: Any) -> Alone:
        made.append(Alone(tmp_path / str(len(made)), **options))
        return made[-1]

    (tmp_path / "0").mkdir()
    yield make
    for one in made:
        one.close()


# -- whole runs


def test_known_pages_go_before_seeds_only_if_configured(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(module, "known_changes", lambda *_: iter([order.append("known") or Change]))
    one = alone(seeds=SEEDS[:1], crawl={"timestamping": True})
    assert next(one.process.seed_feed.changes) is Change and order == ["known"]
    assert next(one.process.seed_feed.changes, None) is not None
    assert len(list(alone(seeds=SEEDS[:1]).process.seed_feed.changes)) == 1 and order == ["known"]


def test_a_failure_ends_the_run_and_is_raised(
    alone: Callable[..., Alone], caplog: pytest.LogCaptureFixture
) -> None:
    """A bug is logged where it happens. An expected error is only raised, so that the caller reports it."""
    for error, logged in ((StoreError("disk"), False), (ValueError("x"), True)):
        caplog.clear()
        one = alone(seeds=SEEDS[:1])
        one.process.run_end.fail(error)
        one.process.run_end.fail(RuntimeError("later"))
        parted: list[str] = []
        one.process.exchange.part = parted.append  # type: ignore[method-assign,assignment]
        with pytest.raises(type(error)):
            one.run()
        assert one.process.run_end.failure is error and one.process.run_end.reason == "error" and parted == []
        assert ("please report this" in caplog.text.split("later")[0]) is logged


def test_others_hear_of_the_end_unless_the_disk_failed(alone: Callable[..., Alone]) -> None:
    one = alone()
    parted: list[str] = []

    async def part(reason: str) -> None:
        parted.append(reason)

    one.process.exchange.part = part  # type: ignore[method-assign]
    one.stop_at_once("max_pages")
    assert parted == ["max_pages"]


def test_a_write_that_does_not_end_is_a_failure(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = alone()

    async def stuck(limit: float) -> None:
        one.process.commits.writing = True

    monkeypatch.setattr(one.process.commits, "close", stuck)
    with pytest.raises(StoreError, match="a write did not finish"):
        one.stop_at_once()


def test_results_not_committed_in_time_are_a_failure(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = alone(crawl={"drain_max": 1})
    limits: list[float] = []

    async def no_time(limit: float, name: str, work: Any) -> bool:
        limits.append(limit)
        work.close()
        return False

    async def play(queued: bool) -> None:
        if queued:
            one.process.commits._point.add(Change())
        await one.process._drain()

    monkeypatch.setattr(module, "within", no_time)
    one.process.run_end.stop("stopped")
    asyncio.run(play(False))
    assert one.process.run_end.failure is None, "everything was still committed"
    asyncio.run(play(True))
    assert "within 1 s" in str(one.process.run_end.failure) and limits == [1.0, 1.0]
    one.stages.commits.commit(Change())  # commit here what the run would have committed
    one.stages.point.take()


@pytest.mark.parametrize(
    ("reason", "dropped"), [("signal", 1), ("max_time", 1), ("max_pages", 0), ("max_bytes", 0)]
)
def test_results_that_take_long_are_left_to_the_next_run_at_the_end_of_the_grace(
    alone: Callable[..., Alone], reason: str, dropped: int
) -> None:
    """A run that ends at a limit of pages or bytes still commits these results, because the user wants all of them."""
    one, drops = alone(), []
    one.stages.point.drop_heavy = lambda: drops.append(1)  # type: ignore[method-assign]
    one.process.run_end.stop(reason)
    one.clock.advance(1.5)

    async def play() -> float:
        loop = asyncio.get_running_loop()
        timer = one.process._end_grace_later()
        delay = timer.when() - loop.time()
        timer._run()
        timer.cancel()
        one.clock.advance(100.0)
        late = one.process._end_grace_later()
        assert late.when() <= loop.time() + 0.01
        late.cancel()
        return delay

    assert asyncio.run(play()) == pytest.approx(1.0, abs=0.2) and len(drops) == dropped


@pytest.mark.parametrize(("reason", "pending"), [("signal", 5), ("max_pages", 0)])
def test_links_not_flushed_by_the_end_of_the_grace_are_left_to_the_next_run(
    alone: Callable[..., Alone], reason: str, pending: int
) -> None:
    """A link farm fills the DUE, and flushing all of these links would delay the end of the run by many seconds."""
    one = alone()
    one.process.run_end.stop(reason)
    one.process._end_grace()
    one.process.commits._point.add(new_links(one.stages, hosts(5)))
    one.stop_at_once(reason)
    assert one.stages.due.pending == pending and len(one.stages.point) == 0
    assert one.stages.views.problems() == [] and one.process.run_end.failure is None


def test_links_left_by_a_run_are_crawled_by_the_next(tmp_path: Path) -> None:
    for run, (begin, end) in enumerate([(0, 5), (5, 0)]):
        (tmp_path / "0").mkdir(exist_ok=True)
        one = Alone(tmp_path / "0")
        assert one.stages.due.pending == begin, run
        if begin == 0:
            one.process.run_end.stop("signal")
            one.process._end_grace()
            one.process.commits._point.add(new_links(one.stages, hosts(5)))
        one.stop_at_once("signal")
        assert one.stages.due.pending == end and one.stages.due.new == 5 - end, run
        one.close()


def test_everything_started_is_closed(alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of the process are closed, even if the run fails."""
    done: list[str] = []

    class Dog:
        def __init__(self, stall_max: float) -> None:
            done.append(f"watchdog of {stall_max:g} s")

        def start(self) -> None:
            done.append("watches")

        def stop(self) -> None:
            done.append("watched")

    def noting(name: str) -> Callable[[], Any]:
        async def note() -> None:
            done.append(name)

        return note

    monkeypatch.setattr(garbage_collection, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(garbage_collection, "thaw", lambda: done.append("thawed"))
    for fails in (False, True):
        one = alone(crawl={"stall_max": 9})
        monkeypatch.setattr(one.process.stages.context.environment, "watchdog", Dog)
        monkeypatch.setattr(one.process.fetch_tasks, "start", noting("errands start"))
        monkeypatch.setattr(one.process.fetch_tasks, "close", noting("errands end"))
        if fails:
            one.process.run_end.fail(StoreError("disk"))
            with pytest.raises(StoreError):
                one.run()
        else:
            one.stop_at_once()
        began = ["watchdog of 9 s", "watches", "errands start", "frozen"]
        assert done == [*began, "thawed", "errands end", "watched"]
        assert len(one.process._background) == len(one.process.fetch_slots) == 0
        done.clear()


# -- stopping


def test_seeds_are_never_far_ahead_of_their_commits(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, ahead, naps = alone(seeds=SEEDS), [], []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        ahead.append(len(one.stages.point))
        one.stages.commits.commit(Change())

    monkeypatch.setattr(seed_feed.asyncio, "sleep", nap)
    assert one.process.seeding() and one.process.busy()
    one.process.run_end.news.clear()
    asyncio.run(one.process.seed_feed.run())
    assert ahead and max(ahead) == SEEDS_AHEAD + 1 and not one.process.seeding()
    assert one.process.run_end.news.is_set(), "the schedule must check whether the run is over"
    one.stages.commits.commit(Change())


def test_a_full_due_takes_no_more_seeds(alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch) -> None:
    one, naps = alone(seeds=SEEDS[:2]), []

    async def nap(seconds: float) -> None:
        naps.append(len(one.stages.point))
        if len(naps) == 3:
            monkeypatch.setattr(type(one.stages.due), "full", property(lambda self: False))

    monkeypatch.setattr(type(one.stages.due), "full", property(lambda self: True))
    monkeypatch.setattr(seed_feed.asyncio, "sleep", nap)
    asyncio.run(one.process.seed_feed.run())
    assert naps == [1, 1, 1]
    one.stages.commits.commit(Change())


# -- events that wake the schedule


@pytest.mark.parametrize(
    ("sink", "limited", "woken"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_a_fetch_task_that_ends_wakes_the_schedule_if_its_commit_does_not(
    alone: Callable[..., Alone], sink: bool, limited: bool, woken: bool
) -> None:
    one = alone()
    looks: list[int] = []
    one.process.commits.look_at_flight = lambda: looks.append(1)  # type: ignore[method-assign]
    one.process.fetch_tasks.sink = object() if sink else None  # type: ignore[assignment]
    one.process.fetch_slots.limited = limited
    one.process.run_end.news.clear()
    one.process._fetch_task_ended()
    assert one.process.run_end.news.is_set() is woken and looks == [1]


@pytest.mark.parametrize(
    ("more", "pending", "dry", "woken", "commits"),
    [
        (True, 0, False, True, 0),
        (False, 0, True, False, 0),
        (False, 3, True, False, 1),
        (False, 3, False, False, 0),
        (True, 3, True, True, 1),
    ],
)
def test_starts_continue_and_a_dry_frontier_is_flushed(
    alone: Callable[..., Alone],
    monkeypatch: pytest.MonkeyPatch,
    more: bool,
    pending: int,
    dry: bool,
    woken: bool,
    commits: int,
) -> None:
    one, calls = alone(), []
    process = one.process
    monkeypatch.setattr(process.fetch_slots, "start", lambda now: more)
    monkeypatch.setattr(type(one.stages.due), "pending", property(lambda self: pending))
    monkeypatch.setattr(one.stages.frontier, "wants_urls", lambda now: dry)
    monkeypatch.setattr(process.commits, "wake", lambda: calls.append(1))
    process.run_end.news.clear()
    process._start_fetch_tasks(0.0)
    assert process.run_end.news.is_set() is woken and len(calls) == commits
    monkeypatch.undo()


def test_decisions_free_hosts_until_the_run_stops(alone: Callable[..., Alone]) -> None:
    one, starts = alone(), []
    one.process.fetch_slots.start = lambda now: starts.append(now) is not None  # type: ignore[method-assign]
    one.process.decided()
    assert starts == [one.clock.now()]
    one.process.run_end.stop("signal")
    one.process.decided()
    assert len(starts) == 1


def test_peers_and_the_schedule_are_notified_of_a_commit(alone: Callable[..., Alone]) -> None:
    one, told = alone(), []
    one.process.exchange.committed = lambda: told.append(1)  # type: ignore[method-assign]
    one.process.run_end.news.clear()
    one.process.committed()
    assert told == [1] and one.process.run_end.news.is_set()


# -- progress of the run


def test_a_process_is_busy_while_anything_waits(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = alone(seeds=SEEDS[:1])
    process = one.process
    assert process.busy(), "seeds remain to be read"
    process.seed_feed.feeding = False
    assert not process.busy()
    process.commits.busy = True
    assert process.busy()
    process.commits.busy = False
    one.stages.point.add(Change())
    assert process.busy()
    one.stages.commits.commit(Change())
    one.stages.commits.commit(Change())
    assert not process.busy()
    with monkeypatch.context() as patch:
        patch.setattr(type(one.stages.due), "pending", property(lambda self: 1))
        assert process.busy()
    with monkeypatch.context() as patch:
        patch.setattr(type(process.fetch_slots), "__len__", lambda self: 1)
        assert process.busy()


def test_the_progress_of_a_run(alone: Callable[..., Alone]) -> None:
    one = alone()
    process, advanced = one.process, []
    process.exchange.advance = lambda: advanced.append(1)  # type: ignore[method-assign]
    one.clock.advance(7.0)
    standing = process.standing(one.clock.now())
    assert (standing.elapsed, standing.busy, standing.finished, advanced) == (7.0, True, "", [])
    process.seed_feed.feeding = False
    one.stages.frontier.finished = lambda now: "patience"  # type: ignore[method-assign]
    standing = process.standing(one.clock.now())
    assert (standing.busy, standing.finished, advanced) == (False, "patience", [1])


# -- the disk, settings


def test_a_low_disk_pauses_and_a_full_one_stops(
    alone: Callable[..., Alone], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = alone(store={"low_water_bytes": "4 GiB", "stop_water_bytes": "1 GiB", "durability": "process"})
    process, paused = one.process, one.stages.frontier.pauses.reasons
    free = 8 << 30
    monkeypatch.setattr(disk_watch, "free_bytes", lambda folder: free)
    monkeypatch.setattr(disk_watch, "total_bytes", lambda folder: 1 << 50)

    def look() -> tuple[bool, bool, str]:
        process.run_end.news.clear()
        process.disk.look()
        return (
            "disk" in one.stages.frontier.pauses.reasons,
            process.run_end.news.is_set(),
            process.run_end.reason,
        )

    with caplog.at_level(logging.WARNING, "crawler"):
        assert look() == (False, False, "") and caplog.text == ""
        free = 2 << 30
        assert look() == (True, True, "") and "2048 MiB free; fetching pauses" in caplog.text
        caplog.clear()
        assert look() == (True, False, "") and caplog.text == ""
        free = 8 << 30
        assert look() == (False, True, "") and "8192 MiB free; fetching continues" in caplog.text
        free = 5 << 20
        assert look() == (True, True, "disk")
        assert "5 MiB free, less than store.stop_water_bytes (1024 MiB); stopping" in caplog.text
        caplog.clear()
        assert look() == (True, False, "disk") and caplog.text == "", "it is logged only once"
    assert paused


def test_settings_change_while_it_runs(alone: Callable[..., Alone]) -> None:
    one, rates = alone(refresh={"share": 0.2}), []
    one.process.exchange.set_rate = rates.append  # type: ignore[method-assign]
    tree = {"politeness": {"delay": 9}, "crawl": {"rate": 3, "concurrency": 4}, "refresh": {"share": 0.5}}
    one.process.run_end.news.clear()
    one.process.configure(convert(tree))
    assert rates == [3] and one.process.fetch_slots.concurrency == 4 and one.process.run_end.news.is_set()
    assert one.stages.config.politeness.delay == 9 and one.stages.refresh is not None
    assert one.stages.refresh.portion.share.refresh == 0.5
    bare = alone()
    bare.process.configure(convert(tree))  # without refreshes, these settings have no effect
    assert bare.stages.refresh is None


def test_the_exchange_sees_this_process_through_its_loops(alone: Callable[..., Alone]) -> None:
    one = alone(seeds=SEEDS[:1])
    loops = one.process._loops()
    assert not loops.idle(), "seeds remain to be read"
    one.process.seed_feed.feeding = False
    one.stages.frontier.finished = lambda now: "done"  # type: ignore[method-assign]
    assert loops.idle() and loops.in_flight() == 0 and loops.pages_ended() == 0
    one.stages.frontier.finished = lambda now: ""  # type: ignore[method-assign]
    assert not loops.idle()


# -- durability of queued changes


def counted(one: Alone) -> int:
    """Return the stored counts of the test's changes."""
    return load_counters(one.stages.store).get("test", 0)


def counting() -> Change:
    change = Change()
    change.count("test")
    return change


@pytest.mark.parametrize("when", ["before", "during", "stopping", "behind"])
def test_queued_changes_become_durable_at_any_time(alone: Callable[..., Alone], when: str) -> None:
    one = alone()

    async def play() -> None:
        process = one.process
        if when == "before":
            process.commits.queue(counting())
            assert counted(one) == 0 and await process.commits.kept() and counted(one) == 1, "no loop runs"
            return
        running = asyncio.create_task(process.run())
        if when == "behind":
            process.run_end.stop("stopped")
            await running
            process.commits.queue(counting)
            assert counted(one) == 1, "the change is committed at once"
            return
        await asyncio.sleep(0)
        if when == "stopping":
            process.run_end.stop("stopped")
        process.commits.queue(counting)
        if when == "during":
            assert await process.commits.kept() and counted(one) == 1
            process.run_end.stop("stopped")
        await running

    asyncio.run(play())
    assert counted(one) == 1
