"""The state that the steps of a repair share: folder and store of the process, repairs so far, and lost pages.

The first run of a repair may find facts, and then change the data so that these facts can no longer be found.
If the first run is killed, the next run still needs the facts. Therefore, the facts are stored in:

    journal          the repair of a process: whether the store may have lost keys; null until it changes something
    repair.lost      fingerprints of pages whose copies are lost, noted before their keys are deleted
    links.waiting/   the links log as it was found, until all its waiting links are queued
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import Journal, end_journal, keep_journal, load_journal
from crawler.crawl.topology import Topology, topology
from crawler.storage.files import AppendFile
from crawler.storage.kv import DiskStore, KeyValue
from crawler.urls.fingerprint import Fingerprinter

LOST_FILE = "repair.lost"
WAITING_LINKS = "links.waiting"
_BATCH_BYTES = 4 << 20


class RepairNote:
    """The journal's entry for the repair of one process."""

    def __init__(self, directory: CrawlDirectory, name: str) -> None:
        self._path, self._folder, self._name = directory.path, directory.process(name), name
        self._journal = load_journal(self._path) or Journal("repair")
        # `cut_off` is True if an earlier repair was interrupted after its first change. `store_damaged` is
        # True if the store may have lost keys.
        self.cut_off = self._journal.facts.get(name) is not None
        self.store_damaged = bool(self._journal.facts.get(name))

    @staticmethod
    def examine(directory: CrawlDirectory, names: Iterable[str]) -> None:
        """Record that these processes are being examined. No other command may open them until they are intact."""
        journal = load_journal(directory.path) or Journal("repair")
        journal.facts = {**dict.fromkeys(names), **journal.facts}
        keep_journal(directory.path, journal)

    @staticmethod
    @contextmanager
    def withdrawn_if_unchanged(directory: CrawlDirectory) -> Iterator[None]:
        """If the block fails before the repair has changed a process, remove the journal of the repair.

        Then other commands may open the directory again. For example, the disk may be too full for a repair,
        and the user may free space and continue the crawl.
        """
        try:
            yield
        except BaseException:
            journal = load_journal(directory.path)
            if journal is not None and all(fact is None for fact in journal.facts.values()):
                end_journal(directory.path)
            raise

    def begin(self, *, store_damaged: bool) -> None:
        """Record that the repair has started; call this before anything is changed."""
        self.store_damaged = self.store_damaged or store_damaged
        self._journal.facts[self._name] = self.store_damaged
        keep_journal(self._path, self._journal)

    def end(self) -> None:
        """Record that the repair is complete. Without this record, the next run repeats the repair from the start."""
        shutil.rmtree(self._folder / WAITING_LINKS, ignore_errors=True)
        (self._folder / LOST_FILE).unlink(missing_ok=True)
        self._journal.facts.pop(self._name, None)
        if self._journal.facts:
            keep_journal(self._path, self._journal)
        else:
            end_journal(self._path)


class LostPages(set[int]):
    """Fingerprints of pages whose copies are lost, including those found by an interrupted repair."""

    def __init__(self, path: Path) -> None:
        length = path.stat().st_size // 8 * 8 if path.exists() else 0
        super().__init__(np.fromfile(path, "<u8", length // 8).tolist() if length else ())
        self._path, self._length = path, length
        self._unkept: list[int] = []

    def add(self, fingerprint: int, /) -> None:
        if fingerprint not in self:
            self._unkept.append(fingerprint)
        super().add(fingerprint)

    def keep(self) -> None:
        """Make the fingerprints durable, since the next step deletes the keys from which they were computed."""
        if self._unkept:
            file = AppendFile(self._path, self._length)
            try:
                file.append(np.array(self._unkept, "<u8").tobytes())
                file.sync()
                self._length = file.length
            finally:
                file.close()
            self._unkept.clear()


class BoundedWriter:
    """Writes to a store in synced batches of bounded size. It calls `before` before each batch."""

    def __init__(self, store: KeyValue, before: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._before = before
        self._batch, self._bytes = store.batch(sync=True), 0

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._grow(len(key) + len(value))

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)
        self._grow(len(key))

    def _grow(self, n: int) -> None:
        self._bytes += n
        if self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._before()
        self._store.write(self._batch)
        self._batch, self._bytes = self._store.batch(sync=True), 0


@dataclass(slots=True)
class Repair:
    """One repair of a closed process.

    `done` lists what was done, one line each; `lost` holds the fingerprints of pages whose copies are lost.
    `store_damaged` means that keys may be missing in the store. In this case, the repair restores the
    captures that are in WARC files but not in the store. `topology` says which pages belong to the process.
    """

    config: Config
    folder: Path
    fingerprinter: Fingerprinter
    store: DiskStore
    writer: BoundedWriter
    store_damaged: bool
    lost: LostPages
    topology: Topology
    done: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        config: Config,
        folder: Path,
        fingerprinter: Fingerprinter,
        store: DiskStore,
        *,
        store_damaged: bool,
    ) -> Self:
        """Start a repair or continue an interrupted one, and return it."""
        lost = LostPages(folder / LOST_FILE)
        writer = BoundedWriter(store, lost.keep)
        processes = topology(config, folder.parent, folder.name)
        return cls(config, folder, fingerprinter, store, writer, store_damaged, lost, processes)

    def owns(self, fingerprint: int) -> bool:
        """Return whether the page with this fingerprint belongs to the process."""
        return self.topology.partition.owner(fingerprint) == self.topology.me
