"""Reads the consent receipts of stored pages, for exported rows and CDXJ lines and for counting pages by use."""

from collections.abc import Callable, Iterator
from typing import Any

from crawler.consent.describing import sources
from crawler.consent.resolving import Consent
from crawler.consent.stamping import load_block
from crawler.consent.statements import USES
from crawler.consent.use_rule import uses_of
from crawler.errors import DamageError
from crawler.pages.archive import Archive
from crawler.pages.formats.selection import shows_content
from crawler.records import Capture


def consent_columns(archive: Archive, fingerprint: int, capture: Capture) -> dict[str, Any]:
    """Return the columns of a copy's receipt; {} if there is no receipt, or an unreadable one.

    `crawler check` reports unreadable receipts.
    """
    try:
        uses = uses_of(archive.store, fingerprint, capture.receipt)
    except DamageError:
        return {}
    if not capture.receipt:
        return {}
    decided = " ".join(f"{use}={source}" for use, source in sources(uses).items())
    answers = {f"consent_{use}": str(getattr(uses, use).preference) for use in USES}
    return {**answers, "consent_sources": decided or None, "consent_receipt": capture.receipt.hex()}


def receipt_block(archive: Archive, fingerprint: int, capture: Capture) -> bytes:
    """Return the whole receipt of a copy as JSON; b"" if there is none, or the receipt cannot be read."""
    try:
        return load_block(archive.store, fingerprint, capture.receipt)
    except DamageError:
        return b""


def stored_uses(archive: Archive, owns: Callable[[int], bool]) -> Iterator[tuple[str, Consent | None]]:
    """Yield (URL, consent) for each page with a copy of its content, for the fingerprints that the process owns.

    Copies that other processes have of these pages do not count (`pages/holdings.py`), so a page counts once. The
    consent tells which uses of the page are permitted. It is None if the copy has no receipt, or an unreadable one.
    """
    for fingerprint, capture in archive.newest_captures():
        if shows_content(capture) and owns(fingerprint) and archive.record(fingerprint) is not None:
            try:
                uses = uses_of(archive.store, fingerprint, capture.receipt) if capture.receipt else None
            except DamageError:
                uses = None
            yield capture.url, uses
