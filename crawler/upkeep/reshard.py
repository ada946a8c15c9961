"""The steps of `crawler reshard` in a crawl directory, and the switch that a crash cannot halve.

        settle   every link that waits in an outbox is applied by its owner, every DUE is flushed
    build    DIR/.reshard/<name> for each new process: the keys of its buckets, from all old ones
    check    each new process is opened there and verified as `crawler check` does
    switch   the journal (`crawl/journal.py`) decides; then folders are renamed, the old ones removed

After a crash before the journal is written nothing has changed, and the next command removes
what was built (`journal.drop_unfinished`); after it the
next `reshard` finishes what the journal says, and everything else refuses the
directory.

DIR/.reshard/<name>   new processes, being built
DIR/.resharded/       old processes, until they are removed
"""

import contextlib
import shutil
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from crawler.clock import Clock
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import BUILT, Journal, end_journal, keep_journal, load_journal
from crawler.crawl.topology import TABLE_FILE, Topology, process_names, topology
from crawler.errors import DirectoryError, UsageError
from crawler.process.opening.stages import at_rest
from crawler.splitter.partition import Partition
from crawler.storage.faults import reach
from crawler.storage.files import Lock, atomic_write, sync_directory
from crawler.upkeep.build import Build, open_source, problems_of
from crawler.upkeep.deliver_pending import deliver_pending
from crawler.urls.fingerprint import Fingerprinter

REPLACED = ".resharded"
COMMAND = "reshard"


class Switch(msgspec.Struct, forbid_unknown_fields=True):
    """What the journal says of a switch: old and new processes, and the files that tell of them."""

    old: list[str]
    new: list[str]
    config: str
    table: str


class Resharding:
    """One reshard of the crawl in `directory` to the bucket table `target`.

    `config` is that of the crawl from then on. `say` is told each step.

    Raises:
        UsageError: the table is not newer than the one in use.
        DirectoryError: a process is missing or runs.
    """

    def __init__(
        self,
        directory: CrawlDirectory,
        config: Config,
        target: Partition,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._old_config = convert(directory.saved_config())
        self._old = process_names(self._old_config)
        self._config, self._target = config, target
        self._clock, self._say = clock, say
        self._old_table = topology(self._old_config, directory.path, self._old[0]).partition
        if target.epoch <= self._old_table.epoch:
            raise UsageError(
                f"the table's epoch is {target.epoch}, that in use has {self._old_table.epoch}: it must grow"
            )
        missing = set(self._old) - set(directory.process_names())
        if missing:
            raise DirectoryError(
                f"{directory.path}: {', '.join(sorted(missing))} is not here; `crawler recover` rebuilds what it had"
            )

    def run(self) -> None:
        """Move everything, verify it, and switch.

        Raises:
            DirectoryError: a process runs, or what was built is not whole; the crawl is as it was.
            StoreError: the disk failed; the crawl is as it was.
        """
        with Lock(self._directory.path / "supervisor.lock", "reshard"):
            self._settle()
            with contextlib.ExitStack() as stack:
                for name in self._old:
                    stack.enter_context(Lock(self._directory.process(name) / "node.lock", "reshard"))
                self._build()
                self._verify()
                self._switch()

    def _settle(self) -> None:
        self._say("settling: links on their way are applied, DUEs are flushed")
        with contextlib.ExitStack() as stack:
            processes = [
                stack.enter_context(at_rest(self._old_config, self._directory, name, clock=self._clock))
                for name in self._old
            ]
            deliver_pending(processes)
            problems = [f"{each.name}: {line}" for each in processes for line in each.views.problems()]
        if problems:
            raise DirectoryError(f"{self._directory.path}: {problems[0]}; run `crawler check` first")

    def _build(self) -> None:
        built = self._directory.path / BUILT
        shutil.rmtree(built, ignore_errors=True)
        urls = self._old_config.urls
        fingerprinter = Fingerprinter(
            self._directory.seed(),
            method=urls.fingerprint,
            partition=urls.partition,
            strip_session_ids=urls.strip_session_ids,
        )
        with contextlib.ExitStack() as stack:
            sources = {}
            for name in self._old:
                folder = self._directory.process(name)
                sources[name] = open_source(folder, name)
                stack.enter_context(contextlib.closing(sources[name].store))
            build = Build(
                self._old_config,
                sources,
                self._old_table,
                fingerprinter,
                engine=self._config.store.engine,
            )
            for name in self._target.names:
                self._say(f"building {name}")
                build.run(built / name, name, self._target)
        sync_directory(built)
        reach("reshard built")

    def _verify(self) -> None:
        built, seed = self._directory.path / BUILT, self._directory.seed()
        config = replace(self._config, crawl=replace(self._config.crawl, trace=False))
        for name in self._target.names:
            self._say(f"checking {name}")
            found = problems_of(config, built / name, seed, Topology(name, self._target), self._clock)
            if found:
                raise DirectoryError(
                    f"{built / name}: {found[0]} ({len(found)} problems); nothing was changed"
                )

    def _switch(self) -> None:
        switch = Switch(
            old=self._old,
            new=list(self._target.names),
            config=self._directory.config_text(self._config),
            table=self._target.encode().decode(),
        )
        keep_journal(self._directory.path, Journal(COMMAND, facts=msgspec.to_builtins(switch)))
        reach("reshard decided")
        finish(self._directory)


def finish(directory: CrawlDirectory) -> bool:
    """Do what the journal says, from wherever a crash left it; whether there was one."""
    journal = load_journal(directory.path)
    if journal is None or journal.command != COMMAND:
        return False
    switch = msgspec.convert(journal.facts, Switch)
    built, replaced = directory.path / BUILT, directory.path / REPLACED
    replaced.mkdir(exist_ok=True)
    for name in switch.old:
        switched = name in switch.new and not (built / name).exists()
        if not switched and directory.process(name).exists():
            directory.process(name).rename(replaced / name)
            reach("reshard replaced")
    for name in switch.new:
        if (built / name).exists():
            (built / name).rename(directory.process(name))
            reach("reshard renamed")
    for name in switch.new:
        directory.note_state(name, 0)  # its store is a new one
    for name in set(switch.old) - set(switch.new):
        directory.forget_begun(name)
    atomic_write(directory.path / TABLE_FILE, switch.table.encode())
    atomic_write(directory.config_file, switch.config.encode())
    sync_directory(directory.path)
    shutil.rmtree(built, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    end_journal(directory.path)
    return True
