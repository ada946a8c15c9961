"""Makes the rows of exports, one per URL that was tried: the state of the URL, the place of its copy, and its text.

For each URL, `known_rows` yields the newest capture and the columns that come from the store. Callers that
read the pages add the text and the columns derived from the text. Column names are stable. `id`, `url`,
`status` and `depth` have the same meaning as in Browsertrix's pages.jsonl.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from crawler.clock import iso_time
from crawler.pages import warc
from crawler.pages.archive import Archive
from crawler.pages.formats.metadata import PRECEDENCE
from crawler.pages.formats.newest import OwnerOf, chosen_copies, sole_owner
from crawler.pages.formats.selection import Selection
from crawler.records import Capture, LinkFlag, Outcome, PageRecord
from crawler.urls.canonical import hostname

# Maps each field to its type. Times are ISO 8601 text here and timestamps in Parquet. A missing value is
# None.
FIELDS: dict[str, type] = {
    "url": str,
    "host": str,
    "status": int,
    "fetched_at": str,
    "title": str,
    "text": str,
    "language": str,  # ISO 639-1, or ISO 639-3 for languages without such a code
    "language_confidence": float,  # the probability of the language, 0 to 1
    "author": str,  # the author and the next seven columns are what the page declares (`metadata.py`)
    "published": str,  # ISO 8601, with the precision that the page declares
    "modified": str,
    "description": str,
    "site_name": str,
    "canonical": str,
    "declared_language": str,  # BCP 47
    "image": str,
    "content_type": str,
    "digest": str,  # digest of the payload, as in the WARC
    "simhash": str,  # simhash of the text, 16 hexadecimal digits
    "minhash": str,  # minhash of the text, 128 hexadecimal digits
    "duplicate_of": str,  # URL of the first page with the same content or nearly the same text
    "depth": int,
    "via": str,  # URL of the page on which this URL was first found
    "warc_file": str,
    "warc_offset": int,
    "warc_length": int,  # length of the gzip member at `warc_offset`
    "id": str,  # fingerprint
    "state": str,
    "outcome": str,
    "seed": bool,
    "redirects": int,
    "location": str,
    "changed_at": str,
    "fresh": float,  # probability that the copy is still current at the time of the export
    "took": float,  # seconds
    "attempts": int,
    "fetches": int,
    "changes": int,
    "links": int,
    "noindex": bool,
    "noarchive": bool,
    # whether search may use the copy, according to its consent receipt: y, n or unknown; the next three
    # fields say the same for other uses
    "consent_search": str,
    "consent_ai_input": str,
    "consent_train_ai": str,
    "consent_tdm": str,
    "consent_sources": str,  # the source of the decision about each use, such as "search=rsl train_ai=page-names"
    "consent_receipt": str,  # digest, as in the WARC record urn:consent:DIGEST
    "error": str,
}
METADATA_FIELDS = frozenset(PRECEDENCE)
# Fields whose values are computed from the page itself.
CONTENT_FIELDS = METADATA_FIELDS | {
    "title",
    "text",
    "language",
    "language_confidence",
    "simhash",
    "minhash",
    "duplicate_of",
}
INSTANTS = frozenset({"fetched_at", "changed_at"})


class Known(msgspec.Struct):
    """The columns of a row that come from the store, and the place of the URL's newest copy.

    `flags` are LinkFlags, and `fetched_at` is the time of the last fetch. `capture` is None if there is no
    copy that may be shown. If `capture` is a revisit, `original` is the response that it repeats.
    """

    row: dict[str, Any]
    archive: int
    flags: int = 0
    fetched_at: float = 0.0
    capture: Capture | None = None
    original: Capture | None = None


def record_row(fingerprint: int, record: PageRecord, via: str) -> dict[str, Any]:
    """Return the fields of a record, in the order of FIELDS. Unknown fields are None.

    The field `status` is the status of the copy. After a 304, it is 200, because this is what an
    unconditional request would have returned (RFC 9110, 15.4.5).
    """
    return dict.fromkeys(FIELDS) | {
        "url": record.url,
        "host": hostname(record.url),
        "status": 200 if record.outcome is Outcome.UNCHANGED else record.status or None,
        "fetched_at": iso_time(record.fetched_at) if record.fetched_at else None,
        "content_type": record.content_type or None,
        "digest": warc.digest_text(record.digest).decode() if record.digest else None,
        "depth": record.depth,
        "via": via or None,
        "id": f"{fingerprint:016x}",
        "state": record.state.value,
        "outcome": record.outcome.value,
        "seed": bool(record.flags & LinkFlag.SEED) and not record.redirects,
        "redirects": record.redirects,
        "location": record.location or None,
        "changed_at": iso_time(record.changed_at) if record.changed_at else None,
        "took": record.took,
        "attempts": record.attempts,
        "fetches": record.fetches,
        "changes": record.changes,
        "links": record.links,
        "noindex": record.noindex,
        "noarchive": record.noarchive,
        "error": record.error or None,
    }


ConsentOf = Callable[[Archive, int, Capture], dict[str, Any]]  # returns the columns of a copy's receipt


def known_rows(
    archives: Sequence[Archive],
    select: Selection,
    owner: OwnerOf = sole_owner,
    *,
    want_via: bool = True,
    consent_of: ConsentOf = lambda archive, fingerprint, capture: {},
) -> Iterator[Known]:
    """Yield a row for each URL that was tried, ordered by fingerprint. `select` chooses the copies (`newest.py`).

    If `select` names a use, URLs without a copy for this use are left out.
    """
    via_url = url_finder(archives) if want_via else (lambda fingerprint: "")
    for fingerprint, number, record, newest in chosen_copies(archives, select, owner):
        if record is None:  # a file of a page, which was not tried as a page
            continue
        archive = archives[number]
        row = record_row(fingerprint, record, via_url(record.via))
        known = Known(row, number, record.flags, record.fetched_at)
        if newest is not None:
            known.capture = copy = select.form(newest)
            known.original = archive.capture_at(copy.refers_to) if copy.refers_to else None
            row |= {
                "warc_file": copy.segment,
                "warc_offset": copy.offset,
                "warc_length": copy.length,
                **consent_of(archive, fingerprint, newest),
            }
        if known.capture is not None or select.refused is None:
            yield known


def url_finder(archives: Sequence[Archive]) -> Callable[[int], str]:
    """Return a function that maps the fingerprint of a tried page to the page's URL.

    The function returns "" if the URL is unknown or withdrawn, and its results are cached.
    """

    @lru_cache(maxsize=1 << 14)
    def find(fingerprint: int) -> str:
        if not fingerprint:
            return ""
        records = (archive.record(fingerprint) for archive in archives)
        url = next((record.url for record in records if record is not None), "")
        return "" if any(archive.withdrawals.stops(url) for archive in archives if url) else url

    return find
