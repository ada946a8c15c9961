"""Finds damage in an archive, and forgets the captures that are lost.

`check` reads everything. `find_lost` only lists the captures that are lost because their segment was missing
or too short when the archive was opened. The pages of these captures can then be fetched again.
"""

from collections.abc import Iterator, Mapping, Sequence

from crawler.errors import DamageError, ShippedError
from crawler.pages import erasure, reading, segments
from crawler.pages.archive import Archive
from crawler.pages.captures import Lost, Problem, end_of, payload_key, segment_key
from crawler.storage.kv import Batch, seal, unseal


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
        Lost(int.from_bytes(key[2:10], "big"), key, capture)
        for key, capture in archive.stored_captures()
        if key in gone or capture.refers_to in gone
    ]


def forget(archive: Archive, batch: Batch, lost: Sequence[Lost], damaged: Mapping[str, int]) -> None:
    """Delete, in `batch`, the keys of `lost` captures and the keys that depend on them.

    `damaged` maps segments to their lengths. Each of these segments stays committed up to its last whole capture.
    """
    for capture in lost:
        batch.delete(capture.key)
        key = payload_key(capture.capture.digest)
        value = archive.store.get(key)
        if value is not None and unseal(key, value) == capture.key:
            batch.delete(key)
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


def check(archive: Archive, *, tails: bool = True) -> Iterator[Problem]:
    """Read every committed record, verify its digests and follow every revisit; yield each problem found.

    Bytes that an erasure has listed are not read, because they will be overwritten when the archive is next
    opened.

    With `tails`, uncommitted bytes at the end of a segment are reported, too. They are cut off when the
    archive is opened for writing.
    """
    lengths = dict(archive.committed_lengths())
    for segment, length in lengths.items():
        try:
            yield from _check_segment(archive, segment, length, tails=tails)
        except ShippedError:  # the segment is not on this disk
            continue
        except DamageError as error:
            yield Problem(segment, str(error))
    for _, capture in archive.stored_captures():
        if end_of(capture) > lengths.get(capture.segment, 0):
            yield Problem(capture.url, f"its capture extends beyond the end of {capture.segment}")
        if capture.refers_to and archive.capture_at(capture.refers_to) is None:
            yield Problem(capture.url, "the response that it repeats is not in the store")


def _check_segment(archive: Archive, segment: str, length: int, *, tails: bool) -> Iterator[Problem]:
    end = 0
    path = segments.segment_path(archive.folder, segment)
    contents = segments.contents(
        path,
        bytes_max=reading.WHOLE_BYTES_MAX,
        end=-1 if tails else length,
        skipped=erasure.listed_ranges(archive.store, segment),
    )
    for offset, size, record in contents:
        if offset >= length:
            break
        end = offset + size
        if record == b"":
            continue
        where = f"{segment} at {offset}"
        if record is None:  # the record is too large to be held in memory
            place = segments.RecordPlace(segment, offset, size)
            _, problems = reading.checked_record(segments.member_pieces(archive.folder, place), where)
        else:
            problems = reading.check_digests(reading.parse_record(record, where))
        for message in problems:
            yield Problem(where, message)
    if end != length:
        yield Problem(segment, f"{length} bytes were committed, but whole records end at {end}")
