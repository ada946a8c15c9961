"""Decides which captures of a URL are kept, if old copies are dropped (`pages/README.md`, "Old copies")."""

from collections.abc import Iterable

from crawler.pages.captures import capture_key, fingerprint_of, is_copy
from crawler.records import Capture, PageRecord


def kept(newest_first: Iterable[tuple[bytes, Capture]], record: PageRecord | None, copies: int) -> set[bytes]:
    """Return the keys of the captures of one URL that are kept. `record` is the URL's record, if it has one.

    These captures are kept:

    * the newest `copies` captures that show the page, and the newest `copies` of the other captures
    * the copy that was the newest one at the last change, because later answers are compared with it
    * captures later than the last answer; they were stored while the clock was ahead
    * the responses of this URL to which one of these captures refers
    """
    seen, keys, responses = set[bytes](), set[bytes](), set[bytes]()
    counts, is_compared = [0, 0], record is None
    for key, capture in newest_first:
        seen.add(key)
        keeps = record is not None and key > capture_key(fingerprint_of(key), record.fetched_at)
        if not keeps:
            shows = is_copy(capture)
            counts[shows] += 1
            keeps = counts[shows] <= copies
            if record is not None and shows and not is_compared:
                is_compared = key <= capture_key(fingerprint_of(key), record.changed_at)
                keeps = keeps or is_compared
        if keeps:
            keys.add(key)
            responses.add(capture.refers_to)
    return keys | responses & seen
