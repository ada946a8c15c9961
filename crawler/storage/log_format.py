"""Reads the format of LevelDB's logs and manifests, which RocksDB uses, too.

Format (leveldb/doc/log_format.md): a file consists of blocks of 32 KiB. A record is one or more fragments, each
with a header `crc32c (4, masked) length (2) type (1)`, followed by the bytes of the fragment. No fragment crosses
the end of a block. The types FULL, FIRST, MIDDLE and LAST are 1 to 4. If 6 or fewer bytes are left in a block,
these bytes are zero.
"""

import functools
import struct
from collections.abc import Iterator
from typing import NamedTuple

BLOCK_BYTES = 32 << 10
FULL, FIRST, LAST = 1, 2, 4
_HEADER = struct.Struct("<IHB")
# util/crc32c.h: data may contain crcs, so a crc is masked before it is stored: it is rotated, and this number
# is added
_MASK_DELTA = 0xA282EAD8


class Fragment(NamedTuple):
    """A fragment of a record: its type, and the offsets at which its bytes begin and end."""

    kind: int
    begin: int
    end: int

    @property
    def ends_record(self) -> bool:
        return self.kind in (FULL, LAST)


@functools.cache
def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli).

    At about 10 MB/s, this is fast enough for a log of a few MB that is read once.
    """
    value = 0xFFFFFFFF
    table = _crc32c_table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    """Return a checksum in the masked form that LevelDB stores."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def fragment_at(data: bytes, offset: int, *, verify: bool = True) -> Fragment | None:
    """Return the fragment whose header is at `offset`.

    Return None if the fragment is incomplete or, with `verify`, if its checksum is wrong.
    """
    block_end = min(len(data), (offset // BLOCK_BYTES + 1) * BLOCK_BYTES)
    begin = offset + _HEADER.size
    if begin > block_end:
        return None
    crc, length, kind = _HEADER.unpack_from(data, offset)
    end = begin + length
    if not FULL <= kind <= LAST or end > block_end:
        return None
    if verify and _masked(crc32c(data[begin - 1 : end])) != crc:
        return None
    return Fragment(kind, begin, end)


def next_header(end: int) -> int:
    """Return the offset of the header after a fragment that ends at `end`."""
    left = BLOCK_BYTES - end % BLOCK_BYTES
    return end + left if left < _HEADER.size else end


def fragments(data: bytes, *, verify: bool = True) -> Iterator[Fragment]:
    """Yield the fragments of a file, up to the first one that `fragment_at` does not return."""
    offset = 0
    while (fragment := fragment_at(data, offset, verify=verify)) is not None:
        yield fragment
        offset = next_header(fragment.end)


def whole_records(data: bytes) -> Iterator[bytes]:
    """Yield the complete records of a file. Checksums are not verified; LevelDB does that."""
    parts = []
    for fragment in fragments(data, verify=False):
        parts.append(data[fragment.begin : fragment.end])
        if fragment.ends_record:
            yield b"".join(parts)
            parts = []
