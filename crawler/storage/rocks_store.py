"""An implementation of the `KeyValue` interface on RocksDB (rocksdict), for machines without LevelDB.

RocksDB's files are framed like those of LevelDB (`torn_log.py`, `manifest.py`). `storage/README.md`, "Engines",
lists the traps of rocksdict that this file handles. There are two more:

* An iterator keeps the store open even after `close`, so closing ends all scans.
* By default, RocksDB reads a log only up to the first damage, and drops the acknowledged writes after it.
  With the option `tolerate_corrupted_tail_records`, RocksDB instead refuses a log that is damaged before its end.
"""

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import rocksdict

from crawler.errors import CrawlerError, StoreError, reason_of
from crawler.storage.files import closed_on_error, opened, sync_directory
from crawler.storage.kv import DiskStore, StoreLimits, not_rebuilt
from crawler.storage.manifest import lost_by_rocksdb

_NO_KEY = b"\x00"  # a key that the crawler does not use (`keys.py`)
_LOG_BYTES_MAX = 1 << 20  # limit of `LOG`, RocksDB's own diagnostic log
_DAMAGE = ("Corruption", "Invalid argument", "Not implemented")


def _options(limits: StoreLimits) -> Any:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_size(16 << 10)
    blocks.set_block_cache(rocksdict.Cache(limits.block_cache_bytes))
    blocks.set_bloom_filter(10, False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(limits.write_buffer_bytes)
    options.set_target_file_size_base(limits.table_bytes)
    options.set_max_open_files(limits.tables_max + 10)
    options.set_block_based_table_factory(blocks)
    kinds = rocksdict.DBCompressionType
    options.set_compression_type(kinds.snappy() if limits.compressed else kinds.none())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_LOG_BYTES_MAX)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def rebuild(path: Path) -> None:
    """Make a new manifest from the readable tables, and move the other files to `lost/`.

    Raises:
        DamageError: the store cannot be rebuilt.
        StoreError: the disk is full, or descriptors or memory ran out.
    """
    try:
        rocksdict.Rdict.repair(str(path), _options(StoreLimits()))
    except Exception as error:
        raise not_rebuilt(path, str(error)) from error


class RocksStore(DiskStore):
    """A RocksDB store. It keeps to `limits` (`StoreLimits`)."""

    engine = "rocksdict"

    def __init__(self, path: Path, **limits: Any) -> None:
        super().__init__(path)
        self._synced_log = 0  # number of the newest log whose name is durable
        self._scans: weakref.WeakSet[Any] = weakref.WeakSet()
        options = _options(StoreLimits(**limits))
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db = self._open_mended(lambda: rocksdict.Rdict(str(path), options), lost_by_rocksdb(path))
        except CrawlerError:
            raise
        except OSError as error:
            raise self._unopened(reason_of(error), damaged=False) from error
        except Exception as error:
            damaged = self._is_damage(error) or "No such file" in str(error)
            raise self._unopened(str(error), damaged=damaged) from error
        with closed_on_error(self.close):  # if the store stayed open, the process could not rebuild it
            self._mark_opening()

    def _is_damage(self, error: BaseException) -> bool:
        return str(error).startswith(_DAMAGE)

    def _mark_opening(self) -> None:
        """Write the first record of the log, which shows `manifest.py` that no earlier log is missing."""
        batch = self.batch(sync=True)
        batch.delete(_NO_KEY)
        self.write(batch)

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key)
        except self._errors as error:
            raise self._unreadable(error) from error

    def batch(self, *, sync: bool = True) -> "_Batch":
        return _Batch(sync)

    def _write(self, batch: "_Batch") -> None:
        self._db.write(batch.operations)
        if batch.sync:
            self._sync_logs()

    def _sync_logs(self) -> None:
        """Sync the logs that are not fully synced, the oldest first, so that all writes survive a power cut."""
        logs = sorted(int(name[:-4]) for name in os.listdir(self.path) if name.endswith(".log"))
        for number in logs:
            if number >= self._synced_log:
                _sync(self.path / f"{number:06d}.log")
        if logs and logs[-1] != self._synced_log:
            sync_directory(self.path)
            self._synced_log = logs[-1]

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        bounds = rocksdict.ReadOptions()
        if stop is not None:
            bounds.set_iterate_upper_bound(stop)
        first = None if reverse else start
        try:
            items = self._db.items(backwards=reverse, from_key=first, read_opt=bounds)
        except self._errors as error:
            raise self._unreadable(error) from error
        found = self._backwards(items, bounds, start) if reverse else self._forwards(items, bounds, start)
        self._scans.add(found)
        return found

    def _forwards(self, items: Any, bounds: Any, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        last = b""
        for item in items:
            yield item
            last = item[0]
        end = self._db.iter(bounds)
        end.seek(last or start)
        if last and end.valid():
            end.next()
        self._require_end(end)

    def _backwards(self, items: Any, bounds: Any, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        last = b""
        for item in items:
            if item[0] < start:
                return
            yield item
            last = item[0]
        end = self._db.iter(bounds)
        if last:
            end.seek_for_prev(last)
        else:
            end.seek_to_last()
        if last and end.valid():
            end.prev()
        self._require_end(end)

    def _require_end(self, end: Any) -> None:
        """Raise an error if the iterator stopped because it could not read the next block."""
        try:
            end.status()
        except self._errors as error:
            raise self._unreadable(error) from error

    def compact(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def close(self) -> None:
        for found in list(self._scans):
            found.close()
        try:
            self._db.close()
        # writing the memtable to a table failed, but its content is in the logs
        except self._errors as error:
            # the damage is reported when it is read, so no error is raised here
            if not self._failed and not str(error).startswith(_DAMAGE):
                raise StoreError(f"store: cannot be closed: {self._said(error)}") from error


class _Batch:
    """A list of put and delete operations, in order. `sync` tells whether the store syncs them to the disk."""

    __slots__ = ("delete", "operations", "put", "sync")

    def __init__(self, sync: bool) -> None:
        self.sync = sync
        self.operations = rocksdict.WriteBatch(raw_mode=True)
        self.put, self.delete = self.operations.put, self.operations.delete


def _sync(log: Path) -> None:
    # if the log is missing, RocksDB has deleted it because its writes are in a table
    with suppress(FileNotFoundError), opened(log, os.O_RDONLY) as descriptor:
        os.fdatasync(descriptor)
