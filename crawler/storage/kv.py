"""The ordered key-value store of a process: its interface and guarantees, and the in-memory store.

One synced write batch of this store decides which state survives a crash (`storage/commit.py`). The interface
is small, so that several engines can implement it: `level_store.py` (LevelDB) and `rocks_store.py` (RocksDB).
`engines.py` finds out which engine the store in a folder has.

When an engine repairs a store, it may keep values whose bytes are garbage. Therefore, values that the crawler
decodes, such as records in MessagePack, carry a version byte and a crc32 (`seal`, `unseal`).
"""

import bisect
import errno
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec
from isal.isal_zlib import crc32  # for short values, three times as fast as zlib's crc32

from crawler.errors import CrawlerError, DamageError, DirectoryError, StoreError
from crawler.storage.torn_log import cut_torn_tail, mend_logs

VALUE_VERSION = 1
SEAL_BYTES = 5  # number of bytes of the version and the checksum, which precede a sealed payload
REMEDY = "`crawler check --repair` rebuilds it from its readable parts"
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Errors of a file system that fails, or that cannot do what an engine needs, such as map a file. Readers can still
# use a copy of the store on another disk.
_DISK_UNABLE = (
    *(errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN),
    *(errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EEXIST),
)

T = TypeVar("T")

_head = struct.Struct("<BI").pack


def seal(payload: bytes) -> bytes:
    """Return `payload` preceded by its version byte and crc32 (5 bytes)."""
    return _head(VALUE_VERSION, crc32(payload)) + payload


def unseal(key: bytes, value: bytes) -> bytes:
    """Return the payload of a sealed value.

    Raises:
        DamageError: the value of `key` has another version, or its crc is wrong.
    """
    if len(value) < SEAL_BYTES or value[0] != VALUE_VERSION:
        raise DamageError(f"store: value of key {key!r} has an unknown version")
    payload = value[SEAL_BYTES:]
    if crc32(payload) != int.from_bytes(value[1:5], "little"):
        raise DamageError(f"store: value of key {key!r} fails its checksum; run `crawler check --repair`")
    return payload


def unpacker(kind: type[T]) -> Callable[[bytes, bytes], T]:
    """Return a function that decodes the sealed msgpack value of a key; it takes (key, value).

    The function raises DamageError if the value is damaged.
    """
    decode = msgspec.msgpack.Decoder(kind).decode

    def unpack(key: bytes, value: bytes) -> T:
        try:
            return decode(unseal(key, value))
        except msgspec.MsgspecError as error:
            raise DamageError(f"store: value of key {key!r}: {error}") from error

    return unpack


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key that is greater than every key with this `prefix`; None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


Operation = tuple[bytes, bytes | None]  # a key and its new value; None deletes the key


class Batch(Protocol):
    """Writes that take effect together, in the order in which they were added."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...


class KeyValue(Protocol):
    """An ordered map of bytes to bytes with atomic, durable batches.

    `writes` is the number of writes that have ended, successful or not. As long as this number does not
    change, a value that was read is still current.
    """

    writes: int

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`; None if there is none.

        Raises:
            DamageError: the checksum of the block with the value is wrong, or the table cannot be read.
            StoreError: file descriptors or memory ran out.
        """

    def batch(self, *, sync: bool = True) -> Any:
        """Return a new `Batch` for `write`. With `sync`, the batch is durable when `write` returns."""

    def write(self, batch: Any) -> None:
        """Apply a batch that `batch()` returned. A batch made with `sync` is durable when this method returns.

        Raises:
            DamageError: a merge of tables, which runs in the background, found damage.
            StoreError: this write or an earlier one failed.
        """

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) pairs with start <= key < stop that are stored at the time of the call.

        Raises:
            DamageError: a table cannot be read, or the checksum of a block that the scan reads is wrong.
            StoreError: file descriptors or memory ran out.
        """

    def close(self) -> None: ...


def scan_prefix(store: KeyValue, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield every (key, value) whose key begins with `prefix`, in key order."""
    return store.scan(prefix, after_prefix(prefix))


class MemoryBatch:
    """A list of put and delete operations, in order. A delete is stored as a put of None."""

    __slots__ = ("operations", "sync")

    def __init__(self, sync: bool) -> None:
        self.sync = sync
        self.operations: list[Operation] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.operations.append((key, value))

    def delete(self, key: bytes) -> None:
        self.operations.append((key, None))


class MemoryStore:
    """A store in memory only, for tests and the lab.

    With `keep_durable`, the attribute `durable` is a copy of the state after the last synced write, which is the
    state that a power cut would leave. With `keep_durable`, each write copies the whole store.
    """

    def __init__(self, data: dict[bytes, bytes] | None = None, *, keep_durable: bool = False) -> None:
        self._data = dict(data or {})
        self._keys = sorted(self._data)
        self._keep_durable = keep_durable
        self.durable = dict(self._data)
        self.writes = 0

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def batch(self, *, sync: bool = True) -> MemoryBatch:
        return MemoryBatch(sync)

    def write(self, batch: MemoryBatch) -> None:
        self.apply(batch.operations)
        if batch.sync and self._keep_durable:
            self.durable = dict(self._data)
        self.writes += 1

    def apply(self, operations: list[Operation]) -> list[Operation]:
        """Apply the operations of a batch; return the operations that undo the batch."""
        back = []
        for key, value in operations:
            former = self._data.get(key)
            back.append((key, former))
            if value is None:
                if self._data.pop(key, None) is not None:
                    del self._keys[bisect.bisect_left(self._keys, key)]
            else:
                if former is None:
                    bisect.insort(self._keys, key)
                self._data[key] = value
        return back[::-1]

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Scan the keys present at the time of the call. If a value changes during the scan, yield the new value."""
        low = bisect.bisect_left(self._keys, start)
        high = len(self._keys) if stop is None else bisect.bisect_left(self._keys, stop)
        keys = self._keys[low:high]
        return ((key, self._data[key]) for key in (keys[::-1] if reverse else keys) if key in self._data)

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._data)} keys)"


class StoreLimits(NamedTuple):
    """The limits of an engine's buffer, cache and tables. With `compressed`, new tables are compressed."""

    write_buffer_bytes: int = 8 << 20
    block_cache_bytes: int = 16 << 20
    table_bytes: int = 2 << 20
    tables_max: int = 64
    compressed: bool = True


class DiskStore(KeyValue):
    """A `KeyValue` on the disk: the base class of all engines.

    A write that fails (disk full, I/O error) closes the store permanently, because after such a failure, an
    engine may acknowledge writes that are gone after a restart. Every later write raises StoreError. The
    process must then end and be restarted.

    A process that has opened a store (`opened`) must not fork a child that uses an engine. The engine's
    background threads do not exist in the child, so `close` in the child would wait for them forever.
    """

    opened: ClassVar[bool] = False
    engine: ClassVar[str] = ""
    _errors: tuple[type[Exception], ...] = (Exception,)  # the exceptions that the engine raises

    def __init__(self, path: Path) -> None:
        DiskStore.opened = True
        self.path = path
        self.mended = ""  # description of the data that was cut off in order to open the store
        self.writes = 0
        self._failed = ""

    def write(self, batch: Any) -> None:
        if self._failed:
            raise StoreError(f"store: closed after a failed write: {self._failed}")
        try:
            self._write(batch)
        except self._errors as error:
            self._failed = self._said(error)
            if self._failed.startswith("Corruption"):
                raise DamageError(f"store: write failed: {self._failed}; {REMEDY}") from error
            raise StoreError(f"store: write failed: {self._failed}") from error
        finally:
            # the write is counted afterwards: if it were counted first, another thread could read the new
            # number and then the old value
            self.writes += 1

    def _write(self, batch: Any) -> None:
        raise NotImplementedError

    def _said(self, error: BaseException) -> str:
        """Return the engine's message as text."""
        return str(error)

    def compact(self) -> None:
        """Merge all data of the store into tables of the last level."""
        raise NotImplementedError

    def _open_mended(self, open_store: Callable[[], T], lost: str) -> T:
        """Open the store, unless its bookkeeping has the loss `lost` ("" if there is none).

        If the store cannot be opened only because the newest log has a torn tail, cut that tail first.
        """
        if lost:
            raise self._unopened(lost, damaged=True)
        self.mended = mend_logs(self.path, REMEDY)
        try:
            return open_store()
        except self._errors as error:
            if not self._is_damage(error) or not (mended := cut_torn_tail(self.path)):
                raise
            self.mended = mended
            return open_store()

    def _is_damage(self, error: BaseException) -> bool:
        """Return whether the engine reports damaged files."""
        raise NotImplementedError

    def _unopened(self, said: str, *, damaged: bool) -> CrawlerError:
        """Return the error for a store that the engine cannot open; `said` is the engine's message."""
        if damaged:
            return DamageError(f"store {self.path}: {said}; {REMEDY}")
        what = f"store {self.path}: cannot be opened: {said}"
        if os.strerror(errno.ENOSPC) in said:
            return StoreError(
                f"{what}; make room; `crawler check --repair` frees the ballast if there is one"
            )
        if is_shortage(said) or _names(said, _DISK_UNABLE):
            return StoreError(what)
        return DirectoryError(what)

    def _unreadable(self, error: BaseException) -> CrawlerError:
        said = self._said(error)
        if is_shortage(said):
            return StoreError(f"store: cannot read: {said}")
        return DamageError(f"store: cannot read: {said}; {REMEDY}")


def is_shortage(said: str) -> bool:
    """Return whether an engine's message means that the disk is full, or that descriptors or memory ran out.

    Nothing is wrong with the files then, and a repair could not write. Engines report no error numbers.
    """
    return _names(said, _SHORTAGES)


def _names(said: str, numbers: Iterable[int]) -> bool:
    """Return whether an engine's message contains the text of one of these error numbers."""
    return any(os.strerror(number) in said for number in numbers)


def not_rebuilt(path: Path, said: str) -> CrawlerError:
    """Return the error for a store that cannot be rebuilt; `said` is the engine's message."""
    return (StoreError if is_shortage(said) else DamageError)(f"store {path}: cannot be rebuilt: {said}")
