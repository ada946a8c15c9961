"""The ordered store: LevelDB and memory behave alike, and a failed write closes for good."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import DamageError, StoreError
from crawler.storage.kv import KeyValue, LevelStore, MemoryStore, after_prefix, scan_prefix, seal, unseal

KEYS = st.binary(min_size=1, max_size=3)
OPERATIONS = st.lists(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=6), max_size=6)


def apply(store: KeyValue, batches: list[list[tuple[bytes, bytes | None]]]) -> None:
    for operations in batches:
        batch = store.batch(sync=False)
        for key, value in operations:
            batch.delete(key) if value is None else batch.put(key, value)
        store.write(batch)


@settings(max_examples=60)
@given(batches=OPERATIONS, start=st.binary(max_size=2), stop=st.none() | st.binary(min_size=1, max_size=2))
def test_both_stores_agree_with_a_dict(tmp_path_factory, batches, start, stop) -> None:
    """Same batches, same contents, same scans in both directions."""
    model: dict[bytes, bytes] = {}
    for operations in batches:
        for key, value in operations:
            model.pop(key, None) if value is None else model.__setitem__(key, value)
    expected = [
        item for item in sorted(model.items()) if start <= item[0] and (stop is None or item[0] < stop)
    ]
    level = LevelStore(tmp_path_factory.mktemp("store"))
    for store in (level, MemoryStore()):
        apply(store, batches)
        assert list(store.scan(start, stop)) == expected
        assert list(store.scan(start, stop, reverse=True)) == expected[::-1]
        assert all(store.get(key) == value for key, value in model.items())
    level.close()


def test_a_prefix_of_ff_has_no_end() -> None:
    store = MemoryStore({b"\xff\xff": b"1", b"\xff": b"2", b"a": b"3"})
    assert after_prefix(b"\xff") is None
    assert [key for key, _ in scan_prefix(store, b"\xff")] == [b"\xff", b"\xff\xff"]


def test_a_power_cut_leaves_what_was_synced() -> None:
    store = MemoryStore(keep_durable=True)
    for key, sync in ((b"a", True), (b"b", False)):
        batch = store.batch(sync=sync)
        batch.put(key, b"")
        store.write(batch)
    assert store.durable == {b"a": b""}
    batch = store.batch(sync=True)
    store.write(batch)
    assert store.durable == {b"a": b"", b"b": b""}


def test_level_store_keeps_what_was_written(tmp_path: Path) -> None:
    store = LevelStore(tmp_path)
    batch = store.batch()
    batch.put(b"k", b"v")
    store.write(batch)
    store.close()
    again = LevelStore(tmp_path)
    assert again.get(b"k") == b"v"
    again.close()


def test_after_a_failed_write_every_write_fails(tmp_path: Path) -> None:
    """LevelDB goes on acknowledging after a full disk, and all of it is gone after a restart."""
    import plyvel

    class FullDisk:
        def write(self) -> None:
            raise plyvel.IOError("No space left on device")

    store = LevelStore(tmp_path)
    with pytest.raises(StoreError, match="No space left"):
        store.write(FullDisk())
    with pytest.raises(StoreError, match="closed after a failed write"):
        store.write(store.batch())
    store.close()


@given(payload=st.binary(max_size=40), flip=st.integers(min_value=0))
def test_a_sealed_value_shows_damage(payload: bytes, flip: int) -> None:
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
def test_a_flipped_byte_of_a_table_is_never_silent(tmp_path: Path, place: int) -> None:
    """All keys, or DamageError; by default reads of LevelDB 3 of 30 such flips lost keys without a word."""
    written = {b"u/" + i.to_bytes(8, "big"): seal(bytes([i % 251]) * 60) for i in range(3000)}
    store = LevelStore(tmp_path)
    apply(store, [list(written.items())])
    store.compact()
    store.close()
    (table,) = tmp_path.glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[len(data) * place // 100] ^= 0xFF
    table.write_bytes(data)
    try:
        store = LevelStore(tmp_path)
        assert dict(store.scan(b"")) == written
        assert all(store.get(key) == value for key, value in written.items())
    except DamageError as error:
        assert "check --repair" in str(error)
