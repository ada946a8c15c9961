"""One crawling process: the loops that join the stages.

    schedule    frontier.take -> a task per errand, as many as there are places
    commit      results are decided upon, so that their hosts may be asked again,
                and written group by group; then what had to wait for it;
                in turn with groups the DUE flushes, so new URLs reach the frontier
    watch       limits of the run, disk space

What an errand does is in `errands.py`, what its end becomes in `harvest.py`,
which step the commit loop takes next in `committer.py`; the stages themselves
are opened in `stages.py`. All decisions are made by the stages, synchronously,
in the loop thread. File and store writes happen in one writer thread (those of
a few results in the loop, when it would only wait for them), merges of runs in
another.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from crawler.due.plans import CompactionPlan, FlushPlan
from crawler.errors import StoreError
from crawler.fetcher.client import Client
from crawler.fetcher.guard import Guard
from crawler.fetcher.resolver import Resolver
from crawler.process.commands import Commands
from crawler.process.committer import SIBLINGS, Committer, State, Step
from crawler.process.ending import Watchdog, in_thread, within
from crawler.process.errands import Errands, Sink
from crawler.process.exchange import Exchange, Loops, Member
from crawler.process.forked import Forked
from crawler.process.reader import Extractor, Reader
from crawler.process.stages import Stages
from crawler.storage.commit import Change, Maker
from crawler.storage.faults import reach
from crawler.storage.files import free_bytes, total_bytes, write_all

log = logging.getLogger("crawler")

STOP_GRACE = 5.0  # seconds that fetches in flight are given after a stop
WATCH_INTERVAL = 1.0  # seconds between looks at limits and disk space
TURN = 0.02  # seconds for which decisions hold the loop; then others have their turn
SMALL_GROUP = 16  # results that are committed in the loop while no more than `SIBLINGS` are in flight


class Process:
    """Crawls with the stages it is given, until nothing is left, a limit is reached, or `stop` is called."""

    def __init__(
        self,
        stages: Stages,
        *,
        pages_file: Path,
        seeds: Iterable[list[str]] = (),
        sink: Sink | None = None,
        extractor: Extractor | None = None,
        member: Member | None = None,
        parser: Forked | None = None,
    ) -> None:
        self.stages = stages
        self.config = config = stages.config
        self.clock = stages.clock
        self.frontier, self.due, self.point = stages.frontier, stages.due, stages.point
        self.started = self.clock.now()
        self.stopped_by = ""
        self.failure: BaseException | None = None
        self.writing = False  # True at the end: a write has not ended, so the store must not be closed
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._commit_news = asyncio.Event()
        self._few_in_flight = asyncio.Event()
        self._page_limit_binds = False
        self.committer = Committer(config.store, config.crawl.concurrency)
        self._steps = {
            Step.WAIT: self._commit_news_or_flush_time,
            Step.GATHER: self._gather,
            Step.DECIDE: self._decide,
            Step.FLUSH: self._flush,
            Step.COMMIT: self._commit_group,
        }
        self._seeds = seeds
        self._seeding = True
        self._committing = False
        self._compacting = False
        self._writer = ThreadPoolExecutor(1, "writer")
        self._merger = ThreadPoolExecutor(1, "merger")
        self._lines = pages_file.open("ab", buffering=0)
        unexpected = stages.harvest.unexpected
        self.errands = Errands(
            config,
            clock=self.clock,
            frontier=self.frontier,
            client=Client(config.fetch, config.identity, config.network, self.clock, unexpected),
            resolver=Resolver(config.network, Guard(config.network.allow_networks), self.clock),
            reader=Reader(config, extractor, parser),
            harvest=stages.harvest,
            key=stages.fingerprinter.key,
            queue=self.queue,
            wake=self._news.set,
            unexpected=unexpected,
            sink=sink,
        )
        self.exchange = None if member is None else Exchange(stages, member, self._loops())
        peers = None if self.exchange is None else self.exchange.peers.status
        self.commands = Commands(stages, self.queue, peers)

    def _loops(self) -> Loops:
        """These loops as the exchange with other processes sees them."""
        return Loops(
            queue=self.queue,
            wake=self._news.set,
            fail=self._fail,
            idle=lambda: not self.busy() and bool(self.frontier.finished(self.clock.now())),
            in_flight=lambda: len(self._tasks),
            pages_ended=lambda: self.errands.pages_ended,
            in_background=self._in_background,
            worker=self._merger,
        )

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Crawl to the end.

        Raises:
            StoreError: the disk failed; nothing after the last commit was acknowledged.
        """
        watchdog = Watchdog(self.config.crawl.stall_max)
        watchdog.start()
        loops = [asyncio.create_task(self._commit_loop()), asyncio.create_task(self._watch())]
        self._in_background(self._feed_seeds())
        await self.errands.start()
        try:
            await self._schedule()
            await self._drain()
            if self.exchange is not None and self.failure is None:
                await self.exchange.part(self.stopped_by)
        finally:
            await self._shut_down(loops)
            watchdog.stop()
        if self.failure is not None:
            raise self.failure

    async def _shut_down(self, loops: list["asyncio.Task[None]"]) -> None:
        """End all that runs, step by step, each within its limit."""
        limit = self.config.crawl.shutdown_step_max
        for task in (*loops, *self._tasks, *self._background):
            task.cancel()
        for step, tasks in (("loops", loops), ("errands", self._tasks), ("background", self._background)):
            if left := list(tasks):
                await within(limit, step, asyncio.wait(left))
        await self.errands.close()
        for executor in (self._writer, self._merger):
            executor.shutdown(wait=False, cancel_futures=True)
        self.writing = not await within(limit, "writer", in_thread(self._writer.shutdown))
        await within(limit, "merger", in_thread(self._merger.shutdown))
        if self.writing:
            self.failure = self.failure or StoreError("disk: a write does not end")
        else:
            self._lines.close()

    def close(self) -> None:
        """Close the log of fetches; harmless after `run`, which does it too."""
        self._lines.close()

    async def _feed_seeds(self) -> None:
        """Queue the seeds piece by piece, never further ahead than two groups."""
        for urls in self._seeds:
            if self.stopped_by:
                break
            if urls:
                self.queue(partial(self.stages.harvest.seeds, urls))
                reach("seeds loading")
            while (len(self.point) > 2 or self.due.full) and not self.stopped_by:
                await asyncio.sleep(0.01)
        self._seeding = False
        self._news.set()

    def stop(self, reason: str) -> None:
        """Take no new work; `run` ends once what is in flight is committed."""
        self.stopped_by = self.stopped_by or reason
        self._news.set()
        self._few_in_flight.set()

    async def _schedule(self) -> None:
        while not self.stopped_by:
            self._news.clear()
            now = self.clock.now()
            self._start_errands(now)
            if reason := self._finished(now):
                return self.stop(reason)
            wakeup = self.frontier.next_wakeup(now)
            await _wait(self._news, None if wakeup is None else max(0.0, wakeup - now))

    def _start_errands(self, now: float) -> None:
        """Start what may start, `concurrency` errands at most in one turn of the loop."""
        create_task = asyncio.get_running_loop().create_task
        self.frontier.allow(self.frontier.requests + self._room())
        for _ in range(self.config.crawl.concurrency):
            if (errand := self.frontier.take(now)) is None:
                break
            task = create_task(self.errands.run(errand))
            self._tasks.add(task)
            task.add_done_callback(self._errand_done)
        else:
            self._news.set()
        if self.due.pending and self.frontier.dry(now):
            self._commit_news.set()

    def _room(self) -> int:
        """How many requests may begin now; not positive: none.

        A page holds its place until it is committed and the sink has had it.
        """
        if self.due.full:
            return 0
        places = self.config.crawl.concurrency - self.frontier.requests - self.errands.in_sink
        if self.exchange is not None:
            room = self.exchange.room(places)
        elif limit := self.config.crawl.max_pages:
            room = min(places, limit - self.errands.pages_ended - len(self._tasks))
        else:
            room = places
        self._page_limit_binds = room < places
        return room

    def _errand_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._look_at_flight()
        # With a sink it ends behind its commit, whose news has gone already.
        if self.errands.sink is not None or self._page_limit_binds:
            self._news.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop("error")

    def _finished(self, now: float) -> str:
        """Why the crawl is over, "" while it is not."""
        if self.exchange is not None:
            return self.exchange.limit_reached or ("done" if self.exchange.ended and not self.busy() else "")
        limit = self.config.crawl.max_pages
        if limit and self.errands.pages_ended >= limit:
            return "max_pages"
        return "" if self.busy() else self.frontier.finished(now)

    def busy(self) -> bool:
        """True while something is in flight, queued, or pending in the DUE."""
        return bool(self._seeding or self._tasks or len(self.point) or self._committing or self.due.pending)

    def stopped_on_purpose(self) -> bool:
        """True if someone or a limit of the run ended it, not the crawl itself."""
        return self.stopped_by not in ("", "done", "patience")

    async def _drain(self) -> None:
        """Let what is in flight end, for a while; then commit what there is."""
        reach("stopping")
        if self.exchange is not None and not self.exchange.ended:
            self.exchange.close_doors()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_GRACE)
        for task in self._tasks:
            task.cancel()
        limit = self.config.crawl.drain_max
        if not await within(limit, "commit", self._commit_rest()) and (len(self.point) or self._committing):
            self._fail(StoreError(f"disk: what was in hand could not be committed within {limit:g} s"))

    async def _commit_rest(self) -> None:
        while self.failure is None and (len(self.point) or self._committing or self.due.pending):
            self._news.clear()
            self._commit_news.set()
            await self._news.wait()

    async def _watch(self) -> None:
        """Look at the limits of the run and at the disk, once a second."""
        crawl = self.config.crawl
        while True:
            self._look_at_disk()
            await asyncio.sleep(WATCH_INTERVAL)
            if crawl.max_time and self.clock.now() - self.started >= crawl.max_time:
                self.stop("max_time")
            wire = self.point.counters["bytes.wire"] - self.stages.counters_before["bytes.wire"]
            if self.exchange is None and crawl.max_bytes and wire >= crawl.max_bytes:
                self.stop("max_bytes")

    def _look_at_disk(self) -> None:
        free, total = free_bytes(self.stages.directory), total_bytes(self.stages.directory)
        if free < self.config.store.stop_water_bytes:
            log.error("disk: %d MiB free; stopping. Make room and start again", free >> 20)
            self.stop("disk")
        low = free < min(self.config.store.low_water_bytes, total // 20)
        if low != ("disk" in self.frontier.paused):
            log.warning("disk: %d MiB free; fetching %s", free >> 20, "stops" if low else "goes on")
            self.frontier.pause("disk") if low else self.frontier.resume("disk")
            self._news.set()

    # -- committing ----------------------------------------------------------

    def queue(self, change: Change | Maker) -> None:
        """Hand a change, or what makes it, to the commit point."""
        self.point.add(change)
        self._commit_news.set()
        self._look_at_flight()

    def _fetching(self) -> int:
        """How many errands are under way but for those that wait for their commit."""
        return len(self._tasks) - self.errands.awaiting_commit

    def _look_at_flight(self) -> None:
        if self._fetching() <= SIBLINGS:
            self._few_in_flight.set()

    def _in_writer(self, function: Callable[..., None], *args: Any) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._writer, function, *args)

    async def _commit_loop(self) -> None:
        try:
            while True:
                self._commit_news.clear()
                now = self.clock.now()
                step = self.committer.next_step(self._commit_state(now), now)
                if step is Step.WAIT and self._committing:
                    self._committing = False
                    self._news.set()
                self._committing = step is not Step.WAIT
                await self._steps[step]()
        except Exception as error:  # a failed write: nothing more may be acknowledged
            self._fail(error)

    def _commit_state(self, now: float) -> State:
        return State(
            queued=len(self.point),
            undecided=self.point.unmade,
            fetching=self._fetching(),
            flush=bool(self.due.pending) and self.due.wants_flush(now, dry=self._dry(now)),
            hurry=self._seeding or bool(self.stopped_by) or self.due.full,
        )

    def _dry(self, now: float) -> bool:
        """Whether new URLs are welcome at once."""
        return bool(self.stopped_by) or self.frontier.dry(now)

    async def _commit_news_or_flush_time(self) -> None:
        wakeup = self.due.next_wakeup()
        await _wait(self._commit_news, None if wakeup == math.inf else max(0.0, wakeup - self.clock.now()))

    async def _gather(self) -> None:
        """Wait until few are in flight, or until the group need not wait any more."""
        self._few_in_flight.clear()
        await _wait(self._few_in_flight, self.committer.pause(self.clock.now()))

    async def _decide(self) -> None:
        """Decide upon the results, so that their hosts may be asked again."""
        await self._make()
        if not self.stopped_by:
            self._start_errands(self.clock.now())

    async def _make(self) -> None:
        """Decide upon the results that are queued now, in turns of the loop."""
        time = asyncio.get_running_loop().time
        end, queued = time() + TURN, len(self.point)
        while self.point.made < queued and self.point.step():
            if time() >= end:
                await asyncio.sleep(0)
                end = time() + TURN

    async def _commit_group(self) -> None:
        await self._make()
        group = self.point.take()
        if self._fetching() <= SIBLINGS and len(group) <= SMALL_GROUP:
            self._write_group(group)  # a thread would only be waited for, and cost two switches
        else:
            await self._in_writer(self._write_group, group)
        self.point.committed(group)
        if self.exchange is not None:
            self.exchange.committed()
        self._news.set()

    def _write_group(self, group: Sequence[Change]) -> None:
        self.point.write(group)
        try:
            write_all(self._lines.fileno(), b"".join([change.line for change in group]))
        except OSError as error:
            raise StoreError(f"{self._lines.name}: cannot write: {error.strerror or error}") from error

    async def _flush(self) -> None:
        """Let the DUE find the new ones among its pending links."""
        plan = self.due.begin_flush(self.clock.now())
        assert plan is not None, self.due
        try:
            await self._in_writer(plan.run)
            if self._compacting:
                reach("flush during compaction")
        except StoreError as error:  # nothing rests on the run yet: its links wait for another try
            log.error("DUE: %s; trying again later", error)
            self.due.flush_failed(plan, self.clock.now())
        else:
            self.point.add(partial(self._flushed, plan))

    def _flushed(self, plan: FlushPlan) -> Change:
        change = self.stages.flush_change(plan)
        change.after.append(self._compact)
        return change

    def _compact(self) -> None:
        """Begin merging runs in the merger thread unless a merge is under way."""
        if self._compacting or (plan := self.due.begin_compaction()) is None:
            return
        self._compacting = True
        self._in_background(self._merge(plan))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    async def _merge(self, plan: CompactionPlan) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._merger, plan.run)
            if self.due.flushing:
                reach("compaction during flush")
        except StoreError as error:  # the inputs stay as they are
            log.error("DUE: %s; runs stay unmerged", error)
            self.due.compaction_failed(plan)
            self._compacting = False
            return
        self.queue(partial(self._compacted, plan))

    def _compacted(self, plan: CompactionPlan) -> Change:
        change = self.stages.compaction_change(plan)
        change.after.append(self._merged)
        return change

    def _merged(self) -> None:
        self._compacting = False
        self._compact()

    def _background_done(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


async def _wait(event: asyncio.Event, delay: float | None) -> None:
    """Wait for the event; it is set after `delay` seconds anyway, None = never."""
    if event.is_set():
        return
    timer = None if delay is None else asyncio.get_running_loop().call_later(delay, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()
