"""Requests out of arriving bytes, within limits; no I/O.

llhttp parses (`httptools`, as in uvicorn): strict about line ends, lengths and codings,
so no two readers see two requests. Here are the limits that it has not: bytes and
number of header fields, bytes that belong to no request. What breaks them, and what is
no HTTP, is a `HttpError` after which nothing more is read.

    feed(bytes) -> the requests whose headers came whole with them; their bodies grow with the next
"""

import httptools
from multidict import CIMultiDict

from crawler.serve.http_error import HttpError

FIELDS_MAX = 128


class ServedRequest:
    """A request as it came. Its body grows until it is `complete`, or `broken`; `held` bytes of it wait to be taken.

    `raw` holds all its bytes if they came in one piece and without a body, else b"".
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
        """Take a piece of the body."""
        self._parts.append(part)
        self.held += len(part)

    def take(self) -> list[bytes]:
        """The pieces that have come since the last call."""
        parts, self._parts, self.held = self._parts, [], 0
        return parts


class RequestReader:
    """Reads the requests of one connection; `refusal` is set once no more can be read."""

    def __init__(self, header_bytes_max: int) -> None:
        self.refusal: HttpError | None = None
        self.ended = False  # what follows is another protocol, and is not read
        self._header_bytes_max = header_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._begun: list[ServedRequest] = []
        self._current: ServedRequest | None = None  # whose body is coming
        self._fields: CIMultiDict[str] = CIMultiDict()
        self._url = b""
        self._count = 0
        self._size = 0  # of the header that is coming
        self._loose = 0  # bytes of it, or of what came before it

    @property
    def at_rest(self) -> bool:
        """Whether all that came belongs to whole requests: the next byte begins one."""
        return self._current is None and not self._loose and self.refusal is None and not self.ended

    @property
    def busy(self) -> bool:
        """Whether the body of a request is still coming."""
        return self._current is not None

    def feed(self, data: bytes) -> list[ServedRequest]:
        """The requests that `data` completes the headers of, in their order."""
        if self.refusal is not None or self.ended:
            return []
        rested, in_body = self.at_rest, self._current is not None
        self._begun = []
        try:
            self._parser.feed_data(data)
        except (
            httptools.HttpParserUpgrade
        ):  # we speak nothing else: the request is answered as if it had not asked
            self.ended = True
        except httptools.HttpParserError:
            self._refuse(400, "this is no HTTP request")
        begun, self._begun = [each for each in self._begun if not each.broken], []
        if begun:
            self._loose = 0
            if rested and len(begun) == 1 and begun[0].complete and data.find(b"\r\n\r\n") == len(data) - 4:
                begun[0].raw = data
        elif not in_body:
            self._loose += len(data)
            if self._loose > self._header_bytes_max:
                self._refuse(431, "the header is too long")
        for request in begun[-1:]:
            request.keep_alive = request.keep_alive and not self.ended
        return begun

    def end(self) -> None:
        """No more bytes come: a body that is not whole never will be."""
        self.ended = True
        if self._current is not None:
            self._current.broken = True

    def _refuse(self, status: int, why: str) -> None:
        self.refusal = self.refusal or HttpError(status, "bad_request", why)
        if self._current is not None:
            self._current.broken = True

    # -- what the parser calls

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
            self._refuse(431, f"a header has at most {FIELDS_MAX} fields")
        if (
            self.refusal is None and self._current is None
        ):  # behind a body they are trailers, which nobody reads
            self._fields.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def _grow(self, nbytes: int) -> None:
        self._size += nbytes
        if self._size > self._header_bytes_max:
            self._refuse(431, "the header is too long")

    def on_headers_complete(self) -> None:
        parser, (major, _, minor) = self._parser, self._parser.get_http_version().partition(".")
        version = int(major), int(minor)
        if version not in ((1, 0), (1, 1)):
            self._refuse(400, "only HTTP/1.0 and HTTP/1.1 are spoken here")
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
        if self._current is not None and self.refusal is None:
            self._current.add(part)

    def on_message_complete(self) -> None:
        if self._current is not None:
            self._current.complete = True
            self._current = None
