"""Streams of link fingerprints like those of real crawls (Broder, Najork, Wiener 2003, section 5.2).

T hosts are crawled at the same time, each for some hundreds of pages. The pages of different hosts follow
each other in random order. The links of a page are consecutive. A link is

    0.29         a repeat from the same page, nearly always the link just before
    of the others
    0.02         from a global set, by Zipf's law
    0.05         one of 8 popular URLs of the host
    0.74         from the host's wider set of 200 URLs, in order from a random start, none twice per page
    0.19         any URL; nine of ten are new

`lab/caches/link_locality.py` has the same model with the same numbers, and fits it to traces.
"""

import numpy as np

Fingerprints = np.ndarray

_GLOBAL_URLS = 100_000
_WIDE_URLS = 200
_POPULAR_URLS = 8
_PAGES_PER_HOST = 300
_LINKS_MEDIAN, _LINKS_SIGMA = 23, 1.41  # of the lognormal number of links per page, whose mean is 62
_REPEAT_SHARE, _ADJACENT = 0.29, 0.97
_NEW = 0.9
_GLOBAL, _POPULAR, _WIDE = 0.02, 0.05, 0.74


def mixed(numbers: Fingerprints) -> Fingerprints:
    """Map distinct uint64 to distinct, evenly spread uint64.

    This is the last step of SplitMix64, which is a bijection.
    """
    x = numbers.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def crawl_links(requests: int, hosts: int, seed: int = 1) -> Fingerprints:
    """Return the links, including repeats, of a crawl that visits `hosts` hosts at a time: uint64 (requests,)."""
    generator = np.random.default_rng(seed)
    zipf = np.cumsum(1.0 / np.arange(1, _GLOBAL_URLS + 1))
    # URL numbers: first the global URLs, then 256 for each host, then the new URLs.
    host_numbers = np.arange(hosts)
    next_host = hosts
    next_new = 1 << 40
    pages: list[np.ndarray] = []
    made = 0
    while made < requests:
        place = int(generator.integers(hosts))
        if generator.random() < 1 / _PAGES_PER_HOST:
            host_numbers[place], next_host = next_host, next_host + 1
        page, next_new = _page(generator, zipf, int(host_numbers[place]), next_new)
        pages.append(page)
        made += len(page)
    return mixed(np.concatenate(pages)[:requests])


def _page(
    generator: np.random.Generator, zipf: np.ndarray, host: int, next_new: int
) -> tuple[np.ndarray, int]:
    """Return the URL numbers of the links of one page of `host`, and the number of the next new URL."""
    count = max(1, int(generator.lognormal(np.log(_LINKS_MEDIAN), _LINKS_SIGMA)))
    draw = generator.random(count)
    own = _GLOBAL_URLS + 256 * host
    wide = (draw >= _GLOBAL + _POPULAR) & (draw < _GLOBAL + _POPULAR + _WIDE)
    turn = np.cumsum(wide) - 1
    links = own + _POPULAR_URLS + (generator.integers(_WIDE_URLS) + turn) % _WIDE_URLS
    popular = draw < _GLOBAL + _POPULAR
    links[popular] = own + generator.integers(_POPULAR_URLS, size=count)[popular]
    shared = draw < _GLOBAL
    links[shared] = np.searchsorted(zipf, generator.random(int(shared.sum())) * zipf[-1])
    other = np.flatnonzero((draw >= _GLOBAL + _POPULAR + _WIDE) | (wide & (turn >= _WIDE_URLS)))
    old = generator.random(len(other)) < 1 - _NEW
    links[other] = next_new + np.arange(len(other))
    reach = max(next_new - (1 << 40), 1)
    links[other[old]] = (1 << 40) + generator.integers(reach, size=int(old.sum()))
    repeated = generator.random(count) < _REPEAT_SHARE
    repeated[0] = False
    # 97 % of the repeats copy the last link before them that is not a repeat. The other 3 % of the
    # repeats copy a random earlier link of the page.
    source = np.maximum.accumulate(np.where(repeated, 0, np.arange(count)))
    far = repeated & (generator.random(count) < 1 - _ADJACENT)
    source[far] = (generator.random(int(far.sum())) * np.flatnonzero(far)).astype(int)
    return links[source].astype(np.uint64), next_new + len(other)
