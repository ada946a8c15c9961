"""Test the content and the size of coded runs, and joins with coded runs, with installed and interpreted kernels."""

import numpy as np
import pytest
from hypothesis import given, settings

from crawler.due.run_layout import FENCE_STEP, layout
from tests.due.arrays import ARRAYS, LAST, spread
from tests.due.forms import ELIAS_FANO

elias_fano = pytest.fixture(params=list(ELIAS_FANO.values()), ids=list(ELIAS_FANO))(
    lambda request: request.param
)


def coded(elias_fano, keys: np.ndarray) -> tuple[np.ndarray, ...]:
    """Encode `keys` as a run; return its words, posts, widths and starts."""
    posts = np.append(keys[::FENCE_STEP], keys[-1])
    widths, starts = layout(posts, len(keys))
    words = np.zeros(starts[-1], np.uint64)
    elias_fano.encode(keys, posts, widths, starts, words)
    return words, posts, widths, starts


def assert_coded_and_found(keys: np.ndarray, others: np.ndarray) -> None:
    """Assert that installed and interpreted kernels encode `keys` equally, decode them, and find exactly these keys."""
    by_form = {name: coded(elias_fano, keys) for name, elias_fano in ELIAS_FANO.items()}
    for parts in zip(*by_form.values(), strict=True):
        assert all((part == parts[0]).all() for part in parts)
    queries = np.unique(np.concatenate([keys, keys + np.uint64(1), keys - np.uint64(1), others]))
    for name, elias_fano in ELIAS_FANO.items():
        decoded = np.empty(len(keys), np.uint64)
        elias_fano.decode(*by_form[name], 0, decoded)
        assert (decoded == keys).all()
        # The density ranges from a thousand queries per block, where blocks are decoded, to less than one
        # query per block.
        for step in (1, 40, 300, 2000):
            some = queries[::step].copy()
            known = np.zeros(len(some), np.uint8)
            known[::7] = 1
            elias_fano.join(some, *by_form[name], len(keys), known)
            assert (known.astype(bool) == (np.isin(some, keys) | (np.arange(len(some)) % 7 == 0))).all()


@given(keys=ARRAYS.filter(len), others=ARRAYS)
@settings(deadline=None, max_examples=60)
def test_a_coded_run_decodes_to_its_keys(keys: np.ndarray, others: np.ndarray) -> None:
    assert_coded_and_found(np.unique(keys), others)


@pytest.mark.parametrize("shape", ["even", "one bucket", "half in one"])
@pytest.mark.parametrize("count", [1, 2, FENCE_STEP - 1, FENCE_STEP, FENCE_STEP + 1, 20 * FENCE_STEP + 3])
def test_coded_runs_of_many_blocks(count: int, shape: str) -> None:
    keys = spread(count, count, shape)
    assert_coded_and_found(keys, np.random.default_rng(3).integers(0, 2**64, 300, dtype=np.uint64))


def test_coded_runs_that_are_dense_clumped_or_far_apart() -> None:
    """Cover dense blocks, the widest possible block, and blocks whose keys, except one, are all at one end."""
    nothing = np.zeros(0, np.uint64)
    dense = np.arange(3 * FENCE_STEP, dtype=np.uint64)
    for keys in (
        dense,
        LAST - dense[::-1],
        np.append(dense, np.uint64(LAST)),
        np.append(np.uint64(0), LAST - dense[::-1]),
        np.array([0, LAST], np.uint64),
    ):
        assert_coded_and_found(keys.astype(np.uint64), nothing)


def test_a_coded_run_can_be_decoded_from_any_block(elias_fano) -> None:
    keys = spread(20 * FENCE_STEP + 3, 1, "half in one")
    parts = coded(elias_fano, keys)
    for first, stop in ((0, 3), (7, 9), (20, 21)):
        expected = keys[first * FENCE_STEP : stop * FENCE_STEP]
        decoded = np.empty(len(expected), np.uint64)
        elias_fano.decode(*parts, first, decoded)
        assert (decoded == expected).all()


@pytest.mark.parametrize("queries_a_block", [1, 5, 31, 32, 33, 300])
def test_coded_runs_are_joined_at_any_density(elias_fano, queries_a_block: int) -> None:
    """Cover single queries, queries that continue from the previous query, and decoded blocks.

    Some queries are marked as known before the join.
    """
    keys = spread(20 * FENCE_STEP + 3, 2, "even")
    picked = np.random.default_rng(4).permutation(len(keys))[: 20 * queries_a_block]
    queries = np.unique(np.concatenate([keys[picked], keys[picked] + np.uint64(1), keys[-1:]]))
    for every in (2, 3, 1 << 30):
        known = np.zeros(len(queries), np.uint8)
        known[::every] = 1
        before = known.astype(bool)
        elias_fano.join(queries, *coded(elias_fano, keys), len(keys), known)
        assert (known.astype(bool) == (np.isin(queries, keys) | before)).all()


def test_a_coded_block_by_hand(elias_fano) -> None:
    """The keys 3, 5, 6 and 12 span a range of 9 above the fence 3, so each key has one low bit.

    The high parts 0, 1, 1 and 4 are stored as ones at the positions 0, 2, 3 and 7 of 4 + 4 + 1 bits. The low
    parts 0, 0, 1 and 1 follow.
    """
    words, _, widths, starts = coded(elias_fano, np.array([3, 5, 6, 12], np.uint64))
    assert widths.tolist() == [1] and starts.tolist() == [0, 1]
    assert words.tolist() == [0b1100_0_10001101]


@pytest.mark.parametrize("count, bound", [(100_000_000, 4.97), (1_000_000_000, 4.55)])
def test_size_of_a_key_in_a_coded_run(count: int, bound: float) -> None:
    """Measure 1000 blocks, with fences and checksums, that are as dense as the blocks of a run of `count` keys."""
    top = 1000 * FENCE_STEP * (2**64 // count)
    keys = np.unique(np.random.default_rng(1).integers(0, top, 1000 * FENCE_STEP, dtype=np.uint64))
    words, _, widths, _ = coded(ELIAS_FANO["installed"], keys)
    assert (words.nbytes + 12 * len(widths)) / len(keys) <= bound
