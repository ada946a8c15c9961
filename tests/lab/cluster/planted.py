"""Bugs that can be planted in the crawler's code, one for each rule of `storage/README.md` and `splitter/README.md`.

`python -m tests.lab.cluster.planted [BUG ...]` prints two things for each bug: the first seed that finds the
bug, and the judge's rules that the bug breaks.
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from crawler.due import links_log, runs
from crawler.due.links_log import LinksLog
from crawler.due.plans import FlushPlan
from crawler.errors import StoreError
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.gap_journal import GapJournal
from crawler.lab.cluster import cluster
from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import ClusterSettings
from crawler.lab.cluster.judge import RunVerdict, judge
from crawler.lab.cluster.machine import JournalStore
from crawler.lab.cluster.synthetic_web import WebSpec
from crawler.pages import segments
from crawler.process.committing.commits import Commits
from crawler.process.exchange.agreed_end import AgreedEnd
from crawler.process.exchange.peer_exchange import PeerExchange
from crawler.process.results.admission import Admission
from crawler.splitter import compaction
from crawler.splitter.coordination import Coordination
from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.inbox import Arrival, Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.session import Common
from crawler.splitter.spool import Greeting, Spool
from crawler.storage import commit, files
from crawler.storage.kv import MemoryStore
from tests.lab.cluster import planted_acts  # noqa: F401 - enters its bugs into the table
from tests.lab.cluster.plants import KILLS, PLANTS, POWER, Patches, Plant, plant

SEEDS = 50
SETTINGS = ClusterSettings(web=WebSpec(hosts=12, pages=150), count=8, within=60.0)


@plant("a record and its links are one change", **KILLS)
def page_before_links() -> Patches:
    take = commit.CommitPoint.take_made

    def take_half(self: commit.CommitPoint) -> list[commit.Change]:
        group = take(self)
        for change in filter(attrgetter("captures"), group):
            links = commit.Change()
            links.links, change.links = change.links, []
            change.after.append(partial(self.add, links))
        return group

    return [(commit.CommitPoint, "take_made", take_half)]


@plant("one synced batch makes a group durable", **POWER)
def batch_not_synced() -> Patches:
    batch = JournalStore.batch
    return [(JournalStore, "batch", lambda self, *, sync=True: batch(self, sync=False))]


@plant("the links log is synced before the batch", **POWER)
def links_not_synced() -> Patches:
    return [(LinksLog, "sync", LinksLog.write_out)]


@plant("WARC is synced before the batch", **POWER)
def warc_not_synced() -> Patches:
    return [(segments.SegmentWriter, "sync", lambda self: self._flush())]


@plant("a new file's name is synced before a batch names it", **POWER)
def names_not_synced() -> Patches:
    def nothing(path: Path) -> None:
        pass

    return [(module, "sync_directory", nothing) for module in (files, links_log, segments)]


@plant("opening cuts files to their committed lengths", **KILLS)
def no_truncation() -> Patches:
    return [(segments, "cut", lambda path, length: 0)]


@plant(
    "opening cuts the links log to its committed length",
    faults=("kill", "slow-disk"),
    points=("links synced", "flush ran", "committed"),
    count=150,
    tree={"store": {"group_entries_max": 1}},
)
def links_log_not_cut() -> Patches:
    class NoCut:
        """Stands in for the module `os`. Its `truncate` does nothing."""

        def __getattr__(self, name: str) -> Any:
            return (lambda path, length: None) if name == "truncate" else getattr(os, name)

    return [(links_log, "os", NoCut())]


@plant(
    "compaction drops repeated links and no others",
    faults=("partition",),
    tree={"splitter": {"spool_bytes_max": 500}},
)
def compaction_drops() -> Patches:
    """Bug: the compaction of a queue drops a link that is in the queue only once."""
    first = compaction.first_occurrences

    def all_but_one(fingerprints: Any) -> Any:
        keep = first(fingerprints)
        keep[-1:] = False
        return keep

    return [(compaction, "first_occurrences", all_but_one)]


@plant("a failed write ends the process", faults=("full-disk",))
def failed_write_goes_on() -> Patches:
    """Bug: a failed write is treated as committed."""
    write = JournalStore.write

    def write_or_forget(self: JournalStore, batch: Any) -> None:
        with suppress(StoreError):
            write(self, batch)

    return [(JournalStore, "write", write_or_forget)]


@plant("a flush and its new URLs are committed together", **KILLS)
def flush_before_commit() -> Patches:
    """Bug: a flush becomes durable before the to-do entries of its new links."""
    flush_change = Commits.flush_change

    def flush_early(self: Commits, plan: FlushPlan) -> Any:
        runs_before = list(self.due._manifest.runs)
        store = self.point._store
        batch = store.batch(sync=True)
        self.due.stage_flush(plan, batch)
        store.write(batch)
        self.due._manifest.runs[:] = runs_before
        return flush_change(self, plan)

    return [(Commits, "flush_change", flush_early)]


@plant("a run is synced before a batch names it", **POWER)
def run_not_synced() -> Patches:
    class NoSync:
        """Stands in for the module `os`. It syncs directories but no files."""

        def __getattr__(self, name: str) -> Any:
            return _sync_names if name in ("fsync", "fdatasync") else getattr(os, name)

    def _sync_names(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)

    @contextmanager
    def new_file(path: Path, **options: Any) -> Iterator[Any]:
        with patch.object(files, "os", NoSync()), files.new_file(path, **options) as file:
            yield file

    return [(runs, "os", NoSync()), (runs, "new_file", new_file)]


@plant("after an unclean stop, hosts wait for their gaps", **KILLS, tree={"politeness": {"delay": 5.0}})
def gaps_forgotten() -> Patches:
    opened = Frontier.open
    return [(Frontier, "open", lambda self, now, clean: opened(self, now, True))]


@plant(
    "after a kill, hosts wait for the gaps of uncommitted requests, too",
    faults=("kill",),
    tree={"politeness": {"delay": 1.0, "delay_factor": 100.0, "delay_max": 200.0}},
)
def journal_unread() -> Patches:
    return [(GapJournal, "found", lambda self: iter(()))]


@plant("a clock jump stalls no host", faults=("clock",))
def retries_at_their_word() -> Patches:
    read = FrontHost.read_ahead

    def read_ahead(self: FrontHost, store: Any, count: int, now: float, later_max: int, _: float) -> bool:
        return read(self, store, count, now, later_max)

    return [(FrontHost, "read_ahead", read_ahead)]


@plant("only durable entries are acknowledged", faults=("kill", "power", "slow-disk"))
def ack_before_commit() -> Patches:
    return [(Inbox, "durable", lambda self, peer: self.accepted(peer)), (Inbox, "_check", lambda self: None)]


@plant("links wait in durable outboxes", faults=("kill", "power", "partition"))
def outbox_in_memory() -> Patches:
    init, stage = Outbox.__init__, Outbox.stage

    def init_in_memory(self: Outbox, store: Any, *arguments: Any, **options: Any) -> None:
        init(self, MemoryStore(), *arguments, **options)

    def stage_in_memory(self: Outbox, batch: Any) -> None:
        own = self._store.batch()
        stage(self, own)
        self._store.write(own)

    return [(Outbox, "__init__", init_in_memory), (Outbox, "stage", stage_in_memory)]


@plant("an entry is deleted after its owner has received it", faults=("kill", "partition"))
def sent_is_gone() -> Patches:
    """Bug: entries leave the outbox when they are sent, instead of when their owner has received them."""
    take = Spool.take_unsent

    def take_and_retire(self: Spool, bytes_max: int = 1 << 62) -> Any:
        number, entries = take(self, bytes_max)
        if self.sent > self.confirmed.number:
            self._retire(self.sent)
        return number, entries

    return [(Spool, "take_unsent", take_and_retire)]


@plant("a repeated entry is applied once", faults=("reset", "slow-disk"), count=24)
def applied_twice() -> Patches:
    """Bug: a peer reconnects before the entries that it sent are durable here, so it sends them again."""
    greet = Inbox.greet

    def greet_at_once(self: Inbox, peer: str, epoch: bytes) -> int | None:
        queued, self._sources[peer].queued = self._sources[peer].queued, 0
        found = greet(self, peer, epoch)
        self._sources[peer].queued = queued
        return found

    return [(Inbox, "greet", greet_at_once)]


@plant("no entry is skipped", faults=())
def gap_taken() -> Patches:
    """Bug: an entry is accepted although the entry before it is missing. Here, every 5th entry is lost."""
    accept = Inbox.accept

    def accept_any(self: Inbox, peer: str, sequence: int, entry: bytes) -> Arrival:
        if sequence % 5 == 0 and sequence == self._sources[peer].accepted + 1:
            self._sources[peer].accepted = sequence
            return Arrival.QUEUED
        return accept(self, peer, sequence, entry)

    return [(Inbox, "accept", accept_any)]


@plant("each host is crawled by one process", faults=())
def foreign_kept() -> Patches:
    """Bug: a process keeps links that belong to another process."""
    admit = Admission._admit

    def admit_own(self: Admission, change: Any, owner: str, *links: Any) -> None:
        own = (self.topology.me, owner) == ("p1", "p2")
        admit(self, change, "p1" if own else owner, *links)

    return [(Admission, "_admit", admit_own)]


@plant("a second boot of a live name is refused", faults=("clone",), count=1)
def copies_let_in() -> Patches:
    admit = Doorkeeper.admit

    def admit_all(self: Doorkeeper, session: Any) -> Any:
        self._newest.pop(session.peer, None)
        if (known := self._known.get(session.peer)) is not None and known.boot != session.boot:
            del self._known[session.peer]
        return admit(self, session)

    return [(Doorkeeper, "admit", admit_all)]


@plant("shares never add up to more than 1", faults=("partition",), processes=2, rate=1.0)
def whole_rate() -> Patches:
    """Bug: a process that receives nothing from its peers uses the rate of the whole crawl."""
    share = Coordination.share

    def share_of_heard(self: Coordination, now: float) -> float:
        heard = [peer for peer in self._peers.values() if now - peer.heard_at < 3.0]
        return share(self, now) if heard else 1.0

    return [(Coordination, "share", share_of_heard)]


@plant("agreement on the end takes two rounds", faults=("partition", "loss"))
def end_in_one_round() -> Patches:
    def advance(self: Coordination) -> None:
        if all(each.idle for each in [self._progress(), *(p.heard for p in self._peers.values() if p.heard)]):
            self.ended = all(peer.heard for peer in self._peers.values())

    return [(Coordination, "advance", advance)]


@plant(
    "a process that announced the end remembers it",
    web=WebSpec(hosts=10, pages=60, down=0.0, traps=0.0, flaws=False),
    faults=("kill",),
    points=("closing",),
    count=1,
)
def end_forgotten() -> Patches:
    return [(AgreedEnd, "is_recalled", lambda self: False)]


@plant("receiving never waits for sending", faults=("partition",))
def own_first() -> Patches:
    """Bug: a process receives no entries while entries of its own wait to be sent.

    So two processes can wait for each other.
    """
    take = PeerExchange._take

    def take_if_sent(self: PeerExchange) -> None:
        if not self._outbox.links:
            take(self)

    return [(PeerExchange, "_take", take_if_sent)]


@plant("every group contains its counts", **KILLS)
def counters_in_memory() -> Patches:
    """Bug: counts of entries received from peers are kept only in memory."""
    put = commit.CommitPoint.put_counters

    def put_half(self: commit.CommitPoint, batch: Any) -> None:
        kept, self.counters = self.counters, self.counters.copy()
        del self.counters["urls.received"]
        put(self, batch)
        self.counters = kept

    return [(commit.CommitPoint, "put_counters", put_half)]


@plant("changes that depend on queued ones follow queue order", **KILLS)
def made_out_of_turn() -> Patches:
    """Bug: a flush computes its change too early, before the queued changes on which it depends."""
    add = commit.CommitPoint.add

    def add_made(self: commit.CommitPoint, change: Any) -> None:
        if isinstance(change, partial) and change.func.__name__ == "_flushed":
            making = commit.steps(change())
            while not isinstance(change, commit.Change):
                try:
                    next(making)
                except StopIteration as made:
                    change = made.value
        add(self, change)

    return [(commit.CommitPoint, "add", add_made)]


@plant(
    "segments that no batch names are set aside",
    faults=("kill",),
    points=("synced", "batch written"),
    tree={"pages": {"segment_bytes": 1000}},
)
def unnamed_kept() -> Patches:
    """Bug: WARC segments that no batch names are left in place after a crash."""
    return [(segments, "_set_aside", lambda folder, name: None)]


@plant(
    "a compaction begins a fresh epoch",
    faults=("partition", "kill"),
    tree={"splitter": {"spool_bytes_max": 500}},
)
def same_epoch() -> Patches:
    """Bug: a compacted queue keeps its epoch, so it uses numbers again that its peer already knows.

    Entries are not checked.
    """
    result, stage = compaction.Compaction.result, Spool.stage

    def result_of_old(self: compaction.Compaction) -> Any:
        return msgspec.structs.replace(result(self), epoch=self.state.epoch)

    def stage_any(self: Spool, batch: Any, entries: Any) -> bool:
        self._written = msgspec.structs.replace(self._written, epoch=b"") if self.wanted else self._written
        return stage(self, batch, entries)

    return [(compaction.Compaction, "result", result_of_old), (Spool, "stage", stage_any), *tail_trusted()]


@plant(
    "a queue whose numbers another life has used is renumbered",
    faults=("restore", "restore", "partition"),
    count=20,
)
def tail_trusted() -> Patches:
    """Bug: a process does not notice that its clone has sent the peer different entries under the same numbers."""
    greet = Spool.greet

    def unchecked(self: Spool, epoch: bytes, durable: int, chain: int, applied: int) -> Greeting:
        number = self.state.base + durable
        if self.acked <= number <= self.committed:
            chain = self._chain_at(number)
        return greet(self, epoch, durable, chain, applied)

    return [(Spool, "greet", unchecked)]


@plant("a process that has lost confirmed links recovers them", faults=("restore",), count=8)
def loss_not_told() -> Patches:
    """Bug: a peer that lost confirmed links does not learn this. Instead, the queue for this peer starts again."""
    greet = Spool.greet

    def silent(self: Spool, epoch: bytes, durable: int, chain: int, applied: int) -> Greeting:
        greeting = greet(self, epoch, durable, chain, applied)
        if greeting is Greeting.BEHIND:
            self.confirmed = msgspec.structs.replace(self.confirmed, applied=0)
            return Greeting.TAIL_LOST
        return greeting

    return [(Spool, "greet", silent), (Common, "lost_by", lambda self, peer, applied: "")]


@plant("peers notice an empty disk", faults=("lost-disk",), count=4)
def empty_disk_accepted() -> Patches:
    return loss_not_told()


@plant("the CLOCK cache never drops a link that is not queued", faults=())
def cache_eats_links() -> Patches:
    """Bug: uncommitted links count as seen and are dropped.

    This happens to links whose fingerprint is divisible by 50.
    """
    unseen = Admission._unseen

    def some(self: Admission, fingerprints: Any) -> list[int]:
        return [place for place in unseen(self, fingerprints) if int(fingerprints[place]) % 50]

    return [(Admission, "_unseen", some)]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug for the duration of the context."""
    with ExitStack() as stack:
        for where, attribute, what in PLANTS[name].patches():
            stack.enter_context(patch.object(where, attribute, what))
        yield


def settings_of(plant: Plant | None, seed: int) -> ClusterSettings:
    """Return the settings of a run that may reveal the bug. If `plant` is None, return settings with all faults."""
    return msgspec.structs.replace(SETTINGS, seed=seed, **(plant.settings if plant else {}))


def judged(settings: ClusterSettings) -> tuple[Cluster, RunVerdict]:
    """Run a cluster; return it and the verdict."""
    with memory_folder() as folder:
        world = Cluster(settings, Path(folder))
        world.run()
        return world, judge(world)


def run(settings: ClusterSettings) -> RunVerdict:
    """Run a cluster and return the verdict."""
    return judged(settings)[1]


def first_seed(name: str, seeds: Sequence[int] = range(1, SEEDS + 1)) -> tuple[int, RunVerdict] | None:
    """Return the first seed that finds the bug, and the verdict of its run; None if no seed finds the bug.

    With that seed, the code without the bug must break no rule.
    """
    for seed in seeds:
        settings = settings_of(PLANTS[name], seed)
        with planted(name):
            verdict = run(settings)
        if not verdict.flawless:
            shipped = run(settings)
            if shipped.flawless:
                return seed, verdict
            print(f"seed {seed} fails in the shipped code: {shipped.examples}", flush=True)
    return None


if __name__ == "__main__":
    cluster.ENDING_MAX = 3600.0
    for bug in sys.argv[1:] or PLANTS:
        found = first_seed(bug)
        told = "not found" if found is None else f"seed {found[0]}: {', '.join(found[1].found)}"
        print(f"{bug:<24} {PLANTS[bug].rule:<55} {told}", flush=True)
