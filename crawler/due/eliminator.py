"""The Duplicate URL Eliminator. It takes links, and returns those that lead to new URLs, each URL exactly once.

A link that is not in the cache takes part in two commits, which are marked `=` in this diagram. A step counts
as done only after it is committed (`storage/README.md`, "The commit point"):

    loop      admit               committed -> begin_flush                  flushed
                |                     ^             |                          ^
    writer      append, sync, stage ==      plan.run   stage_flush ============
                links log | d/links          X.run   |  d/runs, d/flushed, and t/ of the new links

The methods in row `loop`, and all queries, run on the event loop (marked "Loop" below). Methods in row
`writer` run in the writer thread (marked "Writer"). `plan.run` may run in any thread. In a large flush, the
steps after the join are repeated for each part of the new links, and each part writes its own run.
`begin_flush` returns the same plan until the last part is done. At most one flush and one compaction
(`begin_compaction`, `run`, `stage_compaction`, `compacted`) run at a time. A flush and a compaction may
overlap, because a compaction changes only how the known set is divided into runs, not what is in the set.

After a crash, the store decides what is valid. Opening the DUE deletes the runs and links that the store does
not name. Links that were committed but not flushed wait again. The batch that hands a new fingerprint to the
frontier also records it. So each fingerprint is returned as new exactly once.

`links = pending + known + new`: `links` counts all links appended since the crawl began, and `pending` counts
those that still wait or are being flushed. The other links are divided into `known` and `new`, by whether
their URL was already known.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from crawler.config import DueConfig
from crawler.due.known_set import KnownSet
from crawler.due.links_log import LinksLog
from crawler.due.memory_runs import MemoryRuns
from crawler.due.pending_links import PendingLinks, hold
from crawler.due.pending_set import PendingSet
from crawler.due.plans import CompactionPlan, Flushed, FlushPlan
from crawler.due.runs import DiskRuns, Fingerprints, Reached, RunEntry
from crawler.errors import ConfigError, DamageError, DirectoryError
from crawler.records import Link
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS, DUE_RUNS
from crawler.storage.kv import Batch, KeyValue, seal, unseal

METHODS = ("runs", "one_file", "memory")


class Manifest(msgspec.Struct, array_like=True):
    """Value of `d/runs`: the seed and the method of the fingerprints, and the run files, oldest first."""

    method: str
    check_value: int
    in_memory: bool
    runs: list[RunEntry] = []


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/links`: the amount that was ever committed to the links log, in bytes and in links."""

    position: int = 0
    links: int = 0


class Eliminator:
    """The DUE of one process.

    Args:
        directory: the directory of the process; the DUE uses `due/` and `links/` in it.
        store: holds the keys `d/...`.
        config: method, buffer size and waiting time.
        check_value: the fingerprint of a fixed URL, which identifies the fingerprint seed.
        method: how fingerprints are computed.
        known: all fingerprints returned as new so far; only for `config.method` "memory", which stores none.
        fault: called with the name of each step after which a crash is possible; for tests.

    Raises:
        ConfigError: `config.method` is unknown.
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
        known: Iterable[int] = (),
        fault: Reached = lambda _: None,
    ) -> None:
        if config.method not in METHODS:
            raise ConfigError(f"configuration: due.method must be one of {', '.join(METHODS)}")
        self._config = config
        self._fault = fault
        self._directory = directory
        self._manifest_is_stored = store.get(DUE_RUNS) is not None
        self._manifest = _load(store, DUE_RUNS, Manifest(method, check_value, config.method == "memory"))
        self._refuse_others(method, check_value)
        self._appended = _load(store, DUE_LINKS, Appended())
        self._flushed = _load(store, DUE_FLUSHED, Flushed())
        self._known = self._open_known(known)
        self._log = LinksLog(
            directory / "links",
            begin=self._flushed.position,
            end=self._appended.position,
            file_bytes_max=config.log_bytes_max,
            fault=fault,
        )
        self._admitted = PendingSet(2 * config.buffer_entries_max)
        self._waiting = PendingLinks(config.buffer_entries_max)
        self._waiting_since: float | None = None
        self._retry_at = 0.0
        self._flush: FlushPlan | None = None
        self._compaction: CompactionPlan | None = None
        self.repeats = 0
        self._reload_waiting()

    def _refuse_others(self, method: str, check_value: int) -> None:
        if (self._manifest.method, self._manifest.check_value) != (method, check_value):
            raise DirectoryError(f"{self._directory}: was created with another fingerprint seed or method")
        if self._manifest.in_memory != (self._config.method == "memory"):
            raise DirectoryError(f"{self._directory}: due.method cannot change to or from memory")

    def _open_known(self, fingerprints: Iterable[int]) -> KnownSet:
        merge_all = self._config.method == "one_file"
        chunk_bytes = self._config.merge_chunk_bytes
        if self._manifest.in_memory:
            known = KnownSet(MemoryRuns(), [], merge_all=merge_all, chunk_bytes=chunk_bytes)
            known.load(fingerprints)
            return known
        files = DiskRuns(self._directory / "due", self._manifest.runs, self._fault)
        known = KnownSet(files, files.opened, merge_all=merge_all, chunk_bytes=chunk_bytes)
        if len(known) != self._flushed.new:
            raise DamageError(
                f"{self._directory}: the store counts {self._flushed.new} known URLs, but the runs hold {len(known)}"
            )
        return known

    def _reload_waiting(self) -> None:
        """Add to the waiting links those committed links that were not flushed."""
        for fingerprints, position in self._log.fingerprints(self._flushed.position, self._appended.position):
            self._waiting.append(fingerprints, position)
        self._waiting.stage()
        self._waiting.committed()
        if self.links != self._appended.links:
            raise DamageError(
                f"{self._directory}: the links log and the flushed runs account for {self.links} links, "
                f"but the store counts {self._appended.links}"
            )

    # Links in.

    def admit(self, fingerprints: Fingerprints) -> np.ndarray:
        """Return which of the links with these fingerprints should be appended to the log. Loop.

        `fingerprints` is uint64 (n,), and the result is bool (n,). A link is not appended if a link with the
        same fingerprint waits already. The result can err in one direction only: it may be True for a link
        that waits already, but it is never False for a link that does not wait. Call this right after the
        look-up in the URL cache, in the same step of the event loop that hands the links to the committer.
        """
        fresh: np.ndarray = self._admitted.add_many(fingerprints)
        self.repeats += len(fresh) - int(np.count_nonzero(fresh))
        return fresh

    def append(self, links: Sequence[Link]) -> None:
        """Append `links` to the links log; they belong to the group that is being written. Writer.

        Raises:
            StoreError: the disk is full or failing; the process must end.
        """
        for block, position in self._log.append(links):
            self._waiting.append([link.fingerprint for link in block], position)

    def sync(self) -> None:
        """Make the appended links durable. Writer.

        Raises:
            StoreError: the disk is full or failing; the process must end.
        """
        self._log.sync()

    def stage(self, batch: Batch) -> None:
        """Record the new length of the links log in the group's `batch`.

        The writer thread calls this once per group.
        """
        self._log.write_out()
        if not self._manifest_is_stored:
            self._put_manifest(batch)
        pieces = self._waiting.stage()
        if pieces:
            links = self._appended.links + sum(map(len, pieces))
            self._appended = Appended(pieces[-1].position, links)
            batch.put(DUE_LINKS, _encode(self._appended))

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
        """Return whether a flush, or the next part of the current flush, should start now. Loop.

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
        """Return whether a flush is in progress. Loop."""
        return self._flush is not None

    def next_wakeup(self) -> float:
        """Return the time by which to call `wants_flush` again, or infinity if nothing waits. Loop."""
        if self._flush is not None:
            return 0.0 if self._flush.resting else math.inf
        if not self._waiting.count:
            return math.inf
        if self._waiting_since is None:
            return self._retry_at
        return max(self._retry_at, self._waiting_since + self._config.max_wait)

    def begin_flush(self, now: float) -> FlushPlan | None:
        """Plan a flush of the links that have waited longest, or the next part of the current flush. Loop.

        Returns None if nothing waits or if a part is still in progress.
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
                self._known,
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
        """Record a finished part in `batch`. Writer.

        The batch is synced, and also contains the to-do entries of the new links of the part.
        """
        if plan.new_run is not None and plan.new_run.entry is not None:
            self._manifest.runs.append(plan.new_run.entry)
            self._put_manifest(batch)
        batch.put(DUE_FLUSHED, _encode(plan.after))

    def flushed(self, plan: FlushPlan) -> None:
        """Record that the batch of a part of `plan` is durable. Loop.

        The run of the part is added to the known set, and the links of the part are forgotten.
        """
        assert plan is self._flush and not plan.resting, "a flush ended that is not under way"
        self._flushed = plan.after
        if plan.new_run is not None:
            self._known.add(plan.new_run)
        if not plan.part_flushed():
            self._flush = None
            self._admitted.clear()
            self._fault("flush finished")

    def flush_failed(self, plan: FlushPlan, now: float) -> None:
        """Handle a StoreError of `plan.run`. Loop.

        The links of `plan` that were not flushed wait again. The next flush begins after at least `max_wait`
        seconds.
        """
        assert plan is self._flush, "a flush failed that is not under way"
        self._flush = None
        self._waiting.put_back([plan.waiting])
        if self._waiting_since is None:
            self._waiting_since = now
        self._retry_at = now + self._config.max_wait

    # Compaction.

    def begin_compaction(self) -> CompactionPlan | None:
        """Plan the next merge of runs; return None if no merge is due or if one is in progress.

        The event loop calls this after each flush.
        """
        inputs = self._known.due_merge() if self._compaction is None else []
        if not inputs:
            return None
        self._compaction = CompactionPlan(inputs, self._known)
        return self._compaction

    def stage_compaction(self, plan: CompactionPlan, batch: Batch) -> None:
        """Record in `batch`, which will be synced, that the merged run replaces its inputs. Writer."""
        assert plan.outcome is not None, "a compaction was staged that has not run"
        if plan.outcome.entry is None:
            return
        replaced = [run.entry for run in plan.inputs if run.entry is not None]
        assert len(replaced) == len(plan.inputs), "a run to be merged is in no manifest"
        first = self._manifest.runs.index(replaced[0])
        assert self._manifest.runs[first : first + len(replaced)] == replaced, (
            "the merged runs are not in a row"
        )
        self._manifest.runs[first : first + len(replaced)] = [plan.outcome.entry]
        self._put_manifest(batch)

    def compacted(self, plan: CompactionPlan) -> None:
        """Record that the batch of `plan` is durable: use the merged run, and unlink its inputs. Loop."""
        assert plan is self._compaction and plan.outcome is not None, (
            "a compaction ended that is not under way"
        )
        self._compaction = None
        self._known.replace(plan.inputs, plan.outcome)

    def compaction_failed(self, plan: CompactionPlan) -> None:
        """Handle a StoreError of `plan.run`. Loop.

        The known set keeps the inputs of `plan`. The next flush may plan the merge again.
        """
        assert plan is self._compaction, "a compaction failed that is not under way"
        self._compaction = None

    def _put_manifest(self, batch: Batch) -> None:
        batch.put(DUE_RUNS, _encode(self._manifest))
        self._manifest_is_stored = True

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

    @property
    def run_count(self) -> int:
        """The number of runs that hold the known URLs."""
        return len(self._known.runs)

    def contains(self, fingerprint: int) -> bool:
        """Return whether the URL is known. A URL becomes known when the first link to it is flushed."""
        return fingerprint in self._known

    def waits(self, fingerprint: int) -> bool:
        """Return whether a link of the URL waits for a flush or is being flushed."""
        under_way = [self._flush.waiting] if self._flush is not None else []
        return self._waiting.holds(fingerprint) or hold(under_way, fingerprint)

    def slice(self, first_bucket: int, stop_bucket: int) -> Iterator[Fingerprints]:
        """Yield the known fingerprints of the buckets first_bucket <= b < stop_bucket, ascending, in chunks.

        Each chunk is overwritten by the next one.
        """
        return self._known.slice(first_bucket, stop_bucket)

    def expected_collisions(self) -> float:
        """Return the expected number of URLs lost because another URL has the same fingerprint."""
        return self._known.expected_collisions()

    def check(self) -> list[str]:
        """Read everything on disk and return a list of the problems found."""
        found = self._known.problems()
        try:
            for _ in self._log.fingerprints(self._flushed.position, self._appended.position):
                pass
        except DamageError as error:
            found.append(str(error))
        return found

    def close(self) -> None:
        """Close the links log."""
        self._log.close()

    def _check(self) -> None:
        """Assert every invariant. Only tests call this, because it reads everything."""
        self._known._check()
        assert self._manifest.in_memory or len(self._known) == self.new, "a known URL is in no run"
        assert self._flush is None or self._flush.count > 0, "a flush of nothing"
        assert self._appended.links >= self.links, "more links wait than were appended"

    def __repr__(self) -> str:
        return f"Eliminator({self._known!r}, {self.pending} pending, {self.repeats} repeats)"


def _encode(value: msgspec.Struct) -> bytes:
    return seal(msgspec.msgpack.encode(value))


_T = TypeVar("_T")


def _load(store: KeyValue, key: bytes, default: _T) -> _T:
    """Return the value of `key`, decoded to the type of `default`. If there is no such key, return `default`."""
    value = store.get(key)
    if value is None:
        return default
    try:
        return msgspec.msgpack.decode(unseal(key, value), type=type(default))
    except msgspec.MsgspecError as error:
        raise DamageError(f"store: the value of key {key!r} cannot be read: {error}") from error
