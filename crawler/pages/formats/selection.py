"""Selects the captures to export, and the newest copy of each page.

If the latest answer of a page states `noarchive`, all copies of the page are left out, unless
`with_noarchive` is set. If `serve.on_disallow` demands it, copies of pages that robots.txt now forbids are
left out. Copies that may not be used for the purpose of the export are left out too (`consent/use_rule.py`).
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crawler.pages.archive import Archive
from crawler.pages.captures import asks_no_archive, fingerprint_of, static_form
from crawler.records import Capture, PageRecord

Say = Callable[[str], None]
# Maps (archive, fingerprint, copy, page record) to the reason why the copy may not be used, or to "" if it
# may be used.
Refused = Callable[[Archive, int, Capture, PageRecord | None], str]


class Selection(NamedTuple):
    """Selects the captures to export, by directive and by time: `since` <= time < `until`, in seconds.

    `disallowed` returns whether copies of a URL are withheld because robots.txt forbids the URL. `refused`
    returns the reason why a copy may not be used. With `static`, a page that a browser showed is exported as
    the server sent it.
    """

    with_noarchive: bool = False
    since: float = 0.0
    until: float = float("inf")
    disallowed: Callable[[str], bool] | None = None
    refused: Refused | None = None
    static: bool = False

    def form(self, capture: Capture) -> Capture:
        """Return the capture to read. If `static` is true, this is the server's answer instead of the DOM."""
        return static_form(capture) if self.static else capture

    def withholds(self, record: PageRecord | None, capture: Capture | None) -> bool:
        """Return whether a page asks not to be archived; without a copy, it withholds those of other processes."""
        return asks_no_archive(record, capture) and not self.with_noarchive

    def takes(self, archive: Archive, fingerprint: int, capture: Capture, record: PageRecord | None) -> bool:
        """Return whether a capture is exported; `record` is the record of its page, or None for robots.txt."""
        if self.withholds(record, capture) or not self.since <= capture.fetched_at < self.until:
            return False
        if self.disallowed is not None and self.disallowed(capture.url):
            return False
        return self.refused is None or not self.refused(archive, fingerprint, capture, record)


def selected_captures(archive: Archive, select: Selection) -> Iterator[tuple[bytes, Capture]]:
    """Yield (`c/` key, capture) for each capture to export, ordered by fingerprint and time."""
    for prefix, group in itertools.groupby(archive.all_captures(), key=lambda item: item[0][:10]):
        fingerprint = fingerprint_of(prefix)
        record = archive.record(fingerprint)
        for key, capture in group:
            if select.takes(archive, fingerprint, capture, record):
                yield key, capture


def ignore(message: str) -> None:
    """Report nothing."""


def shows_content(capture: Capture) -> bool:
    """Return whether a capture may hold a page's content: it is a 2xx, or a 304, which may confirm a 2xx."""
    return 200 <= capture.status < 300 or capture.status == 304
