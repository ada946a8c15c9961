"""Overwrites records in WARC segments, in place, with empty records of the same length.

Every other record keeps its offset. So the offsets in the store and in exported indexes stay valid, and
readers that have the segment open are not disturbed. If several processes share a segment
(`pages/reshard.py`), it is overwritten for all these processes. The record that fills the gap is one gzip
member, so every reader of WARC files accepts the record. The blocks of this member are not compressed, so the
length of the record can be chosen exactly.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from crawler.pages import reading
from crawler.pages.segments import OPEN_SUFFIX
from crawler.pages.shipping import note_changes
from crawler.storage.faults import reach
from crawler.storage.files import opened, write_all

FILLER_ID = "<urn:uuid:00000000-0000-4000-8000-000000000000>"
_HEAD = (
    "WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: {identity}\r\n"
    "WARC-Date: 1970-01-01T00:00:00Z\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
)
_TAIL = b"\r\n\r\n"
_GZIP_HEAD = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"
_GZIP_TAIL_BYTES = 8
_BLOCK_HEAD_BYTES = 5
_BLOCK_BYTES_MAX = 65_535  # the maximum length of an uncompressed block (RFC 1951, 3.2.4)


def is_filler(record: reading.Record) -> bool:
    """Return whether a record is an empty record that replaced another record."""
    return record.fields.get("warc-record-id") == FILLER_ID


def filler(length: int) -> bytes | None:
    """Return a gzip member of `length` bytes that holds a WARC record of blanks, or None if `length` is too small.

    If there is no room for blocks that are not compressed, a comment in the gzip header fills the gap. This
    comment is always short, since some readers accept at most 512 bytes.
    """
    room = length - len(_GZIP_HEAD) - _GZIP_TAIL_BYTES
    blocks = max(1, -(-room // (_BLOCK_BYTES_MAX + _BLOCK_HEAD_BYTES)))
    record = _blank_record(room - blocks * _BLOCK_HEAD_BYTES)
    if record is None:
        return _compressed(length)
    parts = [_GZIP_HEAD]
    for number in range(blocks):
        piece = record[number * _BLOCK_BYTES_MAX : (number + 1) * _BLOCK_BYTES_MAX]
        last = number == blocks - 1
        parts += [struct.pack("<BHH", last, len(piece), len(piece) ^ 0xFFFF), piece]
    parts.append(struct.pack("<II", zlib.crc32(record), len(record) & 0xFFFFFFFF))
    return b"".join(parts)


def _compressed(length: int) -> bytes | None:
    record = _HEAD.format(identity=FILLER_ID, length=0).encode() + _TAIL
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = compressor.compress(record) + compressor.flush()
    padding = length - len(_GZIP_HEAD) - 1 - len(deflated) - _GZIP_TAIL_BYTES
    if padding < 0:
        return None
    head = _GZIP_HEAD[:3] + b"\x10" + _GZIP_HEAD[4:] + b" " * padding + b"\0"  # 0x10: FCOMMENT
    return head + deflated + struct.pack("<II", zlib.crc32(record), len(record))


def _blank_record(length: int) -> bytes | None:
    """Return a WARC record of exactly `length` bytes whose block is blanks, or None if `length` is too small."""
    # If the block grows from 9 to 10 bytes, for example, its length field needs one more digit, and the
    # record grows by two bytes. So some lengths of records are impossible with the shortest head; for these
    # lengths, `slack` makes the head one byte longer.
    for slack in ("", " "):
        identity = FILLER_ID + slack
        for digits in range(1, 12):
            block = length - len(_HEAD.format(identity=identity, length="")) - digits - len(_TAIL)
            if block >= 0 and len(str(block)) == digits:
                return _HEAD.format(identity=identity, length=block).encode() + b" " * block + _TAIL
    return None


def overwrite(folders: Iterable[Path], ranges: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Overwrite and sync the ranges (offset, length) of each segment, in every one of `folders` that holds it.

    It does no harm to repeat this after a crash.

    Raises:
        OSError: the disk failed.
    """
    done: set[tuple[int, int]] = set()  # a file that processes share by a hard link is written only once
    folders = list(folders)
    for folder in folders:
        note_changes(folder, ranges)
    for segment, places in ranges.items():
        for path in (folder / f"{segment}{suffix}" for folder in folders for suffix in ("", OPEN_SUFFIX)):
            with suppress(FileNotFoundError), opened(path, os.O_WRONLY) as descriptor:
                found = os.fstat(descriptor)
                if (found.st_dev, found.st_ino) not in done:
                    done.add((found.st_dev, found.st_ino))
                    _overwrite_file(descriptor, places, found.st_size)


def _overwrite_file(descriptor: int, places: Sequence[tuple[int, int]], size: int) -> None:
    for offset, length in places:
        data = filler(length)
        assert data is not None, f"a record of {length} bytes"
        if offset + length <= size:
            os.lseek(descriptor, offset, os.SEEK_SET)
            half = length // 2
            write_all(descriptor, data[:half])
            reach("erasing")
            write_all(descriptor, data[half:])
    os.fsync(descriptor)
