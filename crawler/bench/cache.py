"""Measures the URL cache against LRU and CLOCK caches written in Python.

The same stream of link fingerprints goes through each cache. For each fingerprint, the benchmark looks up the
key and, if the cache does not hold the key, inserts it. `dict CLOCK` is CLOCK over an array, which finds keys
through a dict. The crawler's cache is a scatter table. The miss rate of the scatter table should be close to
that of `dict CLOCK`.
"""

import argparse
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from crawler.bench import harness, streams
from crawler.cli.parsing import OptionParser, positive_count
from crawler.urls import clock_cache
from crawler.urls.clock_cache import ClockCache

Add = Callable[[int], bool]


def add_arguments(parser: OptionParser) -> None:
    parser.add_argument("--bits", type=int, nargs="+", default=[16], help="cache sizes, as powers of two")
    parser.option("--requests", 1_000_000, "number of requests", type=positive_count())
    parser.option("--hosts", 500, "hosts crawled at the same time", type=positive_count())
    parser.option("--seed", 1, "seed of the stream")
    parser.option("--json", False, "print JSON")


class OrderedDictLru:
    """A least-recently-used cache over an OrderedDict."""

    def __init__(self, size: int) -> None:
        self._keys: OrderedDict[int, None] = OrderedDict()
        self._size = size

    def add(self, key: int) -> bool:
        if key in self._keys:
            self._keys.move_to_end(key)
            return False
        self._keys[key] = None
        if len(self._keys) > self._size:
            self._keys.popitem(last=False)
        return True


class CachetoolsLru:
    """The least-recently-used cache of cachetools.

    Raises:
        ImportError: cachetools is not installed.
    """

    def __init__(self, size: int) -> None:
        import cachetools

        self._keys: Any = cachetools.LRUCache(size)

    def add(self, key: int) -> bool:
        if self._keys.get(key) is not None:
            return False
        self._keys[key] = True
        return True


class DictClock:
    """CLOCK over an array (section 3.4 of the paper); a dict maps each key to its position."""

    def __init__(self, size: int) -> None:
        self._keys: list[int] = []
        self._marks = bytearray(size)
        self._places: dict[int, int] = {}
        self._size = size
        self._hand = 0

    def add(self, key: int) -> bool:
        place = self._places.get(key)
        if place is not None:
            self._marks[place] = 1
            return False
        if len(self._keys) < self._size:
            self._places[key] = len(self._keys)
            self._keys.append(key)
            return True
        marks, hand = self._marks, self._hand
        while marks[hand]:
            marks[hand] = 0
            hand = (hand + 1) % self._size
        del self._places[self._keys[hand]]
        self._keys[hand] = key
        self._places[key] = hand
        self._hand = (hand + 1) % self._size
        return True


class InfiniteCache:
    """A Python set, which serves as an infinite cache."""

    def __init__(self, size: int) -> None:
        self._keys: set[int] = set()

    def add(self, key: int) -> bool:
        if key in self._keys:
            return False
        self._keys.add(key)
        return True


REFERENCES: dict[str, Any] = {
    "OrderedDict LRU": OrderedDictLru,
    "cachetools LRU": CachetoolsLru,
    "dict CLOCK": DictClock,
    "set (infinite)": InfiniteCache,
}


def _one_by_one(add: Add, keys: Iterable[int]) -> tuple[float, int]:
    """Look up `keys` one by one; return the CPU seconds and the number of misses."""
    misses = 0
    began = time.process_time()
    for key in keys:
        misses += add(key)
    return time.process_time() - began, misses


def measure(bits: int, links: streams.Fingerprints) -> list[harness.Row]:
    """Measure each cache with 2^`bits` keys; return a row for each cache: CPU time per request, ratios, miss rate."""
    # The keys are rotated by 16 bits, as in a crawl.
    keys = np.bitwise_or(links << np.uint64(16), links >> np.uint64(48))
    numbers = keys.tolist()
    cache = ClockCache(bits)
    began = time.process_time()
    answers = cache.add_many(keys)
    many = time.process_time() - began
    many_misses = answers.count(1)
    size = sys.getsizeof(cache)
    cache.clear()
    single, misses = _one_by_one(cache.add, numbers)
    assert misses == many_misses
    timed = {"ClockCache.add_many": (many, many_misses), "ClockCache.add": (single, misses)}
    for name, reference in REFERENCES.items():
        try:
            timed[name] = _one_by_one(reference(1 << bits).add, numbers)
        except ImportError:
            print(f"crawler bench: {name} is not installed; its row is omitted", file=sys.stderr)
    ideal = timed["dict CLOCK"][1]
    return [
        {
            "cache": name,
            "bits": bits,
            "ns": 1e9 * seconds / len(numbers),
            "x add_many": seconds / many,
            "x add": seconds / single,
            "miss rate": missed / len(numbers),
            "/ ideal CLOCK": missed / ideal,
            "bytes a key": size / (1 << bits) if name.startswith("ClockCache") else "",
            "extra bytes": size - (8 << bits) if name.startswith("ClockCache") else "",
        }
        for name, (seconds, missed) in timed.items()
    ]


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the results and return the exit code."""
    links = streams.crawl_links(arguments.requests, arguments.hosts, arguments.seed)
    rows = [row for bits in arguments.bits for row in measure(bits, links)]
    form = "compiled" if clock_cache.COMPILED else "interpreted"
    if arguments.json:
        harness.show_json(
            benchmark="cache", form=form, requests=arguments.requests, hosts=arguments.hosts, rows=rows
        )
    else:
        title = f"cache ({form}): {arguments.requests:,} links of {arguments.hosts} hosts at a time"
        harness.show(title, rows)
    return 0
