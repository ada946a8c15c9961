"""Sort, join, merge and the pending set, in both forms, against numpy and sets."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.due.kernels import FENCE_STEP
from tests.due.forms import KERNELS, PENDING_SET

kernels = pytest.fixture(params=list(KERNELS.values()), ids=list(KERNELS))(lambda request: request.param)
pending_set = pytest.fixture(params=list(PENDING_SET.values()), ids=list(PENDING_SET))(
    lambda request: request.param
)

LAST = 2**64 - 1
FINGERPRINTS = st.one_of(st.integers(0, 40), st.integers(0, LAST), st.integers(LAST - 40, LAST))
ARRAYS = st.lists(FINGERPRINTS, max_size=60).map(lambda numbers: np.array(numbers, np.uint64))


@cache
def spread(count: int, seed: int, shape: str) -> np.ndarray:
    """`count` distinct ascending uint64: anywhere, all in one bucket, or half of them in one."""
    numbers = np.random.default_rng(seed).integers(0, 2**64, 2 * count + 2, dtype=np.uint64)
    clumped = {"even": 0, "one bucket": len(numbers), "half in one": count}[shape]
    numbers[:clumped] = numbers[:clumped] >> np.uint64(16) | np.uint64(0x5555 << 48)
    numbers = np.random.default_rng(seed).permutation(np.unique(numbers))[:count]
    numbers[:1], numbers[-1:] = 0, LAST
    keys = np.unique(numbers)
    keys.flags.writeable = False
    return keys


@given(keys=ARRAYS)
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("kernels", list(KERNELS.values()), ids=list(KERNELS))
def test_sort_is_stable(kernels, keys: np.ndarray) -> None:
    before = keys.copy()
    ascending, places = kernels.sort(keys)
    assert (keys == before).all()
    assert (ascending == np.sort(keys)).all()
    assert (places == np.argsort(keys, kind="stable")).all()


def test_sort_of_many_with_repeats(kernels) -> None:
    keys = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    keys[::3] = keys[0]
    ascending, places = kernels.sort(keys)
    assert (ascending == np.sort(keys)).all() and (places == np.argsort(keys, kind="stable")).all()


@given(left=ARRAYS, right=ARRAYS)
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("kernels", list(KERNELS.values()), ids=list(KERNELS))
def test_merge(kernels, left: np.ndarray, right: np.ndarray) -> None:
    left, right = np.unique(left), np.unique(right)
    out = np.empty(len(left) + len(right), np.uint64)
    distinct = kernels.merge(left, right, out)
    assert out.tolist() == sorted(left.tolist() + right.tolist())
    assert distinct == (len(np.intersect1d(left, right)) == 0)


@pytest.mark.parametrize("shape", ["even", "one bucket", "half in one"])
@pytest.mark.parametrize("count", [1, 2, FENCE_STEP - 1, FENCE_STEP, FENCE_STEP + 1, 20 * FENCE_STEP + 3])
def test_join(kernels, count: int, shape: str) -> None:
    """Keys, their neighbours, and others; keys at the ends of blocks; some queries known before."""
    keys = spread(count, count, shape)
    others = np.random.default_rng(3).integers(0, 2**64, 300, dtype=np.uint64)
    queries = np.unique(np.concatenate([keys[::3], keys + np.uint64(1), keys - np.uint64(1), others]))
    known = np.zeros(len(queries), np.uint8)
    known[::7] = 1
    kernels.join(queries, keys, keys[::FENCE_STEP].copy(), known)
    assert (known.astype(bool) == (np.isin(queries, keys) | (np.arange(len(queries)) % 7 == 0))).all()


def test_join_where_the_guess_is_always_wrong(kernels) -> None:
    """In each block all keys but the fence lie next to the following fence: a guess is a block off."""
    blocks = np.arange(1, 30, dtype=np.uint64) << np.uint64(50)
    inner = np.arange(1, FENCE_STEP, dtype=np.uint64)
    keys = np.concatenate([np.append(block, block + np.uint64(1 << 50) - inner[::-1]) for block in blocks])
    queries = np.unique(np.concatenate([keys, keys + np.uint64(1), keys - np.uint64(1)]))
    known = np.zeros(len(queries), np.uint8)
    kernels.join(queries, keys, keys[::FENCE_STEP].copy(), known)
    assert (known.astype(bool) == np.isin(queries, keys)).all()


def test_join_of_nothing(kernels) -> None:
    nothing = np.zeros(0, np.uint64)
    some = np.array([1, 5], np.uint64)
    known = np.zeros(2, np.uint8)
    kernels.join(nothing, some, some[:1], np.zeros(0, np.uint8))
    kernels.join(some, nothing, nothing, known)
    assert known.tolist() == [0, 0]


def coded(kernels, keys: np.ndarray) -> tuple[np.ndarray, ...]:
    """Words, posts, widths and starts of a run of `keys`."""
    posts = np.append(keys[::FENCE_STEP], keys[-1])
    widths, starts = kernels.layout(posts, len(keys))
    words = np.zeros(starts[-1], np.uint64)
    kernels.encode(keys, posts, widths, starts, words)
    return words, posts, widths, starts


def assert_coded_and_found(keys: np.ndarray, others: np.ndarray) -> None:
    """Both forms code `keys` alike, get them back, and find them and nothing else."""
    by_form = {name: coded(kernels, keys) for name, kernels in KERNELS.items()}
    for parts in zip(*by_form.values(), strict=True):
        assert all((part == parts[0]).all() for part in parts)
    queries = np.unique(np.concatenate([keys, keys + np.uint64(1), keys - np.uint64(1), others]))
    for name, kernels in KERNELS.items():
        decoded = np.empty(len(keys), np.uint64)
        kernels.decode(*by_form[name], 0, decoded)
        assert (decoded == keys).all()
        for step in (1, 40, 300, 2000):  # queries of a block: a thousand, which is decoded, to less than one
            some = queries[::step].copy()
            known = np.zeros(len(some), np.uint8)
            known[::7] = 1
            kernels.join_coded(some, *by_form[name], len(keys), known)
            assert (known.astype(bool) == (np.isin(some, keys) | (np.arange(len(some)) % 7 == 0))).all()


@given(keys=ARRAYS.filter(len), others=ARRAYS)
@settings(deadline=None, max_examples=60)
def test_a_coded_run_is_its_keys(keys: np.ndarray, others: np.ndarray) -> None:
    assert_coded_and_found(np.unique(keys), others)


@pytest.mark.parametrize("shape", ["even", "one bucket", "half in one"])
@pytest.mark.parametrize("count", [1, 2, FENCE_STEP - 1, FENCE_STEP, FENCE_STEP + 1, 20 * FENCE_STEP + 3])
def test_coded_runs_of_many_blocks(count: int, shape: str) -> None:
    keys = spread(count, count, shape)
    assert_coded_and_found(keys, np.random.default_rng(3).integers(0, 2**64, 300, dtype=np.uint64))


def test_coded_runs_that_are_dense_clumped_or_far_apart() -> None:
    """No gaps, all keys but the fence at one end of the block, and the widest block there is."""
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


def test_blocks_of_a_coded_run_are_decoded_from_any_on(kernels) -> None:
    keys = spread(20 * FENCE_STEP + 3, 1, "half in one")
    parts = coded(kernels, keys)
    for first, stop in ((0, 3), (7, 9), (20, 21)):
        expected = keys[first * FENCE_STEP : stop * FENCE_STEP]
        decoded = np.empty(len(expected), np.uint64)
        kernels.decode(*parts, first, decoded)
        assert (decoded == expected).all()


@pytest.mark.parametrize("queries_a_block", [1, 5, 31, 32, 33, 300])
def test_coded_runs_are_joined_at_any_density(kernels, queries_a_block: int) -> None:
    """Each query alone, counted on from the one before, or in a decoded block; most are known before."""
    keys = spread(20 * FENCE_STEP + 3, 2, "even")
    picked = np.random.default_rng(4).permutation(len(keys))[: 20 * queries_a_block]
    queries = np.unique(np.concatenate([keys[picked], keys[picked] + np.uint64(1), keys[-1:]]))
    for every in (2, 3, 1 << 30):
        known = np.zeros(len(queries), np.uint8)
        known[::every] = 1
        before = known.astype(bool)
        kernels.join_coded(queries, *coded(kernels, keys), len(keys), known)
        assert (known.astype(bool) == (np.isin(queries, keys) | before)).all()


def test_a_coded_block_by_hand(kernels) -> None:
    """Keys 3, 5, 6, 12 above fence 3: span 9, so one low bit a key.

    High parts 0 1 1 4 are the ones at places 0, 2, 3, 7 of 4 + 4 + 1 bits; low parts 0, 0, 1, 1 follow.
    """
    words, _, widths, starts = coded(kernels, np.array([3, 5, 6, 12], np.uint64))
    assert widths.tolist() == [1] and starts.tolist() == [0, 1]
    assert words.tolist() == [0b1100_0_10001101]


@pytest.mark.parametrize("count, bound", [(100_000_000, 4.97), (1_000_000_000, 4.55)])
def test_size_of_a_key_in_a_coded_run(count: int, bound: float) -> None:
    """Fence and checksum included, 12 bytes a block; on 1000 blocks that lie as close as `count` keys would."""
    top = 1000 * FENCE_STEP * (2**64 // count)
    keys = np.unique(np.random.default_rng(1).integers(0, top, 1000 * FENCE_STEP, dtype=np.uint64))
    words, _, widths, _ = coded(KERNELS["installed"], keys)
    assert (words.nbytes + 12 * len(widths)) / len(keys) <= bound


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
