"""The torn tail that a power cut can leave in LevelDB's newest log, found and cut.

LevelDB, opened with `paranoid_checks`, refuses a log whose last bytes are wrong
because the length of the file reached the disk before its content. Such a record
was never acknowledged, so it may go. After the same bytes in the middle of a log
acknowledged records follow. So a tail is cut only if no record begins after the
first damage; everything else stays refused.

Format (leveldb/doc/log_format.md): blocks of 32 KiB; a record is one or more
fragments, each `crc32c (4, masked) length (2) type (1)` and its bytes, none
crossing the end of a block; types FULL, FIRST, MIDDLE, LAST = 1 to 4. A block's
last 6 bytes or fewer are zero.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from crawler.storage.files import cut

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4
_MASK_DELTA = 0xA282EAD8  # util/crc32c.h: a crc of bytes that hold crcs is stored rotated and shifted


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), about 10 MB a second: enough for a log of a few MB that is read once."""
    value = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """As LevelDB stores it."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


class Fragment(NamedTuple):
    """A whole fragment: its type and where it ends."""

    kind: int
    end: int


def fragment_at(data: bytes, offset: int) -> Fragment | None:
    """The fragment whose header begins at `offset`; None if there is no whole, right one."""
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
    """Where the header behind a fragment that ends at `offset` is."""
    left = BLOCK_BYTES - offset % BLOCK_BYTES
    return offset + left if left < _HEADER.size else offset


def whole_length(data: bytes) -> int:
    """The length of the whole records at the start of a log."""
    whole = offset = 0
    while (fragment := fragment_at(data, offset)) is not None:
        offset = _next_header(fragment.end)
        if fragment.kind in (_FULL, _LAST):
            whole = fragment.end
    return whole


def _damaged_at(data: bytes) -> int:
    """Where the first fragment should be that is none."""
    offset = 0
    while (fragment := fragment_at(data, offset)) is not None:
        offset = _next_header(fragment.end)
    return offset


def headers_are_sound(data: bytes) -> bool:
    """Whether each fragment of a log has a type and a length that one can have; checksums are not looked at.

    A header or a fragment that the end of the file cuts short is sound.
    """
    offset = 0
    while offset + _HEADER.size <= len(data):
        block_end = (offset // BLOCK_BYTES + 1) * BLOCK_BYTES
        if block_end - offset < _HEADER.size:
            offset = block_end
            continue
        _, length, kind = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size + length
        if not _FULL <= kind <= _LAST or offset > block_end:
            return False
    return True


def record_begins_after(data: bytes, damage: int) -> bool:
    """Whether a right FULL or FIRST fragment stands behind `damage`, in its block or a later one."""
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


def cut_torn_tail(store: Path) -> str:
    """Cut the torn tail of the newest log of a LevelDB; what was done, "" if it has none.

    Raises:
        StoreError: the disk failed.
    """
    logs = sorted(store.glob("[0-9]*.log"), key=lambda path: int(path.stem))
    if not logs:
        return ""
    data = logs[-1].read_bytes()
    whole, damage = whole_length(data), _damaged_at(data)
    if damage >= len(data) or record_begins_after(data, damage):
        return ""
    return f"{logs[-1].name}: {cut(logs[-1], whole)} bytes of a torn tail cut off; {whole} bytes stay"
