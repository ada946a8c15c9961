"""Generates traces of the link-locality model, and counts repeats. numba compiles this module.

`link_locality` explains the model. Random numbers come from SplitMix64, so a
seed gives the same trace under every version of numba.
"""

import math

import numpy as np
from numba import njit

from crawler.lab.caches.cache_kernels import mixed

_jit = njit(cache=True, nogil=True, boundscheck=False)

PAGE_LINKS_MAX = 20_000  # the largest number of links per page, as in the crawler's setting extract.links_max
_HOST_URLS = 1 << 20  # URL numbers reserved per host
_FIRST_HOST_URL = 1 << 40
_FIRST_OTHER_URL = 1 << 62


@_jit
def _uniform(state):
    """Return the next random number, 0 <= x < 1."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return (mixed(state[0]) >> np.uint64(11)) * (1.0 / (1 << 53))


@_jit
def _page_size(state, median, sigma):
    """Return a lognormal number of links (Box and Muller), at least 1."""
    radius = math.sqrt(-2.0 * math.log(1.0 - _uniform(state)))
    normal = radius * math.cos(2.0 * math.pi * _uniform(state))
    return min(max(1, int(median * math.exp(sigma * normal))), PAGE_LINKS_MAX)


@_jit
def make_pages(shares, sizes, state, counters, hosts, links, page_hosts, page_links, page_threads):
    """Fill `links` with the links of complete pages, one 64-bit word per link.

    Return the number of links and the number of pages made.

    Args:
        shares: the shares repeat, adjacent, global, popular, wide and new; then the cross shares of global,
            wide and other URLs.
        sizes: the numbers of global, popular and wide URLs, pages per host, median links of a page, sigma.
        state: uint64 (2,): the state of the random numbers, and the salt of names.
        counters: int64 (2,): the numbers of hosts begun and of other URLs made so far.
        hosts: int64 (T,): the current host of each thread.
        page_hosts, page_links, page_threads: one entry per page, with room for the largest number of pages.
    """
    repeat, adjacent = shares[0], shares[1]
    to_global, to_popular = shares[2], shares[2] + shares[3]
    to_wide, new = shares[2] + shares[3] + shares[4], shares[5]
    global_log = math.log(sizes[0] + 1.0)
    popular_urls, wide_urls = int(sizes[1]), int(sizes[2])
    made = pages = 0
    while len(links) - made >= PAGE_LINKS_MAX and pages < len(page_hosts):
        thread = int(_uniform(state) * len(hosts))
        if _uniform(state) * sizes[3] < 1.0:
            hosts[thread] = counters[0]
            counters[0] += 1
        own = _FIRST_HOST_URL + hosts[thread] * _HOST_URLS
        count = _page_size(state, sizes[4], sizes[5])
        start = int(_uniform(state) * wide_urls)
        turn = 0
        for i in range(count):
            if i > 0 and _uniform(state) < repeat:
                source = i - 1 if _uniform(state) < adjacent else int(_uniform(state) * i)
                links[made + i] = links[made + source]
                continue
            draw = _uniform(state)
            if draw < to_global:
                number = int(math.exp(_uniform(state) * global_log)) - 1  # Zipf's law
                cross_share = shares[6]
            elif draw < to_popular:
                number = own + int(_uniform(state) * popular_urls)
                cross_share = 0.0
            elif draw < to_wide and turn < wide_urls:
                number = own + popular_urls + (start + turn) % wide_urls
                cross_share = shares[7]
                turn += 1
            else:
                number = _FIRST_OTHER_URL + counters[1]
                if counters[1] > 0 and _uniform(state) >= new:
                    number = _FIRST_OTHER_URL + int(_uniform(state) * counters[1])
                else:
                    counters[1] += 1
                cross_share = shares[8]
            name = mixed(np.uint64(number) ^ state[1])
            # The process that owns a URL depends only on the URL, so the process is derived from the URL's
            # name.
            is_cross = (mixed(name) >> np.uint64(11)) * (1.0 / (1 << 53)) < cross_share
            links[made + i] = (name & ~np.uint64(1)) | np.uint64(is_cross)
        page_hosts[pages] = mixed(np.uint64(hosts[thread]) ^ state[1])
        page_links[pages] = count
        page_threads[pages] = thread
        made += count
        pages += 1
    return made, pages


@_jit
def repeats_on_pages(ids, distinct, starts):
    """Count the links that repeat an earlier link of their page, and those that repeat the link just before."""
    page_of = np.full(distinct, -1, np.int64)
    repeats = adjacent = 0
    for page in range(len(starts) - 1):
        for t in range(starts[page], starts[page + 1]):
            if page_of[ids[t]] == page:
                repeats += 1
                if ids[t - 1] == ids[t]:
                    adjacent += 1
            page_of[ids[t]] = page
    return repeats, adjacent
