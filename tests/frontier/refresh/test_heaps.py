"""Compare the meldable heaps and the numbering of keys with a dict. `_check` runs after each random operation."""

import importlib.machinery
import importlib.util
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler import kernel_selection
from crawler.freshness import columns
from crawler.frontier.refresh import heaps, numbering


@contextmanager
def form(module: ModuleType, source: bool) -> Iterator[ModuleType]:
    """Yield the module that is installed, then the interpreted form of this module."""
    if not source:
        yield module
        return
    path = str(module.__file__).split(".cpython")[0].removesuffix(".py") + ".py"
    loader = importlib.machinery.SourceFileLoader(module.__name__ + "_source", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    with mock.patch.object(kernel_selection, "are_interpreted", lambda: True):
        loader.exec_module(found)
        yield found


BOTH = pytest.mark.parametrize("source", [False, True], ids=["compiled", "interpreted"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["insert", "remove", "move"]),
        st.integers(0, 11),
        st.integers(0, 2),
        st.floats(-2.0, 2.0).map(lambda key: round(key, 1)),
    ),
    max_size=80,
)


@BOTH
@given(events=steps)
@settings(max_examples=60, deadline=None)
def test_heaps_agree_with_a_dict(source: bool, events: list[tuple[str, int, int, float]]) -> None:
    with form(heaps, source) as module:
        agree(module.Heaps(), events)


def agree(forest: heaps.Heaps, events: list[tuple[str, int, int, float]]) -> None:
    roots, model = [-1, -1, -1], [dict[int, float]() for _ in range(3)]
    for node in range(12):
        forest.clear(node, 0)
    for event, node, which, key in events:
        home = next((k for k in range(3) if node in model[k]), None)
        assert forest.holds(node) == (home is not None)
        if event == "insert" and home is None:
            roots[which] = forest.insert(roots[which], node, key)
            model[which][node] = key
        elif event == "remove" and home is not None:
            roots[home] = forest.remove(roots[home], node)
            del model[home][node]
        elif event == "move" and home is not None:
            roots[home] = forest.move(roots[home], node, key)
            model[home][node] = key
        for root, held in zip(roots, model, strict=True):
            assert sorted(forest._check(root)) == sorted(held)
            assert root == (min(held, key=lambda number: (held[number], number)) if held else -1)
            assert root < 0 or forest.key_of(root) == held[root]


@BOTH
def test_keys_keep_their_numbers_while_the_table_grows(source: bool) -> None:
    with form(numbering, source) as module:
        keep_numbers(module.Numbering())


def keep_numbers(table: numbering.Numbering) -> None:
    rng = random.Random(1)
    model: dict[int, int] = {}
    for step in range(3000):
        if rng.random() < 0.7 or not model:
            key = rng.getrandbits(64) if rng.random() < 0.5 else step
            if key not in model:
                assert table.find(key) == -1
                model[key] = table.insert(key)
        else:
            key = rng.choice(list(model))
            number = model.pop(key)
            table.remove(number)
            table.recycle(number)
        assert len(table) == len(model)
    assert {key: table.find(key) for key in model} == model
    assert {table.key_of(number) for number in table._check()} == set(model)
    assert table.rows < 3000


def test_a_removed_number_is_not_given_out_before_it_is_recycled() -> None:
    table = numbering.Numbering()
    first = table.insert(7)
    table.remove(first)
    assert table.find(7) == -1 and table.insert(8) != first
    table.recycle(first)
    assert table.insert(9) == first


@pytest.mark.parametrize("held", [False, True])
def test_a_column_grows_in_place_or_by_copy_if_a_view_is_held(held: bool) -> None:
    column = columns.Column("i4")
    view = np.asarray(column.grow(1))
    view[:] = range(len(view))
    size = len(view)
    if not held:
        del view
    grown = np.asarray(column.grow(size + 1))
    assert len(grown) >= size + 1 and grown[:size].tolist() == list(range(size))
    assert not grown[size:].any()
