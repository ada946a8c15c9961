"""Test first how the steps of a commit loop are chosen, then real loops with a constant stream of results.

The loops run on a virtual clock that each result advances. A result arrives in each
turn of the event loop, so no test waits and no test depends on timing.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.clock import VirtualClock
from crawler.config import StoreConfig, convert
from crawler.errors import StoreError
from crawler.frontier.frontier import Frontier
from crawler.process.committing.committer import DECISION_DELAY, SIBLINGS, Committer, CommitterState, Step
from crawler.process.opening.stages import Stages
from crawler.process.process import Process
from crawler.records import FetchTask, Link
from crawler.storage.commit import Change
from tests.process.support import hosts, new_links

BUSY = 40  # the number of fetches in flight in a busy process


def committer(*, delay: float = 0.2, entries: int = 256, concurrency: int = 500) -> Committer:
    return Committer(StoreConfig(commit_delay=delay, group_entries_max=entries), concurrency)


# ---- the decision ----


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (CommitterState(), Step.WAIT),
        (CommitterState(fetching=BUSY), Step.WAIT),
        (CommitterState(flush=True), Step.FLUSH),
        (CommitterState(flush=True, fetching=BUSY), Step.FLUSH),
        (CommitterState(queued=3, undecided=3, fetching=BUSY), Step.GATHER),
        (CommitterState(queued=3, undecided=3, fetching=SIBLINGS), Step.DECIDE),
        (CommitterState(queued=3, undecided=3), Step.DECIDE),
        (CommitterState(queued=3, fetching=1), Step.GATHER),
        (CommitterState(queued=3), Step.COMMIT),
        (CommitterState(queued=3, flush=True), Step.FLUSH),
        (CommitterState(queued=3, undecided=3, fetching=BUSY, hurry=True), Step.COMMIT),
        (CommitterState(queued=3, undecided=3, fetching=BUSY, hurry=True, flush=True), Step.FLUSH),
        (CommitterState(queued=250, undecided=250, fetching=BUSY), Step.COMMIT),
    ],
)
def test_the_first_step(state: CommitterState, step: Step) -> None:
    assert committer().next_step(state, 1e6) is step


def test_a_group_gathers_for_the_delay_while_decisions_are_made() -> None:
    steps, one, now = [], committer(delay=0.12), 1e6
    undecided = 3
    while True:
        step = one.next_step(CommitterState(queued=3, undecided=undecided, fetching=BUSY), now)
        steps.append(step.value)
        if step is Step.COMMIT:
            break
        undecided = 0 if step is Step.DECIDE else 3
        now += one.pause(now) if step is Step.GATHER else 0.0
    assert steps == ["gather", "decide", "gather", "decide", "gather", "decide", "commit"]
    assert now == pytest.approx(1e6 + 0.12)


STATES = st.builds(
    CommitterState,
    queued=st.integers(0, 300),
    undecided=st.integers(0, 300),
    fetching=st.integers(0, 5),
    flush=st.booleans(),
    hurry=st.booleans(),
)


@given(st.lists(STATES, max_size=40), st.sampled_from([0.0, 0.03, 0.2]))
def test_a_group_never_waits_longer_than_the_delay(states: list[CommitterState], delay: float) -> None:
    """If a flush is requested, it is made before the next commit."""
    one, now, since = committer(delay=delay), 1e6, None
    for state in states:
        step = one.next_step(state, now)
        assert (step is Step.WAIT) == (not state.queued and not state.flush)
        assert not (step is Step.COMMIT and state.flush)
        if step is Step.GATHER:
            since = now if since is None else since
            pause = one.pause(now)
            assert 0.0 < pause <= DECISION_DELAY + 1e-9 and now + pause <= since + delay + 1e-9
            now += pause
        elif step is not Step.DECIDE:
            since = None if step in (Step.COMMIT, Step.WAIT) or not state.queued else since


# ---- real loops ----

DUE = {"buffer_entries_max": 100, "max_wait": 5.0, "part_links_max": 200}


class Load:
    """The stages and the commit loop of a process. The process fetches nothing, but receives a stream of results."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        tree = {"due": DUE, "store": {"commit_delay": 0.0, "group_entries_max": 8}, **sections}
        self.clock = VirtualClock()
        self.started = self.clock.now()
        self.stages = Stages(convert(tree), folder / "p0", bytes(16), clock=self.clock)
        self.process = Process(self.stages, pages_file=folder / "pages.jsonl")
        self.process.seed_feed.feeding = False
        self.process.fetching = lambda: BUSY  # type: ignore[method-assign]  # so the writer thread writes
        self.due = self.stages.due
        self.groups: list[int] = []  # sizes
        self.flushes: list[float] = []  # instants
        self.pending_max = 0
        self._numbers = itertools.count(1)
        self._watch()

    def _watch(self) -> None:
        take, begin = self.stages.point.take_made, self.due.begin_flush

        def taken() -> list[Change]:
            group = take()
            self.groups.append(len(group))
            return group

        def begun(now: float) -> Any:
            self.flushes.append(now)
            return begin(now)

        self.stages.point.take_made = taken  # type: ignore[method-assign]
        self.due.begin_flush = begun  # type: ignore[method-assign]

    def result(self, links: int) -> Callable[[], Change]:
        """Return a function that makes a `Change` like that of a page with `links` new links."""
        numbers = itertools.islice(self._numbers, links)
        return lambda: new_links(self.stages, (f"http://h{n % 50}.org/{n}" for n in numbers))

    async def stream(self, results: int, links: int, apart: float, *, heed: bool = False) -> None:
        """Queue results one after another. Each result is queued before the previous result is committed.

        With `heed`, results are queued only while the process may begin fetches.
        """
        # a paused frontier never counts as dry, so only the limits of the DUE cause flushes
        self.stages.frontier.pauses.pause("test")
        loop = asyncio.create_task(self.process.commits.run())
        while results:
            while (
                results and len(self.stages.point) < 12 and (not heed or self.process.fetch_slots.room() > 0)
            ):
                results -= 1  # more than a group is queued, so the queue is never empty
                self.process.commits.queue(self.result(links))
                self.clock.advance(apart)
            await asyncio.sleep(0)
            self.pending_max = max(self.pending_max, self.due.pending)
            assert self.process.run_end.failure is None
        while len(self.stages.point) or self.process.commits.busy:
            await asyncio.sleep(0)
        await end(loop)

    def count_rounds(self) -> list[float]:
        """Return a list that receives the time of each round of the scheduling loop."""
        rounds: list[float] = []
        start = self.process._start_fetch_tasks

        def counted(now: float) -> None:
            rounds.append(now)
            start(now)

        self.process._start_fetch_tasks = counted  # type: ignore[method-assign]
        return rounds

    def close(self, *, clean: bool = True) -> None:
        self.process.close()
        self.process.commits._writer.shutdown()
        self.process.commits.merger.shutdown()
        self.stages.close(clean=clean)


async def end(*loops: asyncio.Task[None]) -> None:
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


def test_pending_links_are_flushed_while_results_keep_coming(tmp_path: Path) -> None:
    """If flushes had to wait until no result is left to commit, none would ever begin at 20 results per second."""
    load = Load(tmp_path)
    asyncio.run(load.stream(600, 5, 0.001))
    load.close()
    assert load.pending_max < 3 * DUE["buffer_entries_max"]
    assert load.due.new > 3000 - 3 * DUE["buffer_entries_max"]
    assert load.stages.frontier.views.counters()["todo"] == load.due.new


def test_no_link_waits_longer_than_max_wait(tmp_path: Path) -> None:
    """The buffer never fills up. `lag` is the time that groups spend in the queue and in writing before the flush."""
    load = Load(tmp_path)
    asyncio.run(load.stream(300, 1, 0.1))
    load.close()
    lag = 0.1 * 36
    gaps = [two - one for one, two in itertools.pairwise([load.started, *load.flushes])]
    assert len(gaps) >= 2 and max(gaps) <= DUE["max_wait"] + lag
    assert load.pending_max <= (DUE["max_wait"] + lag) / 0.1


def test_no_group_is_larger_than_allowed(tmp_path: Path) -> None:
    load = Load(tmp_path)
    for _ in range(50):
        load.process.commits.queue(load.result(1))
    asyncio.run(load.stream(50, 1, 0.01))
    load.close()
    assert sum(load.groups) >= 100 and max(load.groups) == 8


def test_a_full_due_takes_no_more_until_a_flush_has_passed(tmp_path: Path) -> None:
    """Pages with many links arrive faster than the DUE is flushed. When the DUE is full, no fetch may begin."""
    load = Load(tmp_path)
    asyncio.run(load.stream(60, 90, 0.001, heed=True))
    load.close()
    uncommitted = 24 * 90  # links of pages that were being fetched when the DUE became full
    assert load.pending_max <= 2 * DUE["buffer_entries_max"] + uncommitted
    assert load.due.links > 4000


@pytest.mark.parametrize("step", ["full", "not full"])
def test_a_full_due_blocks_all_slots(tmp_path: Path, step: str) -> None:
    load = Load(tmp_path)
    load.due.admit(np.array([1], np.uint64))
    change = load.result(250 if step == "full" else 150)()
    load.stages.commits.commit(change)
    process, frontier = load.process, load.stages.frontier
    assert process.fetch_slots.room() == (0 if step == "full" else load.stages.config.crawl.concurrency)
    add(frontier, load.stages, ["http://a.org/"])
    load.clock.advance(2.0)
    frontier.limit_requests(frontier.requests + process.fetch_slots.room())
    wakeup = frontier.next_wakeup(load.clock.now())
    assert (wakeup is None) == (frontier.claim_next(load.clock.now()) is None) == (step == "full")
    load.process.close()
    load.stages.store.close()
    load.stages.lock.release()


async def test_a_flush_that_fails_is_not_tried_in_a_loop(tmp_path: Path) -> None:
    """While a dry frontier waits for a second attempt to flush, the loops must not wake each other endlessly."""
    load = Load(tmp_path)
    load.stages.commits.commit(load.result(5)())
    tries: list[object] = []

    def fails(self: Any) -> None:
        tries.append(self)
        raise StoreError("disk full")

    rounds = load.count_rounds()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crawler.due.plans.FlushPlan.run", fails)
        commits = asyncio.create_task(load.process.commits.run())
        schedule = asyncio.create_task(load.process._schedule())
        while not tries:
            await asyncio.sleep(0)
        for _ in range(300):
            await asyncio.sleep(0)
        await end(commits, schedule)
    assert len(tries) == 1 and len(rounds) < 10
    load.close(clean=False)


# ---- places ----


class NeverEnding:
    """Replaces the fetch tasks of a process with tasks that never end by themselves."""

    def __init__(self) -> None:
        self.begun: list[FetchTask] = []
        self.gate = asyncio.Event()

    async def run(self, fetch_task: FetchTask) -> None:
        self.begun.append(fetch_task)
        await self.gate.wait()


def add(frontier: Frontier, stages: Stages, urls: Iterable[str]) -> None:
    change = Change(sync=True)
    frontier.enqueue([Link(n + 1, url) for n, url in enumerate(urls)], change, stages.clock.now())
    change.after.append(lambda: frontier.committed(change, stages.clock.now()))
    stages.commits.commit(change)


@pytest.mark.parametrize("crawl", [{"concurrency": 4}, {"concurrency": 40, "max_pages": 4}])
def test_nothing_spins_while_look_ups_hang(tmp_path: Path, crawl: dict[str, Any]) -> None:
    """If DNS is down, all tasks wait for look-ups.

    The scheduling loop once ran 14,000 rounds per second meanwhile.
    """
    load = Load(tmp_path, crawl=crawl, network={"dns_concurrency": 6})
    process, frontier = load.process, load.stages.frontier
    add(frontier, load.stages, hosts(40))
    load.clock.advance(2.0)  # the delay after an unclean stop is over at this time
    rounds = load.count_rounds()

    async def schedule() -> list[FetchTask]:
        fetch_tasks = NeverEnding()
        process.fetch_tasks.run = fetch_tasks.run  # type: ignore[method-assign]
        task = asyncio.create_task(process._schedule())
        for _ in range(300):
            await asyncio.sleep(0)
        fetch_tasks.gate.set()
        await end(task)
        return fetch_tasks.begun

    begun = asyncio.run(schedule())
    assert 4 <= len(begun) <= 6 and len(rounds) < 20
    load.close(clean=False)


def test_a_dry_frontier_causes_a_flush_at_once_but_not_after_each_group(tmp_path: Path) -> None:
    """While all hosts wait for their gaps, the frontier is dry after each result. A flush each time costs too much.

    After a flush that took 0.1 s, no flush begins for 0.9 s while fetches are in flight.
    """
    load = Load(tmp_path)
    commits = load.process.commits
    load.stages.commits.commit(load.result(5)())
    now = load.clock.now()
    assert load.stages.frontier.wants_urls(now) and commits._state(now).flush
    commits._committer.flushed(now - 0.1, now)
    for later, flush in ((0.0, False), (0.89, False), (0.91, True)):
        assert commits._state(now + later).flush == flush
    load.process.fetching = lambda: 0  # type: ignore[method-assign]
    assert commits._state(now).flush, "nothing is in flight, so there is nothing else to do"
    load.close()
