"""Finds and cuts the torn tail that a power cut can leave in a store's newest log, and refuses other damage.

A record that was not written to its end was never acknowledged, so it may be dropped. If the damage is in the
middle of a log, acknowledged records follow the damage. So a tail is cut only if no record begins after the
first damage. A log with other damage is refused.

An engine that is opened with paranoid checks finds wrong checksums itself. But such an engine mistakes three
kinds of damage for the end of the log: a fragment that is longer than the rest of the file, a file that ends
in the middle of a record, and zeros in place of a header. After such damage, the engine silently drops the
records that follow. A single flipped bit in the last block causes such damage if the bit belongs to the
length of a fragment. So the headers are checked before an engine opens the log (10 ms per MB of small
records). A test that flipped every byte of a log found no other silent loss.

Format (leveldb/doc/log_format.md): a log consists of blocks of 32 KiB. A record is one or more fragments,
each with a header `crc32c (4, masked) length (2) type (1)`, followed by the bytes of the fragment. No
fragment crosses the end of a block. The types FULL, FIRST, MIDDLE and LAST are 1 to 4. If 6 or fewer bytes
are left in a block, these bytes are zero.
"""

import functools
import struct
from pathlib import Path
from typing import NamedTuple

from crawler.errors import DamageError
from crawler.storage.files import cut

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4
# util/crc32c.h: data may contain crcs, so a crc is masked before it is stored: it is rotated, and this number
# is added
_MASK_DELTA = 0xA282EAD8


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


def masked(crc: int) -> int:
    """Return a checksum in the masked form that LevelDB stores."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


class Fragment(NamedTuple):
    """A complete fragment of a record: its type and the offset of its end."""

    kind: int
    end: int


def fragment_at(data: bytes, offset: int) -> Fragment | None:
    """Return the fragment whose header is at `offset`; None if the fragment is incomplete or its checksum is wrong."""
    block_end = min(len(data), (offset // BLOCK_BYTES + 1) * BLOCK_BYTES)
    begin = offset + _HEADER.size
    if begin > block_end:
        return None
    crc, length, kind = _HEADER.unpack_from(data, offset)
    end = begin + length
    if not _FULL <= kind <= _LAST or end > block_end or masked(crc32c(data[begin - 1 : end])) != crc:
        return None
    return Fragment(kind, end)


def _next_header(offset: int) -> int:
    """Return the offset of the header after a fragment that ends at `offset`."""
    left = BLOCK_BYTES - offset % BLOCK_BYTES
    return offset + left if left < _HEADER.size else offset


def whole_length(data: bytes) -> int:
    """Return the total length of the complete records at the start of a log, in bytes."""
    whole = offset = 0
    while (fragment := fragment_at(data, offset)) is not None:
        offset = _next_header(fragment.end)
        if fragment.kind in (_FULL, _LAST):
            whole = fragment.end
    return whole


def _damaged_at(data: bytes) -> int:
    """Return the offset at which the first damaged fragment begins."""
    offset = 0
    while (fragment := fragment_at(data, offset)) is not None:
        offset = _next_header(fragment.end)
    return offset


def ends_whole(data: bytes) -> bool:
    """Return whether a reader that follows the headers ends exactly after a complete record.

    Checksums are ignored.
    """
    offset = end = 0
    kind = _LAST
    while offset + _HEADER.size <= len(data):
        block_end = (offset // BLOCK_BYTES + 1) * BLOCK_BYTES
        _, length, kind = _HEADER.unpack_from(data, offset)
        end = offset + _HEADER.size + length
        if not _FULL <= kind <= _LAST or end > min(block_end, len(data)):
            return False
        offset = _next_header(end)
    return kind in (_FULL, _LAST) and end <= len(data) <= offset


def record_begins_after(data: bytes, damage: int) -> bool:
    """Return whether a valid FULL or FIRST fragment follows the offset `damage`, in the same block or a later one."""
    block_end = min(len(data), (damage // BLOCK_BYTES + 1) * BLOCK_BYTES)
    if any(_begins(data, offset) for offset in range(damage + 1, block_end)):
        return True
    return any(_block_holds_one(data, block) for block in range(block_end, len(data), BLOCK_BYTES))


def _begins(data: bytes, offset: int) -> bool:
    fragment = fragment_at(data, offset)
    return fragment is not None and fragment.kind in (_FULL, _FIRST)


def _block_holds_one(data: bytes, offset: int) -> bool:
    while (fragment := fragment_at(data, offset)) is not None:
        if fragment.kind in (_FULL, _FIRST):
            return True
        offset = fragment.end
    return False


def mend_logs(store: Path, remedy: str) -> str:
    """Cut the torn tail that the engine would silently skip; return a description, or "" if there was none.

    Raises:
        DamageError: records follow the damage, or the damage is in an older log.
        StoreError: the disk failed.
    """
    done = ""
    for log in _logs(store):
        if ends_whole(log.read_bytes()):
            continue
        done = cut_torn_tail(store)
        if not ends_whole(log.read_bytes()):
            raise DamageError(f"store {store}: {log.name} is damaged before its last records; {remedy}")
    return done


def _logs(store: Path) -> list[Path]:
    return sorted(store.glob("[0-9]*.log"), key=lambda path: int(path.stem))


def cut_torn_tail(store: Path) -> str:
    """Cut the torn tail of the newest log of a store; return a description, or "" if there is no such tail.

    Raises:
        StoreError: the disk failed.
    """
    logs = _logs(store)
    if not logs:
        return ""
    data = logs[-1].read_bytes()
    whole, damage = whole_length(data), _damaged_at(data)
    if whole == len(data) or record_begins_after(data, damage):
        return ""
    return f"{logs[-1].name}: {cut(logs[-1], whole)} bytes of a torn tail cut off; {whole} bytes stay"
