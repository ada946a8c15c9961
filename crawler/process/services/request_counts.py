"""Counts the requests of clients for each page. The counts outlast the run, and determine the importance of pages."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from crawler.config import ServeConfig
from crawler.errors import DamageError
from crawler.serve.demand import Demand, pack_count, unpack_count
from crawler.storage.commit import Change, Maker
from crawler.storage.keys import ASKED
from crawler.storage.kv import KeyValue, scan_prefix

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

COUNTS_INTERVAL = 5.0  # seconds between two writes; a crash loses the counts since the last write


class RequestCounts:
    """The counts of a process.

    `queue` passes a change to the commit queue. The counts determine the importance of pages, which is passed
    to `refresh`.
    """

    def __init__(
        self,
        config: ServeConfig,
        store: KeyValue,
        refresh: "Refresh | None",
        *,
        queue: Callable[[Maker], None],
        now: Callable[[], float],
    ) -> None:
        self._store, self._refresh, self._queue, self._now = store, refresh, queue, now
        self.demand = Demand(config.request_half_life, config.counted_pages_max, now=now())

    def add(self, fingerprint: int) -> None:
        """Count a request for a page."""
        self.demand.add(fingerprint, self._now())

    def load(self) -> None:
        """Load the stored counts in ascending order.

        Whenever more counts are loaded than can be kept exactly, the smallest of them become estimates. The
        largest counts are loaded last, so they stay exact.
        """
        found = []
        with suppress(DamageError):
            for key, value in scan_prefix(self._store, ASKED):
                found.append(unpack_count(key, value))
        self.demand.load(found)
        if self._refresh is not None:
            self._refresh.importance.asked = self.demand.rate

    async def keep(self) -> None:
        """Until the task is cancelled, store the counts at intervals."""
        while True:
            await asyncio.sleep(COUNTS_INTERVAL)
            self.put()

    def put(self) -> None:
        """Queue the changed counts, and the resulting importance of pages, for the next commit."""
        now = self._now()
        if counts := dict(self.demand.changed(now)):
            self._queue(lambda: self._stored(counts, now))

    def _stored(self, counts: Mapping[int, float], now: float) -> Change:
        """Build the `Change` for `counts`.

        The change is built only when its turn in the queue comes, so it does not undo what earlier changes
        wrote.
        """
        change = Change()
        if self._refresh is not None:
            self._refresh.outcomes.renew_importance(counts, self._now(), change)
        for fingerprint, count in counts.items():
            key = ASKED + fingerprint.to_bytes(8, "big")
            if count > 0.0:
                change.put(key, pack_count(count, now))
            else:
                change.delete(key)
        return change
