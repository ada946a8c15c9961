"""Memento (RFC 7089): addresses of copies, the Link field, and the list of copies.

    URI-R   U                                    the original
    URI-G   /timegate/U                          negotiates by Accept-Datetime, answers with the copy (section 4.2.2)
    URI-T   /timemap/link/U                      lists the copies (section 5)
    URI-M   /page?url=U&at=20260131120000        one copy, for good

Addresses are absolute, with the name by which the client called us.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from urllib.parse import quote

from crawler.records import Capture
from crawler.serve.header_fields import http_date


def stamp(instant: float) -> str:
    """An instant as 14 digits, in UTC."""
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y%m%d%H%M%S")


def page_path(url: str, at: float | None = None, *, rewrite: bool = False) -> str:
    """The path of a copy of `url`."""
    path = f"/page?url={quote(url, safe=':/')}"
    if at is not None:
        path += f"&at={stamp(at)}"
    return path + ("&rewrite=1" if rewrite else "")


def link_field(base: str, url: str, instant: float | None = None) -> str:
    """The Link field of a copy, or (no instant) of an answer without one. `base` is scheme and authority."""
    safe = _in_link(url)
    links = [
        f'<{safe}>; rel="original"',
        f'<{base}/timegate/{safe}>; rel="timegate"',
        f'<{base}/timemap/link/{safe}>; rel="timemap"; type="application/link-format"',
    ]
    if instant is not None:
        date = http_date(int(instant))
        links.append(f'<{base}{page_path(url, instant)}>; rel="memento"; datetime="{date}"')
    return ", ".join(links)


def _in_link(url: str) -> str:
    """A URL between < and >: a request form holds neither, but is made sure of here."""
    return url.replace("<", "%3C").replace(">", "%3E").replace("\r", "").replace("\n", "")


def timemap(base: str, url: str, oldest_first: Iterable[Capture]) -> Iterator[bytes]:
    """The lines of the application/link-format list of copies, oldest copy first."""
    captures = list(oldest_first)
    safe = _in_link(url)
    span = ""
    if captures:
        first, last = http_date(int(captures[0].fetched_at)), http_date(int(captures[-1].fetched_at))
        span = f'; from="{first}"; until="{last}"'
    yield (f'<{base}/timemap/link/{safe}>; rel="self"; type="application/link-format"{span},\n').encode()
    yield f'<{safe}>; rel="original",\n'.encode()
    yield f'<{base}/timegate/{safe}>; rel="timegate"'.encode()
    for number, capture in enumerate(captures):
        rel = _relation(number, len(captures))
        date = http_date(int(capture.fetched_at))
        yield (f',\n<{base}{page_path(url, capture.fetched_at)}>; rel="{rel}"; datetime="{date}"').encode()
    yield b"\n"


def _relation(number: int, count: int) -> str:
    names = ["first"] * (number == 0) + ["last"] * (number == count - 1)
    return " ".join([*names, "memento"])
