"""Test that runs in memory can be read, have no file names, and are small."""

import numpy as np
import pytest

from crawler.due.memory_runs import MemoryRuns
from tests.due.arrays import spread


@pytest.mark.parametrize("count", [1, 512, 513, 140_000])
def test_written_keys_are_read_back(count: int, form: str) -> None:
    keys = spread(count, count, "half in one")
    run = MemoryRuns().write([keys[: count // 3], keys[count // 3 :]], len(keys), step="flush")
    assert run.entry is None and (run.fences == keys[::512]).all()
    for start, stop in ((0, 0), (0, count), (count // 3, count // 2)):
        assert (run.read(start, stop) == keys[start:stop]).all()
    queries = np.unique(np.concatenate([keys[::3], keys[:300] + np.uint64(1), keys[-300:] - np.uint64(1)]))
    known = np.zeros(len(queries), np.uint8)
    run.join(queries, known)
    assert (known.astype(bool) == np.isin(queries, keys)).all()
    assert run.problems() == []
    run.rest()
    run.close()


def test_size() -> None:
    """A run of 1e8 keys takes at most 5.5 bytes per key. The test uses a million keys in a hundredth of the range."""
    keys = np.sort(np.random.default_rng(1).integers(0, 2**64 // 100, 1_000_000, np.uint64))
    assert MemoryRuns().write([keys], len(keys), step="flush").byte_count <= 5.2 * len(keys)


def test_check_finds_problems() -> None:
    run = MemoryRuns().write([np.array([1, 5, 5], np.uint64)], 3, step="flush")
    assert "do not ascend" in run.problems()[0]
