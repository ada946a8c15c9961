"""N processes of a crawl, the shipped ones, in a virtual world (`README.md`).

`Process` and `Stages` run as they are; their surroundings are virtual:

    time          virtual_loop.py
    network       cables.py between them, fetching.py to the web
    disk, power   machine.py, disk.py
    chance        one generator a life, drawn from the seed
"""

import asyncio
import gc
import logging
import math
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.config import Config, StoreConfig, convert
from crawler.crawl.topology import Topology
from crawler.errors import CrawlerError, DirectoryError
from crawler.extract.loop_share import LoopShare
from crawler.lab.cluster import fault_plan
from crawler.lab.cluster.cables import Listening, Wire
from crawler.lab.cluster.fault_plan import QUOTA, Fault
from crawler.lab.cluster.fetching import VirtualClient, VirtualResolver, WebLog
from crawler.lab.cluster.lives import CURRENT, Killed, Life
from crawler.lab.cluster.machine import Machine, MachineClock, SystemCalls
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.lab.cluster.virtual_loop import VirtualLoop
from crawler.process.errands import Network
from crawler.process.exchange import Member
from crawler.process.process import Process
from crawler.process.reader import Reader
from crawler.process.stages import Stages
from crawler.process.surroundings import Surroundings
from crawler.splitter.partition import Partition
from crawler.splitter.wire import Frame
from crawler.storage.faults import reach
from crawler.storage.kv import KeyValue
from crawler.urls.fingerprint import Fingerprinter

START = 1_700_000_000.0  # the first instant, by a right clock
SEED, SECRET, CRAWL = bytes(range(16)), b"s" * 16, "cluster"
PORT = 7000
POINT_WAIT = 60.0  # seconds for which a kill waits for its point; then it comes at any instant
RESTART = 3.0  # seconds until a process that failed is started again
ENDING_MAX = 7_200.0  # virtual seconds behind the last fault in which a finite crawl has to end
LOOK_EVERY = 10.0  # virtual seconds between looks at outboxes and the end
LOOKS = 5_000  # of a long run
SLOW = 10  # times as slow as the others is a slow process
FINISHED = ("done", "patience")  # how a process ends that has nothing left to do
FRUITLESS_MAX = 60  # failed starts in a row while nobody asks for anything: no progress
MEMORY = Path("/dev/shm")
LONG, RARE_WATCH = 21_600.0, 60.0  # in runs of so many seconds a process looks at time and disk so seldom


class ClusterSettings(msgspec.Struct, frozen=True):
    """One run. `rate` is pages a second over all processes; `length` in seconds, 0: until the crawl ends by itself.
    `points` are those of kills, if not all.
    `slow`: process 0 has a tenth of the places of the others, and ten times their gaps.
    `pieces`: what processes write to one another arrives in pieces.
    """

    seed: int = 1
    processes: int = 3
    web: WebSpec = WebSpec()
    faults: tuple[str, ...] = fault_plan.USUAL
    points: tuple[str, ...] = ()
    count: int = 6
    within: float = 120.0
    rate: float = 0.0
    length: float = 0.0
    refresh: bool = False
    concurrency: int = 8
    slow: bool = False
    pieces: bool = True
    tree: dict[str, Any] = {}


class LifeEnd(msgspec.Struct, frozen=True):
    """How a life ended, and when; `killed` by a fault."""

    life: int
    machine: str
    at: float
    how: str
    killed: bool = False


class Observed(msgspec.Struct):
    """What came of a run, beside the web's log."""

    ended: bool = False  # every process ended by itself, since nothing was left to do
    elapsed: float = 0.0
    steps: int = 0
    wire_bytes: dict[Frame, int] = {}  # between processes, by kind of frame
    wire_frames: dict[Frame, int] = {}
    lives: list[LifeEnd] = []
    unexpected: list[str] = []
    problems: list[str] = []  # laws of counting that did not hold
    done: list[Fault] = []
    cloned_at: float = 0.0
    begun: dict[int, float] = {}  # life -> seconds at which it began
    survivors: dict[str, str] = {}  # name -> machine whose process of that name has ended for good
    wire_writes: int = 0
    levels: dict[str, list[float]] = {}  # what a page that is next is worth to each process, at each look
    outbox_max: int = 0  # links that waited in all outboxes at once, at most
    counters: dict[str, int] = {}  # of all processes, as they stood at the end


class VirtualSurroundings(Surroundings):
    """What a process of the cluster finds around it."""

    def __init__(self, cluster: "Cluster", life: Life, clock: MachineClock) -> None:
        self._cluster, self._life, self._clock = cluster, life, clock
        self.rng = random.Random(f"life {cluster.settings.seed} {life.number}")
        if cluster.settings.length >= LONG:
            self.watch_interval = RARE_WATCH

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def open_store(self, path: Path, config: StoreConfig) -> tuple[KeyValue, str]:
        return self._life.machine.open_store(path), ""

    def network(self, stages: Stages, reader: Reader) -> Network:
        cluster, clock = self._cluster, self._clock
        share = LoopShare(clock=lambda: 0.0)
        client = VirtualClient(cluster.web, cluster.log, clock.now, stages.config.fetch.header_timeout)
        resolver = VirtualResolver(cluster.web, clock.now)
        return Network(client, resolver, Reader(stages.config, share=share))  # type: ignore[arg-type]

    @property
    def listen(self) -> Callable[[str, int], Any]:
        return self._listen

    def _listen(self, host: str, port: int) -> Listening:
        return self._cluster.wire.listen((host, port))

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


class Cluster:
    """The machines, the web, and what happens to them; `run` once."""

    def __init__(self, settings: ClusterSettings, folder: Path) -> None:
        self.settings = settings
        self.rng = random.Random(f"cluster {settings.seed}")
        length = settings.length or ENDING_MAX
        self.web = SyntheticWeb(settings.web, settings.seed, start=START, horizon=length)
        self.log = WebLog()
        self.wire = Wire(random.Random(f"wire {settings.seed}"), pieces=settings.pieces)
        self.system = SystemCalls()
        self.observed = Observed()
        names = [f"p{k}" for k in range(settings.processes)]
        self.partition = Partition.equal_ranges(names)
        self.addresses = {name: (f"10.0.{k >> 8}.{k & 255}", PORT) for k, name in enumerate(names, start=1)}
        self.wire.names = {name: address for name, (address, _) in self.addresses.items()}
        self.machines = [self._machine(name, name, folder / name) for name in names]
        self.config = self._config()
        self._fingerprinter = Fingerprinter(SEED)
        self._numbers = 0
        self._armed: dict[str, tuple[Fault, int]] = {}  # machine -> kill at a point, visits left
        self._next: dict[
            str, Fault
        ] = {}  # machine -> kill at a point of its next life, so that starts fail, too
        self._graveyard: list[object] = []
        self._requests = self._fruitless = 0  # starts since one after which something was asked for
        self._running: dict[str, tuple[Life, Process]] = {}
        self._home: dict[str, str] = {}  # machines whose process has ended for good, and why
        self._opened: dict[str, Stages] = {}  # the last of each machine

    def _machine(self, label: str, name: str, folder: Path) -> Machine:
        folder.mkdir(parents=True)
        return Machine(label, name, folder.resolve(), random.Random(f"disk {self.settings.seed} {label}"))

    def _config(self) -> Config:
        settings = self.settings
        budget = 2 * max(len(host.pages) for host in self.web.hosts) + 40  # redirects and errors count, too
        tree: dict[str, dict[str, Any]] = {
            "crawl": {
                "scope": "any",
                "concurrency": settings.concurrency,
                "rate": settings.rate,
                "depth": 100_000,
                "pages_per_host": budget,
                "pages_per_domain": budget,
                "patience": 7200.0,
            },
            "cache": {"bits": 6},
            "due": {"buffer_entries_max": 64},
            "pages": {"segment_bytes": 20_000},
            "splitter": {"window_bytes": 20_000, "entry_bytes": 500, "frame_bytes_max": 40_000},
            "extract": {"inline_bytes_max": 1 << 24, "inline_tags_max": 1 << 20},
            "traps": {"same_digest_pages_max": 1 << 20},
            "politeness": {
                "address_delay_share": 0.0
            },  # a host has an address alone: its own gap is what counts
        }
        if settings.refresh:
            tree["refresh"] = {"share": 0.3, "endless": True, "min_age": 60.0}
        for section, values in settings.tree.items():
            tree.setdefault(section, {}).update(values)
        return convert(tree)

    # -- a run --------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] = lambda share: None) -> Observed:
        """Crawl until all have ended, or the time is over."""
        loop = VirtualLoop(self.wire, START)
        collecting, hook = gc.isenabled(), sys.unraisablehook
        gc.disable()  # what is collected when must not decide anything
        sys.unraisablehook = lambda _: None  # tasks of the dead that cannot end in order
        log = logging.getLogger("crawler")
        level, loop_log = log.level, logging.getLogger("asyncio")
        log.setLevel(logging.CRITICAL)
        loop_level = loop_log.level
        loop_log.setLevel(logging.CRITICAL + 1)
        reach.visited = self._visited
        asyncio.set_event_loop(loop)
        try:
            with self.system.installed():
                loop.run_until_complete(self._whole(progress))
                self.observed.steps = loop.steps
                self.observed.unexpected += loop.unexpected
                loop.close()
                del loop
                self._bury()
        finally:
            reach.visited = None
            asyncio.set_event_loop(None)
            log.setLevel(level)
            loop_log.setLevel(loop_level)
            sys.unraisablehook = hook
            if collecting:
                gc.enable()
        self.observed.wire_bytes, self.observed.wire_frames = self.wire.bytes, self.wire.frames
        self.observed.wire_writes = self.wire.writes
        return self.observed

    def _bury(self) -> None:
        """Let go of all that the dead have left."""
        self._graveyard.clear()
        self._running.clear()
        self._opened.clear()
        self.wire.listening.clear()
        self.wire.ends.clear()
        gc.unfreeze()
        gc.collect()

    async def _whole(self, progress: Callable[[float], None]) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        self._over = asyncio.Event()
        plan = fault_plan.draw(
            settings.seed,
            settings.faults,
            settings.count,
            machines=settings.processes,
            within=settings.within,
            points=settings.points,
        )
        for fault in plan:
            loop.call_at(START + fault.at, self._strike, fault)
        last = max((fault.at + fault.length for fault in plan), default=0.0)
        for machine in self.machines:
            self._start(machine)
        end = START + (settings.length or last + ENDING_MAX)
        look_every = max(LOOK_EVERY, settings.length / LOOKS)
        while not self._over.is_set() and loop.time() < end:
            progress((loop.time() - START) / (end - START))
            timer = loop.call_later(min(look_every, end - loop.time()), self._look)
            await self._tick()
            timer.cancel()
            waiting = sum(stages.outbox.links for stages in self._opened.values())
            self.observed.outbox_max = max(self.observed.outbox_max, waiting)
            self._note_levels()
        self.observed.elapsed = loop.time() - START
        self.observed.counters = dict(
            sum((stages.point.counters for stages in self._opened.values()), Counter())
        )
        for machine in self.machines:
            if machine.life is not None:
                self._kill(machine.life, power=False)

    def _note_levels(self) -> None:
        now = asyncio.get_running_loop().time()
        for label, stages in self._opened.items():
            if label in self._running and stages.refresh is not None:
                self.observed.levels.setdefault(label, []).append(stages.refresh.price(now))

    async def _tick(self) -> None:
        """Until something may have ended the run."""
        self._news = asyncio.Event()
        await self._news.wait()

    def _look(self) -> None:
        self._news.set()

    # -- lives ----------------------------------------------------------------------

    def _start(self, machine: Machine) -> None:
        """Begin a life on a machine that has none."""
        if machine.life is not None or machine.label in self._home:
            return
        machine.has_power = True
        self._numbers += 1
        machine.life = life = Life(machine, self._numbers)
        self.observed.begun[life.number] = asyncio.get_running_loop().time() - START
        if fault := self._next.pop(machine.label, None):
            self._arm(life, fault)
        context = copy_context()
        context.run(CURRENT.set, life)
        task = asyncio.get_running_loop().create_task(self._live(life), context=context)
        self._graveyard.append(task)

    async def _live(self, life: Life) -> None:
        """What `crawler node` does, without its command line."""
        how = ""
        try:
            how = await self._crawl(life)
        except CrawlerError as error:
            how = f"{type(error).__name__}: {error}"
        except Killed:
            raise
        except Exception as error:
            if life.dead:  # it unwinds behind its end
                raise Killed from error
            how = f"bug: {error!r}"
            self.observed.unexpected.append(f"{life}: {error!r}")
        if life.dead:
            raise Killed
        self._ended(life, how)

    async def _crawl(self, life: Life) -> str:
        machine, loop = life.machine, asyncio.get_running_loop()
        clock = MachineClock(loop.time, machine.wall_offset)
        host, port = self.addresses[machine.label]
        config = self.config
        if self.settings.slow and machine.name == "p0":
            places = max(1, self.settings.concurrency // SLOW)
            crawl = msgspec.structs.replace(config.crawl, concurrency=places)
            delay = SLOW * float(config.politeness.delay)
            politeness = msgspec.structs.replace(config.politeness, delay=delay, delay_max=SLOW * 30.0)
            config = msgspec.structs.replace(config, crawl=crawl, politeness=politeness)
        config = msgspec.structs.replace(
            config,
            splitter=msgspec.structs.replace(
                self.config.splitter, name=machine.name, listen=f"{host}:{port}"
            ),
        )
        around = VirtualSurroundings(self, life, clock)
        stages = Stages(
            config,
            machine.folder / machine.name,
            SEED,
            clock=clock,
            name=machine.name,
            topology=Topology(machine.name, self.partition),
            around=around,
        )
        seeds = [[self.web.url(0)]] if machine.name == "p0" else []
        others = {name: (name, PORT) for name in self.partition.names if name != machine.name}
        process = None
        try:
            process = Process(
                stages,
                pages_file=machine.folder / "pages.jsonl",
                seeds=seeds,
                member=Member(machine.name, crawl=CRAWL, addresses=others, secret=SECRET),
            )
            self._running[machine.label] = life, process
            self._graveyard.append((stages, process))
            self._opened[machine.label] = stages
            await process.exchange.start()
            await process.run()
        finally:
            if not life.dead:
                await self._leave(life, stages, process)
        return process.stopped_by

    async def _leave(self, life: Life, stages: Stages, process: Process | None) -> None:
        """As `api.Crawl.__aexit__`."""
        if process is not None:
            await process.exchange.close()
            process.close()
        failed = process is None or process.failure is not None
        self.observed.unexpected += [f"{life}: {each}" for each in stages.harvest.unexpected.counts]
        if not failed:
            self.observed.problems += [f"{life.machine.label}: {each}" for each in stages.problems()]
        stages.close(clean=not failed)

    def _ended(self, life: Life, how: str) -> None:
        """A life has ended by itself: for good, or it is started again."""
        machine = life.machine
        self._note_end(life, how, killed=False)
        self._forget(life, silent=False)
        refused = how.startswith(f"{DirectoryError.__name__}:")
        if how not in FINISHED and not refused:
            self._start_again(machine)
            return
        self._home[machine.label] = how
        if refused:
            self._hand_over(machine)
        self._look_at_end()

    def _start_again(self, machine: Machine) -> None:
        asyncio.get_running_loop().call_later(RESTART, self._start, machine, context=_nobody())
        requests = len(self.log.rows)
        self._fruitless = self._fruitless + 1 if requests == self._requests else 0
        self._requests = requests
        if not self.settings.length and self._fruitless > FRUITLESS_MAX:
            self._end_run()

    def _hand_over(self, machine: Machine) -> None:
        """Do what people do whose process has stopped for another one of its name: its peers are to find that one."""
        heirs = [other for other in self._of_name(machine.name) if other.label not in self._home]
        if not heirs and self.observed.cloned_at:  # each was told so by some peer: one is started again
            heirs = [machine]
            del self._home[machine.label]
            self._start_again(machine)
        if heirs:
            newest = max(heirs, key=lambda each: each.life.number if each.life else 0)
            self.wire.names[machine.name] = self.addresses[newest.label][0]

    def owner(self, url: str) -> str:
        """The process that a URL belongs to."""
        fingerprint = self._fingerprinter.fingerprint(url)
        owners = self.partition.owners(np.array([fingerprint], np.uint64))
        return self.partition.names[int(owners[0])]

    def _of_name(self, name: str) -> list[Machine]:
        return [machine for machine in self.machines if machine.name == name]

    def _look_at_end(self) -> None:
        """A process of each name has ended: then nobody waits for a copy."""
        self.observed.survivors = {
            machine.name: machine.label
            for machine in self.machines
            if self._home.get(machine.label) in FINISHED
        }
        self.observed.ended = set(self.observed.survivors) == set(self.partition.names)
        if self.observed.ended or len(self._home) == len(self.machines):
            self._end_run()

    def _end_run(self) -> None:
        self._over.set()
        self._news.set()

    def _note_end(self, life: Life, how: str, *, killed: bool) -> None:
        now = asyncio.get_running_loop().time() - START
        self.observed.lives.append(LifeEnd(life.number, life.machine.label, now, how, killed))

    def _forget(self, life: Life, *, silent: bool) -> None:
        life.dead = True
        life.machine.life = None
        self._running.pop(life.machine.label, None)
        self._armed.pop(life.machine.label, None)
        self.wire.end_of(life, silent=silent)
        self.system.end(life)

    def _kill(self, life: Life, *, power: bool) -> None:
        """End a life at this very step."""
        machine = life.machine
        self._forget(life, silent=power)
        if power:
            machine.has_power = False
            machine.lose_power()

    # -- faults -----------------------------------------------------------------------

    def _visited(self, point: str) -> None:
        """A life has reached a point of its code."""
        life = CURRENT.get()
        if life is None:
            return
        if life.dead:
            raise Killed
        armed = self._armed.get(life.machine.label)
        if armed is None or armed[0].point != point:
            return
        fault, left = armed
        if left > 1:
            self._armed[life.machine.label] = fault, left - 1
            return
        if fault.kind == "reset":
            del self._armed[life.machine.label]
            self._reset(life.machine, fault)
            return
        if fault.amount:
            del self._armed[life.machine.label]
            asyncio.get_running_loop().call_later(
                fault.amount, self._fall_behind, life, fault, context=_nobody()
            )
            return
        self._fell(life, fault, point)
        raise Killed

    def _reset(self, machine: Machine, fault: Fault) -> None:
        """The connections of a machine break."""
        self.observed.done.append(fault)
        self.wire.reset(machine.label, both=bool(fault.amount))

    def _fall_behind(self, life: Life, fault: Fault) -> None:
        """The end comes a moment behind its point, unless another was quicker."""
        if not life.dead:
            self._fell(life, fault, f"{fault.amount:.3f} s behind {fault.point}")

    def _fell(self, life: Life, fault: Fault, where: str) -> None:
        """A kill takes place."""
        self.observed.done.append(fault)
        self._note_end(life, f"{fault.kind} at {where or 'any instant'}", killed=True)
        machine = life.machine
        self._kill(life, power=fault.kind == "power")
        again = partial(self._start, machine)
        asyncio.get_running_loop().call_later(fault.length, again, context=_nobody())

    def _strike(self, fault: Fault) -> None:
        machine = self.machines[fault.machines[0]]
        life, loop = machine.life, asyncio.get_running_loop()
        if fault.kind in ("kill", "power", "clock", "stop", "clone") and life is None:
            if fault.point:
                self._next[machine.label] = fault
            return  # there is nobody
        if fault.kind in ("kill", "power"):
            assert life is not None
            if fault.point:
                self._arm(life, fault)
            else:
                self._fell(life, fault, "")
            return
        if fault.kind == "reset":
            if fault.point:
                self._armed.setdefault(machine.label, (fault, fault.visits))
            else:
                self._reset(machine, fault)
            return
        self.observed.done.append(fault)
        if fault.kind == "partition":
            pairs = {frozenset((machine.label, self.machines[k].label)) for k in fault.machines[1:]}
            self.wire.cut |= pairs
            loop.call_later(fault.length, self._heal, pairs)
        elif fault.kind == "loss":
            self.wire.loss = fault.amount
            loop.call_later(fault.length, setattr, self.wire, "loss", 0.0)
        elif fault.kind == "slow-disk":
            machine.slowness = fault.amount
            loop.call_later(fault.length, setattr, machine, "slowness", 1.0)
        elif fault.kind == "full-disk":
            machine.room, machine.tells_room = fault.amount, fault.point != QUOTA
            loop.call_later(fault.length, setattr, machine, "room", math.inf)
        elif fault.kind == "clock":
            assert life is not None
            machine.wall_offset += fault.amount
            self._fell(life, fault, f"a jump of the clock by {fault.amount:.0f} s")
        elif fault.kind == "stop":
            assert life is not None
            life.frozen_until = loop.time() + fault.length
        elif fault.kind == "clone":
            self._clone(machine, fault.amount)

    def _arm(self, life: Life, fault: Fault) -> None:
        """Let a life end when it reaches a point, or some time later."""
        self._armed[life.machine.label] = fault, fault.visits
        loop = asyncio.get_running_loop()
        loop.call_later(POINT_WAIT, self._strike_anyway, life, fault, context=_nobody())

    def _strike_anyway(self, life: Life, fault: Fault) -> None:
        """The point of a kill was not reached."""
        armed = self._armed.get(life.machine.label)
        if not life.dead and armed is not None and armed[0] is fault:
            self._fell(life, fault, "")

    def _heal(self, pairs: set[frozenset[str]]) -> None:
        self.wire.cut -= pairs

    def _clone(self, machine: Machine, age: float) -> None:
        """A copy of a machine, disk and all, is started at another address so many seconds later."""
        label = f"{machine.label}-copy{len(self.machines)}"
        copy = self._machine(label, machine.name, machine.folder.with_name(label))
        copy.store = machine.store.copy()
        shutil.copytree(machine.folder, copy.folder, dirs_exist_ok=True)
        copy.wall_offset = machine.wall_offset
        self.addresses[label] = (f"10.0.1.{len(self.machines)}", PORT)
        self.machines.append(copy)
        self.observed.cloned_at = self.observed.cloned_at or asyncio.get_running_loop().time()
        asyncio.get_running_loop().call_later(age, self._start, copy, context=_nobody())


def _nobody() -> Any:
    """A context in which no life runs."""
    context = copy_context()
    context.run(CURRENT.set, None)
    return context


def memory_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for the machines' files: in memory where that can be."""
    return tempfile.TemporaryDirectory(prefix="crawler-cluster-", dir=MEMORY if MEMORY.is_dir() else None)
