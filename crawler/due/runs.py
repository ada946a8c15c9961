"""Sorted runs of fingerprints, on disk or in memory.

A run is a strictly ascending sequence of uint64 keys, coded in blocks of 512. The file of a run is written
under a temporary name, synced and renamed, and it never changes afterwards. A merge reads some runs and
writes a new one.

    00000007.run     due-run1 | block 0 | block 1 | ... | fences | CRC-32 of each block
    block            keys relative to its first key, the fence, in Elias-Fano code (Vigna 2013):
      high parts     key i, shifted right by w bits, as a set bit at position (key >> w) + i
      low parts      the w bits that were shifted out, one key after the other

The number of low bits stored per key is w. If the keys are spread evenly, w is log2 of the mean gap between
keys, and a key takes w + 2 to w + 3 bits. Blocks are whole words of 8 bytes. The length and the w of each
block are computed from the fences, and kept in memory with them. `due/README.md`, "On disk", gives the sizes,
and says when the checksums are verified.
"""

import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from crawler import bus_errors
from crawler.due import elias_fano, sorting
from crawler.due.run_layout import FENCE_STEP, layout
from crawler.errors import DamageError
from crawler.storage.files import closed_on_error, new_file, write_all

Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]  # (n,)
# A function of this type is called with the name of each step that was reached, so that tests can crash
# there.
Reached = Callable[[str], None]

# Number of bytes written between two calls of fdatasync. With a single call at the end, that call would delay
# other commits.
_SYNC_BYTES = 64 << 20


CODED = 1
MAGIC = b"due-run1"
_NAMED_MAX = 9  # maximum number of damaged blocks that are listed per run
_CODED_AT_A_TIME = 128 * FENCE_STEP  # keys


class RunEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The store's record of a run file, which suffices to recognise the file."""

    number: int
    count: int
    first: int
    last: int
    crc32: int  # the checksum of the index
    coding: int = 0  # CODED

    @property
    def name(self) -> str:
        return f"{self.number:08d}.run"


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise DamageError(f"{path}: the file is empty")
            bus_errors.install()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DamageError(f"{path}: cannot be opened: {error.strerror}") from error


class Run:
    """A coded run: a non-empty, strictly ascending sequence of uint64 that never changes.

    A run in a mapped file stays readable while the object lives, even after the file is unlinked.

    Args:
        path: the path of the run's file, or a name for messages.
        entry: the entry of the run in the store.
        data: the whole run.

    Raises:
        DamageError: `data` is longer or shorter than the run that was written, or the index of the run is damaged.
    """

    def __init__(self, path: Path, entry: RunEntry, data: mmap.mmap | bytearray) -> None:
        self.entry = entry
        self.path = path
        self.count = entry.count
        self._crc32 = entry.crc32
        self._data = data
        blocks = -(-entry.count // FENCE_STEP)
        index_bytes = _index_bytes(blocks)
        if len(self._data) % 8 or len(self._data) < len(MAGIC) + index_bytes:
            raise DamageError(f"{self.path}: {len(self._data)} bytes long, too short for its keys")
        if wrong := self._index_problems():
            raise DamageError(wrong[0])
        index = memoryview(self._data)[len(self._data) - index_bytes :]
        self._posts = np.empty(blocks + 1, np.uint64)
        self._posts[:-1] = np.frombuffer(index, "<u8", blocks)
        self._posts[-1] = entry.last
        self.fences = self._posts[:-1]
        self._checks = np.frombuffer(index, "<u4", blocks, 8 * blocks)
        del index
        self._widths, self._starts = layout(self._posts, entry.count)
        self._words = np.frombuffer(self._data, "<u8")[1:]
        expected = len(MAGIC) + 8 * int(self._starts[-1]) + index_bytes
        if (found := len(self._data)) != expected or self._data[: len(MAGIC)] != MAGIC:
            self.close()
            raise DamageError(f"{self.path}: {found} bytes long, but {expected} bytes were written")
        self._unread = np.ones(blocks, np.bool_)  # the blocks whose checksums have not been verified yet
        self._all_read = False
        self.rest()

    @property
    def byte_count(self) -> int:
        """The size of the run on disk or in memory."""
        return len(self._data)

    def read(self, start: int, stop: int) -> Fingerprints:
        """Return the keys from index `start` up to, but not including, `stop`.

        Raises:
            DamageError: a block is damaged.
        """
        if start >= stop:
            return np.empty(0, np.uint64)
        first, behind = start // FENCE_STEP, -(-stop // FENCE_STEP)
        self._verify(np.arange(first, behind))
        begin = first * FENCE_STEP
        keys = np.empty(min(behind * FENCE_STEP, self.count) - begin, np.uint64)
        elias_fano.decode(self._words, self._posts, self._widths, self._starts, first, keys)
        return keys[start - begin : stop - begin]

    def join(self, queries: Fingerprints, known: np.ndarray) -> None:
        """Set `known[i] = 1` (uint8) for each of the ascending `queries` that is in the run.

        Raises:
            DamageError: a block is damaged.
        """
        if not self._all_read and len(self.fences) <= len(queries):
            self._verify(np.arange(len(self.fences)))
        elif not self._all_read:
            blocks = np.searchsorted(self.fences, queries[known == 0], side="right") - 1
            # A query that is less than all fences belongs to no block. Its index -1 marks the last entry of
            # `asked`, which stands for no block.
            asked = np.zeros(len(self.fences) + 1, np.bool_)
            asked[blocks] = True
            self._verify(np.flatnonzero(asked[:-1]))
        elias_fano.join(queries, self._words, self._posts, self._widths, self._starts, self.count, known)

    def _verify(self, blocks: np.ndarray) -> None:
        """Verify the checksums of those `blocks` that have not been verified before."""
        if self._all_read:
            return
        blocks = blocks[self._unread[blocks]]
        if wrong := self._wrong(blocks):
            raise DamageError(f"{self.path}: the checksum of block {wrong[0]} is wrong")
        self._unread[blocks] = False
        self._all_read = not self._unread.any()

    def _index_problems(self) -> list[str]:
        index_bytes = _index_bytes(-(-self.count // FENCE_STEP))
        crc32 = isal_zlib.crc32(memoryview(self._data)[len(self._data) - index_bytes :])
        return [] if crc32 == self._crc32 else [f"{self.path}: the checksum of its index is wrong"]

    def _wrong(self, blocks: np.ndarray) -> list[int]:
        """Return the blocks among `blocks` whose checksums are wrong."""
        data = memoryview(self._data)[len(MAGIC) :]
        begins, ends = 8 * self._starts[blocks], 8 * self._starts[blocks + 1]
        crc32 = isal_zlib.crc32
        found = zip(
            blocks.tolist(), begins.tolist(), ends.tolist(), self._checks[blocks].tolist(), strict=True
        )
        return [block for block, begin, end, check in found if crc32(data[begin:end]) != check]

    def rest(self) -> None:
        """Remove the run's memory pages from the memory of the process, which frees 5 bytes per URL.

        The kernel keeps these pages in its page cache.
        """
        if isinstance(self._data, mmap.mmap):
            with suppress(ValueError):  # closed meanwhile
                self._data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file, or free the memory, without holding the interpreter lock. A second call does nothing.

        A file that was unlinked is then freed.
        """
        if hasattr(self, "_words"):
            # The arrays are deleted, because a kernel in another thread would read beyond the end of empty ones.
            del self._words, self._checks
        if isinstance(self._data, mmap.mmap):
            with suppress(BufferError):  # the file is unmapped when its last slice is released
                self._data.close()

    def problems(self) -> list[str]:
        """Read the whole run and return a list of the problems found."""
        wrong = self._wrong(np.arange(len(self.fences)))
        found = [f"{self.path}: the checksum of block {block} is wrong" for block in wrong[:_NAMED_MAX]]
        found += self._index_problems()
        if found:
            return found
        step = _CODED_AT_A_TIME
        parts = (self.read(at, min(at + step + 1, self.count)) for at in range(0, self.count, step))
        return [] if all(map(sorting.is_ascending, parts)) else [f"{self.path}: its keys do not ascend"]

    def __repr__(self) -> str:
        return f"Run({self.path.name}, {self.count} keys)"


def _index_bytes(blocks: int) -> int:
    return 8 * blocks + 8 * -(-blocks // 2)


def open_run(directory: Path, entry: RunEntry) -> Run:
    """Open the run file that `entry` names.

    Raises:
        DamageError: the file is missing or damaged, or its coding is unknown.
    """
    if entry.coding == CODED:
        return _coded_run(directory, entry)
    raise DamageError(f"{directory / entry.name}: unknown coding {entry.coding}")


def _coded_run(directory: Path, entry: RunEntry) -> Run:
    path = directory / entry.name
    data = _map(path)
    with closed_on_error(data.close):
        return Run(path, entry, data)


class DiskRuns:
    """The run files of a directory.

    Args:
        entries: the valid runs; any other run file was left by a crash and is deleted.
        fault: called with the name of each step after which a crash is possible; for tests.

    Raises:
        DamageError: a valid run is missing or damaged.
    """

    def __init__(self, directory: Path, entries: Sequence[RunEntry], fault: Reached = lambda _: None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._fault = fault
        self.opened: list[Run] = []
        with closed_on_error(self._close):
            for entry in entries:
                self.opened.append(open_run(directory, entry))
            self._numbers = itertools.count(max((entry.number for entry in entries), default=0) + 1)
            self._sweep({entry.name for entry in entries})

    def _close(self) -> None:
        for run in self.opened:
            run.close()

    def _sweep(self, named: set[str]) -> None:
        for path in [*self._directory.glob("*.run"), *self._directory.glob("*.run~")]:
            if path.name not in named:
                path.unlink()

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run:
        """Write a durable run of the `count` ascending keys in `chunks`. Any thread may call this.

        Raises:
            StoreError: the disk is full or failing; the unfinished file is deleted.
        """
        entry = write_run(
            self._directory, next(self._numbers), chunks, lambda done: self._fault(f"{step} {done}")
        )
        assert entry.count == count, f"{entry.count} keys came, not {count}"
        return _coded_run(self._directory, entry)

    def remove(self, run: Run) -> None:
        """Unlink a run that the store does not name. Existing readers can still read it."""
        run.path.unlink()
        self._fault("run unlinked")


def write_run(
    directory: Path, number: int, chunks: Iterable[Fingerprints], reached: Reached = lambda _: None
) -> RunEntry:
    """Write a durable run file of the ascending keys in `chunks`; return the file's entry for the store.

    Any thread may call this.

    Raises:
        StoreError: the disk is full or failing; the unfinished file is deleted.
    """
    with new_file(directory / f"{number:08d}.run", reached=reached) as file:
        return write_keys(_Synced(file.fileno()).write, number, chunks)


class _Synced:
    """Writes to a file and syncs it in the background, every _SYNC_BYTES."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unsynced = 0

    def write(self, data: bytes | memoryview) -> None:
        write_all(self._descriptor, data)
        self._unsynced += len(data)
        if self._unsynced >= _SYNC_BYTES:
            os.fdatasync(self._descriptor)
            self._unsynced = 0


def write_keys(
    write: Callable[[bytes | memoryview], None], number: int, chunks: Iterable[Fingerprints]
) -> RunEntry:
    """Encode and write the keys in `chunks` (at least one key); return the entry that describes the run."""
    count = 0
    fences: list[Fingerprints] = []
    checks: list[int] = []
    write(MAGIC)
    for keys, following in _in_blocks(chunks):
        count += len(keys)
        posts = np.append(keys[::FENCE_STEP], following)
        fences.append(posts[:-1])
        widths, starts = layout(posts, len(keys))
        words = np.zeros(starts[-1], np.uint64)
        elias_fano.encode(keys, posts, widths, starts, words)
        data = memoryview(words.astype("<u8", copy=False).view(np.uint8))  # type: ignore[arg-type]
        ends = (8 * starts).tolist()
        checks += [isal_zlib.crc32(data[begin:end]) for begin, end in itertools.pairwise(ends)]
        write(data)
    posts = np.concatenate(fences)
    index = (posts.astype("<u8").tobytes() + np.array(checks, "<u4").tobytes()).ljust(
        _index_bytes(len(posts)), b"\0"
    )
    write(index)
    return RunEntry(number, count, int(posts[0]), int(keys[-1]), isal_zlib.crc32(index), CODED)


def _in_blocks(chunks: Iterable[Fingerprints]) -> Iterator[tuple[Fingerprints, np.uint64]]:
    """Yield pairs: keys that fill whole blocks, and the key that follows these keys.

    The last pair contains all remaining keys. Since no key follows, the second part of the last pair is the
    last key.
    """
    left = np.empty(0, np.uint64)
    for keys in chunks:
        for start in range(0, len(keys), _CODED_AT_A_TIME):
            left = np.concatenate([left, keys[start : start + _CODED_AT_A_TIME]])
            whole = (len(left) - 1) // FENCE_STEP * FENCE_STEP
            if whole:
                yield left[:whole], left[whole]
                left = left[whole:]
    yield left, left[-1]
