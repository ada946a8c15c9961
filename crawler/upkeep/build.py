"""The second step of `crawler reshard`: builds the folder of each new process from all old ones.

Each stage moves its own keys (through `NewProcess` of `storage/reshard.py`); this module calls the stages.
The keys of a host begin with its bucket, so a range of buckets can be copied key by key without decoding.
Only keys that must be looked up are decoded.

The counters of the crawl so far go to the first new process (the heir). A URL that is known to one new
process may have been counted by another process. So the first equation in `process/committing/counters.py`
would not hold for a single process. In each process, the counter `urls.resharded` is set to the difference,
so that the equation holds.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import crawler.due.reshard
import crawler.frontier.reshard
import crawler.pages.reshard
import crawler.process.results.reshard
import crawler.robots.reshard
import crawler.urlfilter.reshard
import crawler.urls.reshard
from crawler.clock import Clock
from crawler.config import Config
from crawler.consent.stamping import load_block
from crawler.crawl.immutable_settings import encode_immutable, load_immutable
from crawler.crawl.topology import Topology
from crawler.due.reshard import ReshardCounters
from crawler.errors import DamageError, DirectoryError
from crawler.process.opening.stages import Stages
from crawler.splitter.inbox import held_before
from crawler.splitter.partition import Partition
from crawler.splitter.spool import confirmed_before
from crawler.storage.commit import load_counters
from crawler.storage.engines import open_store
from crawler.storage.files import sync_directory
from crawler.storage.keys import (
    BUCKET_TABLE,
    BUCKETS,
    CLEAN,
    COUNTERS,
    KEPT,
    PARKED,
    PROCESS,
    SETTLED,
    TODO,
    family,
)
from crawler.storage.kv import KeyValue
from crawler.storage.reshard import NewProcess, OldProcess, pack
from crawler.upkeep.check import check
from crawler.upkeep.repair import BoundedWriter
from crawler.urls.fingerprint import Fingerprinter

_DROPPED_COUNTERS = ("urls.to_outbox", "urls.received", "urls.resharded")


def open_source(folder: Path, name: str) -> OldProcess:
    """Open the folder of a process of the old crawl, for reading."""
    store = open_store(folder / "store")
    try:
        return source_of(folder, name, store)
    except DirectoryError:
        store.close()
        raise


def source_of(folder: Path, name: str, store: KeyValue) -> OldProcess:
    """Return an old process whose store is open; raise DirectoryError if the store holds an unknown key."""
    for key, _ in store.scan(b""):
        if family(key) is None:
            raise DirectoryError(f"{folder}: reshard does not know how to move the key {key!r}")
    return OldProcess(name, folder, store)


@dataclass(eq=False, repr=False)
class Build:
    """Builds new processes from the old processes `sources` and their table `old_table`."""

    config: Config
    sources: Mapping[str, OldProcess]
    old_table: Partition
    fingerprinter: Fingerprinter

    def run(self, folder: Path, store: KeyValue, name: str, table: Partition) -> int:
        """Write the process `name` of the new table into its new folder and its empty store.

        Return the number of URLs that the process knows. Raise DamageError if a value of a source is damaged.
        """
        kept = self._settled()
        writer = BoundedWriter(store)
        owner, me = table.owner_of_bucket, table.index(name)
        to = NewProcess(
            folder,
            list(self.sources.values()),
            list(self._pieces(table, name)),
            owns=lambda bucket: bool(owner[bucket] == me),
            put=writer.put,
            heir=name == table.names[0],
        )
        crawler.pages.reshard.move(to, f"{self.config.pages.prefix}-{name}", load_block)
        crawler.frontier.reshard.move(to)
        crawler.robots.reshard.move(to, self.fingerprinter.bucket)
        crawler.urlfilter.reshard.move(to)
        crawler.urls.reshard.move(to)
        crawler.process.results.reshard.move(to, name, table)
        to.copy_rest()
        books = self._move_due(to)
        to.put(COUNTERS, pack(_counters(to, books)))
        to.put(BUCKET_TABLE, table.encode())
        to.put(PROCESS, name.encode())
        to.put(SETTLED, encode_immutable(kept))
        to.put(CLEAN, b"1")
        writer.flush()
        sync_directory(folder)
        return books.new

    def _settled(self) -> dict[str, Any]:
        """Return the immutable settings of the old processes. `settle` has checked that these do not differ."""
        kept: dict[str, Any] = {}
        for source in self.sources.values():
            kept |= load_immutable(source.store)
        return kept

    def _pieces(self, table: Partition, name: str) -> Iterator[tuple[OldProcess, int, int]]:
        """Yield (old owner, first bucket, end) for each range of buckets that `name` will own, in ascending order."""
        mine = table.owner_of_bucket == table.index(name)
        before = self.old_table.owner_of_bucket
        changes = np.flatnonzero((mine[1:] != mine[:-1]) | (before[1:] != before[:-1])) + 1
        cuts = [0, *changes.tolist(), BUCKETS]
        for first, end in zip(cuts, cuts[1:], strict=False):
            if mine[first]:
                yield self.sources[self.old_table.names[before[first]]], first, end

    def _move_due(self, to: NewProcess) -> ReshardCounters:
        """Move the part of the old DUEs that belongs to the new process. The old DUEs are open only during this call."""
        check_value, method = self.fingerprinter.check_value, self.config.urls.fingerprint
        with contextlib.ExitStack() as stack:
            dues = {}
            for source in to.sources:
                due = crawler.due.reshard.open_due(
                    source, self.config.due, check_value=check_value, method=method
                )
                dues[source.name] = None if due is None else stack.enter_context(contextlib.closing(due))
            return crawler.due.reshard.move(to, dues)


def keep_counts(
    store: KeyValue, name: str, known: Mapping[str, int], random_bytes: Callable[[int], bytes] = os.urandom
) -> None:
    """Store the counts by which peers will notice if the new process `name` loses its store.

    Peers compare these counts at each greeting. For a new process, the count for each peer is the number of
    URLs that the process knows (`known`).
    """
    batch = store.batch(sync=True)
    for peer in sorted(known.keys() - {name}):
        batch.put(*held_before(peer, known[name]))
        batch.put(*confirmed_before(peer, random_bytes(8), known[peer]))
    store.write(batch)


def _counters(to: NewProcess, books: ReshardCounters) -> dict[str, int]:
    """Return counters for the new process that satisfy the equations in `process/committing/counters.py`."""
    counters: Counter[str] = Counter()
    if to.heir:
        for source in to.sources:
            counters.update(load_counters(source.store))
    kept = {
        name: count
        for name, count in counters.items()
        if name not in _DROPPED_COUNTERS and not name.startswith("splitter.")
    }
    kept["urls.to_due"] = books.to_due
    kept["urls.done"] = books.new - to.copied[TODO] - to.copied[PARKED]
    for name, prefix in KEPT.items():
        kept[name] = to.copied[prefix]
    hits, accepted = kept.get("urls.cache_hits", 0), kept.get("urls.accepted", 0)
    kept["urls.resharded"] = hits + books.to_due - accepted
    return kept


def problems_of(config: Config, folder: Path, seed: bytes, topology: Topology, clock: Clock) -> list[str]:
    """Check a new process before it replaces an old one; return the problems that `crawler check` finds."""
    stages = Stages(config, folder, seed, clock=clock, name=topology.me, topology=topology, restore=False)
    try:
        return check(stages)
    except DamageError as error:
        return [str(error)]
    finally:
        stages.close()
