"""Runs in memory, in both forms: what is packed comes out again, and nothing else is found."""

import numpy as np
import pytest

from crawler.due.memory_runs import ArrayRun, MemoryRuns
from tests.due.arrays import spread
from tests.due.forms import SPLIT_RUN

split = pytest.fixture(params=[module.SplitRun for module in SPLIT_RUN.values()], ids=list(SPLIT_RUN))(
    lambda request: request.param
)


@pytest.mark.parametrize("shape", ["even", "one bucket", "half in one"])
@pytest.mark.parametrize("count", [1, 512, 513, 5_000, 140_000])
def test_what_is_packed_comes_out_again(split, count: int, shape: str) -> None:
    """140,000 keys are more than two stretches, as the interpreted form takes them."""
    keys = spread(count, count, shape)
    run = split([keys[: count // 3], keys[count // 3 : count // 3 + 7], keys[count // 3 + 7 :]], len(keys))
    assert (run.read(0, len(keys)) == keys).all()
    assert (run.fences == keys[::512]).all()
    for start, stop in (
        (0, 0),
        (len(keys), len(keys)),
        (len(keys) // 2, len(keys)),
        (len(keys) // 3, len(keys) // 2),
    ):
        assert (run.read(start, stop) == keys[start:stop]).all()
    queries = np.unique(np.concatenate([keys[::3], keys[:300] + np.uint64(1), keys[-300:] - np.uint64(1)]))
    known = np.zeros(len(queries), np.uint8)
    run.join(queries, known)
    assert (known.astype(bool) == np.isin(queries, keys)).all()
    assert run.problems() == []


def test_size() -> None:
    """5.14 bytes a key and 2 MiB: what 1e8 keys take, checked on fewer."""
    keys = np.arange(1, 2_000_001, dtype=np.uint64) << np.uint64(40)
    run = SPLIT_RUN["installed"].SplitRun([keys >> np.uint64(1)], len(keys))
    assert run.byte_count <= 5.142 * len(keys) + (2 << 20) + 64


def test_small_runs_are_plain_arrays() -> None:
    keys = np.arange(10, dtype=np.uint64)
    runs = MemoryRuns(split_count_min=11)
    assert isinstance(runs.write([keys[:4], keys[4:]], 10, step="flush"), ArrayRun)
    assert not isinstance(runs.write([np.arange(11, dtype=np.uint64)], 11, step="flush"), ArrayRun)


def test_problems_are_found() -> None:
    keys = np.array([1, 5, 5], np.uint64)
    assert "do not ascend" in ArrayRun([keys], 3).problems()[0]
    assert "do not ascend" in SPLIT_RUN["installed"].SplitRun([keys], 3).problems()[0]
