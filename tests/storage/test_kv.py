"""Test that all engines and the in-memory store behave alike, and that a failed write closes a store permanently."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.storage.engines import open_store
from crawler.storage.kv import (
    DiskStore,
    KeyValue,
    MemoryStore,
    after_prefix,
    not_rebuilt,
    scan_prefix,
    seal,
    unseal,
)
from tests.engines import ENGINES, TABLES

KEYS = st.binary(min_size=1, max_size=3)
OPERATIONS = st.lists(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=6), max_size=6)


def test_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="the path is not UTF-8"):
        open_store(tmp_path / "\udcff")


def apply(store: KeyValue, batches: list[list[tuple[bytes, bytes | None]]]) -> None:
    for operations in batches:
        batch = store.batch(sync=False)
        for key, value in operations:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        store.write(batch)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60)
@given(batches=OPERATIONS, start=st.binary(max_size=2), stop=st.none() | st.binary(min_size=1, max_size=2))
def test_both_stores_behave_like_a_dictionary(tmp_path_factory, engine, batches, start, stop) -> None:
    """After the same batches, all stores have equal contents, and scans in both directions give equal results."""
    model: dict[bytes, bytes] = {}
    for operations in batches:
        for key, value in operations:
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
    expected = [
        item for item in sorted(model.items()) if start <= item[0] and (stop is None or item[0] < stop)
    ]
    disk = open_store(tmp_path_factory.mktemp("store"), engine)
    for store in (disk, MemoryStore()):
        before = store.writes
        apply(store, batches)
        assert store.writes == before + len(batches)
        assert list(store.scan(start, stop)) == expected
        assert list(store.scan(start, stop, reverse=True)) == expected[::-1]
        assert all(store.get(key) == value for key, value in model.items())
    disk.close()


def test_no_key_follows_a_prefix_of_ff_bytes() -> None:
    store = MemoryStore({b"\xff\xff": b"1", b"\xff": b"2", b"a": b"3"})
    assert after_prefix(b"\xff") is None
    assert [key for key, _ in scan_prefix(store, b"\xff")] == [b"\xff", b"\xff\xff"]


def test_synced_writes_survive_a_power_cut() -> None:
    store = MemoryStore(keep_durable=True)
    for key, sync in ((b"a", True), (b"b", False)):
        batch = store.batch(sync=sync)
        batch.put(key, b"")
        store.write(batch)
    assert store.durable == {b"a": b""}
    batch = store.batch(sync=True)
    store.write(batch)
    assert store.durable == {b"a": b"", b"b": b""}


def test_written_data_is_there_after_reopening(tmp_path: Path, engine: str) -> None:
    store = open_store(tmp_path, engine)
    batch = store.batch()
    batch.put(b"k", b"v")
    store.write(batch)
    store.close()
    again = open_store(tmp_path)
    assert again.engine == engine
    assert again.get(b"k") == b"v"
    again.close()


def test_the_engine_says_in_words_why_a_store_cannot_be_opened(tmp_path: Path, engine: str) -> None:
    """The message of plyvel's exceptions is bytes, also if they are instances of OSError."""
    (tmp_path / "LOCK").mkdir()
    with pytest.raises(DirectoryError, match=r"cannot be opened: IO error: .*/LOCK: Is a directory$"):
        open_store(tmp_path, engine)


def test_after_a_failed_write_every_write_fails(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the disk was full, LevelDB itself still acknowledges writes, but all these writes are lost at a restart."""
    store = open_store(tmp_path, engine)

    def full(batch: object) -> None:
        raise store._errors[0]("No space left on device")

    monkeypatch.setattr(store, "_write", full)
    before = store.writes
    with pytest.raises(StoreError, match="No space left"):
        store.write(store.batch())
    monkeypatch.undo()
    assert store.writes == before + 1, "readers must notice that a failed write may have changed the store"
    with pytest.raises(StoreError, match="closed after a failed write"):
        store.write(store.batch())
    store.close()


def test_damage_found_by_a_merge_is_reported_to_the_writer(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a merge in the background finds damage, the next write raises an error that recommends a repair."""
    store = open_store(tmp_path, engine)

    def damaged(batch: object) -> None:
        raise store._errors[0]("Corruption: block checksum mismatch")

    monkeypatch.setattr(type(store), "_write", lambda _, batch: damaged(batch))
    with pytest.raises(DamageError, match="block checksum mismatch; `crawler check --repair`"):
        store.write(store.batch())
    store.close()
    if engine == "rocksdict":  # opening a RocksDB store writes to it
        with pytest.raises(DamageError, match="block checksum mismatch"):
            open_store(tmp_path, engine)
    monkeypatch.undo()
    open_store(tmp_path, engine).close()


@given(payload=st.binary(max_size=40), flip=st.integers(min_value=0))
def test_damage_to_a_sealed_value_is_detected(payload: bytes, flip: int) -> None:
    sealed = seal(payload)
    assert unseal(b"k", sealed) == payload
    bit = flip % (8 * len(sealed))
    damaged = bytearray(sealed)
    damaged[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(DamageError):
        unseal(b"k", bytes(damaged))
    with pytest.raises(DamageError):
        unseal(b"k", sealed[:4])


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_flipped_byte_of_a_table_is_never_silent(tmp_path: Path, engine: str, place: int) -> None:
    """Either all keys are read, or a DamageError is raised.

    Default reads of LevelDB silently lost keys in 3 of 30 cases.
    """
    written = {b"u/" + i.to_bytes(8, "big"): seal(bytes([i % 251]) * 60) for i in range(3000)}
    store = open_store(tmp_path, engine)
    apply(store, [list(written.items())])
    store.compact()
    store.close()
    (table,) = tmp_path.glob(TABLES[engine])
    data = bytearray(table.read_bytes())
    data[len(data) * place // 100] ^= 0xFF
    table.write_bytes(data)
    reads: list[Callable[[DiskStore], dict[bytes, bytes | None]]] = [
        lambda store: dict(store.scan(b"")),
        lambda store: {key: store.get(key) for key in written},
    ]
    for read in reads:
        try:
            with contextlib.closing(open_store(tmp_path)) as store:
                assert read(store) == written
        except DamageError as error:
            assert "check --repair" in str(error)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_not_reported_as_damage(tmp_path: Path, engine: str, number: int) -> None:
    """Otherwise, `check --repair` would rebuild a sound store, and commands would end with 3 instead of 75."""
    said = f"IO error: {tmp_path}/000005.ldb: {os.strerror(number)}"
    store = open_store(tmp_path, engine)
    store.close()
    assert type(store._unreadable(store._errors[0](said))) is StoreError
    assert type(store._unopened(said, damaged=False)) is StoreError
    assert type(not_rebuilt(tmp_path, said)) is StoreError


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENODEV, errno.EOPNOTSUPP, errno.ESTALE, errno.EXDEV])
def test_a_file_system_that_cannot_do_what_an_engine_needs_is_not_damage(
    tmp_path: Path, engine: str, number: int
) -> None:
    """Readers then use a copy of the store on another disk."""
    store = open_store(tmp_path, engine)
    store.close()
    said = f"IO error: {tmp_path}/000005.ldb: {os.strerror(number)}"
    assert type(store._unopened(said, damaged=False)) is StoreError


def test_a_disk_that_fails_may_be_repaired_but_not_opened(tmp_path: Path, engine: str) -> None:
    """A repair keeps what the disk can still read. A store that cannot be opened ends the command with code 75."""
    said = f"IO error: {tmp_path}/000005.ldb: {os.strerror(errno.EIO)}"
    store = open_store(tmp_path, engine)
    store.close()
    assert type(store._unreadable(store._errors[0](said))) is DamageError
    assert type(store._unopened(said, damaged=False)) is StoreError
    assert type(not_rebuilt(tmp_path, said)) is DamageError
