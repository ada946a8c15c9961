"""Creates, writes, reads and recovers segments, the files to which WARC records are appended.

    <folder>/<prefix>-<process>-<time>-<serial>.warc.gz.open    being written
    <folder>/<prefix>-<process>-<time>-<serial>.warc.gz         finished
    <folder>/<prefix>-<process>-<time>-<serial>.warc.gz.shipped copied to object storage (`shipping.py`)

The store's key `w/<name>` (without `.open`) holds the committed length. Bytes beyond that length are ignored.
A crash leaves at most an uncommitted tail, and `recover` cuts off this tail before anything else happens. If
a segment has no key, nothing in it was committed. A segment without a key is moved to `lost+found/` instead
of being deleted. A writer always starts a new segment, so it never appends to a file that a crash cut off.

The records of a group are usually written by one system call. `sync` makes the records durable. Only after
`sync` may a batch contain the new lengths of the segments.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from crawler.errors import DamageError, DirectoryError, ShippedError
from crawler.pages import reading
from crawler.pages.shipping import NOTE, note_changes, note_of
from crawler.storage.faults import reach
from crawler.storage.files import AppendFile, cut, rename, sync_directory

OPEN_SUFFIX = ".open"
LOST_AND_FOUND = "lost+found"
# If a group has more bytes than this, some of its records are written early, so that large pages are not in
# memory twice.
_GATHERED_BYTES_MAX = 1 << 20
_NAME = re.compile(r"(?P<series>.+)-(?P<time>[0-9]{14})-(?P<serial>[0-9]{5,})\.warc\.gz")


Member = bytes | Iterator[bytes]  # a gzip member, whole or in pieces


class RecordPlace(msgspec.Struct, frozen=True):
    """The place of a record: the segment's name, the offset, and the length in bytes of the record's gzip member."""

    segment: str
    offset: int
    length: int


class SegmentRecovery(msgspec.Struct):
    """The result of a recovery.

    `cut` maps segments to the number of bytes cut off, `moved` lists the files moved to lost+found, and
    `damaged` holds the segments that are too short, with their sizes in bytes.
    """

    cut: dict[str, int] = {}
    moved: list[str] = []
    damaged: dict[str, int] = {}


def segment_path(folder: Path, segment: str) -> Path:
    """Return the path of a segment, finished or still open.

    Raises:
        ShippedError: the segment lies in object storage only.
        DamageError: there is no such segment.
    """
    for name in _names(segment):
        if (folder / name).exists():
            return folder / name
    raise _missing(folder, segment)


def _names(segment: str) -> tuple[str, ...]:
    """Return the names under which to look for a segment, which may be finished and renamed between two looks."""
    return segment, segment + OPEN_SUFFIX, segment


def _missing(folder: Path, segment: str) -> DamageError:
    if note := note_of(folder, segment):
        return ShippedError(
            f"{folder / segment}: lies in {note.url} only; `crawler ship --fetch` brings it back"
        )
    return DamageError(f"{folder / segment}: segment is missing")


def open_segment(folder: Path, segment: str) -> int:
    """Return a file descriptor of a segment, finished or still being written.

    Raises:
        ShippedError: the segment lies in object storage only.
        DamageError: there is no such segment, or it cannot be read.
    """
    try:
        for name in _names(segment):
            with suppress(FileNotFoundError):
                return os.open(f"{folder}/{name}", os.O_RDONLY)
    except OSError as error:
        raise DamageError(f"{folder / segment}: {error.strerror}") from error
    raise _missing(folder, segment)


def chunks(
    folder: Path, segment: str, begin: int, end: int = sys.maxsize, *, chunk_bytes: int = 1 << 20
) -> Iterator[bytes]:
    """Yield the bytes `begin` <= position < `end` of a segment, up to the end of the segment.

    Raises:
        DamageError: the segment is missing, or the disk cannot read it.
    """
    descriptor = open_segment(folder, segment)
    try:
        while begin < end and (chunk := os.pread(descriptor, min(chunk_bytes, end - begin), begin)):
            begin += len(chunk)
            yield chunk
    except OSError as error:
        raise DamageError(f"{folder / segment}: cannot read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def read_segment(folder: Path, segment: str, offset: int, length: int) -> bytes:
    """Return `length` bytes of a segment from `offset` on, or fewer at the end of the segment.

    Raises:
        DamageError: the segment is missing, or the disk cannot read it.
    """
    return b"".join(chunks(folder, segment, offset, offset + length))


def recover(folder: Path, committed: Mapping[str, int], released: Collection[str] = ()) -> SegmentRecovery:
    """Cut segments to their committed lengths, and move other files to lost+found.

    The segments in `released` stay where they are, because they will be deleted (`released.py`).

    Raises:
        StoreError: the disk failed.
        DirectoryError: the folder cannot be created or read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise DirectoryError(f"{folder}: cannot open: {error.strerror}") from error
    recovery = SegmentRecovery()
    for name in names:
        segment = name.removesuffix(OPEN_SUFFIX).removesuffix(NOTE)
        if segment not in committed and segment not in released:
            _set_aside(folder, name)
            recovery.moved.append(name)
    for segment, length in committed.items():
        _recover_segment(folder, segment, length, recovery)
    return recovery


def survey(folder: Path, committed: Mapping[str, int]) -> SegmentRecovery:
    """Return the segments that are too short.

    Nothing is cut or moved, because a reader must not change files.
    """
    sizes = {segment: size_of(folder, segment) for segment in committed}
    return SegmentRecovery(
        damaged={segment: size for segment, size in sizes.items() if size < committed[segment]}
    )


def _set_aside(folder: Path, name: str) -> None:
    """Move a file without a key to lost+found, under a name that is not yet used in that folder."""
    aside = folder / LOST_AND_FOUND
    if not aside.exists():
        aside.mkdir()
        sync_directory(folder)
    target = aside / name
    serial = 0
    while target.exists():
        serial += 1
        target = aside / f"{name}.{serial}"
    rename(folder / name, target)


def _recover_segment(folder: Path, segment: str, length: int, recovery: SegmentRecovery) -> None:
    try:
        path = segment_path(folder, segment)
        dropped = cut(path, length)
    except ShippedError:
        return
    except DamageError:
        recovery.damaged[segment] = size_of(folder, segment)
        return
    if dropped:
        note_changes(folder, [segment])
        recovery.cut[segment] = dropped
    if path.name != segment:
        rename(path, folder / segment)


def size_of(folder: Path, segment: str) -> int:
    """Return the length of a segment in bytes, or 0 if the segment is missing."""
    for name in _names(segment):
        with suppress(FileNotFoundError):
            return (folder / name).stat().st_size
    return 0


def next_serial(segments: Sequence[str]) -> int:
    """Return the largest serial number in `segments` plus one, or 0 if there is none."""
    matches = [_NAME.fullmatch(name) for name in segments]
    return max([int(match["serial"]) + 1 for match in matches if match], default=0)


class SegmentWriter:
    """Appends captures to segments and starts the next segment when one is full.

    `opening(name, now)` returns the warcinfo record of a new segment, compressed. The lengths that
    `take_lengths` returns may be committed after `sync`. All methods raise StoreError if the disk fails, now or before.
    """

    def __init__(
        self,
        folder: Path,
        series: str,
        *,
        segment_bytes: int,
        serial: int,
        opening: Callable[[str, float], bytes],
        sync: bool = True,
    ) -> None:
        self._folder = folder
        self._series = series
        self._segment_bytes = segment_bytes
        self._serial = serial
        self._opening = opening
        self._sync = sync
        self._file: AppendFile | None = None
        self._name = ""
        self._opened_at = 0  # the end of the segment's warcinfo record
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._lengths: dict[str, int] = {}

    def append(self, members: Sequence[Member], now: float) -> list[RecordPlace]:
        """Add the records of one capture to the open segment; return the place of each record.

        A member that is passed in pieces is written immediately, so the whole member is never in memory.
        """
        name = self.turn(now)
        places = []
        offset = self._end
        for member in members:
            if isinstance(member, bytes):
                self._gather(member)
                length = len(member)
            else:
                self._flush()
                assert self._file is not None
                for piece in member:
                    self._file.append(piece)
                length = self._end - offset
            places.append(RecordPlace(name, offset, length))
            offset += length
        self._lengths[name] = offset
        if self._gathered_bytes > _GATHERED_BYTES_MAX:
            self._flush()
        return places

    def turn(self, now: float) -> str:
        """Begin a segment if none is open or if the open one is full; return the name of the open segment."""
        if self._file is None or self._end >= max(self._segment_bytes, self._opened_at + 1):
            self.finish()
            self._begin(now)
        return self._name

    @property
    def name(self) -> str:
        """The name of the open segment, or "" if none is open."""
        return self._name if self._file else ""

    @property
    def _end(self) -> int:
        return self._file.length + self._gathered_bytes if self._file else 0

    def _gather(self, member: bytes) -> None:
        self._gathered.append(member)
        self._gathered_bytes += len(member)

    def _flush(self) -> None:
        if self._file and self._gathered:
            self._file.append(b"".join(self._gathered))
            self._gathered.clear()
            self._gathered_bytes = 0

    def _begin(self, now: float) -> None:
        time = datetime.fromtimestamp(int(now), UTC).strftime("%Y%m%d%H%M%S")
        self._name = f"{self._series}-{time}-{self._serial:05d}.warc.gz"
        self._serial += 1
        self._file = AppendFile(self._folder / (self._name + OPEN_SUFFIX))
        reach("segment begun")
        self._gather(self._opening(self._name, now))
        self._opened_at = self._end

    def sync(self) -> None:
        """Write the buffered records, and make them durable unless the writer was made with `sync=False`."""
        self._flush()
        if self._file and self._sync:
            self._file.sync()

    def take_lengths(self) -> dict[str, int]:
        """Return the segments that grew since the last call, with the lengths that may be committed."""
        lengths, self._lengths = self._lengths, {}
        return lengths

    def finish(self) -> None:
        """Complete the open segment and give it its final name. The next append starts another segment."""
        if self._file is None:
            return
        self.sync()
        self._file.close()
        rename(self._file.path, self._folder / self._name)
        reach("segment rolled")
        self._file = None

    def abandon(self) -> None:
        """Close the open segment without writing anything. The next start completes it."""
        if self._file is not None:
            self._file.close()

    def __repr__(self) -> str:
        return f"SegmentWriter({self._name or 'none open'}, {self._end} bytes)"


def member_pieces(folder: Path, place: RecordPlace, piece_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield the uncompressed record at `place` in pieces of at most `piece_bytes`, for records of any size.

    Raises:
        DamageError: the segment is missing, or the data is not a whole gzip member.
    """
    end = place.offset + place.length
    found = chunks(folder, place.segment, place.offset, end, chunk_bytes=piece_bytes)
    return reading.expanded(found, f"{place.segment} at {place.offset}", piece_bytes)


def _opened(path: Path) -> BinaryIO:
    """Open a segment, even if it was finished and renamed after its path was looked up."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return path.with_name(path.name.removesuffix(OPEN_SUFFIX)).open("rb")


def contents(
    path: Path, *, bytes_max: int, begin: int = 0, end: int = -1, skipped: Mapping[int, int] | None = None
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (offset, length, uncompressed record) of each gzip member of a file, in order, from the offset `begin` on.

    The file is read and decompressed only once. If a record has more than `bytes_max` bytes, None is yielded
    in its place. Members that begin at `end` or later are ignored; -1 means the end of the file. The ranges
    in `skipped`, which maps offsets to lengths in bytes, are not read. For each skipped range, b"" is yielded
    as the record.

    Raises:
        DamageError: the data after the last member is not a whole member.
    """
    with _opened(path) as file:
        steps, size = reading.Steps(file), os.fstat(file.fileno()).st_size
        steps.skip(begin)
        while (offset := steps.position) < (size if end < 0 else min(end, size)):
            if skipped and offset in skipped:
                steps.skip(skipped[offset])
                yield offset, skipped[offset], b""
                continue
            content = reading.expand_next(steps, bytes_max=bytes_max, where=f"{path.name} at {offset}")
            yield offset, steps.position - offset, content
