"""The stages of one process, built and opened together; no loop, no network.

`Process` drives them while it crawls; commands on a directory at rest open
the same stages, do their work through the same commit point, and close.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crawler import __version__
from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.topology import Topology, keep_table, topology
from crawler.due.eliminator import Eliminator
from crawler.due.plans import CompactionPlan, FlushPlan
from crawler.extract.repeats import TAGS
from crawler.frontier.discovery.entries import decode
from crawler.frontier.frontier import Frontier
from crawler.pages.captures import record_key
from crawler.pages.page_cache import PageCache
from crawler.process.books import conservation, splitter_conservation
from crawler.process.harvest import Harvest
from crawler.records import Link
from crawler.robots.cache import RobotsCache
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, CommitPoint, Maker
from crawler.storage.faults import reach
from crawler.storage.files import Lock, reserve, sync_directory
from crawler.storage.keys import CLEAN, EQUIVALENCES, PAGE, PARKED, SCOPE_STATE, TODO
from crawler.storage.kv import LevelStore, scan_prefix
from crawler.storage.moving import load_json
from crawler.urlfilter.intake import Intake
from crawler.urlfilter.rules import Scope, UrlFilter
from crawler.urls.clock_cache import ClockCache
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter, registrable_domain
from crawler.urls.trace import TraceWriter

log = logging.getLogger("crawler")

BALLAST = "ballast"


class Stages:
    """Everything that lies in `DIR/<name>`, under its lock.

    `seed` is the crawl's 16 secret bytes, `topology` says who else crawls (None:
    nobody). With `restore`, pages whose stored copy turns out to be gone become
    URLs to do again.

    Raises:
        DirectoryError: the folder is locked, damaged, or of another seed.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        seed: bytes,
        *,
        clock: Clock,
        name: str = "p0",
        topology: Topology | None = None,
        url_filter: Callable[[str], bool] | None = None,
        restore: bool = True,
    ) -> None:
        self.config = config
        self.directory = directory
        self.clock = clock
        self.name = name
        self.topology = topology or Topology(name, Partition.equal_ranges([name]))
        directory.mkdir(parents=True, exist_ok=True)
        self.lock = Lock(directory / "node.lock", name)
        try:
            self._open(seed, url_filter, restore)
        except BaseException:
            self.lock.release()
            raise

    def _open(self, seed: bytes, url_filter: Callable[[str], bool] | None, restore: bool) -> None:
        config, clock = self.config, self.clock
        self.store = store = LevelStore(
            self.directory / "store",
            write_buffer_bytes=config.store.write_buffer_bytes,
            block_cache_bytes=config.store.block_cache_bytes,
            table_bytes=config.store.table_bytes,
            tables_max=config.store.tables_max,
        )
        if store.mended:
            log.error("store: %s", store.mended)
        keep_table(store, self.topology.partition)
        urls = config.urls
        self.equivalences = Equivalences(load_json(store, EQUIVALENCES))
        self.fingerprinter = Fingerprinter(
            seed,
            method=urls.fingerprint,
            partition=urls.partition,
            strip_session_ids=urls.strip_session_ids,
            equivalences=self.equivalences,
        )
        self.robots = RobotsCache(store, config.robots, config.identity.token, 4 * config.crawl.concurrency)
        self.pages = PageCache(
            self.directory,
            store,
            config.pages,
            process=self.name,
            software=f"crawler/{__version__}",
            operator=config.identity.contact,
            robots_policy=config.robots.policy,
            fingerprint=self.fingerprinter.fingerprint,
            sync=config.store.durability == "power",
        )
        self.due = Eliminator(
            self.directory,
            store,
            config.due,
            check_value=self.fingerprinter.check_value,
            method=urls.fingerprint,
            known=self._handed_out() if config.due.method == "memory" else (),
            fault=reach,
        )
        self.frontier = Frontier(
            store,
            config,
            robots=self.robots,
            fingerprinter=self.fingerprinter,
            registrable_domain=registrable_domain,
            concurrency=config.crawl.concurrency,
            rng=random.Random(),
            processes=len(self.topology.names),
        )
        sync_directory(self.directory)
        sync_directory(
            self.directory.absolute().parent
        )  # the names of what was made must outlast a power cut
        clean = self._note_opening()
        self.frontier.open(clock.now(), clean=clean)
        self._open_splitter(clean or config.store.durability == "power")
        self.point = CommitPoint(
            store,
            pages=self.pages,
            due=self.due,
            outbox=self.outbox,
            inbox=self.inbox,
            group_entries_max=config.store.group_entries_max,
            sync=config.store.durability == "power",
        )
        self.restored = self._restore_lost() if restore else 0
        self.counters_before = Counter(self.point.counters)
        self.intake = Intake(
            UrlFilter(
                self._scope(),
                config.filter,
                config.traps,
                requisites=config.crawl.requisites,
                hook=url_filter,
            ),
            self.fingerprinter,
            length_max=urls.length_max,
        )
        self.trace = self._open_trace() if config.crawl.trace else None
        self.harvest = Harvest(
            config,
            clock=clock,
            fingerprinter=self.fingerprinter,
            equivalences=self.equivalences,
            intake=self.intake,
            cache=ClockCache(config.cache.bits),
            due=self.due,
            frontier=self.frontier,
            pages=self.pages,
            robots=self.robots,
            partition=self.topology.partition if self.topology.peers else None,
            outbox_cache=ClockCache(config.cache.bits) if self.topology.peers else None,
            me=self.name,
            trace=self.trace,
        )

    def _open_splitter(self, whole: bool) -> None:
        """Open the queues to and from other processes. `whole` is False if the tail of the outbox may be lost."""
        topology, splitter = self.topology, self.config.splitter
        self.outbox: Outbox | None = None
        self.inbox: Inbox | None = None
        if topology.peers:
            self.outbox = Outbox(self.store, topology.peers, splitter, random.SystemRandom(), clean=whole)
            self.inbox = Inbox(self.store, topology.partition, topology.me, topology.peers, splitter)

    def _open_trace(self) -> TraceWriter:
        """A new trace in the process's folder: links as they enter the host splitter."""
        return TraceWriter.next_in(
            self.directory / "trace", {"source": "crawl", "tags": list(TAGS), "process": self.name}
        )

    def _scope(self) -> Scope:
        """The scope as seeds and their redirects have spanned it so far."""
        state = load_json(self.store, SCOPE_STATE)
        kind = self.config.crawl.scope
        return Scope(kind) if state is None else Scope.from_state(kind, state)

    def _handed_out(self) -> Iterator[int]:
        """The fingerprints that the frontier has received: tried, to do or parked (the in-memory DUE keeps none)."""
        for key, _ in scan_prefix(self.store, PAGE):
            yield int.from_bytes(key[2:], "big")
        for prefix in (TODO, PARKED):
            for key, value in scan_prefix(self.store, prefix):
                yield decode(key, value).fingerprint

    def reserve_ballast(self) -> None:
        """Take the room that `crawler check --repair` gives back when the disk is full.

        Raises:
            StoreError: there is no such room.
        """
        ballast, size = self.directory / BALLAST, self.config.store.ballast_bytes
        if size and not (ballast.exists() and ballast.stat().st_size == size):
            reserve(ballast, size)

    def _restore_lost(self) -> int:
        """Send the pages of missing or short WARC segments back to the to-do list; how many."""
        lost = self.pages.lost
        if not lost:
            return 0
        change = Change(sync=True)
        links = []
        for fingerprint in dict.fromkeys(item.fingerprint for item in lost):
            record = self.pages.record(fingerprint)
            if record is not None:
                links.append(
                    Link(fingerprint, record.url, record.depth, record.via, record.redirects, record.flags)
                )
                change.delete(record_key(fingerprint))
        self.pages.forget(change)
        self.frontier.add(links, change, self.clock.now())
        change.count("urls.done", -len(links))
        change.after.append(lambda: self.frontier.committed(change, self.clock.now()))
        self.commit(change)
        segments = ", ".join(self.pages.recovery.damaged)
        log.error("%s missing or short: %d pages are to be fetched again", segments, len(links))
        return len(links)

    def _note_opening(self) -> bool:
        """True if the last run ended cleanly; from now on it counts as unclean until `close`."""
        clean = self.store.get(CLEAN) is not None
        if clean:
            batch = self.store.batch(sync=True)
            batch.delete(CLEAN)
            self.store.write(batch)
        return clean

    # -- the DUE's flush, phase by phase -------------------------------------

    def flush_begin(self, *, dry: bool) -> FlushPlan | None:
        """A plan of the DUE whose `run` may go to another thread; None if a flush has to wait."""
        now = self.clock.now()
        return self.due.begin_flush(now) if self.due.wants_flush(now, dry=dry) else None

    def flush_change(self, plan: FlushPlan) -> Change:
        """The change that makes the plan's new URLs known and gives them to the frontier.

        It goes through the queue of the commit point like any other: the host
        records it writes count pages whose own changes wait in that queue.
        """
        reach("flush ran")
        change = Change(sync=True)
        self.frontier.add(plan.new_links, change, self.clock.now())
        self.due.stage_flush(plan, change)
        change.after.append(lambda: self._flushed(plan, change))
        return change

    def _flushed(self, plan: FlushPlan, change: Change) -> None:
        reach("flush committed")
        self.due.flushed(plan)
        self.frontier.committed(change, self.clock.now())
        reach("flush done")

    def compaction_change(self, plan: CompactionPlan) -> Change:
        """The change that puts the merged run in the place of its inputs."""
        reach("compaction ran")
        change = Change(sync=True)
        self.due.stage_compaction(plan, change)
        change.after.append(lambda: self._compacted(plan))
        return change

    def _compacted(self, plan: CompactionPlan) -> None:
        reach("compaction committed")
        self.due.compacted(plan)
        reach("compaction done")

    # -- at rest ---------------------------------------------------------------

    def commit_now(self, change: Change) -> None:
        """Commit one change and flush the DUE, in this thread; for a directory at rest."""
        self.commit(change)
        while (plan := self.flush_begin(dry=True)) is not None:
            plan.run()
            self.commit(self.flush_change(plan))

    def commit(self, change: Change | Maker) -> None:
        """Commit one change in this thread; for a directory at rest."""
        self.point.add(change)
        group = self.point.take()
        self.point.write(group)
        self.point.committed(group)

    def problems(self) -> list[str]:
        """Laws of counting that do not hold, [] if all do. Only when nothing is in flight."""
        frontier = self.frontier_counts()
        counters = self.point.counters
        problems = conservation(counters, self.due_counts(), frontier["todo"], frontier["parked"])
        return problems + splitter_conservation(counters, self.splitter_counts())

    def frontier_counts(self) -> dict[str, int]:
        """URLs to do (those in flight among them), parked in all and by rule, hosts by state."""
        counts = self.frontier.counters()
        parked = sum(n for name, n in counts.items() if name.startswith("parked_"))
        return counts | {"todo": counts["todo"] + counts["in_flight"], "parked": parked}

    def splitter_counts(self) -> dict[str, Any]:
        """What crossed between processes since the crawl began; empty for a crawl of one process.

        `sent`, `waiting` and `repeated` (left out of a long queue) add up to all
        links ever put into the outbox; `batches` and `bytes` were confirmed.
        """
        if self.outbox is None or self.inbox is None:
            return {}
        outbox, count = self.outbox, self.point.counters
        foreign, accepted = count["splitter.foreign"], count["urls.accepted"]
        return {
            "sent": outbox.sent,
            "waiting": outbox.links,
            "repeated": outbox.repeated,
            "batches": outbox.sent_entries,
            "bytes": outbox.sent_bytes,
            "applied": self.inbox.applied,
            "local": accepted - foreign,
            "foreign": foreign,
            "cache_hits": count["splitter.cache_hits"],
            "scope_told": count["splitter.scope_told"],
            "scope_heard": count["splitter.scope_heard"],
        }

    def waiting_for_peers(self) -> dict[str, dict[str, Any]]:
        """What waits in the outbox, by peer."""
        spools = {} if self.outbox is None else self.outbox.spools
        return {
            peer: {"outbox_links": spool.links, "outbox_bytes": spool.bytes} for peer, spool in spools.items()
        }

    def due_counts(self) -> dict[str, Any]:
        """What the DUE has seen since the crawl began, and its estimate of URLs lost to collisions."""
        due = self.due
        return {
            "pending": due.pending,
            "known": due.known,
            "new": due.new,
            "runs": due.run_count,
            "expected_collisions": due.expected_collisions(),
        }

    def close(self, *, clean: bool = True) -> None:
        """Leave the folder. `clean` is False after a failed write: then nothing more is written."""
        if self.trace is not None:
            self.trace.close()
        if clean:
            self.pages.close()
            reach("closing")
            batch = self.store.batch(sync=True)
            self.frontier.flush(batch, self.clock.now())
            batch.put(CLEAN, b"1")
            self.store.write(batch)
        self.store.close()
        self.lock.release()


@contextmanager
def at_rest(
    config: Config, directory: CrawlDirectory, name: str, *, clock: Clock, restore: bool = True
) -> Iterator[Stages]:
    """The stages of one process of a crawl that is not running, under its lock; `restore` as for `Stages`."""
    config = replace(config, crawl=replace(config.crawl, trace=False))  # nothing is crawled here
    folder, seed = directory.process(name), directory.seed()
    place = topology(config, directory.path, name)
    stages = Stages(config, folder, seed, clock=clock, name=name, topology=place, restore=restore)
    clean = False
    try:
        yield stages
        clean = True
    finally:
        stages.close(clean=clean)
