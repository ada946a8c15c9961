"""Turns a stored copy into an answer: the status, the fields and the body, which stay the same until the next copy.

A copy has up to four representations, each with its own entity tag:

    as stored    the client accepts its content coding, or it has none     "<digest>"
    compressed   it has none, and the client accepts gzip                  "<digest>-z"
    decoded      the client does not accept its coding, or requests a range  "<digest>-d"
    rewritten    links point to /page                                      "<digest>-r"

A copy whose server said nothing about caching gets `Cache-Control: no-cache`. Without this field, a cache would
derive a lifetime from Last-Modified (RFC 9111, 4.2.2). For a copy of last year, this lifetime would be several
weeks or more.

A `Representation` holds the header fields that are the same in every reply. Once the body is needed, the
`Representation` also holds the body if it is short. A `Representation` may be cached and sent again. The age,
the probability that the copy is fresh and the date are added each time a `Representation` is sent.
"""

from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

from crawler.content_codings import can_decode
from crawler.pages.stored_bodies import decoded
from crawler.records import REDIRECT_STATUSES, Capture
from crawler.serve import header_fields, memento
from crawler.serve.dates import dates_of
from crawler.serve.disk_cache import KeptBody
from crawler.serve.http_error import HttpError
from crawler.serve.stored_copies import OpenedCopy, Pieces, StoredParts
from crawler.serve.stored_head import PassedLines, passed_lines
from crawler.urls.canonical import resolve
from crawler.urls.media_type import field_text

# (content, values of Content-Type, URL, Refresh) -> rewritten content; None if content of this type is not rewritten
Rewriter = Callable[[bytes, Sequence[bytes], str, bytes], bytes | None]

_BODILESS = (204, 205, 304)
_SANDBOX, _SANDBOX_REWRITTEN = map(
    header_fields.lines, (header_fields.SANDBOX, header_fields.SANDBOX_REWRITTEN)
)
_WORTH_GZIP = 0.9  # a body is sent compressed only if this makes it shorter than this fraction of its length
_FRAGMENT = "!$%&'()*+,-./:;=?@_~"  # characters that need no escape in a fragment (RFC 3986, 3.5)
UNKNOWN_LENGTH = -1
# number of bytes that a cached answer uses apart from its head and body: key, request, page record, structs
_OBJECTS = 2048


class CopyForm(msgspec.Struct, frozen=True, cache_hash=True):
    """The form in which a client wants a copy: all parts of the request, except the URL, that influence the answer.

    `base` is the scheme and authority with which the client addressed this server. `taken` holds the content
    codings that the client can decode. `at` is the time for which the client wants the copy; None means now.
    With `rewrite`, links lead to /page. With `static`, the client gets the answer of the site's server, even
    if the crawler stored what a browser made of it. With `proxied`, the client uses this server as a proxy,
    so Accept-Datetime selects the copy.
    """

    base: str
    taken: frozenset[bytes]
    at: float | None = None
    rewrite: bool = False
    static: bool = False
    proxied: bool = False


class Representation(msgspec.Struct):
    """A representation. `length` is UNKNOWN_LENGTH if the body must be decoded and has not been read yet.

    `body` is read when it is needed (`held`), and stays None if it is too long for memory.
    `stored` is the source of `pieces` if they can be read again at any time. `kept` is the place of the body in
    the cache on disk, if the body takes time to decode.
    """

    status: int
    etag: str
    modified: str
    length: int
    pieces: Pieces
    held_max: int
    stored: StoredParts | None = None
    kept: KeptBody | None = None
    too_long: bool = False  # the body is too long to be held in memory
    body: bytes | None = None
    head: bytes = b""  # the status line and the fields, ready to send
    fields_at: int = 0  # the offset in `head` at which the fields begin
    # the offset of the fields that do not describe the body; an answer with the status 304 has these fields,
    # too
    lasting_at: int = 0

    @property
    def size(self) -> int:
        """The number of bytes of memory that this representation uses in a cache."""
        return len(self.body or b"") + len(self.head) + _OBJECTS

    def held(self) -> bytes | None:
        """Return the body; None if it is longer than `held_max`."""
        if self.body is None and self.length <= self.held_max and not self.too_long:
            self._read()
        return self.body

    def span(self, first: int, end: int) -> bytes | None:
        """Return the bytes `first` <= position < `end`; None if they do not fit in memory.

        Bytes of a stored body are taken from memory or from the cache on disk. If they are in neither of the
        two, the body is inflated: completely if the cache on disk is to store it, otherwise only up to `end`.
        """
        stored = self.stored
        if self.body is None and stored is not None and self.pieces == stored.payload:
            if end > self.held_max:
                return None
            body = self._kept_payload(stored)
            return stored.start(end)[first:] if body is None else body[first:end]
        body = self.held()
        return None if body is None else body[first:end]

    def _kept_payload(self, stored: StoredParts) -> bytes | None:
        """Return the payload if the cache on disk has it, or if it is to be stored there; otherwise, return None."""
        kept = self.kept
        if kept is None:
            return None
        body = kept.read()
        if body is None and self.length <= self.held_max and kept.wanted(self.length):
            body = stored.start(self.length)
            kept.write(body)
        return body

    def prepare(self) -> None:
        """Put a body that takes time to decode into the cache on disk, if the cache has room."""
        kept = self.kept
        if kept is not None and not kept.is_stored and kept.has_room:
            self.held()

    def _read(self) -> None:
        if self.kept is not None and (body := self.kept.read()) is not None:
            self.body, self.length = body, len(body)
            return
        held: list[bytes] = []
        size = 0
        for piece in self.pieces():
            held.append(piece)
            size += len(piece)
            if size > self.held_max:
                self.too_long = True
                return
        self.body, self.length = held[0] if len(held) == 1 else b"".join(held), size
        if self.kept is not None and self.kept.wanted(size):
            self.kept.write(self.body)
        if self.stored is not None:
            self.stored.release()
        else:
            body = self.body
            # the previous function is dropped, because it refers to data that is no longer needed
            self.pieces = lambda: iter((body,))


def represent(
    copy: OpenedCopy, capture: Capture, form: CopyForm, *, held_max: int, rewriter: Rewriter | None = None
) -> Representation:
    """Return the representation of a copy in a form; `rewriter` rewrites links if the form requires that.

    Raises:
        HttpError: 502, the stored status cannot be sent.
    """
    status = copy.head.status
    if not 200 <= status <= 599 or status in (206, 304):
        raise HttpError(502, "failed", f"the stored answer has status {status}, which cannot be served")
    passed = passed_lines(copy.head.fields)
    digest, dates = _digest(capture), dates_of(int(capture.fetched_at))
    ready = Representation(status, digest, dates.http, copy.length, copy.pieces, held_max, copy.parts)
    if status in _BODILESS:
        ready.length, ready.pieces, ready.stored = 0, lambda: iter(()), None
    coding, vary = b"", b"Vary: Accept-Datetime\r\n" if form.proxied else b""
    sandbox = _SANDBOX
    rewrites = form.rewrite and rewriter is not None
    if passed.codings or copy.parts is not None:
        coding = _choose_coding(ready, copy, passed, form, rewrites=rewrites)
        vary = b"Vary: Accept-Datetime, Accept-Encoding\r\n" if form.proxied else b"Vary: Accept-Encoding\r\n"
    note = b""
    if rewrites and rewriter is not None:
        sandbox = _SANDBOX_REWRITTEN
        note = _rewrite(ready, rewriter, passed, capture.url)
    ready.etag = f'"{ready.etag}"'
    line = header_fields.head(status, copy.head.reason, ())
    ready.fields_at = len(line)
    ready.lasting_at = len(line) + len(passed.of_body) + len(coding)
    links = memento.link_field(form.base, capture.url, capture.fetched_at).encode("latin-1", "replace")
    location = _location(copy, capture.url, form) if status in REDIRECT_STATUSES else b""
    ready.head = b"".join(
        (
            line,
            passed.of_body,
            coding,
            passed.lasting,
            note,
            b"" if passed.has_lifetime else b"Cache-Control: no-cache\r\n",
            b"ETag: %b\r\nLast-Modified: %b\r\nMemento-Datetime: %b\r\nX-Crawled-At: %b\r\nLink: %b\r\n"
            % (ready.etag.encode(), dates.field, dates.field, dates.rfc3339, links),
            vary,
            b"Accept-Ranges: bytes\r\n",
            sandbox,
            location,
        )
    )
    return ready


def represent_view(picture: bytes, capture: Capture) -> Representation:
    """Return the representation of the picture that a browser took of a copy."""
    etag, dates = f'"{capture.segment}-{capture.offset}-v"', dates_of(int(capture.fetched_at))
    line = header_fields.head(200, "OK", ())
    ready = Representation(
        200, etag, dates.http, len(picture), lambda: iter((picture,)), len(picture), body=picture
    )
    of_body = b"Content-Type: image/png\r\n"
    ready.fields_at, ready.lasting_at = len(line), len(line) + len(of_body)
    ready.head = b"%b%bCache-Control: no-cache\r\nETag: %b\r\nLast-Modified: %b\r\nX-Crawled-At: %b\r\n%b%b" % (
        line, of_body, etag.encode(), dates.field, dates.rfc3339, b"Accept-Ranges: bytes\r\n", _SANDBOX,
    )  # fmt: skip
    return ready


def _choose_coding(
    ready: Representation, copy: OpenedCopy, passed: PassedLines, form: CopyForm, *, rewrites: bool
) -> bytes:
    """Choose the content coding of the body for the client. Return the Content-Encoding line, or b"" if there is none."""
    codings = passed.codings
    if codings:
        if (form.taken.issuperset(codings) and not rewrites) or not can_decode(codings):
            return b"Content-Encoding: %b\r\n" % b", ".join(codings)
        pieces, length = copy.pieces, copy.length
        ready.pieces = lambda: decoded(pieces(), codings, length)
        ready.kept = copy.parts.kept(codings) if copy.parts is not None else None
        ready.length = UNKNOWN_LENGTH if ready.status not in _BODILESS else 0
        ready.etag += "-d"
        return b""
    parts = copy.parts
    if parts is None or ready.length == 0:
        return b""
    if not rewrites and b"gzip" in form.taken and parts.gzip_length <= ready.length * _WORTH_GZIP:
        ready.pieces, ready.length = parts.gzip, parts.gzip_length
        ready.etag += "-z"
        return b"Content-Encoding: gzip\r\n"
    ready.kept = parts.kept()
    return b""


def _digest(capture: Capture) -> str:
    if capture.dom_length:  # the DOM may differ although the answer of the server is the same
        return f"{capture.segment}-{capture.offset}"
    return capture.digest.hex() or f"{capture.segment}-{capture.offset}"


def _rewrite(ready: Representation, rewriter: Rewriter, passed: PassedLines, url: str) -> bytes:
    """Point links into the cache. A page that is too long for memory stays unchanged; the returned note says so."""
    body = ready.held()
    if body is None:
        return b"X-Rewritten: no: the page is too long\r\n"
    content = rewriter(body, passed.kinds, url, passed.refresh)
    if content is not None:
        ready.body, ready.length = content, len(content)
        ready.pieces, ready.stored = lambda: iter((content,)), None
        ready.etag = ready.etag.removesuffix("-d") + "-r"
    return b""


def _location(copy: OpenedCopy, url: str, form: CopyForm) -> bytes:
    """Return the Location line that leads from a stored redirect of `url` to its target; b"" if it has none."""
    raw, mark, fragment = field_text(passed_lines(copy.head.fields).location).partition("#")
    target = resolve(url, raw) if raw or mark else None
    if target is None:
        return b""
    if not form.proxied:
        target = memento.page_path(target, form.at, rewrite=form.rewrite)
    return b"Location: %b\r\n" % (target + mark + quote(fragment, safe=_FRAGMENT)).encode()


def whole_length(ready: Representation) -> int:
    """Return the length of the representation. A body that must be decoded is read once to find its length."""
    if ready.length == UNKNOWN_LENGTH and ready.held() is None:
        ready.length = sum(map(len, ready.pieces()))
    return ready.length
