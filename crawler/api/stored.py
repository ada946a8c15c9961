"""Reads the stored pages of a process for the user's code."""

import logging
from collections.abc import Iterator

from crawler.api.delivery import stored_page
from crawler.api.page import Page
from crawler.consent.describing import in_plain
from crawler.consent.use_rule import UseRule
from crawler.errors import DamageError
from crawler.export.stored_pages import StoredPages
from crawler.process.opening.stages import Stages

log = logging.getLogger("crawler")


def stored_pages(stages: Stages, newest: bool, allow: str) -> Iterator[Page]:
    """Yield the pages of a store; log and skip those that cannot be read."""
    archive, config, fingerprinter = stages.pages, stages.config, stages.fingerprinter
    pages, rule = StoredPages(config), UseRule.of(allow, config.consent)
    captures = (
        (capture for _, capture in archive.newest_captures())
        if newest
        else (capture for _, capture in archive.all_captures())
    )
    for capture in captures:
        if capture.noarchive or capture.url.endswith("/robots.txt") or not capture.status:
            continue
        try:
            fingerprint = fingerprinter.fingerprint(capture.url)
            record = archive.record(fingerprint)
            if rule is not None and rule.refusal(stages.store, fingerprint, capture, record):
                continue
            flags, depth = (record.flags, record.depth) if record else (0, 0)
            consent = in_plain(stages.store, fingerprint, capture)
            page = stored_page(archive.read(capture), pages, flags, depth, consent=consent)
        except DamageError as error:
            log.error("%s", error)
            continue
        yield page
