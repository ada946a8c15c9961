"""Test directory listings of Apache, nginx and lighttpd; the markup is copied from such servers."""

from datetime import UTC, datetime

import pytest

from crawler.extract.listing import is_listing, read_listing

NGINX = b"""<html><head><title>Index of /pub/</title></head><body><h1>Index of /pub/</h1><hr><pre><a href="../">../</a>
<a href="a/">a/</a>                                                 02-Jan-2024 10:05                   -
<a href="b%20c.tar.gz">b c.tar.gz</a>                                   28-Feb-2023 23:59               12345
</pre><hr></body></html>"""
APACHE_PLAIN = b"""<title>Index of /pub</title><pre><img src="/icons/blank.gif"> <a href="?C=N;O=D">Name</a>
<img src="/icons/folder.gif" alt="[DIR]"> <a href="a/">a/</a>                    2024-01-02 10:05    -
<img src="/icons/x.gif"> <a href="b%20c.tar.gz">b c.tar.gz</a>          2023-02-28 23:59   12K  </pre>"""
APACHE_TABLE = b"""<title>Index of /pub</title><table><tr><td><a href="/">Parent Directory</a></td><td>&nbsp;</td></tr>
<tr><td valign="top"><img src="f.gif"></td><td><a href="a/">a/</a></td><td align="right">2024-01-02 10:05  </td>
<td>-</td></tr>
<tr><td><a href="b%20c.tar.gz">b c.tar.gz</a></td><td align="right">2023-02-28 23:59  </td></tr></table>"""
LIGHTTPD = b"""<title>Index of /pub/</title><table>
<tr><td class="n"><a href="a/">a</a>/</td><td class="m">2024-Jan-02 10:05:00</td></tr>
<tr><td class="n"><a href="b%20c.tar.gz">b c.tar.gz</a></td><td class="m">2023-Feb-28 23:59:59</td></tr></table>"""
WANTED = [
    ("a/", datetime(2024, 1, 2, 10, 5, tzinfo=UTC).timestamp()),
    ("b%20c.tar.gz", datetime(2023, 2, 28, 23, 59, tzinfo=UTC).timestamp()),
]


@pytest.mark.parametrize("page", [NGINX, APACHE_PLAIN, APACHE_TABLE, LIGHTTPD])
def test_rows_of_each_server(page: bytes) -> None:
    assert is_listing(page)
    assert [(entry.loc, entry.lastmod) for entry in read_listing(page, 100)] == WANTED
    assert len(read_listing(page, 1)) == 1


def test_pages_that_are_not_listings() -> None:
    assert not is_listing(b"<title>News</title>" + NGINX[60:])
    assert read_listing(b'<title>Index of</title><a href="x">x</a> 2024-13-45 10:00', 9) == []


def test_work_is_linear_in_hostile_pages() -> None:
    """If reading took more than linear time, pages of unclosed anchors or endless blanks would take too long."""
    for piece in (b'<a href="x">', b'<a href="x">x</a>' + b" " * 2000, b"<td>", b'<a href="x">x</a><td>'):
        assert read_listing(piece * (400_000 // len(piece)), 10) == []
