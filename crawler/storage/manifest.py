"""Losses of LevelDB's own bookkeeping that LevelDB does not notice.

`CURRENT` names the manifest. The manifest is a log of edits that name the live
tables and the oldest live log. LevelDB takes two losses for normal:

* Without CURRENT it begins an empty store in the same folder and deletes the tables
  there.
* A manifest that was cut short is read to its end: an earlier state, and later
  tables are deleted. A crash while an edit is appended leaves the same, but then the
  log that the earlier state names still exists: a log is deleted only after the edit
  that passes over it was synced.

Both were reproduced, and are found here before LevelDB opens the folder.

Format (leveldb/doc/log_format.md, db/version_edit.cc): the manifest is framed
like a log; an edit is a row of fields, each a tag and its numbers (varints) or
byte strings (with a length in front).
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
# The fields of an edit behind each tag: n = a number, s = a string.
_FIELDS = {1: "s", 2: "n", 3: "n", 4: "n", 5: "ns", 6: "nn", 7: "nnnss", 9: "n"}
_LOG_NUMBER = 2


def lost_bookkeeping(store: Path) -> str:
    """What is missing of a LevelDB's bookkeeping, "" if nothing is or LevelDB finds it itself."""
    current = store / "CURRENT"
    if not current.exists():
        return without_current(store, ("ldb", "log"))
    manifest = store / current.read_text(errors="replace").strip()
    if not manifest.is_file():
        return ""
    number = _oldest_log(manifest.read_bytes())
    if not number or (store / f"{number:06d}.log").exists():
        return ""
    return f"{manifest.name} ends too early: it names {number:06d}.log, which is gone"


def without_current(store: Path, kinds: tuple[str, ...]) -> str:
    """What is left of a store without CURRENT: "" if nothing is."""
    left = next((path.name for kind in kinds for path in store.glob(f"*.{kind}")), "")
    return f"CURRENT is missing beside {left}" if left else ""


def _oldest_log(manifest: bytes) -> int:
    """The oldest log that counts; 0 if there is none."""
    number = 0
    for edit in edits(manifest, _FIELDS):
        number = edit.get(_LOG_NUMBER, number)
    return number


def edits(manifest: bytes, fields: Mapping[int, str]) -> Iterator[dict[int, int]]:
    """Each edit as {tag: first number} of its fields up to one that is not among `fields`."""
    return (dict(_fields(edit, fields)) for edit in whole_records(manifest))


def whole_records(data: bytes) -> Iterator[bytes]:
    """The whole records of a file that is framed like a log; checksums are LevelDB's business."""
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
    """(tag, first number) of each field; ends where an edit is no edit."""
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
    """The number at `offset`, and where it ends."""
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, offset
