"""Answers, for a given trace, two of the three open questions in section 7 of Broder, Najork, Wiener (2003).

*Does the order of the crawl matter?* The pages of the trace are put into other orders; the links of each page
stay together. A real crawl that used another order and stopped early would also find other pages, which the
simulation ignores.

    as crawled          the trace
    host after host     each host is crawled to its end, as in a depth-first crawl, or with T = 1
    all hosts in turn   one page of every host, then the next page of every host: breadth-first, no locality of hosts
    random              pages in random order

*One cache per thread, or a global one?* Each of T threads gets its own CLOCK cache of k/T entries. The total
of their misses is compared with the misses of one CLOCK cache of k entries. If the trace does not record the
thread of each page, hosts are assigned to the threads by their names.

The third question of the paper is which model of the web produces traces like those of real crawls.
`link_locality.fit` answers it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from crawler.lab.caches import cache_kernels
from crawler.lab.caches.traces import Trace
from crawler.lab.caches.url_caches import Misses, Stream, misses
from crawler.lab.progress_line import OnProgress, silent
from crawler.urls.trace import is_cross

Order = NDArray[np.int64]


def _ranks_in_host(hosts: NDArray[np.uint64]) -> Order:
    """Return, for each page, the number of pages of the same host that come before it."""
    order = np.argsort(hosts, kind="stable")
    ordered = hosts[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(hosts)])
    lengths = np.diff(np.append(starts, len(hosts)))
    ranks = np.empty(len(hosts), np.int64)
    ranks[order] = np.arange(len(hosts)) - np.repeat(starts, lengths)
    return ranks


def _by_first_page(hosts: NDArray[np.uint64]) -> Order:
    """Return the number of each page's host; hosts are numbered in order of appearance."""
    _, first, inverse = np.unique(hosts, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


ORDERS: dict[str, Callable[[Trace, int], Order]] = {
    "as crawled": lambda trace, seed: np.arange(len(trace.pages)),
    "host after host": lambda trace, seed: np.argsort(_by_first_page(trace.pages["host"]), kind="stable"),
    "all hosts in turn": lambda trace, seed: np.argsort(_ranks_in_host(trace.pages["host"]), kind="stable"),
    "random": lambda trace, seed: np.random.default_rng(seed).permutation(len(trace.pages)),
}


def reordered(trace: Trace, order: Order) -> NDArray[np.uint64]:
    """Return the words of the trace after its pages were put into another order."""
    sizes = np.diff(trace.starts)[order]
    ends = np.cumsum(sizes)
    places = np.repeat(trace.starts[:-1][order] - (ends - sizes), sizes) + np.arange(len(trace.links))
    return trace.words()[places]


def by_order(
    trace: Trace, sizes: Sequence[int], *, stream: str = "full", seed: int = 1, report: OnProgress = silent
) -> dict[str, Misses]:
    """Return, for each order in `ORDERS`, the misses of CLOCK at each size, (sizes,)."""
    found = {}
    for name, order in ORDERS.items():
        words = reordered(trace, order(trace, seed))
        if stream == "cross":
            words = words[is_cross(words)]
        found[name] = misses("CLOCK", Stream(words), sizes).sum(axis=1)
        report(len(found) / len(ORDERS))
    return found


def threads_of(trace: Trace, threads: int) -> NDArray[np.int64]:
    """Return the number of the thread that crawls each page."""
    if len(trace.pages) and int(trace.pages["thread"].max()):
        return trace.pages["thread"].astype(np.int64)
    return (trace.pages["host"] % np.uint64(threads)).astype(np.int64)


def one_cache_a_thread(trace: Trace, sizes: Sequence[int], threads: int, *, stream: str = "full") -> Misses:
    """Return the total misses (sizes,) of CLOCK caches of max(1, k // T) entries, one for each thread."""
    of_pages = threads_of(trace, threads)
    order = np.argsort(of_pages, kind="stable")
    words = reordered(trace, order)
    of_links = np.repeat(of_pages[order], np.diff(trace.starts)[order])
    if stream == "cross":
        of_links, words = of_links[is_cross(words)], words[is_cross(words)]
    edges = np.flatnonzero(np.diff(of_links)) + 1
    total = np.zeros(len(sizes), np.int64)
    for part in np.split(words, edges):
        ids, distinct = cache_kernels.dense_ids(part)
        total += [cache_kernels.clock_misses(ids, distinct, max(1, size // threads), 1)[0] for size in sizes]
    return total
