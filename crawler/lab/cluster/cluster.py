"""N processes of a crawl, the shipped ones, in a virtual world (`README.md`).

`Process` and `Stages` run as they are; their surroundings are virtual:

    time          virtual_loop.py
    network       virtual_network.py between them, fetching.py to the web
    disk, power   machine.py, disk.py
    chance        one generator a life, drawn from the seed

`population.py` has the lives of processes, `fault_injection.py` what is done to them.
"""

import asyncio
import gc
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawler.config import Config
from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.cluster_settings import START, ClusterSettings, Observed
from crawler.lab.cluster.fault_injection import FaultInjector
from crawler.lab.cluster.fetching import WebLog
from crawler.lab.cluster.machine import Machine, SystemCalls
from crawler.lab.cluster.population import Population
from crawler.lab.cluster.synthetic_web import SyntheticWeb
from crawler.lab.cluster.virtual_environment import SharedWorld
from crawler.lab.cluster.virtual_loop import VirtualLoop
from crawler.lab.cluster.virtual_network import VirtualNetwork
from crawler.storage.faults import reach

ENDING_MAX = 7_200.0  # virtual seconds behind the last fault in which a finite crawl has to end
LOOK_EVERY = 10.0  # virtual seconds between looks at outboxes and the end
LOOKS = 5_000  # of a long run
MEMORY = Path("/dev/shm")


class Cluster:
    """The web, the processes, and what happens to them; `run` once. What is there then is the judge's to see.

    Another `web` than that of the settings answers as a `SyntheticWeb` does.
    """

    def __init__(self, settings: ClusterSettings, folder: Path, web: SyntheticWeb | None = None) -> None:
        length = settings.length or ENDING_MAX
        self.settings = settings
        self.web = web or SyntheticWeb(
            settings.web, settings.seed, start=START, horizon=length, changes_of=settings.changes_of
        )
        self.log = WebLog()
        self.observed = Observed()
        self._wire = VirtualNetwork(random.Random(f"wire {settings.seed}"), pieces=settings.pieces)
        self._system = SystemCalls()
        world = SharedWorld(settings, self.web, self.log, self._wire, self._system)
        self.population = Population(world, folder, self.observed, self._end_run)
        self._striker = FaultInjector(self.population)

    @property
    def machines(self) -> list[Machine]:
        return self.population.machines

    @property
    def config(self) -> Config:
        """The configuration of processes of the usual speed."""
        return self.population.config

    def owner(self, url: str) -> str:
        """The process that a URL belongs to."""
        return self.population.owner(url)

    def run(self, progress: Callable[[float], None] = lambda share: None) -> Observed:
        """Crawl until all have ended, or the time is over."""
        loop = VirtualLoop(self._wire, START)
        reach.visited = self._striker.visited
        asyncio.set_event_loop(loop)
        try:
            with _undisturbed(), self._system.installed():
                loop.run_until_complete(self._whole(progress))
                self.observed.steps = loop.steps
                self.observed.unexpected += loop.unexpected
                loop.close()
                del loop
                self._bury()
        finally:
            reach.visited = None
            asyncio.set_event_loop(None)
        self.observed.wire_bytes, self.observed.wire_frames = self._wire.bytes, self._wire.frames
        self.observed.wire_writes = self._wire.writes
        return self.observed

    def _bury(self) -> None:
        self.population.bury()
        gc.unfreeze()
        gc.collect()

    async def _whole(self, progress: Callable[[float], None]) -> None:
        settings, loop, population = self.settings, asyncio.get_running_loop(), self.population
        self._over = asyncio.Event()
        plan = fault_plan.draw(
            settings.seed,
            settings.faults,
            settings.count,
            machines=settings.processes,
            within=settings.within,
            points=settings.points,
        )
        self._striker.schedule(plan)
        last = max((fault.at + fault.length for fault in plan), default=0.0)
        for machine in self.machines:
            population.start(machine)
        end = START + (settings.length or last + ENDING_MAX)
        look_every = max(LOOK_EVERY, settings.length / LOOKS)
        while not self._over.is_set() and loop.time() < end:
            progress((loop.time() - START) / (end - START))
            timer = loop.call_later(min(look_every, end - loop.time()), self._look)
            await self._tick()
            timer.cancel()
            self._note(loop.time())
        self.observed.elapsed = loop.time() - START
        counters = (stages.point.counters for stages in population.opened.values())
        self.observed.counters = dict(sum(counters, Counter()))
        for machine in self.machines:
            if machine.life is not None:
                population.kill(machine.life, power=False)

    def _note(self, now: float) -> None:
        """See what waits between processes, and what a page is worth to each."""
        opened = self.population.opened
        waiting = sum(stages.outbox.links for stages in opened.values())
        self.observed.outbox_max = max(self.observed.outbox_max, waiting)
        for label, stages in opened.items():
            if label in self.population.running and stages.refresh is not None:
                self.observed.levels.setdefault(label, []).append(stages.refresh.portion.price(now))

    async def _tick(self) -> None:
        """Until something may have ended the run."""
        self._news = asyncio.Event()
        await self._news.wait()

    def _look(self) -> None:
        self._news.set()

    def _end_run(self) -> None:
        self._over.set()
        self._news.set()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage is collected, which must not decide anything, and nobody tells of tasks of the dead."""
    collecting, hook = gc.isenabled(), sys.unraisablehook
    gc.disable()
    sys.unraisablehook = lambda _: None  # tasks that cannot end in order
    logs = {
        logging.getLogger("crawler"): logging.CRITICAL,
        logging.getLogger("asyncio"): logging.CRITICAL + 1,
    }
    levels = {log: log.level for log in logs}
    for log, level in logs.items():
        log.setLevel(level)
    try:
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)
        sys.unraisablehook = hook
        if collecting:
            gc.enable()


def memory_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for the machines' files: in memory where that can be."""
    return tempfile.TemporaryDirectory(prefix="crawler-cluster-", dir=MEMORY if MEMORY.is_dir() else None)
