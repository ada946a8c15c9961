"""Reads the stored pages of a process for the user's code, except the copies that exports leave out."""

import logging
from collections.abc import Iterator

from crawler.api.delivery import stored_page
from crawler.api.page import Page
from crawler.consent.describing import in_plain
from crawler.consent.use_rule import UseRule
from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.pages.captures import fingerprint_of
from crawler.pages.formats.selection import Selection
from crawler.process.opening.stages import Stages
from crawler.records import Capture, PageRecord

log = logging.getLogger("crawler")


def stored_pages(stages: Stages, newest: bool, allow: str) -> Iterator[Page]:
    """Yield the pages of a store; log and skip pages that cannot be read."""
    archive, config = stages.pages, stages.config
    pages, rule = StoredPages(config), UseRule.of(allow, config.consent)

    def refused(_: object, fingerprint: int, capture: Capture, record: PageRecord | None) -> str:
        found = None if rule is None else rule.refusal(stages.store, fingerprint, capture, record)
        return "" if found is None else found.why

    select = Selection(
        disallowed=lambda url: bool(stages.frontier.views.withholding_line(url)), refused=refused
    )
    captures = (
        archive.newest_captures()
        if newest
        else ((fingerprint_of(key), capture) for key, capture in archive.all_captures())
    )
    for fingerprint, capture in captures:
        if capture.url.endswith("/robots.txt") or not capture.status:
            continue
        try:
            record = archive.record(fingerprint)
            if not select.takes(archive, fingerprint, capture, record):
                continue
            flags, depth = (record.flags, record.depth) if record else (0, 0)
            consent = in_plain(stages.store, fingerprint, capture)
            page = stored_page(archive.read(capture), pages, flags, depth, consent=consent)
        except DamageError as error:
            log.error("%s", error)
            continue
        yield page
