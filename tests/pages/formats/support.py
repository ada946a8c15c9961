"""A small site for the tests of the formats."""

from pathlib import Path

from crawler.pages.formats.selection import Selection
from crawler.records import Extracted, Outcome
from tests.pages.support import Site, fetch, not_modified

URL = "http://site.example/"
ALL = Selection()
ASKED = Selection(with_noarchive=True)
SECRET = Extracted(base=URL, noarchive=True)


def small_site(tmp_path: Path) -> Site:
    """Return a site with six pages.

    Page a has two copies and a 304, b is noarchive, c has the same bytes as b, d is gone, e redirects, and f
    failed.
    """
    site = Site(tmp_path / "p0", segment_bytes=2000)
    site.visit(fetch(URL + "a", b"<p>old</p>"), 1, flags=1)
    site.visit(fetch(URL + "a", b"<title>T</title><p>new</p>"), 1, flags=1)
    site.visit(not_modified(URL + "a"), 1, flags=1)
    site.visit(fetch(URL + "b", b"<p>secret</p>"), 2, SECRET)
    site.visit(fetch(URL + "c", b"<p>secret</p>"), 3, depth=2, via=1)
    site.visit(fetch(URL + "d", b"gone", status=404, outcome=Outcome.GONE), 4)
    redirect = {"status": 301, "outcome": Outcome.REDIRECT, "location": URL + "a"}
    site.visit(fetch(URL + "e", b"", **redirect), 5)
    site.visit(fetch(URL + "f", b"", status=0, outcome=Outcome.DNS_ERROR, error="no name"), 6)
    return site
