"""An implementation of the `KeyValue` interface on LevelDB (plyvel).

`storage/README.md`, "Known traps of LevelDB", lists the traps that this file handles. A default read returns a
flipped byte of a table as data, or loses keys, so every read verifies the checksum of its block (5 us more for a
random read).

LevelDB maps its open tables into memory. The mapped tables take at most `tables_max` (which is at least 64)
times `table_bytes` of resident memory. Many small tables, of which few are open, take no more CPU time than a
few large tables.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plyvel

from crawler import bus_errors
from crawler.storage.kv import DiskStore, StoreLimits, not_rebuilt
from crawler.storage.manifest import lost_by_leveldb


def _text(error: BaseException) -> str:
    """Return LevelDB's error message as text. In plyvel's exceptions, the message is bytes."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    what = error.args[0] if error.args else error
    return what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)


def rebuild(path: Path) -> None:
    """Make a new manifest from the readable tables, and move the other files to `lost/`.

    Raises:
        DamageError: the store cannot be rebuilt.
        StoreError: the disk is full, or descriptors or memory ran out.
    """
    try:
        plyvel.repair_db(str(path), paranoid_checks=True, max_file_size=2 << 20)
    except plyvel.Error as error:
        raise not_rebuilt(path, _text(error)) from error


class LevelStore(DiskStore):
    """A LevelDB store. It keeps to `limits` (`StoreLimits`); to compress tables takes CPU time when a log is replayed."""

    engine = "leveldb"
    _errors = (plyvel.IOError, plyvel.Error)

    def __init__(self, path: Path, **limits: Any) -> None:
        super().__init__(path)
        given = StoreLimits(**limits)
        options = {
            "create_if_missing": True,
            "paranoid_checks": True,
            "write_buffer_size": given.write_buffer_bytes,
            "max_file_size": given.table_bytes,
            "block_size": 16 << 10,
            "compression": "snappy" if given.compressed else None,
            "lru_cache_size": given.block_cache_bytes,
            "bloom_filter_bits": 10,
            "max_open_files": given.tables_max + 10,  # LevelDB reserves ten descriptors for other files
        }
        bus_errors.install()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db = self._open_mended(lambda: plyvel.DB(str(path), **options), lost_by_leveldb(path))
        except (plyvel.Error, OSError) as error:
            raise self._unopened(_text(error), damaged=self._is_damage(error)) from error

    def _is_damage(self, error: BaseException) -> bool:
        return isinstance(error, plyvel.CorruptionError)

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key, verify_checksums=True)
        except self._errors as error:
            raise self._unreadable(error) from error

    def batch(self, *, sync: bool = True) -> Any:
        return self._db.write_batch(sync=sync)

    def _write(self, batch: Any) -> None:
        batch.write()

    def _said(self, error: BaseException) -> str:
        return _text(error)

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if not reverse:
            return self._verified(self._iterator(start=start, stop=stop))
        # When plyvel scans in reverse order, it leaves out the last key if that key equals `start`.
        backwards = self._iterator(stop=stop, reverse=True)
        return itertools.takewhile(lambda item: item[0] >= start, self._verified(backwards))

    def _iterator(self, **bounds: Any) -> Any:
        try:
            return self._db.iterator(verify_checksums=True, **bounds)
        except self._errors as error:  # a table of the store is truncated
            raise self._unreadable(error) from error

    def _verified(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from items
        except self._errors as error:
            raise self._unreadable(error) from error

    def compact(self) -> None:
        self._db.compact_range()

    def close(self) -> None:
        self._db.close()
