"""Directory listings that servers generate: when each file changed.

Apache (plain and table), nginx and lighttpd write a link, the file's modification time
in one of three forms, and its size. The time is the server's own and is read as UTC if
it has no zone. Signals that are wrong for that reason lower the source's precision
(`freshness/README.md`).
"""

import re
from datetime import UTC, datetime

from crawler.extract.sitemap import Entry

_HEAD_BYTES = 2048  # in which a listing says that it is one
_TITLE = re.compile(rb"<title>\s*(?:index of|directory listing)", re.IGNORECASE)
_ROW = re.compile(
    rb'<a\s+href="([^"?#<>]{1,1024})"[^<>]{0,200}>[^<]{0,300}</a>[^\w]{0,4}(?:</?t[dr][^<>]{0,100}>|\s){1,400}'
    rb"(\d{4}-\d\d-\d\d|\d\d-[A-Za-z]{3}-\d{4}|\d{4}-[A-Za-z]{3}-\d\d) (\d\d:\d\d)",
    re.IGNORECASE,
)
_MONTHS = {name: n for n, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}


def is_listing(content: bytes) -> bool:
    """Whether a page says that it lists a directory."""
    return _TITLE.search(content, 0, _HEAD_BYTES) is not None


def read_listing(content: bytes, links_max: int) -> list[Entry]:
    """The files of a listing, raw URLs, and when each changed; at most `links_max`."""
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
