"""The state that the steps of a repair share: the process's folder and store, work done and losses so far."""

from dataclasses import dataclass, field
from pathlib import Path

from crawler.config import Config
from crawler.storage.kv import DiskStore
from crawler.urls.fingerprint import Fingerprinter

_BATCH_BYTES = 4 << 20


class BoundedWriter:
    """Puts and deletes in synced batches of bounded size."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
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
        self._store.write(self._batch)
        self._batch, self._bytes = self._store.batch(sync=True), 0


@dataclass(slots=True)
class Repair:
    """One repair of a closed process.

    `done` says what was done, a line each; `lost` are the fingerprints of pages
    whose copies are gone. `store_damaged` says that keys may be missing, so that
    what WARC files hold beyond it counts.
    """

    config: Config
    folder: Path
    fingerprinter: Fingerprinter
    store: DiskStore
    writer: BoundedWriter
    store_damaged: bool
    done: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
