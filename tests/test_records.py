"""Test the methods of records."""

import pytest

from crawler.records import Fetch, Outcome

HEADERS = ((b"Content-Type", b"text/html"), (b"LINK", b"</a>; rel=next"), (b"link", b"</b>"))
KNOWN = {b"content-type": b"text/html", b"link": b"</a>; rel=next\n</b>"}


@pytest.mark.parametrize("known", [None, KNOWN])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [({b"link"}, True), ({b"etag", b"content-type"}, True), ({b"etag"}, False), (set(), False)],
)
def test_header_names_are_found_whether_they_are_known_or_not(
    known: dict[bytes, bytes] | None, wanted: set[bytes], found: bool
) -> None:
    """`has_any` and `header` give the same answers with and without the fields that the client has already read."""
    fetch = Fetch("http://site.example/", Outcome.FETCHED, headers=HEADERS, known=known)
    assert fetch.has_any(frozenset(wanted)) is found
    assert fetch.header(b"link") == b"</a>; rel=next" and fetch.header(b"etag") == b""
