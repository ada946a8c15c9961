"""The services of a running process, which are started and ended together.

    page server    at [serve] address, and at DIR/<name>/serve.sock for the other processes of the crawl
    urgent         pages that clients want fetched soon
    counts         requests of clients, from which the importance of pages follows
    vital_signs    lag of the event loop, times of commits, recent errors
    commands       pause, resume and set, besides the commands of `process/answering/commands.py`

The interfaces that the page server needs (`serve/interfaces.py`) are built here from the stages.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.change_signals import Signalled
from crawler.config.forms import http_origin
from crawler.consent.use_rule import UseRule
from crawler.crawl.directory import CrawlDirectory
from crawler.extract.feed import item_links
from crawler.process.answering.served_process import served_process
from crawler.process.results.notices import StoredNotices
from crawler.process.services.live_commands import LiveCommands
from crawler.process.services.request_counts import RequestCounts
from crawler.process.services.urgent_fetches import UrgentFetches
from crawler.process.services.vital_signs import VitalSigns
from crawler.serve.http_error import HttpError
from crawler.serve.stored_crawl import StoredCrawl
from crawler.urls.canonical import canonical

if TYPE_CHECKING:
    from crawler.process.process import Process
    from crawler.serve.notification_handlers import NotificationHandlers
    from crawler.serve.server import PageServer
    from crawler.serve.sibling_client import SiblingClient


class LiveServices:
    """The services of `process` while it runs."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        process.commands.running = self.sections
        stages = process.stages
        self._context, self._config = stages.context, stages.config
        self._store, self._fingerprinter = stages.store, stages.fingerprinter
        self._signal_intake = stages.decisions.signal_intake
        self._now = stages.clock.now
        self._tasks: list[asyncio.Task[None]] = []
        self.vital_signs = VitalSigns(process, stages)
        self.urgent = UrgentFetches(process, stages)
        self.counts = RequestCounts(
            stages.config.serve, stages.store, stages.refresh, queue=process.commits.queue, now=self._now
        )
        self.commands = LiveCommands(process, stages, self.vital_signs.errors)
        self.crawl = StoredCrawl(
            {stages.name: served_process(stages)}, ahead=self.urgent.request, count=self.counts.add
        )
        self.server: PageServer | None = None

    async def start(self) -> None:
        """Listen if `serve.address` is set, and start to watch the event loop's lag.

        Raises:
            ConfigError: the process cannot listen on the address.
        """
        self.vital_signs.start()
        self._in_background(self.vital_signs.watch())
        if self._config.serve.address:
            await self._serve()

    async def close(self) -> None:
        """Stop listening, and end the background tasks."""
        self.vital_signs.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.server is not None:
            await self.server.close()

    def sections(self) -> dict[str, Any]:
        """Return the sections of a status that only a running process has."""
        return self.vital_signs.sections() | {"serve": self._served()}

    async def signal(self, raw_urls: Sequence[str], source: str) -> Signalled:
        """Accept signals in the order of the commit queue.

        When the signals are durable, return what was done with each URL.

        Raises:
            HttpError: 503, the disk is too slow.
        """
        said = Signalled()
        self._process.commits.queue(partial(self._signal_intake.decide, raw_urls, source, said))
        if not await self._process.commits.kept():
            raise HttpError(503, "late", "the signals are not on disk yet; send them again")
        return said

    async def _serve(self) -> None:
        # Imported here, because most crawls have no page server.
        from crawler.serve.filling import Filler
        from crawler.serve.http_server import more_descriptors
        from crawler.serve.page_handler import PageHandler
        from crawler.serve.representation import CopyForm
        from crawler.serve.rewriting import rewriter
        from crawler.serve.server import PageServer
        from crawler.serve.sibling_client import SOCKET
        from crawler.serve.subscriber import Subscriber, read_topics

        config = self._config.serve
        more_descriptors()
        self.counts.load()
        several = len(self._context.topology.names) > 1
        folder = self._context.directory
        receivers = self._receivers()
        if config.websub:
            receivers.subscriptions.want(self._own(read_topics(config.websub)))
            subscriber = Subscriber(receivers.subscriptions, config.public_url, self._now, self._process.ask)
            self._in_background(subscriber.run())
        rule = UseRule.of(config.allow, self._config.consent)
        handler = PageHandler(self.crawl, config, rewriter(), rule, folder)
        server = PageServer(
            handler,
            config,
            self._now,
            ready=self.crawl.ready,
            receive=receivers.receive,
            siblings=self._siblings(folder) if several else None,
        )
        self.server = server
        await server.start(config.address, shared=several)
        if several:
            await server.listener.start_unix(folder, SOCKET)
        receivers.resume()
        self._in_background(self.counts.keep())
        if config.fill_share > 0.0:
            form = CopyForm(http_origin(*server.listener.address), frozenset())
            filler = Filler(
                handler, self.crawl.archives, form, config, lambda: server.answered, self._is_fetching
            )
            self._in_background(filler.run())
        self._process.last_changes.append(self.counts.put)

    def _siblings(self, folder: Path) -> "SiblingClient":
        from crawler.serve.sibling_client import SiblingClient

        others = [name for name in self._context.topology.names if name != self._context.name]
        secret = CrawlDirectory(folder.parent).seed()
        return SiblingClient(self._config.serve.peers, folder.parent, others, secret)

    def _is_fetching(self) -> bool:
        return self._process.fetching() > 0

    def _own(self, topics: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the (topic, hub) pairs that this process owns. So only one process subscribes to a topic."""
        locate = self.crawl.locate
        return [
            (topic, hub) for topic, hub in topics if locate(canonical(topic) or topic).archive is not None
        ]

    def _receivers(self) -> "NotificationHandlers":
        from crawler.serve.notification_handlers import NotificationHandlers

        return NotificationHandlers(
            self.crawl,
            self._config.serve,
            self._now,
            signal=self.signal,
            notices=StoredNotices(
                self._store,
                self._fingerprinter.fingerprint,
                self._signal_intake,
                self._process.commits.queue,
                self._process.commits.kept,
            ),
            processes=self._context.topology.names,
            me=self._context.name,
            random=os.urandom,
            fetch_key_file=self.urgent.key_file,
            item_links=lambda body, url: item_links(body, self._config.serve.signal_urls_max, url),
            in_background=self._in_background,
        )

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def _served(self) -> dict[str, Any]:
        if self.server is None:
            return {}
        places, response_cache = self.server.listener.places, self.server.response_cache
        return {
            "requests": self.server.requests,
            "answers": {str(status): n for status, n in sorted(self.server.answers.items())},
            "connections": len(places),
            "evicted": places.evicted,
            "turned_away": places.turned_away,
            "ready_bytes": response_cache.bytes,
            "ready_hits": response_cache.hits,
            "ready_misses": response_cache.misses,
            "disk_bytes": self.server.disk_cache.bytes if self.server.disk_cache else 0,
            "disk_hits": self.server.disk_cache.hits if self.server.disk_cache else 0,
            "counted_pages": len(self.counts.demand),
        }
