"""Reads a stored answer piece by piece, from a gzip member of a segment to the bytes that a reader gets.

    pread --> inflate --> skip WARC and HTTP header --> payload --> (content coding undone)

Each arrow is a generator, and each piece has at most `PIECE_BYTES`. So a body of any size needs only the
memory of a few pieces. The record's header gives the length of the payload. The length of the decoded content
is known only after the content has been read once. If coded content is truncated, the content before the
break is yielded, as in `pages/reading.py`. All functions raise DamageError if the bytes of a WARC member are missing
or broken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from crawler.errors import DamageError
from crawler.pages import reading, segments
from crawler.pages.captures import shown_fields, static_form
from crawler.records import Capture, Fetch

PIECE_BYTES = 64 << 10
_HEAD_BYTES_MAX = 1 << 20
_GAP = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|\Z)", re.IGNORECASE)

Pieces = Callable[[], Iterator[bytes]]
Field = tuple[bytes, bytes]


class Copy(msgspec.Struct):
    """A stored answer that was opened for reading: its head, and a function that returns iterators over its payload.

    `length` is the length in bytes of the payload, before its content coding is undone.
    """

    status: int
    reason: str
    version: str
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
    """
    copy = _open_answer(folder, capture)
    if capture.dom_length:
        dom = segments.RecordPlace(capture.segment, capture.offset + capture.dom_offset, capture.dom_length)
        _, copy.length, copy.pieces = _opened(folder, dom, 1)
        copy.headers = shown_fields(copy.headers)
    elif original is not None:
        repeated = _open_answer(folder, original)
        if capture.status == 304:
            return repeated
        copy.length, copy.pieces = repeated.length, repeated.pieces
    return copy


def _open_answer(folder: Path, capture: Capture) -> Copy:
    place = segments.RecordPlace(capture.segment, capture.offset, capture.length)
    head, length, pieces = _opened(folder, place, 2)
    message = reading.parse_http(head)
    return Copy(message.status, message.reason, message.version, message.headers, length, pieces)


def _opened(folder: Path, place: segments.RecordPlace, heads: int) -> tuple[bytes, int, Pieces]:
    """Return the last head of the record at `place`, and the length and the pieces of its payload.

    The record begins with `heads` heads: the WARC header and, in a response, the HTTP head. If the HTTP head has
    no end, there is no payload.
    """
    where = f"{place.segment} at {place.offset}"
    record = segments.member_pieces(folder, place, PIECE_BYTES)
    data, ends = b"", [0]
    for piece in record:
        data += piece
        while len(ends) <= heads and (gap := data.find(_GAP, ends[-1])) >= 0:
            ends.append(gap + len(_GAP))
        if len(ends) > heads or len(data) > _HEAD_BYTES_MAX:
            break
    if len(ends) == 1:
        raise DamageError(f"{where}: no WARC header")
    block, start = ends[1], ends[-1]
    if (stated := _LENGTH.search(data, 0, block)) is None:
        raise DamageError(f"{where}: no Content-Length")
    length = max(0, int(stated[1]) - (start - block)) if len(ends) > heads else 0
    if len(data) - start < length:
        return (
            data[block:start],
            length,
            lambda: _part(segments.member_pieces(folder, place, PIECE_BYTES), start, length, where),
        )
    for _ in record:  # the checksum is at the end of the record
        pass
    payload = data[start : start + length]
    return data[block:start], length, lambda: iter((payload,))


class Place(msgspec.Struct, array_like=True):
    """The place of a stored answer: all that is needed to read it without its store, in any process of the machine.

    `folder` has the segments. `original` is the response that a revisit repeats. With `static`, the server's
    answer is meant even if a browser showed the page.
    """

    folder: str
    capture: Capture
    original: Capture | None = None
    static: bool = False


def open_place(place: Place) -> Copy:
    """Open the answer at `place`."""
    capture = static_form(place.capture) if place.static else place.capture
    return open_capture(Path(place.folder), capture, place.original)


def _part(pieces: Iterable[bytes], start: int, length: int, where: str) -> Iterator[bytes]:
    """Yield `length` bytes from `start` on; the concatenated `pieces` are a whole record.

    The last piece is yielded only after the record has been read to its end, where its checksum is. So no
    reader gets all bytes of a record that is damaged, or that was erased while it was read.
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


def decoded_content(place: str) -> Iterator[bytes]:
    """Yield the content of the answer at a `Place` in JSON, with its codings undone."""
    copy = open_place(msgspec.json.decode(place, type=Place))
    return decoded(copy.pieces(), copy.codings, copy.length)


def content_of(fetch: Fetch) -> Iterator[bytes]:
    """Yield the content of an answer in pieces.

    If the body is on disk, its content codings are undone.
    """
    if fetch.part is None:
        return iter((fetch.content,))
    return decoded(fetch.part.pieces(), reading.codings_of(fetch.headers), fetch.part.length)
