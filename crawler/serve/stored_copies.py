"""Opens a stored answer for the page server, and reads only the parts that the reply needs.

    member in parts:   pread --> head inflated --> payload inflated when it is needed, or passed on as gzip
    other members:     `pages/stored_bodies.py`
    inflated before:   `disk_cache.py`

Some gzip members state where their parts are (`pages/gzip_members.py`). Such a gzip member is read with one
system call if it has at most `MEMBER_BYTES_MAX` bytes. Longer members, and members written by other programs
or earlier versions, are read piece by piece. So a body of any size needs only the memory of a few pieces.
"""

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crawler.errors import DamageError
from crawler.pages import gzip_members, segments, stored_bodies
from crawler.pages.archive import Archive
from crawler.pages.captures import shown_fields
from crawler.pages.gzip_members import MemberParts
from crawler.records import Capture
from crawler.serve.disk_cache import DiskCache, KeptBody
from crawler.serve.stored_head import StoredHead, of_fields, parse_head

MEMBER_BYTES_MAX = 64 << 10  # longer members are read piece by piece
_CHECK_INTERVAL = 256  # number of reads between two checks for deleted files

Pieces = Callable[[], Iterator[bytes]]


class SegmentFiles:
    """Descriptors of at most `files_max` segments. The least recently used descriptor is closed first.

    Reading a copy of an open segment takes one system call. An open descriptor of a segment stays valid, because a
    segment grows only at its end, is renamed only once, and has its erased records overwritten in place. Only
    `crawler ship` and the cleaning of old copies delete segments. Descriptors of deleted files are closed within
    `_CHECK_INTERVAL` reads, because an open descriptor keeps the disk space of its file in use.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._open: OrderedDict[tuple[Path, str], int] = OrderedDict()
        self._reads = 0

    def __len__(self) -> int:
        return len(self._open)

    def read(self, folder: Path, segment: str, length: int, offset: int) -> bytes:
        """Return `length` bytes of a segment, finished or still open; return fewer at the end of the segment.

        Raises:
            DamageError: there is no such segment, or it cannot be read.
        """
        self._reads += 1
        if self._reads % _CHECK_INTERVAL == 0:
            self._close_deleted()
        key = folder, segment
        file = self._open.get(key)
        if file is None:
            file = self._enter(key)
        elif len(self._open) > 1:
            self._open.move_to_end(key)
        try:
            return os.pread(file, length, offset)
        except OSError as error:
            raise DamageError(f"{folder / segment}: {error.strerror}") from error

    def _enter(self, key: tuple[Path, str]) -> int:
        file = segments.open_segment(*key)
        self._open[key] = file
        if len(self._open) > self._files_max:
            os.close(self._open.popitem(last=False)[1])
        return file

    def _close_deleted(self) -> None:
        for key, file in list(self._open.items()):
            if os.fstat(file).st_nlink == 0:
                os.close(self._open.pop(key))

    def close(self) -> None:
        """Close all descriptors; `read` opens segments again."""
        while self._open:
            os.close(self._open.popitem()[1])


class OpenedCopy(msgspec.Struct):
    """A stored answer that is open for reading. It has a head, and a function that returns iterators over the payload.

    `length` is the payload's length in bytes, with its content coding. `parts` are the parts of its gzip
    member, if the member is stored in parts.
    """

    head: StoredHead
    length: int
    pieces: Pieces
    parts: "StoredParts | None" = None


class StoredParts:
    """The parts of a member in a segment. After `release`, they are read again when needed.

    The methods raise DamageError if the bytes are broken.
    """

    __slots__ = (
        "_disk_cache", "_files", "_folder", "_length", "_offset", "_parts", "_segment", "gzip_length", "length",
    )  # fmt: skip

    def __init__(self, reader: "CopyReader", folder: Path, place: Capture, parts: MemberParts) -> None:
        self._files, self._disk_cache, self._folder = reader.files, reader.disk_cache, folder
        self._segment, self._offset, self._length = sys.intern(place.segment), place.offset, place.length
        self._parts: MemberParts | None = parts
        self.length, self.gzip_length = parts.length, parts.gzip_length

    def release(self) -> None:
        """Free the bytes."""
        self._parts = None

    def kept(self, codings: Sequence[bytes] = ()) -> KeptBody | None:
        """Return the place of the payload, with `codings` undone, in the cache on disk; None if there is no cache."""
        if self._disk_cache is None or self._parts is None:
            return None
        place = f"{self._folder}\0{self._segment}\0{self._offset}\0{self._parts.crc}\0{codings}"
        return KeptBody(self._disk_cache, place)

    def payload(self) -> Iterator[bytes]:
        """Yield the payload."""
        yield self.start(self.length)

    def start(self, length: int) -> bytes:
        """Return the first `length` bytes of the payload."""
        try:
            return self._whole().payload(length)
        except DamageError as error:
            raise DamageError(f"{self._segment} at {self._offset}: {error}") from error

    def gzip(self) -> Iterator[bytes]:
        """Yield the payload as a gzip stream."""
        yield self._whole().gzip()

    def _whole(self) -> MemberParts:
        if self._parts is not None:
            return self._parts
        member = self._files.read(self._folder, self._segment, self._length, self._offset)
        parts = gzip_members.parts(member)
        if parts is None or (parts.length, parts.gzip_length) != (self.length, self.gzip_length):
            raise DamageError("it was overwritten")
        return parts


class CopyReader:
    """Opens the copies of archives.

    It keeps at most `files_max` segments open, and stores inflated bodies in `disk_cache`.
    """

    def __init__(self, files_max: int, disk_cache: DiskCache | None = None) -> None:
        self.files = SegmentFiles(files_max)
        self.disk_cache = disk_cache

    def close(self) -> None:
        """Close the segments and the cache on disk. The cache loses its content."""
        self.files.close()
        if self.disk_cache is not None:
            self.disk_cache.close()

    def open(self, archive: Archive, capture: Capture) -> OpenedCopy:
        """Open the answer of a capture, or the DOM that a browser showed instead.

        The payload of a revisit comes from the answer that it repeats. If the revisit is a 304, its head also
        comes from that answer.

        Raises:
            DamageError: the bytes are missing, or are not a record.
        """
        if self.disk_cache is not None:
            archive.withdrawals.notify(self.disk_cache.clearing)
        if capture.dom_length:
            return self._shown(archive, capture)
        if not capture.refers_to:
            return self._answer(archive, capture)
        original = archive.capture_at(capture.refers_to)
        if original is None:
            raise DamageError(f"{capture.url}: the response that it repeats is not in the store")
        repeated = self._answer(archive, original)
        if capture.status == 304:
            return repeated
        return replace(repeated, head=self._answer(archive, capture).head)

    def _answer(self, archive: Archive, place: Capture) -> OpenedCopy:
        """Open the response that is stored at the place of a capture."""
        parts = self._parts(archive, place)
        if parts is None:
            return _in_pieces(archive.folder, replace(place, dom_length=0))
        try:
            head = parts.head()
        except DamageError as error:
            raise DamageError(f"{place.segment} at {place.offset}: {error}") from error
        stored = StoredParts(self, archive.folder, place, parts)
        return OpenedCopy(parse_head(head), parts.length, stored.payload, stored)

    def _shown(self, archive: Archive, capture: Capture) -> OpenedCopy:
        """Open the DOM that a browser showed, together with the head of the answer."""
        place = replace(capture, offset=capture.offset + capture.dom_offset, length=capture.dom_length)
        parts = self._parts(archive, place)
        if parts is None:
            return _in_pieces(archive.folder, capture)
        head = self._answer(archive, capture).head
        head = of_fields(head.status, head.reason, shown_fields(head.fields))
        stored = StoredParts(self, archive.folder, place, parts)
        return OpenedCopy(head, parts.length, stored.payload, stored)

    def _parts(self, archive: Archive, place: Capture) -> MemberParts | None:
        if place.length > MEMBER_BYTES_MAX:
            return None
        member = self.files.read(archive.folder, place.segment, place.length, place.offset)
        return gzip_members.parts(member)


def _in_pieces(folder: Path, capture: Capture) -> OpenedCopy:
    copy = stored_bodies.open_capture(folder, capture, None)
    return OpenedCopy(of_fields(copy.status, copy.reason, copy.headers), copy.length, copy.pieces)
