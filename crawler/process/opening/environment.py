"""The environment of a process: disk, network, randomness, threads.

The class `Environment` is the environment of a real crawl. Simulations (`lab/cluster/`) pass a simulated
environment, but run the same process, with the same stages and loops.
"""

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.clock import Clock
from crawler.config import Config, StoreConfig
from crawler.errors import Unexpected
from crawler.frontier.hosts.gap_journal import JournalMemory
from crawler.process.lifecycle import garbage_collection
from crawler.process.lifecycle.limits import WATCH_INTERVAL
from crawler.storage.engines import open_store
from crawler.storage.files import mapped_file
from crawler.storage.kv import KeyValue

if TYPE_CHECKING:
    import asyncio

    from crawler.process.fetching.fetch_tasks import Network
    from crawler.process.fetching.reader import Reader
    from crawler.process.lifecycle.shutdown import Watchdog
    from crawler.render.rendering import Renderer
    from crawler.render.shared_answers import AnswerArchive
    from crawler.splitter.peers import Listen


class Environment:
    """The environment of a real crawl, which is the operating system.

    Each method imports the modules that it needs, so a command on a crawl at rest imports no network modules.
    """

    watch_interval = WATCH_INTERVAL

    def __init__(self) -> None:
        self.rng: random.Random = random.SystemRandom()

    def random_bytes(self, count: int) -> bytes:
        """Return `count` cryptographically random bytes."""
        return os.urandom(count)

    def open_store(self, path: Path, config: StoreConfig, *, copy: bool = False) -> tuple[KeyValue, str]:
        """Open the store in a folder.

        Return the store, and a description of the data that had to be cut off to open it. A store that is only a
        `copy` is deleted soon, so its new tables are not compressed.
        """
        store = open_store(
            path,
            config.engine,
            write_buffer_bytes=config.write_buffer_bytes,
            block_cache_bytes=config.block_cache_bytes,
            table_bytes=config.table_bytes,
            tables_max=config.tables_max,
            compressed=not copy,
        )
        return store, store.mended

    def mapped_file(self, path: Path, size: int) -> JournalMemory:
        """Map a file of at least `size` bytes for reading and writing."""
        return mapped_file(path, size)

    def network(
        self, config: Config, clock: Clock, reader: "Reader", unexpected: Unexpected, *, processes: int
    ) -> "Network":
        """Return the objects that fetch tasks wait for: the fetcher, the resolver, and the reader of page content."""
        from crawler.fetcher.address_guard import AddressGuard
        from crawler.fetcher.fetchers import FETCHERS, FetcherNeeds, make_fetcher
        from crawler.fetcher.resolver import Resolver
        from crawler.process.fetching.fetch_tasks import Network

        fetcher = make_fetcher(FETCHERS, FetcherNeeds(config, clock, unexpected, processes))
        if config.crawl.answers_from:
            from crawler.export.earlier_answers import EarlierAnswers
            from crawler.process.fetching.cached_fetcher import CachedFetcher

            answers = EarlierAnswers(config.crawl.answers_from)
            fetcher = CachedFetcher(fetcher, answers, config.fetch)
        guard = AddressGuard(config.network.allow_networks)
        return Network(fetcher, Resolver(config.network, guard, clock), reader, self.renderer)

    def renderer(
        self, config: Config, archive: "AnswerArchive", now: Callable[[], float], unexpected: Unexpected
    ) -> "Renderer":
        """Return the object that shows pages in a browser. `archive` has the stored answers."""
        from crawler.fetcher.fetch_request import user_agent
        from crawler.render.rendering import BrowserRenderer
        from crawler.render.shared_answers import SharedAnswers
        from crawler.render.shared_cache import SharedCache

        shared = SharedAnswers(SharedCache(config.render.cache_bytes_max), archive, now)
        return BrowserRenderer(config.render, user_agent(config.identity), unexpected, shared)

    @property
    def listen(self) -> "Listen":
        """Return the function that opens the socket for peers."""
        from crawler.splitter.peers import listening_socket

        return listening_socket

    def in_thread(self, function: Callable[[], object]) -> "asyncio.Future[None]":
        """Call `function` in a thread that the process does not wait for when it exits."""
        from crawler.process.lifecycle.shutdown import in_thread

        return in_thread(function)

    def frozen(self) -> AbstractContextManager[None]:
        """Return a context in which the garbage collector ignores the objects that existed before the context."""
        return garbage_collection.frozen()

    async def keep_heap_small(self) -> None:
        """Until cancelled, return free memory to the system: large blocks at once, the rest at intervals."""
        import asyncio

        await asyncio.sleep(garbage_collection.SETTLED)
        await self.in_thread(garbage_collection.map_large_blocks)
        while True:
            await asyncio.sleep(garbage_collection.GIVE_BACK_INTERVAL)
            await self.in_thread(garbage_collection.give_back)

    def watchdog(self, limit: float) -> "Watchdog":
        """Return a watchdog that logs when the event loop is blocked for `limit` seconds."""
        from crawler.process.lifecycle.shutdown import Watchdog

        return Watchdog(limit)
