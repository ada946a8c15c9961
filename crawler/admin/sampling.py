"""Samples the status of a crawl for the dashboard, even without viewers, so that the curves begin with the crawl."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin.crawl_facts import CrawlFacts
from crawler.admin.history import History, RateSampler
from crawler.admin.status import Status, whole
from crawler.admin.status_source import StatusSource
from crawler.config import AdminConfig
from crawler.errors import CrawlerError

log = logging.getLogger("crawler")

INTERVAL = 1.0  # seconds between samples while a client is watching
PAUSE_MAX = 5.0  # seconds between samples while no client is watching
# maximum number of hosts in /status; samples contain no hosts, because the dashboard gets them from /hosts
HOSTS_SHOWN = 20


class Sampler:
    """Samples every second while somebody is watching, and otherwise once per history point.

    Each sample sets the event `sampled`.
    """

    def __init__(
        self, source: StatusSource, config: AdminConfig, now: Callable[[], float], directory: Path
    ) -> None:
        self._source = source
        self._facts = CrawlFacts(directory)
        self._now = now
        self.history = History(config.history, config.history_interval)
        self._pulse = RateSampler()
        self._status: dict[str, Any] = {}
        self._point: dict[str, float] = {}
        self._sampled_at = 0.0
        self.sampled = asyncio.Event()  # each sample sets this event and replaces it by a new one
        self._wanted = asyncio.Event()  # set when the first client begins to watch the status
        self.watchers = 0
        self.end: dict[str, Any] | None = None  # how the crawl ended, once it has ended
        self._feeder: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sampling; harmless if already started."""
        if self._feeder is None:
            self._feeder = asyncio.get_running_loop().create_task(self._feed())

    async def close(self, failure: str = "") -> None:
        """Stop sampling, and tell the watchers whether the crawl ended cleanly or with a failure."""
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)
        state = "failed" if failure else "stopped"
        self.end = self.end or {"state": state, "why": failure, "at": self._now()}
        self.sampled.set()

    def begin_watching(self) -> None:
        """Register a new watcher, which must decrement `watchers` when it leaves."""
        self.watchers += 1
        self._wanted.set()

    async def _feed(self) -> None:
        while True:
            try:
                await self.sample()
            except (CrawlerError, OSError, TimeoutError) as error:
                log.debug("admin: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._pause())
            self._wanted.clear()

    def _pause(self) -> float:
        return INTERVAL if self.watchers else min(self.history.interval, PAUSE_MAX)

    async def sample(self) -> None:
        """Take a sample."""
        parts, self._status = await self._look(hosts=0)
        now = self._sampled_at = self._now()
        self._point = self._pulse.sample(parts, self._status, now)
        if self._point:
            self.history.add(self._point, now)
        looked, self.sampled = self.sampled, asyncio.Event()
        looked.set()

    async def status(self) -> dict[str, Any]:
        """Return the current status of the whole crawl."""
        return (await self._look(HOSTS_SHOWN))[1]

    async def _look(self, hosts: int) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
        """Return the status of each process, and that of the whole crawl, with at most `hosts` hosts per process."""
        parts = await self._source.ask({"command": "status", "hosts": hosts})
        merged = whole([Status.of(part) for part in parts])
        return parts, merged.plain() | {"crawl": self._facts.plain()}

    def event(self) -> bytes:
        """Return the latest sample as JSON; `at` is its instant."""
        return msgspec.json.encode({"at": self._sampled_at, "point": self._point, "status": self._status})

    def beat(self) -> bytes:
        """Return the present time and the time of the latest sample as JSON. This shows that a slow process is alive."""
        return msgspec.json.encode({"now": self._now(), "at": self._sampled_at})
