"""One crawling process: connects the loops that drive the stages (`process/README.md` has the picture).

    schedule      frontier.claim_next -> a fetch task for each free slot      fetch_slots.py
    commit        decisions on results, their writes, flushes of the DUE      commit_loop.py
    exchange      links from and to other processes, limits of the crawl      exchange.py
    seeds         piece by piece, never far ahead of the commits              seed_feed.py
    watch         time, disk space                                            limits.py

Any part may stop the run (`run_end.py`) or queue a change (`commit_loop.py`). The stages make all decisions,
synchronously and in the thread of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from crawler.config import Config
from crawler.errors import StoreError
from crawler.fetcher.fetch_request import FetchRequest
from crawler.forked_children import ForkedChild
from crawler.process.answering.commands import Commands
from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.exchange.exchange import Loops, Member
from crawler.process.exchange.peer_exchange import make_exchange
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.fetch_slots import FetchSlots
from crawler.process.fetching.fetch_tasks import FetchTasks, Network, Sink
from crawler.process.fetching.reader import Extractor, Reader
from crawler.process.lifecycle.background_tasks import Tasks, wait_for
from crawler.process.lifecycle.disk_watch import DiskWatch
from crawler.process.lifecycle.limits import RunProgress, limit_reached
from crawler.process.lifecycle.old_copies import OldCopies
from crawler.process.lifecycle.run_end import WITHOUT_WORK, RunEnd
from crawler.process.lifecycle.seed_feed import SeedFeed
from crawler.process.lifecycle.shutdown import within
from crawler.process.opening.assembly import make_cleaner, make_file_bodies, queued_fingerprints
from crawler.process.opening.stages import Stages
from crawler.process.results.seed_intake import Pieces, known_changes, own_seeds, seed_changes
from crawler.records import Fetch
from crawler.signing.key_file import with_key_file
from crawler.storage.commit import Maker
from crawler.storage.faults import reach
from crawler.turn_share import UserTurns
from crawler.urls.canonical import hostname

COUNTED = ("max_pages", "max_bytes")  # the limits that are checked against counters of results
SEEDS_AHEAD = 2  # maximum number of portions of seeds that wait for their commit


class Process:
    """Crawls with the given stages until no work is left, a limit is reached, or `run_end.stop` is called.

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
        self.started = self._clock.now()
        self.run_end = RunEnd(self._clock.now)
        stages.decisions.stop_with(self.run_end.time_left)
        self._background = Tasks(self.run_end.fail)
        config, unexpected = stages.config, stages.decisions.results.unexpected
        self.user_turns = UserTurns()
        reader = Reader(
            config,
            extractor,
            parser,
            reads_anchors=stages.decisions.reads_anchors,
            user_turns=self.user_turns,
        )
        processes = len(stages.topology.names)
        network = self._environment.network(
            with_key_file(config, pages_file.parent), self._clock, reader, unexpected, processes=processes
        )
        # The objects created from here on must be closed.
        self.commits = CommitLoop(
            stages.commits, config, pages_file, self, self.run_end, self._environment.in_thread
        )
        self.seed_feed = SeedFeed(
            _seeds(stages, seeds, shared=member.supervised),
            self.commits.queue,
            lambda: len(self.point) <= SEEDS_AHEAD and not self._due.full,
            self.run_end,
        )
        self.fetch_tasks = FetchTasks(self._fetch_parts(stages, network), sink)
        self._fetching = asyncio.Event()  # set once the fetcher has started
        self.exchange = make_exchange(stages, member, self._loops())
        self.fetch_slots = FetchSlots(
            config.crawl.concurrency,
            frontier=stages.frontier,
            due=stages.due,
            fetch_tasks=self.fetch_tasks,
            room=self.exchange.room,
            ended=self._fetch_task_ended,
            fail=self.run_end.fail,
            time=self._clock.now,
        )
        self.disk = DiskWatch(self.context.directory, config.store, stages.frontier.pauses, self.run_end)
        cleaner = make_cleaner(stages.context, stages.pages)
        self._old_copies = OldCopies(cleaner, self.commits.queue, self.run_end) if cleaner.has_work else None
        self.commands = Commands(stages, self.commits.queue, self.exchange.status)
        self.last_changes: list[Callable[[], None]] = []  # the functions that queue the last changes of a run
        if stages.verdicts is not None:
            self.last_changes.append(partial(self.commits.queue, stages.verdicts.change))
        # called when no URL can be fetched now; if it returns True, it may have queued work, and the run
        # continues
        self.before_end: Callable[[], Awaitable[bool]] | None = None

    def _fetch_parts(self, stages: Stages, network: Network) -> FetchParts:
        decisions = stages.decisions
        return FetchParts(
            stages.config,
            stages.clock,
            stages.frontier,
            *network,
            store=stages.store,
            files=make_file_bodies(stages.context, stages.pages),
            results=decisions.results,
            earlier=decisions.earlier,
            key=stages.fingerprinter.key,
            trusts=decisions.knowledge.trusts,
            in_scope=decisions.admission.in_scope,
            robots=stages.robots,
            user_turns=self.user_turns,
            is_own=partial(_is_own, stages),
            # the exchange is created after the fetch tasks
            fetch_at_owner=lambda asked: self.exchange.fetch_at_owner(asked),  # noqa: PLW0108
            queue=self.commits.queue,
            queue_heavy=self.commits.queue_heavy,
            wake=self.run_end.wake,
        )

    def _loops(self) -> Loops:
        """Return the parts of this process's loops that the exchange uses."""
        return Loops(
            queue=self.commits.queue,
            wake=self.run_end.wake,
            fail=self.run_end.fail,
            idle=lambda: not self.busy() and bool(self._frontier.finished(self._clock.now())),
            in_flight=lambda: len(self.fetch_slots),
            pages_ended=lambda: self.fetch_tasks.pages_ended,
            in_background=self._background.start,
            worker=self.commits.merger,
            fetch=self.fetch_tasks.single.serve,
            let_go=self.fetch_tasks.single.let_go,
        )

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Crawl until the run is over.

        Raises:
            StoreError: the disk failed; nothing after the last commit was acknowledged.
        """
        watchdog = self._environment.watchdog(self.context.config.crawl.stall_max)
        watchdog.start()
        loops = Tasks(self.run_end.fail)
        loops.start(self.commits.run())
        loops.start(self._watch())
        loops.start(self._environment.keep_heap_small())
        self._background.start(self.seed_feed.run())
        if self._old_copies is not None:
            self._background.start(self._old_copies.run())
        await self.fetch_tasks.start()
        self._fetching.set()
        try:
            with self._environment.frozen():
                await self._schedule()
                await self._drain()
                if self.run_end.failure is None:
                    await self.exchange.part(self.run_end.reason)
        finally:
            await self._shut_down(loops)
            watchdog.stop()
        if self.run_end.failure is not None:
            raise self.run_end.failure

    async def ask(self, task: FetchRequest) -> Fetch:
        """Send a request that belongs to no fetch task. If the fetcher has not started yet, wait for it."""
        await self._fetching.wait()
        return await self.fetch_tasks.single.ask(task)

    def configure(self, config: Config) -> None:
        """Apply new settings of the politeness, the rate, the slots, the share of refreshes, and the rendering."""
        self.context.config = config
        self.fetch_tasks.configure(config)
        self._frontier.configure(config.politeness)
        self.exchange.set_rate(config.crawl.rate)
        self.fetch_slots.concurrency = config.crawl.concurrency
        if self._refresh is not None:
            self._refresh.portion.configure(config.refresh)
        self.run_end.wake()

    def close(self) -> None:
        """Close the log of fetches. After `run`, this is not necessary, but harmless."""
        self.commits.close_file()

    async def _schedule(self) -> None:
        clock, frontier, news = self._clock, self._frontier, self.run_end.news
        while not self.run_end.stopping():
            news.clear()
            now = clock.now()
            self._start_fetch_tasks(now)
            if reason := limit_reached(self.standing(now), self.context.config.crawl):
                if reason in WITHOUT_WORK and self.before_end is not None and await self.before_end():
                    continue
                return self.run_end.stop(reason)
            if news.is_set():
                await asyncio.sleep(0)  # let other tasks run, because the wait below would return at once
                continue
            wakeup = frontier.next_wakeup(now)
            await wait_for(news, None if wakeup is None else max(0.0, wakeup - now))

    def _start_fetch_tasks(self, now: float) -> None:
        if self.fetch_slots.start(now):
            self.run_end.wake()
        if self._due.pending and self._frontier.wants_urls(now):
            self.commits.wake()

    def _fetch_task_ended(self) -> None:
        self.commits.look_at_flight()
        # With a sink, a task ends after its commit. The commit woke the schedule before the task had ended, so the
        # schedule must be woken again.
        if self.fetch_tasks.sink is not None or self.fetch_slots.limited:
            self.run_end.wake()

    async def _watch(self) -> None:
        """Check time and disk space once a second (`Environment.watch_interval`)."""
        while True:
            self.disk.look()
            await asyncio.sleep(self._environment.watch_interval)
            self.run_end.wake()  # this also checks the time limit

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
        return bool(self.seed_feed.feeding or len(self.point) or self.commits.busy or self._due.pending)

    # -- the interface used by the commit loop (`CommitLoopOwner`) ----------------

    def fetching(self) -> int:
        return self.fetch_slots.fetching

    def seeding(self) -> bool:
        return self.seed_feed.feeding

    def decided(self) -> None:
        if not self.run_end.stopping():
            self._start_fetch_tasks(self._clock.now())

    def committed(self) -> None:
        self.exchange.committed()
        self.run_end.wake()

    # -- the end ----------------------------------------------------------------

    async def _drain(self) -> None:
        """Let fetches in flight end within the grace period. Then commit all results."""
        reach("stopping")
        if not self.exchange.ended:
            self.exchange.stop_listening()
        await self.fetch_slots.end(self.run_end, self.user_turns)
        for put in self.last_changes:
            put()
        limit = self.context.config.crawl.drain_max
        timer = self._end_grace_later()
        in_hand = not await within(limit, "commit", self._commit_rest())
        timer.cancel()
        if in_hand and (len(self.point) or self.commits.busy):
            self.run_end.fail(StoreError(f"disk: accepted results could not be committed within {limit:g} s"))

    def _end_grace_later(self) -> asyncio.TimerHandle:
        left = max(0.0, self.run_end.time_left())
        return asyncio.get_running_loop().call_later(left, self._end_grace)

    def _end_grace(self) -> None:
        """Leave heavy results and pending links to the next run, unless a limit of pages or bytes ended this run."""
        if self.run_end.reason in COUNTED:
            return
        self.point.drop_heavy()
        self.run_end.leaves_links = True
        self.commits.wake()
        self.run_end.wake()

    async def _commit_rest(self) -> None:
        news = self.run_end.news
        while self.run_end.failure is None and self._rest():
            news.clear()
            self.commits.wake()
            await news.wait()

    def _rest(self) -> bool:
        """Return whether something is left to commit before this run may end."""
        if self.run_end.leaves_links:
            return bool(self.seed_feed.feeding or len(self.point) or self.commits.busy)
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
            self.run_end.failure = self.run_end.failure or StoreError("disk: a write did not finish")
        self.commits.commit_rest()


def _is_own(stages: Stages, url: str) -> bool:
    """Return whether the process owns the host of a URL (request form)."""
    owner = stages.topology.partition.owner(stages.fingerprinter.host_key(hostname(url)))
    return owner == stages.name


def _seeds(stages: Stages, pieces: Pieces, *, shared: bool) -> Iterator[Maker]:
    """Yield functions that build changes.

    First come the changes that queue known pages for a refetch, then those that queue seeds. After the seeds come the
    changes that queue URLs for a later try.
    """
    fingerprinter, topology = stages.fingerprinter, stages.topology
    own = partial(own_seeds, fingerprinter, topology.partition, stages.name) if shared else None
    crawl = stages.config.crawl
    seeds = seed_changes(
        pieces, stages.decisions.admission, stages.decisions.knowledge, scope=crawl.scope, own=own
    )
    queued = partial(queued_fingerprints, stages.store)
    if crawl.timestamping:
        return chain(known_changes(queued, stages.pages.all_records, stages.commits.queue_again), seeds)
    if stages.config.refresh.endless or not stages.point.counters["urls.failed"]:
        return seeds
    refresh = stages.refresh
    due = stages.decisions.due_tries.changes(
        stages.pages.all_records,
        lambda fingerprint: refresh is not None and fingerprint in refresh,
        queued,
        stages.clock.now(),
    )
    return chain(seeds, due)
