"""The join with plain runs, in both forms, against numpy."""

import numpy as np
import pytest

from crawler.due.fences import FENCE_STEP
from tests.due.arrays import spread
from tests.due.forms import PLAIN_JOIN

plain_join = pytest.fixture(params=list(PLAIN_JOIN.values()), ids=list(PLAIN_JOIN))(
    lambda request: request.param
)


@pytest.mark.parametrize("shape", ["even", "one bucket", "half in one"])
@pytest.mark.parametrize("count", [1, 2, FENCE_STEP - 1, FENCE_STEP, FENCE_STEP + 1, 20 * FENCE_STEP + 3])
def test_join(plain_join, count: int, shape: str) -> None:
    """Keys, their neighbours, and others; keys at the ends of blocks; some queries known before."""
    keys = spread(count, count, shape)
    others = np.random.default_rng(3).integers(0, 2**64, 300, dtype=np.uint64)
    queries = np.unique(np.concatenate([keys[::3], keys + np.uint64(1), keys - np.uint64(1), others]))
    known = np.zeros(len(queries), np.uint8)
    known[::7] = 1
    plain_join.join(queries, keys, keys[::FENCE_STEP].copy(), known)
    assert (known.astype(bool) == (np.isin(queries, keys) | (np.arange(len(queries)) % 7 == 0))).all()


def test_join_where_the_guess_is_always_wrong(plain_join) -> None:
    """In each block all keys but the fence lie next to the following fence: a guess is a block off."""
    blocks = np.arange(1, 30, dtype=np.uint64) << np.uint64(50)
    inner = np.arange(1, FENCE_STEP, dtype=np.uint64)
    keys = np.concatenate([np.append(block, block + np.uint64(1 << 50) - inner[::-1]) for block in blocks])
    queries = np.unique(np.concatenate([keys, keys + np.uint64(1), keys - np.uint64(1)]))
    known = np.zeros(len(queries), np.uint8)
    plain_join.join(queries, keys, keys[::FENCE_STEP].copy(), known)
    assert (known.astype(bool) == np.isin(queries, keys)).all()


def test_join_of_nothing(plain_join) -> None:
    nothing = np.zeros(0, np.uint64)
    some = np.array([1, 5], np.uint64)
    known = np.zeros(2, np.uint8)
    plain_join.join(nothing, some, some[:1], np.zeros(0, np.uint8))
    plain_join.join(some, nothing, nothing, known)
    assert known.tolist() == [0, 0]
