"""The host table against a dict, its stored form, its size."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import DamageError
from crawler.frontier.hosts.table import (
    NOWHERE,
    RECORD,
    HostFlag,
    HostTable,
    KeyedTable,
    host_key_bytes,
    stored_name,
)
from crawler.storage.kv import MemoryStore, seal


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40).map(lambda n: n << 40 | n & 3), max_size=60), st.integers(0, 3))
def test_finds_what_was_inserted(keys: list[int], chunk: int) -> None:
    """Keys that share their home position, inserted one by one or as rows, in a table that grows."""
    table, model = KeyedTable(capacity=2), {}
    for key in keys:
        assert table.find(key) == model.get(key, NOWHERE)
        if key not in model:
            model[key] = table.insert(key)
    new = [key for key in range(1, chunk + 1) if key not in model]
    first = table.extend(np.array([(key,) for key in new], dtype=[("key", "u8")]))
    model.update({key: first + index for index, key in enumerate(new)})
    table._check()
    assert len(table) == len(model)
    assert all(table.find(key) == slot for key, slot in model.items())


def test_columns_keep_their_values_while_the_table_grows() -> None:
    table = HostTable(capacity=4)
    for key in range(1, 2000):
        slot = table.insert(key * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        table.ready[slot], table.todo[slot], table.flags[slot] = key + 0.5, key, key & 15
    assert list(table.array("todo")) == list(range(1, 2000))
    assert table.ready[1998] == 1999.5 and table.flags[14] == 15


def test_every_key_is_found_while_the_index_moves() -> None:
    """After each insert, in tables that double many times; `_check` asks for all keys."""
    for seed in range(8):
        rng = random.Random(seed)
        table, keys = HostTable(seed + 1), []
        for _ in range(1_500):
            keys.append(rng.getrandbits(64) & (0xFF if rng.random() < 0.05 else -1) | len(keys) << 40)
            assert table.insert(keys[-1]) == len(keys) - 1
            known = rng.randrange(len(keys))
            assert table.find(keys[known]) == known and table.find(keys[-1] ^ 1 << 39) == NOWHERE
            if len(keys) % 97 == 0:
                table._check()


def test_a_host_costs_at_most_a_hundred_bytes() -> None:
    """The whole table with its index; a quarter more while it moves to a larger one."""
    table, rng, worst = HostTable(), random.Random(5), 0.0
    for count in range(1, 200_001):
        table.insert(rng.getrandbits(64))
        if count % 1000 == 0 and count > 50_000:
            worst = max(worst, table.bytes_held / count)
    assert worst < 104
    assert HostTable(1_000_000).bytes_held / 1_000_000 < 82


def test_stored_hosts_come_back() -> None:
    table, batch_store = HostTable(), MemoryStore()
    batch = batch_store.batch()
    for index in range(300):
        slot = table.insert(index * 7919 + (index << 50))
        table.ready[slot], table.gap[slot], table.cursor[slot] = 1e9 + index, 1.5, index << 40
        table.todo[slot], table.failures[slot], table.flags[slot] = index, index % 9, HostFlag.BLOCKED
        batch.put(host_key_bytes(table.key[slot]), table.pack(slot, f"h{index}.org", index))
    batch_store.write(batch)
    loaded = HostTable()
    records = np.concatenate(list(loaded.load(batch_store)))
    loaded._check()
    assert len(loaded) == 300
    for slot in range(300):
        twin = table.find(loaded.key[slot])
        for name in ("ready", "gap", "cursor", "todo", "failures", "flags"):
            assert getattr(loaded, name)[slot] == getattr(table, name)[twin], name
        assert records["domain_key"][slot] == twin
        assert stored_name(batch_store, loaded.key[slot]) == f"h{twin}.org"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"garbage that is long enough",
        seal(b"x" * RECORD.size),
        seal(b"short"),
        seal(bytes(RECORD.size))[:-1],
    ],
)
def test_a_damaged_record_is_named(value: bytes) -> None:
    store = MemoryStore({host_key_bytes(5): value})
    with pytest.raises(DamageError, match="h/"):
        list(HostTable().load(store))


def test_a_missing_record_is_named() -> None:
    with pytest.raises(DamageError, match="h/"):
        stored_name(MemoryStore(), 77)


def fill(table: KeyedTable) -> None:
    """Insert until the next row needs the table to grow, as it is right after opening."""
    while table.count < table._capacity:
        table.insert(table.count + 1 << 20)


@pytest.mark.parametrize("name", ["key", *HostTable.columns])
def test_a_column_held_while_the_table_grows_sees_the_new_row(name: str) -> None:
    """A column was evaluated before the call that grew the table, and indexed behind it: IndexError."""
    table = HostTable(capacity=2)
    column = getattr(table, name)
    for _ in range(3):
        fill(table)
        column[table.insert(1 << 60 | table.count)] += 0
        assert getattr(table, name) is column
        assert column[table.count - 1] == getattr(table, name)[table.count - 1]
    table._check()


def test_what_is_read_of_whole_columns_is_a_copy() -> None:
    """A view would forbid the growth while it lives, or show rows of long ago."""
    table = HostTable(capacity=4)
    fill(table)
    read = [table.array("ready"), table.gather("ready", np.array([1, 3])), table.gather("ready", slice(0, 2))]
    table.put("ready", slice(None), 5.0)
    table.insert(1 << 60)  # would raise BufferError
    assert all(not numbers.any() for numbers in read)
    assert table.array("ready").tolist() == [5.0] * 4 + [0.0]
    table.put("ready", np.array([0, 4]), [1.0, 2.0])
    table.put("todo", table.array("ready") == 5.0, 7)
    assert table.array("ready").tolist() == [1.0, 5.0, 5.0, 5.0, 2.0]
    assert table.array("todo").tolist() == [0, 7, 7, 7, 0]
