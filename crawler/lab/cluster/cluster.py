"""Runs N processes of a crawl in a virtual world. The processes execute the crawler's own code (`README.md`).

`Process` and `Stages` run unchanged; time, network, disks, power and randomness are virtual. There is one random
generator per life, seeded from the run's seed. `population.py` manages the lives of processes,
`fault_injection.py` injects the faults.
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

from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.cluster_settings import START, ClusterSettings, Observed
from crawler.lab.cluster.fault_injection import FaultInjector
from crawler.lab.cluster.fetching import WebLog
from crawler.lab.cluster.machine import SystemCalls
from crawler.lab.cluster.population import Population
from crawler.lab.cluster.synthetic_web import SyntheticWeb
from crawler.lab.cluster.virtual_environment import SharedWorld
from crawler.lab.cluster.virtual_loop import VirtualLoop
from crawler.lab.cluster.virtual_network import VirtualNetwork
from crawler.storage.faults import reach

ENDING_MAX = 7_200.0  # a finite crawl must end within this number of virtual seconds after the last fault
# virtual seconds between two checks; a check records the state of the outboxes and finds out whether the run
# has ended
LOOK_EVERY = 10.0
LOOKS = 5_000  # the maximum number of checks in a run whose length is given
MEMORY = Path("/dev/shm")


class Cluster:
    """The web, the processes and the faults of one run. Call `run` once; `judge.py` then checks the result.

    `web` replaces the web of the settings; it must answer as a `SyntheticWeb` does.
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

    def run(self, progress: Callable[[float], None] = lambda share: None) -> Observed:
        """Crawl until every process has ended, or until the end of the given time; return the observations."""
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
                self.population.bury()
        finally:
            reach.visited = None
            asyncio.set_event_loop(None)
        self.observed.wire_bytes, self.observed.wire_frames = self._wire.bytes, self._wire.frames
        self.observed.wire_writes = self._wire.writes
        return self.observed

    async def _whole(self, progress: Callable[[float], None]) -> None:
        settings, loop, population = self.settings, asyncio.get_running_loop(), self.population
        self._over = asyncio.Event()
        plan = fault_plan.draw(
            settings.seed,
            settings.faults,
            settings.count,
            machines=settings.processes,
            within=settings.within,
            # the last of these acts lifts the limits; then the run needs time to fetch the parked pages
            limits_within=0.4 * settings.length or settings.within,
            points=settings.points,
        )
        if limit := fault_plan.first_limit(settings.seed, plan):
            population.set_limits(limit)
        self._striker.schedule(plan)
        last = max((fault.at + fault.length for fault in plan), default=0.0)
        for machine in population.machines:
            population.start(machine)
        end = START + (settings.length or last + ENDING_MAX)
        look_every = max(LOOK_EVERY, settings.length / LOOKS)
        while not self._over.is_set() and loop.time() < end:
            progress((loop.time() - START) / (end - START))
            timer = loop.call_later(min(look_every, end - loop.time()), self._look)
            await self._tick()
            timer.cancel()
            self._note(loop.time())
            population.visit()
        self.observed.elapsed = loop.time() - START
        counters = (stages.point.counters for stages in population.opened.values())
        self.observed.counters = dict(sum(counters, Counter()))
        for machine in population.machines:
            if machine.life is not None:
                population.keep_stored(machine)
                population.kill(machine.life, power=False)

    def _note(self, now: float) -> None:
        """Record the number of links in the outboxes, and the level of each process (the value of its next page)."""
        opened = self.population.opened
        waiting = sum(stages.outbox.links for stages in opened.values())
        self.observed.outbox_max = max(self.observed.outbox_max, waiting)
        for label, stages in opened.items():
            if label in self.population.running and stages.refresh is not None:
                self.observed.levels.setdefault(label, []).append(stages.refresh.portion.price(now))

    async def _tick(self) -> None:
        """Wait until the next check is due or the run has ended."""
        self._news = asyncio.Event()
        await self._news.wait()

    def _look(self) -> None:
        self._news.set()

    def _end_run(self) -> None:
        self._over.set()
        self._news.set()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Switch off garbage collection and reports of errors in killed processes.

    Garbage collection could influence the run.
    """
    collecting, hook = gc.isenabled(), sys.unraisablehook
    gc.disable()
    sys.unraisablehook = lambda _: None  # print no errors: tasks of killed processes cannot end cleanly
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
    """Return a temporary folder for the machines' files, if possible in a file system in memory."""
    return tempfile.TemporaryDirectory(prefix="crawler-cluster-", dir=MEMORY if MEMORY.is_dir() else None)
