"""Test that a store with a lost manifest is refused, that the message names the repair, and that the repair works."""

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from crawler.errors import DamageError
from crawler.storage.engines import open_store, repair
from crawler.storage.manifest import lost_by_leveldb, lost_by_rocksdb
from tests.engines import TABLES

BATCHES = 40


@pytest.fixture
def model() -> dict[bytes, bytes]:
    return {}


@pytest.fixture
def path(tmp_path: Path, engine: str, model: dict[bytes, bytes]) -> Path:
    """Return a store with several tables, deleted keys and a log."""
    store = open_store(tmp_path / "store", engine, write_buffer_bytes=1 << 16, table_bytes=1 << 20)
    rng = random.Random(1)
    for number in range(BATCHES):
        if engine == "leveldb" and number == BATCHES // 2:  # LevelDB writes the log to a table when it opens
            store.close()
            store = open_store(tmp_path / "store", engine, write_buffer_bytes=1 << 16, table_bytes=1 << 20)
        batch = store.batch(sync=True)
        for _ in range(50):
            key, value = b"t/%04d" % rng.randrange(1500), rng.randbytes(80)
            if rng.random() < 0.3:
                batch.delete(key)
                model.pop(key, None)
            else:
                batch.put(key, value)
                model[key] = value
        store.write(batch)
    store.close()
    assert len(list((tmp_path / "store").glob(TABLES[engine]))) > 1
    return tmp_path / "store"


def manifest(path: Path) -> Path:
    return max(path.glob("MANIFEST-*"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "CURRENT gone": lambda path: (path / "CURRENT").unlink(),
    "CURRENT empty": lambda path: (path / "CURRENT").write_bytes(b""),
    "CURRENT garbage": lambda path: (path / "CURRENT").write_bytes(b"\xff\xfeMAN\n"),
    "manifest gone": lambda path: manifest(path).unlink(),
    "manifest empty": lambda path: manifest(path).write_bytes(b""),
    "manifest torn": lambda path: os.truncate(manifest(path), manifest(path).stat().st_size - 20),
    "manifest halved": lambda path: os.truncate(manifest(path), manifest(path).stat().st_size // 2),
    "manifest flipped": lambda path: flip(manifest(path)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_lost_manifest_is_refused_and_repaired(
    path: Path, engine: str, model: dict[bytes, bytes], damage: str
) -> None:
    """After some of these losses, LevelDB itself would open an empty or an old store, and delete the tables."""
    DAMAGE[damage](path)
    tables = sorted(path.glob(TABLES[engine]))
    if engine == "rocksdict" and damage == "manifest torn" and not lost_by_rocksdb(path):
        with closing(open_store(path)) as store:  # the last edit of the manifest changed nothing
            assert dict(store.scan(b"t/")) == model
        return
    with pytest.raises(DamageError, match="crawler check --repair") as caught:
        open_store(path)
    assert "b'" not in str(caught.value) and sorted(path.glob(TABLES[engine])) == tables
    assert "rebuilt" in repair(path)[0]
    store = open_store(path)
    assert dict(store.scan(b"t/")) == model
    store.close()
    assert repair(path) == ("", False)


def test_an_intact_store_and_a_crash_during_creation_are_accepted(
    path: Path, tmp_path: Path, engine: str
) -> None:
    lost_bookkeeping = {"leveldb": lost_by_leveldb, "rocksdict": lost_by_rocksdb}[engine]
    assert lost_bookkeeping(path) == ""
    begun = tmp_path / "begun"
    begun.mkdir()
    assert lost_bookkeeping(begun) == ""
    (begun / "MANIFEST-000001").write_bytes(manifest(path).read_bytes()[:40])
    assert lost_bookkeeping(begun) == "", "no table and no log: nothing can be lost"
    open_store(begun).close()


def test_an_edit_truncated_by_a_crash_is_not_damage(path: Path, model: dict[bytes, bytes]) -> None:
    """The log that the truncated edit would have replaced still exists, so nothing is lost."""
    with manifest(path).open("ab") as file:
        file.write(b"\x01\x02\x03\x04\x30\x00\x01half an edit")
    store = open_store(path)
    assert dict(store.scan(b"t/")) == model
    store.close()


def test_a_repair_restores_all_readable_tables(path: Path, engine: str) -> None:
    """A missing table cannot be restored. All other tables are restored."""
    sorted(path.glob(TABLES[engine]))[0].unlink()
    with pytest.raises(DamageError, match="missing files|No such file"):
        open_store(path)
    assert "rebuilt" in repair(path)[0]
    open_store(path).close()
