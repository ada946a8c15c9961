# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Generates traces of the link-locality model, and counts repeats.

`link_locality` explains the model. Random numbers come from SplitMix64.

This file is in Cython's pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np
from cython.cimports.crawler.lab.caches.cache_kernels import mixed
from cython.cimports.libc.math import cos, exp, log, sqrt
from numpy.typing import NDArray

from crawler.freshness.columns import rows_of

PAGE_LINKS_MAX = 20_000  # the largest number of links per page, as in the crawler's setting extract.links_max
_LINKS_MAX = cython.declare(cython.int, PAGE_LINKS_MAX)
_HOST_URLS = cython.declare(cython.longlong, 1 << 20)  # URL numbers reserved per host
_FIRST_HOST_URL = cython.declare(cython.longlong, 1 << 40)
_FIRST_OTHER_URL = cython.declare(cython.longlong, 1 << 62)
_ALL_64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_UNIT = cython.declare(cython.double, 1.0 / (1 << 53))
_TURN = cython.declare(cython.double, 2.0 * np.pi)


@cython.cfunc
@cython.exceptval(check=False)
def _uniform(state: cython.ulonglong[::1]) -> cython.double:
    """Return the next random number, 0 <= x < 1."""
    state[0] = state[0] + _STEP & _ALL_64
    return (mixed(state[0]) >> 11) * _UNIT


@cython.cfunc
@cython.exceptval(check=False)
def _page_size(state: cython.ulonglong[::1], median: cython.double, sigma: cython.double) -> cython.int:
    """Return a lognormal number of links (Box and Muller), at least 1."""
    radius: cython.double = sqrt(-2.0 * log(1.0 - _uniform(state)))
    normal: cython.double = radius * cos(_TURN * _uniform(state))
    size: cython.longlong = cython.cast(cython.longlong, median * exp(sigma * normal))
    return min(max(1, size), _LINKS_MAX)


def make_pages(
    shares: NDArray[np.float64],
    sizes: NDArray[np.float64],
    numbers: NDArray[np.uint64],
    counted: NDArray[np.int64],
    at: NDArray[np.int64],
    words: NDArray[np.uint64],
    host_column: NDArray[np.uint64],
    links_column: NDArray[np.uint32],
    thread_column: NDArray[np.uint32],
) -> tuple[int, int]:
    """Fill `words` with the links of complete pages, one 64-bit word per link.

    Return the number of links and the number of pages made.

    Args:
        shares: the shares repeat, adjacent, global, popular, wide and new; then the cross shares of global,
            wide and other URLs.
        sizes: the numbers of global, popular and wide URLs, pages per host, median links of a page, sigma.
        numbers: uint64 (2,): the state of the random numbers, and the salt of names.
        counted: int64 (2,): the numbers of hosts begun and of other URLs made so far.
        at: int64 (T,): the current host of each thread.
        host_column, links_column, thread_column: one entry per page, with room for the largest number of pages.
    """
    state: cython.ulonglong[::1] = rows_of(numbers)
    counters: cython.longlong[::1] = rows_of(counted)
    hosts: cython.longlong[::1] = rows_of(at)
    links: cython.ulonglong[::1] = rows_of(words)
    page_hosts: cython.ulonglong[::1] = rows_of(host_column)
    page_links: cython.uint[::1] = rows_of(links_column)
    page_threads: cython.uint[::1] = rows_of(thread_column)
    share = shares.tolist()
    size = sizes.tolist()
    repeat: cython.double = share[0]
    adjacent: cython.double = share[1]
    to_global: cython.double = share[2]
    to_popular: cython.double = share[2] + share[3]
    to_wide: cython.double = share[2] + share[3] + share[4]
    new: cython.double = share[5]
    global_cross: cython.double = share[6]
    wide_cross: cython.double = share[7]
    other_cross: cython.double = share[8]
    global_log: cython.double = log(size[0] + 1.0)
    popular_urls: cython.longlong = int(size[1])
    wide_urls: cython.longlong = int(size[2])
    pages_per_host: cython.double = size[3]
    median: cython.double = size[4]
    sigma: cython.double = size[5]
    made: cython.Py_ssize_t = 0
    pages: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    number: cython.longlong
    cross_share: cython.double
    while links.shape[0] - made >= _LINKS_MAX and pages < page_hosts.shape[0]:
        thread: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, _uniform(state) * hosts.shape[0])
        if _uniform(state) * pages_per_host < 1.0:
            hosts[thread] = counters[0]
            counters[0] += 1
        own: cython.longlong = _FIRST_HOST_URL + hosts[thread] * _HOST_URLS
        count: cython.int = _page_size(state, median, sigma)
        start: cython.longlong = cython.cast(cython.longlong, _uniform(state) * wide_urls)
        turn: cython.longlong = 0
        for i in range(count):
            if i > 0 and _uniform(state) < repeat:
                source: cython.Py_ssize_t = i - 1
                if _uniform(state) >= adjacent:
                    source = cython.cast(cython.Py_ssize_t, _uniform(state) * i)
                links[made + i] = links[made + source]
                continue
            draw: cython.double = _uniform(state)
            if draw < to_global:
                number = cython.cast(cython.longlong, exp(_uniform(state) * global_log)) - 1  # Zipf's law
                cross_share = global_cross
            elif draw < to_popular:
                number = own + cython.cast(cython.longlong, _uniform(state) * popular_urls)
                cross_share = 0.0
            elif draw < to_wide and turn < wide_urls:
                number = own + popular_urls + (start + turn) % wide_urls
                cross_share = wide_cross
                turn += 1
            else:
                number = _FIRST_OTHER_URL + counters[1]
                if counters[1] > 0 and _uniform(state) >= new:
                    number = _FIRST_OTHER_URL + cython.cast(cython.longlong, _uniform(state) * counters[1])
                else:
                    counters[1] += 1
                cross_share = other_cross
            name: cython.ulonglong = mixed(number ^ state[1])
            # The process that owns a URL depends only on the URL, so the process is derived from the URL's
            # name.
            is_cross: cython.bint = (mixed(name) >> 11) * _UNIT < cross_share
            links[made + i] = name | 1 if is_cross else (name | 1) - 1
        page_hosts[pages] = mixed(hosts[thread] ^ state[1])
        page_links[pages] = count
        page_threads[pages] = thread
        made += count
        pages += 1
    return made, pages


def repeats_on_pages(requests: NDArray[np.int32], distinct: int, edges: NDArray[np.int64]) -> tuple[int, int]:
    """Count the links that repeat an earlier link of their page, and those that repeat the link just before.

    Page i has the links edges[i] to edges[i + 1] - 1 of `requests`.
    """
    ids: cython.const[cython.int][::1] = rows_of(requests)
    starts: cython.const[cython.longlong][::1] = rows_of(edges)
    page_of: cython.Py_ssize_t[::1] = rows_of(np.full(distinct, -1, np.int64))
    repeats: cython.Py_ssize_t = 0
    adjacent: cython.Py_ssize_t = 0
    page: cython.Py_ssize_t
    t: cython.Py_ssize_t
    for page in range(starts.shape[0] - 1):
        for t in range(starts[page], starts[page + 1]):
            if page_of[ids[t]] == page:
                repeats += 1
                if ids[t - 1] == ids[t]:
                    adjacent += 1
            page_of[ids[t]] = page
    return repeats, adjacent
