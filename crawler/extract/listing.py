"""Reads the modification time of each file from the directory listings of Apache, nginx and lighttpd.

A listing states times in the server's local time; a time without a zone is read as UTC. If the server's zone is
another, the measured precision of listings as a source drops (`freshness/README.md`).
"""

import re
from datetime import UTC, datetime

from crawler.extract.sitemap import Entry

_HEAD_BYTES = 2048  # the title of a listing must begin within this many bytes
_TITLE = re.compile(rb"<title>\s*(?:index of|directory listing)", re.IGNORECASE)
_ROW = re.compile(
    rb'<a\s+href="([^"?#<>]{1,1024})"[^<>]{0,200}>[^<]{0,300}</a>[^\w]{0,4}(?:</?t[dr][^<>]{0,100}>|\s){1,400}'
    rb"(\d{4}-\d\d-\d\d|\d\d-[A-Za-z]{3}-\d{4}|\d{4}-[A-Za-z]{3}-\d\d) (\d\d:\d\d)",
    re.IGNORECASE,
)
_MONTHS = {name: n for n, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}


def is_listing(content: bytes) -> bool:
    """Return whether a page's title says that it is a directory listing."""
    return _TITLE.search(content, 0, _HEAD_BYTES) is not None


def read_listing(content: bytes, links_max: int) -> list[Entry]:
    """Return at most `links_max` files of a listing, each with its raw URL and modification time."""
    found: list[Entry] = []
    for row in _ROW.finditer(content):
        if len(found) == links_max:
            break
        if (changed_at := _instant(row[2], row[3])) is not None:
            found.append(Entry(row[1].decode("utf-8", "replace"), changed_at))
    return found


def _instant(day: bytes, clock: bytes) -> float | None:
    try:
        parts = [_MONTHS.get(part.lower()) or int(part) for part in day.split(b"-")]
        year, month, number = parts if parts[0] > 31 else reversed(parts)
        hour, minute = map(int, clock.split(b":"))
        return datetime(year, month, number, hour, minute, tzinfo=UTC).timestamp()
    except ValueError:
        return None
