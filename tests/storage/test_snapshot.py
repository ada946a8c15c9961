"""Test that a copy of an open store has the store's state at one moment, although writes continue."""

import os
from pathlib import Path

import pytest

from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.storage import snapshot as module
from crawler.storage.engines import open_store
from crawler.storage.kv import DiskStore
from crawler.storage.snapshot import snapshot


def _filled(path: Path, rounds: int, engine: str) -> DiskStore:
    """Return a store with tables and a log, which was filled by numbered writes."""
    store = open_store(path, engine, write_buffer_bytes=64 << 10)
    for number in range(rounds):
        _write(store, number)
    return store


def _write(store: DiskStore, number: int) -> None:
    batch = store.batch()
    batch.put(b"k%06d" % number, os.urandom(1000))
    batch.put(b"last", b"%d" % number)
    store.write(batch)


def _state(path: Path) -> int:
    """Return the number of a store's last write, and assert that the store has all earlier writes and no later ones."""
    copy = open_store(path)
    last = int(copy.get(b"last") or b"-1")
    keys = [key for key, _ in copy.scan(b"k", b"l")]
    copy.close()
    assert keys == [b"k%06d" % number for number in range(last + 1)]
    return last


def test_the_copy_is_the_store_at_that_moment(tmp_path: Path, engine: str) -> None:
    store = _filled(tmp_path / "store", 500, engine)
    snapshot(tmp_path / "store", tmp_path / "copy")
    for number in range(500, 1500):
        _write(store, number)
    store.compact()
    assert _state(tmp_path / "copy") == 499
    snapshot(tmp_path / "store", tmp_path / "again")
    store.close()
    assert _state(tmp_path / "again") == 1499
    assert _state(tmp_path / "store") == 1499, "the original was not touched"


def test_a_copy_of_a_changing_store_is_one_state(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes, flushes and compactions happen while files are copied.

    Nevertheless, the copy shows one state of the store.
    """
    store = _filled(tmp_path / "store", 300, engine)
    written = [300]
    copyfile, link = module.shutil.copyfile, module.os.link
    moves = [0]

    def move_on() -> None:
        moves[0] += 1
        for _ in range(20 if moves[0] < 60 else 0):  # in the end, the store stops changing
            _write(store, written[0])
            written[0] += 1
        if moves[0] % 7 == 0 and moves[0] < 60:
            store.compact()

    def slow_copy(source: Path, target: Path) -> None:
        move_on()
        copyfile(source, target)

    def slow_link(source: Path, target: Path) -> None:
        move_on()
        link(source, target)

    monkeypatch.setattr(module.shutil, "copyfile", slow_copy)
    monkeypatch.setattr(module.os, "link", slow_link)
    snapshot(tmp_path / "store", tmp_path / "copy", pause=lambda seconds: None)
    monkeypatch.undo()
    before = written[0]
    store.close()
    assert 300 <= _state(tmp_path / "copy") + 1 <= before


def test_files_are_copied_if_links_are_not_possible(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    _filled(tmp_path / "store", 300, engine).close()
    monkeypatch.setattr(module.os, "link", no_links)
    snapshot(tmp_path / "store", tmp_path / "copy")
    assert _state(tmp_path / "copy") == 299


def test_a_file_that_the_disk_cannot_read_is_named(tmp_path: Path, engine: str) -> None:
    _filled(tmp_path / "store", 20, engine).close()
    broken = next((tmp_path / "store").glob("*.log"))
    broken.unlink()
    broken.symlink_to("/proc/self/mem")  # its first byte cannot be read: EIO
    with pytest.raises(StoreError, match=rf"^{broken}: cannot be copied: Input/output error$"):
        snapshot(tmp_path / "store", tmp_path / "copy")


def test_a_folder_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DirectoryError, match="CURRENT is missing"):
        snapshot(tmp_path / "empty", tmp_path / "copy")
    for name in ("../../etc/passwd\n", "MANIFES", "nANIFEST-000004\n"):
        (tmp_path / "empty" / "CURRENT").write_text(name)
        with pytest.raises(DamageError, match="names no manifest"):
            snapshot(tmp_path / "empty", tmp_path / "copy")
    (tmp_path / "empty" / "CURRENT").write_text("MANIFEST-000009\n")
    with pytest.raises(DamageError, match="MANIFEST-000009, which is missing"):
        snapshot(tmp_path / "empty", tmp_path / "copy", pause=lambda seconds: None)


def test_a_store_that_never_stops_changing_is_refused(tmp_path: Path, engine: str) -> None:
    store = _filled(tmp_path / "store", 10, engine)

    def pause(seconds: float) -> None:
        pauses.append(seconds)

    pauses: list[float] = []
    original = module._copied
    try:
        module._copied = lambda *_: False
        with pytest.raises(DirectoryError, match="try again"):
            snapshot(tmp_path / "store", tmp_path / "copy", pause=pause)
    finally:
        module._copied = original
    store.close()
    assert len(pauses) == module.TRIES


def test_a_copy_never_writes_into_a_table_of_the_original(tmp_path: Path, engine: str) -> None:
    """Regression: a copy contained a link to a new table that the manifest did not name yet, and overwrote this table."""
    _filled(tmp_path / "store", 20, engine).close()
    _filled(tmp_path / "store", 40, engine)  # the log is not empty, so opening the copy writes it to a table
    kind = "ldb" if engine == "leveldb" else "sst"
    unnamed = [tmp_path / "store" / f"{number:06d}.{kind}" for number in range(1, 100)]
    unnamed = [path for path in unnamed if not path.exists()]
    for path in unnamed:
        path.write_bytes(b"being written")
    snapshot(tmp_path / "store", tmp_path / "copy")
    assert _state(tmp_path / "copy") == 39
    assert {path.read_bytes() for path in unnamed} == {b"being written"}
