"""Parses requests from arriving bytes, within limits and without I/O.

The parser is llhttp (used through `httptools`, as in uvicorn). llhttp is strict about line ends, lengths and
codings, so that no two readers can see different requests. This module adds the limits that llhttp lacks: on
the bytes and the fields of a header, and on bytes between two requests. If the input exceeds a limit or is
not HTTP, an `HttpError` is noted, and nothing more is read.

    feed(bytes) -> the requests whose headers these bytes complete; later calls extend their bodies
"""

import re

import httptools
from multidict import CIMultiDict

from crawler.serve.http_error import HttpError

FIELDS_MAX = 128
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"  # RFC 9110, 5.6.2
_BEGUN = re.compile(rb"(?:\r\n)*" + _TOKEN)  # no byte has followed the token yet
_METHOD = re.compile(rb"(?:\r\n)*" + _TOKEN + rb" ")
_LATER_LINE = re.compile(rb"\n" + _TOKEN + rb" [^ \r\n]+ HTTP/1\.[01]\r\n")
_LINE_BYTES = 128  # number of bytes at the start of a request that tell whether it has a method
# beginnings of llhttp's messages about a method that it does not know
_INVALID_METHOD = ("Invalid method", "Expected space after method")


class ServedRequest:
    """A received request. The body of the request grows until `complete` or `broken` is set.

    `held` is the number of bytes of the body that are not taken yet. `raw` holds all bytes of the request if
    they arrived in one piece and without a body, else b"".

    """

    __slots__ = (
        "_parts",
        "broken",
        "complete",
        "headers",
        "held",
        "keep_alive",
        "method",
        "raw",
        "raw_path",
        "version",
    )

    def __init__(
        self,
        method: str,
        raw_path: str,
        version: tuple[int, int] = (1, 1),
        headers: CIMultiDict[str] | None = None,
        *,
        keep_alive: bool = True,
    ) -> None:
        self.method, self.raw_path, self.version = method, raw_path, version
        self.headers: CIMultiDict[str] = CIMultiDict() if headers is None else headers
        self.keep_alive = keep_alive
        self.complete = self.broken = False
        self.held = 0
        self.raw = b""
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        """Append a piece of the body."""
        self._parts.append(part)
        self.held += len(part)

    def take(self) -> list[bytes]:
        """Return the pieces of the body that have arrived since the last call."""
        parts, self._parts, self.held = self._parts, [], 0
        return parts


class RequestReader:
    """Reads the requests of one connection; `refusal` is set once nothing more can be read."""

    def __init__(self, header_bytes_max: int) -> None:
        self.refusal: HttpError | None = None
        # True once the client has switched to another protocol; from then on, its bytes are not read
        self.ended = False
        self._header_bytes_max = header_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._begun: list[ServedRequest] = []
        self._current: ServedRequest | None = None  # the request whose body is arriving
        self._fields: CIMultiDict[str] = CIMultiDict()
        self._url = b""
        self._count = 0
        self._size = 0  # number of bytes in the fields of the header that is arriving
        # number of bytes, outside of bodies, that have arrived since the last complete header
        self._loose = 0
        self._line = b""  # the first of these bytes
        self._body_bytes = 0  # number of bytes of bodies in the bytes that were added last
        self._unjudged = b""  # the first bytes of a request that do not show yet whether it has a method

    @property
    def at_rest(self) -> bool:
        """True if all received bytes belong to complete requests, so that the next byte begins a new one."""
        return self._current is None and not (self._loose or self._unjudged or self.refusal or self.ended)

    @property
    def busy(self) -> bool:
        """True while the body of a request is still arriving."""
        return self._current is not None

    def feed(self, data: bytes) -> list[ServedRequest]:
        """Add `data`, and return, in order, the requests whose headers are now complete."""
        if self.refusal is not None or self.ended:
            return []
        if self._unjudged:
            self._judge_method(self._unjudged + data)
            return []
        rested, arriving = self.at_rest, self._current
        in_body = arriving is not None
        self._begun, self._body_bytes = [], 0
        try:
            self._parser.feed_data(data)
        # no other protocol is supported, so an Upgrade field in the request is ignored
        except httptools.HttpParserUpgrade:
            self.ended = True
        except httptools.HttpParserError as error:
            if not str(error).startswith(_INVALID_METHOD):
                self._refuse_bytes()
            elif not in_body and not self._begun:
                self._judge_method(self._line + data)
            elif arriving is not None and not self._begun and "Transfer-Encoding" not in arriving.headers:
                self._judge_method(data[self._body_bytes :])
            # the line of the first request is at the start of the bytes, or has arrived earlier
            elif len(_LATER_LINE.findall(data)) > max(0, len(self._begun) - 1):
                self._refuse_bytes(has_method=True)
            else:  # behind other requests, the method may be cut off at the end of the bytes
                self._judge_method(data[data.rfind(b"\n") + 1 :])
        begun, self._begun = [each for each in self._begun if not each.broken], []
        if begun:
            self._loose, self._line = 0, b""
            if rested and len(begun) == 1 and begun[0].complete and data.find(b"\r\n\r\n") == len(data) - 4:
                begun[0].raw = data
        elif not in_body:
            self._loose += len(data)
            self._line = (self._line + data)[:_LINE_BYTES]
            if self._loose > self._header_bytes_max:
                self._refuse(431, "the header is too long")
        for request in begun[-1:]:
            request.keep_alive = request.keep_alive and not self.ended
        return begun

    def end(self) -> None:
        """Take note that no more bytes will arrive. Mark a body that is still incomplete as broken."""
        self.ended = True
        if self._current is not None:
            self._current.broken = True

    def _judge_method(self, start: bytes) -> None:
        """Refuse a request that llhttp rejected at its method, once its first bytes show whether it has one."""
        start = start[:_LINE_BYTES]
        self._unjudged = start if _BEGUN.fullmatch(start) else b""
        if not self._unjudged:
            self._refuse_bytes(has_method=_METHOD.match(start) is not None)

    def _refuse_bytes(self, *, has_method: bool = False) -> None:
        if has_method:  # RFC 9110, 15.6.2; a known method that the path does not have gets 405
            self._refuse(501, "this server does not know the method of the request")
        else:
            self._refuse(400, "this is not an HTTP request")

    def _refuse(self, status: int, why: str) -> None:
        self.refusal = self.refusal or HttpError(status, "bad_request", why)
        if self._current is not None:
            self._current.broken = True

    # -- callbacks of the parser

    def on_message_begin(self) -> None:
        self._fields, self._url = CIMultiDict(), b""
        self._count = self._size = 0

    def on_url(self, part: bytes) -> None:
        self._grow(len(part))
        if self.refusal is None:
            self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._grow(len(name) + len(value) + 4)
        if self._count > FIELDS_MAX:
            self._refuse(431, f"a header may have at most {FIELDS_MAX} fields")
        # fields after a body are trailers, which are ignored
        if self.refusal is None and self._current is None:
            self._fields.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def _grow(self, nbytes: int) -> None:
        self._size += nbytes
        if self._size > self._header_bytes_max:
            self._refuse(431, "the header is too long")

    def on_headers_complete(self) -> None:
        parser, (major, _, minor) = self._parser, self._parser.get_http_version().partition(".")
        version = int(major), int(minor)
        if version not in ((1, 0), (1, 1)):
            self._refuse(400, "only HTTP/1.0 and HTTP/1.1 are supported")
        self._current = ServedRequest(
            parser.get_method().decode("latin-1"),
            self._url.decode("utf-8", "surrogateescape"),
            version,
            self._fields,
            keep_alive=parser.should_keep_alive(),
        )
        if self.refusal is None:
            self._begun.append(self._current)

    def on_body(self, part: bytes) -> None:
        self._body_bytes += len(part)
        if self._current is not None and self.refusal is None:
            self._current.add(part)

    def on_message_complete(self) -> None:
        if self._current is not None:
            self._current.complete = True
            self._current = None
