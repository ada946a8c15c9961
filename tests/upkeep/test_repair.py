"""Test the steps of a repair: synced batches of bounded size, and facts that must survive a kill."""

from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import Journal, load_journal
from crawler.upkeep import repair as module
from crawler.upkeep.repair import BoundedWriter, LostPages, RepairNote


class Store:
    """A stand-in for a store that records the content of each batch."""

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
    assert store.written[1:] == [[(b"0123456789", None)]], "the count starts again"
    writer.put(b"c", b"")
    writer.flush()
    assert store.written[2:] == [[(b"c", b"")]] and all(store.synced)
    writer.flush()
    assert store.written[3:] == [[]]


def test_the_facts_found_by_a_repair_survive_a_kill(tmp_path: Path) -> None:
    """Two processes are repaired separately, and the recorded damage is not forgotten."""
    directory = CrawlDirectory(tmp_path)
    note = RepairNote(directory, "p0")
    assert not note.cut_off and load_journal(tmp_path) is None
    note.begin(store_damaged=True)
    again = RepairNote(directory, "p0")
    assert again.cut_off and again.store_damaged
    again.begin(store_damaged=False)
    assert again.store_damaged
    other = RepairNote(directory, "p1")
    assert not other.cut_off
    other.begin(store_damaged=False)
    RepairNote(directory, "p0").end()
    assert load_journal(tmp_path) == Journal("repair", facts={"p1": False})
    left = RepairNote(directory, "p1")
    assert left.cut_off and not left.store_damaged
    left.end()
    assert load_journal(tmp_path) is None


def test_lost_pages_are_durable_before_their_keys_are_deleted(tmp_path: Path) -> None:
    lost = LostPages(tmp_path / "lost")
    lost.add(7)
    lost.add((1 << 64) - 1)
    assert LostPages(tmp_path / "lost") == set()
    lost.keep()
    lost.add(7)
    lost.keep()
    with (tmp_path / "lost").open("ab") as file:
        file.write(b"torn")
    again = LostPages(tmp_path / "lost")
    assert again == {7, (1 << 64) - 1}
    again.add(9)
    again.keep()
    assert LostPages(tmp_path / "lost") == again


def test_lost_pages_are_made_durable_before_each_batch() -> None:
    done: list[str] = []
    store: Any = Store()
    writer = BoundedWriter(store, lambda: done.append(f"kept, {len(store.written)} batches"))
    writer.delete(b"a")
    writer.flush()
    assert done == ["kept, 0 batches"] and len(store.written) == 1
