"""Moving a crawl at rest to another bucket table: `crawler reshard`.

    settle   every link that waits in an outbox is applied by its owner, every DUE is flushed
    build    DIR/.reshard/<name> for each new process: what lies in its buckets, from all old ones
    check    each new process is opened there and verified as `crawler check` does
    switch   a journal, DIR/reshard.json, decides; then folders are renamed, the old ones removed

All that belongs to a host has its bucket in front of its key (`u/ c/ t/ p/ h/`,
the runs of the DUE), so a bucket range is copied key by key and nothing is
decoded but what must be found: `g/` goes where its capture goes, `r/` where its
host goes. WARC segments are linked, not copied, into every new process that has
a capture in them. A revisit may repeat a response of a host that went elsewhere:
that capture's place comes along under `v/`.

After a crash before the journal is written nothing has changed; after it the
next `reshard` finishes what the journal says, and everything else refuses the
directory. Books: what the crawl counted so far goes to the first new process,
and `urls.resharded` makes the books of each whole, since URLs known in one
place were counted in another.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.config import Config
from crawler.crawl.topology import TABLE_KEY, Topology
from crawler.due.eliminator import FLUSHED_KEY, LINKS_KEY, RUNS_KEY, Appended, Eliminator, Manifest
from crawler.due.plans import Flushed
from crawler.due.runs import DiskRuns
from crawler.errors import DamageError, DirectoryError
from crawler.frontier.discovery.entries import PARKED_PREFIX, TODO_PREFIX, decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import META_KEY, Meta
from crawler.pages.archive import ELSEWHERE_PREFIX
from crawler.pages.captures import unpack_capture
from crawler.pages.segments import segment_path
from crawler.process.harvest import EQUIVALENCES_KEY, SCOPE_KEY
from crawler.process.stages import CLEAN_KEY, Stages, load_json
from crawler.records import Capture
from crawler.splitter.partition import BUCKETS, Partition
from crawler.storage.commit import COUNTERS_KEY, load_counters
from crawler.storage.files import sync_directory
from crawler.storage.kv import KeyValue, LevelStore, scan_prefix, seal, unseal
from crawler.upkeep.check import check
from crawler.urls.canonical import hostname
from crawler.urls.fingerprint import Fingerprinter

BY_BUCKET = (b"u/", b"c/", b"t/", b"p/", b"h/")
# What is not copied: it is made anew, or was emptied by `settle`.
_MADE_ANEW = (b"d/", b"i/", b"o/", b"w/", b"m/", ELSEWHERE_PREFIX)
_BATCH_BYTES = 4 << 20
_DROPPED_COUNTERS = ("urls.to_outbox", "urls.received", "urls.resharded")


class Source:
    """An old process, closed and settled: its store and known URLs, to be read."""

    def __init__(self, config: Config, folder: Path, fingerprinter: Fingerprinter, name: str) -> None:
        self.name = name
        self.folder = folder
        self.store = LevelStore(folder / "store")
        self.counters = Counter(load_counters(self.store))
        self.flushed = _decoded(self.store, FLUSHED_KEY, Flushed())
        self.manifest: Manifest | None = _decoded(self.store, RUNS_KEY, None, Manifest)
        self.due: Eliminator | None = None
        if self.manifest is not None and not self.manifest.in_memory:
            self.due = Eliminator(
                folder,
                self.store,
                config.due,
                check_value=fingerprinter.check_value,
                method=config.urls.fingerprint,
            )
        self._refuse_unknown_keys()

    def _refuse_unknown_keys(self) -> None:
        """Every key must have its way into the new processes."""
        known = {*BY_BUCKET, *_MADE_ANEW, b"g/", b"r/"}
        for key, _ in self.store.scan(b""):
            if key[:2] not in known:
                raise DirectoryError(f"{self.folder}: reshard does not know how to move the key {key!r}")

    def close(self) -> None:
        if self.due is not None:
            self.due.close()
        self.store.close()


def _decoded(store: KeyValue, key: bytes, default: Any, kind: Any = None) -> Any:
    value = store.get(key)
    return (
        default if value is None else msgspec.msgpack.decode(unseal(key, value), type=kind or type(default))
    )


class _Writer:
    """Puts keys into a store in synced batches of bounded size."""

    def __init__(self, store: LevelStore) -> None:
        self._store = store
        self._batch, self._bytes = store.batch(sync=True), 0

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._bytes += len(key) + len(value)
        if self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._store.write(self._batch)
        self._batch, self._bytes = self._store.batch(sync=True), 0


class Build:
    """The folder of one new process, made of what the sources hold of its buckets.

    `heir` says that this process takes over the counters of the whole crawl.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        table: Partition,
        sources: dict[str, Source],
        old_table: Partition,
        fingerprinter: Fingerprinter,
        *,
        heir: bool,
    ) -> None:
        self._folder = folder
        self._name = name
        self._table = table
        self._sources = sources
        self._old_table = old_table
        self._fingerprinter = fingerprinter
        self._heir = heir
        self._counts: Counter[str] = Counter()  # keys by prefix
        self._parked: Counter[str] = Counter()
        self._segments: dict[str, tuple[Source, int]] = {}

    def run(self) -> None:
        """Write the folder.

        Raises:
            StoreError: the disk failed.
            DamageError: a source is not what was written.
        """
        self._folder.mkdir(parents=True)
        store = LevelStore(self._folder / "store")
        try:
            self._writer = _Writer(store)
            self._lengths = self._committed_lengths()
            for source, first, end in self._pieces():
                self._copy_buckets(source, first, end)
            for source in self._sources.values():
                self._copy_payloads(source)
                self._copy_robots(source)
            self._link_segments()
            self._copy_rest()
            self._write_due()
            self._write_meta()
            self._writer.flush()
        finally:
            store.close()
        sync_directory(self._folder)

    def _pieces(self) -> Iterator[tuple[Source, int, int]]:
        """(old owner, first bucket, end) of this process's buckets, ascending."""
        mine = self._table.owner_of_bucket == self._table.index(self._name)
        before = self._old_table.owner_of_bucket
        changes = np.flatnonzero((mine[1:] != mine[:-1]) | (before[1:] != before[:-1])) + 1
        cuts = [0, *changes.tolist(), BUCKETS]
        for first, end in zip(cuts, cuts[1:], strict=False):
            if mine[first]:
                yield self._sources[self._old_table.names[before[first]]], first, end

    def _copy_buckets(self, source: Source, first: int, end: int) -> None:
        for prefix in BY_BUCKET:
            stop = prefix + end.to_bytes(2, "big") if end < BUCKETS else prefix[:-1] + b"0"
            for key, value in source.store.scan(prefix + first.to_bytes(2, "big"), stop):
                self._writer.put(key, value)
                self._counts[prefix.decode()] += 1
                if prefix == b"c/":
                    self._keep_capture(source, key, value)
                elif prefix == PARKED_PREFIX:
                    self._parked[RULES[decode(key, value).rule]] += 1

    def _keep_capture(self, source: Source, key: bytes, value: bytes) -> None:
        capture = unpack_capture(key, value)
        self._need_segment(source, capture)
        if capture.refers_to and not self._owns_key(capture.refers_to):
            self._bring_original(capture.refers_to)

    def _bring_original(self, key: bytes) -> None:
        """Let a revisit find the response that it repeats, which another process has."""
        elsewhere = ELSEWHERE_PREFIX + key[2:]
        for source in self._sources.values():
            value = source.store.get(key) or source.store.get(elsewhere)
            if value is not None:
                self._writer.put(elsewhere, value)
                return self._need_segment(source, unpack_capture(key, value))

    def _owns_key(self, key: bytes) -> bool:
        bucket = int.from_bytes(key[2:4], "big")
        return self._table.names[self._table.owner_of_bucket[bucket]] == self._name

    def _need_segment(self, source: Source, capture: Capture) -> None:
        if capture.segment not in self._segments:
            self._segments[capture.segment] = (source, self._lengths[source.name, capture.segment])

    def _committed_lengths(self) -> dict[tuple[str, str], int]:
        return {
            (source.name, key[2:].decode()): int.from_bytes(unseal(key, value), "big")
            for source in self._sources.values()
            for key, value in scan_prefix(source.store, b"w/")
        }

    def _copy_payloads(self, source: Source) -> None:
        """`g/`: the first capture with some bytes, where that capture is."""
        for key, value in scan_prefix(source.store, b"g/"):
            if self._owns_key(unseal(key, value)):
                self._writer.put(key, value)

    def _copy_robots(self, source: Source) -> None:
        for key, value in scan_prefix(source.store, b"r/"):
            bucket = self._fingerprinter.bucket(hostname(key[2:].decode() + "/"))
            if self._table.names[self._table.owner_of_bucket[bucket]] == self._name:
                self._writer.put(key, value)

    def _link_segments(self) -> None:
        folder = self._folder / "warc"
        folder.mkdir()
        for segment, (source, length) in self._segments.items():
            _link(segment_path(source.folder / "warc", segment), folder / segment)
            self._writer.put(b"w/" + segment.encode(), seal(length.to_bytes(8, "big")))
        sync_directory(folder)

    def _copy_rest(self) -> None:
        """What is nobody's bucket: traces, and what recoveries have set aside; the heir keeps it."""
        if not self._heir:
            return
        for source in self._sources.values():
            for part in ("trace", "warc/lost+found"):
                for path in sorted((source.folder / part).glob("*")):
                    target = self._folder / part / f"{source.name}-{path.name}"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _link(path, target)

    # -- the DUE and the books --------------------------------------------------

    def _write_due(self) -> None:
        manifests = [source.manifest for source in self._sources.values() if source.manifest is not None]
        self._new = self._counts["u/"]
        if not manifests:
            return
        manifest = Manifest(manifests[0].method, manifests[0].check_value, manifests[0].in_memory)
        if manifest.in_memory:
            self._new = self._counts["u/"] + self._counts["t/"] + self._counts["p/"]
        else:
            self._new = sum(len(keys) for keys in self._known())
            if self._new:
                runs = DiskRuns(self._folder / "due", [])
                run = runs.write(self._known(), self._new, step="reshard")
                manifest.runs.append(run.entry)
                run.close()
        old = sum(source.flushed.known for source in self._sources.values())
        known = old if self._heir else 0
        self._to_due = known + self._new
        self._writer.put(RUNS_KEY, _packed(manifest))
        self._writer.put(LINKS_KEY, _packed(Appended(0, self._to_due)))
        self._writer.put(FLUSHED_KEY, _packed(Flushed(0, known, self._new)))

    def _known(self) -> Iterator[np.ndarray]:
        """The known fingerprints of this process's buckets, ascending, in chunks."""
        for source, first, end in self._pieces():
            if source.due is not None:
                yield from source.due.slice(first, end)

    def _write_meta(self) -> None:
        stores = [source.store for source in self._sources.values()]
        metas = [_decoded(store, META_KEY, Meta()) for store in stores]
        meta = Meta(
            sequence=max(each.sequence for each in metas),
            parked=dict(self._parked),
            limits=metas[0].limits,
            unclean_at=max(each.unclean_at for each in metas),
        )
        self._writer.put(META_KEY, _packed(meta))
        self._writer.put(COUNTERS_KEY, _packed(self._counters()))
        self._writer.put(TABLE_KEY, self._table.encode())
        self._writer.put(CLEAN_KEY, b"1")
        self._write_scope(stores)

    def _write_scope(self, stores: Sequence[KeyValue]) -> None:
        scopes = [state for store in stores if (state := load_json(store, SCOPE_KEY)) is not None]
        if scopes:
            entries = sorted({entry for state in scopes for entry in state["entries"]})
            union = {"kind": scopes[0]["kind"], "entries": entries}
            self._writer.put(SCOPE_KEY, seal(msgspec.json.encode(union)))
        proven: dict[str, str] = {}
        for store in stores:
            proven |= load_json(store, EQUIVALENCES_KEY) or {}
        if proven:
            self._writer.put(EQUIVALENCES_KEY, seal(msgspec.json.encode(proven)))

    def _counters(self) -> dict[str, int]:
        """Counters under which the laws of `process/books.py` hold for this process."""
        counters: Counter[str] = Counter()
        if self._heir:
            for source in self._sources.values():
                counters.update(source.counters)
        kept = {
            name: count
            for name, count in counters.items()
            if name not in _DROPPED_COUNTERS and not name.startswith("splitter.")
        }
        kept["urls.to_due"] = self._to_due
        kept["urls.done"] = self._new - self._counts[TODO_PREFIX.decode()] - self._counts["p/"]
        hits, accepted = kept.get("urls.cache_hits", 0), kept.get("urls.accepted", 0)
        kept["urls.resharded"] = hits + self._to_due - accepted
        return kept


def _packed(value: Any) -> bytes:
    return seal(msgspec.msgpack.encode(value))


def _link(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where the disk knows no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def problems_of(config: Config, folder: Path, seed: bytes, topology: Topology, clock: Any) -> list[str]:
    """What `crawler check` finds in a new process, before it takes an old one's place."""
    stages = Stages(config, folder, seed, clock=clock, name=topology.me, topology=topology, restore=False)
    try:
        return check(stages)
    except DamageError as error:
        return [str(error)]
    finally:
        stages.close()
