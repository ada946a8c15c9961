"""The torn tail that a power cut can leave in a store's newest log, found and cut; other damage is refused.

A record that was not written to its end was never acknowledged, so it may go. After
the same bytes in the middle of a log acknowledged records follow. So a tail is cut
only if no record begins after the first damage; everything else is refused.

An engine, opened with paranoid checks, finds wrong checksums by itself. It takes three
things for the end of the log, and drops what follows without a word: a fragment that
is longer than the rest of the file, a file that ends in the middle of a record, and
zeros for a header. One flipped bit of a length in the last block is enough. So headers
are checked before an engine sees them (10 ms a MB of small records). Every byte of a
log was flipped to see that nothing else is silent.

Format (leveldb/doc/log_format.md): blocks of 32 KiB; a record is one or more
fragments, each `crc32c (4, masked) length (2) type (1)` and its bytes, none
crossing the end of a block; types FULL, FIRST, MIDDLE, LAST = 1 to 4. A block's
last 6 bytes or fewer are zero.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from crawler.errors import DamageError
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


def ends_whole(data: bytes) -> bool:
    """Whether the headers of a log lead to the end of a record, and no byte follows; checksums are not looked at."""
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


def mend_logs(store: Path, remedy: str) -> str:
    """Cut the torn tail that the engine would pass over; what was done, "" if there is none.

    Raises:
        DamageError: what makes no record is no torn tail, or that of an older log.
        StoreError: the disk failed.
    """
    done = ""
    for log in _logs(store):
        if ends_whole(log.read_bytes()):
            continue
        done = cut_torn_tail(store)
        if not ends_whole(log.read_bytes()):
            raise DamageError(f"store {store}: {log.name} is damaged, and records follow; {remedy}")
    return done


def _logs(store: Path) -> list[Path]:
    """The logs of a store, the oldest first."""
    return sorted(store.glob("[0-9]*.log"), key=lambda path: int(path.stem))


def cut_torn_tail(store: Path) -> str:
    """Cut the torn tail of the newest log of a store; what was done, "" if it has none.

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
