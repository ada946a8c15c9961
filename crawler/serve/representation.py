"""Turns a stored copy into an answer: status, fields and body, as far as they are constant until the next copy.

A copy has up to three representations, each with its own entity tag:

    as stored    the client accepts its content coding, or it has none     "<digest>"
    decoded      the client does not, or requests a range                  "<digest>-d"
    rewritten    links point to /page                                      "<digest>-r"

A `Representation` holds the constant fields, and the body if it is short; it may be
cached and sent again. Age, P(fresh) and date are added on sending.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from crawler.records import Capture
from crawler.serve import header_fields, memento
from crawler.serve.header_fields import Field
from crawler.serve.http_error import HttpError
from crawler.serve.stored_bodies import Copy, Pieces, can_decode, decoded

Rewriter = Callable[
    [bytes, bytes, str], bytes | None
]  # (content, Content-Type, URL) -> rewritten content; None = this type is not rewritten

_BODILESS = (204, 205, 304)
_REDIRECTS = (301, 302, 303, 307, 308)
UNKNOWN_LENGTH = -1


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
    size: int = 0  # memory that caching it takes, in bytes


def represent(
    copy: Copy,
    capture: Capture,
    *,
    base: str,
    url: str,
    taken: frozenset[bytes],
    held_max: int,
    rewriter: Rewriter | None = None,
    negotiated: bool = False,
) -> Representation:
    """Return the representation of a copy for a client that accepts the content codings `taken`.

    `base` is the scheme and authority of this server. With `rewriter` the links of a page point into the
    cache; `negotiated` means that Accept-Datetime chose the copy.

    Raises:
        HttpError: 502, the stored status cannot be sent.
    """
    if not 200 <= copy.status <= 599 or copy.status in (206, 304):
        raise HttpError(502, "failed", f"the stored answer has status {copy.status}, which cannot be served")
    codings = copy.codings
    passed = header_fields.passed_on(copy.headers)
    ready = Representation(
        copy.status, copy.reason, passed, _digest(capture), "", copy.length, None, copy.pieces
    )
    passes = taken.issuperset(codings) and rewriter is None
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
        _rewrite(ready, rewriter, kind, url)
    ready.etag = f'"{ready.etag}"'
    ready.modified = header_fields.http_date(int(capture.fetched_at))
    vary = ["Accept-Datetime"] * negotiated + ["Accept-Encoding"] * bool(codings)
    passed += _own_fields(ready, capture, base, url, vary)
    passed += sandbox
    location = header_fields.first(copy.headers, b"location")
    if (
        location
        and copy.status in _REDIRECTS
        and rewriter is None
        and not header_fields.BAD_VALUE.search(location)
    ):
        passed.append((b"Location", location))
    ready.head = header_fields.head(ready.status, ready.reason, passed)
    ready.size = len(ready.body or b"") + 2 * len(ready.head) + 1024
    return ready


def _digest(capture: Capture) -> str:
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


def _own_fields(
    ready: Representation, capture: Capture, base: str, url: str, vary: Sequence[str]
) -> Iterator[Field]:
    yield b"ETag", ready.etag.encode()
    yield b"Last-Modified", ready.modified.encode()
    yield b"Memento-Datetime", ready.modified.encode()
    yield b"X-Crawled-At", rfc3339(capture.fetched_at)
    yield b"Link", memento.link_field(base, url, capture.fetched_at).encode("latin-1", "replace")
    if vary:
        yield b"Vary", ", ".join(vary).encode()
    yield b"Accept-Ranges", b"bytes"


def rfc3339(instant: float) -> bytes:
    """Format an instant in UTC, to the second."""
    stamp = memento.stamp(instant)
    date = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
    return f"{date}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}Z".encode()


def whole_length(ready: Representation) -> int:
    """Return the length of the representation; a streamed, decoded one is read once to find it."""
    if ready.length == UNKNOWN_LENGTH:
        ready.length = sum(map(len, ready.pieces()))
    return ready.length
