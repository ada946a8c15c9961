"""One crawling process: connects the loops that drive the stages.

    schedule      frontier.claim_next -> a fetch task for each free slot      fetch_slots.py
    commit        decisions on results, their writes, flushes of the DUE      commit_loop.py
    exchange      links from and to other processes, limits of the crawl      exchange.py
    seeds         piece by piece, never far ahead of the commits              seed_intake.py
    watch         time, disk space                                            limits.py

`fetch_tasks.py` runs fetch tasks, `result_processor.py` turns their results into changes, and `stages.py`
opens the stages. The stages make all decisions. They do this synchronously, in the thread of the event loop.

    run: schedule until there is a reason to stop
         -> drain: fetches in flight end, all results are committed
         -> part: peers learn of it -> everything is closed, each step within its time limit
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from crawler.config import Config
from crawler.errors import CrawlerError, StoreError
from crawler.fetcher.direct_requests import DirectRequests
from crawler.fetcher.fetch_request import FetchRequest
from crawler.forked_children import ForkedChild
from crawler.process.answering.commands import Commands
from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.exchange.exchange import ExchangeParts, Loops, Member
from crawler.process.exchange.peer_exchange import make_exchange
from crawler.process.fetching.fetch_slots import FetchSlots
from crawler.process.fetching.fetch_tasks import FetchTasks, Network, Sink
from crawler.process.fetching.reader import Extractor, Reader
from crawler.process.lifecycle.background_tasks import Tasks, wait_for
from crawler.process.lifecycle.disk_watch import DiskWatch
from crawler.process.lifecycle.limits import STOP_GRACE, RunProgress, limit_reached
from crawler.process.lifecycle.shutdown import within
from crawler.process.opening.assembly import make_file_bodies, queued_fingerprints
from crawler.process.opening.stages import Stages
from crawler.process.results.seed_intake import Pieces, known_changes, own_seeds, seed_changes
from crawler.records import Fetch
from crawler.signing.key_file import with_key_file
from crawler.storage.commit import Change, Maker
from crawler.storage.faults import reach

log = logging.getLogger("crawler")

# number of seconds after a stop in which seeds are still read and queued, so that few are lost
SEEDS_GRACE = 5.0
COUNTED = ("max_pages", "max_bytes")  # the limits that depend on counted results
_WITHOUT_WORK = ("done", "patience")  # reasons for ending a run that has nothing to fetch
KEPT_WAIT = 30.0  # number of seconds that a client waits until its request is durable
SEEDS_AHEAD = 2  # maximum number of changes with seeds that may wait for their commit


class Process:
    """Crawls with the given stages until no work is left, a limit is reached, or `stop` is called.

    `seeds` is a series of lists of canonical URLs. `member` describes the place of this process among
    several.
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
        self._grace_over = False
        self._news = asyncio.Event()
        self._seeds = _seeds(stages, seeds, shared=member.supervised)
        self._seeding = True
        self._background = Tasks(self.fail)
        config, unexpected = stages.config, stages.results.unexpected
        reader = Reader(config, extractor, parser, reads_anchors=stages.decisions.reads_anchors)
        processes = len(stages.topology.names)
        network = self._environment.network(
            with_key_file(config, pages_file.parent), self._clock, reader, unexpected, processes=processes
        )
        # The objects created from here on must be closed.
        self.commits = CommitLoop(stages.commits, config, pages_file, self, self._environment.in_thread)
        self._loops_run = False
        self._over = False
        self.fetch_tasks = self._fetch_tasks(stages, network, sink)
        self._direct = DirectRequests(network.fetcher, network.resolver, proxied=bool(config.fetch.proxy))
        self._fetching = asyncio.Event()  # set once the fetcher has started
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
        self.disk = DiskWatch(
            self.context.directory,
            config.store,
            stages.frontier.pauses,
            stopping=self.stopping,
            stop=self.stop,
            wake=self.wake,
        )
        self.commands = Commands(stages, self.queue, self.exchange.status)
        self.last_changes: list[Callable[[], None]] = []  # the functions that queue the last changes of a run
        # called when no URL can be fetched now; if it returns True, it may have queued work, and the run
        # continues
        self.before_end: Callable[[], Awaitable[bool]] | None = None

    def _fetch_tasks(self, stages: Stages, network: Network, sink: Sink | None) -> FetchTasks:
        results = stages.results
        return FetchTasks(
            stages.config,
            clock=stages.clock,
            frontier=stages.frontier,
            network=network,
            store=stages.store,
            results=results,
            earlier=stages.earlier,
            key=stages.fingerprinter.key,
            trusts=stages.knowledge.trusts,
            queue=self.queue,
            queue_heavy=self.commits.queue_heavy,
            wake=self.wake,
            unexpected=results.unexpected,
            files=make_file_bodies(stages.context, stages.pages),
            make_renderer=self._environment.renderer,
            sink=sink,
        )

    def _loops(self) -> Loops:
        """Return the parts of this process's loops that the exchange uses."""
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
        """Crawl until the run is over.

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
        """Queue a `Change`, or a function that builds one. If the run has ended, commit the change at once."""
        self.commits.queue(change)
        if self._over:
            self.commit_rest()

    async def kept(self) -> bool:
        """Wait at most `KEPT_WAIT` seconds until all changes queued so far are durable. Return whether they are."""
        durable, change = asyncio.Event(), Change()
        change.after.append(durable.set)
        self.queue(change)
        if not self._loops_run:
            self.commit_rest()
        with suppress(TimeoutError):
            await asyncio.wait_for(durable.wait(), KEPT_WAIT)
        return durable.is_set()

    def commit_rest(self) -> None:
        """Commit all queued changes in the caller's thread, if no commit loop runs. After a failure, do nothing."""
        if self.failure is None and not self.commits.writing:
            self._commit_queued()

    async def ask(self, task: FetchRequest) -> Fetch:
        """Send a request without regard to the frontier's order. If the fetcher has not started yet, wait for it."""
        await self._fetching.wait()
        return await self._direct.ask(task)

    def configure(self, config: Config) -> None:
        """Apply new settings of the politeness, the rate, the slots, the share of refreshes, and the rendering."""
        self.context.config = config
        self.fetch_tasks.configure(config)
        self._frontier.configure(config.politeness)
        self.exchange.set_rate(config.crawl.rate)
        self.fetch_slots.concurrency = config.crawl.concurrency
        if self._refresh is not None:
            self._refresh.portion.configure(config.refresh)
        self.wake()

    def stop(self, reason: str, *, grace: float = STOP_GRACE) -> None:
        """Start no new work. `run` ends when all fetches in flight are committed, or after `grace` seconds."""
        if not self.stopped_by:
            self.stopped_by, self._stopped_at = reason, self._clock.now()
        self._grace = min(self._grace, grace)
        self.wake()
        self.commits.look_at_flight()

    def fail(self, error: BaseException, *, of_user: bool = False) -> None:
        """End the run with `error`. Acknowledge no more changes. Log an unexpected error, unless user code raised it."""
        if self.failure is None and not of_user and not isinstance(error, CrawlerError):
            log.error("the run ends because of a bug in the crawler; please report this", exc_info=error)
        self.failure = self.failure or error
        self.stop("error")

    def close(self) -> None:
        """Close the log of fetches. After `run`, this is not necessary, but harmless."""
        self.commits.close_file()

    async def _schedule(self) -> None:
        clock, frontier = self._clock, self._frontier
        while not self.stopped_by:
            self._news.clear()
            now = clock.now()
            self._start_fetch_tasks(now)
            if reason := limit_reached(self.standing(now), self.context.config.crawl):
                if reason in _WITHOUT_WORK and self.before_end is not None and await self.before_end():
                    continue
                return self.stop(reason)
            if self._news.is_set():
                await asyncio.sleep(0)  # let other tasks run, because the wait below would return at once
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
        # With a sink, a task ends after its commit. The commit woke the schedule before the task had ended, so the
        # schedule must be woken again.
        if self.fetch_tasks.sink is not None or self.fetch_slots.limited:
            self.wake()

    async def _feed_seeds(self) -> None:
        """Queue the seeds piece by piece, at most two groups ahead. After a stop, continue for `SEEDS_GRACE` seconds."""
        for change in self._seeds:
            if self._seeds_are_late():
                log.warning("stopped while seeds were loading: give the remaining seeds again")
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
        """Check time and disk space once a second (`Environment.watch_interval`)."""
        while True:
            self.disk.look()
            await asyncio.sleep(self._environment.watch_interval)
            self.wake()  # this also checks the time limit

    # -- progress of the run -----------------------------------------------------

    def standing(self, now: float) -> RunProgress:
        """Return the progress that is compared with the limits of the run."""
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
        """True if something is in flight, queued, or pending in the DUE."""
        return bool(len(self.fetch_slots)) or self._unfinished()

    def _unfinished(self) -> bool:
        """Return whether seeds remain to be read, changes are queued, or links are pending in the DUE."""
        return bool(self._seeding or len(self.point) or self.commits.busy or self._due.pending)

    def stopped_on_purpose(self) -> bool:
        """True if the run was ended by a user or a limit, not by a lack of work."""
        return self.stopped_by not in ("", *_WITHOUT_WORK)

    # -- the interface used by the commit loop (`CommitLoopOwner`) ----------------

    def fetching(self) -> int:
        return self.fetch_slots.fetching

    def seeding(self) -> bool:
        return self._seeding

    def stopping(self) -> bool:
        return bool(self.stopped_by)

    def leaves_links(self) -> bool:
        return self._grace_over

    def decided(self) -> None:
        if not self.stopped_by:
            self._start_fetch_tasks(self._clock.now())

    def committed(self) -> None:
        self.exchange.committed()
        self.wake()

    def wake(self) -> None:
        """Make the schedule check again whether there is work."""
        self._news.set()

    # -- the end ----------------------------------------------------------------

    async def _drain(self) -> None:
        """Let fetches in flight end within the grace period. Then commit all results."""
        reach("stopping")
        if not self.exchange.ended:
            self.exchange.stop_listening()
        await self.fetch_slots.tasks.wait(self._grace)
        self.fetch_slots.tasks.cancel()
        for put in self.last_changes:
            put()
        limit = self.context.config.crawl.drain_max
        timer = self._end_grace_later()
        in_hand = not await within(limit, "commit", self._commit_rest())
        timer.cancel()
        if in_hand and (len(self.point) or self.commits.busy):
            self.fail(StoreError(f"disk: accepted results could not be committed within {limit:g} s"))

    def _end_grace_later(self) -> asyncio.TimerHandle:
        """Call `_end_grace` when the grace period ends."""
        wait = self._stopped_at + self._grace - self._clock.now()
        return asyncio.get_running_loop().call_later(max(0.0, wait), self._end_grace)

    def _end_grace(self) -> None:
        """Leave heavy results and pending links to the next run, unless a limit of pages or bytes ended this run."""
        if self.stopped_by in COUNTED:
            return
        self.point.drop_heavy()
        self._grace_over = True
        self.commits.wake()
        self.wake()

    async def _commit_rest(self) -> None:
        while self.failure is None and self._rest():
            self._news.clear()
            self.commits.wake()
            await self._news.wait()

    def _rest(self) -> bool:
        """Return whether something is left to commit before this run may end."""
        if self.leaves_links():
            return bool(self._seeding or len(self.point) or self.commits.busy)
        return self._unfinished()

    async def _shut_down(self, loops: Tasks) -> None:
        """Stop everything that runs, step by step. Each step has a time limit."""
        limit = self.context.config.crawl.shutdown_step_max
        steps = {"loops": loops, "errands": self.fetch_slots.tasks, "background": self._background}
        for tasks in steps.values():
            tasks.cancel()
        for name, tasks in steps.items():
            await within(limit, name, tasks.wait())
        await self.fetch_tasks.close()
        await self.commits.close(limit)
        if self.commits.writing:
            self.failure = self.failure or StoreError("disk: a write did not finish")
        self.commit_rest()
        self._loops_run, self._over = False, True


def _seeds(stages: Stages, pieces: Pieces, *, shared: bool) -> Iterator[Maker]:
    """Yield functions that build changes.

    First come the changes that queue known pages for a refetch, then those that queue seeds.
    """
    fingerprinter, topology = stages.fingerprinter, stages.topology
    own = partial(own_seeds, fingerprinter, topology.partition, stages.name) if shared else None
    crawl = stages.config.crawl
    seeds = seed_changes(pieces, stages.admission, stages.knowledge, scope=crawl.scope, own=own)
    if not crawl.timestamping:
        return seeds
    queued = partial(queued_fingerprints, stages.store)
    return chain(known_changes(queued, stages.pages.all_records, stages.commits.queue_again), seeds)
