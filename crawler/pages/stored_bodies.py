"""Reads a stored answer piece by piece, from a gzip member of a segment to the bytes that a reader gets.

    pread --> inflate --> skip WARC and HTTP header --> payload --> (content coding undone)

Each arrow is a generator, and each piece has at most `PIECE_BYTES`. So a body of any size needs only the
memory of a few pieces. The record's header gives the length of the payload. The length of the decoded content
is known only after the content has been read once. If coded content is truncated, the content before the
break is yielded, as in `pages/reading.py`. A broken WARC member is reported as damage.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from isal import igzip_lib, isal_zlib

from crawler.errors import DamageError, reason_of
from crawler.pages import reading, segments
from crawler.pages.captures import shown_fields
from crawler.records import Capture, Fetch

PIECE_BYTES = 64 << 10
_HEAD_BYTES_MAX = 1 << 20
_GZIP = 31
_GAP = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|\Z)", re.IGNORECASE)
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment] # the stub declares an instance

Pieces = Callable[[], Iterator[bytes]]
Field = tuple[bytes, bytes]


class Copy(msgspec.Struct):
    """A stored answer that was opened for reading: its head, and a function that returns iterators over its payload.

    `length` is the length in bytes of the payload, before its content coding is undone.
    """

    status: int
    reason: str
    headers: tuple[Field, ...]
    length: int
    pieces: Pieces

    @property
    def codings(self) -> list[bytes]:
        return reading.codings_of(self.headers)


def open_capture(folder: Path, capture: Capture, original: Capture | None) -> Copy:
    """Open the answer of a capture, or the DOM if a browser showed the page. This needs no store.

    `original` is the response that a revisit repeats. The payload comes from this response. For a 304, the
    head comes from this response, too.

    Raises:
        DamageError: the bytes are missing, or are not a record.
    """
    if capture.dom_length:
        return _open_shown(folder, capture)
    copy = _open_record(folder, capture)
    if original is None:
        return copy
    repeated = _open_record(folder, original)
    if capture.status == 304:
        return repeated
    copy.length, copy.pieces = repeated.length, repeated.pieces
    return copy


def _open_shown(folder: Path, capture: Capture) -> Copy:
    """Open the DOM that a browser showed, with the head of the server's answer."""
    copy = _open_record(folder, capture)
    copy.headers = shown_fields(copy.headers)
    record = msgspec.structs.replace(
        capture, offset=capture.offset + capture.dom_offset, length=capture.dom_length
    )
    data = b""
    for piece in _record_pieces(folder, record):
        data += piece
        if (end := data.find(_GAP)) >= 0 or len(data) > _HEAD_BYTES_MAX:
            break
    where = f"{record.segment} at {record.offset}"
    if end < 0:
        raise DamageError(f"{where}: no WARC header")
    copy.length = _block_length(data[:end], where)
    copy.pieces = lambda: _part(_record_pieces(folder, record), end + len(_GAP), copy.length, where)
    return copy


def _open_record(folder: Path, capture: Capture) -> Copy:
    where = f"{capture.segment} at {capture.offset}"
    data, warc_end, http_end = b"", -1, -1
    for piece in _record_pieces(folder, capture):
        data += piece
        if warc_end < 0:
            warc_end = data.find(_GAP)
        if warc_end >= 0 and http_end < 0:
            http_end = data.find(_GAP, warc_end + 4)
        if http_end >= 0:
            break
        if len(data) > _HEAD_BYTES_MAX:
            break
    if warc_end < 0:
        raise DamageError(f"{where}: no WARC header")
    block = _block_length(data[:warc_end], where)
    start = (http_end if http_end >= 0 else warc_end) + 4
    message = reading.parse_http(data[warc_end + 4 : start])
    length = max(0, block - (start - warc_end - 4)) if http_end >= 0 else 0
    small = data[start : start + length] if len(data) - start >= length else None
    if small is not None:
        pieces: Pieces = lambda: iter((small,))  # noqa: E731
    else:
        pieces = lambda: _part(_record_pieces(folder, capture), start, length, where)  # noqa: E731
    return Copy(message.status, message.reason, message.headers, length, pieces)


def _block_length(head: bytes, where: str) -> int:
    if match := _LENGTH.search(head):
        return int(match[1])
    raise DamageError(f"{where}: no Content-Length")


def _record_pieces(folder: Path, capture: Capture) -> Iterator[bytes]:
    """Yield the uncompressed record of a capture in pieces."""
    where = f"{capture.segment} at {capture.offset}"
    file = segments.open_segment(folder, capture.segment)
    try:
        inflater = isal_zlib.decompressobj(_GZIP)
        offset, end = capture.offset, capture.offset + capture.length
        while offset < end:
            data = os.pread(file, min(PIECE_BYTES, end - offset), offset)
            if not data:
                raise DamageError(f"{where}: the segment is truncated")
            offset += len(data)
            yield from _inflated(inflater, data)
        if not inflater.eof:
            raise DamageError(f"{where}: the gzip member is truncated")
    except (_IsalError, OSError) as error:
        raise DamageError(f"{where}: broken gzip member: {reason_of(error)}") from error
    finally:
        os.close(file)


def _inflated(inflater: object, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of `data`, in pieces."""
    decompress = inflater.decompress  # type: ignore[attr-defined]
    piece = decompress(data, PIECE_BYTES)
    while piece:
        yield piece
        if inflater.eof:  # type: ignore[attr-defined]
            return
        piece = decompress(inflater.unconsumed_tail, PIECE_BYTES)  # type: ignore[attr-defined]


def _part(pieces: Iterable[bytes], start: int, length: int, where: str) -> Iterator[bytes]:
    """Yield `length` bytes from `start` on; the concatenated `pieces` are a whole record.

    The last piece is yielded only after the record has been read to its end, where its checksum is. So no
    reader gets all bytes of a record that is damaged, or that was erased while it was read.

    Raises:
        DamageError: fewer bytes are left, or the record is damaged.
    """
    record, last = iter(pieces), b""
    for piece in part(record, start, start + length):
        if last:
            yield last
        length -= len(piece)
        last = piece
    for _ in record:
        pass
    if length:
        raise DamageError(f"{where}: record is {length} bytes short")
    if last:
        yield last


def part(pieces: Iterable[bytes], first: int, end: int) -> Iterator[bytes]:
    """Yield the bytes `first` <= position < `end` of the concatenated `pieces`."""
    at = 0
    for piece in pieces:
        if at >= end:
            return
        if chosen := piece[max(0, first - at) : end - at]:
            yield chosen
        at += len(piece)


def decoded(pieces: Iterable[bytes], codings: Sequence[bytes], length: int) -> Iterator[bytes]:
    """Yield the content with its codings undone (`reading.decoder_of`). `length` is the length of the payload."""
    decoder = reading.decoder_of(codings, length, PIECE_BYTES)
    for piece in pieces:
        yield from decoder.pieces(piece)
        if decoder.full:
            return
    yield from decoder.finish()


def content_of(fetch: Fetch) -> Iterator[bytes]:
    """Yield the content of an answer in pieces.

    If the body is on disk, its content codings are undone.
    """
    if fetch.part is None:
        return iter((fetch.content,))
    return decoded(fetch.part.pieces(), reading.codings_of(fetch.headers), fetch.part.length)
