"""Finds losses in RocksDB's own bookkeeping that RocksDB does not notice.

RocksDB can have the same two losses as LevelDB (`manifest.py`). Without `CURRENT`, RocksDB creates an empty
store. A truncated manifest gives an earlier state. `manifest.py` recognizes a truncated manifest by the
oldest log that the manifest names, which does not exist any more. In RocksDB, a missing oldest log proves
nothing, because even an intact manifest of RocksDB may name an oldest log that RocksDB never created. If the
named log does not exist, the oldest existing log must begin where the manifest ends:

    it has records    the first one is write S + 1, where S is the last write in tables when the log was named
    it is empty       its number was allocated before the end of the manifest (a clean close leaves such a log)

A store writes a record as soon as it is open (`RocksStore._mark_opening`), so a
store that was not closed has a log with a record.

Format (RocksDB db/version_edit.cc, db/log_format.h, db/write_batch.cc): the manifest and the logs are framed
like LevelDB's. In an edit, the numbers precede the tables. A record of a log begins with the sequence number
(8 bytes, little-endian) of its first write.
"""

from pathlib import Path
from typing import NamedTuple

from crawler.storage.manifest import BEFORE_TABLES, edits, whole_records, without_current

_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE = 2, 3, 4
# number of bytes of a log that are read; the record of `_mark_opening` has 13 bytes
_FIRST_RECORD_MAX = 64 << 10


def lost_bookkeeping(store: Path) -> str:
    """Return a description of the loss in RocksDB's bookkeeping; "" if there is none, or if RocksDB finds it itself."""
    current = store / "CURRENT"
    if not current.exists():
        return without_current(store, ("sst", "log"))
    manifest = store / current.read_text(errors="replace").strip()
    if not manifest.is_file():
        return ""
    known = _known(manifest.read_bytes())
    if (store / f"{known.log:06d}.log").exists():
        return ""
    log, begins = _oldest_log(store, known.log)
    if not begins and next(store.glob("*.sst"), None) is None:
        return ""  # without a log or a table there is nothing to lose
    if begins == known.sequence + 1 or (not begins and log < known.next_file):
        return ""
    return f"{manifest.name} ends too early: it does not mention the writes before {log:06d}.log"


class _Known(NamedTuple):
    """The state at the end of a manifest."""

    log: int = 0  # the oldest live log
    # when `log` became the oldest live log, all writes up to this number were already in tables
    sequence: int = 0
    next_file: int = 0


def _known(manifest: bytes) -> _Known:
    known = _Known()
    for edit in edits(manifest, BEFORE_TABLES):
        if _LOG_NUMBER in edit:
            known = known._replace(log=edit[_LOG_NUMBER], sequence=edit.get(_LAST_SEQUENCE, 0))
        known = known._replace(next_file=edit.get(_NEXT_FILE, known.next_file))
    return known


def _oldest_log(store: Path, least: int) -> tuple[int, int]:
    """Return (number of the oldest log from `least` on, number of its first write); (0, 0) if there is no such log."""
    numbers = sorted(int(path.stem) for path in store.glob("[0-9]*.log"))
    oldest = next((number for number in numbers if number >= least), 0)
    if not oldest:
        return 0, 0
    with (store / f"{oldest:06d}.log").open("rb") as file:
        first = next(whole_records(file.read(_FIRST_RECORD_MAX)), b"")
    return oldest, int.from_bytes(first[:8], "little")
