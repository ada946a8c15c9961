"""Test that the pending set behaves like a Python set, both as a compiled module and as ordinary Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.due.arrays import ARRAYS
from tests.due.forms import PENDING_SET

pending_set = pytest.fixture(params=list(PENDING_SET.values()), ids=list(PENDING_SET))(
    lambda request: request.param
)


@given(batches=st.lists(ARRAYS, max_size=12))
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("module", list(PENDING_SET.values()), ids=list(PENDING_SET))
def test_pending_set_is_a_set_until_it_is_full(module, batches: list[np.ndarray]) -> None:
    pending, model = module.PendingSet(100), set()
    for batch in batches:
        if len(model) + len(batch) > 100:
            model.clear()
        fresh = []
        for number in batch.tolist():
            fresh.append(number not in model)
            model.add(number)
        assert pending.add_many(batch).tolist() == fresh
        assert len(pending) == len(model)


def test_pending_set_grows_and_is_cleared(pending_set) -> None:
    pending = pending_set.PendingSet(10_000)
    keys = np.arange(0, 5_000, dtype=np.uint64) << np.uint64(32)
    for start in range(0, 5_000, 500):
        assert pending.add_many(keys[start : start + 500]).all()
    assert len(pending) == 5_000 and not pending.add_many(keys).any()
    pending.clear()
    assert len(pending) == 0 and pending.add_many(keys).all()
