"""Test that sorting and merging, with installed and interpreted kernels, give the same results as numpy."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.due.arrays import ARRAYS
from tests.due.forms import SORTING

sorting = pytest.fixture(params=list(SORTING.values()), ids=list(SORTING))(lambda request: request.param)


@given(keys=ARRAYS)
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("sorting", list(SORTING.values()), ids=list(SORTING))
def test_sort_is_stable(sorting, keys: np.ndarray) -> None:
    before = keys.copy()
    ascending, places = sorting.sort(keys)
    assert (keys == before).all()
    assert (ascending == np.sort(keys)).all()
    assert (places == np.argsort(keys, kind="stable")).all()


def test_sort_of_many_with_repeats(sorting) -> None:
    keys = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    keys[::3] = keys[0]
    ascending, places = sorting.sort(keys)
    assert (ascending == np.sort(keys)).all() and (places == np.argsort(keys, kind="stable")).all()


@given(left=ARRAYS, right=ARRAYS)
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("sorting", list(SORTING.values()), ids=list(SORTING))
def test_merge(sorting, left: np.ndarray, right: np.ndarray) -> None:
    left, right = np.unique(left), np.unique(right)
    out = np.empty(len(left) + len(right), np.uint64)
    distinct = sorting.merge(left, right, out)
    assert out.tolist() == sorted(left.tolist() + right.tolist())
    assert distinct == (len(np.intersect1d(left, right)) == 0)
