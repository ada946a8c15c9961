"""The environment of a process in the virtual world: network, store, randomness (`process/opening/environment.py`)."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from crawler.clock import Clock
from crawler.config import Config, StoreConfig
from crawler.errors import Unexpected
from crawler.extract.loop_share import LoopShare
from crawler.fetcher.fetch_request import HTTP
from crawler.fetcher.fetchers import FetcherNeeds, MakeFetcher, make_fetcher
from crawler.frontier.hosts.gap_journal import JournalMemory
from crawler.lab.cluster.cluster_settings import ClusterSettings
from crawler.lab.cluster.fetching import VirtualClient, VirtualResolver, WebLog
from crawler.lab.cluster.machine import Killed, Life, SystemCalls
from crawler.lab.cluster.synthetic_web import SyntheticWeb
from crawler.lab.cluster.virtual_browser import VirtualRenderer
from crawler.lab.cluster.virtual_network import VirtualListener, VirtualNetwork
from crawler.process.fetching.fetch_tasks import Network
from crawler.process.fetching.reader import Reader
from crawler.process.opening.environment import Environment
from crawler.render.shared_answers import AnswerArchive, SharedAnswers
from crawler.render.shared_cache import SharedCache
from crawler.storage.kv import KeyValue

# In runs of at least LONG seconds, processes check the time and the disk only every RARE_WATCH seconds.
LONG, RARE_WATCH = (7_200.0, 60.0)


class SharedWorld(msgspec.Struct, frozen=True):
    """The parts of the world that all processes share."""

    settings: ClusterSettings
    web: SyntheticWeb
    log: WebLog
    wire: VirtualNetwork
    system: SystemCalls


class VirtualEnvironment(Environment):
    """The environment of one life of a process."""

    def __init__(self, world: SharedWorld, life: Life) -> None:
        self._world, self._life = world, life
        self.rng = random.Random(f"life {world.settings.seed} {life.number}")
        if world.settings.length >= LONG:
            self.watch_interval = RARE_WATCH

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def open_store(self, path: Path, config: StoreConfig, *, copy: bool = False) -> tuple[KeyValue, str]:
        return self._life.machine.open_store(path), ""

    def mapped_file(self, path: Path, size: int) -> JournalMemory:
        return _LivingMemory(super().mapped_file(path, size), self._life)

    def network(
        self, config: Config, clock: Clock, reader: Reader, unexpected: Unexpected, *, processes: int
    ) -> Network:
        world = self._world
        share = LoopShare(clock=lambda: 0.0)
        needs = FetcherNeeds(config, clock, unexpected, processes)
        table: dict[str, MakeFetcher] = {
            HTTP: lambda needs: VirtualClient(
                world.web, world.log, clock.now, needs.config.fetch.header_timeout
            )
        }
        resolver = VirtualResolver(world.web, clock.now)
        own = Reader(config, share=share, reads_anchors=reader.reads_anchors)
        return Network(make_fetcher(table, needs), resolver, own, self.renderer)

    def renderer(
        self, config: Config, archive: AnswerArchive, now: Callable[[], float], unexpected: Unexpected
    ) -> VirtualRenderer:
        return VirtualRenderer(SharedAnswers(SharedCache(config.render.cache_bytes_max), archive, now))

    @property
    def listen(self) -> Callable[[str, int], Any]:
        return self._listen

    def _listen(self, host: str, port: int) -> VirtualListener:
        return self._world.wire.listen((host, port))

    def in_thread(self, function: Callable[[], Any]) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(None, function)

    def frozen(self) -> AbstractContextManager[None]:
        """Return a context that does nothing.

        If the context froze the heap, the heap would stay frozen after a process was killed in the context.
        """
        return nullcontext()

    async def keep_heap_small(self) -> None:
        """Do nothing: all processes share one heap."""

    def watchdog(self, limit: float) -> Any:
        return _NoWatchdog()


class _LivingMemory:
    """A mapped file of one life. The cleanup code of a killed life cannot write to it."""

    def __init__(self, memory: JournalMemory, life: Life) -> None:
        self._memory, self._life = memory, life

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, place: slice) -> bytes | bytearray:
        return self._memory[place]

    def __setitem__(self, place: slice, data: bytes) -> None:
        if self._life.dead:
            raise Killed
        self._memory[place] = data


class _NoWatchdog:
    """A watchdog that does nothing, because the virtual loop never stalls."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""
