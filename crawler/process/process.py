"""One crawling process: the loops that join the stages.

    schedule    frontier.take -> a task per errand, as many as there are places
    commit      results are decided upon, so that their hosts may be asked again,
                and written group by group; then what had to wait for it;
                between groups the DUE flushes, so new URLs reach the frontier
    watch       limits of the run, disk space

What an errand does is in `errands.py`, what its end becomes in `harvest.py`,
the stages themselves are opened in `stages.py`. All decisions are made by the
stages, synchronously, in the loop thread. File and store writes happen in one
writer thread (those of a few results in the loop, when it would only wait for
them), merges of runs in another.
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
SIBLINGS = 1  # fetches in flight above which decisions wait for more results
DECISION_DELAY = 0.05  # seconds after which results are decided upon whatever else is in flight
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._commit_news = asyncio.Event()
        self._few_in_flight = asyncio.Event()
        self._seeds = seeds
        self._seeding = True
        self._committing = False
        self._compacting = False
        self._writer = ThreadPoolExecutor(1, "writer")
        self._merger = ThreadPoolExecutor(1, "merger")
        self._lines = pages_file.open("ab", buffering=0)
        self.errands = Errands(
            config,
            clock=self.clock,
            frontier=self.frontier,
            client=Client(config.fetch, config.identity, config.network, self.clock),
            resolver=Resolver(config.network, Guard(config.network.allow_networks), self.clock),
            reader=Reader(config, extractor, parser),
            harvest=stages.harvest,
            key=stages.fingerprinter.key,
            queue=self.queue,
            wake=self._news.set,
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
        committer = asyncio.create_task(self._commit_loop())
        watcher = asyncio.create_task(self._watch())
        self._in_background(self._feed_seeds())
        await self.errands.start()
        try:
            await self._schedule()
            await self._drain()
            if self.exchange is not None and self.failure is None:
                await self.exchange.part(self.stopped_by)
        finally:
            watcher.cancel()
            committer.cancel()
            await asyncio.gather(watcher, committer, *self._tasks, *self._background, return_exceptions=True)
            await self.errands.close()
            self._writer.shutdown()
            self._merger.shutdown()
            self._lines.close()
        if self.failure is not None:
            raise self.failure

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
            while len(self.point) > 2 and not self.stopped_by:
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

    def _start_errands(self, now: float) -> bool:
        """Start what may start; whether anything did."""
        create_task = asyncio.get_running_loop().create_task
        before = len(self._tasks)
        room = self._room()
        while room > 0 and (errand := self.frontier.take(now)) is not None:
            task = create_task(self.errands.run(errand))
            self._tasks.add(task)
            task.add_done_callback(self._errand_done)
            room -= 1
        if self.due.pending and self.frontier.dry(now):
            self._commit_news.set()
        return len(self._tasks) > before

    def _room(self) -> int:
        """How many errands may begin now."""
        room = self.config.crawl.concurrency - len(self._tasks)
        if self.exchange is not None:
            return self.exchange.room(room)
        if limit := self.config.crawl.max_pages:
            room = min(room, limit - self.errands.pages_ended - len(self._tasks))
        return room

    def _errand_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._look_at_flight()
        if self.errands.sink is not None:  # it ends behind its commit, whose news has gone already
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
                await self._commit_news_or_flush_time()
                self._committing = True
                await self._gather()
                while await self._commit_group() or await self._flush():
                    await self._gather()
                self._committing = False
                self._news.set()
        except Exception as error:  # a failed write: nothing more may be acknowledged
            self._fail(error)

    async def _commit_news_or_flush_time(self) -> None:
        wakeup = self.due.next_wakeup()
        await _wait(self._commit_news, None if wakeup == math.inf else max(0.0, wakeup - self.clock.now()))
        self._commit_news.clear()

    async def _gather(self) -> None:
        """Let a group grow while there is something to fetch: thirty pages cost about the commit of one."""
        now, delay = asyncio.get_running_loop().time, self.config.store.commit_delay
        end = now() + delay
        if self._fetching() > SIBLINGS:
            await self._results(min(delay, DECISION_DELAY))
        while self._go_on() and (left := end - now()) > 0.0:
            await self._results(min(left, DECISION_DELAY))

    async def _results(self, delay: float) -> None:
        """Wait until few are in flight, or for the delay."""
        self._few_in_flight.clear()
        await _wait(self._few_in_flight, delay)

    def _go_on(self) -> bool:
        """Decide upon the results, so that their hosts may be asked again; False if a commit should not wait."""
        large = min(self.config.store.group_entries_max, self.config.crawl.concurrency // 2)
        if self._seeding or self.stopped_by or len(self.point) >= large:
            return False
        self.point.make()
        return self._start_errands(self.clock.now()) or self._fetching() > 0

    async def _commit_group(self) -> bool:
        group = self.point.take()
        if not group:
            return False
        if self._fetching() <= SIBLINGS and len(group) <= SMALL_GROUP:
            self._write_group(group)  # a thread would only be waited for, and cost two switches
        else:
            await self._in_writer(self._write_group, group)
        self.point.committed(group)
        if self.exchange is not None:
            self.exchange.committed()
        self._news.set()
        return True

    def _write_group(self, group: Sequence[Change]) -> None:
        self.point.write(group)
        try:
            write_all(self._lines.fileno(), b"".join([change.line for change in group]))
        except OSError as error:
            raise StoreError(f"{self._lines.name}: cannot write: {error.strerror or error}") from error

    async def _flush(self) -> bool:
        """Let the DUE find the new ones among its pending links; True if it did."""
        dry = bool(self.stopped_by) or self.frontier.dry(self.clock.now())
        plan = self.stages.flush_begin(dry=dry)
        if plan is None:
            return False
        try:
            await self._in_writer(plan.run)
            if self._compacting:
                reach("flush during compaction")
        except StoreError as error:  # nothing rests on the run yet: its links wait for another try
            log.error("DUE: %s; trying again later", error)
            self.due.flush_failed(plan, self.clock.now())
            return False
        self.point.add(partial(self._flushed, plan))
        return True

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
