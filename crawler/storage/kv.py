"""The ordered key-value store of a process: LevelDB, or memory with the same behaviour.

Everything a crash must not lose is decided by one synced write batch of this
store (`storage/commit.py`). The interface is small so that another store can
take LevelDB's place:

    batch = store.batch(sync=True)  collect puts and deletes
    store.write(batch)              all of them or none; durable on return if sync
    store.get(key)                  bytes or None
    store.scan(start, stop)         (key, value) in key order, start <= key < stop

Known traps of LevelDB that this file takes care of (each reproduced; see
`LevelStore`): a write error leaves a handle that acknowledges what it did not
keep, so the first failed write closes the store for good; a default open skips
damaged log blocks in silence, so it is opened with `paranoid_checks`; a default
read takes a flipped byte of a table for data, or loses keys, so every read
verifies the checksum of its block (5 us more for a random one).

Values that are decoded again carry a version byte and a crc32 (`seal`,
`unseal`): LevelDB's own repair may keep a value whose bytes are garbage.
"""

import bisect
import itertools
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Protocol

from isal.isal_zlib import crc32  # a third of the time of zlib's on a short value

from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.storage.manifest import lost_bookkeeping
from crawler.storage.torn_log import cut_torn_tail

VALUE_VERSION = 1

_head = struct.Struct("<BI").pack


def seal(payload: bytes) -> bytes:
    """Return `payload` behind its version byte and crc32 (5 bytes)."""
    return _head(VALUE_VERSION, crc32(payload)) + payload


def unseal(key: bytes, value: bytes) -> bytes:
    """Return what was sealed.

    Raises:
        DamageError: the value of `key` is of another version or its crc is wrong.
    """
    if len(value) < 5 or value[0] != VALUE_VERSION:
        raise DamageError(f"store: value of key {key!r} has an unknown version")
    payload = value[5:]
    if crc32(payload) != int.from_bytes(value[1:5], "little"):
        raise DamageError(f"store: value of key {key!r} fails its checksum; run `crawler check --repair`")
    return payload


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key that begins with `prefix`; None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


class Batch(Protocol):
    """Writes that take effect together, in the order given."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...


class KeyValue(Protocol):
    """An ordered map of bytes to bytes with atomic, durable batches."""

    def get(self, key: bytes) -> bytes | None: ...

    def batch(self, *, sync: bool = True) -> Batch: ...

    def write(self, batch: Any) -> None: ...

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


def scan_prefix(store: KeyValue, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All (key, value) whose key begins with `prefix`, in key order."""
    return store.scan(prefix, after_prefix(prefix))


class _MemoryBatch:
    """Puts and deletes in order; a delete is a put of None."""

    __slots__ = ("operations", "sync")

    def __init__(self, sync: bool) -> None:
        self.sync = sync
        self.operations: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.operations.append((key, value))

    def delete(self, key: bytes) -> None:
        self.operations.append((key, None))


class MemoryStore:
    """The store without a disk, for tests and the lab.

    With `keep_durable`, `durable` is a copy of all that synced writes (and
    those before them) have made safe: what a power cut would leave. It costs a
    copy of the whole store a write.
    """

    def __init__(self, data: dict[bytes, bytes] | None = None, *, keep_durable: bool = False) -> None:
        self._data = dict(data or {})
        self._keys = sorted(self._data)
        self._keep_durable = keep_durable
        self.durable = dict(self._data)

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def batch(self, *, sync: bool = True) -> _MemoryBatch:
        return _MemoryBatch(sync)

    def write(self, batch: _MemoryBatch) -> None:
        for key, value in batch.operations:
            if value is None:
                if self._data.pop(key, None) is not None:
                    del self._keys[bisect.bisect_left(self._keys, key)]
            else:
                if key not in self._data:
                    bisect.insort(self._keys, key)
                self._data[key] = value
        if batch.sync and self._keep_durable:
            self.durable = dict(self._data)

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        low = bisect.bisect_left(self._keys, start)
        high = len(self._keys) if stop is None else bisect.bisect_left(self._keys, stop)
        keys = self._keys[low:high]
        for key in reversed(keys) if reverse else keys:
            if key in self._data:
                yield key, self._data[key]

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._data)} keys)"


_REMEDY = "`crawler check --repair` rebuilds it from what can be read"


def _text(error: BaseException) -> str:
    """What LevelDB says, which plyvel hands on as bytes."""
    what = error.args[0] if error.args else error
    return what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)


def repair(path: Path) -> str:
    """Rebuild a store that cannot be opened or read to its end from what can be read; what was done, "" if nothing.

    LevelDB's repair reads every table and makes a new manifest. What it cannot
    read it moves to `lost/`. Nobody else may have the store open.

    Raises:
        DamageError: nothing helps.
    """
    import plyvel

    try:
        with closing(LevelStore(path)) as store:
            for _ in store.scan(b""):
                pass
        return ""
    except DamageError as error:
        found = str(error)
    try:
        plyvel.repair_db(str(path), paranoid_checks=True, max_file_size=2 << 20)
    except plyvel.Error as error:
        raise DamageError(f"store {path}: cannot be rebuilt: {_text(error)}") from error
    lost = sum(1 for _ in path.glob("lost/*"))
    return f"{found.partition(';')[0]}: rebuilt, {lost} files that could not be read are in {path / 'lost'}"


class LevelStore:
    """LevelDB behind the interface of `KeyValue`.

    LevelDB maps the tables it has open, so what they may take of the resident
    memory is `tables_max` (at least 64) times `table_bytes`. Many small tables,
    few of them open, were measured to cost no more CPU than few large ones.

    A write that fails (disk full, I/O error) poisons the handle: LevelDB would
    go on acknowledging writes that are gone after a restart. From then on every
    write raises StoreError; the process must end and start afresh.

    A process that has `opened` one must not fork another user of LevelDB: its
    one background thread is missing in the child, whose `close` waits for ever.
    """

    opened: ClassVar[bool] = False

    def __init__(
        self,
        path: Path,
        *,
        write_buffer_bytes: int = 8 << 20,
        block_cache_bytes: int = 16 << 20,
        table_bytes: int = 2 << 20,
        tables_max: int = 64,
    ) -> None:
        import plyvel  # imported here: commands that open no store start faster

        LevelStore.opened = True
        self._failed: str = ""
        self._io_error = (plyvel.IOError, plyvel.Error)
        self.mended = ""  # what had to be cut off to open it
        options = {
            "create_if_missing": True,
            "paranoid_checks": True,
            "write_buffer_size": write_buffer_bytes,
            "max_file_size": table_bytes,
            "block_size": 16 << 10,
            "lru_cache_size": block_cache_bytes,
            "bloom_filter_bits": 10,
            "max_open_files": tables_max + 10,  # LevelDB keeps ten for other files
        }
        try:
            path.mkdir(parents=True, exist_ok=True)
            if lost := lost_bookkeeping(path):
                raise DamageError(f"store {path}: {lost}; {_REMEDY}")
            self._db = self._open(plyvel, path, options)
        except plyvel.CorruptionError as error:
            raise DamageError(f"store {path}: {_text(error)}; {_REMEDY}") from error
        except plyvel.IOError as error:
            if "No space left" in _text(error):
                room = "make room; `crawler check --repair` frees the ballast if there is one"
                raise StoreError(f"store {path}: cannot be opened: {_text(error)}; {room}") from error
            raise DirectoryError(f"store {path}: cannot be opened: {_text(error)}") from error
        except (plyvel.Error, OSError) as error:
            raise DirectoryError(f"store {path}: cannot be opened: {_text(error)}") from error

    def _open(self, plyvel: Any, path: Path, options: dict[str, Any]) -> Any:
        """Open it; where only the newest log's torn tail stands in the way, without that tail."""
        try:
            return plyvel.DB(str(path), **options)
        except plyvel.CorruptionError:
            self.mended = cut_torn_tail(path)
            if not self.mended:
                raise
            return plyvel.DB(str(path), **options)

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key, verify_checksums=True)
        except self._io_error as error:
            raise DamageError(f"store: cannot read: {_text(error)}; {_REMEDY}") from error

    def batch(self, *, sync: bool = True) -> Any:
        return self._db.write_batch(sync=sync)

    def write(self, batch: Any) -> None:
        """Apply a batch made by `batch()`; durable on return if it was made with `sync`.

        Raises:
            StoreError: this write or an earlier one failed.
        """
        if self._failed:
            raise StoreError(f"store: closed after a failed write: {self._failed}")
        try:
            batch.write()
        except self._io_error as error:
            self._failed = _text(error)
            raise StoreError(f"store: write failed: {self._failed}") from error

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `KeyValue.scan`; it sees the store as it stands at the call.

        Raises:
            DamageError: a table cannot be read, or (on the way) a block fails its checksum.
        """
        if not reverse:
            return self._verified(self._iterator(start=start, stop=stop))
        # Backwards plyvel misses a last key that equals `start`.
        backwards = self._iterator(stop=stop, reverse=True)
        return itertools.takewhile(lambda item: item[0] >= start, self._verified(backwards))

    def _iterator(self, **bounds: Any) -> Any:
        try:
            return self._db.iterator(verify_checksums=True, **bounds)
        except self._io_error as error:  # a table that is cut short
            raise DamageError(f"store: cannot read: {_text(error)}; {_REMEDY}") from error

    def _verified(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from items
        except self._io_error as error:
            raise DamageError(f"store: cannot read: {_text(error)}; {_REMEDY}") from error

    def property(self, name: bytes) -> bytes | None:
        """A LevelDB property such as b"leveldb.stats"."""
        return self._db.get_property(name)

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        self._db.compact_range(start=start, stop=stop)

    def close(self) -> None:
        self._db.close()
