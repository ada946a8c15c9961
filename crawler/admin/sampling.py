"""Samples the status of a crawl for the dashboard, also without viewers: the curves begin with the crawl."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from crawler.admin.history import History, RateSampler
from crawler.admin.status import Status, whole
from crawler.admin.status_source import StatusSource
from crawler.config import AdminConfig
from crawler.errors import CrawlerError

log = logging.getLogger("crawler")

INTERVAL = 1.0  # seconds between samples while somebody is watching
HOSTS_SHOWN = 100


class Sampler:
    """Samples each second while somebody is watching, else once per history point; sets `sampled` each time."""

    def __init__(self, source: StatusSource, config: AdminConfig, now: Callable[[], float]) -> None:
        self._source = source
        self._interval = min(config.history_interval, 5 * INTERVAL)
        self._now = now
        self.history = History(config.history, config.history_interval)
        self._pulse = RateSampler()
        self._status: dict[str, Any] = {}
        self._point: dict[str, float] = {}
        self.sampled = asyncio.Event()  # set, and replaced, at each sample
        self._wanted = asyncio.Event()  # set when somebody begins to watch
        self.watchers = 0
        self.closed = False
        self._feeder: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sampling; harmless if already started."""
        if self._feeder is None:
            self._feeder = asyncio.get_running_loop().create_task(self._feed())

    async def close(self) -> None:
        """Stop sampling and wake the watchers."""
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)
        self.closed = True
        self.sampled.set()

    def begin_watching(self) -> None:
        """Note a new watcher, which must decrement `watchers` when it leaves."""
        self.watchers += 1
        self._wanted.set()

    async def _feed(self) -> None:
        while True:
            try:
                await self.sample()
            except (CrawlerError, OSError, TimeoutError) as error:
                log.debug("admin: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), INTERVAL if self.watchers else self._interval)
            self._wanted.clear()

    async def sample(self) -> None:
        """Take a sample."""
        self._status = await self.status()
        now = self._now()
        knows_rates = self._pulse.begun
        self._point = self._pulse.sample(self._status, now)
        if knows_rates:
            self.history.add(self._point, now)
        looked, self.sampled = self.sampled, asyncio.Event()
        looked.set()

    async def status(self) -> dict[str, Any]:
        """Return the current status of the whole crawl."""
        return whole([Status.of(part) for part in await self._ask()]).plain()

    async def _ask(self) -> list[Any]:
        return await self._source.ask({"command": "status", "hosts": HOSTS_SHOWN})

    def event(self) -> bytes:
        """Return the latest sample as JSON."""
        return msgspec.json.encode({"now": self._now(), "point": self._point, "status": self._status})
