"""The Duplicate URL Eliminator: links in, those of new URLs out, exactly once.

A link that missed the cache takes this way (durability.md, section 1; `|` is a
commit of the process, the only thing that decides):

    admit -> append, sync, stage | committed -> waiting -> begin_flush, run, stage_flush | flushed
    (cache)  links log, d/links  |              (memory)   sort, join, X.run, d/runs, d/flushed, new t/

Two threads: the loop calls `admit`, `committed`, `begin_...`, `flushed` and
`compacted`; the writer calls `append`, `sync` and everything called `stage`. A
plan's `run` may be called in either or in a third: it only reads runs and the
log, which never change, and writes a file that nothing names yet. There is one
flush at a time and one compaction at a time; either may overtake the other,
since a compaction changes how the known set is cut into runs, not the set, and
its outcome replaces exactly its inputs.

A crash at any moment leaves the store's word: runs and links it does not name
are removed when the DUE is opened, and what was appended but not flushed waits
again. So each fingerprint is handed out once, in the batch that also says so.

Runs are merged in powers of two (`_merge_tail`): with N known URLs, b new ones
a flush, there are at most log2(N/b) + 2 runs, and a fingerprint is rewritten at
most log2(N/b) + 1 times.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.config import DueConfig
from crawler.due import runs as sorted_runs
from crawler.due.kernels import PendingSet
from crawler.due.links_log import LinksLog
from crawler.due.runs import DiskRun, Fault, Fingerprints, RunEntry
from crawler.errors import DamageError, DirectoryError
from crawler.records import Link
from crawler.storage.kv import Batch, KeyValue, seal, unseal

RUNS_KEY = b"d/runs"
LINKS_KEY = b"d/links"
FLUSHED_KEY = b"d/flushed"


class Manifest(msgspec.Struct, array_like=True):
    """Value of `d/runs`: whose fingerprints these are, and the runs that hold them, oldest first."""

    method: str
    check_value: int
    in_memory: bool
    runs: list[RunEntry] = []


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/links`: how far the links log counts, in bytes and in links since the crawl began."""

    position: int = 0
    links: int = 0


class Flushed(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/flushed`: how far the links log is consumed, and what became of those links."""

    position: int = 0
    known: int = 0
    new: int = 0


class _Piece(msgspec.Struct, frozen=True):
    """Links that wait, in one stretch of the log that ends at `position`."""

    fingerprints: Fingerprints
    position: int


class FlushPlan:
    """One flush: made by `Eliminator.begin_flush`, run in any thread, then staged, written, and reported.

    After `run`: `new_links` are the links of URLs that were not known, each once, in the
    order of their first submission; `new_run` holds their fingerprints (None if there are none).
    """

    def __init__(self, owner: "Eliminator", pieces: list[_Piece], number: int) -> None:
        self._owner = owner
        self.pieces = pieces
        self._runs = sorted(owner.runs, key=lambda run: -run.count)  # the largest settles most queries
        self._number = number
        self._before = owner.consumed
        self.new_links: list[Link] = []
        self.new_run: DiskRun | None = None
        self.after = owner.consumed

    def run(self) -> None:
        """Sort, join, write the new run; read the new links back.

        Raises:
            StoreError: the run cannot be written; `Eliminator.flush_failed`, and try again later.
            DamageError: the links log is not what was written.
        """
        fingerprints = np.concatenate([piece.fingerprints for piece in self.pieces])
        new, first_submitted = _unknown(fingerprints, self._runs)
        self._owner.fault("flush joined")
        self.new_links = self._read_links(first_submitted)
        self.new_run = self._owner.write_run(self._number, [new], "flush")
        self.after = Flushed(
            self.pieces[-1].position,
            self._before.known + len(fingerprints) - len(new),
            self._before.new + len(new),
        )

    def _read_links(self, wanted: np.ndarray) -> list[Link]:
        """The links that were submitted as number `wanted` (ascending) of this flush."""
        found: list[Link] = []
        begun = at = 0
        for links, _ in self._owner.log.read(self._before.position, self.pieces[-1].position):
            stop = int(np.searchsorted(wanted, begun + len(links)))
            found += [links[index - begun] for index in wanted[at:stop].tolist()]
            begun, at = begun + len(links), stop
        if begun != sum(len(piece.fingerprints) for piece in self.pieces):
            raise DamageError("due: the links log does not hold as many links as were appended")
        return found


class CompactionPlan:
    """One merge of runs: made by `Eliminator.begin_compaction`, run in a worker thread, then staged, reported."""

    def __init__(self, owner: "Eliminator", inputs: list[DiskRun], number: int) -> None:
        self._owner = owner
        self.inputs = inputs
        self._number = number
        self.outcome: DiskRun | None = None

    def run(self) -> None:
        """Merge the inputs into one run.

        Raises:
            StoreError: it cannot be written; `Eliminator.compaction_failed`, and try again later.
            DamageError: two inputs hold the same fingerprint.
        """
        chunks = sorted_runs.merge(self.inputs, self._owner.config.merge_chunk_bytes)
        self.outcome = self._owner.write_run(self._number, chunks, "compaction")


def _unknown(fingerprints: Fingerprints, runs: Sequence[DiskRun]) -> tuple[Fingerprints, np.ndarray]:
    """The fingerprints no run holds, ascending, and where each came first, ascending too."""
    order = np.argsort(fingerprints, kind="stable")
    ascending = fingerprints[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    queries = ascending[first]
    known = np.zeros(len(queries), np.uint8)
    for run in runs:
        run.join(queries, known)
    new = known == 0
    return queries[new], np.sort(order[first][new])


class Eliminator:
    """The DUE of one process.

    Args:
        directory: the process's directory; `due/` and `links/` in it are the DUE's.
        store: where `d/...` keys are.
        config: buffer, waiting time, method.
        check_value: fingerprint of a fixed URL, which tells one seed from another.
        method: how fingerprints are made.
        known: only for `config.method == "memory"`: all fingerprints that were handed out.
        fault: called with the name of each step that a crash may follow.

    Raises:
        DirectoryError: the directory belongs to another seed or method.
        DamageError: a run or a part of the links log is missing or not what was written.
    """

    def __init__(
        self,
        directory: Path,
        store: KeyValue,
        config: DueConfig,
        *,
        check_value: int,
        method: str,
        known: Iterable[Fingerprints] = (),
        fault: Fault = lambda _: None,
    ) -> None:
        self.config = config
        self.fault = fault
        self._directory = directory / "due"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._manifest = self._open_manifest(store, check_value, method)
        self.runs = [DiskRun(self._directory, entry) for entry in self._manifest.runs]
        self._sweep()
        self._appended = _load(store, LINKS_KEY, Appended)
        self.consumed = _load(store, FLUSHED_KEY, Flushed)
        self.log = LinksLog(
            directory / "links",
            begin=self.consumed.position,
            end=self._appended.position,
            file_bytes_max=config.log_bytes_max,
            fault=fault,
        )
        self._next_number = max((run.entry.number for run in self.runs), default=0) + 1
        self._unstaged: list[_Piece] = []  # appended, of the group that is being written
        self._staged: deque[list[_Piece]] = deque()  # one list a group, not yet known to be durable
        self._waiting: deque[_Piece] = deque()
        self.pending = 0
        self._admitted = PendingSet(2 * config.buffer_entries_max)
        self.links = 0
        self.repeats = 0
        self._waiting_since: float | None = None
        self._retry_at = -math.inf
        self._flush: FlushPlan | None = None
        self._compaction: CompactionPlan | None = None
        self._reload_waiting()

    def _open_manifest(self, store: KeyValue, check_value: int, method: str) -> Manifest:
        fresh = Manifest(method, check_value, self.config.method == "memory")
        value = store.get(RUNS_KEY)
        if value is None:
            return fresh
        manifest = _decode(RUNS_KEY, value, Manifest)
        if (manifest.method, manifest.check_value) != (method, check_value):
            raise DirectoryError(
                f"{self._directory}: made with another fingerprint seed or method; not opened"
            )
        if manifest.in_memory != fresh.in_memory:
            raise DirectoryError(f"{self._directory}: due.method cannot change between memory and disk")
        return manifest

    def _sweep(self) -> None:
        """Remove the run files that the store does not name: a crash came before they counted."""
        named = {entry.name for entry in self._manifest.runs}
        for path in [*self._directory.glob("*.run"), *self._directory.glob("*.run~")]:
            if path.name not in named:
                path.unlink()

    def _reload_waiting(self) -> None:
        for links, position in self.log.read(self.consumed.position, self._appended.position):
            self._unstaged.append(_Piece(_fingerprints_of(links), position))
        self._wait(_coalesce(self._unstaged, self.config.buffer_entries_max))
        self._unstaged = []
        if self.links != self._appended.links:
            raise DamageError(
                f"{self._directory}: the links log does not hold as many links as the store says"
            )

    # Links in.

    def admit(self, fingerprints: Fingerprints) -> np.ndarray:
        """Which of `fingerprints`, uint64 (n,), do not wait already, as bool (n,): those are to be appended. Loop.

        Call it right behind the cache, in the step that hands the links to the committer.
        It may forget, so that an accepted link can be a repeat, but never drops one that does not wait.
        """
        fresh = self._admitted.add_many(fingerprints)
        self.repeats += len(fresh) - int(np.count_nonzero(fresh))
        return fresh

    def append(self, links: Sequence[Link]) -> None:
        """Append `links` to the links log, as part of the group that is being written. Writer."""
        for block, position in self.log.append(links):
            self._unstaged.append(_Piece(_fingerprints_of(block), position))

    def sync(self) -> None:
        """Make what was appended durable. Writer.

        Raises:
            StoreError: the disk is full or fails; the process must end.
        """
        self.log.sync()

    def stage(self, batch: Batch) -> None:
        """Put into a group's `batch` that the links appended since the last call count. Writer; once a group."""
        self.log.write_out()
        pieces, self._unstaged = _coalesce(self._unstaged, self.config.buffer_entries_max), []
        if pieces:
            count = sum(len(piece.fingerprints) for piece in pieces)
            self._appended = Appended(pieces[-1].position, self._appended.links + count)
            batch.put(LINKS_KEY, _encode(self._appended))
        self._staged.append(pieces)

    def committed(self) -> None:
        """The oldest staged group is durable: its links wait for the next flush. Loop; once a group."""
        self._wait(self._staged.popleft())

    def _wait(self, pieces: list[_Piece]) -> None:
        count = sum(len(piece.fingerprints) for piece in pieces)
        self._waiting.extend(pieces)
        self.pending += count
        self.links = self.consumed.known + self.consumed.new + self.pending

    # Flush.

    @property
    def full(self) -> bool:
        """Whether so many links wait that no more should be taken before a flush."""
        return self.pending >= 2 * self.config.buffer_entries_max

    def wants_flush(self, now: float, *, dry: bool = False) -> bool:
        """Whether to flush now: buffer full, a link waited long enough, or the frontier runs `dry`. Loop."""
        if not self.pending or self._flush is not None:
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if now < self._retry_at:
            return False
        waited = now - self._waiting_since >= self.config.max_wait
        return dry or waited or self.pending >= self.config.buffer_entries_max

    def next_wakeup(self) -> float:
        """The instant `wants_flush` should be asked at the latest; infinite if nothing waits."""
        if not self.pending or self._flush is not None:
            return math.inf
        if self._waiting_since is None:
            return self._retry_at
        return max(self._waiting_since + self.config.max_wait, self._retry_at)

    def begin_flush(self, now: float) -> FlushPlan | None:
        """Plan a flush of what waited longest, a buffer at most; None if nothing waits or one is under way."""
        if self._flush is not None or not self._waiting:
            return None
        pieces = [self._waiting.popleft()]
        count = len(pieces[0].fingerprints)
        while self._waiting and count + len(self._waiting[0].fingerprints) <= self.config.buffer_entries_max:
            pieces.append(self._waiting.popleft())
            count += len(pieces[-1].fingerprints)
        self._waiting_since = now if self._waiting else None
        self._flush = FlushPlan(self, pieces, self._take_number())
        return self._flush

    def stage_flush(self, plan: FlushPlan, batch: Batch) -> None:
        """Put a finished flush into a synced batch, which must also hold the new links' to-do entries. Writer."""
        if plan.new_run is not None or not self._manifest.runs:
            if plan.new_run is not None:
                self._manifest.runs.append(plan.new_run.entry)
            batch.put(RUNS_KEY, _encode(self._manifest))
        batch.put(FLUSHED_KEY, _encode(plan.after))

    def flushed(self, plan: FlushPlan) -> None:
        """The batch of `plan` is durable: use its run, forget its links. Loop."""
        assert plan is self._flush, "a flush was reported that is not under way"
        self._flush = None
        self.consumed = plan.after
        self.pending -= sum(len(piece.fingerprints) for piece in plan.pieces)
        if plan.new_run is not None:
            self.runs.append(plan.new_run)
        self._admitted.clear()
        self.log.drop_before(plan.after.position)
        self.fault("flush finished")

    def flush_failed(self, plan: FlushPlan, now: float) -> None:
        """`plan.run` raised StoreError: its links wait again, for `max_wait` at least. Loop."""
        assert plan is self._flush, "a flush failed that is not under way"
        self._flush = None
        self._waiting.extendleft(reversed(plan.pieces))
        self._retry_at = now + self.config.max_wait

    # Compaction.

    def begin_compaction(self) -> CompactionPlan | None:
        """Plan the next merge of runs; None if none is due, or one is under way. Loop; after each flush."""
        if self._compaction is not None:
            return None
        inputs = list(self.runs) if self.config.method == "one_file" else _merge_tail(self.runs)
        if len(inputs) < 2:
            return None
        self._compaction = CompactionPlan(self, inputs, self._take_number())
        return self._compaction

    def stage_compaction(self, plan: CompactionPlan, batch: Batch) -> None:
        """Put into a synced batch that the outcome takes the place of exactly its inputs. Writer."""
        assert plan.outcome is not None, "a compaction was staged that has not run"
        entries = [run.entry for run in plan.inputs]
        at = self._manifest.runs.index(entries[0])
        assert self._manifest.runs[at : at + len(entries)] == entries, (
            "the runs that were merged are not in a row"
        )
        self._manifest.runs[at : at + len(entries)] = [plan.outcome.entry]
        batch.put(RUNS_KEY, _encode(self._manifest))

    def compacted(self, plan: CompactionPlan) -> None:
        """The batch of `plan` is durable: use its outcome, unlink its inputs. Loop."""
        assert plan is self._compaction and plan.outcome is not None, (
            "a compaction was reported that is not under way"
        )
        self._compaction = None
        at = self.runs.index(plan.inputs[0])
        self.runs[at : at + len(plan.inputs)] = [plan.outcome]
        for run in plan.inputs:
            run.path.unlink()
            self.fault("compaction input unlinked")

    def compaction_failed(self, plan: CompactionPlan) -> None:
        """`plan.run` raised StoreError: the inputs stay as they are. Loop."""
        assert plan is self._compaction, "a compaction failed that is not under way"
        self._compaction = None

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def write_run(self, number: int, chunks: Iterable[Fingerprints], step: str) -> DiskRun | None:
        """Write ascending fingerprints as a new run; None if there are none."""
        return sorted_runs.write_run(self._directory, number, chunks, step=step, fault=self.fault)

    # Questions.

    @property
    def known(self) -> int:
        """Links that turned out to be of a known URL, since the crawl began."""
        return self.consumed.known

    @property
    def new(self) -> int:
        """Links that turned out to be of a new URL: the number of known URLs."""
        return self.consumed.new

    def contains(self, fingerprint: int) -> bool:
        """Whether the URL is known; those that wait are not."""
        query = np.array([fingerprint], np.uint64)
        found = np.zeros(1, np.uint8)
        for run in self.runs:
            run.join(query, found)
        return bool(found[0])

    def waits(self, fingerprint: int) -> bool:
        """Whether a link of the URL waits for a flush, one under way included."""
        pieces = [*(self._flush.pieces if self._flush else ()), *self._waiting]
        return any(bool((piece.fingerprints == np.uint64(fingerprint)).any()) for piece in pieces)

    def slice(self, first_bucket: int, stop_bucket: int) -> Iterator[Fingerprints]:
        """The known fingerprints of buckets first_bucket <= b < stop_bucket, ascending, in chunks.

        A chunk is overwritten when the next one is asked for.
        """
        return sorted_runs.merge(
            self.runs, self.config.merge_chunk_bytes, low=first_bucket << 48, high=stop_bucket << 48
        )

    def expected_collisions(self) -> float:
        """The expected number of URLs lost because another one has their fingerprint.

        Two URLs collide only within a bucket: the sum of n^2 / 2^49 over the
        buckets, each of n URLs as the fences show them, but never less than
        the N^2 / 2^65 of N URLs that are spread evenly.
        """
        fences = [run.fences >> np.uint64(48) for run in self.runs]
        posts = np.bincount(np.concatenate(fences).astype(np.int64)) if fences else np.zeros(1)
        by_bucket = float(((posts * float(sorted_runs.FENCE_STEP)) ** 2).sum()) / 2.0**49
        by_bucket = by_bucket if sum(run.count for run in self.runs) >= 1 << 20 else 0.0
        return max(by_bucket, float(self.new) ** 2 / 2.0**65)

    def close(self) -> None:
        self.log.close()

    def __repr__(self) -> str:
        sizes = ", ".join(str(run.count) for run in self.runs)
        return f"Eliminator({self.new} known, runs [{sizes}], {self.pending} pending, {self.repeats} repeats)"


def _merge_tail(runs: Sequence[DiskRun]) -> list[DiskRun]:
    """The newest run with each older neighbour as long as that is not larger than what has been gathered."""
    at = len(runs) - 1
    gathered = runs[at].count if runs else 0
    while at > 0 and runs[at - 1].count <= gathered:
        at -= 1
        gathered += runs[at].count
    return list(runs[max(at, 0) :])


def _coalesce(pieces: Sequence[_Piece], entries_max: int) -> list[_Piece]:
    """The same stretches of the log in few pieces, none larger than `entries_max` unless it was."""
    gathered: list[list[_Piece]] = []
    count = entries_max
    for piece in pieces:
        if count + len(piece.fingerprints) > entries_max:
            gathered.append([])
            count = 0
        gathered[-1].append(piece)
        count += len(piece.fingerprints)
    return [
        _Piece(np.concatenate([piece.fingerprints for piece in some]), some[-1].position) for some in gathered
    ]


def _fingerprints_of(links: Sequence[Link]) -> Fingerprints:
    return np.fromiter((link.fingerprint for link in links), np.uint64, len(links))


def _encode(value: msgspec.Struct) -> bytes:
    return seal(msgspec.msgpack.encode(value))


def _decode(key: bytes, value: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.msgpack.decode(unseal(key, value), type=kind)
    except msgspec.MsgspecError as error:
        raise DamageError(f"store: value of key {key!r} cannot be read: {error}") from error


def _load(store: KeyValue, key: bytes, kind: Callable[[], Any]) -> Any:
    value = store.get(key)
    return kind() if value is None else _decode(key, value, kind)  # type: ignore[arg-type]
