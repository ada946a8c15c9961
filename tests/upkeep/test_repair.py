"""What the steps of a repair write: in synced batches of bounded size."""

from typing import Any

import pytest

from crawler.upkeep import repair as module
from crawler.upkeep.repair import BoundedWriter


class Store:
    """Takes batches and remembers what was in each."""

    def __init__(self) -> None:
        self.written: list[list[tuple[bytes, bytes | None]]] = []
        self.synced: list[bool] = []

    def batch(self, *, sync: bool) -> Any:
        self.synced.append(sync)
        return Batch()

    def write(self, batch: "Batch") -> None:
        self.written.append(batch.changes)


class Batch:
    def __init__(self) -> None:
        self.changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None))


def test_batches_are_synced_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 10)
    store: Any = Store()
    writer = BoundedWriter(store)
    writer.put(b"aa", b"1234567")  # 9 bytes
    assert store.written == []
    writer.delete(b"b")
    assert store.written == [[(b"aa", b"1234567"), (b"b", None)]]
    writer.delete(b"0123456789")
    assert store.written[1:] == [[(b"0123456789", None)]], "counted anew"
    writer.put(b"c", b"")
    writer.flush()
    assert store.written[2:] == [[(b"c", b"")]] and all(store.synced)
    writer.flush()
    assert store.written[3:] == [[]]
