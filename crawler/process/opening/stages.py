"""The parts of one process, opened together from its directory, without any loop or network.

`Stages` is the composition root: it takes the lock, opens the store, constructs each part, and passes it to
the parts that depend on it. It decides nothing.

    context         settings, clock, place in the crawl, environment
    the stages      store, pages, robots, due, refresh, frontier, outbox, inbox     assembly.py
    link filter     which links are followed                                        assembly.py
    decisions       admission, signals, results; made on first use                  decisions.py
    commits         the commit point, flushes and merges of the DUE                 committing/commits.py
    views           counts, invariants, freshness                                   process_views.py

`Process` drives the stages while it crawls. Commands on a directory at rest open the same stages, make their
changes through the same commit point, and close the stages again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.blocked_hosts import add_blocked, load_blocked
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.immutable_settings import keep_immutable, refreshes
from crawler.crawl.lost_processes import check_for_loss
from crawler.crawl.topology import Topology, keep_topology, topology
from crawler.errors import DamageError, DirectoryError, StoreError, system_failed
from crawler.kernel_selection import tell_of_kernels
from crawler.pages import released
from crawler.pages.captures import record_key
from crawler.process.committing.commits import Commits
from crawler.process.opening import assembly
from crawler.process.opening.environment import Environment
from crawler.process.opening.lost_state import stage_state, state_of
from crawler.process.opening.private_copy import private_copy, signature
from crawler.process.opening.process_context import ProcessContext
from crawler.process.opening.process_parts import ProcessParts
from crawler.process.opening.process_views import ProcessViews
from crawler.records import Link, LinkFlag
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, CommitPoint
from crawler.storage.faults import reach
from crawler.storage.files import Lock, closed_on_error, is_held, reserve, sync_directory
from crawler.storage.keys import CLEAN, EQUIVALENCES, RUNNING
from crawler.storage.kv import Batch
from crawler.storage.reshard import load_json
from crawler.urlfilter.kept_verdicts import KeptVerdicts
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import fingerprinter_of
from crawler.wording import several

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh
    from crawler.process.opening.decisions import Decisions

log = logging.getLogger("crawler")

_LEAD_SAID = 60.0  # number of seconds; smaller jumps of the clock are not logged

LOCK = "node.lock"
BALLAST = "ballast"
_READING_TRIES = 5  # number of tries, because a process may change its files while a reader copies them
_NEWS = LinkFlag.NEWS  # the flag of a link found on a refetched page; that page gets the credit for the link


class Stages(ProcessParts):
    """The stages of one process, stored in `DIR/<name>` and opened while the folder is locked.

    `seed` is the secret of the crawl, 16 bytes. `topology` names the other processes (None if there are
    none). `priority` returns a link's place in its queue (`Frontier`). With `restore`, pages whose stored
    copies are lost are queued again. With `brief`, the stages will be closed soon, so other processes that
    open them wait for the lock. With both `brief` and `lasting`, the other processes do not wait. With
    `copy`, a private copy of the store and the DUE is opened, without a lock. Changes to this copy are lost
    when it is closed. `environment` defaults to the operating system.

    Raises:
        BusyError: another process holds the lock.
        DirectoryError: the folder is damaged, or belongs to another seed.
        StoreError: the disk is full or fails.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        seed: bytes,
        *,
        clock: Clock,
        name: str = "p0",
        topology: Topology | None = None,
        url_filter: Callable[[str], bool] | None = None,
        priority: Callable[[Link], int] | None = None,
        restore: bool = True,
        brief: bool = False,
        lasting: bool = False,
        copy: Path | None = None,
        environment: Environment | None = None,
    ) -> None:
        environment = environment or Environment()
        topology = topology or Topology(name, Partition.equal_ranges([name]))
        boot_id = environment.random_bytes(8).hex()
        self._run = "" if brief else boot_id  # only a run of the crawl changes the mark `RUNNING`
        self.context = ProcessContext(config, directory, clock, name, topology, environment, boot_id, copy)
        self.directory, self.clock, self.name, self.topology = directory, clock, name, topology
        check_for_loss(directory)
        self.lock: Lock | None = None
        self._open_files = ExitStack()  # closes the files of all parts, the last opened first
        with closed_on_error(self._open_files.close):
            with _disk_errors(directory):
                if copy is None:
                    directory.mkdir(parents=True, exist_ok=True)
                    self.lock = Lock(directory / LOCK, name, boot_id=boot_id, brief=brief and not lasting)
                    self._open_files.callback(self.lock.release)
                self._open(seed, url_filter, priority, brief=brief)
                if self.lock is not None:
                    CrawlDirectory(directory.parent).note_state(name, self.state)
            self.restored = self._restore_lost() if restore else 0
            self.counters_before: Counter[str] = Counter(self.point.counters)

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.context.config

    def _open(
        self,
        seed: bytes,
        url_filter: Callable[[str], bool] | None,
        priority: Callable[[Link], int] | None,
        *,
        brief: bool,
    ) -> None:
        """Open the stages in the order of their dependencies."""
        context = self.context
        files = self._open_files
        self.store, self.mended = assembly.open_store(context)
        store = self.store
        files.callback(store.close)
        self.state = state_of(store, self.directory)
        keep_topology(store, self.topology, self.directory)
        keep_immutable(store, self.config)
        self.equivalences = Equivalences(load_json(store, EQUIVALENCES))
        printer = self.fingerprinter = fingerprinter_of(self.config.urls, seed, self.equivalences)
        self.robots = assembly.make_robots(context, store)
        self.pages = assembly.make_page_cache(context, store, printer)
        files.callback(self.pages.close, finish=False)
        self.due = assembly.make_eliminator(context, store, printer)
        files.callback(self.due.close)
        self.refresh = None
        if refreshes(self.config):
            self.refresh = assembly.make_refresh(context, self.pages, self.robots, printer)
            self.changes = self.refresh.changes
        else:
            self.changes = assembly.make_kept_signals(context, store, self.robots)
        journal = assembly.make_journal(context, brief=brief)
        files.callback(journal.close)
        self.frontier = assembly.make_frontier(
            context, store, robots=self.robots, fingerprinter=printer, refresh=self.refresh, priority=priority,
            withdrawn=self.pages.withdrawals.stops, journal=journal,
        )  # fmt: skip
        if self.lock is not None:
            self._sync_names()
        clean = self.was_clean = self._note_opening()
        self.frontier.open(self.clock.now(), clean=clean, reading=context.copy is not None)
        if self.refresh is not None:
            self.refresh.open(store, self.pages.stored_records, self.clock.now())
            if self.refresh.lead > _LEAD_SAID:
                log.warning(
                    "the clock was ahead in an earlier run: pages fetched up to %.1f days in the future count as "
                    "fetched now",
                    self.refresh.lead / 86_400.0,
                )
        self.outbox, self.inbox = assembly.make_splitter(
            context, store, whole=clean or context.outlasts_power_cut
        )
        self.point = self._commit_point()
        self.commits = Commits(self.point, self.due, self.frontier, self.clock)
        if context.copy is None:
            self._agree_on_blocks()
            if self.refresh is not None:
                self._apply_kept_signals(self.refresh)
        self.trace = assembly.make_trace(context)
        if self.trace is not None:
            files.callback(self.trace.abandon)
        self.verdicts = KeptVerdicts(url_filter, store) if url_filter is not None else None
        self.intake = assembly.make_link_filter(
            context, store, printer, self.verdicts, self.pages.withdrawals.stops
        )
        self.views = ProcessViews(self, brief=brief)

    def _agree_on_blocks(self) -> None:
        """Block each own host that is blocked in the store or in `blocked.json` in both (`crawl/blocked_hosts.py`)."""
        folder, blocks, owner = self.directory.parent, self.frontier.blocks, self.topology.partition.owner
        stored, listed = blocks.names(), load_blocked(folder)
        own = {host for host in listed if owner(self.fingerprinter.host_key(host)) == self.name}
        if lost := own - stored:
            for host in lost:
                blocks.block(host)
            change = Change(sync=True)
            blocks.stage(change)
            self.commits.commit_now(change)
            log.warning(
                "the store had lost the blocks of %s; they are in force again", several(len(lost), "host")
            )
        if stored - listed:
            add_blocked(folder, stored)

    def _apply_kept_signals(self, refresh: "Refresh") -> None:
        """Give the signals that runs without refreshes have received to the schedule."""
        from crawler.frontier.refresh.kept_signals import applied

        for change in applied(self.store, refresh.changes, self.clock.now()):
            self.commits.commit_now(change)

    @cached_property
    def decisions(self) -> "Decisions":
        """The objects that decide about links, signals and results. `status` and `why` need none of them."""
        from crawler.process.opening.decisions import Decisions

        decisions = Decisions(self)
        self._open_files.callback(decisions.close)
        return decisions

    def _commit_point(self) -> CommitPoint:
        return CommitPoint(
            self.store,
            pages=self.pages,
            due=self.due,
            outbox=self.outbox,
            inbox=self.inbox,
            group_entries_max=self.config.store.group_entries_max,
            sync=self.context.outlasts_power_cut,
        )

    def _sync_names(self) -> None:
        """Sync the folders, so that the names of new files survive a power cut."""
        sync_directory(self.directory)
        sync_directory(self.directory.absolute().parent)

    def _note_opening(self) -> bool:
        """Return whether the last program that used the folder ended cleanly.

        Until `close`, this program counts as not ended cleanly.
        """
        clean = self.store.get(CLEAN) is not None
        self._begin_state(self.store.batch(sync=True), clean=False, run=self._run)
        return clean

    def died(self) -> bool:
        """Return whether the latest run of this process did not end cleanly.

        Only the next run changes the answer; other commands that open the folder leave it as it is.
        """
        run = self.store.get(RUNNING)
        return run is not None and not is_held(self.directory / LOCK, run.decode())

    def _begin_state(self, batch: Batch, *, clean: bool, run: str) -> None:
        """Write and sync `batch` as the first batch of a new state."""
        self.state += 1
        stage_state(batch, self.state, clean=clean, run=run)
        self.store.write(batch)

    def reserve_ballast(self) -> None:
        """Reserve disk space that `crawler check --repair` can free when the disk is full.

        Raises:
            StoreError: the disk has no room for it.
        """
        ballast, size = self.directory / BALLAST, self.config.store.ballast_bytes
        if size and not (ballast.exists() and ballast.stat().st_size == size):
            reserve(ballast, size)

    def _restore_lost(self) -> int:
        """Queue again the pages of WARC segments that are missing or too short. Return the number of these pages."""
        lost = self.pages.lost
        if not lost:
            return 0
        records = {item.fingerprint: self.pages.record(item.fingerprint) for item in lost}
        links = [
            record.link(fingerprint, record.flags & ~_NEWS)
            for fingerprint, record in records.items()
            if record is not None
        ]
        change = self.commits.queue_again(links)
        for link in links:
            change.delete(record_key(link.fingerprint))
        change.count("stored.records", -len(links))
        change.count("stored.captures", -len(lost))
        self.pages.forget(change)
        self.commits.commit(change)
        segments = ", ".join(self.pages.recovery.damaged)
        log.error("%s missing or short: %d pages will be fetched again", segments, len(links))
        return len(links)

    def close(self, *, clean: bool = True, orphaned: bool = False) -> None:
        """Close the folder. If `clean` is false, a write has failed, so nothing more is written.

        `orphaned` means that the supervisor was killed. All data is stored, but this run then counts as not
        ended cleanly.
        """
        with self._open_files:
            if self.lock is not None and clean:
                self._write_rest(run="" if orphaned else self._run)

    def _write_rest(self, run: str) -> None:
        if self.trace is not None:
            self.trace.close()
        self.pages.close()
        reach("closing")
        batch = self.store.batch(sync=True)
        self.frontier.flush(batch, self.clock.now())
        self._begin_state(batch, clean=True, run=run)
        CrawlDirectory(self.directory.parent).note_state(self.name, self.state)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn the error of a full or failing disk into a StoreError, whichever operation meets the error first."""
    try:
        yield
    except (OSError, DirectoryError) as error:
        if system_failed(error):
            raise StoreError(f"{folder}: {error}") from error
        raise


@contextmanager
def closing_stages(stages: Stages) -> Iterator[Stages]:
    """Close the stages at the end of the block; the close is clean unless the block raises."""
    clean = False
    try:
        yield stages
        clean = True
    finally:
        stages.close(clean=clean)


@contextmanager
def at_rest(
    config: Config,
    directory: CrawlDirectory,
    name: str,
    *,
    clock: Clock,
    restore: bool = True,
    lasting: bool = False,
) -> Iterator[Stages]:
    """Open the stages of one process of a crawl that is not running, under its lock.

    `restore` and `lasting` mean the same as for `Stages`.
    """
    with closing_stages(_stages(config, directory, name, clock, restore=restore, lasting=lasting)) as stages:
        yield stages


@contextmanager
def reading(config: Config, directory: CrawlDirectory, name: str, *, clock: Clock) -> Iterator[Stages]:
    """Open a private copy of the stages of one process, which may be running. Nothing is locked or changed.

    Raises:
        DirectoryError: the folder is damaged, or this user may not read it.
        StoreError: there is no room for the copy.
    """
    folder = directory.process(name)
    check_for_loss(folder)
    with ExitStack() as stack:
        stack.enter_context(released.reading(folder / "warc"))
        for attempt in range(1, _READING_TRIES + 1):
            before, copies = signature(folder), list[Path]()

            def opened(copy: Path, copies: list[Path] = copies) -> Stages:
                copies.append(copy)
                return _stages(config, directory, name, clock, restore=False, copy=copy)

            try:
                stages = stack.enter_context(private_copy(folder, opened))
                break
            except DamageError as error:
                if before == signature(folder) or attempt == _READING_TRIES:
                    raise DamageError(_named(str(error), copies, folder)) from error
        stack.callback(stages.close)
        yield stages


def _named(text: str, copies: Sequence[Path], folder: Path) -> str:
    """Return a message with the name of `folder` instead of the names of its copies."""
    for copy in copies:
        text = text.replace(str(copy), str(folder))
    return text


def _stages(config: Config, directory: CrawlDirectory, name: str, clock: Clock, **how: Any) -> Stages:
    tell_of_kernels(log.warning)
    # A reader does not crawl, so it has no trace.
    config = replace(config, crawl=replace(config.crawl, trace=False))
    folder, seed = directory.process(name), directory.seed()
    place = topology(config, directory.path, name)
    return Stages(config, folder, seed, clock=clock, name=name, topology=place, brief=True, **how)
