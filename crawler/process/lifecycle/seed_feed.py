"""Queues the seeds of a run piece by piece, never far ahead of the commits."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from crawler.process.lifecycle.run_end import RunEnd
from crawler.storage.commit import Change, Maker
from crawler.storage.faults import reach

log = logging.getLogger("crawler")

# number of seconds after a stop in which seeds are still read and queued, so that few are lost
SEEDS_GRACE = 5.0


class SeedFeed:
    """Queues `changes`, which are functions that build changes.

    `may_queue` returns whether one more may be queued.

    `feeding` is True until all seeds are queued, or given up because the run is stopping.
    """

    def __init__(
        self,
        changes: Iterator[Maker],
        queue: Callable[[Change | Maker], None],
        may_queue: Callable[[], bool],
        run_end: RunEnd,
    ) -> None:
        self.changes = changes
        self.feeding = True
        self._queue, self._may_queue, self._run_end = queue, may_queue, run_end

    async def run(self) -> None:
        """Queue the seeds. After a stop, continue for `SEEDS_GRACE` seconds or, if it is shorter, the grace period."""
        for change in self.changes:
            if self.is_late():
                log.warning("stopped while seeds were loading: give the remaining seeds again")
                break
            self._queue(change)
            reach("seeds loading")
            while not self._may_queue() and not self.is_late():
                await asyncio.sleep(0.01)
        self.feeding = False
        self._run_end.wake()

    def is_late(self) -> bool:
        """Return whether the run ends so soon that no more seeds are queued."""
        return self._run_end.failure is not None or self._run_end.time_left(SEEDS_GRACE) < 0.0
