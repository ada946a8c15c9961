"""Merges runs of the known set, one merge at a time.

`begin`, `committed` and `failed` run on the event loop, `CompactionPlan.run` may run in any thread, and
`stage` runs in the writer thread. A merge changes only how the known set is divided into runs, not what is in
the set. So a flush may run at the same time as a merge.
"""

from crawler.due.known_set import KnownSet
from crawler.due.plans import CompactionPlan
from crawler.due.run_list import RunList
from crawler.storage.kv import Batch


class Compactor:
    """Keeps the number of runs of a known set small."""

    def __init__(self, known: KnownSet, run_list: RunList) -> None:
        self._known = known
        self._run_list = run_list
        self._plan: CompactionPlan | None = None

    def begin(self) -> CompactionPlan | None:
        """Plan the next merge of runs; return None if no merge is due or if one is in progress.

        The event loop calls this after each flush.
        """
        inputs = self._known.due_merge() if self._plan is None else []
        if not inputs:
            return None
        self._plan = CompactionPlan(inputs, self._known)
        return self._plan

    def stage(self, plan: CompactionPlan, batch: Batch) -> None:
        """Record in `batch`, which will be synced, that the merged run replaces its inputs."""
        assert plan.outcome is not None, "a compaction was staged that has not run"
        self._run_list.replace([run.entry for run in plan.inputs], plan.outcome.entry, batch)

    def committed(self, plan: CompactionPlan) -> None:
        """Record that the batch of `plan` is durable: use the merged run, and unlink its inputs."""
        assert plan is self._plan and plan.outcome is not None, "a compaction ended that is not under way"
        self._plan = None
        self._known.replace(plan.inputs, plan.outcome)

    def close(self) -> None:
        """Close the run that was written but not committed, if there is one."""
        if self._plan is not None and self._plan.outcome is not None:
            self._plan.outcome.close()

    def failed(self, plan: CompactionPlan) -> None:
        """Handle a StoreError of `plan.run`.

        The known set keeps the inputs of `plan`. The next flush may plan the merge again.
        """
        assert plan is self._plan, "a compaction failed that is not under way"
        self._plan = None
