"""Simulate a power cut, which may lose all data that was not synced.

`python -m tests.faults.power RECORD BUG crawl ...` runs the crawler (with a bug of `planted.py` if BUG is not
""). Every file and directory that the crawler syncs is recorded in RECORD, with its length at that time. The
log of LevelDB is recorded after each synced batch, because LevelDB syncs the log itself. When the process is
dead, `cut_power` changes the crawl directory to a state that a disk may have after a power cut:

* a file keeps its synced length, followed by any number of the later bytes, either
  intact or garbage (the length reached the disk before the content);
* a file that was never synced is missing, empty, or garbage;
* a rename that was not followed by a sync of the directory may be undone.

Tables and manifest of the store are left unchanged, because the engine syncs them before it relies on them. LevelDB
syncs the directory together with the manifest, so a log that the manifest names is never missing.
"""

import json
import os
import random
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crawler.lab.cluster.disk import SyncedFiles
from crawler.storage.engines import AUTO, chosen
from crawler.storage.faults import reach
from crawler.storage.manifest import read_manifest


class Recorder:
    """Records synced files and directories as JSON lines."""

    def __init__(self, record: Path) -> None:
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, path: str, inode: int, length: int) -> None:
        self._write({"file": path, "inode": inode, "length": length})

    def note_directory(self, path: str) -> None:
        names = {entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file()}
        self._write({"directory": path, "names": names})

    def _write(self, event: dict[str, Any]) -> None:
        os.write(self._record, json.dumps(event).encode() + b"\n")


def plant(record: Path) -> None:
    """Record all syncs of this process and its forks from now on. A fault kills all these processes."""
    recorder = Recorder(record)
    reach.visited = _power_switch(os.getpid())
    os.fsync = _recorded(os.fsync, recorder)
    os.fdatasync = _recorded(os.fdatasync, recorder)
    if chosen(os.environ.get("CRAWLER_STORE__ENGINE", AUTO)) == "leveldb":
        _plant_level(recorder)


def _power_switch(first: int) -> Callable[[str], None]:
    """Return a function that kills the process and its children at the point that `CRAWLER_FAULT` names."""
    fault, _, count = os.environ.get("CRAWLER_FAULT", "").partition(":")
    left = int(count or "1")

    def visited(point: str) -> None:
        nonlocal left
        left -= point == fault
        if not left:
            kill_all(sorted(family(first), key=lambda each: each == os.getpid()))  # itself last

    return visited


def family(first: int) -> list[int]:
    """Return the ids of a process and its children."""
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, children)]


def kill_all(running: Sequence[int]) -> None:
    """Kill processes with SIGKILL in this order, unless they have ended."""
    for each in running:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _plant_level(recorder: Recorder) -> None:
    """Record the syncs that LevelDB makes of its log. A RocksDB log is synced like any other file."""
    from crawler.storage.level_store import LevelStore

    batch, write = LevelStore.batch, LevelStore.write
    synced: dict[int, bool] = {}

    def begin(self: LevelStore, *, sync: bool = True) -> Any:
        begun = batch(self, sync=sync)
        synced[id(begun)] = sync
        return begun

    def write_and_note(self: LevelStore, begun: Any) -> None:
        write(self, begun)
        if synced.pop(id(begun)):
            log = max(self.path.glob("*.log"))
            recorder.note(str(log), log.stat().st_ino, log.stat().st_size)

    LevelStore.batch = begin  # type: ignore[method-assign]
    LevelStore.write = write_and_note  # type: ignore[method-assign]


def _recorded(sync: Any, recorder: Recorder) -> Any:
    def sync_and_note(descriptor: int) -> None:
        before = os.fstat(descriptor)
        sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(before.st_mode):
            recorder.note_directory(path)
        else:
            recorder.note(path, before.st_ino, before.st_size)

    return sync_and_note


def cut_power(record: Path, root: Path, rng: random.Random) -> int:
    """Change the files in `root` as a power cut might. Return the number of changed files."""
    synced = SyncedFiles()
    for line in record.read_text().splitlines():
        event = json.loads(line)
        if "directory" in event:
            synced.names[event["directory"]] = event["names"]
        else:
            synced.note(event["file"], event["inode"], event["length"])
    for manifest in root.rglob("store/MANIFEST-*"):
        log = manifest.with_name(f"{read_manifest(manifest.read_bytes()).log:06d}.log")
        if log.exists() and (inode := log.stat().st_ino) not in synced.lengths:
            synced.note(str(log), inode, 0)
    return synced.lose_power(
        root, rng, spared=lambda path: path.parent.name == "store" and path.suffix != ".log"
    )


if __name__ == "__main__":
    if sys.argv[2]:
        from tests.faults.planted import plant as plant_bug

        plant_bug(sys.argv[2])
    plant(Path(sys.argv[1]))
    from crawler.cli import main

    raise SystemExit(main(sys.argv[3:]))
