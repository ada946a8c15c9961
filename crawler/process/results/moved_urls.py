"""Follows known redirects, so that a change signal about a URL that has moved counts for the page to which it leads.

    A ─► B ─► C      a signal about A counts for C
    A ─► B ─► A      more than `HOPS_MAX` redirects: a signal about A counts for no page

A site may redirect its URLs to any other site. If its signals counted there, a site could have the pages of others
fetched, and its false signals would be charged to their sources. So a redirect to another site (registrable domain)
is followed only if the sender of the signal could have named any URL (`SignalSource.names_any`).
"""

from collections.abc import Callable

from crawler.change_signals import SIGNAL_SOURCES
from crawler.records import PageRecord, PageState
from crawler.urls.canonical import hostname, resolve
from crawler.urls.suffixes import registrable_domain

HOPS_MAX = 10  # maximum number of redirects that are followed


def moved_to(
    url: str, record: PageRecord | None, number: int, record_of: Callable[[str], PageRecord | None]
) -> str:
    """Return the URL (request form) to which known redirects of `url` lead; "" if it does not redirect, or not usably.

    `record` is the record of `url`, and `number` the number of the signal's source. `record_of` returns the record of a
    URL. It returns None for URLs of other processes, so the last URL that is returned may redirect, too.
    """
    start = url
    for _ in range(HOPS_MAX):
        if record is None or record.state is not PageState.REDIRECTED:
            break
        target = resolve(record.url, record.location)
        if target is None or not _may_follow(url, target, number):
            return ""
        url, record = target, record_of(target)
    else:
        return ""
    return "" if url == start else url


def _may_follow(url: str, target: str, number: int) -> bool:
    here, there = hostname(url), hostname(target)
    return (
        here == there
        or SIGNAL_SOURCES[number].names_any
        or registrable_domain(here) == registrable_domain(there)
    )
