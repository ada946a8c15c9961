"""Makes the changes of one process durable: the commit point, and the changes that end a DUE flush or merge.

`CommitLoop` runs the phases of a commit one by one, while other work goes on. For a directory at
rest, `commit` and `commit_now` apply changes in the caller's thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from crawler.clock import Clock
from crawler.due.eliminator import Eliminator
from crawler.due.plans import CompactionPlan, FlushPlan
from crawler.frontier.frontier import Frontier
from crawler.process.committing.counters import count_retired
from crawler.process.committing.portions import PORTION_LINKS
from crawler.records import Link, LinkFlag
from crawler.storage.commit import Change, CommitPoint, Maker, Making
from crawler.storage.faults import reach


@dataclass(eq=False, repr=False)
class Commits:
    """The commit point of a process, with the DUE and the frontier that its changes update."""

    point: CommitPoint
    due: Eliminator
    frontier: Frontier
    clock: Clock

    # -- at rest ---------------------------------------------------------------

    def commit_now(self, change: Change | Maker) -> None:
        """Commit one `Change` in the caller's thread, and flush the DUE. This is for a directory at rest."""
        self.commit(change)
        while (plan := self.flush_begin(dry=True)) is not None:
            plan.run()
            self.commit(partial(self.flush_change, plan))

    def commit(self, change: Change | Maker) -> None:
        """Commit one `Change` in the caller's thread. This is for a directory at rest."""
        self.point.add(change)
        self.commit_queued()

    def commit_queued(self) -> None:
        """Commit everything that is queued, in the caller's thread."""
        while group := self.point.take():
            self.point.write(group)
            self.point.committed(group)

    # -- the DUE's flush, phase by phase ---------------------------------------

    def flush_begin(self, *, dry: bool) -> FlushPlan | None:
        """Return the DUE's plan of a flush; None if no flush can start. Its `run` may be called in another thread."""
        now = self.clock.now()
        return self.due.begin_flush(now) if self.due.wants_flush(now, dry=dry) else None

    def flush_change(self, plan: FlushPlan) -> Making:
        """Build the `Change` that records the plan's new URLs as known and adds them to the frontier.

        This change must wait in the queue like any other. It writes host records, and their counts include
        pages whose changes are still in the queue.
        """
        reach("flush ran")
        change = Change(sync=True)
        for begin in range(0, len(plan.new_links), PORTION_LINKS):
            links = plan.new_links[begin : begin + PORTION_LINKS]
            wanted = [link for link in links if not link.flags & LinkFlag.RETIRED]
            self.frontier.enqueue(wanted, change, self.clock.now())
            count_retired(change, len(links) - len(wanted))
            change.count("urls.new_seeds", sum(link.flags & LinkFlag.SEED for link in links))
            yield None
        self.due.stage_flush(plan, change)
        change.after.append(lambda: self._flushed(plan, change))
        return change

    def _flushed(self, plan: FlushPlan, change: Change) -> None:
        reach("flush committed")
        self.due.flushed(plan)
        self.frontier.committed(change, self.clock.now())
        reach("flush done")

    def compaction_change(self, plan: CompactionPlan) -> Change:
        """Build the `Change` that replaces the input runs of a merge with the merged run."""
        reach("compaction ran")
        change = Change(sync=True)
        self.due.compactor.stage(plan, change)
        change.after.append(lambda: self._compacted(plan))
        return change

    def _compacted(self, plan: CompactionPlan) -> None:
        reach("compaction committed")
        self.due.compactor.committed(plan)
        reach("compaction done")

    # -- finished URLs queued again ------------------------------------------------

    def queue_again(self, links: Sequence[Link]) -> Change:
        """Build the `Change` that puts finished URLs back into the queues."""
        change = Change(sync=True)
        self.requeue(links, change)
        return change

    def requeue(self, links: Sequence[Link], change: Change, *, attempt: int = 0) -> None:
        """Let a change put finished URLs back into the queues. `attempt` is the number of their failed tries."""
        change.count("urls.done", -len(links))
        self.frontier.enqueue(links, change, self.clock.now(), attempt=attempt)
        change.after.append(lambda: self.frontier.committed(change, self.clock.now()))
