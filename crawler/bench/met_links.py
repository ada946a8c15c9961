"""What a link costs that the crawl has met before: filter with its memo, and the URL cache."""

import time

from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.clock_cache import ClockCache
from crawler.urls.fingerprint import SEED_BYTES, Fingerprinter, cache_keys

DIRECTORIES, LINKS, ROUNDS = 20, 60, 50


def met_link_cpu() -> float:
    """Seconds of CPU a link of pages of `LINKS` links."""
    links = LinkFilter(UrlFilter(Scope("any")), Fingerprinter(bytes(SEED_BYTES)))
    cache = ClockCache(16)
    pages = [
        (f"http://a.example/section-{number}/index.html", [f"page-{k}.html" for k in range(LINKS)])
        for number in range(DIRECTORIES)
    ]

    def take_all() -> None:
        for base, hrefs in pages:
            cache.add_many(cache_keys(links.take(base, hrefs).fingerprints))

    take_all()
    begun = time.thread_time()
    for _ in range(ROUNDS):
        take_all()
    return (time.thread_time() - begun) / (ROUNDS * DIRECTORIES * LINKS)
