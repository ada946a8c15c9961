"""Finds damage in an archive, and forgets the captures that are lost.

`check` reads everything. `find_lost` examines less: it finds only the captures whose segment was missing or
too short when the archive was opened, and the revisits of these captures. The pages of these captures can
then be fetched again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crawler.errors import DamageError, ShippedError
from crawler.pages import erasure, reading, segments
from crawler.pages.archive import Archive
from crawler.pages.captures import Lost, Problem, end_of, fingerprint_of, payload_key, segment_key
from crawler.storage.kv import Batch, seal

PROBLEMS_MAX = 1000  # maximum number of problems reported
_PART_BYTES = 8 << 20  # a part of a segment has about this many bytes


def find_lost(archive: Archive, damaged: Mapping[str, int]) -> list[Lost]:
    """Return the captures that extend beyond the end of a `damaged` segment, and the revisits of such captures."""
    if not damaged:
        return []
    gone = {
        key
        for key, capture in archive.stored_captures()
        if capture.segment in damaged and end_of(capture) > damaged[capture.segment]
    }
    return [
        Lost(fingerprint_of(key), key, capture)
        for key, capture in archive.stored_captures()
        if key in gone or capture.refers_to in gone
    ]


def forget(archive: Archive, batch: Batch, lost: Sequence[Lost], damaged: Mapping[str, int]) -> None:
    """Delete, in `batch`, the keys of `lost` captures and the keys that depend on them.

    `damaged` maps segments to their lengths. Each of these segments stays committed up to its last whole capture.
    """
    for capture in lost:
        batch.delete(capture.key)
        if archive.response_with(capture.capture.digest) == capture.key:
            batch.delete(payload_key(capture.capture.digest))
    for segment, size in damaged.items():
        _shorten(archive, batch, segment, size)


def _shorten(archive: Archive, batch: Batch, segment: str, size: int) -> None:
    """Commit a damaged segment only up to the end of its last whole capture.

    The rest of the segment is cut off when the archive is opened the next time.
    """
    ends = (end_of(capture) for _, capture in archive.stored_captures() if capture.segment == segment)
    end = max((end for end in ends if end <= size), default=0)
    if end:
        batch.put(segment_key(segment), seal(end.to_bytes(8, "big")))
    else:
        batch.delete(segment_key(segment))


class SegmentPart(NamedTuple):
    """A part of a segment that one process checks at a time: whole records from `begin` to `end`.

    `is_last` is True if the committed part of the segment ends at `end`. Bytes at the offsets in `skipped`
    (offset: length) are not read. With `tail`, uncommitted bytes after `end` are read, too.
    """

    segment: str
    begin: int
    end: int
    is_last: bool
    tail: bool
    skipped: dict[int, int]


# Checks the parts, possibly in several processes, and yields the problems of each part in the order of the parts.
Sharing = Callable[[Callable[[SegmentPart], list[Problem]], Iterable[SegmentPart]], Iterable[list[Problem]]]


def check(archive: Archive, sharing: Sharing = map, *, tails: bool = True) -> Iterator[Problem]:
    """Read every committed record, verify its digests and follow every revisit; yield each problem found.

    `sharing` decides which processes read the segments. Bytes that an unfinished erasure has listed for
    overwriting are not read: they will be overwritten when the archive is next opened.

    With `tails`, uncommitted bytes at the end of a segment are reported, too. They are cut off when the
    archive is opened for writing.
    """
    lengths = dict(archive.committed_lengths())
    cuts: dict[str, dict[int, int]] = {segment: {} for segment in lengths}
    problems: list[Problem] = []
    for _, capture in archive.stored_captures():
        if end_of(capture) > lengths.get(capture.segment, 0):
            problems.append(Problem(capture.url, f"its capture extends beyond the end of {capture.segment}"))
        else:
            at, number = capture.offset, capture.offset // _PART_BYTES
            cut = cuts[capture.segment]
            cut[number] = min(cut.get(number, at), at)
        if capture.refers_to and archive.capture_at(capture.refers_to) is None:
            problems.append(Problem(capture.url, "the response that it repeats is not in the store"))
        del problems[PROBLEMS_MAX:]
    parts = (
        part
        for segment, length in lengths.items()
        for part in _parts_of(archive, segment, length, sorted(cuts.pop(segment).values()), tail=tails)
    )
    for found in sharing(partial(_check_part, archive.folder), parts):
        yield from found
    yield from problems


def _parts_of(
    archive: Archive, segment: str, length: int, cuts: Sequence[int], *, tail: bool
) -> Iterator[SegmentPart]:
    """Yield the parts of a segment, which are cut at offsets of records. Leave out parts beyond the end of the file."""
    size = segments.size_of(archive.folder, segment)
    begins = [0, *(cut for cut in cuts if 0 < cut <= size)]
    skipped = erasure.listed_ranges(archive.store, segment)
    for begin, end in zip(begins, [*begins[1:], length], strict=True):
        inside = {at: count for at, count in skipped.items() if begin <= at < end}
        yield SegmentPart(segment, begin, end, end == length, tail, inside)


def _check_part(folder: Path, part: SegmentPart) -> list[Problem]:
    """Return the problems of one part. This needs no store, so several processes can do it at the same time."""
    found: list[Problem] = []
    try:
        end = _read(folder, part, found)
    except ShippedError:  # the segment was shipped, so it is not on this disk
        return found
    except DamageError as error:
        return [*found, Problem(part.segment, str(error))]
    except OSError as error:  # the disk cannot read the segment
        return [*found, Problem(part.segment, f"cannot be read: {error.strerror}")]
    if end != part.end:
        found.append(
            Problem(part.segment, f"{part.end} bytes were committed, but whole records end at {end}")
            if part.is_last
            else Problem(part.segment, f"a record should start at {part.end}, but one ends at {end}")
        )
    return found


def _read(folder: Path, part: SegmentPart, found: list[Problem]) -> int:
    """Read the records of a part, add their problems to `found`, and return where the last record ends."""
    segment, end = part.segment, part.begin
    contents = segments.contents(
        segments.segment_path(folder, segment),
        bytes_max=reading.WHOLE_BYTES_MAX,
        begin=part.begin,
        end=-1 if part.tail and part.is_last else part.end,
        skipped=part.skipped,
    )
    for offset, size, record in contents:
        if offset >= part.end:
            break
        end = offset + size
        if record == b"":
            continue
        where = f"{segment} at {offset}"
        if record is None:  # the record is too large to be held in memory
            place = segments.RecordPlace(segment, offset, size)
            _, problems = reading.checked_record(segments.member_pieces(folder, place), where)
        else:
            problems = reading.checked(record, where)
        found += [Problem(where, message) for message in problems]
    return end
