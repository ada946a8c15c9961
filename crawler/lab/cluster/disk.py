"""Simulates disks that can lose power: a store in memory, and real files with a record of their synced parts.

    StoreDisk      a power cut may lose batches since the last synced one, later ones first
    SyncedFiles    records the synced length of each inode and the synced names of each directory

After a power cut, a file still has its synced bytes, and any number of the bytes after them, correct or
garbage. A file that was never synced is deleted or has a random length. A rename may be undone if the
directory was not synced after it. `tests/faults/power.py` simulates power cuts of real processes.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

from crawler.storage.kv import MemoryBatch, MemoryStore, Operation


class StoreDisk(MemoryStore):
    """The data of a store on a disk. For each unsynced batch, it keeps the operations that undo the batch."""

    def __init__(self, data: dict[bytes, bytes] | None = None) -> None:
        super().__init__(data)
        self.undo: list[list[Operation]] = []

    def write(self, batch: MemoryBatch) -> None:
        back = self.apply(batch.operations)
        if batch.sync:
            self.undo.clear()
        else:
            self.undo.append(back)

    def lose_power(self, rng: random.Random) -> int:
        """Undo some of the last unsynced batches; return the number of batches undone."""
        count = rng.randint(0, len(self.undo))
        for _ in range(count):
            self.apply(self.undo.pop())
        self.undo.clear()
        return count

    def copy(self) -> "StoreDisk":
        """Return a copy, for another disk."""
        return StoreDisk(self._data)


class SyncedFiles:
    """Records which parts of a machine's files are synced."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self.names: dict[str, dict[str, int]] = {}

    def file_synced(self, path: str, status: os.stat_result) -> None:
        self.note(path, status.st_ino, status.st_size)

    def note(self, path: str, inode: int, length: int) -> None:
        """Record that the first `length` bytes of a file are synced, and so is the name of the file."""
        self.lengths[inode] = length
        folder, name = os.path.split(path)
        self.names.setdefault(folder, {})[name] = inode

    def directory_synced(self, path: str) -> None:
        self.names[path] = {entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file()}

    def lose_power(
        self, root: Path, rng: random.Random, *, spared: Callable[[Path], bool] = lambda _: False
    ) -> int:
        """Change the files in `root` as a power cut may, except the `spared` files; return the number of changes."""
        changed = 0
        for path in sorted(path for path in root.rglob("*") if path.is_file() and not spared(path)):
            changed += self._lose_tail(path, rng)
            if path.exists():
                changed += self._undo_rename(path, rng)
        return changed

    def _lose_tail(self, path: Path, rng: random.Random) -> bool:
        status = path.stat()
        length = self.lengths.get(status.st_ino)
        if length is None and rng.random() < 0.5:
            path.unlink()
            return True
        length = min(length or 0, status.st_size)
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

    def _undo_rename(self, path: Path, rng: random.Random) -> bool:
        names = self.names.get(str(path.parent), {})
        inode = path.stat().st_ino
        if names.get(path.name) == inode or rng.random() < 0.5:
            return False
        old = next((name for name, other in names.items() if other == inode), None)
        if old is None or path.with_name(old).exists():
            return False
        path.rename(path.with_name(old))
        return True
