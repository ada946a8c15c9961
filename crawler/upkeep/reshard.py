"""The steps of `crawler reshard`. The last step, the switch, is completed even after a crash.

    settle   every link that waits in an outbox is applied by its owner, every DUE is flushed
    build    DIR/.reshard/<name> for each new process: the keys of its buckets, from all old ones
    check    each new process is opened there and verified as by `crawler check`
    switch   the journal (`crawl/journal.py`) is written, which decides; then folders are renamed, old ones removed

If a crash comes before the journal is written, nothing has changed, and the next command removes what was
built (`journal.drop_unfinished`). If a crash comes after the journal is written, the next command completes
the switch that the journal describes (`crawl/switch.py`).

DIR/.reshard/<name>   new processes, being built
DIR/.resharded/       old processes, until they are removed
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import BUILT, REPLACED, Journal, keep_journal
from crawler.crawl.process_names import process_names
from crawler.crawl.switch import COMMAND, Switch, complete
from crawler.crawl.topology import Topology, topology
from crawler.errors import DirectoryError, UsageError
from crawler.process.opening.stages import at_rest
from crawler.splitter.partition import Partition
from crawler.storage.engines import open_store
from crawler.storage.faults import reach
from crawler.storage.files import Lock, store_errors, sync_directory
from crawler.storage.kv import DiskStore
from crawler.upkeep.build import Build, keep_counts, open_source, problems_of
from crawler.upkeep.deliver_pending import deliver_pending
from crawler.urls.fingerprint import fingerprinter_of
from crawler.wording import several


class Resharding:
    """One reshard of the crawl in `directory` to the bucket table `target`.

    `config` is the configuration of the crawl after the reshard. `say` is called with a line about each step.

    Raises:
        UsageError: the table is not newer than the one in use.
        DirectoryError: a process is missing or running.
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
        self._old_config = directory.settings.config()
        self._old = process_names(self._old_config)
        self._config, self._target = config, target
        self._clock, self._say = clock, say
        self._old_table = topology(self._old_config, directory.path, self._old[0]).partition
        if target.epoch <= self._old_table.epoch:
            raise UsageError(
                f"the table's epoch is {target.epoch}, but it must be larger than the current {self._old_table.epoch}"
            )
        missing = set(self._old) - set(directory.process_names())
        if missing:
            raise DirectoryError(
                f"{directory.path}: these processes are missing: {', '.join(sorted(missing))}; "
                "`crawler recover` rebuilds their to-do lists"
            )

    def run(self) -> None:
        """Build and verify the new processes, and switch to them.

        Raises:
            DirectoryError: a process is running, or the result is incomplete; the crawl is unchanged.
            StoreError: the disk failed. Either the crawl is unchanged, or the next command completes the switch.
        """
        with Lock(self._directory.path / "supervisor.lock", "reshard"):
            self._settle()
            with contextlib.ExitStack() as stack:
                for name in self._old:
                    stack.enter_context(Lock(self._directory.process(name) / "node.lock", "reshard"))
                with self._removed_on_error():
                    self._build()
                    self._verify()
                self._switch()

    @contextlib.contextmanager
    def _removed_on_error(self) -> Iterator[None]:
        """Remove the new folders if the block fails: they take disk space, and perhaps the disk is full."""
        try:
            yield
        except BaseException:
            shutil.rmtree(self._directory.path / BUILT, ignore_errors=True)
            raise

    def _settle(self) -> None:
        self._say("settling: applying links in transit, flushing DUEs")
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
        for left in (built, self._directory.path / REPLACED):
            _remove(left)
        fingerprinter = fingerprinter_of(self._old_config.urls, self._directory.seed())
        with contextlib.ExitStack() as stack:
            sources = {}
            for name in self._old:
                folder = self._directory.process(name)
                sources[name] = open_source(folder, name)
                stack.enter_context(contextlib.closing(sources[name].store))
            build = Build(self._old_config, sources, self._old_table, fingerprinter)
            known = {}
            for name in self._target.names:
                self._say(f"building {name}")
                (built / name).mkdir(parents=True)
                with self._new_store(name) as store:
                    known[name] = build.run(built / name, store, name, self._target)
            for name in self._target.names:
                with self._new_store(name) as store:
                    keep_counts(store, name, known)
        sync_directory(built)
        reach("reshard built")

    def _new_store(self, name: str) -> "contextlib.closing[DiskStore]":
        path = self._directory.path / BUILT / name / "store"
        return contextlib.closing(open_store(path, self._config.store.engine))

    def _verify(self) -> None:
        built, seed = self._directory.path / BUILT, self._directory.seed()
        config = replace(self._config, crawl=replace(self._config.crawl, trace=False))
        for name in self._target.names:
            self._say(f"checking {name}")
            found = problems_of(config, built / name, seed, Topology(name, self._target), self._clock)
            if found:
                raise DirectoryError(
                    f"{built / name}: {found[0]} ({several(len(found), 'problem')}); nothing was changed"
                )

    def _switch(self) -> None:
        switch = Switch(
            old=self._old,
            new=list(self._target.names),
            config=self._directory.settings.text(self._config),
            table=self._target.encode().decode(),
        )
        keep_journal(self._directory.path, Journal(COMMAND, facts=msgspec.to_builtins(switch)))
        reach("reshard decided")
        with store_errors(self._directory.path, "finish the reshard"):
            complete(self._directory, switch)


def _remove(left: Path) -> None:
    """Remove a folder that an earlier reshard has left behind; raise DirectoryError if it is, for example, a file."""
    try:
        shutil.rmtree(left)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DirectoryError(f"{left}: cannot be removed: {error.strerror}; remove it yourself") from error
