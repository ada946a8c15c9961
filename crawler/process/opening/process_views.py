"""Read-only views of one process, running or at rest: counts, invariants, and the freshness of its copies."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from crawler.frontier.refresh.stored_view import stored_view
from crawler.process.committing.counters import broken_laws
from crawler.process.opening.process_parts import ProcessParts
from crawler.records import DueCounts, FrontierCounts, PeerStatus, SplitterCounts

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh


# The counters of the field names of `SplitterCounts` that are durable counters of the process.
_COUNTED = (
    "foreign", "cache_hits", "recoveries", "scope_told", "scope_heard", "signals_told", "signals_heard",
    "credits_told", "credits_heard",
)  # fmt: skip


class ProcessViews:
    """Reads the parts of a process and changes nothing.

    `brief` is true for a process at rest. Then the freshness of its copies is read from the store.
    """

    def __init__(self, parts: ProcessParts, *, brief: bool) -> None:
        self._parts, self._brief = parts, brief
        self._frontier, self._due, self._outbox = parts.frontier, parts.due, parts.outbox

    def problems(self) -> list[str]:
        """Return the counter invariants that do not hold; [] if all hold. Call this only while nothing is in flight."""
        counters = self._parts.point.counters
        return broken_laws(counters, self.due_counts(), self.frontier_counts(), self.splitter_counts())

    def frontier_counts(self) -> FrontierCounts:
        """Return the numbers of to-do URLs (including URLs in flight), of parked URLs by rule, and of hosts by state."""
        counts = self._frontier.views.counters()
        parked = sum(n for name, n in counts.items() if name.startswith("parked_"))
        todo = counts.pop("todo") + counts["in_flight"]
        return FrontierCounts(todo=todo, parked=parked, **counts)

    def due_counts(self) -> DueCounts:
        """Return the totals of the DUE since the crawl began, and its estimate of the URLs lost by collisions."""
        due = self._due
        return DueCounts(
            pending=due.pending,
            known=due.known,
            new=due.new,
            runs=len(due.known_set.runs),
            expected_collisions=due.known_set.expected_collisions(),
        )

    def splitter_counts(self) -> SplitterCounts | None:
        """Return counts of messages to and from other processes since the crawl began; None if there are no others."""
        if not self._parts.context.topology.peers:
            return None
        outbox, count = self._outbox, self._parts.point.counters
        return SplitterCounts(
            sent=outbox.sent,
            waiting=outbox.links,
            repeated=outbox.repeated,
            batches=outbox.sent_entries,
            bytes=outbox.sent_bytes,
            applied=self._parts.inbox.applied,
            local=count["urls.accepted"] - count["splitter.foreign"],
            **{name: count[f"splitter.{name}"] for name in _COUNTED},
        )

    def waiting_for_peers(self) -> dict[str, PeerStatus]:
        """Return, for each peer, the number of links that wait for it in the outbox."""
        return {peer: PeerStatus(spool.links, spool.bytes) for peer, spool in self._outbox.spools.items()}

    @cached_property
    def freshness(self) -> "Refresh | None":
        """Return the refresh schedule, which knows how fresh copies are.

        If the process is at rest, this may be the schedule that an earlier run has stored.
        """
        parts = self._parts
        if parts.refresh is not None or not self._brief:
            return parts.refresh
        context = parts.context
        return stored_view(
            parts.store,
            context.config,
            parts.fingerprinter,
            parts.pages.record,
            parts.pages.stored_records,
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
            {"host": self._frontier.views.host_name(key), "pages": pages, "fresh": round(fresh, 4)}
            for key, (pages, fresh) in found
        ]
        return self.freshness.views.summary(now) | {"hosts": rows}
