"""What a process of the virtual world finds around it: its network, its store, its chance (`process/surroundings.py`)."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from crawler.config import StoreConfig
from crawler.extract.loop_share import LoopShare
from crawler.lab.cluster.cables import Listening, Wire
from crawler.lab.cluster.fetching import VirtualClient, VirtualResolver, WebLog
from crawler.lab.cluster.lives import Life
from crawler.lab.cluster.machine import MachineClock, SystemCalls
from crawler.lab.cluster.synthetic_web import SyntheticWeb
from crawler.lab.cluster.terms import ClusterSettings
from crawler.process.errands import Network
from crawler.process.reader import Reader
from crawler.process.stages import Stages
from crawler.process.surroundings import Surroundings
from crawler.storage.kv import KeyValue

LONG, RARE_WATCH = 21_600.0, 60.0  # in runs of so many seconds a process looks at time and disk so seldom


class SharedWorld(msgspec.Struct, frozen=True):
    """What all processes have around them."""

    settings: ClusterSettings
    web: SyntheticWeb
    log: WebLog
    wire: Wire
    system: SystemCalls


class VirtualSurroundings(Surroundings):
    """What a process of the cluster finds around it."""

    def __init__(self, world: SharedWorld, life: Life, clock: MachineClock) -> None:
        self._world, self._life, self._clock = world, life, clock
        self.rng = random.Random(f"life {world.settings.seed} {life.number}")
        if world.settings.length >= LONG:
            self.watch_interval = RARE_WATCH

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def open_store(self, path: Path, config: StoreConfig) -> tuple[KeyValue, str]:
        return self._life.machine.open_store(path), ""

    def network(self, stages: Stages, reader: Reader) -> Network:
        world, clock = self._world, self._clock
        share = LoopShare(clock=lambda: 0.0)
        client = VirtualClient(world.web, world.log, clock.now, stages.config.fetch.header_timeout)
        resolver = VirtualResolver(world.web, clock.now)
        return Network(client, resolver, Reader(stages.config, share=share))  # type: ignore[arg-type]

    @property
    def listen(self) -> Callable[[str, int], Any]:
        return self._listen

    def _listen(self, host: str, port: int) -> Listening:
        return self._world.wire.listen((host, port))

    def in_thread(self, function: Callable[[], Any]) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(None, function)

    def frozen(self) -> AbstractContextManager[None]:
        """A process that is killed here would never thaw."""
        return nullcontext()

    async def keep_heap_small(self) -> None:
        """All processes are in one heap."""

    def watchdog(self, limit: float) -> Any:
        return _NoWatchdog()


class _NoWatchdog:
    """The loop stands only while it computes."""

    def start(self) -> None:
        """Nobody watches."""

    def stop(self) -> None:
        """Nobody did."""
