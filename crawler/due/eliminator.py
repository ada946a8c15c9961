"""The Duplicate URL Eliminator (DUE).

The DUE takes links, and returns those that lead to new URLs, each URL exactly once.

A link that is not in the cache takes part in two commits, which are marked in the diagram of `due/README.md`. A step
counts as done only after it is committed (`storage/README.md`, "The commit point").

The event loop calls the methods in the row `loop` of the diagram, and all queries. The writer thread calls the
methods in the row `writer`. `plan.run` may run in any thread. In a large flush, the steps after the join are
repeated for each part of the new links, and each part writes its own run. `begin_flush` returns the same plan
until the last part is done. At most one flush and one compaction (`compactor.py`) run at a time, and these two
may overlap.

After a crash, the store decides what is valid (`due/README.md`, "Crash rules"). Links that were committed but not
flushed wait for the next flush again. The batch that hands a new fingerprint to the frontier also records that it
is known, so it is returned as new exactly once.

`links = pending + known + new`: `links` counts all links appended since the crawl began, and `pending` counts
those that still wait or are being flushed. The other links are divided into `known` and `new`, by whether
their URL was already known.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from crawler.config import DueConfig
from crawler.due.compactor import Compactor
from crawler.due.known_set import KnownSet
from crawler.due.links_log import LinksLog
from crawler.due.pending_links import PendingLinks, hold
from crawler.due.pending_set import PendingSet
from crawler.due.plans import Flushed, FlushPlan
from crawler.due.run_list import RunList
from crawler.due.runs import DiskRuns, Fingerprints, Reached
from crawler.errors import DamageError
from crawler.records import Link
from crawler.storage.files import closed_on_error
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS
from crawler.storage.kv import Batch, KeyValue
from crawler.storage.reshard import load, pack
from crawler.wording import several


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/links`: the amount that was ever committed to the links log, in bytes and in links."""

    position: int = 0
    links: int = 0


class Eliminator:
    """The DUE of one process.

    Args:
        directory: the directory of the process; the DUE uses `due/` and `links/` in it.
        store: holds the keys `d/...`.
        config: buffer size and waiting time.
        check_value: the fingerprint of a fixed URL, which identifies the fingerprint seed.
        method: how fingerprints are computed.
        fault: called with the name of each step after which a crash is possible; for tests.

    Raises:
        DirectoryError: the directory was created with another seed or method.
        DamageError: a run or a part of the links log is missing or damaged.
    """

    def __init__(
        self,
        directory: Path,
        store: KeyValue,
        config: DueConfig,
        *,
        check_value: int,
        method: str,
        fault: Reached = lambda _: None,
    ) -> None:
        self._config = config
        self._fault = fault
        self._directory = directory
        self._run_list = RunList(store, directory, method=method, check_value=check_value)
        self._appended = load(store, DUE_LINKS, Appended, Appended())
        self._flushed = load(store, DUE_FLUSHED, Flushed, Flushed())
        files = DiskRuns(directory / "due", self._run_list.entries, fault)
        self.known_set = KnownSet(files, files.opened, chunk_bytes=config.merge_chunk_bytes)
        self.compactor = Compactor(self.known_set, self._run_list)
        self._admitted = PendingSet(2 * config.buffer_entries_max)
        self._waiting = PendingLinks(config.buffer_entries_max)
        self._waiting_since: float | None = None
        self._retry_at = 0.0
        self._flush: FlushPlan | None = None
        self.repeats = 0
        with closed_on_error(self.known_set.close):
            if len(self.known_set) != self._flushed.new:
                raise DamageError(
                    f"{directory}: the store counts {several(self._flushed.new, 'known URL')}, "
                    f"but the runs hold {len(self.known_set)}"
                )
            self._log = LinksLog(
                directory / "links",
                begin=self._flushed.position,
                end=self._appended.position,
                file_bytes_max=config.log_bytes_max,
                fault=fault,
            )
            self._reload_waiting()

    def _reload_waiting(self) -> None:
        """Add to the waiting links those committed links that were not flushed."""
        for fingerprints, position in self._log.fingerprints(self._flushed.position, self._appended.position):
            self._waiting.append(fingerprints, position)
        self._waiting.stage()
        self._waiting.committed()
        if self.links != self._appended.links:
            raise DamageError(
                f"{self._directory}: the links log and the flushed runs account for {several(self.links, 'link')}, "
                f"but the store counts {self._appended.links}"
            )

    # Links in.

    def admit(self, fingerprints: Fingerprints) -> np.ndarray:
        """Return which of the links with these fingerprints should be appended to the log.

        `fingerprints` is uint64 (n,), and the result is bool (n,). A link is not appended if a link with the
        same fingerprint waits already. The result can err in one direction only: it may be True for a link
        that waits already, but it is never False for a link that does not wait. Call this right after the
        look-up in the URL cache, in the same step of the event loop that hands the links to the committer.
        """
        fresh: np.ndarray = self._admitted.add_many(fingerprints)
        self.repeats += len(fresh) - int(np.count_nonzero(fresh))
        return fresh

    def append(self, links: Sequence[Link]) -> None:
        """Append `links` to the links log; they belong to the group that is being written. The writer thread calls this.

        Raises:
            StoreError: the disk is full or failing; the process must end.
        """
        for block, position in self._log.append(links):
            self._waiting.append([link.fingerprint for link in block], position)

    def sync(self) -> None:
        """Make the appended links durable. The writer thread calls this.

        Raises:
            StoreError: the disk is full or failing; the process must end.
        """
        self._log.sync()

    def stage(self, batch: Batch) -> None:
        """Record the new length of the links log in the group's `batch`.

        The writer thread calls this once per group.
        """
        self._log.write_out()
        self._run_list.stage_first(batch)
        pieces = self._waiting.stage()
        if pieces:
            links = self._appended.links + sum(map(len, pieces))
            self._appended = Appended(pieces[-1].position, links)
            batch.put(DUE_LINKS, pack(self._appended))

    def committed(self) -> None:
        """Record that the oldest staged group is durable: from now on, its links wait for a flush.

        The event loop calls this once per group.
        """
        self._waiting.committed()

    # Flush.

    @property
    def full(self) -> bool:
        """Return whether the buffer of waiting links is full.

        If it is full, no more links should be added before a flush.
        """
        return self.pending >= 2 * self._config.buffer_entries_max

    def wants_flush(self, now: float, *, dry: bool = False) -> bool:
        """Return whether a flush, or the next part of the current flush, should start now. The event loop calls this.

        A flush should start if `buffer_entries_max` links wait, if a link has waited long enough, or if the
        frontier runs `dry`. The next part should start as soon as the present part is finished.
        """
        if self._waiting.count and self._waiting_since is None:
            self._waiting_since = now
        if self._flush is not None:
            return self._flush.resting
        if self._waiting_since is None or now < self._retry_at:
            return False
        waited = now >= self._waiting_since + self._config.max_wait
        return dry or waited or self._waiting.count >= self._config.buffer_entries_max

    @property
    def flushing(self) -> bool:
        """Return whether a flush is in progress. The event loop calls this."""
        return self._flush is not None

    def next_wakeup(self) -> float:
        """Return the time by which to call `wants_flush` again, or infinity if nothing waits.

        The event loop calls this.
        """
        if self._flush is not None:
            return 0.0 if self._flush.resting else math.inf
        if not self._waiting.count:
            return math.inf
        if self._waiting_since is None:
            return self._retry_at
        return max(self._retry_at, self._waiting_since + self._config.max_wait)

    def begin_flush(self, now: float) -> FlushPlan | None:
        """Plan a flush of the links that have waited longest, or the next part of the current flush.

        The event loop calls this. Returns None if nothing waits or if a part is still in progress.
        """
        if self._flush is None and self._waiting.count:
            pieces = self._waiting.take()
            if not self._waiting.count:
                self._waiting_since = None
            # an earlier `_waiting_since` stays, because the remaining links may have waited since then
            elif self._waiting_since is None:
                self._waiting_since = now
            self._flush = FlushPlan(
                pieces,
                self._flushed,
                self.known_set,
                self._log,
                part_links_max=self._config.part_links_max,
                fault=self._fault,
            )
            return self._flush
        if self._flush is None or not self._flush.resting:
            return None
        self._flush.resting = False
        return self._flush

    def stage_flush(self, plan: FlushPlan, batch: Batch) -> None:
        """Record a finished part in `batch`. The writer thread calls this.

        The batch is synced, and also contains the to-do entries of the new links of the part.
        """
        if plan.new_run is not None:
            self._run_list.add(plan.new_run, batch)
        batch.put(DUE_FLUSHED, pack(plan.after))

    def flushed(self, plan: FlushPlan) -> None:
        """Record that the current part of `plan` is durable. The event loop calls this.

        The run of the part is added to the known set, and the links of the part are forgotten.
        """
        assert plan is self._flush and not plan.resting, "a flush ended that is not under way"
        self._flushed = plan.after
        if plan.new_run is not None:
            self.known_set.add(plan.new_run)
        if not plan.part_flushed():
            self._flush = None
            self._admitted.clear()
            self._fault("flush finished")

    def flush_failed(self, plan: FlushPlan, now: float) -> None:
        """Handle a StoreError of `plan.run`. The event loop calls this.

        The links of `plan` that were not flushed wait again. The next flush begins after at least `max_wait`
        seconds.
        """
        assert plan is self._flush, "a flush failed that is not under way"
        self._flush = None
        self._waiting.put_back([plan.waiting])
        if self._waiting_since is None:
            self._waiting_since = now
        self._retry_at = now + self._config.max_wait

    # Questions.

    @property
    def links(self) -> int:
        """The number of links appended and committed since the crawl began."""
        return self.pending + self.known + self.new

    @property
    def pending(self) -> int:
        """The number of links that wait for a flush or are being flushed."""
        return self._waiting.count + (self._flush.count if self._flush is not None else 0)

    @property
    def known(self) -> int:
        """The number of links that repeated a waiting link or pointed to a known URL, since the crawl began."""
        return self._flushed.known

    @property
    def new(self) -> int:
        """The number of links that pointed to new URLs, since the crawl began.

        This is also the number of URLs that are known now.
        """
        return self._flushed.new

    def waits(self, fingerprint: int) -> bool:
        """Return whether a link of the URL waits for a flush or is being flushed."""
        under_way = [self._flush.waiting] if self._flush is not None else []
        return self._waiting.holds(fingerprint) or hold(under_way, fingerprint)

    def check(self) -> list[str]:
        """Read everything on disk and return a list of the problems found."""
        found = self.known_set.problems()
        try:
            for _ in self._log.fingerprints(self._flushed.position, self._appended.position):
                pass
        except DamageError as error:
            found.append(str(error))
        return found

    def close(self) -> None:
        """Close the links log and all runs, including a run that was written but not committed."""
        self._log.close()
        self.compactor.close()
        self.known_set.close()
        if self._flush is not None and self._flush.new_run is not None:
            self._flush.new_run.close()

    def _check(self) -> None:
        """Assert every invariant. Only tests call this, because it reads everything."""
        self.known_set._check()
        assert len(self.known_set) == self.new, "a known URL is in no run"
        assert self._flush is None or self._flush.count > 0, "a flush of nothing"
        assert self._appended.links >= self.links, "more links wait than were appended"

    def __repr__(self) -> str:
        return f"Eliminator({self.known_set!r}, {self.pending} pending, {self.repeats} repeats)"
