"""A reshard in a virtual world. The crawler's own code divides the stopped crawl among other processes.

    settle, build, check    `upkeep/deliver_pending.py`, `upkeep/build.py`, `upkeep/check.py`
    switch                  here: every new process gets a new machine, and the old machines are removed

During the reshard, all folders are on one virtual computer, like the folders of one crawl directory. A power
cut during a reshard is not simulated; `tests/end_to_end/test_resharding.py` kills real reshards at each step.
"""

import random
import shutil
from contextlib import AbstractContextManager, ExitStack

import numpy as np

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DirectoryError
from crawler.lab.cluster.machine import Machine
from crawler.lab.cluster.population import SEED, Population
from crawler.pages.withdrawals import RuleFile, load_rules
from crawler.process.opening.stages import Stages, closing_stages
from crawler.splitter.partition import Partition
from crawler.storage.keys import BUCKETS
from crawler.storage.kv import KeyValue
from crawler.upkeep.build import Build, keep_counts, source_of
from crawler.upkeep.check import check
from crawler.upkeep.deliver_pending import deliver_pending
from crawler.urls.fingerprint import Fingerprinter

PROCESSES_MAX = 5
RANGES_MAX = 12  # maximum number of ranges of buckets in a table that is not equally divided


def draw_table(rng: random.Random, old: Partition) -> Partition:
    """Draw a bucket table of 1 to `PROCESSES_MAX` processes.

    Its ranges are equal, or have random lengths and owners.
    """
    names = [f"p{k}" for k in range(rng.randint(1, PROCESSES_MAX))]
    if rng.random() < 0.5:
        return Partition.equal_ranges(names, epoch=old.epoch + 1)
    cuts = sorted(rng.sample(range(1, BUCKETS), len(names) + rng.randint(0, RANGES_MAX - len(names)) - 1))
    owners = [*range(len(names)), *(rng.randrange(len(names)) for _ in range(len(cuts) + 1 - len(names)))]
    rng.shuffle(owners)
    lengths = np.diff([0, *cuts, BUCKETS])
    return Partition(names, np.repeat(np.array(owners, np.uint16), lengths), epoch=old.epoch + 1)


class Reshard:
    """Divides a crawl by the bucket table `target`. All processes of the crawl must be down.

    Raises:
        CrawlerError: a disk failed, or a process is behind its peers; the crawl is settled, but otherwise
            unchanged.
    """

    def __init__(self, population: Population, target: Partition, rng: random.Random) -> None:
        self._population = population
        self._target = target
        self._rng = rng
        self._old = {machine.name: machine for machine in population.machines}

    def run(self) -> None:
        """Divide the crawl."""
        self._settle()
        made = self._build()
        self._verify(made)
        self._switch(made)

    def _opened(self, machine: Machine, *, restore: bool = True) -> AbstractContextManager[Stages]:
        return closing_stages(self._population.open(self._population.new_life(machine), restore=restore))

    def _settle(self) -> None:
        with ExitStack() as stack:
            processes = [stack.enter_context(self._opened(machine)) for machine in self._old.values()]
            deliver_pending(processes)
            problems = [f"{each.name}: {line}" for each in processes for line in each.views.problems()]
        if problems:
            raise DirectoryError(problems[0])

    def _build(self) -> list[Machine]:
        population = self._population
        sources = {
            name: source_of(machine.folder / name, name, machine.open_store(machine.folder / name / "store"))
            for name, machine in self._old.items()
        }
        build = Build(population.config, sources, population.partition, Fingerprinter(SEED))
        made = [self._new_machine(name) for name in self._target.names]
        known = {
            machine.name: build.run(
                machine.folder / machine.name, _store_of(machine), machine.name, self._target
            )
            for machine in made
        }
        for machine in made:
            keep_counts(_store_of(machine), machine.name, known, self._rng.randbytes)
        return made

    def _new_machine(self, name: str) -> Machine:
        folder = self._population.folder / f"table-{self._target.epoch}" / name
        shutil.rmtree(folder, ignore_errors=True)  # an attempt that failed may have left files
        (folder / name).mkdir(parents=True)
        machine = Machine(name, name, folder.resolve(), self._rng)
        old = self._old.get(name, next(iter(self._old.values())))
        machine.wall_offset = old.wall_offset
        self._population.add_address(name)
        for rule in sorted(
            {rule for each in self._old.values() for rule in load_rules(each.folder)}, key=repr
        ):
            RuleFile(folder, self._population.config.pages.withdrawals_max).add(rule)
        return machine

    def _verify(self, made: list[Machine]) -> None:
        before, self._population.partition = self._population.partition, self._target
        try:
            for machine in made:
                with self._opened(machine, restore=False) as stages:
                    if problems := check(stages):
                        raise DirectoryError(f"{machine.name}: {problems[0]} ({len(problems)} problems)")
        except BaseException:
            self._population.partition = before
            raise

    def _switch(self, made: list[Machine]) -> None:
        for machine in made:
            CrawlDirectory(machine.folder).note_state(machine.name, 0)
            machine.settle_files()
        self._population.replace_machines(made, self._target)
        for machine in self._old.values():
            shutil.rmtree(machine.folder)


def _store_of(machine: Machine) -> KeyValue:
    return machine.open_store(machine.folder / machine.name / "store")
