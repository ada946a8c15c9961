"""Injects the faults of a plan (`fault_plan.py`) into machines: their processes, connections, disks and clocks."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from crawler.lab.cluster.cluster_settings import START
from crawler.lab.cluster.disk import StoreDisk
from crawler.lab.cluster.fault_plan import QUOTA, Fault
from crawler.lab.cluster.machine import CURRENT, Killed, Life, Machine, nobody
from crawler.lab.cluster.operator_acts import OperatorActs
from crawler.lab.cluster.population import PORT, Population

# Seconds that a kill waits until the process reaches its point. After that, the process is killed wherever it
# is.
POINT_WAIT = 60.0
# kinds of faults that need a running process
OF_LIVES = ("kill", "power", "clock", "stop", "clone", "restore", "lost-disk")


class FaultInjector:
    """Injects each fault at its instant, or when a process reaches the point of its code that the fault names."""

    # kind of fault -> its method; faults of these kinds take effect at once
    AT_ONCE = {
        "partition": "_part",
        "one-way": "_part",
        "loss": "_lose",
        "slow-disk": "_slow_down",
        "full-disk": "_fill",
        "clock": "_jump",
        "stop": "_freeze",
        "clone": "_clone",
        "restore": "_back_up",
        "lost-disk": "_replace_disk",
    }

    def __init__(self, population: Population) -> None:
        self._population = population
        self._wire = population.world.wire
        self._done = population.observed.done
        # Machine -> (the next fault that is tied to a point of the code, the number of visits of this point
        # until the fault happens).
        self._armed: dict[str, tuple[Fault, int]] = {}
        # machine -> a point at which its next process is killed, so that processes are also killed while they
        # start
        self._next: dict[str, Fault] = {}
        self._operator = OperatorActs(population)
        population.on_begin, population.on_over = self._begun, self._over

    def schedule(self, plan: Sequence[Fault]) -> None:
        for fault in plan:
            if fault.kind in OperatorActs.METHODS:
                self._population.later(fault.at, partial(self._act, fault))
            else:
                asyncio.get_running_loop().call_at(START + fault.at, self._strike, fault)

    def _machine(self, number: int) -> Machine:
        """Return a machine by its number in the plan.

        After a reshard, there may be fewer machines than in the plan.
        """
        machines = self._population.machines
        return machines[number % len(machines)]

    def _act(self, fault: Fault) -> None:
        self._done.append(fault)
        self._operator.carry_out(fault)

    def visited(self, point: str) -> None:
        """Record that the current life has reached a point of its code.

        Raises:
            Killed: a fault has ended the life at this point, or the life was dead already.
        """
        life = CURRENT.get()
        if life is None:
            return
        if life.dead:
            raise Killed
        fault, left = self._armed.get(life.machine.label, (None, 0))
        if fault is None or fault.point != point:
            return
        if left > 1:
            self._armed[life.machine.label] = fault, left - 1
            return
        del self._armed[life.machine.label]
        if fault.kind == "reset":
            self._reset(life.machine, fault)
        elif fault.amount:
            loop = asyncio.get_running_loop()
            loop.call_later(fault.amount, self._fall_behind, life, fault, context=nobody())
        else:
            self._fell(life, fault, point)
            raise Killed

    def _begun(self, life: Life) -> None:
        if fault := self._next.pop(life.machine.label, None):
            self._arm(life, fault)

    def _over(self, life: Life) -> None:
        self._armed.pop(life.machine.label, None)

    def _strike(self, fault: Fault) -> None:
        machine = self._machine(fault.machines[0])
        life = machine.life
        if life is None and fault.kind in OF_LIVES:
            if fault.point:
                self._next[machine.label] = fault
            return
        if method := self.AT_ONCE.get(fault.kind):
            self._done.append(fault)
            getattr(self, method)(machine, fault)
        elif fault.kind == "reset":
            self._break(machine, fault)
        else:
            assert life is not None
            if fault.point:
                self._arm(life, fault)
            else:
                self._fell(life, fault, "")

    # -- ends of lives ------------------------------------------------------------------

    def _arm(self, life: Life, fault: Fault) -> None:
        """Kill a process when it reaches the fault's point in the code, or after `POINT_WAIT`."""
        self._armed[life.machine.label] = fault, fault.visits
        loop = asyncio.get_running_loop()
        loop.call_later(POINT_WAIT, self._strike_anyway, life, fault, context=nobody())

    def _strike_anyway(self, life: Life, fault: Fault) -> None:
        """Kill a process that has not reached the fault's point in the code."""
        armed = self._armed.get(life.machine.label)
        if not life.dead and armed is not None and armed[0] is fault:
            self._fell(life, fault, "")

    def _fall_behind(self, life: Life, fault: Fault) -> None:
        """Kill a process a moment after it has passed the fault's point in the code, unless it is already dead."""
        if not life.dead:
            self._fell(life, fault, f"{fault.amount:.3f} s after {fault.point}")

    def _fell(self, life: Life, fault: Fault, where: str) -> None:
        """Kill a running process and schedule its next start."""
        if fault.kind not in self.AT_ONCE:
            self._done.append(fault)
        self._population.note_end(life, f"{fault.kind} at {where or 'any instant'}", killed=True)
        self._population.kill(life, power=fault.kind == "power")
        again = partial(self._population.start, life.machine)
        asyncio.get_running_loop().call_later(fault.length, again, context=nobody())

    def _jump(self, machine: Machine, fault: Fault) -> None:
        assert machine.life is not None
        machine.wall_offset += fault.amount
        self._fell(machine.life, fault, f"a jump of the clock by {fault.amount:.0f} s")

    def _freeze(self, machine: Machine, fault: Fault) -> None:
        assert machine.life is not None
        machine.life.frozen_until = asyncio.get_running_loop().time() + fault.length

    # -- the wires ------------------------------------------------------------------------

    def _break(self, machine: Machine, fault: Fault) -> None:
        """Break the connections of a machine.

        If the fault names a point, the connections break when the process reaches that point.
        """
        if fault.point:
            self._armed.setdefault(machine.label, (fault, fault.visits))
        else:
            self._reset(machine, fault)

    def _reset(self, machine: Machine, fault: Fault) -> None:
        self._done.append(fault)
        self._wire.reset(machine.label, both=bool(fault.amount))

    def _part(self, machine: Machine, fault: Fault) -> None:
        """Drop all messages from a machine to others, and in a partition also those in the other direction."""
        others = (self._machine(k).label for k in fault.machines[1:])
        pairs = {(machine.label, other) for other in others if other != machine.label}
        if fault.kind == "partition":
            pairs |= {(other, label) for label, other in pairs}
        self._wire.cut |= pairs
        asyncio.get_running_loop().call_later(fault.length, self._wire.cut.difference_update, pairs)

    def _lose(self, machine: Machine, fault: Fault) -> None:
        self._wire.loss = fault.amount
        asyncio.get_running_loop().call_later(fault.length, setattr, self._wire, "loss", 0.0)

    # -- the disks ------------------------------------------------------------------------

    def _slow_down(self, machine: Machine, fault: Fault) -> None:
        machine.slowness = fault.amount
        asyncio.get_running_loop().call_later(fault.length, setattr, machine, "slowness", 1.0)

    def _fill(self, machine: Machine, fault: Fault) -> None:
        machine.room, machine.tells_room = fault.amount, fault.point != QUOTA
        asyncio.get_running_loop().call_later(fault.length, setattr, machine, "room", math.inf)

    def _clone(self, machine: Machine, fault: Fault) -> None:
        """Copy a machine with its disk. Start the copy at another address after `amount` seconds."""
        population, loop = self._population, asyncio.get_running_loop()
        number = len(population.machines)
        label = f"{machine.label}-copy{number}"
        copy = population.add_machine(label, machine.name, machine.folder.with_name(label))
        copy.store = machine.copy_disk(copy.folder)
        copy.wall_offset = machine.wall_offset
        population.addresses[label] = (f"10.0.1.{number}", PORT)
        population.observed.cloned_at = population.observed.cloned_at or loop.time()
        loop.call_later(fault.amount, population.start, copy, context=nobody())

    def _back_up(self, machine: Machine, fault: Fault) -> None:
        """Back up a disk. Restore the disk from the backup after `amount` seconds."""
        folder = machine.folder.with_name(f"{machine.label}-backup{len(self._done)}")
        put_back = partial(self._put_back, machine, fault, folder, machine.copy_disk(folder))
        asyncio.get_running_loop().call_later(fault.amount, put_back, context=nobody())

    def _replace_disk(self, machine: Machine, fault: Fault) -> None:
        """Replace a disk by an empty disk. The process then starts as if it had never run."""
        folder = machine.folder.with_name(f"{machine.label}-empty{len(self._done)}")
        folder.mkdir()
        self._put_back(machine, fault, folder, StoreDisk())

    def _put_back(self, machine: Machine, fault: Fault, folder: Path, store: StoreDisk) -> None:
        """Replace a disk by its backup or by an empty disk. The data that the process has stored since is lost.

        If the process knows that the crawl has ended, the fault is skipped: the other processes would have to
        recover the lost links, but they are then ending, too. In a run, only one process (on any machine)
        ever gets another disk. If two processes were restored, links from one to the other, and links that
        both had found, could be lost although the crawler has no bug.
        """
        population, life = self._population, machine.life
        running = population.running.get(machine.label)
        alone = set(population.observed.restored) <= {machine.name}
        # After a reshard, a backup cannot be restored, because it has the old bucket table.
        resharded = fault.kind == "restore" and population.observed.resharded
        if (
            alone
            and not resharded
            and life is not None
            and running is not None
            and not running[1].exchange.ended
        ):
            what = "an empty disk" if fault.kind == "lost-disk" else f"a backup of {fault.amount:.1f} s ago"
            self._fell(life, fault, what)
            machine.put_back(folder, store)
            population.observed.restored[machine.name] = asyncio.get_running_loop().time()
