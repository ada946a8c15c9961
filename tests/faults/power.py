"""A power cut of the whole process: what no sync had made safe is gone.

`python -m tests.faults.power RECORD BUG crawl ...` is the crawler (with a bug of
`planted.py` if BUG is not ""), but every file
and directory it syncs is written down in RECORD, with the length it had; also
the log of a LevelDB, which it syncs itself, after each synced batch. When
the process is dead, `cut_power` makes of the crawl directory what a disk may
hold then:

* a file keeps its synced length, and of what lies behind any number of bytes,
  right ones or garbage (the length reached the disk before the content);
* a file that was never synced is gone, empty, or garbage;
* a rename that no sync of the directory followed may be undone.

Tables and manifest of the store are left alone: the engine syncs them before it
counts on them.
"""

import json
import os
import random
import stat
import sys
from pathlib import Path
from typing import Any

from crawler.storage.engines import AUTO, chosen


class Recorder:
    """Writes down what was synced, a JSON line each."""

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
    """Let syncs be written down from now on."""
    recorder = Recorder(record)
    os.fsync = _recorded(os.fsync, recorder)
    os.fdatasync = _recorded(os.fdatasync, recorder)
    if chosen(os.environ.get("CRAWLER_STORE__ENGINE", AUTO)) == "leveldb":
        _plant_level(recorder)


def _plant_level(recorder: Recorder) -> None:
    """LevelDB syncs its log itself; a RocksDB's is synced as all other files are."""
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


class Durable:
    """What the record says: lengths by inode, and the names of files by directory."""

    def __init__(self, record: Path) -> None:
        self.lengths: dict[int, int] = {}
        self.names: dict[Path, dict[str, int]] = {}
        for line in record.read_text().splitlines():
            event = json.loads(line)
            if "directory" in event:
                self.names[Path(event["directory"])] = event["names"]
            else:
                path = Path(event["file"])
                self.lengths[event["inode"]] = event["length"]
                self.names.setdefault(path.parent, {})[path.name] = event["inode"]


def cut_power(record: Path, root: Path, rng: random.Random) -> int:
    """Leave in `root` what a power cut may leave; how many files are not what they were."""
    durable = Durable(record)
    changed = 0
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if path.parent.name == "store" and path.suffix != ".log":
            continue
        changed += _lose_tail(path, durable, rng)
        if path.exists():
            changed += _undo_rename(path, durable, rng)
    return changed


def _lose_tail(path: Path, durable: Durable, rng: random.Random) -> bool:
    """Cut a file back to what is safe, and something at random of what is not."""
    status = path.stat()
    length = durable.lengths.get(status.st_ino)
    if length is None and rng.random() < 0.5:
        path.unlink()
        return True
    length = length or 0
    tail = status.st_size - length
    if tail <= 0:
        return False
    kept = rng.choice([0, rng.randint(0, tail)])
    with path.open("r+b") as file:
        file.truncate(length + kept)
        if rng.random() < 0.5:
            file.seek(length)
            file.write(rng.choice([bytes(kept), rng.randbytes(kept)]))
    return True


def _undo_rename(path: Path, durable: Durable, rng: random.Random) -> bool:
    names = durable.names.get(path.parent, {})
    inode = path.stat().st_ino
    if names.get(path.name) == inode or rng.random() < 0.5:
        return False
    old = next((name for name, other in names.items() if other == inode), None)
    if old is None:
        return False
    path.rename(path.with_name(old))
    return True


if __name__ == "__main__":
    from tests.faults.planted import BUGS

    if sys.argv[2]:
        BUGS[sys.argv[2]]()
    plant(Path(sys.argv[1]))
    from crawler.cli import main

    raise SystemExit(main(sys.argv[3:]))
