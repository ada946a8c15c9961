"""Opens the archives of a crawl, even while processes have the stores open.

Each archive shows one committed state of its store.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from crawler.clock import iso_time
from crawler.config import Config
from crawler.consent.use_rule import UseRule
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.lost_processes import begun_names, check_for_loss
from crawler.crawl.topology import topology
from crawler.errors import DirectoryError
from crawler.frontier.permission import Permission
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.refresh.stored_view import stored_view
from crawler.pages import released
from crawler.pages.archive import Archive
from crawler.pages.captures import is_copy
from crawler.pages.formats.selection import Refused, Say, ignore
from crawler.pages.withdrawals import Withdrawals
from crawler.records import Capture, PageRecord
from crawler.robots.cache import RobotsCache
from crawler.splitter.partition import Partition
from crawler.storage.engines import open_store
from crawler.storage.keys import EQUIVALENCES
from crawler.storage.kv import DiskStore, KeyValue
from crawler.storage.reshard import load_json
from crawler.storage.snapshot import made_privately, snapshot
from crawler.upgrade.ready import ready
from crawler.urls.canonical import hostname
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter, fingerprinter_of

# a copy is withheld if its site refused the use later; at most this many such copies are reported
LATER_SAID_MAX = 1000
# number of robots.txt files in memory; a few suffice because captures are read host by host
_ROBOTS_MAX = 1000


class Crawled(NamedTuple):
    """The stored crawl: one archive per process, the configuration, and the function that maps URLs to fingerprints."""

    directory: CrawlDirectory
    config: Config
    archives: list[Archive]
    fingerprinter: Fingerprinter
    partition: Partition
    positions: Mapping[str, int]  # name of a process -> position of its archive

    def damage(self) -> list[str]:
        """Return a message for each segment that is missing or too short. Pages of such a segment are lost."""
        return [line for archive in self.archives for line in archive.damage()]

    def owner(self, fingerprint: int) -> int:
        """Return the position of the archive whose process owns a URL; -1 if its process is on another machine."""
        return self.positions.get(self.partition.owner(fingerprint), -1)

    @property
    def fingerprint(self) -> Callable[[str], int]:
        """Return a function that maps the request form of a URL to its fingerprint."""
        return self.fingerprinter.fingerprint

    def newest_copies(self, url: str) -> Iterator[tuple[Archive, PageRecord | None, Capture]]:
        """Yield the newest copy of a URL in each archive that has one, with its archive and the record of the URL."""
        fingerprint = self.fingerprint(url)
        for archive in self.archives:
            record = archive.record(fingerprint)
            capture = archive.newest_capture(fingerprint, record)
            if capture is not None and is_copy(capture):
                yield archive, record, capture

    def disallowed(self) -> Callable[[str], bool] | None:
        """Return the function that tells whether copies of a URL are withheld.

        Return None if `serve.on_disallow` withholds nothing.
        """
        config = self.config
        if not config.serve.withholds_disallowed:
            return None
        permissions = [
            Permission(RobotsCache(each.store, config.robots, config.identity.token, _ROBOTS_MAX), config)
            for each in self.archives
        ]
        return lambda url: any(each.withholding_line(hostname(url), url) for each in permissions)

    def refused(self, use: str, unknown: str = "", say: Say = ignore) -> Refused | None:
        """Return the function that decides which copies may be used for `use`; None if `use` is "".

        `say` is called for the first `LATER_SAID_MAX` copies that are withheld only because of a later refusal.

        Raises:
            UsageError: there is no such use.
        """
        rule = UseRule.of(use, self.config.consent, unknown)
        if rule is None:
            return None
        told: set[tuple[str, float]] = set()

        def decide(archive: Archive, fingerprint: int, capture: Capture, record: PageRecord | None) -> str:
            found = rule.refusal(archive.store, fingerprint, capture, record)
            copy = capture.url, capture.fetched_at
            if found is not None and found.later and copy not in told and len(told) < LATER_SAID_MAX:
                told.add(copy)
                say(f"{capture.url}: the copy of {iso_time(capture.fetched_at)} is withheld: {found.why}")
            return "" if found is None else found.why

        return decide

    def schedules(self, now: float) -> list[Refresh | None]:
        """Return the freshness estimator of each archive at `now`, or None for an archive without refreshed pages."""
        return [
            stored_view(
                archive.store,
                self.config,
                self.fingerprinter,
                archive.record,
                archive.stored_records,
                now,
                processes=len(self.archives),
            )
            for archive in self.archives
        ]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Crawled]:
    """Open the crawl in a directory through copies of its stores. The copies are deleted at the end of the block.

    Raises:
        DirectoryError: there is no crawl, or nothing has been crawled yet.
        DamageError: a store cannot be read, or is lost.
    """
    directory = CrawlDirectory(path)
    directory.require()
    ready(directory)
    names = begun_names(directory)
    for name in names:
        check_for_loss(directory.process(name))
    if not names:
        raise DirectoryError(f"{path}: nothing was crawled here yet; `crawler crawl` starts a crawl")
    config = directory.settings.config()
    with contextlib.ExitStack() as stack:
        archives = []
        withdrawals = Withdrawals(path)
        proven: dict[str, str] = {}
        for name in names:
            folder = directory.process(name) / "warc"
            stack.enter_context(released.reading(folder))
            store = stack.enter_context(_store_copy(directory.process(name)))
            archives.append(Archive(folder, store, withdrawals))
            proven |= load_json(store, EQUIVALENCES) or {}
        fingerprinter = fingerprinter_of(config.urls, directory.seed(), Equivalences(proven))
        partition = topology(config, path, names[0]).partition
        positions = {name: position for position, name in enumerate(names)}
        yield Crawled(directory, config, archives, fingerprinter, partition, positions)


@contextlib.contextmanager
def _store_copy(process: Path) -> Iterator[KeyValue]:
    """Yield a copy of one process's store, if possible in the same folder, because hard links need one file system."""

    def opened(folder: Path) -> DiskStore:
        snapshot(process / "store", folder / "store")
        return open_store(folder / "store")

    with made_privately(process, opened) as store, contextlib.closing(store):
        yield store
