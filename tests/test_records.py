"""Test the methods of records."""

import pytest

from crawler.records import Fetch, Outcome

HEADERS = ((b"Content-Type", b"text/html"), (b"LINK", b"</a>; rel=next"))


@pytest.mark.parametrize("names", [None, (b"content-type", b"link")])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [({b"link"}, True), ({b"etag", b"content-type"}, True), ({b"etag"}, False), (set(), False)],
)
def test_header_names_are_found_whether_they_are_known_or_not(
    names: tuple[bytes, ...] | None, wanted: set[bytes], found: bool
) -> None:
    """`has_any` gives the same answer with and without the names that the client has already read."""
    fetch = Fetch("http://site.example/", Outcome.FETCHED, headers=HEADERS, names=names)
    assert fetch.has_any(frozenset(wanted)) is found
