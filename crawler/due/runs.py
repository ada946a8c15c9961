"""Sorted runs of fingerprints: on disk, and how any runs are merged.

A run file is strictly ascending uint64, little-endian, without header. It is
written under another name, synced, renamed, and never changed from then on; a
merge reads some runs and writes one. Of a run only every 512th key (a *fence*)
is in memory, 1/64 byte a key; the rest is mapped, and a search touches one
page of it.

    00000007.run     0 . . . . . . . 512 . . . . . . . 1024 . . .
    fences           |               |                 |

A merge goes through its inputs in windows that fit a chunk: each input offers a
share of the chunk, the least of the shares' last keys is where the window ends,
and the slices below it are merged two at a time, the smallest first. With sizes
in powers of two a key is then moved about twice, whatever the number of inputs.
"""

import mmap
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from crawler.due import kernels
from crawler.due.kernels import FENCE_STEP
from crawler.errors import DamageError, StoreError

Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]  # (n,)
Fault = Callable[[str], None]  # called with the name of each step, so that tests can crash there

_SYNC_BYTES = 64 << 20  # written between two fdatasyncs: the last one must not hold up the commits beside it
_SHARE_MIN = 4096  # keys a merge input offers at least: a tiny run beside a huge one makes no tiny windows


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

    count: int
    fences: Fingerprints

    def read(self, start: int, stop: int) -> Fingerprints:
        """Keys number `start` up to, not including, `stop`."""

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        """Set `known[i] = 1` (uint8) for each of the ascending `queries` that is in the run."""


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
        self.keys = _map_keys(self.path, entry)
        self.fences = self.keys[::FENCE_STEP].copy() if fences is None else fences

    def read(self, start: int, stop: int) -> Fingerprints:
        return self.keys[start:stop]

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        kernels.join(queries, self.keys, self.fences, known)

    def problems(self) -> list[str]:
        """What is wrong with the file, read whole; nothing if it is as it was written."""
        found = []
        if zlib.crc32(self.keys.data) != self.entry.crc32:
            found.append(f"{self.path}: its checksum is wrong")
        if not all(kernels.is_ascending(keys) for keys in _overlapping(self.keys)):
            found.append(f"{self.path}: its keys do not ascend")
        return found

    def __repr__(self) -> str:
        return f"DiskRun({self.path.name}, {self.count} keys)"


def _map_keys(path: Path, entry: RunEntry) -> Fingerprints:
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
    return keys


def _overlapping(keys: Fingerprints, step: int = 1 << 18) -> Iterator[Fingerprints]:
    """Slices of `keys`, each beginning with the last key of the one before."""
    return (keys[start : start + step + 1] for start in range(0, len(keys), step))


def write_run(
    directory: Path,
    number: int,
    chunks: Iterable[Fingerprints],
    *,
    step: str = "run",
    fault: Fault = lambda _: None,
) -> DiskRun | None:
    """Write the ascending `chunks` as run file `number`, durably; None and no file if there are no keys.

    Raises:
        StoreError: the disk is full or fails; what was written is removed.
    """
    draft = directory / f"{number:08d}.run~"
    try:
        with draft.open("wb", buffering=0) as file:
            written = _write_keys(file.fileno(), number, chunks)
            fault(f"{step} written")
            os.fsync(file.fileno())
        fault(f"{step} synced")
        if written is None:
            draft.unlink()
            return None
        entry, fences = written
        draft.rename(directory / entry.name)
        fault(f"{step} renamed")
        sync_directory(directory)
        fault(f"{step} named")
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"{draft}: cannot be written: {error.strerror}") from error
    return DiskRun(directory, entry, fences)


def _write_keys(
    descriptor: int, number: int, chunks: Iterable[Fingerprints]
) -> tuple[RunEntry, Fingerprints] | None:
    count = crc = unsynced = 0
    fences: list[Fingerprints] = []
    first = last = 0
    for keys in chunks:
        if not len(keys):
            continue
        if not count:
            first = int(keys[0])
        last = int(keys[-1])
        fences.append(keys[-count % FENCE_STEP :: FENCE_STEP].copy())
        data = memoryview(keys).cast("B")  # type: ignore[arg-type]
        crc = zlib.crc32(data, crc)
        write_all(descriptor, data)
        count += len(keys)
        unsynced += len(data)
        if unsynced >= _SYNC_BYTES:
            os.fdatasync(descriptor)
            unsynced = 0
    if not count:
        return None
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


def lower_bound(run: Run, key: int) -> int:
    """How many keys of `run` are less than `key` (0 to 2^64)."""
    if key >= 1 << 64:
        return run.count
    block = int(np.searchsorted(run.fences, np.uint64(key))) - 1
    if block < 0:
        return 0
    start = block * FENCE_STEP
    return start + int(np.searchsorted(run.read(start, min(start + FENCE_STEP, run.count)), np.uint64(key)))


class _Input:
    """A run that is merged, how far it has been read, and where it ends."""

    __slots__ = ("run", "start", "stop")

    def __init__(self, run: Run, start: int, stop: int) -> None:
        self.run, self.start, self.stop = run, start, stop

    @property
    def left(self) -> int:
        return self.stop - self.start


def merge(
    runs: Sequence[Run], chunk_bytes: int, *, low: int = 0, high: int = 1 << 64
) -> Iterator[Fingerprints]:
    """The keys of disjoint `runs` with low <= key < high, ascending, in arrays of about `chunk_bytes` at most.

    An array is overwritten when the next one is asked for.

    Raises:
        DamageError: two runs have a key in common.
    """
    inputs = [_Input(run, lower_bound(run, low), lower_bound(run, high)) for run in runs]
    inputs = sorted((entry for entry in inputs if entry.left), key=lambda entry: entry.left)
    size = max(chunk_bytes // 8, 2 * len(inputs))
    buffers = [np.empty(size, np.uint64), np.empty(size, np.uint64)]
    while inputs:
        yield _merge_slices(_next_window(inputs, size), buffers)
        inputs = [entry for entry in inputs if entry.left]


def _next_window(inputs: Sequence[_Input], size: int) -> list[Fingerprints]:
    """Take from each input what belongs to the next window, together at most `size` keys and at least one."""
    total = sum(entry.left for entry in inputs)
    least = min(_SHARE_MIN, size // (2 * len(inputs)))
    room = size - least * len(inputs)
    shares = [
        entry.run.read(entry.start, entry.start + min(entry.left, least + room * entry.left // total))
        for entry in inputs
    ]
    ends = [share[-1] for share, entry in zip(shares, inputs, strict=True) if len(share) < entry.left]
    if ends:
        end = min(ends)
        shares = [share[: int(np.searchsorted(share, end, side="right"))] for share in shares]
    for share, entry in zip(shares, inputs, strict=True):
        entry.start += len(share)
    return [share for share in shares if len(share)]


def _merge_slices(slices: Sequence[Fingerprints], buffers: Sequence[Fingerprints]) -> Fingerprints:
    """Merge ascending arrays, the first two first, to and fro between two buffers."""
    merged = slices[0]
    for index, keys in enumerate(slices[1:]):
        target = buffers[index % 2][: len(merged) + len(keys)]
        if not kernels.merge(merged, keys, target):
            raise DamageError("due: two runs have a fingerprint in common; run `crawler check`")
        merged = target
    return merged
