"""Chooses one copy of each URL of a crawl, for exports, reports and `Crawl.stored`.

Several processes may have records and copies of the same URL, for example after a redirect between hosts or a reshard
(`pages/holdings.py`). The rule there says which process answers, so exports show the copy that `get` and the page server
show. The records and the copies of each process are ordered by fingerprint, so one merging pass over all processes finds
the URLs that several of them have. It holds one URL of each process in memory.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from crawler.pages.archive import Archive
from crawler.pages.formats.selection import Selection
from crawler.pages.holdings import answering, holding_of
from crawler.records import Capture, PageRecord

# Maps the fingerprint of a URL to the position of its owner among the archives; -1 if the owner is not among them
OwnerOf = Callable[[int], int]
# what an archive has of a URL; the numbers are the fingerprint and the position of the archive
_Held = tuple[int, int, PageRecord | None, Capture | None]


class Chosen(NamedTuple):
    """A URL of the crawl: its record, and its newest copy, which is in the archive at position `archive`.

    `record` is None if no process has tried the URL as a page. `capture` is None if no copy may be shown.
    """

    fingerprint: int
    archive: int
    record: PageRecord | None
    capture: Capture | None


def sole_owner(_fingerprint: int) -> int:
    """Return the owner of a URL in a crawl of one process."""
    return 0


def chosen_copies(archives: Sequence[Archive], select: Selection, owner: OwnerOf) -> Iterator[Chosen]:
    """Yield each URL that has a record or a copy once, ordered by fingerprint; `select` chooses the copies."""
    passes = [_held(number, archive) for number, archive in enumerate(archives)]
    merged = heapq.merge(*passes, key=itemgetter(0, 1))
    for fingerprint, group in itertools.groupby(merged, key=itemgetter(0)):
        yield _chosen(archives, select, owner(fingerprint), list(group))


def _held(number: int, archive: Archive) -> Iterator[_Held]:
    """Yield what one process has of each URL, ordered by fingerprint."""
    records: Iterator[tuple[int, PageRecord | None, Capture | None]]
    records = ((fingerprint, record, None) for fingerprint, record in archive.all_records())
    captures = ((fingerprint, None, capture) for fingerprint, capture in archive.newest_captures())
    for fingerprint, group in itertools.groupby(
        heapq.merge(records, captures, key=itemgetter(0)), itemgetter(0)
    ):
        record: PageRecord | None = None
        capture: Capture | None = None
        for _, of_record, of_capture in group:
            record, capture = of_record or record, of_capture or capture
        yield fingerprint, number, record, capture


def _chosen(archives: Sequence[Archive], select: Selection, owner: int, found: list[_Held]) -> Chosen:
    """Return the copy that the answering process has, with its record, or else with the newest record."""
    fingerprint = found[0][0]
    holdings = {}
    for _, number, record, capture in found:
        if capture is None:
            left_out = select.withholds(record, None)
        else:
            left_out = not select.takes(archives[number], fingerprint, capture, record)
        holdings[f"{number:06}"] = holding_of(capture, "left out" if left_out else "", owner=number == owner)
    answers = answering(holdings)
    by_number = {number: (record, capture) for _, number, record, capture in found}
    records = [(number == owner, record.fetched_at, number) for _, number, record, _ in found if record]
    if answers is None:
        number = max(records)[2]
        return Chosen(fingerprint, number, by_number[number][0], None)
    number, holding = int(answers), holdings[answers]
    record, capture = by_number[number]
    if record is None and records:
        record = by_number[max(records)[2]][0]
    return Chosen(fingerprint, number, record, None if holding is None or holding.withheld else capture)
