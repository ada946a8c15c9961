"""Reads HTTP/1 messages (RFC 9112): the header block, the end of the body, and chunks.

Many servers do not follow the standard exactly, so the parser is lenient. Still, each message needs a definite
end (`fetcher/README.md`, "Message framing").

aiohttp's parser (llhttp) rejects eight of the forms that are accepted here, cannot bound the size of the
whole header block, and loses an answer when other bytes follow the answer in the same read. aiohttp's parser
also takes 9.5 us per header block, and the parser of this module takes 3 us.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from crawler.errors import CrawlerError
from crawler.records import Outcome, values_by_name
from crawler.urls.media_type import media_type

_STATUS_LINE = re.compile(rb"HTTP/(\d)(?:\.(\d))?[ \t]+([^ \t\n]*)[ \t]*([^\n]*)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_CHUNK_LINE_MAX = 16 << 10  # maximum length in bytes of a chunk size with its extensions
_TRAILER_MAX = 64 << 10

# Matches a line that is a field with a value, and has no blanks before the colon or at the end.
_PLAIN_FIELD = re.compile(rb"\n([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\n]*[^ \t\n])(?=\n|\Z)")
_BLANKS = (b" ", b"\t", b"")

HEAD_END = re.compile(rb"\n\r?\n")


class BadAnswer(CrawlerError):
    """The answer is not valid HTTP, even for a lenient parser; `outcome` is the outcome of its fetch."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Body(Enum):
    """The ways in which the end of a body is marked."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class Head(NamedTuple):
    """A parsed header block.

    `fields` are in the order in which they were received. Folded lines are joined. `known` maps lower-case
    names to values; the values of a repeated field are joined by LF, which no value contains. `block` holds
    the bytes of the header block.
    """

    version: str
    status: int
    reason: str
    fields: tuple[tuple[bytes, bytes], ...]
    known: dict[bytes, bytes]
    block: bytes = b""

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of the field `name` (lower case), in order."""
        joined = self.known.get(name)
        return joined.split(b"\n") if joined is not None else []

    def tokens(self, name: bytes) -> list[bytes]:
        """Return the elements of a comma-separated field, in lower case, from all fields of this name."""
        joined = self.known.get(name)
        if not joined:
            return []
        elements = joined.lower().replace(b"\n", b",").split(b",")
        return [stripped for element in elements if (stripped := element.strip(b" \t"))]

    def transfer_coding(self) -> bytes:
        """Return the transfer coding of the payload, in lower case; b"" if there is none but `chunked`, or several."""
        if b"transfer-encoding" not in self.known:
            return b""
        codings = [
            name for name in self.tokens(b"transfer-encoding") if name not in (b"chunked", b"identity")
        ]
        return codings[0] if len(codings) == 1 else b""

    def media_type(self) -> tuple[str, str]:
        """Return the type (in lower case) and the charset in the last usable Content-Type, as browsers do; "" if none."""
        return media_type(self.values(b"content-type"))


def parse_head(block: bytes, *, fields_max: int, field_bytes_max: int) -> Head:
    """Parse the header block in `block`, which includes the empty line at its end.

    Raises:
        BadAnswer: its outcome is FRAMING if there is no status line, BAD_STATUS if the status code is not a
            number from 100 to 599, and HEADER_TOO_LARGE if a limit is exceeded.
    """
    text = block.replace(b"\r\n", b"\n").strip(b"\n")
    if b"\r" in text or b"\0" in text:
        text = text.replace(b"\r", b" ").replace(b"\0", b" ")  # RFC 9110 5.5
    count = text.count(b"\n")
    version, status, reason = _status_line(text.partition(b"\n")[0])
    if count > fields_max:
        raise BadAnswer(Outcome.HEADER_TOO_LARGE, f"more than {fields_max} header fields")
    if len(block) > field_bytes_max and any(len(line) > field_bytes_max for line in text.split(b"\n")):
        raise BadAnswer(Outcome.HEADER_TOO_LARGE, f"a header field of more than {field_bytes_max} bytes")
    fields = _PLAIN_FIELD.findall(text)
    if len(fields) != count:
        fields = _fields(text.split(b"\n"))
    return head_of(tuple(fields), version=version, status=status, reason=reason, block=block)


def head_of(
    fields: tuple[tuple[bytes, bytes], ...], *, version: str, status: int, reason: str, block: bytes = b""
) -> Head:
    """Make a header block from its parts."""
    return Head(version, status, reason, fields, values_by_name(fields), block)


@lru_cache(maxsize=256)
def _status_line(line: bytes) -> tuple[str, int, str]:
    match = _STATUS_LINE.match(line)
    if match is None:
        raise BadAnswer(Outcome.FRAMING, f"no status line: {line[:60]!r}")
    major, minor, code, reason = match.groups()
    if not code.isdigit() or len(code) != 3 or not 100 <= int(code) <= 599:
        raise BadAnswer(Outcome.BAD_STATUS, f"status {code[:20]!r}")
    version = f"HTTP/{major.decode()}.{minor.decode()}" if minor is not None else f"HTTP/{major.decode()}"
    return version, int(code), reason.strip(b" \t\r").decode("latin-1")


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    fields: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if line[:1] in _BLANKS:
            if fields and line:  # a continuation line: obsolete folding (RFC 9112 5.2)
                folded_name, folded = fields[-1]
                fields[-1] = (folded_name, (folded + b" " + line.strip(b" \t")).strip(b" "))
        elif colon and name:
            fields.append((name.rstrip(b" \t"), value.strip(b" \t")))
    return fields


def body_of(head: Head) -> tuple[Body, int]:
    """Return how the body of an answer to a GET ends, and its length if the answer states one (RFC 9112 6.3).

    Raises:
        BadAnswer: the lengths contradict each other or are not numbers (outcome FRAMING).
    """
    if head.status < 200 or head.status in (204, 304):
        return Body.NONE, 0
    if b"transfer-encoding" in head.known:
        codings = [coding for coding in head.tokens(b"transfer-encoding") if coding != b"identity"]
        if codings:
            return (Body.CHUNKED, 0) if codings[-1] == b"chunked" else (Body.CLOSE, 0)
    only = head.known.get(b"content-length")
    if only is None:
        return Body.CLOSE, 0
    if _LENGTH.fullmatch(only):
        return (Body.LENGTH, int(only)) if int(only) else (Body.NONE, 0)
    lengths = {
        element.strip(b" \t") for value in head.values(b"content-length") for element in value.split(b",")
    }
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise BadAnswer(Outcome.FRAMING, f"bad Content-Length {head.known[b'content-length'][:60]!r}")
    return (Body.LENGTH, int(length)) if int(length) else (Body.NONE, 0)


def keeps_alive(head: Head) -> bool:
    """Return whether the server keeps the connection open after this answer (RFC 9112 9.3)."""
    options = head.tokens(b"connection")
    if head.version == "HTTP/1.1":
        return b"close" not in options and not (
            b"transfer-encoding" in head.known and b"content-length" in head.known
        )
    return head.version == "HTTP/1.0" and b"keep-alive" in options and b"transfer-encoding" not in head.known


# Maps the size lines of small chunks, in their plainest forms, to the sizes.
_SIZES = {text % size: size for size in range(1, 4096) for text in (b"%x", b"%X")}


class ChunkDecoder:
    """Decodes the chunked transfer coding (RFC 9112 7.1) from pieces of any size.

    `done` is set at the end of the trailers; `rest` holds the bytes after the trailers.
    Extensions and trailers are skipped, within bounds; lines may end with
    a bare LF. `chunks` is the number of chunks that have begun.
    """

    __slots__ = ("_left", "_line", "_state", "_trailer_bytes", "chunks", "done", "rest")

    def __init__(self) -> None:
        self._state = "size"
        self._line = b""
        self._left = 0
        self._trailer_bytes = 0
        self.chunks = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payload of `data`.

        Raises:
            BadAnswer: a chunk size is bad, the line end after a chunk is missing, or a line or the trailers
                are too long (outcome FRAMING).
        """
        pieces: list[bytes] = []
        position = 0
        while position < len(data) and not self.done:
            if self._state == "size" and not self._line:
                position = self._take_plain(data, position, pieces)
                if position == len(data):
                    break
            if self._state == "payload":
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = "end"
                continue
            end = data.find(b"\n", position)
            if end < 0:
                self._keep(data[position:])
                return pieces
            self._keep(data[position:end])
            line, self._line = self._line.rstrip(b"\r"), b""
            position = end + 1
            self._take_line(line)
        self.rest = data[position:]
        return pieces

    def _take_plain(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        """Decode complete chunks in their plainest form, ten times as fast as other chunks; return the next position."""
        find, size_of, begun = data.find, _SIZES.get, len(pieces)
        while (end := find(b"\r\n", position, position + 6)) > 0 and (size := size_of(data[position:end])):
            behind = end + 2 + size
            if data[behind : behind + 2] != b"\r\n":
                break
            pieces.append(data[end + 2 : behind])
            position = behind + 2
        self.chunks += len(pieces) - begun
        return position

    def _keep(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > _CHUNK_LINE_MAX or (self._state == "end" and self._line.strip(b"\r")):
            raise BadAnswer(Outcome.FRAMING, f"bad chunk: {self._line[:60]!r}")

    def _take_line(self, line: bytes) -> None:
        if self._state == "size":
            size = line.partition(b";")[0].strip(b" \t")
            if not _CHUNK_SIZE.fullmatch(size):
                raise BadAnswer(Outcome.FRAMING, f"bad chunk size: {line[:60]!r}")
            self._left = int(size, 16)
            self.chunks += 1
            self._state = "payload" if self._left else "trailer"
        elif self._state == "end":
            self._state = "size"
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _TRAILER_MAX:
                raise BadAnswer(Outcome.FRAMING, "trailers too long")
            self.done = not line
