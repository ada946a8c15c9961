"""The archives of a crawl as readers see them: one committed state, whether or not a process has them open."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DirectoryError
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.refresh.stored_view import stored_view
from crawler.pages.archive import Archive
from crawler.storage.engines import open_store
from crawler.storage.keys import EQUIVALENCES
from crawler.storage.kv import KeyValue
from crawler.storage.reshard import load_json
from crawler.storage.snapshot import snapshot
from crawler.upgrade.ready import ready
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter

_PREFIX = "snapshot-"


class Crawled(NamedTuple):
    """What was crawled: an archive a process, the configuration, and how URLs are told apart."""

    directory: CrawlDirectory
    config: Config
    archives: list[Archive]
    fingerprinter: Fingerprinter

    @property
    def fingerprint(self) -> Callable[[str], int]:
        """Request form -> fingerprint."""
        return self.fingerprinter.fingerprint

    def schedules(self, now: float) -> list[Refresh | None]:
        """Return the estimators of freshness of each archive at `now`; None where nothing was ever refreshed."""
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
    """The crawl in a directory, from copies of its stores that are deleted at the end.

    Raises:
        DirectoryError: there is no crawl, or nothing was crawled yet.
        DamageError: a store cannot be read.
    """
    directory = CrawlDirectory(path)
    directory.require()
    ready(directory)
    names = directory.process_names()
    if not names:
        raise DirectoryError(f"{path}: nothing was crawled here yet; `crawler crawl` begins it")
    config = convert(directory.saved_config())
    with contextlib.ExitStack() as stack:
        archives = []
        proven: dict[str, str] = {}
        for name in names:
            store = stack.enter_context(_store_copy(directory.process(name)))
            archives.append(Archive(directory.process(name) / "warc", store))
            proven |= load_json(store, EQUIVALENCES) or {}
        urls = config.urls
        fingerprinter = Fingerprinter(
            directory.seed(),
            method=urls.fingerprint,
            partition=urls.partition,
            strip_session_ids=urls.strip_session_ids,
            equivalences=Equivalences(proven),
        )
        yield Crawled(directory, config, archives, fingerprinter)


@contextlib.contextmanager
def _store_copy(process: Path) -> Iterator[KeyValue]:
    """A copy of the store of one process, beside it if that can be, as links need one file system."""
    _remove_left_over(process)
    try:
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=process)
    except OSError:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        copy = Path(folder) / "store"
        snapshot(process / "store", copy)
        store = open_store(copy)
        try:
            yield store
        finally:
            store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_over(process: Path) -> None:
    """Delete copies whose makers were killed."""
    for folder in process.glob(f"{_PREFIX}*-*"):
        maker = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if maker.isdigit() and not Path(f"/proc/{maker}").exists():
            shutil.rmtree(folder, ignore_errors=True)
