"""Warns about parts of a site that seem to generate URLs without end, such as a calendar that links to each next month.

    page at depth d ──via──► page that linked to it ──via──► ... ──via──► page at depth d - `traps.chain_warned`

A crawl finds the pages of an ordinary site within a few links. In an endless calendar, each page is found only on
the page before, so the depth grows with every fetch. If a page and all pages that led to it, `traps.chain_warned`
links back, are on one host, a place of this host is warned about once. The place is the directory that the nearer
half of these pages share, or their path with a question mark if they differ only in their query. Nothing is
dropped, because a long list of pages that ends, such as an archive, looks the same. Heritrix
(TooManyHopsDecideRule) drops the URLs instead, and the operators of Mercator watched for traps by hand (Heydon and
Najork 1999).

The places are stored with the pages that showed them, so a later run does not repeat the warning.
"""

import logging
from collections.abc import Callable, Sequence
from os.path import commonprefix

import msgspec

from crawler.records import FetchTask, PageRecord
from crawler.storage.commit import Change
from crawler.storage.keys import TRAPS
from crawler.storage.kv import KeyValue, seal, unseal
from crawler.urls.canonical import authority, hostname

log = logging.getLogger("crawler")

PLACES_MAX = 100  # number of places that are warned about
_EVERY = (
    10  # only pages whose depth is a multiple of this number are examined, because each takes many look-ups
)
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(list[str]).decode


class TrapWatch:
    """Finds the places of one process that may be endless. A chain of `hops` links is warned about; 0 means never."""

    def __init__(self, store: KeyValue, record: Callable[[int], PageRecord | None], hops: int) -> None:
        self._record, self._hops = record, hops
        self._places = stored_places(store)

    def note(self, change: Change, fetch_task: FetchTask) -> None:
        """Examine the links that led to a new page. If they show a new place, warn, and store the place."""
        if not self._hops or fetch_task.depth < self._hops or fetch_task.depth % _EVERY:
            return
        if len(self._places) >= PLACES_MAX or fetch_task.url.startswith(tuple(self._places)):
            return
        chain = self._chain(fetch_task)
        if chain:
            place = common_place(chain[: len(chain) // 2 + 1])
            self._places.append(place)
            change.put(TRAPS, seal(_encode(self._places)))
            log.warning(
                "%s may be endless: each of its pages was found on the page before, %d links in a row; "
                "to crawl less of it, set filter.exclude, or the depth of an [[override]] for it, in the next run",
                place, self._hops,
            )  # fmt: skip

    def _chain(self, fetch_task: FetchTask) -> list[str]:
        """Return the URLs from a page back to the page `hops` links before; [] if they are not on one host."""
        urls, via, last = [fetch_task.url], fetch_task.via, fetch_task.depth - self._hops
        for _ in range(2 * self._hops):  # redirects are steps, too
            record = self._record(via)
            if record is None or hostname(record.url) != fetch_task.hostname:
                return []
            urls.append(record.url)
            if record.depth <= last:
                return urls
            via = record.via
        return []


def common_place(urls: Sequence[str]) -> str:
    """Return the directory that URLs of one host share, or their path and `?` if they differ only in the query.

    >>> common_place(["http://a.org/day?d=10", "http://a.org/day?d=11"])
    'http://a.org/day?'
    >>> common_place(["http://a.org/days/10", "http://a.org/days/1/2"])
    'http://a.org/days/'
    """
    shared = commonprefix(list(urls))
    path, mark, _ = shared.partition("?")
    if mark:
        return f"{path}?"
    root = f"{authority(urls[0])}/"
    return shared[: shared.rindex("/") + 1] if shared.startswith(root) else root


def stored_places(store: KeyValue) -> list[str]:
    """Return the places that a process has warned about."""
    value = store.get(TRAPS)
    return [] if value is None else _decode(unseal(TRAPS, value))
