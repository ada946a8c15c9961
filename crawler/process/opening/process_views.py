"""Read-only views of one process, running or at rest: counts, invariants, and the freshness of its copies."""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier
from crawler.frontier.refresh.stored_view import stored_view
from crawler.pages.page_cache import PageCache
from crawler.process.committing.counters import RECOVERIES, conservation, splitter_conservation
from crawler.process.opening.process_context import ProcessContext
from crawler.records import DueCounts, FrontierCounts, PeerStatus, SplitterCounts
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.storage.commit import CommitPoint
from crawler.storage.kv import KeyValue
from crawler.urls.fingerprint import Fingerprinter

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh


@dataclass(eq=False, repr=False)
class ProcessViews:
    """Reads the stages of a process and changes nothing.

    `brief` is true for a process at rest. Then the freshness of its copies is read from the store.
    """

    context: ProcessContext
    _: KW_ONLY
    store: KeyValue
    point: CommitPoint
    frontier: Frontier
    due: Eliminator
    outbox: Outbox
    inbox: Inbox
    pages: PageCache
    fingerprinter: Fingerprinter
    refresh: "Refresh | None"
    brief: bool

    def problems(self) -> list[str]:
        """Return the counter invariants that do not hold; [] if all hold. Call this only while nothing is in flight."""
        counters, frontier = self.point.counters, self.frontier_counts()
        return conservation(counters, self.due_counts(), frontier) + splitter_conservation(
            counters, self.splitter_counts()
        )

    def frontier_counts(self) -> FrontierCounts:
        """Return the numbers of to-do URLs (including URLs in flight), of parked URLs by rule, and of hosts by state."""
        counts = self.frontier.views.counters()
        parked = sum(n for name, n in counts.items() if name.startswith("parked_"))
        todo = counts.pop("todo") + counts["in_flight"]
        return FrontierCounts(todo=todo, parked=parked, **counts)

    def due_counts(self) -> DueCounts:
        """Return the totals of the DUE since the crawl began, and its estimate of the URLs lost by collisions."""
        due = self.due
        return DueCounts(
            pending=due.pending,
            known=due.known,
            new=due.new,
            runs=len(due.known_set.runs),
            expected_collisions=due.known_set.expected_collisions(),
        )

    def splitter_counts(self) -> SplitterCounts | None:
        """Return counts of messages to and from other processes since the crawl began; None if there are no others."""
        if not self.context.topology.peers:
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
            credits_told=count["splitter.credits_told"],
            credits_heard=count["splitter.credits_heard"],
            recoveries=count[RECOVERIES],
            signals_told=count["splitter.signals_told"],
            signals_heard=count["splitter.signals_heard"],
        )

    def waiting_for_peers(self) -> dict[str, PeerStatus]:
        """Return, for each peer, the number of links that wait for it in the outbox."""
        return {peer: PeerStatus(spool.links, spool.bytes) for peer, spool in self.outbox.spools.items()}

    @cached_property
    def freshness(self) -> "Refresh | None":
        """Return the refresh schedule, which knows how fresh copies are.

        If the process is at rest, this may be the schedule that an earlier run has stored.
        """
        if self.refresh is not None or not self.brief:
            return self.refresh
        context = self.context
        return stored_view(
            self.store,
            context.config,
            self.fingerprinter,
            self.pages.record,
            self.pages.stored_records,
            context.clock.now(),
            processes=len(context.topology.names),
            name=context.name,
        )

    def refreshing(self, now: float, hosts: int = 20) -> dict[str, Any]:
        """Return the state of refreshes, and the `hosts` hosts with the most pages; {} if no page is refreshed."""
        if self.freshness is None:
            return {}
        found = sorted(self.freshness.views.by_host(now).items(), key=lambda item: -item[1][0])[:hosts]
        rows = [
            {"host": self.frontier.views.host_name(key), "pages": pages, "fresh": round(fresh, 4)}
            for key, (pages, fresh) in found
        ]
        return self.freshness.views.summary(now) | {"hosts": rows}
