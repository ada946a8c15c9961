"""Reads the gzip members of a WARC file that may be damaged: the intact members, and the gaps between them.

A broken record is replaced by an empty record of the same length, so that all other records keep their
offsets. If a gap is too small for an empty record, the next record is also replaced, and its page is fetched
again.
"""

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

from crawler import bus_errors
from crawler.errors import DamageError
from crawler.pages import reading
from crawler.pages.erased_bytes import filler

_MEMBER = re.compile(rb"\x1f\x8b\x08")
_CHUNK_BYTES = 1 << 16


def mended(path: Path, name: str, end: int) -> Iterator[tuple[int, int, reading.Record | None]]:
    """Yield (offset, length, record) of each member up to `end`. A broken member is blanked and yielded with None.

    Each overwritten member is synced. The iteration stops before `end` if no whole member follows.
    """
    if not end:
        return
    bus_errors.install()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as data:
        at = 0
        while at < end:
            if (whole := _member(data, at, name)) is not None:
                record, length = whole
                yield at, length, record
            else:
                blank = _blank(data, at, name)
                if blank is None:
                    return
                length = len(blank)
                file.seek(at)
                file.write(blank)
                file.flush()
                os.fsync(file.fileno())
                yield at, length, None
            at += length


def _member(data: mmap.mmap, at: int, name: str) -> tuple[reading.Record, int] | None:
    """Return the record at `at` and the length of its member; None if no complete, valid record begins there."""
    try:
        length = reading.member_length(_chunks(data, at), name)
        pieces = reading.expanded(_chunks(data, at, at + length), name)
        record, problems = reading.checked_record(pieces, name)
    except DamageError:
        return None
    return None if problems else (record, length)


def _chunks(data: mmap.mmap, at: int, end: int = 0) -> Iterator[bytes]:
    end = end or len(data)
    return (data[start : min(start + _CHUNK_BYTES, end)] for start in range(at, end, _CHUNK_BYTES))


def _blank(data: mmap.mmap, at: int, name: str) -> bytes | None:
    """Return the empty record that fills the gap from `at` to the next whole record; None if no whole record follows."""
    for begin, end in _whole_members(data, at + 1, name):
        blank = filler(begin - at) or filler(end - at)
        if blank is not None:
            return blank
    return None


def _whole_members(data: mmap.mmap, at: int, name: str) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) of each whole record after `at`."""
    for match in _MEMBER.finditer(data, at):
        if (whole := _member(data, match.start(), name)) is not None:
            yield match.start(), match.start() + whole[1]
