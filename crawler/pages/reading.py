"""Reads WARC records that were written by this crawler or by other programs.

    bytes --expand--> record --parse_record--> fields, block
          block --parse_http--> status, headers, payload --decode_payload--> content

In records of other programs, the WARC version may be 1.0, lines may end in bare line feeds, and blocks may
have transfer codings. If data cannot be read, a DamageError states its position. Sizes are bounded by the
caller's `bytes_max`, regardless of length fields and compressed streams.
"""

import base64
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
from isal import igzip_lib, isal_zlib

from crawler import content_codings
from crawler.errors import DamageError

RECORD_BYTES_MAX = 256 << 20  # maximum length of an uncompressed record, far above the limits on bodies
_CONTENT_BYTES, _EXPANSION_MAX = 16 << 20, 100  # see `content_max`
_HEAD_BYTES_MAX = 1 << 20
WHOLE_BYTES_MAX = 16 << 20  # bytes; a longer block is checked piece by piece
_CHUNK_BYTES = 256 << 10
_READ_BYTES, _STEP_BYTES = 1 << 20, 16 << 10
_GZIP = 31
_SHA1_LETTERS = 32  # number of letters for 160 bits in base 32, without padding
# Maps the letters of RFC 4648 to the digits of `int`, and all other bytes to a character that `int` rejects.
_LETTERS, _DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv"
_BASE32_DIGITS = bytes(
    _DIGITS[_LETTERS.index(upper)] if (upper := bytes([byte]).upper()) in _LETTERS else ord("!")
    for byte in range(256)
)
# Matches a header field that `checked` needs. The name of the field may be in any case, with blanks around it.
_CHECKED = re.compile(
    r"\n[^\S\n]*(WARC-(?:Type|Block-Digest|Payload-Digest)|Content-Length)[^\S\n]*:(.*)", re.IGNORECASE
)
# the type stub declares `IsalError` as an instance, not as a class
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]


class Record(msgspec.Struct):
    """One WARC record: its named fields, with names in lower case, and its block."""

    version: str
    fields: dict[str, str]
    block: bytes

    @property
    def kind(self) -> str:
        """The value of WARC-Type, or "" if there is none."""
        return self.fields.get("warc-type", "")


class HttpMessage(msgspec.Struct):
    """An HTTP message as it is stored. The status of a request is 0."""

    status: int
    reason: str
    version: str
    headers: tuple[tuple[bytes, bytes], ...]
    payload: bytes


def expand(data: bytes, *, bytes_max: int = RECORD_BYTES_MAX, where: str = "record") -> bytes:
    """Return the content of exactly one gzip member.

    Raises:
        DamageError: the member is broken, cut short, followed by more data, or larger than `bytes_max`.
    """
    inflater = isal_zlib.decompressobj(_GZIP)
    try:
        content = inflater.decompress(data, bytes_max + 1)
    except _IsalError as error:
        raise DamageError(f"{where}: broken gzip member: {error}") from error
    if len(content) > bytes_max:
        raise DamageError(f"{where}: record is larger than {bytes_max} bytes")
    if not inflater.eof or inflater.unused_data:
        raise DamageError(f"{where}: is not exactly one whole gzip member")
    return content


def expanded(chunks: Iterable[bytes], where: str, piece_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of one gzip member in pieces of at most `piece_bytes`, for content of any size."""
    inflater = isal_zlib.decompressobj(_GZIP)
    try:
        for chunk in chunks:
            yield from _inflated(inflater, chunk, piece_bytes)
    except _IsalError as error:
        raise DamageError(f"{where}: broken gzip member: {error}") from error
    if not inflater.eof:
        raise DamageError(f"{where}: gzip member is cut short")


class Steps:
    """Reads a file once, in small chunks.

    The chunks are small because a decompressor copies all input bytes that follow the gzip member which it
    decodes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._chunk = memoryview(b"")
        self._at = 0
        self._begin = 0  # the offset of the chunk in the file

    @property
    def position(self) -> int:
        """The number of bytes that `take` has returned so far."""
        return self._begin + self._at

    def take(self) -> memoryview:
        """Return the next bytes, or b"" at the end of the file."""
        if self._at == len(self._chunk):
            self._begin += self._at
            self._chunk, self._at = memoryview(self._file.read(_READ_BYTES)), 0
        step = self._chunk[self._at : self._at + _STEP_BYTES]
        self._at += len(step)
        return step

    def give_back(self, count: int) -> None:
        """Make `take` return the last `count` bytes of the latest chunk again."""
        self._at -= count

    def skip(self, count: int) -> None:
        """Pass over the next `count` bytes."""
        begin = self.position + count
        self._file.seek(begin)
        self._chunk, self._at, self._begin = memoryview(b""), 0, begin


def expand_next(steps: Steps, *, bytes_max: int, where: str) -> bytes | None:
    """Return the content of the gzip member that begins here, and move `steps` past it.

    Returns None if the content is larger than `bytes_max`.
    """
    inflater = isal_zlib.decompressobj(_GZIP)
    parts: list[bytes] = []
    room = bytes_max
    try:
        while step := steps.take():
            for part in _inflated(inflater, step):
                room -= len(part)
                if room >= 0:
                    parts.append(part)
                else:
                    parts.clear()
            if inflater.eof:
                steps.give_back(len(inflater.unused_data))
                return None if room < 0 else b"".join(parts)
    except _IsalError as error:
        raise DamageError(f"{where}: broken gzip member: {error}") from error
    raise DamageError(f"{where}: gzip member is cut short")


def member_length(chunks: Iterable[bytes], where: str) -> int:
    """Return the length in bytes of the gzip member at the start of `chunks`."""
    inflater = isal_zlib.decompressobj(_GZIP)
    taken = 0
    try:
        for chunk in chunks:
            taken += len(chunk)
            for _ in _inflated(inflater, chunk):
                pass
            if inflater.eof:
                return taken - len(inflater.unused_data)
    except _IsalError as error:
        raise DamageError(f"{where}: broken gzip member: {error}") from error
    raise DamageError(f"{where}: gzip member is cut short")


def _inflated(inflater: Any, data: bytes | memoryview, piece_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Decompress `data` up to the end of the member, and yield the output in pieces of at most `piece_bytes`."""
    piece = inflater.decompress(data, piece_bytes)
    yield piece
    while not inflater.eof and (inflater.unconsumed_tail or len(piece) == piece_bytes):
        piece = inflater.decompress(inflater.unconsumed_tail, piece_bytes)
        yield piece


def parse_record(data: bytes, where: str = "record") -> Record:
    """Return the one record that `data` holds."""
    head, gap, rest = _split_head(data)
    if not gap:
        raise DamageError(f"{where}: no WARC header")
    version, fields = _parse_fields(head, where)
    length = _content_length(fields, where)
    if len(rest) < length:
        raise DamageError(f"{where}: record has {len(rest)} bytes, but its header says {length}")
    return Record(version, fields, rest[:length])


def _split_head(data: bytes) -> tuple[bytes, bytes, bytes]:
    at, rest = _head_end(data, 0, len(data))
    return data[:at], data[at:rest], data[rest:]


def _head_end(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the start and the end of the first blank line in `data[begin:end]`, or `end` twice if there is none."""
    limit = min(begin + _HEAD_BYTES_MAX, end)
    at, length = data.find(b"\r\n\r\n", begin, limit), 4
    bare = data.find(b"\n\n", begin, at if at >= 0 else limit)
    if bare >= 0:
        at, length = bare, 2
    return (at, at + length) if at >= 0 else (end, end)


def _parse_fields(head: bytes, where: str) -> tuple[str, dict[str, str]]:
    lines = head.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if not lines[0].startswith("WARC/"):
        raise DamageError(f"{where}: not a WARC record")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return lines[0], fields


def _content_length(fields: dict[str, str], where: str) -> int:
    text = fields.get("content-length", "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise DamageError(f"{where}: no Content-Length")
    return int(text)


def parse_http(block: bytes) -> HttpMessage:
    """Parse the HTTP message in a block, and undo its transfer codings.

    Errors of servers are tolerated.
    """
    head, _, payload = _split_head(block)
    lines = head.replace(b"\r\n", b"\n").split(b"\n")
    cut = [line.partition(b":") for line in lines[1:]]
    headers = tuple([(name.strip(), value.strip()) for name, colon, value in cut if colon])
    start = lines[0].decode("latin-1")
    words = start.split(" ", 2)
    is_response = words[0].upper().startswith("HTTP/")
    code = words[1] if is_response and len(words) > 1 else ""
    message = HttpMessage(
        status=int(code) if code.isascii() and code.isdigit() and len(code) <= 3 else 0,
        reason=words[2] if is_response and len(words) > 2 else "",
        version=words[0] if is_response else words[-1],
        headers=headers,
        payload=payload,
    )
    if transferred := codings_of(headers, b"transfer-encoding"):
        if transferred[-1] == b"chunked":
            message.payload = _dechunk(payload)
        message.payload = decode_payload(
            message.payload, [each for each in transferred if each != b"chunked"]
        )
    return message


def _dechunk(payload: bytes) -> bytes:
    """Return the payload without its chunk framing, up to the first error in the framing."""
    parts = []
    at = 0
    while (end := payload.find(b"\n", at)) >= 0:
        size = payload[at:end].split(b";")[0].strip()
        try:
            length = int(size, 16)
        except ValueError:
            break
        if length <= 0:
            break
        parts.append(payload[end + 1 : end + 1 + length])
        at = end + 1 + length + (2 if payload[end - 1 : end] == b"\r" else 1)
    return b"".join(parts) if parts or payload[:1] == b"0" else payload


def content_max(stored: int) -> int:
    """Return the maximum length of the content of a payload of `stored` bytes with codings.

    The fetcher stops at its own limits, but the last bytes that it received may expand a thousandfold per coding. An
    ordinary page or sitemap expands less than fifty times.
    """
    return max(_CONTENT_BYTES, _EXPANSION_MAX * stored)


def codings_of(
    headers: Iterable[tuple[bytes, bytes]], field_name: bytes = b"content-encoding"
) -> list[bytes]:
    """Return the codings that a field of a stored answer lists, in the order in which they were applied.

    `identity` is left out.
    """
    names: list[bytes] = []
    for field, value in headers:
        if field.lower() == field_name:
            names += [name.strip().lower() for name in value.split(b",")]
    return [name for name in names if name not in (b"", b"identity")]


def decoder_of(codings: Sequence[bytes], length: int, step: int) -> content_codings.Decoder:
    """Return the decoder of a stored payload of `length` bytes, which returns pieces of at most `step` bytes.

    If a compressed stream is broken, it returns the content before the error. After each coding, the content is cut
    at `content_max`. Decoding stops at an unknown coding: the content then keeps this coding and those applied
    before it. If there are more than `LAYERS_MAX` codings, none is undone.
    """
    undone = codings if len(codings) <= content_codings.LAYERS_MAX else ()
    return content_codings.decoder_of(undone, limit=content_max(length), step=step)


def decode_payload(payload: bytes, codings: Sequence[bytes]) -> bytes:
    """Undo the codings of a payload as `decoder_of` describes, and return the content."""
    decoder = decoder_of(codings, len(payload), _CHUNK_BYTES)
    return b"".join([*decoder.feed(payload), *decoder.finish()])


def content_of(payload: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the content of a stored answer as the fetcher decoded it; b"" if a coding is not known."""
    codings = codings_of(headers)
    return decode_payload(payload, codings) if content_codings.can_decode(codings) else b""


def check_digests(record: Record) -> list[str]:
    """Return the problems with the SHA-1 digests of a record; [] if its digests are right or absent."""
    block = record.block
    return _differing(record.fields, block, 0, len(block))


def checked(data: bytes, where: str) -> list[str]:
    """Return `check_digests(parse_record(data, where))`, without a copy of the block."""
    at, begin = _head_end(data, 0, len(data))
    if at == begin:
        raise DamageError(f"{where}: no WARC header")
    head = data[:at].decode("utf-8", "replace").replace("\r\n", "\n")
    if not head.startswith("WARC/"):
        raise DamageError(f"{where}: not a WARC record")
    fields: dict[str, str] = {}
    for name, value in _CHECKED.findall(head):
        fields.setdefault(name.lower(), value.strip())
    length, end = _content_length(fields, where), len(data)
    if end - begin < length:
        raise DamageError(f"{where}: record has {end - begin} bytes, but its header says {length}")
    return _differing(fields, data, begin, begin + length)


def _differing(fields: dict[str, str], data: bytes, begin: int, end: int) -> list[str]:
    """Return a line for each digest that differs from that of the block `data[begin:end]` or of its payload."""
    problems = []
    view = memoryview(data)
    if not _digest_fits(fields.get("warc-block-digest", ""), view[begin:end]):
        problems.append("block digest differs")
    stated, kind = fields.get("warc-payload-digest", ""), fields.get("warc-type", "")
    if stated and kind in ("response", "resource"):
        payload = _head_end(data, begin, end)[1] if kind == "response" else begin
        if not _digest_fits(stated, view[payload:end]):
            problems.append("payload digest differs")
    return problems


def checked_record(pieces: Iterator[bytes], where: str) -> tuple[Record, list[str]]:
    """Parse a record of any size from its pieces; return the record and the problems with its digests.

    If the block has more than `WHOLE_BYTES_MAX` bytes, the returned record holds only its beginning.
    """
    start, gap = b"", b""
    for piece in pieces:
        start += piece
        head, gap, rest = _split_head(start)
        if gap or len(start) > _HEAD_BYTES_MAX:
            break
    if not gap:
        raise DamageError(f"{where}: no WARC header")
    version, fields = _parse_fields(head, where)
    length = _content_length(fields, where)
    record = Record(version, fields, b"")
    if length <= WHOLE_BYTES_MAX:
        record.block = b"".join((rest, *pieces))[:length]
        if len(record.block) < length:
            raise DamageError(f"{where}: record has {len(record.block)} bytes, but its header says {length}")
        return record, check_digests(record)
    return record, _check_large(record, length, itertools.chain((rest,), pieces), where)


def _check_large(record: Record, length: int, pieces: Iterator[bytes], where: str) -> list[str]:
    """Check the digests of a large block.

    The first pieces of the block, which contain the whole HTTP head, are put into `record`.
    """
    block, payload, left = hashlib.sha1(), hashlib.sha1(), length
    in_head = record.kind == "response"
    for piece in pieces:
        piece = piece[:left]
        left -= len(piece)
        block.update(piece)
        if in_head or not record.block:
            record.block += piece
        if in_head:
            _, gap, piece = _split_head(record.block)
            in_head = not gap and len(record.block) <= _HEAD_BYTES_MAX
        if not in_head:
            payload.update(piece)
    if left:
        raise DamageError(f"{where}: record has {length - left} bytes, but its header says {length}")
    problems = []
    if not _is_digest(record.fields.get("warc-block-digest", ""), block.digest()):
        problems.append("block digest differs")
    stated = record.fields.get("warc-payload-digest", "") if record.kind in ("response", "resource") else ""
    if not _is_digest(stated, payload.digest()):
        problems.append("payload digest differs")
    return problems


def payload_digest(record: Record) -> bytes:
    """Return the SHA-1 that the record states for its payload, or b"" if it states none that can be parsed."""
    method, _, value = record.fields.get("warc-payload-digest", "").partition(":")
    return _from_base32(value) if method.lower() == "sha1" else b""


def _digest_fits(text: str, data: memoryview) -> bool:
    return not text or _is_digest(text, hashlib.sha1(data).digest())


def _is_digest(text: str, digest: bytes) -> bool:
    """Return whether a digest field states this SHA-1.

    The result is True for other hash functions, because their digests are not checked.
    """
    method, _, value = text.partition(":")
    return method.lower() != "sha1" or _from_base32(value) == digest


def _from_base32(text: str) -> bytes:
    """Decode base 32 in upper or lower case; return b"" if `text` is invalid."""
    try:
        data = text.encode("ascii")
        if len(data) == _SHA1_LETTERS:  # this takes a tenth of the time of `b32decode`
            return int(data.translate(_BASE32_DIGITS), 32).to_bytes(20, "big")
        return base64.b32decode(data, casefold=True)
    except ValueError:
        return b""
