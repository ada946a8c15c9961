"""Reads a stored answer, from a gzip member of a segment to the bytes that a client gets.

    member in parts:   pread --> head inflated --> payload inflated when it is needed, or passed on as gzip
    other members:     pread --> inflate --> skip WARC and HTTP header --> payload

A member of up to `MEMBER_BYTES_MAX` that tells where its parts are (`pages/gzip_members.py`)
is read by one system call. In other members each arrow is a generator and each piece has at
most `PIECE_BYTES`, so a body of any size needs the memory of a few pieces. A broken member
is damage.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from isal import igzip_lib, isal_zlib

from crawler.errors import DamageError
from crawler.pages import gzip_members
from crawler.pages.archive import Archive
from crawler.pages.captures import shown_fields
from crawler.pages.gzip_members import Parts
from crawler.records import Capture
from crawler.serve.content_codings import PIECE_BYTES, inflated
from crawler.serve.segment_files import SegmentFiles
from crawler.serve.stored_head import NO_HEAD, StoredHead, parse_head

MEMBER_BYTES_MAX = 64 << 10  # of a member that is read by one call
_HEAD_BYTES_MAX = 1 << 20
_GZIP = 31
_GAP = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|\Z)", re.IGNORECASE)
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance

Pieces = Callable[[], Iterator[bytes]]


class Copy(msgspec.Struct):
    """A stored answer opened for reading: its head, and a function that returns iterators over its payload.

    `length` is the payload's length in bytes, with its content coding. `parts` are those of its
    member, if it is stored in parts.
    """

    head: StoredHead
    length: int
    pieces: Pieces
    parts: "StoredParts | None" = None


class StoredParts:
    """The parts of a member in a segment. They are read again after `release`."""

    __slots__ = ("_files", "_folder", "_length", "_offset", "_parts", "_segment", "gzip_length", "length")

    def __init__(self, files: SegmentFiles, folder: Path, place: Capture, parts: Parts) -> None:
        self._files, self._folder = files, folder
        self._segment, self._offset, self._length = sys.intern(place.segment), place.offset, place.length
        self._parts: Parts | None = parts
        self.length, self.gzip_length = parts.length, parts.gzip_length

    def release(self) -> None:
        """Free the bytes."""
        self._parts = None

    def payload(self) -> Iterator[bytes]:
        """Yield the payload.

        Raises:
            DamageError: the bytes are broken.
        """
        try:
            yield self._whole().payload()
        except DamageError as error:
            raise DamageError(f"{self._segment} at {self._offset}: {error}") from error

    def gzip(self) -> Iterator[bytes]:
        """Yield the payload as a gzip stream."""
        yield self._whole().gzip()

    def _whole(self) -> Parts:
        if self._parts is not None:
            return self._parts
        member = self._files.read(self._folder, self._segment, self._length, self._offset)
        parts = gzip_members.parts(member)
        if parts is None or (parts.length, parts.gzip_length) != (self.length, self.gzip_length):
            raise DamageError("it was overwritten")
        return parts


class CopyReader:
    """Opens the copies of an archive; keeps at most `files_max` segments open."""

    def __init__(self, files_max: int) -> None:
        self.files = SegmentFiles(files_max)

    def open(self, archive: Archive, capture: Capture) -> Copy:
        """Open the answer of a capture, or the DOM that a browser showed instead.

        A revisit has the payload it repeats, and after a 304 also that answer's head.

        Raises:
            DamageError: the bytes are missing, or are not a record.
        """
        copy = self._record(archive, capture)
        if capture.dom_length:
            return self._shown(archive, capture, copy)
        if not capture.refers_to:
            return copy
        original = archive.capture_at(capture.refers_to)
        if original is None:
            raise DamageError(f"{capture.url}: the response that it repeats is not in the store")
        repeated = self._record(archive, original)
        return repeated if capture.status == 304 else msgspec.structs.replace(repeated, head=copy.head)

    def _shown(self, archive: Archive, capture: Capture, copy: Copy) -> Copy:
        """Return the DOM that a browser showed, under the head of the answer `copy`."""
        dom = msgspec.structs.replace(
            capture, offset=capture.offset + capture.dom_offset, length=capture.dom_length
        )
        shown = self._record(archive, dom, is_answer=False)
        return msgspec.structs.replace(shown, head=copy.head.with_fields(shown_fields(copy.head.fields)))

    def _record(self, archive: Archive, place: Capture, *, is_answer: bool = True) -> Copy:
        if place.length <= MEMBER_BYTES_MAX:
            member = self.files.read(archive.folder, place.segment, place.length, place.offset)
            parts = gzip_members.parts(member)
            if parts is not None:
                return _from_parts(
                    parts,
                    StoredParts(self.files, archive.folder, place, parts),
                    _where(place),
                    is_answer=is_answer,
                )
        return _from_pieces(lambda: self._pieces(archive, place), _where(place), is_answer=is_answer)

    def _pieces(self, archive: Archive, place: Capture) -> Iterator[bytes]:
        """Yield the uncompressed record at the place of a capture, in pieces."""
        inflater = isal_zlib.decompressobj(_GZIP)
        offset, end = place.offset, place.offset + place.length
        try:
            while offset < end:
                data = self.files.read(archive.folder, place.segment, min(PIECE_BYTES, end - offset), offset)
                if not data:
                    raise DamageError(f"{_where(place)}: the segment is truncated")
                offset += len(data)
                yield from inflated(inflater, data)
            if not inflater.eof:
                raise DamageError(f"{_where(place)}: the gzip member is truncated")
        except _IsalError as error:
            raise DamageError(f"{_where(place)}: broken gzip member: {error}") from error


def _where(place: Capture) -> str:
    return f"{place.segment} at {place.offset}"


def _from_parts(parts: Parts, stored: StoredParts, where: str, *, is_answer: bool) -> Copy:
    try:
        head = parts.head()
    except DamageError as error:
        raise DamageError(f"{where}: {error}") from error
    return Copy(parse_head(head) if is_answer else NO_HEAD, parts.length, stored.payload, stored)


def _from_pieces(record: Pieces, where: str, *, is_answer: bool) -> Copy:
    """Read the head of a record; the rest is read when it is needed."""
    data, warc_end, end = b"", -1, -1
    for piece in record():
        data += piece
        if warc_end < 0:
            warc_end = end = data.find(_GAP)
        if warc_end >= 0 and is_answer:
            end = data.find(_GAP, warc_end + len(_GAP))
        if end >= 0 or len(data) > _HEAD_BYTES_MAX:
            break
    if warc_end < 0:
        raise DamageError(f"{where}: no WARC header")
    has_payload, end = end >= 0, end if end >= 0 else warc_end
    start = end + len(_GAP)
    length = _block_length(data[:warc_end], where) - (start - warc_end - len(_GAP)) if has_payload else 0
    length = max(0, length)
    small = data[start : start + length] if len(data) - start >= length else None

    def pieces() -> Iterator[bytes]:
        return iter((small,)) if small is not None else _part(record(), start, length, where)

    return Copy(parse_head(data[:start]) if is_answer else NO_HEAD, length, pieces)


def _block_length(head: bytes, where: str) -> int:
    if match := _LENGTH.search(head):
        return int(match[1])
    raise DamageError(f"{where}: no Content-Length")


def _part(pieces: Iterable[bytes], start: int, length: int, where: str) -> Iterator[bytes]:
    """Yield `length` bytes from `start` on.

    Raises:
        DamageError: there are fewer.
    """
    for piece in part(pieces, start, start + length):
        length -= len(piece)
        yield piece
    if length:
        raise DamageError(f"{where}: record is {length} bytes short")


def part(pieces: Iterable[bytes], first: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `first` to before `end` of the concatenated `pieces`."""
    at = 0
    for piece in pieces:
        if at >= end:
            return
        if chosen := piece[max(0, first - at) : end - at]:
            yield chosen
        at += len(piece)
