"""Sorted runs of fingerprints on disk.

A run file is strictly ascending uint64, little-endian, without header. It is
written under another name, synced, renamed, and never changed from then on; a
merge reads some runs and writes one. Of a run only every 512th key (a *fence*)
is in memory, 1/64 byte a key; the rest is mapped, and a search touches one
page of it.

    00000007.run     0 . . . . . . . 512 . . . . . . . 1024 . . .
    fences           |               |                 |
"""

import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from isal import isal_zlib

from crawler.due import kernels
from crawler.due.kernels import FENCE_STEP
from crawler.errors import DamageError, StoreError

Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]  # (n,)
Fault = Callable[[str], None]  # called with the name of each step, so that tests can crash there

_SYNC_BYTES = 64 << 20  # written between two fdatasyncs: the last one must not hold up the commits beside it


class RunEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the store knows of a run file: enough to tell that it is the one that was written."""

    number: int
    count: int
    first: int
    last: int
    crc32: int

    @property
    def name(self) -> str:
        return f"{self.number:08d}.run"


class Run(Protocol):
    """Strictly ascending uint64, at least one, that are read but never changed."""

    @property
    def entry(self) -> RunEntry | None:
        """What the store names it by; None in memory."""

    @property
    def count(self) -> int: ...

    @property
    def fences(self) -> Fingerprints: ...

    def read(self, start: int, stop: int) -> Fingerprints:
        """Keys number `start` up to, not including, `stop`."""

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        """Set `known[i] = 1` (uint8) for each of the ascending `queries` that is in the run."""

    def rest(self) -> None:
        """Take no memory until it is read again. In any thread."""

    def close(self) -> None:
        """Let go of its keys; nobody may read it any more."""

    def problems(self) -> list[str]:
        """What is wrong with it, read whole; nothing if it is as it was written."""


class DiskRun:
    """A run file, mapped. Its keys can be read while the object lives, also after the file is unlinked."""

    def __init__(self, directory: Path, entry: RunEntry, fences: Fingerprints | None = None) -> None:
        """Open the file that `entry` names; `fences` if they are known, else the whole file is read for them.

        Raises:
            DamageError: the file is missing or not as long, or begins or ends with another key.
        """
        self.entry = entry
        self.path = directory / entry.name
        self.count = entry.count
        self._mapped, self.keys = _map_keys(self.path, entry)
        self.fences = self.keys[::FENCE_STEP].copy() if fences is None else fences
        self.rest()

    def read(self, start: int, stop: int) -> Fingerprints:
        return self.keys[start:stop]

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        kernels.join(queries, self.keys, self.fences, known)

    def rest(self) -> None:
        """Let its pages go from the process; the kernel keeps them: 8 bytes a URL that would be resident."""
        with suppress(ValueError):  # closed meanwhile
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file, which frees it if it is unlinked: 0.2 s for 512 MB, without the lock of Python."""
        del self.keys
        with suppress(BufferError):  # a slice of it is still read, and the last one unmaps it
            self._mapped.close()

    def problems(self) -> list[str]:
        found = []
        if isal_zlib.crc32(self.keys.data) != self.entry.crc32:
            found.append(f"{self.path}: its checksum is wrong")
        if not all(kernels.is_ascending(keys) for keys in _overlapping(self.keys)):
            found.append(f"{self.path}: its keys do not ascend")
        return found

    def __repr__(self) -> str:
        return f"DiskRun({self.path.name}, {self.count} keys)"


def _map_keys(path: Path, entry: RunEntry) -> tuple[mmap.mmap, Fingerprints]:
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length != 8 * entry.count or not length:
                raise DamageError(f"{path}: {length} bytes long, not {8 * entry.count}")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DamageError(f"{path}: cannot be opened: {error.strerror}") from error
    keys = np.frombuffer(mapped, "<u8")
    if (int(keys[0]), int(keys[-1])) != (entry.first, entry.last):
        raise DamageError(f"{path}: does not begin and end with the keys it was written with")
    return mapped, keys


def _overlapping(keys: Fingerprints, step: int = 1 << 18) -> Iterator[Fingerprints]:
    """Slices of `keys`, each beginning with the last key of the one before."""
    return (keys[start : start + step + 1] for start in range(0, len(keys), step))


class DiskRuns:
    """The run files of a directory.

    Args:
        entries: the runs that count; any other run file is what a crash left over, and is removed.
        fault: called with the name of each step that a crash may follow.

    Raises:
        DamageError: a run that counts is missing or not what was written.
    """

    def __init__(self, directory: Path, entries: Sequence[RunEntry], fault: Fault = lambda _: None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._fault = fault
        self.opened = [DiskRun(directory, entry) for entry in entries]
        self._numbers = itertools.count(max((entry.number for entry in entries), default=0) + 1)
        self._sweep({entry.name for entry in entries})

    def _sweep(self, named: set[str]) -> None:
        for path in [*self._directory.glob("*.run"), *self._directory.glob("*.run~")]:
            if path.name not in named:
                path.unlink()

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> DiskRun:
        """Write a run of the `count` ascending keys in `chunks`, durably. In any thread.

        Raises:
            StoreError: the disk is full or fails; what was written is removed.
        """
        number = next(self._numbers)
        draft = self._directory / f"{number:08d}.run~"
        try:
            with draft.open("xb", buffering=0) as file:
                entry, fences = _write_keys(file.fileno(), number, chunks)
                self._fault(f"{step} written")
                os.fsync(file.fileno())
            self._fault(f"{step} synced")
            draft.rename(self._directory / entry.name)
            self._fault(f"{step} renamed")
            sync_directory(self._directory)
            self._fault(f"{step} named")
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise StoreError(f"{draft}: cannot be written: {error.strerror}") from error
        assert entry.count == count, f"{entry.count} keys came, not {count}"
        return DiskRun(self._directory, entry, fences)

    def remove(self, run: Run) -> None:
        """Unlink a run that nothing names; who holds it can still read it."""
        assert isinstance(run, DiskRun)
        run.path.unlink()
        self._fault("run unlinked")


def _write_keys(
    descriptor: int, number: int, chunks: Iterable[Fingerprints]
) -> tuple[RunEntry, Fingerprints]:
    """Write the keys, at least one; return what there is to know of them, and their fences."""
    count = crc = unsynced = 0
    fences: list[Fingerprints] = []
    first = last = 0
    for keys in chunks:
        if not count:
            first = int(keys[0])
        last = int(keys[-1])
        fences.append(keys[-count % FENCE_STEP :: FENCE_STEP].copy())
        data = memoryview(keys).cast("B")  # type: ignore[arg-type]
        crc = isal_zlib.crc32(data, crc)
        write_all(descriptor, data)
        count += len(keys)
        unsynced += len(data)
        if unsynced >= _SYNC_BYTES:
            os.fdatasync(descriptor)
            unsynced = 0
    return RunEntry(number, count, first, last, crc), np.concatenate(fences)


def write_all(descriptor: int, data: Any) -> None:
    """Write all of the bytes `data`, however many calls it takes."""
    data = memoryview(data)
    while len(data):
        data = data[os.write(descriptor, data) :]


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
