"""The stages of one process, built and opened together; no loop, no network.

`Process` drives them while it crawls; commands on a directory at rest open
the same stages, do their work through the same commit point, and close.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from crawler.clock import Clock
from crawler.config import Config, Overrides
from crawler.config.credentials import has_credentials
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.settled import keep_settled, refreshes
from crawler.crawl.topology import Topology, keep_table, topology
from crawler.due.eliminator import Eliminator
from crawler.due.plans import CompactionPlan, FlushPlan
from crawler.errors import ConfigError, DirectoryError, StoreError, disk_failed
from crawler.extract.repeats import TAGS
from crawler.frontier.discovery.entries import decode
from crawler.frontier.frontier import Frontier
from crawler.frontier.refresh.importance import Importance, read_values
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.refresh.stored_view import stored_view
from crawler.frontier.refresh.validators import Validators
from crawler.pages.captures import record_key
from crawler.pages.page_cache import PageCache
from crawler.process.admission import Admission, Owners, Seen
from crawler.process.books import conservation, splitter_conservation
from crawler.process.comparing import Comparing
from crawler.process.credits import Credits
from crawler.process.following import Following
from crawler.process.harvest import Harvest
from crawler.process.learned import Learned
from crawler.process.lost_state import refuse_loss, stage_state, state_of
from crawler.process.ordering import Ordering, named
from crawler.process.portions import PORTION_LINKS
from crawler.process.signal_intake import SignalIntake
from crawler.process.surroundings import Surroundings
from crawler.records import DueCounts, FrontierCounts, Link, LinkFlag, PeerStatus, SplitterCounts
from crawler.robots.cache import RobotsCache
from crawler.splitter.inbox import Inbox, Received
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, CommitPoint, Maker, Making
from crawler.storage.faults import reach
from crawler.storage.files import Lock, reserve, sync_directory
from crawler.storage.keys import CLEAN, EQUIVALENCES, PAGE, PARKED, SCOPE_STATE, TODO
from crawler.storage.kv import Batch, KeyValue, scan_prefix
from crawler.storage.moving import load_json
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.canonical import canonical, hostname
from crawler.urls.clock_cache import ClockCache
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter, registrable_domain
from crawler.urls.kinds import Kinds
from crawler.urls.trace import TraceWriter
from crawler.version import __version__

log = logging.getLogger("crawler")

BALLAST = "ballast"
_CREDIT, _NEWS = int(LinkFlag.CREDIT), int(LinkFlag.NEWS)


class Stages:
    """Everything that lies in `DIR/<name>`, under its lock.

    `seed` is the crawl's 16 secret bytes, `topology` says who else crawls (None:
    nobody), `priority` gives a link its place (`Frontier`). With `restore`, pages
    whose stored copy turns out to be gone become URLs to do again. `brief`: they
    are closed soon, so who finds them locked waits. `around` is the system unless given.

    Raises:
        BusyError: another process has the folder.
        DirectoryError: the folder is damaged, or of another seed.
        StoreError: the disk is full or fails.
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
        priority: Callable[[Link], int] | None = None,
        restore: bool = True,
        brief: bool = False,
        around: Surroundings | None = None,
    ) -> None:
        self.around = around or Surroundings()
        self.config = config
        self._brief = brief
        self._priority = priority
        self._ranking = named(config.order)
        self.directory = directory
        self.clock = clock
        self.name = name
        self.topology = topology or Topology(name, Partition.equal_ranges([name]))
        refuse_loss(directory)
        with _disk_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            boot_id = self.around.random_bytes(8).hex()
            self.lock = Lock(directory / "node.lock", name, boot_id=boot_id, brief=brief)
        try:
            with _disk_errors(directory):
                self._open(seed, url_filter)
                CrawlDirectory(directory.parent).note_state(name, self.state)
            self.restored = self._restore_lost() if restore else 0
            self.counters_before = Counter(self.point.counters)
        except BaseException:
            if (store := getattr(self, "store", None)) is not None:
                store.close()  # else nobody in this process could open it again
            self.lock.release()
            raise

    def _open(self, seed: bytes, url_filter: Callable[[str], bool] | None) -> None:
        """Open the stages, those first on which others rest; below they stand in the order URLs flow."""
        self.store = self._open_store()
        self.state = state_of(self.store, self.directory)
        keep_table(self.store, self.topology.partition)
        keep_settled(self.store, self.config)
        self.equivalences = Equivalences(load_json(self.store, EQUIVALENCES))
        self.fingerprinter = self._fingerprinter(seed)
        self.robots = self._robots()
        self.pages = self._page_cache()
        self.due = self._eliminator()
        self.refresh = self._refresh() if refreshes(self.config) else None
        self.frontier = self._frontier()
        self._sync_names()
        clean = self._note_opening()
        self.frontier.open(self.clock.now(), clean=clean)
        if self.refresh is not None:
            self.refresh.open(self.store, self.pages.stored_records, self.clock.now())
        self.outbox, self.inbox = self._splitter(whole=clean or self._outlasts_power_cut)
        self.point = self._commit_point()
        self.intake = self._intake(url_filter)
        self.trace = self._trace() if self.config.crawl.trace else None
        self.learned = self._learned()
        self.admission = self._admission()
        self.signal_intake = self._signal_intake()
        self._credits = Credits(self.refresh, self.topology.partition, self.name)
        self.harvest = self._harvest()

    @property
    def _outlasts_power_cut(self) -> bool:
        return self.config.store.durability == "power"

    # -- what all rest on -------------------------------------------------------

    def _open_store(self) -> KeyValue:
        store, self.mended = self.around.open_store(self.directory / "store", self.config.store)
        if self.mended:
            log.error("store: %s", self.mended)
        return store

    def _fingerprinter(self, seed: bytes) -> Fingerprinter:
        config = self.config.urls
        return Fingerprinter(
            seed,
            method=config.fingerprint,
            partition=config.partition,
            strip_session_ids=config.strip_session_ids,
            equivalences=self.equivalences,
        )

    def _sync_names(self) -> None:
        """Let the names of what was made outlast a power cut."""
        sync_directory(self.directory)
        sync_directory(self.directory.absolute().parent)

    def _note_opening(self) -> bool:
        """True if the last run ended cleanly; from now on it counts as unclean until `close`."""
        clean = self.store.get(CLEAN) is not None
        self._begin_state(self.store.batch(sync=True), clean=False)
        return clean

    def _begin_state(self, batch: Batch, *, clean: bool) -> None:
        """Write a synced batch as the first of a state."""
        self.state += 1
        stage_state(batch, self.state, clean=clean)
        self.store.write(batch)

    def _commit_point(self) -> CommitPoint:
        return CommitPoint(
            self.store,
            pages=self.pages,
            due=self.due,
            outbox=self.outbox,
            inbox=self.inbox,
            group_entries_max=self.config.store.group_entries_max,
            sync=self._outlasts_power_cut,
        )

    # -- the stages, in the order URLs flow -------------------------------------

    def _frontier(self) -> Frontier:
        return Frontier(
            self.store,
            self.config,
            robots=self.robots,
            fingerprinter=self.fingerprinter,
            registrable_domain=registrable_domain,
            concurrency=self.config.crawl.concurrency,
            rng=random.Random(self.around.rng.getrandbits(64)),
            processes=len(self.topology.names),
            refresh=self.refresh,
            priority=self._priority,
        )

    def _refresh(self) -> Refresh:
        """Known pages, to be asked again."""
        return Refresh(
            self.config.refresh,
            record=self.pages.record,
            hash=self.fingerprinter.hash,
            host_key=self.fingerprinter.host_key_beside,
            fingerprint=self.fingerprinter.fingerprint,
            importance=Importance(self.config.refresh, self._values()),
            overrides=Overrides(self.config.override),
            rate=self.config.crawl.rate / len(self.topology.names),
            name=self.name,
        )

    def _values(self) -> dict[int, float]:
        """The importance of pages as a file of the user says it.

        Raises:
            ConfigError: it cannot be read.
        """
        path = self.config.refresh.importance_file
        if not path:
            return {}

        def fingerprint(url: str) -> int | None:
            form = canonical(url)
            return None if form is None else self.fingerprinter.fingerprint(form)

        try:
            with open(path, encoding="utf-8", errors="replace") as lines:
                return read_values(lines, fingerprint)
        except OSError as error:
            raise ConfigError(f"refresh.importance_file {path}: {error.strerror}") from error

    def _robots(self) -> RobotsCache:
        config = self.config
        # As many as there are hosts in the front, each of which is looked at every few seconds.
        entries_max = config.frontier.front_factor * config.crawl.concurrency
        return RobotsCache(self.store, config.robots, config.identity.token, entries_max)

    def _page_cache(self) -> PageCache:
        config = self.config
        comparing = Comparing(config.pages, Overrides(config.override))
        return PageCache(
            self.directory,
            self.store,
            config.pages,
            process=self.name,
            software=f"crawler/{__version__}",
            operator=config.identity.contact,
            robots_policy=config.robots.policy,
            comparison=comparing.comparison,
            fingerprint=self.fingerprinter.fingerprint,
            keeps=Kinds(config.filter.accept, config.filter.reject).keeps,
            random=self.around.random_bytes,
            sync=self._outlasts_power_cut,
        )

    def _learned(self) -> Learned:
        return Learned(
            self.intake.filter,
            self.equivalences,
            self.fingerprinter,
            self.topology.peers,
            credentials=has_credentials(self.config.identity.headers),
        )

    def _admission(self) -> Admission:
        """What happens to links."""
        bits, topology = self.config.cache.bits, self.topology
        sent = ClockCache(bits if topology.peers else 1)  # without peers nothing is ever asked there
        return Admission(
            self.intake,
            self.learned,
            Seen(ClockCache(bits), self.due),
            Owners(topology.partition, self.name, sent),
            self.trace,
            self._ordering(),
        )

    @property
    def reads_anchors(self) -> bool:
        """Whether the order of the crawl wants the texts of anchors."""
        return self._ranking is not None and self._ranking.reads_anchors

    def _ordering(self) -> Ordering | None:
        """The order of the crawl; None for breadth-first."""
        if self._ranking is None:
            return None
        return Ordering(self._ranking, self.config.order, self.config.cache.bits, self._improve)

    def _improve(self, links: Sequence[Link], change: Change) -> None:
        """Let URLs that wait have the better classes of `links`, by the change that these belong to."""
        if self.frontier.improve(links, change, self.clock.now()):
            change.after.append(lambda: self.frontier.committed(change, self.clock.now()))

    def _signal_intake(self) -> SignalIntake:
        """What happens to signals of changes."""
        return SignalIntake(
            self.admission,
            self.intake,
            self.topology.partition,
            self.name,
            record=self.pages.record,
            refresh=self.refresh,
            requisites=self.config.crawl.requisites,
            now=self.clock.now,
        )

    def _harvest(self) -> Harvest:
        """What the end of a fetch means."""
        following = Following(
            self.config,
            self.robots,
            self.admission,
            self.learned,
            ordered=self._ranking is not None,
        )
        return Harvest(
            self.clock,
            self.frontier,
            self.pages,
            self.robots,
            following,
            refresh=self.refresh,
            hear=self.signal_intake.hear,
            credit=self._credits.give,
            validators=self._validators(),
        )

    def _validators(self) -> Validators:
        """How far validators can be believed: as the refresh schedule has learned it, where there is one."""
        if self.refresh is not None:
            return self.refresh.validators
        validators = Validators(self.config.refresh)
        validators.open(self.store)
        return validators

    def _trace(self) -> TraceWriter:
        """A new trace in the process's folder: links as they enter the host splitter."""
        return TraceWriter.next_in(
            self.directory / "trace", {"source": "crawl", "tags": list(TAGS), "process": self.name}
        )

    def _intake(self, hook: Callable[[str], bool] | None) -> LinkFilter:
        config = self.config
        requisites = config.crawl.requisites
        url_filter = UrlFilter(
            self._scope(),
            config.filter,
            config.traps,
            allow_ports=config.network.allow_ports,
            requisites=requisites,
            hook=hook,
        )
        return LinkFilter(url_filter, self.fingerprinter, length_max=config.urls.length_max)

    def _scope(self) -> Scope:
        """The scope as seeds and their redirects have spanned it so far."""
        state = load_json(self.store, SCOPE_STATE)
        kind = self.config.crawl.scope
        overrides = Overrides([own for own in self.config.override if own.scope is not None])
        own = (lambda url: overrides.for_url(url, hostname(url)).scope) if overrides else None
        surts = self.config.crawl.surts
        if state is None:
            return Scope(kind, kind_of=own, surts=surts)
        return Scope.from_state(kind, state, kind_of=own, surts=surts)

    def _splitter(self, *, whole: bool) -> tuple[Outbox, Inbox]:
        """The queues to and from other processes; without `whole`, the tail of the outbox may be lost."""
        topology, config = self.topology, self.config.splitter
        outbox = Outbox(self.store, topology.peers, config, self.around.rng, clean=whole)
        return outbox, Inbox(self.store, topology.partition, topology.me, topology.peers, config)

    def _eliminator(self) -> Eliminator:
        config = self.config
        return Eliminator(
            self.directory,
            self.store,
            config.due,
            check_value=self.fingerprinter.check_value,
            method=config.urls.fingerprint,
            known=self._handed_out() if config.due.method == "memory" else (),
            fault=reach,
        )

    def _handed_out(self) -> Iterator[int]:
        """The fingerprints that the frontier has received: tried, to do or parked (the in-memory DUE keeps none)."""
        for key, _ in scan_prefix(self.store, PAGE):
            yield int.from_bytes(key[2:], "big")
        for prefix in (TODO, PARKED):
            for key, value in scan_prefix(self.store, prefix):
                yield decode(key, value).fingerprint

    def queued(self) -> NDArray[np.uint64]:
        """The fingerprints of all URLs to do or parked, sorted, shape (n,)."""
        found = (
            decode(key, value).fingerprint
            for prefix in (TODO, PARKED)
            for key, value in scan_prefix(self.store, prefix)
        )
        return np.unique(np.fromiter(found, np.uint64))

    def queue_again(self, links: Sequence[Link]) -> Change:
        """The change that puts URLs which are done back into the queues."""
        change = Change(sync=True)
        change.count("urls.done", -len(links))
        self.frontier.add(links, change, self.clock.now())
        change.after.append(lambda: self.frontier.committed(change, self.clock.now()))
        return change

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
                flags = record.flags & ~_NEWS  # who showed it has the credit
                links.append(Link(fingerprint, record.url, record.depth, record.via, record.redirects, flags))
                change.delete(record_key(fingerprint))
        change.count("stored.records", -len(links))
        change.count("stored.captures", -len(lost))
        self.pages.forget(change)
        self.frontier.add(links, change, self.clock.now())
        change.count("urls.done", -len(links))
        change.after.append(lambda: self.frontier.committed(change, self.clock.now()))
        self.commit(change)
        segments = ", ".join(self.pages.recovery.damaged)
        log.error("%s missing or short: %d pages are to be fetched again", segments, len(links))
        return len(links)

    # -- what peers send -------------------------------------------------------

    def received(self, received: Received) -> Making:
        """Make the change for an entry of another process: links, signals, credits for hubs."""
        credits = [link for link in received.links if link.flags & _CREDIT]
        rest = [link for link in received.links if not link.flags & _CREDIT] if credits else received.links
        change = yield from self.signal_intake.received(received, rest)
        self._credits.received(change, credits, self.clock.now())
        return change

    # -- the DUE's flush, phase by phase -------------------------------------

    def flush_begin(self, *, dry: bool) -> FlushPlan | None:
        """A plan of the DUE whose `run` may go to another thread; None if a flush has to wait."""
        now = self.clock.now()
        return self.due.begin_flush(now) if self.due.wants_flush(now, dry=dry) else None

    def flush_change(self, plan: FlushPlan) -> Making:
        """Make the change that makes the plan's new URLs known and gives them to the frontier.

        It goes through the queue of the commit point like any other: the host
        records it writes count pages whose own changes wait in that queue.
        """
        reach("flush ran")
        change = Change(sync=True)
        for begin in range(0, len(plan.new_links), PORTION_LINKS):
            self.frontier.add(plan.new_links[begin : begin + PORTION_LINKS], change, self.clock.now())
            yield
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

    def commit_now(self, change: Change | Maker) -> None:
        """Commit one change and flush the DUE, in this thread; for a directory at rest."""
        self.commit(change)
        while (plan := self.flush_begin(dry=True)) is not None:
            plan.run()
            self.commit(partial(self.flush_change, plan))

    def commit(self, change: Change | Maker) -> None:
        """Commit one change in this thread; for a directory at rest."""
        self.point.add(change)
        self.commit_queued()

    def commit_queued(self) -> None:
        """Commit all that is queued in this thread."""
        while group := self.point.take():
            self.point.write(group)
            self.point.committed(group)

    # -- what is counted --------------------------------------------------------

    def problems(self) -> list[str]:
        """Laws of counting that do not hold, [] if all do. Only when nothing is in flight."""
        counters, frontier = self.point.counters, self.frontier_counts()
        return conservation(counters, self.due_counts(), frontier) + splitter_conservation(
            counters, self.splitter_counts()
        )

    def frontier_counts(self) -> FrontierCounts:
        """URLs to do (those in flight among them), parked in all and by rule, hosts by state."""
        counts = self.frontier.counters()
        parked = sum(n for name, n in counts.items() if name.startswith("parked_"))
        todo = counts.pop("todo") + counts["in_flight"]
        return FrontierCounts(todo=todo, parked=parked, **counts)

    def splitter_counts(self) -> SplitterCounts | None:
        """What crossed between processes since the crawl began; None for a crawl of one process."""
        if not self.topology.peers:
            return None
        outbox, count = self.outbox, self.point.counters
        foreign = count["splitter.foreign"]
        return SplitterCounts(
            sent=outbox.sent,
            waiting=outbox.links,
            repeated=outbox.repeated,
            batches=outbox.sent_entries,
            bytes=outbox.sent_bytes,
            applied=self.inbox.applied,
            local=count["urls.accepted"] - foreign,
            foreign=foreign,
            cache_hits=count["splitter.cache_hits"],
            scope_told=count["splitter.scope_told"],
            scope_heard=count["splitter.scope_heard"],
            signals_told=count["splitter.signals_told"],
            signals_heard=count["splitter.signals_heard"],
            credits_told=count["splitter.credits_told"],
            credits_heard=count["splitter.credits_heard"],
        )

    @cached_property
    def freshness(self) -> Refresh | None:
        """What says how fresh copies are: the schedule of a run; at rest also that of earlier runs; None without one."""
        if self.refresh is not None or not self._brief:
            return self.refresh
        return stored_view(
            self.store,
            self.config,
            self.fingerprinter,
            self.pages.record,
            self.pages.stored_records,
            self.clock.now(),
            processes=len(self.topology.names),
            name=self.name,
        )

    def refreshing(self, now: float, hosts: int = 20) -> dict[str, Any]:
        """How refreshes stand, with up to `hosts` hosts, those of most pages first; {} where nothing is refreshed."""
        if self.freshness is None:
            return {}
        found = sorted(self.freshness.by_host(now).items(), key=lambda item: -item[1][0])[:hosts]
        rows = [
            {"host": self.frontier.host_name(key), "pages": pages, "fresh": round(fresh, 4)}
            for key, (pages, fresh) in found
        ]
        return self.freshness.view(now) | {"hosts": rows}

    def waiting_for_peers(self) -> dict[str, PeerStatus]:
        """What waits in the outbox, by peer."""
        return {peer: PeerStatus(spool.links, spool.bytes) for peer, spool in self.outbox.spools.items()}

    def due_counts(self) -> DueCounts:
        """What the DUE has seen since the crawl began, and its estimate of URLs lost to collisions."""
        due = self.due
        return DueCounts(
            pending=due.pending,
            known=due.known,
            new=due.new,
            runs=due.run_count,
            expected_collisions=due.expected_collisions(),
        )

    def close(self, *, clean: bool = True) -> None:
        """Leave the folder. `clean` is False after a failed write: then nothing more is written."""
        if self.trace is not None:
            self.trace.close()
        if clean:
            self.pages.close()
            reach("closing")
            batch = self.store.batch(sync=True)
            self.frontier.flush(batch, self.clock.now())
            self._begin_state(batch, clean=True)
        self.store.close()
        try:
            if clean:
                CrawlDirectory(self.directory.parent).note_state(self.name, self.state)
        finally:
            self.lock.release()


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """A full disk is a StoreError, whatever met it first."""
    try:
        yield
    except (OSError, DirectoryError) as error:
        if disk_failed(error):
            raise StoreError(f"{folder}: {error}") from error
        raise


@contextmanager
def at_rest(
    config: Config, directory: CrawlDirectory, name: str, *, clock: Clock, restore: bool = True
) -> Iterator[Stages]:
    """The stages of one process of a crawl that is not running, under its lock; `restore` as for `Stages`."""
    config = replace(config, crawl=replace(config.crawl, trace=False))  # nothing is crawled here
    folder, seed = directory.process(name), directory.seed()
    place = topology(config, directory.path, name)
    stages = Stages(config, folder, seed, clock=clock, name=name, topology=place, restore=restore, brief=True)
    clean = False
    try:
        yield stages
        clean = True
    finally:
        stages.close(clean=clean)
