"""Finds losses in LevelDB's own bookkeeping that LevelDB does not notice.

`CURRENT` names the manifest. The manifest is a log of edits that name the live
tables and the oldest live log. LevelDB treats two losses as normal:

* Without CURRENT it creates an empty store in the same folder and deletes the tables
  there.
* It reads a truncated manifest to its end, which gives an earlier state, and deletes
  later tables. A crash can also leave a truncated manifest, if it happens while an edit is appended. To
  distinguish damage from a crash, this module checks the oldest live log that the truncated manifest names.
  After a crash, this log still exists, because a log is deleted only after the edit that replaces it was
  synced. If the log is missing, the manifest has lost edits.

This module finds both losses before LevelDB opens the folder.

Format (leveldb/doc/log_format.md, db/version_edit.cc): the manifest is framed like a log, and each edit is a
sequence of fields. Each field is a tag, followed by numbers (varints) or byte strings (each preceded by its
length).
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
# Maps each tag of an edit to the fields that follow it: n is a number, s is a string.
_FIELDS = {1: "s", 2: "n", 3: "n", 4: "n", 5: "ns", 6: "nn", 7: "nnnss", 9: "n"}
_LOG_NUMBER, _NEXT_FILE = 2, 3
# The fields that precede the tables in an edit of LevelDB or RocksDB: comparator, log, previous log, next file,
# maximum column family, smallest log to keep, last sequence, and the name of the database.
BEFORE_TABLES = {1: "s", 2: "n", 3: "n", 4: "n", 9: "n", 10: "n", 203: "n", 0x2001: "s"}


def lost_bookkeeping(store: Path) -> str:
    """Return a description of the loss in LevelDB's bookkeeping; "" if there is none, or if LevelDB finds it itself."""
    current = store / "CURRENT"
    if not current.exists():
        return without_current(store, ("ldb", "log"))
    manifest = store / current.read_text(errors="replace").strip()
    if not manifest.is_file():
        return ""
    number = oldest_log(manifest.read_bytes())
    if not number or (store / f"{number:06d}.log").exists():
        return ""
    return f"{manifest.name} ends too early: it names {number:06d}.log, which is missing"


def without_current(store: Path, kinds: tuple[str, ...]) -> str:
    """Return a message about a store that has files but no CURRENT, naming one of the files; "" if it has no files."""
    left = next((path.name for kind in kinds for path in store.glob(f"*.{kind}")), "")
    return f"CURRENT is missing beside {left}" if left else ""


def oldest_log(manifest: bytes) -> int:
    """Return the number of the oldest live log; 0 if there is none."""
    number = 0
    for edit in edits(manifest, _FIELDS):
        number = edit.get(_LOG_NUMBER, number)
    return number


def next_file(manifest: bytes) -> int:
    """Return the next free file number in a manifest of LevelDB or RocksDB.

    The tables in the manifest have lower numbers.
    """
    number = 0
    for edit in edits(manifest, BEFORE_TABLES):
        number = edit.get(_NEXT_FILE, number)
    return number


def edits(manifest: bytes, fields: Mapping[int, str]) -> Iterator[dict[int, int]]:
    """Yield a dictionary for each edit. It maps each tag to the first number of the tag's field.

    An edit is read only up to the first tag that is not in `fields`.
    """
    return (dict(_fields(edit, fields)) for edit in whole_records(manifest))


def whole_records(data: bytes) -> Iterator[bytes]:
    """Yield the complete records of a file that is framed like a log.

    Checksums are not verified; LevelDB does that.
    """
    offset, parts = 0, []
    while offset + _HEADER.size <= len(data):
        left = BLOCK_BYTES - offset % BLOCK_BYTES
        if left < _HEADER.size:
            offset += left
            continue
        _, length, kind = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        if not _FULL <= kind <= _LAST or offset + length > len(data):
            return
        parts.append(data[offset : offset + length])
        offset += length
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []


def _fields(edit: bytes, fields: Mapping[int, str]) -> Iterator[tuple[int, int]]:
    """Yield (tag, first number) of each field. Stop where the edit is malformed."""
    offset = 0
    while offset < len(edit):
        tag, offset = _varint(edit, offset)
        values = []
        for kind in fields.get(tag, ""):
            value, offset = _varint(edit, offset)
            values.append(value)
            if kind == "s":
                offset += value
        if not values:
            return
        yield tag, values[0]


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the number at `offset`, and the offset after the number."""
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, offset
