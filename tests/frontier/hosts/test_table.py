"""Compare the host table with a dict, and test the stored form and the size of the table."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import DamageError
from crawler.frontier.hosts import table as table_module
from crawler.frontier.hosts.table import (
    NOWHERE,
    RECORD,
    HostFlag,
    HostTable,
    KeyedTable,
    full_record,
    host_key_bytes,
    stored_name,
)
from crawler.storage.kv import MemoryStore, seal, unseal


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40).map(lambda n: n << 40 | n & 3), max_size=60), st.integers(0, 3))
def test_inserted_hosts_are_found(keys: list[int], chunk: int) -> None:
    """Keys with the same home position are found while the table grows.

    The keys are inserted one by one or as rows.
    """
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
    """`_check` looks up all keys after each insert, in tables that double many times."""
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
    """Measure the memory of the table and its index. During a move to a larger index, a quarter more is allowed."""
    table, rng, worst = HostTable(), random.Random(5), 0.0
    for count in range(1, 200_001):
        table.insert(rng.getrandbits(64))
        if count % 1000 == 0 and count > 50_000:
            worst = max(worst, table.bytes_held / count)
    assert worst < 104
    assert HostTable(1_000_000).bytes_held / 1_000_000 < 82


STORED = ("ready", "gap", "slowdown", "silent_since", "cursor", "todo", "parked", "known", "flags")
STORED += ("failures", "refusals", "cause", "maps")


@pytest.mark.parametrize("chunk", [1, 3, 65_536])
def test_short_and_full_records_are_restored(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """A record is short if all fields that the short form omits are 0.

    Both ways of packing give the same bytes, and loading restores all fields.
    """
    monkeypatch.setattr(table_module, "_OPEN_CHUNK", chunk)
    table, store, rng = HostTable(), MemoryStore(), random.Random(2)
    batch, names = store.batch(), {}
    for _ in range(60):
        slot = table.insert(rng.getrandbits(64))
        names[slot] = f"host-{slot}.org"
        table.cursor[slot], table.todo[slot], table.known[slot] = rng.getrandbits(64), rng.randrange(9), 5
        if column := rng.choice([*STORED, "", "", ""]):
            getattr(table, column)[slot] = 1
    domain_keys = np.array([slot * 77 for slot in names], np.uint64)
    values = table.pack_many(list(names), names.values(), domain_keys)
    for slot, value in enumerate(values):
        assert value == table.pack(slot, names[slot], slot * 77)
        left_out = [getattr(table, name)[slot] for name in STORED if name not in ("cursor", "todo", "known")]
        assert len(value) == 5 + (68 if any(left_out) else 28) + len(names[slot])
        key = host_key_bytes(table.key[slot])
        whole = full_record(key, unseal(key, value))
        assert len(whole) == RECORD.size + len(names[slot]) and whole[:8] == key[:1:-1]
        batch.put(key, value)
    store.write(batch)
    loaded = HostTable()
    records = np.concatenate(list(loaded.load(store)))
    loaded._check()
    assert len({len(value) - len(names[slot]) for slot, value in enumerate(values)}) == 2
    for slot in range(len(loaded)):
        twin = table.find(loaded.key[slot])
        for name in STORED:
            assert getattr(loaded, name)[slot] == getattr(table, name)[twin], name
        assert records["domain_key"][slot] == 77 * twin and records["key"][slot] == table.key[twin]
        assert stored_name(store, loaded.key[slot]) == names[twin]


def test_ready_times_set_by_opening_are_not_stored() -> None:
    """After an unclean stop, every new host waits for its delay, which begins at opening. This wait is not stored."""
    table = HostTable()
    table.opened_at = 100.0
    slots = [table.insert(number << 8 | 1) for number in range(3)]
    for slot, ready in zip(slots, (0.0, 100.0, 100.5), strict=True):
        table.ready[slot] = ready
    values = table.pack_many(slots, ["a.org"] * 3, np.zeros(3, np.uint64))
    assert [len(value) for value in values] == [38, 38, 78]
    assert values == [table.pack(slot, "a.org", 0) for slot in slots]


def test_the_stored_forms_of_a_host() -> None:
    """Test the bytes for a host without requests, and for one with requests (the 68-byte form of version 0.1.0)."""
    table = HostTable()
    slot = table.insert(0x0102_0304_0506_0708)
    table.cursor[slot], table.todo[slot], table.known[slot] = 0x80 << 56, 3, 4
    short = "f7f8f9fa000000000000008003000000040000000900000000000000612e6f7267"
    assert table.pack(slot, "a.org", 9)[5:].hex() == short
    table.ready[slot], table.gap[slot], table.flags[slot] = 2.0, 1.0, HostFlag.REACHED
    full = "080706050403020100000000000000400000803f0000000000000000000000000000000000000080"
    full += "03000000000000000400000009000000000000002000000000000000612e6f7267"
    assert table.pack(slot, "a.org", 9)[5:].hex() == full


def test_a_record_of_another_host_is_reported() -> None:
    """Records of both forms are checked. A full record that is read as a short record has the wrong mark."""
    for asked in (0, HostFlag.REACHED):
        table = HostTable()
        slot = table.insert(5 << 32 | 7)
        table.flags[slot] = asked
        key, value = host_key_bytes(5 << 32 | 8), table.pack(slot, "a.org", 1)
        with pytest.raises(DamageError, match="h/.*another host"):
            list(HostTable().load(MemoryStore({key: value})))
        with pytest.raises(DamageError, match="h/.*another host"):
            full_record(key, unseal(key, value))


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
def test_a_damaged_record_is_reported(value: bytes) -> None:
    store = MemoryStore({host_key_bytes(5): value})
    with pytest.raises(DamageError, match="h/"):
        list(HostTable().load(store))


def test_a_missing_record_is_reported() -> None:
    with pytest.raises(DamageError, match="h/"):
        stored_name(MemoryStore(), 77)


def fill(table: KeyedTable) -> None:
    """Insert rows until the next insert makes the table grow.

    A table that has just been opened has this number of rows.
    """
    while table.count < table._capacity:
        table.insert(table.count + 1 << 20)


@pytest.mark.parametrize("name", ["key", *HostTable.columns])
def test_a_column_held_while_the_table_grows_sees_the_new_row(name: str) -> None:
    """Code once raised IndexError if it had fetched a column before a call that made the table grow."""
    table = HostTable(capacity=2)
    column = getattr(table, name)
    for _ in range(3):
        fill(table)
        column[table.insert(1 << 60 | table.count)] += 0
        assert getattr(table, name) is column
        assert column[table.count - 1] == getattr(table, name)[table.count - 1]
    table._check()


def test_whole_columns_are_returned_as_copies() -> None:
    """A view would prevent the table from growing, or show outdated rows."""
    table = HostTable(capacity=4)
    fill(table)
    read = [table.array("ready"), table.gather("ready", np.array([1, 3])), table.gather("ready", slice(0, 2))]
    table.put("ready", slice(None), 5.0)
    table.insert(1 << 60)  # growing would raise BufferError if a view existed
    assert all(not numbers.any() for numbers in read)
    assert table.array("ready").tolist() == [5.0] * 4 + [0.0]
    table.put("ready", np.array([0, 4]), [1.0, 2.0])
    table.put("todo", table.array("ready") == 5.0, 7)
    assert table.array("ready").tolist() == [1.0, 5.0, 5.0, 5.0, 2.0]
    assert table.array("todo").tolist() == [0, 7, 7, 7, 0]
