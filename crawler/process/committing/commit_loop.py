"""The commit loop: it repeatedly gets the next step from the committer and carries out that step.

    loop thread     decides results, notes that groups are durable; writes small groups if it would only wait otherwise
    writer thread   writes other groups and DUE runs
    merger thread   merges runs, one merge at a time

`committer.py` chooses the steps. A flush or a merge ends with a `Change`, which is queued like the `Change`
of a fetch result.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from crawler.config import Config
from crawler.due.plans import CompactionPlan
from crawler.errors import StoreError
from crawler.pages.record_rewriting import Rewriting
from crawler.process.committing.commits import Commits
from crawler.process.committing.committer import DECISION_DELAY, SIBLINGS, Committer, CommitterState, Step
from crawler.process.lifecycle.background_tasks import Tasks, wait_for
from crawler.process.lifecycle.run_end import RunEnd
from crawler.process.lifecycle.shutdown import within
from crawler.storage.commit import Change, Maker, ThreadWait, followed_by
from crawler.storage.faults import reach
from crawler.storage.rotating_file import RotatingFile

log = logging.getLogger("crawler")

FLUSH_FAILURES_MAX = 12  # failures in a row after which the process ends; they are `due.max_wait` apart
KEPT_WAIT = 30.0  # number of seconds that a client waits until its request is durable
TURN = 0.004  # number of seconds after which decisions yield to the event loop
# A group of at most this size (results, links, bytes of answers) is written in the event loop's thread if at
# most `SIBLINGS` fetches are in flight.
SMALL_GROUP, SMALL_LINKS, SMALL_BYTES = 16, 1_000, 256 << 10


class CommitLoopOwner(Protocol):
    """The interface through which the commit loop queries and notifies its process."""

    def fetching(self) -> int:
        """Return the number of running fetch tasks. Tasks that only wait for their commit are not included."""

    def seeding(self) -> bool:
        """Return whether seeds are still being read."""

    def decided(self) -> None:
        """React to decisions on results: the hosts of these results are free again."""

    def committed(self) -> None:
        """React to a commit: a group of changes is now durable."""


def _unobserved(_name: str, _seconds: float) -> None:
    """Do nothing: the default observer of commits and flushes."""


class CommitLoop:
    """Makes queued changes durable, and carries out the flushes and merges of the DUE.

    Before the loop runs and after its end, changes are committed in the caller's thread (`kept`, `commit_rest`).

    `pages_file` receives one line per fetch. `in_thread` calls a function in a thread. When the process
    exits, it does not wait for this thread.
    """

    def __init__(
        self,
        commits: Commits,
        config: Config,
        pages_file: Path,
        run: CommitLoopOwner,
        run_end: RunEnd,
        in_thread: Callable[[Callable[[], object]], Awaitable[None]],
    ) -> None:
        self._commits = commits
        self._clock = commits.clock
        self._due, self._frontier, self._point = commits.due, commits.frontier, commits.point
        self._run, self._run_end = run, run_end
        run_end.on_stop = self.look_at_flight
        self._in_thread = in_thread
        self._committer = Committer(config.store, config.crawl.concurrency)
        self._heavy_links_max = config.due.buffer_entries_max
        # Small groups may be written in the event loop's thread, unless this process has an HTTP server,
        # whose clients would have to wait for the disk.
        self._alone = not config.serve.address
        self._steps = {
            Step.WAIT: self._wait,
            Step.GATHER: self._gather,
            Step.DECIDE: self._decide,
            Step.FLUSH: self._flush,
            Step.COMMIT: self._commit,
        }
        self.observe: Callable[[str, float], None] = _unobserved
        self.busy = False  # whether the loop is carrying out a step other than waiting
        self.writing = False  # True if a write exceeded its time limit; the store must then stay open
        self.running = False  # from the start of `run` to the end of `close`
        self._compacting = False
        self._closed = False
        self._over = False  # True once the loop has ended
        self._flush_failures = 0  # number of flushes that failed since the last one that succeeded
        self._news = asyncio.Event()
        self._few_in_flight = asyncio.Event()
        self._background = Tasks(run_end.fail)
        self._writer = ThreadPoolExecutor(1, "writer")
        self.merger = ThreadPoolExecutor(1, "merger")
        logs = config.logs
        self._lines = RotatingFile(
            pages_file, bytes_max=logs.bytes_max, age_max=logs.age_max, kept=logs.fetch_files
        )

    # -- from outside ----------------------------------------------------------

    def queue(self, change: Change | Maker) -> None:
        """Queue a `Change`, or a function that builds one. If the run has ended, commit the change at once."""
        self._point.add(change)
        self._news.set()
        self.look_at_flight()
        if self._over:
            self.commit_rest()

    def queue_heavy(self, maker: Maker) -> None:
        """Queue a function that takes long to build its `Change`. The queue runs at most one such function per turn."""
        self._point.add_heavy(maker)
        self._news.set()
        self.look_at_flight()

    async def kept(self) -> bool:
        """Wait at most `KEPT_WAIT` seconds until all changes queued so far are durable.

        Return whether all of them are durable.
        """
        durable, change = asyncio.Event(), Change()
        change.after.append(durable.set)
        self.queue(change)
        if not self.running:
            self.commit_rest()
        with suppress(TimeoutError):
            await asyncio.wait_for(durable.wait(), KEPT_WAIT)
        return durable.is_set()

    def commit_rest(self) -> None:
        """Commit all queued changes in the caller's thread, if the loop does not run. After a failure, do nothing."""
        if self._run_end.failure is None and not self.writing:
            self._commits.commit_queued()

    def wake(self) -> None:
        """Make the loop check again whether something must be committed or flushed."""
        self._news.set()

    def look_at_flight(self) -> None:
        """Stop gathering results if few fetches are in flight. Call this when a task ends or the process stops."""
        if self._run.fetching() <= SIBLINGS or self._run_end.stopping():
            self._few_in_flight.set()

    async def run(self) -> None:
        """Commit changes until this task is cancelled or a write fails."""
        self.running = True
        try:
            while True:
                self._news.clear()
                now = self._clock.now()
                step = self._committer.next_step(self._state(now), now)
                ended = self.busy and step is Step.WAIT
                self.busy = step is not Step.WAIT
                if ended:
                    self._run_end.wake()
                await self._steps[step]()
        except Exception as error:  # a failed write
            self._run_end.fail(error)

    async def close(self, limit: float) -> None:
        """End merges and threads, each within `limit` seconds. If the writer thread takes longer, set `writing`."""
        in_thread = self._in_thread
        self._closed = True
        self._background.cancel()
        await within(limit, "merges", self._background.wait())
        for executor in (self._writer, self.merger):
            executor.shutdown(wait=False, cancel_futures=True)
        self.writing = not await within(limit, "writer", in_thread(self._writer.shutdown))
        await within(limit, "merger", in_thread(self.merger.shutdown))
        if not self.writing:
            self.close_file()
        self.running, self._over = False, True

    def close_file(self) -> None:
        """Close the log of fetches if it is not closed yet."""
        self._lines.close()

    # -- the steps, one method each ----------------------------------------------

    def _state(self, now: float) -> CommitterState:
        stopping, fetching = self._run_end.stopping(), self._run.fetching()
        early = not fetching or now >= self._committer.early_flush_at
        dry = stopping or (early and self._frontier.wants_urls(now))
        return CommitterState(
            queued=len(self._point) if self._takes_heavy() else self._point.light,
            undecided=self._point.unmade if self._takes_heavy() else self._point.unmade_light,
            fetching=fetching,
            flush=bool(self._due.pending)
            and not self._run_end.leaves_links
            and self._due.wants_flush(now, dry=dry),
            hurry=stopping or self._run.seeding() or self._due.full,
        )

    async def _wait(self) -> None:
        """Wait until a change is queued, or the DUE needs a flush."""
        at, now = math.inf if self._run_end.leaves_links else self._due.next_wakeup(), self._clock.now()
        if now < self._committer.early_flush_at:
            at = min(at, self._committer.early_flush_at) if self._due.pending else at
        await wait_for(self._news, None if at == math.inf else max(0.0, at - now))

    async def _gather(self) -> None:
        """Wait until few fetches are in flight, or until the group has waited long enough."""
        self._few_in_flight.clear()
        await wait_for(self._few_in_flight, self._committer.pause(self._clock.now()))

    async def _decide(self) -> None:
        """Decide on the queued results, so that the crawl may fetch from their hosts again."""
        await self._make()
        self._run.decided()

    def _takes_heavy(self) -> bool:
        """Return whether a heavy result may be decided on.

        This is the case if there is still room in the DUE for other results after it, or if the process is
        stopping.
        """
        return self._run_end.stopping() or self._due.pending < self._heavy_links_max

    async def _make(self, *, heavy: bool = True) -> None:
        """Decide on the results queued now, in several turns of the event loop. Decide on at most one heavy result."""
        time, point = asyncio.get_running_loop().time, self._point
        heavy = heavy and self._takes_heavy() and len(point) > point.light
        end, queued = time() + TURN, point.light + heavy
        while point.made < queued:
            if point.wait is not None:
                await _over(point.wait)
                end = time() + TURN
            if not point.step(heavy=heavy):
                break
            if time() >= end:
                await asyncio.sleep(0)
                end = time() + TURN

    async def _commit(self) -> None:
        """Write the next group."""
        await self._make()
        group, began = self._point.take_made(), self._clock.now()
        if self._alone and self._run.fetching() <= SIBLINGS and _is_small(group):
            # With little work, the loop would only wait for the writer thread, at the cost of two context
            # switches.
            self._write(group)
        else:
            await self._in_writer_thread(partial(self._write, group))
        self._point.committed(group)
        self.observe("commit", self._clock.now() - began)
        self._run.committed()

    async def _in_writer_thread(self, function: Callable[[], None]) -> None:
        """Call `function` in the writer thread. In the meantime, decide on results that are not heavy."""
        writing = self._in(self._writer, function)
        while not writing.done():
            await asyncio.wait({writing}, timeout=DECISION_DELAY)
            if self._point.unmade_light and not writing.done():
                await self._make(heavy=False)
                self._run.decided()
        writing.result()

    def _write(self, group: Sequence[Change]) -> None:
        self._point.write(group)
        try:
            self._lines.write(b"".join([change.line for change in group]), self._clock.now())
        except OSError as error:
            raise StoreError(f"{self._lines.path}: cannot write: {error.strerror or error}") from error

    def _in(self, executor: ThreadPoolExecutor, function: Callable[[], None]) -> "asyncio.Future[None]":
        """Call `function` in the executor. Once the process has failed, no caller waits for the future any more."""
        running = asyncio.get_running_loop().run_in_executor(executor, function)
        # asyncio prints a traceback for an error that is never read
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return running

    # -- the DUE ----------------------------------------------------------------

    async def _flush(self) -> None:
        """Let the DUE look up its pending links, to find those that are new."""
        began = self._clock.now()
        plan = self._due.begin_flush(began)
        assert plan is not None, self._due
        try:
            await self._in_writer_thread(plan.run)
            self._committer.flushed(began, self._clock.now())
            self.observe("flush", self._clock.now() - began)
            if self._compacting:
                reach("flush during compaction")
        except StoreError as error:
            # After this failure, nothing refers to the new run, so the next attempt writes the links of the
            # run again.
            self._due.flush_failed(plan, self._clock.now())
            self._flush_failures += 1
            if self._flush_failures >= FLUSH_FAILURES_MAX:
                raise
            log.error("DUE: cannot flush: %s; will retry later", error)
        else:
            self._flush_failures = 0
            self._point.add(followed_by(partial(self._commits.flush_change, plan), self._compact))

    def _compact(self) -> None:
        """Start a merge of runs in the merger thread, unless one is under way or the threads have ended.

        A change that was still queued when the threads ended is committed later, and its commit calls this method.
        """
        if self._compacting or self._closed or (plan := self._due.compactor.begin()) is None:
            return
        self._compacting = True
        self._background.start(self._merge(plan))

    async def _merge(self, plan: CompactionPlan) -> None:
        try:
            await self._in(self.merger, plan.run)
            if self._due.flushing:
                reach("compaction during flush")
        except StoreError as error:  # if the merge fails, its input runs remain unchanged
            log.error("DUE: cannot merge runs: %s; the runs remain separate", error)
            self._due.compactor.failed(plan)
            self._compacting = False
            return
        self.queue(followed_by(partial(self._commits.compaction_change, plan), self._merged))

    def _merged(self) -> None:
        self._compacting = False
        self._compact()


async def _over(wait: ThreadWait) -> None:
    """Return when the wait of a generator is over."""
    await asyncio.wait({asyncio.wrap_future(wait.ended)}, timeout=max(0.0, wait.left()))


def _is_small(group: Sequence[Change]) -> bool:
    """Return whether a group can be written quickly, apart from the wait for the disk.

    A group with a step of an erasure or a cleaning takes long.
    """
    if len(group) > SMALL_GROUP or sum(len(change.links) for change in group) > SMALL_LINKS:
        return False
    captures = [each for change in group for each in change.captures]
    if any(isinstance(each, Rewriting) for each in captures):
        return False
    return sum(each.payload_bytes for each in captures) <= SMALL_BYTES
