"""Test that replacement policies agree with simple models and have the properties required of every policy."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crawler.bench.cache import DictClock
from crawler.lab.caches import url_caches
from crawler.lab.caches.link_locality import LinkLocality, synthetic_words
from crawler.lab.caches.url_caches import POLICIES, Stream, misses

SIZES = [1 << bits for bits in range(8)]


def lru_by_list(items: list[int], size: int) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for item in items:
        if item in held:
            held.move_to_end(item)
            continue
        missed += 1
        held[item] = None
        if len(held) > size:
            held.popitem(last=False)
    return missed


def min_by_search(items: list[int], size: int) -> int:
    """Implement Belady's cache by its definition.

    On a miss, the cache evicts the item with the latest next use; this may be the missed item itself.
    """

    def next_use(item: int, now: int) -> int:
        return next((t for t in range(now + 1, len(items)) if items[t] == item), len(items))

    held: set[int] = set()
    missed = 0
    for now, item in enumerate(items):
        if item in held:
            continue
        missed += 1
        held.add(item)
        if len(held) > size:
            held.remove(max(held, key=lambda one: next_use(one, now)))
    return missed


def clock_by_dict(items: list[int], size: int) -> int:
    cache = DictClock(size)
    return sum(cache.add(item) for item in items)


def stream_of(items: list[int]) -> Stream:
    return Stream(np.array(items, np.uint64) << np.uint64(40))


@st.composite
def many_requests(draw: st.DrawFn) -> list[int]:
    """Draw lists that are mostly long and have many repeats, because Hypothesis itself draws mostly short lists."""
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    items = generator.integers(draw(st.integers(1, 25)), size=draw(st.integers(1, 150)))
    hot = generator.random(len(items)) < draw(st.sampled_from([0.0, 0.3, 0.8]))
    return np.where(hot, items % 3, items).tolist()


requests = st.lists(st.integers(0, 20), min_size=1, max_size=30) | many_requests()


@settings(max_examples=60)
@given(items=requests, size=st.integers(1, 12))
@pytest.mark.parametrize(
    ("policy", "model"), [("LRU", lru_by_list), ("MIN", min_by_search), ("CLOCK", clock_by_dict)]
)
def test_policies_equal_their_models(policy, model, items: list[int], size: int) -> None:
    assert misses(policy, stream_of(items), [size]).sum() == model(items, size)


@settings(max_examples=60)
@given(items=requests, size=st.integers(1, 12))
def test_static_holds_the_most_requested(items: list[int], size: int) -> None:
    counts = sorted((items.count(item) for item in set(items)), reverse=True)
    assert misses("STATIC", stream_of(items), [size]).sum() == len(items) - sum(counts[:size])


@settings(max_examples=30)
@given(items=requests, bins=st.integers(1, 7))
def test_properties_of_any_policy(items: list[int], bins: int) -> None:
    """All bounds of `check` hold, and the misses of the windows add up to the total.

    A cache with room for all URLs misses each URL once.
    """
    stream = stream_of(items)
    found = {}
    for policy in POLICIES:
        windows = misses(policy, stream, SIZES, bins=bins, seed=len(items))
        assert windows.shape == (len(SIZES), bins) and (windows >= 0).all()
        found[policy] = windows.sum(axis=1)
        assert (found[policy] == misses(policy, stream, SIZES, seed=len(items)).sum(axis=1)).all()
        assert found[policy][-1] == (0 if policy == "STATIC" else len(set(items)))
    url_caches.check(found, stream.distinct)


@pytest.fixture(scope="module")
def crawl() -> Stream:
    """Return a crawl with 20 threads that is so long that LRU exhausts the slots of its tree many times."""
    return Stream(synthetic_words(LinkLocality(), 20, 200_000, seed=5))


def test_lru_by_stack_distance_is_lru_by_list(crawl: Stream) -> None:
    sizes = [1, 2, 100, 1 << 10, 5000, 1 << 14]
    assert misses("LRU", crawl, sizes).sum(axis=1).tolist() == [
        lru_by_list(crawl.ids.tolist(), size) for size in sizes
    ]


def test_lru_compacts_its_slots() -> None:
    """In a small cache with many requests, LRU exhausts its slots hundreds of times."""
    items = np.random.default_rng(1).integers(300, size=200_000)
    stream = Stream(items.astype(np.uint64))
    assert misses("LRU", stream, [250]).sum() == lru_by_list(stream.ids.tolist(), 250)


def test_ids_are_dense_in_order_of_first_appearance(crawl: Stream) -> None:
    _, first = np.unique(crawl.words, return_index=True)
    assert crawl.distinct == len(first)
    assert (crawl.ids[np.sort(first)] == np.arange(crawl.distinct)).all()
    assert len({*zip(crawl.words.tolist(), crawl.ids.tolist(), strict=True)}) == crawl.distinct


def test_the_shipped_table_is_within_two_percent_of_clock(crawl: Stream) -> None:
    sizes = [1 << bits for bits in range(3, 15)]
    ideal, shipped = (misses(policy, crawl, sizes).sum(axis=1) for policy in ("CLOCK", "TABLE"))
    assert np.abs(shipped / ideal - 1).max() < 0.02


def test_windows_of_random_depend_only_on_its_seed(crawl: Stream) -> None:
    first, again, other = (misses("RANDOM", crawl, [1000], bins=5, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()


def shape(bits: range, threads: int) -> NDArray[np.float64]:
    stream = Stream(synthetic_words(LinkLocality(), threads, 1_500_000, seed=2))
    return misses("LRU", stream, [1 << b for b in bits]).sum(axis=1) / len(stream)


def test_the_synthetic_crawl_has_the_papers_shape() -> None:
    """The miss rate is 67 to 73 % on the plateau; then it falls, and then it stays low.

    The trace has a fifth of the threads that figure 2 of the paper has.
    """
    rates = shape(range(22), 100)
    assert (rates[:11] > 0.67).all() and (rates[:11] < 0.73).all()
    assert rates[12] > 0.6 and 0.19 < rates[17] < 0.26
    fewer = shape(range(22), 20)
    # With a fifth of the threads, the curve is shifted to the left by about 2.3 powers of two (figure 8).
    assert fewer[11] == pytest.approx((0.68 * rates[13] + 0.32 * rates[14]), abs=0.04)


def test_the_knee_and_the_advice() -> None:
    rates = [0.7] * 13 + [0.66, 0.58, 0.46, 0.34, 0.26, 0.22, 0.21, 0.2]
    found = url_caches.knee(range(21), rates)
    assert found is not None and (found.begin_bits, found.end_bits) == (13, 18)
    text = url_caches.advice(found, 500, dict(enumerate(rates)))
    assert "cache.bits = 18: 262,144 entries in 2 MiB, 524 for" in text
    assert url_caches.knee(range(5), [0.5, 0.5, 0.5, 0.49, 0.49]) is None
    assert "hardly" in url_caches.advice(None, 1, {})


def test_advice_for_a_knee_beyond_the_default_states_its_cost() -> None:
    rates = [0.7] * 20 + [0.2]
    text = url_caches.advice(url_caches.knee(range(21), rates), 4000, dict(enumerate(rates)))
    assert "cache.bits = 20" in text and "The default would miss 70.0%" in text
