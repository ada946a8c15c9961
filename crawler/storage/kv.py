"""The ordered key-value store of a process: what it promises, and the one in memory.

Everything a crash must not lose is decided by one synced write batch of this
store (`storage/commit.py`). The interface is small, so that several engines can
implement it: `level_store.py` (LevelDB), `rocks_store.py` (RocksDB); `engines.py`
says which one a folder holds.

    batch = store.batch(sync=True)  collect puts and deletes
    store.write(batch)              all of them or none; durable on return if sync
    store.get(key)                  bytes or None
    store.scan(start, stop)         (key, value) in key order, start <= key < stop

Values that are decoded again carry a version byte and a crc32 (`seal`,
`unseal`): an engine's own repair may keep a value whose bytes are garbage.
"""

import bisect
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

from isal.isal_zlib import crc32  # a third of the time of zlib's on a short value

from crawler.errors import DamageError, StoreError

VALUE_VERSION = 1
REMEDY = "`crawler check --repair` rebuilds it from what can be read"

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


class MemoryBatch:
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

    def batch(self, *, sync: bool = True) -> MemoryBatch:
        return MemoryBatch(sync)

    def write(self, batch: MemoryBatch) -> None:
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


class DiskStore:
    """A `KeyValue` on the disk, of one engine: what engines have in common.

    A write that fails (disk full, I/O error) closes the store for good: an
    engine may go on acknowledging writes that are gone after a restart. From
    then on every write raises StoreError; the process must end and start afresh.

    A process that has `opened` one must not fork another user of an engine: its
    background threads are missing in the child, whose `close` waits for ever.
    """

    opened: ClassVar[bool] = False
    engine: ClassVar[str] = ""
    _errors: tuple[type[Exception], ...] = (Exception,)  # what the engine raises

    def __init__(self, path: Path) -> None:
        DiskStore.opened = True
        self.path = path
        self.mended = ""  # what had to be cut off to open it
        self._failed = ""

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`.

        Raises:
            DamageError: its block fails its checksum, or its table cannot be read.
        """
        raise NotImplementedError

    def batch(self, *, sync: bool = True) -> Any:
        """A `Batch` for `write`, durable once written if `sync`."""
        raise NotImplementedError

    def write(self, batch: Any) -> None:
        """Apply a batch made by `batch()`; durable on return if it was made with `sync`.

        Raises:
            DamageError: a merge of tables, which goes on behind writes, has met damage.
            StoreError: this write or an earlier one failed.
        """
        if self._failed:
            raise StoreError(f"store: closed after a failed write: {self._failed}")
        try:
            self._write(batch)
        except self._errors as error:
            self._failed = self._said(error)
            if self._failed.startswith("Corruption"):
                raise DamageError(f"store: write failed: {self._failed}; {REMEDY}") from error
            raise StoreError(f"store: write failed: {self._failed}") from error

    def _write(self, batch: Any) -> None:
        raise NotImplementedError

    def _said(self, error: BaseException) -> str:
        """What the engine says, as text."""
        return str(error)

    def scan(
        self, start: bytes, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `KeyValue.scan`; it sees the store as it stands at the call.

        Raises:
            DamageError: a table cannot be read, or (on the way) a block fails its checksum.
        """
        raise NotImplementedError

    def compact(self) -> None:
        """Merge all that is written into tables of the last level."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _unreadable(self, error: BaseException) -> DamageError:
        return DamageError(f"store: cannot read: {self._said(error)}; {REMEDY}")
