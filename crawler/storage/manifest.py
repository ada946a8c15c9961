"""Finds losses in an engine's own bookkeeping that the engine does not notice.

`CURRENT` names the manifest. The manifest is a log of edits that name the live tables and the oldest live log.
LevelDB and RocksDB treat two losses as normal:

* Without CURRENT they create an empty store in the same folder; LevelDB also deletes the tables there.
* They read a truncated manifest to its end, which gives an earlier state; LevelDB also deletes later tables. A
  crash can also leave a truncated manifest, if it happens while an edit is appended. To distinguish damage from a
  crash, this module checks the oldest live log that the truncated manifest names.

After a crash, LevelDB's oldest live log still exists, because a log is deleted only after the edit that replaces
it was synced. If the log is missing, the manifest has lost edits. In RocksDB, a missing oldest log proves
nothing, because even an intact manifest may name an oldest log that RocksDB never created. If the named log does
not exist, the oldest existing log must begin where the manifest ends:

    it has records    the first one is write S + 1, where S is the last write in tables when the log was named
    it is empty       its number was allocated before the end of the manifest (a clean close leaves such a log)

A store writes a record as soon as it is open (`RocksStore._mark_opening`), so a store that was not closed has a
log with a record.

Format (LevelDB db/version_edit.cc; RocksDB db/version_edit.cc, db/write_batch.cc): the manifest is framed like a
log (`log_format.py`), and each edit is a sequence of fields, of which the numbers precede the tables. Each field
is a tag, followed by numbers (varints) or byte strings (each preceded by its length). A record of RocksDB's log
begins with the sequence number (8 bytes, little-endian) of its first write.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.storage.log_format import whole_records

_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE = 2, 3, 4
# The fields that precede the tables in an edit: comparator, log, next file, last sequence, previous log, smallest
# log to keep, maximum column family, and the name of the database. n is a number, s is a string.
_BEFORE_TABLES = {1: "s", 2: "n", 3: "n", 4: "n", 9: "n", 10: "n", 203: "n", 0x2001: "s"}
# number of bytes of a log that are read; the record of `_mark_opening` has 13 bytes
_FIRST_RECORD_MAX = 64 << 10


class Bookkeeping(NamedTuple):
    """The state at the end of a manifest. All tables have numbers below `next_file`, the next free file number."""

    log: int = 0  # the oldest live log; 0 if there is none
    # when `log` became the oldest live log, all writes up to this number were already in tables
    sequence: int = 0
    next_file: int = 0


def read_manifest(manifest: bytes) -> Bookkeeping:
    found = Bookkeeping()
    for edit in map(dict, map(_fields, whole_records(manifest))):
        if _LOG_NUMBER in edit:
            found = found._replace(log=edit[_LOG_NUMBER], sequence=edit.get(_LAST_SEQUENCE, 0))
        found = found._replace(next_file=edit.get(_NEXT_FILE, found.next_file))
    return found


def lost_by_leveldb(store: Path) -> str:
    """Return a description of the loss in LevelDB's bookkeeping; "" if there is none, or if LevelDB finds it itself."""
    return _lost(store, "ldb", _missing_log)


def lost_by_rocksdb(store: Path) -> str:
    """Return a description of the loss in RocksDB's bookkeeping; "" if there is none, or if RocksDB finds it itself."""
    return _lost(store, "sst", _missing_writes)


def _lost(store: Path, table: str, missing: Callable[[Path, Bookkeeping], str]) -> str:
    current = store / "CURRENT"
    if not current.exists():
        left = next((path.name for kind in (table, "log") for path in store.glob(f"*.{kind}")), "")
        return f"CURRENT is missing beside {left}" if left else ""
    manifest = store / current.read_text(errors="replace").strip()
    if not manifest.is_file():
        return ""
    found = read_manifest(manifest.read_bytes())
    if _log(store, found.log).exists() or not (what := missing(store, found)):
        return ""
    return f"{manifest.name} ends too early: {what}"


def _missing_log(store: Path, found: Bookkeeping) -> str:
    return f"it names {_log(store, found.log).name}, which is missing" if found.log else ""


def _missing_writes(store: Path, found: Bookkeeping) -> str:
    log, begins = _oldest_log(store, found.log)
    if not begins and next(store.glob("*.sst"), None) is None:
        return ""  # without a log or a table there is nothing to lose
    if begins == found.sequence + 1 or (not begins and log < found.next_file):
        return ""
    return f"it does not mention the writes before {_log(store, log).name}"


def _oldest_log(store: Path, least: int) -> tuple[int, int]:
    """Return (number of the oldest log from `least` on, number of its first write); (0, 0) if there is no such log."""
    numbers = sorted(int(path.stem) for path in store.glob("[0-9]*.log"))
    oldest = next((number for number in numbers if number >= least), 0)
    if not oldest:
        return 0, 0
    with _log(store, oldest).open("rb") as file:
        first = next(whole_records(file.read(_FIRST_RECORD_MAX)), b"")
    return oldest, int.from_bytes(first[:8], "little")


def _log(store: Path, number: int) -> Path:
    return store / f"{number:06d}.log"


def _fields(edit: bytes) -> Iterator[tuple[int, int]]:
    """Yield (tag, first number) of each field before the tables. Stop where the edit is malformed."""
    offset = 0
    while offset < len(edit):
        tag, offset = _varint(edit, offset)
        kind = _BEFORE_TABLES.get(tag)
        if kind is None:
            return
        value, offset = _varint(edit, offset)
        if kind == "s":
            offset += value
        yield tag, value


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
