"""The testbed for URL caches: simulates replacement policies on a trace, for all cache sizes.

Broder, Najork, Wiener, "Efficient URL caching for World Wide Web crawling" (2003),
sections 3 and 5.

A `Stream` is a sequence of requests. For a cache of each size, `misses(policy, stream, sizes, bins)` returns
the misses in each of `bins` equal windows of the stream. If the algorithm allows it, one pass over the stream
simulates all sizes:

    policy     passes         description
    INFINITE   one            each distinct URL misses once: no policy but STATIC misses less
    STATIC     one            holds the k most requested URLs of the trace; loading them is free
    LRU        one            stack distances
    MIN        one per size   Belady's clairvoyant cache, the fewest misses possible
    CLOCK      one per size   LRU's approximation with a mark bit
    RANDOM     one per size   evicts any item
    TABLE      one per size   the shipped `ClockCache`: CLOCK in a scatter table

`check` asserts two laws. First, INFINITE and MIN have at most as many misses as any other policy, except
STATIC. Second, a larger MIN or LRU cache never has more misses than a smaller one. With CLOCK, RANDOM or
another policy, a larger cache may have more misses than a smaller one.

The *knee*: as the cache grows, the miss rate first stays on a plateau, then falls in the critical region, and
then stays at a low level. The miss rate falls where the cache becomes large enough for the URLs that pages of
the current hosts share. The critical region begins where the miss rate has fallen by 10 % of its total fall,
and ends where it has fallen by 90 %. The end of this region is the recommended size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawler.lab.caches import cache_kernels
from crawler.urls.clock_cache import ClockCache
from crawler.urls.fingerprint import cache_keys

PAPER_POLICIES = ("INFINITE", "MIN", "LRU", "CLOCK", "RANDOM", "STATIC")
BITS_MAX = 25  # the paper's largest size, 2^25
BITS_DEFAULT = 18  # the default of `cache.bits` in a crawl

Misses = NDArray[np.int64]


class Stream:
    """The requests of a trace, in memory: a uint64 array with one word per requested URL.

    `ids` are int32 in order of first appearance; `distinct` is the number of distinct ids.
    """

    def __init__(self, words: NDArray[np.uint64], name: str = "") -> None:
        self.words = words
        self.name = name
        self.ids, self.distinct = cache_kernels.dense_ids(words)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def next_uses(self) -> NDArray[np.int32]:
        """Return, for each request, the time of the next request for the same item; n if there is none."""
        return cache_kernels.next_uses(self.ids, self.distinct)

    @cached_property
    def by_count(self) -> NDArray[np.int64]:
        """Return the rank of each item by its number of requests.

        The item with the most requests has rank 0. Items with equal numbers are ranked by first appearance.
        """
        order = np.argsort(-np.bincount(self.ids, minlength=self.distinct), kind="stable")
        ranks = np.empty(self.distinct, np.int64)
        ranks[order] = np.arange(self.distinct)
        return ranks

    def windows(self, bins: int) -> list[slice]:
        """Return the `bins` windows of time; their lengths differ by at most one request."""
        n = len(self)
        return [slice(b * n // bins, (b + 1) * n // bins) for b in range(bins)]


def _infinite(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    """Count the first requests for items; these are the misses of an infinite cache.

    A request is the first for its item exactly if the id of the item is larger than all earlier ids.
    """
    before = [0, *(int(stream.ids[: window.stop].max(initial=-1)) + 1 for window in stream.windows(bins))]
    return np.tile(np.diff(before), (len(sizes), 1))


def _static(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    """Count the requests for each rank once, and derive the misses of all sizes from these counts.

    A cache of k entries holds the items of the first k ranks.
    """
    misses = np.empty((len(sizes), bins), np.int64)
    edges = np.array(sizes, np.int64)
    for b, window in enumerate(stream.windows(bins)):
        ranks = stream.by_count[stream.ids[window]]
        not_held = np.bincount(np.searchsorted(edges, ranks, side="right"), minlength=len(edges) + 1)
        misses[:, b] = len(ranks) - np.cumsum(not_held)[: len(edges)]
    return misses


def _lru(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    kernel = cache_kernels.lru_misses
    return kernel(stream.ids, stream.distinct, np.array(sizes, np.int64), bins)


def _min(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    kernel = cache_kernels.min_misses
    return np.array([kernel(stream.next_uses, size, bins) for size in sizes])


def _random(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    kernel = cache_kernels.random_misses
    return np.array([kernel(stream.ids, stream.distinct, size, bins, seed) for size in sizes])


def _clock(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    kernel = cache_kernels.clock_misses
    return np.array([kernel(stream.ids, stream.distinct, size, bins) for size in sizes])


def _table(stream: Stream, sizes: Sequence[int], bins: int, seed: int) -> Misses:
    """Run the cache that the crawler uses on the words of the trace. The sizes must be powers of two."""
    keys = cache_keys(stream.words & ~np.uint64(1))
    rows: list[Any] = []
    for size in sizes:
        # The crawler's table cannot have only one entry. With one entry, all policies are equal, so LRU is run.
        if size == 1:
            rows.append(_lru(stream, [1], bins, seed)[0])
            continue
        cache = ClockCache(size.bit_length() - 1)
        rows.append([cache.add_many(keys[window]).count(1) for window in stream.windows(bins)])
    return np.array(rows, np.int64)


POLICIES: dict[str, Callable[[Stream, Sequence[int], int, int], Misses]] = {
    "INFINITE": _infinite,
    "MIN": _min,
    "LRU": _lru,
    "CLOCK": _clock,
    "RANDOM": _random,
    "STATIC": _static,
    "TABLE": _table,
}


def misses(policy: str, stream: Stream, sizes: Sequence[int], *, bins: int = 1, seed: int = 1) -> Misses:
    """Return the misses of a policy of `POLICIES`, int64 (sizes, bins).

    `sizes` must be in ascending order. Only RANDOM uses `seed`.
    """
    return POLICIES[policy](stream, sizes, bins, seed)


def check(found: dict[str, Misses], distinct: int) -> None:
    """Assert the laws in the module docstring.

    `found` holds the misses of each policy at ascending sizes, int64 (sizes,).
    """
    for policy, values in found.items():
        if policy in ("MIN", "LRU", "STATIC", "INFINITE"):
            assert (np.diff(values) <= 0).all(), f"{policy} misses more when larger"
        if policy != "STATIC":
            assert (values >= distinct).all(), f"{policy} misses less than there are URLs"
        if policy not in ("STATIC", "INFINITE") and "MIN" in found:
            assert (values >= found["MIN"]).all(), f"{policy} beats MIN"


@dataclass(frozen=True)
class Knee:
    """The critical region of a curve of miss rates: the sizes (as exponents of 2) and the rates at its ends."""

    begin_bits: int
    end_bits: int
    plateau: float
    floor: float


def knee(bits: Sequence[int], rates: Sequence[float]) -> Knee | None:
    """Return the critical region, or None if the rate falls by less than 0.05 over these sizes."""
    fall = rates[0] - rates[-1]
    if fall < 0.05:
        return None
    done = [(rates[0] - rate) / fall for rate in rates]
    begin = max(i for i, share in enumerate(done) if max(done[: i + 1]) < 0.1)
    end = next(i for i, share in enumerate(done) if share >= 0.9)
    return Knee(bits[begin], bits[end], rates[begin], rates[end])


def advice(found: Knee | None, threads: int, rates: Mapping[int, float]) -> str:
    """Return one to three lines of text that recommend a cache size.

    `rates` maps the exponent of a size to the miss rate of CLOCK at this size.
    """
    if found is None:
        return "The miss rate hardly depends on the size here: a small cache is enough (cache.bits = 10)."
    size = 1 << found.end_bits
    lines = [
        f"The critical region of this trace is 2^{found.begin_bits} to 2^{found.end_bits}: there the miss"
        f" rate falls from {found.plateau:.1%} to {found.floor:.1%}.",
        f"Set cache.bits = {found.end_bits}: {size:,} entries in {_kib(8 * size)}, {size / threads:,.0f} for"
        f" each of {threads:,} hosts crawled at a time. The default is {BITS_DEFAULT}.",
    ]
    if found.end_bits > BITS_DEFAULT and BITS_DEFAULT in rates:
        lines.append(f"The default would miss {rates[BITS_DEFAULT]:.1%} of the requests.")
    return "\n".join(lines)


def _kib(size: int) -> str:
    return (
        f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1024 else f"{size} bytes"
    )
