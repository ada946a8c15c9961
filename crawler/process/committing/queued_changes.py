"""The changes that wait for their commit: before the commit loop runs, while it runs, and after its end."""

import asyncio
from contextlib import suppress

from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.committing.commits import Commits
from crawler.process.lifecycle.run_end import RunEnd
from crawler.storage.commit import Change, Maker

KEPT_WAIT = 30.0  # number of seconds that a client waits until its request is durable


class QueuedChanges:
    """Queues changes for the commit loop `loop`, and commits them itself when this loop does not run.

    `loop_runs` is True while the loop runs. `over` is True after its end.
    """

    def __init__(self, commits: Commits, loop: CommitLoop, run_end: RunEnd) -> None:
        self._commits, self._loop, self._run_end = commits, loop, run_end
        self.loop_runs = False
        self.over = False

    def queue(self, change: Change | Maker) -> None:
        """Queue a `Change`, or a function that builds one. If the run has ended, commit the change at once."""
        self._loop.queue(change)
        if self.over:
            self.commit_rest()

    async def kept(self) -> bool:
        """Wait at most `KEPT_WAIT` seconds until all changes queued so far are durable.

        Return whether all of them are durable.
        """
        durable, change = asyncio.Event(), Change()
        change.after.append(durable.set)
        self.queue(change)
        if not self.loop_runs:
            self.commit_rest()
        with suppress(TimeoutError):
            await asyncio.wait_for(durable.wait(), KEPT_WAIT)
        return durable.is_set()

    def commit_rest(self) -> None:
        """Commit all queued changes in the caller's thread, if no commit loop runs. After a failure, do nothing."""
        if self._run_end.failure is None and not self._loop.writing:
            self._commits.commit_queued()
