"""Turns a stored copy into an answer: status, fields and body, as far as they are constant until the next copy.

A copy has up to three representations, each with its own entity tag:

    as stored    the client accepts its content coding, or it has none     "<digest>"
    decoded      the client does not, or requests a range                  "<digest>-d"
    rewritten    links point to /page                                      "<digest>-r"

The Location of a stored redirect leads to the copy of its target, at the same instant,
so a reader stays among the copies. In the proxy form it is the target itself, which the
client requests through the proxy. A copy whose server said nothing about caching gets
`Cache-Control: no-cache`: otherwise a cache would derive a lifetime from Last-Modified
(RFC 9111, 4.2.2), months for a copy of last year.

A `Representation` holds the constant fields, and the body if it is short; it may be
cached and sent again. Age, P(fresh) and date are added on sending.
"""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

import msgspec

from crawler.pages.stored_bodies import Copy, Pieces, can_decode, decoded
from crawler.records import Capture
from crawler.serve import header_fields, memento
from crawler.serve.dates import http_date, rfc3339
from crawler.serve.header_fields import Field
from crawler.serve.http_error import HttpError
from crawler.urls.canonical import resolve
from crawler.urls.media_type import field_text

Rewriter = Callable[
    [bytes, bytes, str], bytes | None
]  # (content, Content-Type, URL) -> rewritten content; None = this type is not rewritten

_BODILESS = (204, 205, 304)
_REDIRECTS = (301, 302, 303, 307, 308)
_OF_A_BODY = (b"content-type", b"content-encoding", b"content-disposition", b"content-language")
_LIFETIMES = (b"cache-control", b"expires")
_FRAGMENT = "!$%&'()*+,-./:;=?@_~"  # characters of a fragment that are not escaped (RFC 3986, 3.5)
UNKNOWN_LENGTH = -1


class CopyForm(msgspec.Struct, frozen=True):
    """The form in which a client wants a copy: everything of its request that the answer depends on, except the URL.

    `base` is the scheme and authority by which it addressed this server, `taken` the content codings it can
    decode, `at` the instant it asks for (None: now). `rewrite`: links lead to /page. `proxied`: the client
    uses this server as a proxy, so Accept-Datetime chooses the copy.
    """

    base: str
    taken: frozenset[bytes]
    at: float | None = None
    rewrite: bool = False
    proxied: bool = False


class Representation(msgspec.Struct):
    """A representation: `body`, or `pieces` if too long for memory; `length` is UNKNOWN_LENGTH if decoded."""

    status: int
    reason: str
    fields: list[Field]
    etag: str
    modified: str
    length: int
    body: bytes | None
    pieces: Pieces
    head: bytes = b""  # status line and fields, ready to send
    fields_at: int = 0  # where the fields begin in `head`
    lasting_at: int = 0  # where those begin that do not describe the body, so are also sent with a 304
    size: int = 0  # memory that caching it takes, in bytes


def represent(
    copy: Copy, capture: Capture, form: CopyForm, *, held_max: int, rewriter: Rewriter | None = None
) -> Representation:
    """Return the representation of a copy in a form; `rewriter` rewrites links if the form asks for it.

    Raises:
        HttpError: 502, the stored status cannot be sent.
    """
    if not 200 <= copy.status <= 599 or copy.status in (206, 304):
        raise HttpError(502, "failed", f"the stored answer has status {copy.status}, which cannot be served")
    if not form.rewrite:
        rewriter = None
    codings = copy.codings
    passed = header_fields.passed_on(copy.headers)
    ready = Representation(
        copy.status, copy.reason, passed, _digest(capture), "", copy.length, None, copy.pieces
    )
    passes = form.taken.issuperset(codings) and rewriter is None
    if codings and not passes and can_decode(codings):
        pieces = copy.pieces
        ready.pieces = lambda: decoded(pieces(), codings)
        ready.length = UNKNOWN_LENGTH
        ready.etag += "-d"
    elif codings:
        passed.append((b"Content-Encoding", b", ".join(codings)))
    if ready.status in _BODILESS:
        ready.length, ready.pieces = 0, lambda: iter(())
    _hold(ready, held_max)
    kind = header_fields.first(copy.headers, b"content-type")
    sandbox = header_fields.SANDBOX
    if rewriter is not None:
        sandbox = header_fields.SANDBOX_REWRITTEN
        _rewrite(ready, rewriter, kind, capture.url)
    ready.etag = f'"{ready.etag}"'
    ready.modified = http_date(int(capture.fetched_at))
    vary = ["Accept-Datetime"] * form.proxied + ["Accept-Encoding"] * bool(codings)
    passed += _own_fields(ready, capture, form.base, vary)
    passed += sandbox
    if copy.status in _REDIRECTS and (target := _target(copy, capture.url, form)):
        passed.append((b"Location", target))
    _set_head(ready)
    ready.size = len(ready.body or b"") + 2 * len(ready.head) + 1024
    return ready


def _set_head(ready: Representation) -> None:
    """Join the fields, those that describe the body first."""
    of_body = [field for field in ready.fields if field[0].lower() in _OF_A_BODY]
    lasting = [field for field in ready.fields if field[0].lower() not in _OF_A_BODY]
    line = header_fields.head(ready.status, ready.reason, [])
    ready.head = header_fields.head(ready.status, ready.reason, [*of_body, *lasting])
    ready.fields_at = len(line)
    ready.lasting_at = len(line) + sum(len(name) + len(value) + 4 for name, value in of_body)


def _digest(capture: Capture) -> str:
    if capture.dom_length:  # the answer may be the same while the DOM differs
        return f"{capture.segment}-{capture.offset}"
    return capture.digest.hex() or f"{capture.segment}-{capture.offset}"


def _hold(ready: Representation, held_max: int) -> None:
    """Read the body into memory if it is short enough."""
    if ready.length > held_max:
        return
    held: list[bytes] = []
    size = 0
    for piece in ready.pieces():
        held.append(piece)
        size += len(piece)
        if size > held_max:
            return
    ready.body, ready.length = b"".join(held), size


def _rewrite(ready: Representation, rewriter: Rewriter, kind: bytes, url: str) -> None:
    """Point links into the cache; a page too long for memory is served unchanged, with a note in a field."""
    if ready.body is None:
        ready.fields.append((b"X-Rewritten", b"no: the page is too long"))
        return
    content = rewriter(ready.body, kind, url)
    if content is not None:
        ready.body, ready.length = content, len(content)
        ready.etag = ready.etag.removesuffix("-d") + "-r"


def _target(copy: Copy, url: str, form: CopyForm) -> bytes:
    """Return the Location of a stored redirect of `url` as the client gets it; b"" if it names no page."""
    raw, mark, fragment = field_text(header_fields.first(copy.headers, b"location")).partition("#")
    target = resolve(url, raw) if raw or mark else None
    if target is None:
        return b""
    if not form.proxied:
        target = memento.page_path(target, form.at, rewrite=form.rewrite)
    return (target + mark + quote(fragment, safe=_FRAGMENT)).encode()


def _own_fields(ready: Representation, capture: Capture, base: str, vary: Sequence[str]) -> Iterator[Field]:
    if not any(name.lower() in _LIFETIMES for name, _ in ready.fields):
        yield b"Cache-Control", b"no-cache"
    yield b"ETag", ready.etag.encode()
    yield b"Last-Modified", ready.modified.encode()
    yield b"Memento-Datetime", ready.modified.encode()
    yield b"X-Crawled-At", rfc3339(capture.fetched_at)
    yield b"Link", memento.link_field(base, capture.url, capture.fetched_at).encode("latin-1", "replace")
    if vary:
        yield b"Vary", ", ".join(vary).encode()
    yield b"Accept-Ranges", b"bytes"


def whole_length(ready: Representation) -> int:
    """Return the length of the representation; a streamed, decoded one is read once to find it."""
    if ready.length == UNKNOWN_LENGTH:
        ready.length = sum(map(len, ready.pieces()))
    return ready.length
