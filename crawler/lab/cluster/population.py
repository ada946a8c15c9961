"""The machines of a virtual world, and the lives of the processes on them.

A process that has nothing left to do ends for good. A process that failed is restarted after `RESTART`
seconds. If two processes of the same name run, the peers tell the older process to stop (`DirectoryError`).
After the peers have told the older process to stop, they find the newer process under this name. If a process
has lost links that it had confirmed (`BehindError`), the peer that reports the loss is restarted with
`crawler recover`.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.crawl.topology import Topology
from crawler.errors import BehindError, CrawlerError, DirectoryError
from crawler.lab.cluster.cluster_settings import (
    FINISHED,
    START,
    LifeEnd,
    Observed,
    config_of,
    limited,
    slowed,
)
from crawler.lab.cluster.fault_plan import BOOT
from crawler.lab.cluster.machine import Killed, Life, Machine, MachineClock, nobody
from crawler.lab.cluster.stored_rules import Stored
from crawler.lab.cluster.virtual_environment import SharedWorld, VirtualEnvironment
from crawler.process.answering.commands import Commands
from crawler.process.exchange.exchange import Member
from crawler.process.opening.stages import Stages
from crawler.process.process import Process
from crawler.splitter.partition import Partition
from crawler.upkeep.recover import recover_links
from crawler.urls.fingerprint import Fingerprinter

SEED, SECRET, CRAWL = bytes(range(16)), b"s" * 16, "cluster"
PORT = 7000
RESTART = 3.0  # seconds until a failed process is restarted
# The operator looks at a waiting process after this many seconds, which are more than the default patience
# plus the default silence.
VISIT_AFTER = 400.0
STOPPED = "signal"  # the reason that a process gives if TERM stopped it
# after more failed starts than this in a row, with no request in between, the crawl counts as stuck
FRUITLESS_MAX = 60


class Population:
    """Manages machines and the processes that run on them, which are called lives (see the module docstring).

    It calls `on_begin` and `on_over` with each life, and `on_end` when no further life will begin.
    """

    def __init__(
        self, world: SharedWorld, folder: Path, observed: Observed, on_end: Callable[[], None]
    ) -> None:
        self.world, self.folder, self.observed = world, folder, observed
        self.on_begin: Callable[[Life], None] = lambda life: None
        self.on_over: Callable[[Life], None] = lambda life: None
        self._on_end = on_end
        settings = world.settings
        names = [f"p{k}" for k in range(settings.processes)]
        self.partition = Partition.equal_ranges(names)
        self.addresses: dict[str, tuple[str, int]] = {}
        for name in names:
            self.add_address(name)
        self.config = config_of(settings, world.web)
        self._limit = 0  # the limit on the pages per host, and also on the depth; 0 = none
        self.machines: list[Machine] = []
        for name in names:
            self.add_machine(name, name, folder / name)
        self.running: dict[str, tuple[Life, Process]] = {}
        self.opened: dict[str, Stages] = {}  # the stages of the latest process on each machine
        self.stored: dict[str, Stored] = {}  # the data that the latest process on each machine has stored
        # Machine -> a process that lost links. At its next start, the process of the machine must first recover
        # these links from its own archive.
        self._to_recover: dict[str, str] = {}
        self._home: dict[str, str] = {}  # machine whose process has ended for good -> the reason
        # machine -> commands given before its next start
        self.first_commands: dict[str, list[dict[str, Any]]] = {}
        # True while a command changes the crawl at rest; until it ends, no process can start
        self.is_closed = False
        self.pending = 0  # number of scheduled acts; the run does not end before they are done
        self._begun = Counter[str]()  # starts by machine
        # machine whose process was told to stop -> seconds until its next start
        self._away: dict[str, float] = {}
        self._numbers = 0
        # `_requests` is the number of requests at the time of the last failed start. `_fruitless` is the number
        # of failed starts in a row without a further request.
        self._requests = self._fruitless = 0
        # Objects that are kept alive, because freeing them could influence the run.
        self._graveyard: list[object] = []
        self._fingerprinter = Fingerprinter(SEED)

    def add_machine(self, label: str, name: str, folder: Path) -> Machine:
        folder.mkdir(parents=True)
        rng = random.Random(f"disk {self.world.settings.seed} {label}")
        self.machines.append(Machine(label, name, folder.resolve(), rng))
        return self.machines[-1]

    def add_address(self, name: str) -> None:
        """Give the machine of the process `name` an address, at which the other processes find it."""
        k = len(self.addresses) + 1
        self.addresses.setdefault(name, (f"10.0.{k >> 8}.{k & 255}", PORT))
        self.world.wire.names[name] = self.addresses[name][0]

    def replace_machines(self, machines: list[Machine], partition: Partition) -> None:
        """Replace all machines, and the bucket table.

        The processes of the new bucket table run on the new machines. No process may be running during this call.
        """
        assert not self.running
        self.machines, self.partition = machines, partition
        self.observed.resharded.append(_seconds())
        for of_machine in (self.opened, self.stored, self._home, self._away, self._to_recover):
            of_machine.clear()
        queued = [request for each in self.first_commands.values() for request in each]
        self.first_commands.clear()
        for request in queued:
            self.first_commands.setdefault(self.owner(f"http://{request['host']}/"), []).append(request)

    def owner(self, url: str) -> str:
        """Return the name of the process that owns a URL."""
        fingerprint = self._fingerprinter.fingerprint(url)
        owners = self.partition.owners(np.array([fingerprint], np.uint64))
        return self.partition.names[int(owners[0])]

    # -- the operator -------------------------------------------------------------------

    def later(self, delay: float, function: Callable[[], None]) -> None:
        """Call a function after a delay. The run does not end before this call."""
        self.pending += 1
        asyncio.get_running_loop().call_later(delay, self._now, function, context=nobody())

    def _now(self, function: Callable[[], None]) -> None:
        self.pending -= 1
        function()
        self.look_at_end()

    def terminate(self, machine: Machine, away: float) -> bool:
        """Stop a process as TERM does, and start it again `away` seconds after its end.

        Return False if no process runs on the machine.
        """
        running = self.running.get(machine.label)
        if running is None:
            return False
        self._away[machine.label] = away
        self.observed.told_to_stop.setdefault(running[0].number, _seconds())
        nobody(running[0]).run(running[1].run_end.stop, STOPPED)
        return True

    def run_later(self, machine: Machine, delay: float) -> None:
        """Start a process after a delay, unless it has been started in the meantime.

        Start it even if it has ended for good.
        """
        self.later(delay, partial(self._run_unless_begun, machine, self._begun[machine.label]))

    def _run_unless_begun(self, machine: Machine, begun: int) -> None:
        if self._begun[machine.label] == begun:
            self.run_again(machine)

    def run_again(self, machine: Machine) -> None:
        """Start the process of a machine, even if it had ended for good."""
        if self._home.pop(machine.label, None) is not None:
            self.observed.ended = False
        self.start(machine)

    def is_over(self, machine: Machine) -> bool:
        """Return whether the process of a machine has ended for good."""
        return machine.label in self._home

    def set_limits(self, limit: int) -> None:
        """Set the limit on the pages per host and on the depth for later starts of processes; 0 lifts both limits."""
        self.config, self._limit = limited(self.config, self.world.web, limit), limit

    def visit(self) -> None:
        """Start an ended process again if another process has waited too long for it.

        This stands for an operator: a process that has waited for `VISIT_AFTER` seconds has logged a warning
        that asks to start the missing process.
        """
        for life, process in list(self.running.values()):
            coordination = process.exchange.coordination
            missing = coordination.missing(process.context.clock.now())
            alone = _seconds() - self.observed.begun[life.number] > VISIT_AFTER and not coordination.ended
            gone = [each for each in self.machines if each.name in missing and self.is_over(each)]
            visited = self.observed.visits[-1:] or [0.0]
            if alone and gone and not process.busy() and _seconds() - visited[0] > VISIT_AFTER:
                self.observed.visits.append(_seconds())
                self.run_again(gone[0])

    def keep(self, task: object) -> None:
        """Keep an object alive until the end of the run."""
        self._graveyard.append(task)

    # -- a life -----------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        """Start the process of a machine, unless it is running or has ended for good.

        If the machine is still booting after a power cut, start it when it has booted. Do nothing during a reshard,
        for which all processes must be down.
        """
        if machine.life is not None or machine.label in self._home:
            return
        if self.is_closed or not any(machine is each for each in self.machines):
            return
        loop = asyncio.get_running_loop()
        if loop.time() < machine.booted_at:
            loop.call_at(machine.booted_at, self.start, machine, context=nobody())
            return
        machine.has_power = True
        self._begun[machine.label] += 1
        machine.life = life = self.new_life(machine)
        self.observed.begun[life.number] = _seconds()
        if self._limit:
            self.observed.limits[life.number] = self._limit
        self.on_begin(life)
        task = asyncio.get_running_loop().create_task(self._live(life), context=nobody(life))
        self._graveyard.append(task)

    def new_life(self, machine: Machine) -> Life:
        """Return a new simulated process (life) with the next number. The life does not run yet."""
        self._numbers += 1
        return Life(machine, self._numbers)

    async def _live(self, life: Life) -> None:
        """Run a process in the same way as `crawler node`, but without the command line."""
        how = ""
        try:
            how = await self._crawl(life)
        except CrawlerError as error:
            how = f"{type(error).__name__}: {error}"
            if isinstance(error, BehindError):
                self._learn_loss(life, error)
        except Killed:
            raise
        except Exception as error:
            if life.dead:  # the process was killed, and the error occurred during its cleanup
                raise Killed from error
            how = f"bug: {error!r}"
            self.observed.unexpected.append(f"{life}: {error!r}")
        if life.dead:
            raise Killed
        self._ended(life, how)

    async def _crawl(self, life: Life) -> str:
        machine = life.machine
        stages = self.open(life)
        if lost := self._to_recover.get(machine.label):
            recover_links(stages, lost)
            del self._to_recover[machine.label]
        for request in self.first_commands.pop(machine.label, ()):
            Commands(stages, stages.commits.commit_now).run(request)
        seeds = [[self.world.web.url(0)]] if machine.name == "p0" else []
        others = {name: (name, PORT) for name in self.partition.names if name != machine.name}
        process = None
        try:
            process = Process(
                stages,
                pages_file=machine.folder / "pages.jsonl",
                seeds=seeds,
                member=Member(machine.name, crawl=CRAWL, addresses=others, secret=SECRET),
            )
            self.running[machine.label] = life, process
            self._graveyard.append((stages, process))
            self.opened[machine.label] = stages
            await process.exchange.start()
            await process.run()
        finally:
            if not life.dead:
                await self._leave(life, stages, process)
        return process.run_end.reason

    def open(self, life: Life, *, restore: bool = True) -> Stages:
        """Open the stages of a process.

        This is done to run the process, and for commands while it is down. `Stages` explains `restore`.
        """
        machine, settings = life.machine, self.world.settings
        clock = MachineClock(asyncio.get_running_loop().time, machine.wall_offset)
        host, port = self.addresses[machine.label]
        config = slowed(self.config, settings) if settings.slow and machine.name == "p0" else self.config
        splitter = msgspec.structs.replace(config.splitter, name=machine.name, listen=f"{host}:{port}")
        return Stages(
            msgspec.structs.replace(config, splitter=splitter),
            machine.folder / machine.name,
            SEED,
            clock=clock,
            name=machine.name,
            topology=Topology(machine.name, self.partition),
            restore=restore,
            environment=VirtualEnvironment(self.world, life),
        )

    async def _leave(self, life: Life, stages: Stages, process: Process | None) -> None:
        """Close a process in the same way as `api.Crawl.__aexit__`."""
        if process is not None:
            await process.exchange.close()
            process.close()
        failed = process is None or process.run_end.failure is not None
        self.observed.unexpected += [f"{life}: {each}" for each in stages.decisions.results.unexpected.counts]
        if not failed:
            self.stored[life.machine.label] = Stored.of(stages)
            self.observed.problems += [f"{life.machine.label}: {each}" for each in stages.views.problems()]
        stages.close(clean=not failed)

    def keep_stored(self, machine: Machine) -> None:
        """Keep the stored data of a running process for the judge."""
        if machine.label in self.running:
            self.stored[machine.label] = Stored.of(self.running[machine.label][1].stages)
        else:
            self.stored.pop(machine.label, None)

    # -- its end ----------------------------------------------------------------------

    def kill(self, life: Life, *, power: bool) -> None:
        """Kill a running process immediately, in the middle of its current step.

        After a power cut, the machine needs `BOOT` seconds until a process can start.
        """
        machine = life.machine
        self._forget(life, silent=power)
        if power:
            machine.has_power = False
            machine.booted_at = asyncio.get_running_loop().time() + BOOT
            machine.lose_power()

    def _learn_loss(self, life: Life, error: BehindError) -> None:
        """Recover the links that another process has lost.

        If no disk was copied or restored, record a bug instead.
        """
        if life.machine.name in self.observed.restored or self.observed.cloned_at:
            recover = partial(self._recover, error.peer, life.machine.name)
            asyncio.get_running_loop().call_soon(recover, context=nobody())
        else:
            self.observed.unexpected.append(f"{life}: {error}")

    def _recover(self, name: str, lost: str) -> None:
        """Restart the process `name`, and let it recover the links that `lost` has lost.

        The process is restarted, because links can be recovered only while it does not run. This is also true
        for the command `crawler recover`.
        """
        reached = self.world.wire.names[name]
        label = next(label for label, address in self.addresses.items() if address[0] == reached)
        machine = next(machine for machine in self.machines if machine.label == label)
        self._to_recover[label] = lost
        self._home.pop(label, None)
        if machine.life is not None:
            self.note_end(machine.life, "stopped to recover", killed=True)
            self.kill(machine.life, power=False)
        self._start_again(machine)

    def note_end(self, life: Life, how: str, *, killed: bool) -> None:
        """Record how a life ended."""
        self.observed.lives.append(LifeEnd(life.number, life.machine.label, _seconds(), how, killed))

    def _forget(self, life: Life, *, silent: bool) -> None:
        life.dead = True
        life.machine.life = None
        self.running.pop(life.machine.label, None)
        self._away.pop(life.machine.label, None)
        self.on_over(life)
        self.world.wire.end_of(life, silent=silent)
        self.world.system.end(life)

    def _ended(self, life: Life, how: str) -> None:
        """Handle a life that has ended by itself. Restart its process, unless the process has ended for good."""
        machine = life.machine
        away = self._away.get(machine.label)
        self.note_end(life, how, killed=False)
        self._forget(life, silent=False)
        refused = how.startswith(f"{DirectoryError.__name__}:")
        if away is not None and not refused:
            self.run_later(machine, away)
        if how not in FINISHED and not refused:
            if away is None:
                self._start_again(machine)
            return
        self._home[machine.label] = how
        if refused:
            self._hand_over(machine)
        self.look_at_end()

    def _start_again(self, machine: Machine) -> None:
        asyncio.get_running_loop().call_later(RESTART, self.start, machine, context=nobody())
        requests = len(self.world.log.rows)
        self._fruitless = self._fruitless + 1 if requests == self._requests else 0
        self._requests = requests
        if not self.world.settings.length and self._fruitless > FRUITLESS_MAX:
            self._on_end()

    def _hand_over(self, machine: Machine) -> None:
        """Let the peers of a stopped process connect to the other process of its name, as an operator would."""
        heirs = [
            other for other in self.machines if other.name == machine.name and other.label not in self._home
        ]
        # the peers have told the original and its copy to stop, so one must be restarted
        if not heirs and self.observed.cloned_at:
            heirs = [machine]
            del self._home[machine.label]
            self._start_again(machine)
        if heirs:
            newest = max(heirs, key=lambda each: each.life.number if each.life else 0)
            self.world.wire.names[machine.name] = self.addresses[newest.label][0]

    def look_at_end(self) -> None:
        """End the run if a process of each name has finished, or if all processes have ended for good."""
        if self.pending:
            return
        self.observed.survivors = {
            machine.name: machine.label
            for machine in self.machines
            if self._home.get(machine.label) in FINISHED
        }
        self.observed.ended = set(self.observed.survivors) == set(self.partition.names)
        if self.observed.ended or len(self._home) == len(self.machines):
            self._on_end()

    def bury(self) -> None:
        """Free all objects of ended processes."""
        self._graveyard.clear()
        self.running.clear()
        self.opened.clear()
        self.world.wire.listening.clear()
        self.world.wire.ends.clear()
        gc.unfreeze()
        gc.collect()


def _seconds() -> float:
    return asyncio.get_running_loop().time() - START
