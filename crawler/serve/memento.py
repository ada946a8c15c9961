"""Builds the addresses of copies, the Link field and the list of copies that Memento (RFC 7089) defines.

    URI-R   U                                    the original
    URI-G   /timegate/U                          redirects to the copy nearest to Accept-Datetime (section 4.2.1)
            U, in the proxy form                 answers with that copy (section 4.1.2)
    URI-T   /timemap/link/U                      lists the copies (section 5)
    URI-M   /page?url=U&at=20260131120000        one copy, permanently

Addresses are absolute and use the server name from the client's request.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from crawler.records import Capture
from crawler.serve.dates import dates_of
from crawler.serve.header_fields import Field

_PLAIN = re.compile(r"[-.0-9:A-Z_a-z/~]*")  # text that `quote` would not change


def page_path(url: str, at: float | None = None, *, rewrite: bool = False) -> str:
    """Return the path of the copy of `url` at the time `at` or, without `at`, the path of the newest copy."""
    path = "/page?url=" + (url if _PLAIN.fullmatch(url) else quote(url, safe=":/"))
    if at is not None:
        path += f"&at={dates_of(int(at)).stamp}"
    return path + ("&rewrite=1" if rewrite else "")


def view_line(base: str, url: str) -> bytes:
    """Return the line of the Link field that names the picture of the newest copy of `url`."""
    path = page_path(url).replace("/page?", "/view?", 1)
    return f'Link: <{base}{path}>; rel="preview"; type="image/png"\r\n'.encode()


def link_field(base: str, url: str, instant: float | None = None) -> str:
    """Return the Link field of a copy or, without `instant`, of another answer.

    `base` is the scheme and authority of this server.
    """
    safe = _in_link(url)
    links = [
        f'<{safe}>; rel="original"',
        f'<{base}/timegate/{safe}>; rel="timegate"',
        f'<{base}/timemap/link/{safe}>; rel="timemap"; type="application/link-format"',
    ]
    if instant is not None:
        date = dates_of(int(instant)).http
        links.append(f'<{base}{page_path(url, instant)}>; rel="memento"; datetime="{date}"')
    return ", ".join(links)


def redirect_fields(base: str, url: str, instant: float) -> list[Field]:
    """Return the header fields of a redirect from the time gate of `url` to the copy fetched at `instant`."""
    return [
        (b"Location", (base + page_path(url, instant)).encode()),
        (b"Vary", b"Accept-Datetime"),
        (b"Link", link_field(base, url, instant).encode("latin-1", "replace")),
        (b"Cache-Control", b"no-cache"),
    ]


def _in_link(url: str) -> str:
    """Escape a URL for use between < and >. This is only a safeguard: request forms contain neither character."""
    return url.replace("<", "%3C").replace(">", "%3E").replace("\r", "").replace("\n", "")


def timemap(base: str, url: str, oldest_first: Iterable[Capture]) -> Iterator[bytes]:
    """Yield the list of copies, oldest first, as pieces of an application/link-format document."""
    captures = list(oldest_first)
    safe = _in_link(url)
    span = ""
    if captures:
        first, last = (dates_of(int(captures[at].fetched_at)).http for at in (0, -1))
        span = f'; from="{first}"; until="{last}"'
    yield (f'<{base}/timemap/link/{safe}>; rel="self"; type="application/link-format"{span},\n').encode()
    yield f'<{safe}>; rel="original",\n'.encode()
    yield f'<{base}/timegate/{safe}>; rel="timegate"'.encode()
    for number, capture in enumerate(captures):
        rel = _relation(number, len(captures))
        date = dates_of(int(capture.fetched_at)).http
        yield (f',\n<{base}{page_path(url, capture.fetched_at)}>; rel="{rel}"; datetime="{date}"').encode()
    yield b"\n"


def _relation(number: int, count: int) -> str:
    names = ["first"] * (number == 0) + ["last"] * (number == count - 1)
    return " ".join([*names, "memento"])
