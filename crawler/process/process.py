"""One crawling process: joins the loops that drive the stages.

    schedule      frontier.take -> a fetch task, as many as there are places     places.py
    commit        decisions on results, what they write, flushes of the DUE   commit_loop.py
    exchange      links from and to other processes, limits of the crawl      exchange.py
    seeds         piece by piece, never far ahead of the commits              seed_intake.py
    watch         time, disk space                                            limits.py

`fetch_tasks.py` does fetch tasks, `result_processor.py` says what their ends mean, `stages.py` opens
the stages. The stages make all decisions, synchronously, in the loop thread.

    run: schedule until there is a reason to stop
         -> drain: fetches in flight end, all results are committed
         -> part: others hear of it -> everything is closed, each step within its time
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from crawler.config import Config
from crawler.errors import CrawlerError, StoreError
from crawler.fetcher.direct_requests import DirectRequests
from crawler.fetcher.fetch_request import FetchRequest
from crawler.forked_children import ForkedChild
from crawler.frontier.refresh.portion import share_of
from crawler.process.answering.commands import Commands
from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.exchange.exchange import ExchangeParts, Loops, Member
from crawler.process.exchange.peer_exchange import make_exchange
from crawler.process.fetching.fetch_slots import FetchSlots
from crawler.process.fetching.fetch_tasks import FetchTasks, Network, Sink
from crawler.process.fetching.reader import Extractor, Reader
from crawler.process.lifecycle.background_tasks import Tasks, wait_for
from crawler.process.lifecycle.limits import STOP_GRACE, Disk, RunProgress, disk_state, limit_reached
from crawler.process.lifecycle.shutdown import within
from crawler.process.opening.assembly import queued_fingerprints
from crawler.process.opening.stages import Stages
from crawler.process.results.seed_intake import Pieces, known_changes, own_seeds, seed_changes
from crawler.records import Fetch
from crawler.storage.commit import Change, Maker
from crawler.storage.faults import reach
from crawler.storage.files import free_bytes, total_bytes

log = logging.getLogger("crawler")

# Seconds after a stop in which seeds that were given are still taken, so that few are forgotten
SEEDS_GRACE = 5.0
COUNTED = ("max_pages", "max_bytes")  # stops by what results count for
KEPT_WAIT = 30.0  # seconds for which who says something waits until it is durable
SEEDS_AHEAD = 2  # changes of seeds that may wait for their commit


class Process:
    """Crawls with the stages it is given, until nothing is left, a limit is reached, or `stop` is called.

    `seeds` are canonical, in pieces; `member` is its place among several processes.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        pages_file: Path,
        seeds: Pieces = (),
        sink: Sink | None = None,
        extractor: Extractor | None = None,
        member: Member | None = None,
        parser: ForkedChild | None = None,
    ) -> None:
        member = member or Member(stages.name)
        self.stages = stages
        self.context, self.point = stages.context, stages.point
        self._clock, self._environment = stages.clock, stages.context.environment
        self._frontier, self._due, self._refresh = stages.frontier, stages.due, stages.refresh
        self._commit_queued = stages.commits.commit_queued
        self.started = self._clock.now()
        self.stopped_by = ""
        self._stopped_at = 0.0
        self.failure: BaseException | None = None
        self._grace = STOP_GRACE
        self._news = asyncio.Event()
        self._seeds = _seeds(stages, seeds, shared=member.supervised)
        self._seeding = True
        self._background = Tasks(self.fail)
        config, unexpected = stages.config, stages.results.unexpected
        reader = Reader(config, extractor, parser, reads_anchors=stages.reads_anchors)
        processes = len(stages.topology.names)
        network = self._environment.network(config, self._clock, reader, unexpected, processes=processes)
        # From here on there is something to close.
        self.commits = CommitLoop(stages.commits, config, pages_file, self, self._environment.in_thread)
        self._loops_run = False
        self._over = False
        self.fetch_tasks = self._fetch_tasks(stages, network, sink)
        self._direct = DirectRequests(network.fetcher, network.resolver, proxied=bool(config.fetch.proxy))
        self._fetching = asyncio.Event()  # the fetcher has started
        self.exchange = make_exchange(stages.context, ExchangeParts.of(stages), member, self._loops())
        self.fetch_slots = FetchSlots(
            config.crawl.concurrency,
            frontier=stages.frontier,
            due=stages.due,
            fetch_tasks=self.fetch_tasks,
            room=self.exchange.room,
            ended=self._fetch_task_ended,
            fail=self.fail,
            time=self._clock.now,
        )
        self.commands = Commands(stages, self.queue, self.exchange.status)
        self.last_changes: list[Callable[[], None]] = []  # what queues something to be committed at the end

    def _fetch_tasks(self, stages: Stages, network: Network, sink: Sink | None) -> FetchTasks:
        results = stages.results
        return FetchTasks(
            stages.config,
            clock=stages.clock,
            frontier=stages.frontier,
            network=network,
            results=results,
            key=stages.fingerprinter.key,
            trusts=stages.knowledge.trusts,
            queue=self.queue,
            queue_heavy=self.commits.queue_heavy,
            wake=self.wake,
            unexpected=results.unexpected,
            sink=sink,
        )

    def _loops(self) -> Loops:
        """These loops as the exchange with other processes sees them."""
        return Loops(
            queue=self.queue,
            wake=self.wake,
            fail=self.fail,
            idle=lambda: not self.busy() and bool(self._frontier.finished(self._clock.now())),
            in_flight=lambda: len(self.fetch_slots),
            pages_ended=lambda: self.fetch_tasks.pages_ended,
            in_background=self._background.start,
            worker=self.commits.merger,
        )

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Crawl to the end.

        Raises:
            StoreError: the disk failed; nothing after the last commit was acknowledged.
        """
        watchdog = self._environment.watchdog(self.context.config.crawl.stall_max)
        watchdog.start()
        self._loops_run = True
        loops = Tasks(self.fail)
        loops.start(self.commits.run())
        loops.start(self._watch())
        loops.start(self._environment.keep_heap_small())
        self._background.start(self._feed_seeds())
        await self.fetch_tasks.start()
        self._fetching.set()
        try:
            with self._environment.frozen():
                await self._schedule()
                await self._drain()
                if self.failure is None:
                    await self.exchange.part(self.stopped_by)
        finally:
            await self._shut_down(loops)
            watchdog.stop()
        if self.failure is not None:
            raise self.failure

    def queue(self, change: Change | Maker) -> None:
        """Hand a change, or what makes it, to the commit point; behind the end of the run it is committed at once."""
        self.commits.queue(change)
        if self._over:
            self.commit_rest()

    async def kept(self) -> bool:
        """Wait until all that is queued now is durable, for `KEPT_WAIT` seconds at most; whether it is."""
        durable, change = asyncio.Event(), Change()
        change.after.append(durable.set)
        self.queue(change)
        if not self._loops_run:
            self.commit_rest()
        with suppress(TimeoutError):
            await asyncio.wait_for(durable.wait(), KEPT_WAIT)
        return durable.is_set()

    def commit_rest(self) -> None:
        """Commit what is queued in this thread; for when no loop does, and not after a failure."""
        if self.failure is None and not self.commits.writing:
            self._commit_queued()

    async def ask(self, task: FetchRequest) -> Fetch:
        """Make a request outside the frontier's order, as soon as the fetcher has started."""
        await self._fetching.wait()
        return await self._direct.ask(task)

    def configure(self, config: Config) -> None:
        """Politeness, rate, places and the share of refresh from now on."""
        self.context.config = config
        self._frontier.configure(config.politeness)
        self.exchange.set_rate(config.crawl.rate)
        self.fetch_slots.concurrency = config.crawl.concurrency
        if self._refresh is not None:
            self._refresh.portion.share.set(share_of(config.refresh))
        self.wake()

    def stop(self, reason: str, *, grace: float = STOP_GRACE) -> None:
        """Take no new work; `run` ends once what is in flight is committed, or was given `grace` seconds."""
        if not self.stopped_by:
            self.stopped_by, self._stopped_at = reason, self._clock.now()
        self._grace = min(self._grace, grace)
        self.wake()
        self.commits.look_at_flight()

    def fail(self, error: BaseException) -> None:
        """End the run with `error`: nothing more is acknowledged. A bug of ours is logged here, whoever catches it."""
        if self.failure is None and not isinstance(error, CrawlerError):
            log.error("the run ends for an error of the crawler; please report this", exc_info=error)
        self.failure = self.failure or error
        self.stop("error")

    def close(self) -> None:
        """Close the log of fetches; harmless after `run`, which does it too."""
        self.commits.close_file()

    async def _schedule(self) -> None:
        clock, frontier = self._clock, self._frontier
        while not self.stopped_by:
            self._news.clear()
            now = clock.now()
            self._start_fetch_tasks(now)
            if reason := limit_reached(self.standing(now), self.context.config.crawl):
                return self.stop(reason)
            if self._news.is_set():
                await asyncio.sleep(0)  # it would not wait at all
                continue
            wakeup = frontier.next_wakeup(now)
            await wait_for(self._news, None if wakeup is None else max(0.0, wakeup - now))

    def _start_fetch_tasks(self, now: float) -> None:
        if self.fetch_slots.start(now):
            self.wake()
        if self._due.pending and self._frontier.wants_urls(now):
            self.commits.wake()

    def _fetch_task_ended(self) -> None:
        self.commits.look_at_flight()
        # With a sink it ends behind its commit, whose news has gone already.
        if self.fetch_tasks.sink is not None or self.fetch_slots.limited:
            self.wake()

    async def _feed_seeds(self) -> None:
        """Queue the seeds piece by piece, never further ahead than two groups; after a stop for `SEEDS_GRACE`."""
        for change in self._seeds:
            if self._seeds_are_late():
                log.warning("stopped while seeds were loading: give those that are left again")
                break
            self.queue(change)
            reach("seeds loading")
            while (len(self.point) > SEEDS_AHEAD or self._due.full) and not self._seeds_are_late():
                await asyncio.sleep(0.01)
        self._seeding = False
        self.wake()

    def _seeds_are_late(self) -> bool:
        return self.failure is not None or (
            bool(self.stopped_by) and self._clock.now() > self._stopped_at + min(SEEDS_GRACE, self._grace)
        )

    async def _watch(self) -> None:
        """Look at time and disk, once a second (`Environment.watch_interval`)."""
        while True:
            self._look_at_disk()
            await asyncio.sleep(self._environment.watch_interval)
            self.wake()  # the limit of time may have been reached

    def _look_at_disk(self) -> None:
        directory, config, frontier = self.context.directory, self.context.config, self._frontier
        free = free_bytes(directory)
        state = disk_state(free, total_bytes(directory), config.store)
        if state is Disk.FULL and not self.stopped_by:
            least = config.store.stop_water_bytes
            log.error(
                "disk: %d MiB free, less than store.stop_water_bytes (%d MiB); stopping. "
                "Make room and start again: what was accepted is kept",
                free >> 20,
                least >> 20,
            )
            self.stop("disk")
        low = state is not Disk.ROOM
        if low != ("disk" in frontier.pauses.reasons):
            log.warning("disk: %d MiB free; fetching %s", free >> 20, "stops" if low else "goes on")
            if low:
                frontier.pauses.pause("disk")
            else:
                frontier.pauses.resume("disk")
            self.wake()

    # -- where the run stands ---------------------------------------------------

    def standing(self, now: float) -> RunProgress:
        """What the limits of the run are held against."""
        busy = self.busy()
        if not busy:
            self.exchange.advance()
        return RunProgress(
            elapsed=now - self.started,
            limit=self.exchange.limit_reached,
            ended=self.exchange.ended,
            busy=busy,
            finished="" if busy else self._frontier.finished(now),
        )

    def busy(self) -> bool:
        """True while something is in flight, queued, or pending in the DUE."""
        return bool(len(self.fetch_slots)) or self._unfinished()

    def _unfinished(self) -> bool:
        """True while seeds are to come, or something is queued or pending in the DUE."""
        return bool(self._seeding or len(self.point) or self.commits.busy or self._due.pending)

    def stopped_on_purpose(self) -> bool:
        """True if someone or a limit of the run ended it, not the crawl itself."""
        return self.stopped_by not in ("", "done", "patience")

    # -- what the commit loop asks and tells ------------------------------------

    def fetching(self) -> int:
        return self.fetch_slots.fetching

    def seeding(self) -> bool:
        return self._seeding

    def stopping(self) -> bool:
        return bool(self.stopped_by)

    def decided(self) -> None:
        if not self.stopped_by:
            self._start_fetch_tasks(self._clock.now())

    def committed(self) -> None:
        self.exchange.committed()
        self.wake()

    def wake(self) -> None:
        """Let the schedule look again."""
        self._news.set()

    # -- the end ----------------------------------------------------------------

    async def _drain(self) -> None:
        """Let what is in flight end, for a while; then commit what there is."""
        reach("stopping")
        if not self.exchange.ended:
            self.exchange.stop_listening()
        await self.fetch_slots.tasks.wait(self._grace)
        self.fetch_slots.tasks.cancel()
        for put in self.last_changes:
            put()
        limit = self.context.config.crawl.drain_max
        drop = self._drop_heavy_later()
        in_hand = not await within(limit, "commit", self._commit_rest())
        drop.cancel()
        if in_hand and (len(self.point) or self.commits.busy):
            self.fail(StoreError(f"disk: what was in hand could not be committed within {limit:g} s"))

    def _drop_heavy_later(self) -> asyncio.TimerHandle:
        """Leave results that take long to the next run, at the end of the grace; not pages that were asked for."""
        wait = self._stopped_at + self._grace - self._clock.now()
        drop = (lambda: None) if self.stopped_by in COUNTED else self.point.drop_heavy
        return asyncio.get_running_loop().call_later(max(0.0, wait), drop)

    async def _commit_rest(self) -> None:
        while self.failure is None and self._unfinished():
            self._news.clear()
            self.commits.wake()
            await self._news.wait()

    async def _shut_down(self, loops: Tasks) -> None:
        """End all that runs, step by step, each within its limit."""
        limit = self.context.config.crawl.shutdown_step_max
        steps = {"loops": loops, "errands": self.fetch_slots.tasks, "background": self._background}
        for tasks in steps.values():
            tasks.cancel()
        for name, tasks in steps.items():
            await within(limit, name, tasks.wait())
        await self.fetch_tasks.close()
        await self.commits.close(limit)
        if self.commits.writing:
            self.failure = self.failure or StoreError("disk: a write does not end")
        self.commit_rest()
        self._loops_run, self._over = False, True


def _seeds(stages: Stages, pieces: Pieces, *, shared: bool) -> Iterator[Maker]:
    """What makes the changes that bring seeds, behind known pages that are asked again, to the frontier."""
    fingerprinter, topology = stages.fingerprinter, stages.topology
    own = partial(own_seeds, fingerprinter, topology.partition, stages.name) if shared else None
    crawl = stages.config.crawl
    seeds = seed_changes(pieces, stages.admission, stages.knowledge, scope=crawl.scope, own=own)
    if not crawl.timestamping:
        return seeds
    queued = partial(queued_fingerprints, stages.store)
    return chain(known_changes(queued, stages.pages.all_records, stages.commits.queue_again), seeds)
