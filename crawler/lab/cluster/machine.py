"""A simulated computer: a clock, a disk, power, and the process that runs on it.

A life is one run of a process. Every callback of the loop runs in the context of the life that scheduled it, so
`CURRENT` is always the life whose code is running. A kill raises `Killed` in the code of the life. The loop then
drops all callbacks that the life had scheduled.

While a cluster runs, `SystemCalls` replaces functions of `os`, so that calls by a life act on the disk of its
machine. The files are real files, if possible in a file system in memory. The crawl's key-value store is a
`JournalStore`.
"""

import errno
import math
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any

from crawler.clock import Clock
from crawler.errors import StoreError
from crawler.lab.cluster.disk import StoreDisk, SyncedFiles
from crawler.storage.files import disown_locks
from crawler.storage.kv import MemoryBatch

# a group write, a flush or a merge takes a number of seconds in this range (log-uniform)
JOB = (0.0002, 0.1)
DISK_BYTES = 1 << 40


class Killed(BaseException):
    """The process that runs this code has been killed. From now on, only its cleanup code runs."""


class Life:
    """One run of a process on a machine, from start to end. Lives are numbered over all machines."""

    __slots__ = ("dead", "descriptors", "frozen_until", "machine", "number")

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.dead = False
        self.frozen_until = 0.0  # the instant until which the process is suspended
        self.descriptors: set[int] = set()  # the open file descriptors of the current process

    def __repr__(self) -> str:
        return f"Life({self.machine.label} {self.number}{', dead' * self.dead})"


CURRENT: ContextVar[Life | None] = ContextVar("life", default=None)


def nobody(life: Life | None = None) -> Context:
    """Return a context in which `life` runs. If `life` is None, no life runs in the context."""
    context = copy_context()
    context.run(CURRENT.set, life)
    return context


class Machine:
    """A machine with a unique `label`. `name` is the name of its process, and of the processes of its clones."""

    def __init__(self, label: str, name: str, folder: Path, rng: random.Random) -> None:
        self.label, self.name, self.folder = label, name, folder
        self.rng = rng
        self.store = StoreDisk()
        self.files = SyncedFiles()
        self.life: Life | None = None
        self.has_power = True
        self.booted_at = 0.0  # after a power cut: the instant from which a process can start
        self.room = math.inf  # bytes that the disk still accepts
        # False on a disk with a quota or a thin volume, where `statvfs` does not report `room`
        self.tells_room = True
        self.slowness = 1.0
        self.wall_offset = 0.0  # seconds by which the wall clock is ahead of the true time

    # -- services for its process -------------------------------------------------

    def take_room(self, nbytes: int, least: int) -> int:
        """Reserve up to `nbytes` of disk space.

        Return the number of bytes reserved, or 0 if fewer than `least` are free.
        """
        taken = int(min(nbytes, self.room))
        if taken < least:
            return 0
        self.room -= taken
        return taken

    def job_time(self) -> float:
        """Draw the number of seconds that the disk needs for the next job."""
        return math.exp(self.rng.uniform(*map(math.log, JOB))) * self.slowness

    def open_store(self, path: Path) -> "JournalStore":
        """Open the store for a process that starts. Create a file in `path`, which shows that the store exists."""
        path.mkdir(parents=True, exist_ok=True)
        mark = path / "CURRENT"
        mark.touch()
        self.files.file_synced(str(mark), mark.stat())
        return JournalStore(self)

    # -- power cuts, copies and backups ---------------------------------------------

    def lose_power(self) -> int:
        """Lose unsynced data; return the number of lost batches plus the number of files that changed."""
        changed = self.store.lose_power(self.rng) + self.files.lose_power(self.folder, self.rng)
        self.settle_files()
        return changed

    def copy_disk(self, folder: Path) -> StoreDisk:
        """Copy the files of this machine to a folder, and return a copy of its store."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return self.store.copy()

    def put_back(self, folder: Path, store: StoreDisk) -> None:
        """Restore the files and the store from a copy made by `copy_disk`."""
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder)
        self.store = store
        self.settle_files()

    def settle_files(self) -> None:
        """Count all files of this machine as synced, as after a restoration."""
        self.files = SyncedFiles()
        for path in self.folder.rglob("*"):
            if path.is_file():
                self.files.file_synced(str(path), path.stat())

    def __repr__(self) -> str:
        return f"Machine({self.label}: {self.life})"


class JournalStore:
    """Implements `storage.kv.KeyValue` on the store of a machine's disk.

    A write fails if the process is dead, or if the disk has no room.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine, self._disk = machine, machine.store
        self._failed = False
        self.writes = 0
        self.get, self.scan, self.close = self._disk.get, self._disk.scan, self._disk.close

    def batch(self, *, sync: bool = True) -> MemoryBatch:
        return MemoryBatch(sync)

    def write(self, batch: MemoryBatch) -> None:
        _alive()
        size = sum(len(key) + len(value or b"") for key, value in batch.operations)
        if self._failed or (size and not self._machine.take_room(size, size)):
            self._failed = True
            raise StoreError("store: write failed: No space left on device")
        self._disk.write(batch)
        self.writes += 1


class MachineClock(Clock):
    """A clock like `SystemClock`: the wall time when a process starts, plus the true seconds since then."""

    def __init__(self, time: Callable[[], float], wall_offset: float) -> None:
        self._time, self._offset = time, wall_offset

    def now(self) -> float:
        return self._time() + self._offset


class SystemCalls:
    """Replacements for the functions of `os` that simulated processes call. `installed` puts them in place.

    When a simulated process ends, its descriptors are not closed but redirected to /dev/null. Otherwise,
    another process could open a file with the same descriptor, and late cleanup code of the ended process
    could close this file.
    """

    def __init__(self) -> None:
        self._real: dict[str, Callable[..., Any]] = {}
        self._kept: set[int] = set()  # file descriptors of simulated processes that have ended
        self._null = -1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the replacements. Code outside of the simulated processes still gets the real functions."""
        calls = {
            "open": self._open,
            "close": self._close,
            "write": self._write,
            "fsync": self._fsync,
            "fdatasync": self._fsync,
            "statvfs": self._statvfs,
        }
        self._real = {name: getattr(os, name) for name in calls}
        self._null = self._real["open"](os.devnull, os.O_RDWR)
        for name, call in calls.items():
            setattr(os, name, call)
        try:
            yield
        finally:
            for name, call in self._real.items():
                setattr(os, name, call)
            for descriptor in self._kept:
                # a file object may have closed the descriptor already
                if _path_of(descriptor) == os.devnull:
                    os.close(descriptor)
            self._kept.clear()
            os.close(self._null)

    def end(self, life: Life) -> None:
        """Close all files of a life, and release the locks, as the kernel would.

        Objects may still refer to the files.
        """
        # `life.descriptors` may contain descriptors that are closed, because a file object closes its descriptor
        # without `os.close`. After that, another life may have opened a file that got the same number as its
        # descriptor. So only the descriptors of files that are open on this machine are used.
        left = _open_below(life.machine.folder)
        own = life.descriptors.intersection(left)
        disown_locks(own)
        for descriptor in left:
            # the number stays in use, because the object that holds this descriptor may close it later
            os.dup2(self._null, descriptor, inheritable=False)
        self._kept |= own
        life.descriptors.clear()

    # -- the calls ------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        life = _alive()
        descriptor = self._real["open"](path, flags, mode, **more)
        self._kept.discard(descriptor)
        if life is not None:
            life.descriptors.add(descriptor)
        return descriptor

    def _close(self, descriptor: int) -> None:
        if descriptor in self._kept:
            return
        life = CURRENT.get()
        if life is not None:
            life.descriptors.discard(descriptor)
        self._real["close"](descriptor)

    def _write(self, descriptor: int, data: Any) -> int:
        life = _alive()
        if life is not None and len(data) and stat.S_ISREG(os.fstat(descriptor).st_mode):
            taken = life.machine.take_room(len(data), 1)
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = memoryview(data)[:taken]
        return self._real["write"](descriptor, data)

    def _fsync(self, descriptor: int) -> None:
        life = _alive()
        if life is None:
            return self._real["fsync"](descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            life.machine.files.directory_synced(path)
        else:
            life.machine.files.file_synced(path, status)
        return None

    def _statvfs(self, path: Any) -> Any:
        life = CURRENT.get()
        if life is None:
            return self._real["statvfs"](path)
        machine = life.machine
        free = int(min(machine.room, DISK_BYTES // 2)) if machine.tells_room else DISK_BYTES // 2
        return os.statvfs_result((4096, 4096, DISK_BYTES >> 12, free >> 12, free >> 12, 1, 1, 1, 0, 255))


def _open_below(folder: Path) -> list[int]:
    """Return the descriptors of all open files below a folder, including those of memory maps and file objects."""
    device = os.stat(folder.parent).st_dev
    descriptors = map(int, os.listdir("/proc/self/fd"))
    # the device is compared first, because looking up the path of an open file takes much longer
    return [
        each for each in descriptors if _device_of(each) == device and _path_of(each).startswith(f"{folder}/")
    ]


def _device_of(descriptor: int) -> int:
    """Return the device of the file that a descriptor refers to; -1 if the descriptor is closed."""
    try:
        return os.fstat(descriptor).st_dev
    except OSError:
        return -1


def _path_of(descriptor: int) -> str:
    """Return the path of the file that a descriptor refers to; "" if the descriptor is closed."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _alive() -> Life | None:
    """Return the simulated process (life) whose code runs, or None.

    Raises:
        Killed: the life is dead.
    """
    life = CURRENT.get()
    if life is not None and life.dead:
        raise Killed
    return life
