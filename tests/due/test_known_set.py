"""Test the known set: the number of runs, the rewrites of each key, slices, and expected collisions."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.bench.due import MemoryRuns
from crawler.bench.streams import mixed
from crawler.due.known_set import KnownSet, unknown
from crawler.due.runs import DiskRuns
from crawler.errors import DamageError
from tests.due import forms

LAST = 2**64 - 1


def known_set(store=None, *, chunk_bytes: int = 160) -> KnownSet:
    return KnownSet(store or MemoryRuns(), [], chunk_bytes=chunk_bytes)


def learn(known: KnownSet, fingerprints: np.ndarray) -> int:
    """Add the fingerprints that are not known yet, do all merges that are due, and return the number added."""
    new, _ = unknown(fingerprints, known.runs)
    if len(new):
        known.add(known.store.write([new], len(new), step="flush"))
    while inputs := known.due_merge():
        known.replace(inputs, known.merge(inputs))
    del inputs
    known.close_replaced()
    return len(new)


@given(
    buffers=st.lists(
        st.lists(
            st.one_of(st.integers(0, 60), st.integers(0, LAST), st.integers(LAST - 9, LAST)), max_size=25
        ),
        max_size=12,
    ),
    chunk_bytes=st.sampled_from([8, 64, 800]),
    form=st.sampled_from(["installed", "interpreted"]),
)
@settings(deadline=None, max_examples=50)
def test_the_known_set_equals_a_python_set(buffers: list[list[int]], chunk_bytes: int, form: str) -> None:
    with forms.using(form):
        known, model = known_set(chunk_bytes=chunk_bytes), set()
        for buffer in buffers:
            new = set(buffer) - model
            model |= new
            assert learn(known, np.array(buffer, np.uint64)) == len(new)
            known._check()
            assert len(known) == len(model)
        chunks = [chunk.copy() for chunk in known.slice(0, 65_536)]
        assert [number for chunk in chunks for number in chunk.tolist()] == sorted(model)
        assert all(0 < len(chunk) <= max(chunk_bytes // 8, 2 * len(known.runs)) for chunk in chunks)
        assert all((number in known) == (number in model) for number in range(70))


def test_runs_are_few_and_rewritten_seldom(tmp_path: Path) -> None:
    """Add N fingerprints in groups of b, with N/b = 100.

    There are at most log2(N/b) + 2 runs, and each fingerprint is rewritten at most log2(N/b) + 1 times.
    """
    written: list[int] = []

    class Counted(MemoryRuns):
        def write(self, chunks, count, *, step):
            written.append(count)
            return super().write(chunks, count, step=step)

    known = known_set(Counted(), chunk_bytes=4096)
    for flush in range(100):
        learn(known, mixed(np.arange(flush * 20, flush * 20 + 20)))
        bound = math.log2(flush + 1)
        assert len(known.runs) <= bound + 2
        assert sum(written) <= 20 * (flush + 1) * (bound + 2)


@pytest.mark.parametrize(
    ("sizes", "merged"), [([4, 2, 1, 1], [8]), ([8, 4, 1, 1], [8, 4, 2]), ([9, 3], [9, 3])]
)
def test_which_runs_are_merged(sizes: list[int], merged: list[int]) -> None:
    """The newest run is merged with each older neighbour that is not larger than the runs gathered so far."""
    known = known_set()
    for number, size in enumerate(sizes):
        known.add(
            known.store.write(
                [np.arange(size, dtype=np.uint64) + np.uint64(100 * number)], size, step="flush"
            )
        )
    inputs = known.due_merge()
    if inputs:
        known.replace(inputs, known.merge(inputs))
    assert [run.count for run in known.runs] == merged, "one merge restores the limits"
    assert known.due_merge() == []


def test_slices_partition_the_set(form: str) -> None:
    """Wherever the buckets are divided, the slices together form the sorted set. A reshard moves such slices."""
    numbers = np.concatenate([mixed(np.arange(3000)), np.array([0, LAST, 5 << 48, (5 << 48) - 1], np.uint64)])
    known = known_set(MemoryRuns(), chunk_bytes=640)
    for start in range(0, len(numbers), 97):
        learn(known, numbers[start : start + 97])
    cuts = [0, 1, 5, 6, 30_000, 65_535, 65_536]
    slices = [
        [chunk.copy() for chunk in known.slice(first, stop)]
        for first, stop in zip(cuts, cuts[1:], strict=False)
    ]
    assert (np.concatenate([chunk for part in slices for chunk in part]) == np.unique(numbers)).all()
    for (first, stop), part in zip(zip(cuts, cuts[1:], strict=False), slices, strict=True):
        assert all(first <= int(chunk[0]) >> 48 and int(chunk[-1]) >> 48 < stop for chunk in part)


def test_a_merge_of_unlike_sizes_goes_in_few_windows(form: str) -> None:
    """Cover the merge of a tiny run with a large one, and of runs whose ranges follow each other."""
    known = known_set(chunk_bytes=8 * 1024)
    large = np.arange(100_000, dtype=np.uint64) << np.uint64(20)
    for keys in (large, large[::5000] + np.uint64(1), large + np.uint64(1 << 40)):
        known.add(known.store.write([keys], len(keys), step="flush"))
    chunks = [len(chunk) for chunk in known.slice(0, 65_536)]
    assert sum(chunks) == len(known) and max(chunks) <= 1024
    assert len(chunks) <= 3 * len(known) / 1024


def test_a_key_in_two_runs_is_damage(form: str) -> None:
    known = known_set()
    for keys in ([1, 5, 9], [2, 5]):
        known.add(known.store.write([np.array(keys, np.uint64)], len(keys), step="flush"))
    with pytest.raises(DamageError, match="in common"):
        known.merge(known.runs)
    assert any("in common" in problem for problem in known.problems())


def test_expected_collisions_of_an_even_spread() -> None:
    """For N URLs, N^2 / 2^65 collisions are expected.

    So 0.03 collisions are expected for 1e9 URLs, as in the specification, and 3e-8 for 1e6 URLs.
    """
    known = known_set(chunk_bytes=1 << 20)
    learn(known, mixed(np.arange(1_000_000)))
    assert known.expected_collisions() == pytest.approx(1e12 / 2**65, rel=0.5)


def test_expected_collisions_of_one_large_host() -> None:
    """One host with n URLs adds n^2 / 2^49 expected collisions (0.2 for 1e7 URLs)."""
    known = known_set(chunk_bytes=1 << 20)
    learn(known, mixed(np.arange(1_000_000)) >> np.uint64(16) | np.uint64(77 << 48))
    assert known.expected_collisions() == pytest.approx(1e12 / 2**49, rel=0.01)


def test_expected_collisions_of_nothing() -> None:
    assert known_set().expected_collisions() == 0.0


def test_on_disk_a_merge_removes_its_inputs(tmp_path: Path) -> None:
    known = known_set(DiskRuns(tmp_path, []))
    for start in range(0, 160, 10):
        learn(known, np.arange(start, start + 10, dtype=np.uint64))
    assert [run.count for run in known.runs] == [160]
    assert [path.name for path in tmp_path.iterdir()] == [run.path.name for run in known.runs]
