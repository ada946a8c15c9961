"""Test the steps of a repair: synced batches of bounded size, and facts that must survive a kill."""

from pathlib import Path

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import Journal, load_journal
from crawler.storage.kv import MemoryStore
from crawler.upkeep import repair as module
from crawler.upkeep.repair import BoundedWriter, LostPages, RepairNote


def test_batches_are_synced_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 10)
    store = MemoryStore({b"b": b"1", b"0123456789": b"2"}, keep_durable=True)
    writer = BoundedWriter(store)
    writer.put(b"aa", b"1234567")  # 9 bytes
    assert store.writes == 0
    writer.delete(b"b")
    assert store.writes == 1 and store.durable == {b"aa": b"1234567", b"0123456789": b"2"}
    writer.delete(b"0123456789")
    assert store.writes == 2 and store.durable == {b"aa": b"1234567"}, "the count starts again"
    writer.put(b"c", b"")
    assert store.writes == 2
    writer.flush()
    assert store.durable == {b"aa": b"1234567", b"c": b""}


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
    store = MemoryStore()
    writer = BoundedWriter(store, lambda: done.append(f"kept, {store.writes} batches"))
    writer.delete(b"a")
    writer.flush()
    assert done == ["kept, 0 batches"] and store.writes == 1
