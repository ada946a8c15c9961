"""Test that the heap agrees with a dict. `_check` is called after every operation."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.lab.refresh.indexed_heap import IndexedHeap

CAPACITY = 12
operations = st.lists(
    st.tuples(st.sampled_from(["put", "put", "drop"]), st.integers(0, CAPACITY - 1), st.integers(0, 6)),
    max_size=80,
)


@given(operations)
@settings(max_examples=120)
def test_the_heap_behaves_like_a_dict_with_a_minimum(steps: list[tuple[str, int, int]]) -> None:
    heap, model = IndexedHeap(CAPACITY), dict[int, float]()
    for operation, item, key in steps:
        if operation == "put":
            heap.put(item, float(key))
            model[item] = float(key)
        else:
            heap.drop(item)
            model.pop(item, None)
        heap._check()
        key_and_item = min(((key, item) for item, key in model.items()), default=(math.inf, -1))
        assert (heap.first_key(), heap.first()) == key_and_item
        assert len(heap) == len(model) and heap.holds(item) == (item in model)
        assert heap.key_of(item) == model.get(item, math.inf)


def test_repr_shows_size_and_first_key() -> None:
    heap = IndexedHeap(2)
    heap.put(1, 3.0)
    assert repr(heap) == "IndexedHeap(1 items, first key 3)"
