"""A simulated computer: a clock, a disk, power, and the process that lives on it.

Every callback of the loop runs in the context of the life that asked for it, so
`CURRENT` says whose code runs, however deep. A kill raises `Killed` through that
code; the loop then drops what the life had scheduled.

`SystemCalls` stands between the shipped code and the system while a cluster runs:
calls of `os` by a life reach its machine's disk. Files are real, in a folder in memory
if there is one; the store is a `JournalStore`.
"""

import errno
import math
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any

from crawler.clock import Clock
from crawler.lab.cluster.disk import JournalStore, StoreDisk, SyncedFiles, Writable
from crawler.storage.files import disown_locks

JOB = (
    0.0002,
    0.1,
)  # seconds that a write of a group, a flush or a merge takes, drawn evenly by their logarithm
DISK_BYTES = 1 << 40


class Killed(BaseException):
    """The process that runs this code has ended; no code of it runs on, but what unwinds."""


class Life:
    """One start of a process on a machine, until its end; `number` counts over all machines."""

    __slots__ = ("dead", "descriptors", "frozen_until", "machine", "number")

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.dead = False
        self.frozen_until = 0.0  # it stands still until then
        self.descriptors: set[int] = set()  # files it has open

    def __repr__(self) -> str:
        return f"Life({self.machine.label} {self.number}{', dead' * self.dead})"


CURRENT: ContextVar[Life | None] = ContextVar("life", default=None)


def nobody(life: Life | None = None) -> Context:
    """A context in which no life runs, or this one."""
    context = copy_context()
    context.run(CURRENT.set, life)
    return context


class Machine(Writable):
    """`label` is its own; `name` is that of the process it runs, which a clone shares."""

    def __init__(self, label: str, name: str, folder: Path, rng: random.Random) -> None:
        self.label, self.name, self.folder = label, name, folder
        self.rng = rng
        self.store = StoreDisk()
        self.files = SyncedFiles()
        self.life: Life | None = None
        self.has_power = True
        self.room = math.inf  # bytes that the disk still takes
        self.tells_room = True  # `statvfs` says so; a quota or a thin volume does not
        self.slowness = 1.0
        self.wall_offset = 0.0  # what its wall clock is ahead of the true time

    # -- what its process asks ----------------------------------------------------

    def check_alive(self) -> None:
        life = CURRENT.get()
        if life is not None and life.dead:
            raise Killed

    def take_room(self, nbytes: int, least: int) -> int:
        taken = int(min(nbytes, self.room))
        if taken < least:
            return 0
        self.room -= taken
        return taken

    def job_time(self) -> float:
        """How long the disk takes for the next job."""
        return math.exp(self.rng.uniform(*map(math.log, JOB))) * self.slowness

    def open_store(self, path: Path) -> JournalStore:
        """The store, as a process that starts finds it; a file in `path` says that there is one."""
        path.mkdir(parents=True, exist_ok=True)
        mark = path / "CURRENT"
        mark.touch()
        self.files.file_synced(str(mark), mark.stat())
        return JournalStore(self.store, self)

    # -- what becomes of it ---------------------------------------------------------

    def lose_power(self) -> int:
        """What was not synced is gone; how many batches and files it cost."""
        changed = self.store.lose_power(self.rng) + self.files.lose_power(self.folder, self.rng)
        self._settle()
        return changed

    def copy_disk(self, folder: Path) -> StoreDisk:
        """Copy the files to a folder; the store as it is now."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return self.store.copy()

    def put_back(self, folder: Path, store: StoreDisk) -> None:
        """Make the disk what `copy_disk` found."""
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder)
        self.store = store
        self._settle()

    def _settle(self) -> None:
        self.files = SyncedFiles()
        for path in self.folder.rglob("*"):  # what the disk holds now is safe
            if path.is_file():
                self.files.file_synced(str(path), path.stat())

    def __repr__(self) -> str:
        return f"Machine({self.label}: {self.life})"


class MachineClock(Clock):
    """As `SystemClock`: wall time at the start of a life, true seconds since then."""

    def __init__(self, time: Callable[[], float], wall_offset: float) -> None:
        self._time, self._offset = time, wall_offset

    def now(self) -> float:
        return self._time() + self._offset


class SystemCalls:
    """The calls of `os` that simulated processes make; `installed` puts them in place.

    Descriptors of the dead are kept as copies of /dev/null, so that code that
    unwinds late, or an object that is collected, cannot close a file of another life.
    """

    def __init__(self) -> None:
        self._real: dict[str, Callable[..., Any]] = {}
        self._kept: set[int] = set()  # descriptors of the dead
        self._null = -1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let lives have these calls; everybody else has the system's as before."""
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
            for descriptor in (*self._kept, self._null):
                os.close(descriptor)
            self._kept.clear()

    def end(self, life: Life) -> None:
        """Close all files of a life, as the kernel does, whoever still refers to them; its locks are free."""
        disown_locks(life.descriptors)
        for descriptor in sorted(life.descriptors):
            os.dup2(self._null, descriptor, inheritable=False)
            self._kept.add(descriptor)
        life.descriptors.clear()
        for descriptor in _open_below(life.machine.folder):
            os.dup2(self._null, descriptor, inheritable=False)  # who holds it closes it some day, or never

    # -- the calls ------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        life = _alive()
        descriptor = self._real["open"](path, flags, mode, **more)
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
    """Descriptors of this process, whoever holds them (maps, Python's files), whose files lie in a folder."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/"):
                found.append(int(name))
    return found


def _alive() -> Life | None:
    """The life that runs now.

    Raises:
        Killed: it is dead.
    """
    life = CURRENT.get()
    if life is not None and life.dead:
        raise Killed
    return life
