"""Test that `rocks_store.py` itself syncs the logs, because rocksdict would hold the interpreter lock during a sync."""

import contextlib
import os
from pathlib import Path

import pytest

from crawler.storage.engines import open_store


def logs_in(directory: Path) -> dict[Path, os.stat_result]:
    """Return the existing logs. RocksDB removes old logs in the background, even between two calls."""
    found = {}
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.stat()
    return found


def test_a_synced_write_syncs_all_logs_that_hold_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier writes that were not synced must survive a power cut too, whichever log they are in."""
    synced: dict[int, int] = {}
    real_sync, real_fsync = os.fdatasync, os.fsync
    names: list[set[str]] = []

    def note(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size
        real_sync(descriptor)

    def note_names(descriptor: int) -> None:
        names.append(set(os.listdir(tmp_path)))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note_names)
    store = open_store(tmp_path, "rocksdict", write_buffer_bytes=64 << 10)
    logs = set()
    for number in range(60):
        batch = store.batch(sync=number % 7 == 6)
        batch.put(b"k%d" % number, os.urandom(5000))
        store.write(batch)
        there = logs_in(tmp_path)
        logs |= {path.name for path in there}
        if number % 7 == 6:
            newest = max(there)
            assert newest.name in names[-1], "the name of the log is not on the disk"
            assert all(synced[status.st_ino] == status.st_size for status in there.values() if status.st_size)
    store.close()
    assert len(logs) > 3, "the log was never changed"
