"""Test that every bucket has one owner, and that processes with the same settings have the same bucket table."""

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import ConfigError
from crawler.splitter.partition import BUCKETS, Partition


@given(st.sets(st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True), min_size=1, max_size=40))
def test_equal_ranges_are_contiguous_and_of_equal_length(names: set[str]) -> None:
    table = Partition.equal_ranges(list(names))
    ranges = list(table.ranges())
    assert [name for name, _, _ in ranges] == sorted(names)
    lengths = [end - first for _, first, end in ranges]
    assert sum(lengths) == BUCKETS
    assert max(lengths) - min(lengths) <= 1
    assert Partition.equal_ranges(sorted(names, reverse=True)) == table


@given(st.lists(st.integers(1, BUCKETS - 1), max_size=20, unique=True), st.randoms(use_true_random=False))
def test_a_table_can_be_read_back_from_its_file(cuts: list[int], rng: random.Random) -> None:
    edges = [0, *sorted(cuts), BUCKETS]
    ranges = [(f"p{rng.randrange(5)}", first, end) for first, end in zip(edges, edges[1:], strict=False)]
    rng.shuffle(ranges)
    table = Partition.from_ranges(ranges, epoch=7)
    again = Partition.decode(table.encode())
    assert again == table and again.epoch == 7
    assert np.array_equal(again.owner_of_bucket, table.owner_of_bucket)
    for name, first, end in ranges:
        assert table.owner(first << 48) == table.owner((end << 48) - 1) == name


def test_owners_of_an_array_equal_single_owners() -> None:
    rng = random.Random(5)
    table = Partition.equal_ranges(["a", "b", "c"])
    fingerprints = [rng.getrandbits(64) for _ in range(1000)]
    owners = table.owners(np.array(fingerprints, dtype=np.uint64))
    assert [table.names[owner] for owner in owners.tolist()] == [table.owner(each) for each in fingerprints]
    parts = table.split(np.array(fingerprints, dtype=np.uint64))
    assert sorted(parts) == ["a", "b", "c"]
    for name, positions in parts.items():
        assert positions == np.flatnonzero(owners == table.index(name)).tolist()
    assert table.split(np.zeros(0, np.uint64)) == {}


def test_epoch_names_and_table_are_in_the_digest() -> None:
    tables = [
        Partition.equal_ranges(["a", "b"]),
        Partition.equal_ranges(["a", "b"], epoch=2),
        Partition.equal_ranges(["a", "c"]),
        Partition.from_ranges([("a", 0, 10), ("b", 10, BUCKETS)], epoch=1),
    ]
    assert len({table.digest for table in tables}) == len(tables)


def test_digest_is_the_same_on_every_machine() -> None:
    """The digest is a SHA-256, so it is the same on every machine.

    The digest covers the epoch (8 bytes, big-endian), the names joined by newlines, and the owners (2 bytes
    each).
    """
    owners = b"\x00\x00" * 32768 + b"\x00\x01" * 32768
    expected = hashlib.sha256(b"\x00" * 7 + b"\x01" + b"p0\np1" + owners).hexdigest()[:32]
    assert Partition.equal_ranges(["p0", "p1"]).digest.hex() == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"epoch": 1}',
        b'{"epoch": 1, "ranges": []}',
        b'{"epoch": -1, "ranges": [["a", 0, 65536]]}',
        b'{"epoch": 1, "ranges": [["a", 0, 65535]]}',
        b'{"epoch": 1, "ranges": [["a", 0, 65537]]}',
        b'{"epoch": 1, "ranges": [["a", 0, 100], ["b", 99, 65536]]}',
        b'{"epoch": 1, "ranges": [["a", 0, 100], ["b", 101, 65536]]}',
        b'{"epoch": 1, "ranges": [["a/b", 0, 65536]]}',
        b'{"epoch": 1, "ranges": [["a", 0, 65536]], "more": 1}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_an_invalid_table_is_a_config_error(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError):
        Partition.read(path)


@pytest.mark.parametrize("names", [[], ["a", "a"], [""], ["a b"], ["x" * 64], [".a"]])
def test_bad_names_are_a_config_error(names: list[str]) -> None:
    with pytest.raises(ConfigError):
        Partition.equal_ranges(names)


def test_an_unknown_name_or_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not among"):
        Partition.equal_ranges(["a"]).index("b")
    with pytest.raises(ConfigError, match="No such file"):
        Partition.read(tmp_path / "none")
