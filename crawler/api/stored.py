"""Reads the stored pages of a crawl for the user's code, except the copies that exports leave out."""

import logging
from collections.abc import Callable, Iterator, Sequence

from crawler.api.delivery import stored_page
from crawler.api.page import Page
from crawler.config import Config
from crawler.consent.describing import in_plain
from crawler.consent.use_rule import UseRule
from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.pages.archive import Archive
from crawler.pages.captures import fingerprint_of
from crawler.pages.formats.newest import OwnerOf, chosen_copies
from crawler.pages.formats.selection import Selection, selected_captures
from crawler.records import Capture, PageRecord

log = logging.getLogger("crawler")

_Copy = tuple[Archive, int, PageRecord | None, Capture]


def stored_pages(
    archives: Sequence[Archive],
    config: Config,
    owner: OwnerOf,
    disallowed: Callable[[str], bool] | None,
    *,
    newest: bool,
    allow: str,
) -> Iterator[Page]:
    """Yield the pages of a crawl; log and skip pages that cannot be read.

    `owner` and `newest` choose among several copies of a URL (`pages/formats/newest.py`). `disallowed` returns whether
    copies of a URL are withheld because robots.txt forbids the URL.
    """
    pages, rule = StoredPages(config), UseRule.of(allow, config.consent)

    def refused(archive: Archive, fingerprint: int, capture: Capture, record: PageRecord | None) -> str:
        found = None if rule is None else rule.refusal(archive.store, fingerprint, capture, record)
        return "" if found is None else found.why

    select = Selection(disallowed=disallowed, refused=refused)
    copies = _newest(archives, select, owner) if newest else _all(archives, select)
    for archive, fingerprint, record, capture in copies:
        if capture.url.endswith("/robots.txt") or not capture.status:
            continue
        try:
            flags, depth = (record.flags, record.depth) if record else (0, 0)
            consent = in_plain(archive.store, fingerprint, capture)
            page = stored_page(archive.read(capture), pages, flags, depth, consent=consent)
        except DamageError as error:
            log.error("%s", error)
            continue
        yield page


def _newest(archives: Sequence[Archive], select: Selection, owner: OwnerOf) -> Iterator[_Copy]:
    for fingerprint, number, record, capture in chosen_copies(archives, select, owner):
        if capture is not None:
            yield archives[number], fingerprint, record, capture


def _all(archives: Sequence[Archive], select: Selection) -> Iterator[_Copy]:
    for archive in archives:
        for key, capture in selected_captures(archive, select):
            fingerprint = fingerprint_of(key)
            yield archive, fingerprint, archive.record(fingerprint), capture
