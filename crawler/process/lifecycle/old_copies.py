"""Drops old copies in the background while a process crawls (`pages/cleaning.py`)."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing

from crawler.pages.cleaning import Cleaner
from crawler.process.lifecycle.run_end import RunEnd
from crawler.storage.commit import Change, Maker, followed_by
from crawler.wording import several

log = logging.getLogger("crawler")

LOOK_INTERVAL = 5.0  # number of seconds between two looks at the size of the archive
# Number of seconds between two slices of a scan. A slice takes about 1 ms, so a scan takes at most a fifth of
# the time of the event loop.
PAUSE = 0.005


class OldCopies:
    """Carries out the steps of `cleaner`, one at a time. `queue` puts a change into the commit queue."""

    def __init__(self, cleaner: Cleaner, queue: Callable[[Change | Maker], None], run_end: RunEnd) -> None:
        self._cleaner = cleaner
        self._queue = queue
        self._run_end = run_end

    async def run(self) -> None:
        """Look at the archive from time to time, until the run stops."""
        while not self._run_end.stopping():
            with closing(self._cleaner.steps()) as work:
                for step in work:
                    if self._run_end.stopping():
                        return
                    await (asyncio.sleep(PAUSE) if step is None else self._committed(step))
            self._say()
            await asyncio.sleep(LOOK_INTERVAL)

    async def _committed(self, maker: Maker) -> None:
        """Queue a function that makes a change, and wait until its change is durable."""
        durable = asyncio.Event()
        self._queue(followed_by(maker, durable.set))
        await durable.wait()

    def _say(self) -> None:
        """Log the result of a cleaning."""
        result = self._cleaner.take_result()
        for problem in result.problems:
            log.error("old copies: %s", problem)
        if result.dropped or result.segments:
            log.info(
                "old copies: %s dropped, %d bytes in %s freed, %d bytes moved",
                several(result.dropped, "capture"),
                result.released_bytes - result.moved_bytes,
                several(result.segments, "segment"),
                result.moved_bytes,
            )
