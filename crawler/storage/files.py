"""Durable files: append, sync, replace, lock, and how much room is left.

What each step promises, so that a caller can say what a crash leaves behind:

    append           in the page cache of the kernel; a power cut may lose or tear it
    sync             the bytes and the length are on the disk (fdatasync)
    sync_directory   the names in a directory are on the disk: after create, rename, unlink
    new_file         under its name once all of it is on the disk; `NAME~` until then
    atomic_write     the old content or the new one, never a mixture

An `AppendFile` is cut to its committed length when it is opened: bytes after it
belong to a group that never committed. The first failed write closes it for good,
since nobody knows how much of it arrived; the process ends with StoreError and
starts again (`storage/README.md`, "Known traps of LevelDB").

A lock is `flock` on a file that is never deleted (deleting it would let two
processes hold two files of one name). The kernel drops it when the process
ends, however it ends. It is not inherited: the descriptor closes on exec, and
in a forked child.
"""

import errno
import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from crawler.errors import BusyError, DamageError, DirectoryError, StoreError, UsageError

BRIEF_MAX = 30.0  # seconds for which a lock is waited for that is held briefly
_LOOK_AGAIN = 0.05  # seconds between two tries
_READ_CHUNK_BYTES = 1 << 20


@contextmanager
def _store_errors(path: Path, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot {doing}: {error.strerror or error}") from error


def sync_directory(path: Path) -> None:
    """Make the names in the directory `path` durable.

    Raises:
        StoreError: the disk failed.
    """
    with _store_errors(path, "sync directory"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte of `data`: a nearly full disk takes a part of it without an error."""
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]


UNFINISHED = "~"  # behind the name of a file or folder that is being written
_FORMER = "~former"  # behind that of a folder that another one replaces


@contextmanager
def new_file(
    path: Path, *, mode: int = 0o644, reached: Callable[[str], None] = lambda _: None
) -> Iterator[IO[bytes]]:
    """A file to be written, which replaces `path` durably when the block ends; `path` is untouched if it fails.

    A kill leaves `NAME~` behind, which the next writer of the same file begins anew.
    `reached` is called with the name of each step, so that tests can crash there.

    Raises:
        StoreError: the disk failed; `path` is as it was.
    """
    draft = path.with_name(path.name + UNFINISHED)
    with _store_errors(path, "write"):
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                reached("written")
                os.fsync(file.fileno())
            reached("synced")
            os.rename(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    reached("renamed")
    sync_directory(path.parent)
    reached("named")


@contextmanager
def named_output(path: Path) -> Iterator[IO[bytes]]:
    """What a user names as output: `new_file` behind its links, or what is there if it is no file (a pipe, a device).

    Raises:
        UsageError: nothing can be written there.
        StoreError: the disk failed; `path` is as it was.
    """
    refuse_output(path)
    if _is_open_already(path):
        with _store_errors(path, "write"), path.open("wb") as file:
            yield file
        return
    with new_file(path.resolve()) as file:
        yield file


def _is_open_already(path: Path) -> bool:
    """Whether it is a pipe or a device, or a descriptor by name (/dev/stdout), whose file is somebody else's."""
    return path.exists() and (not path.is_file() or str(path).startswith(("/dev/", "/proc/")))


def refuse_output(path: Path) -> None:
    """Raises UsageError if `path` cannot be written as `named_output`."""
    folder = path.resolve().parent
    if path.is_dir():
        number = errno.EISDIR
    elif not folder.is_dir() and not _is_open_already(path):
        number = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(path if _is_open_already(path) else folder, os.W_OK):
        number = errno.EACCES
    else:
        return
    raise UsageError(f"{path}: {os.strerror(number)}")


def refuse_occupied(folder: Path) -> None:
    """Raises UsageError unless `folder` is empty, or not there but can be made."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        occupied = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    if occupied:
        raise UsageError(f"{folder}: is not empty; name a new directory")


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to be filled, which appears as `path` when the block ends; with `replace` in place of the one there.

    Else `path` is an empty folder, or nothing yet. A kill leaves `NAME~` behind, which the
    next writer begins anew.

    Raises:
        StoreError: the disk failed; `path` is as it was.
    """
    draft, former = path.with_name(path.name + UNFINISHED), path.with_name(path.name + _FORMER)
    with _store_errors(path, "write"):
        if former.exists() and not path.exists():
            os.rename(former, path)  # of a writer that was killed between two names
        for left in (draft, former):
            if left.exists():
                shutil.rmtree(left)
        draft.mkdir(parents=True)
        try:
            yield draft
            os.sync()  # of many files it is the quickest
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if replace and path.exists():
            os.rename(path, former)
        if path.exists():  # it stays the folder that it is: somebody may be in it
            for entry in sorted(draft.iterdir()):
                os.rename(entry, path / entry.name)
            draft.rmdir()
        else:
            os.rename(draft, path)
    sync_directory(path.parent)
    shutil.rmtree(former, ignore_errors=True)


def atomic_write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of `path` by `data`, durably, or leave the old content.

    Raises:
        StoreError: the disk failed; `path` is as it was.
    """
    with new_file(path, mode=mode) as file:
        file.write(data)


def rename(old: Path, new: Path) -> None:
    """Rename within or between directories of one disk, durably.

    Raises:
        StoreError: the disk failed.
    """
    with _store_errors(old, f"rename to {new.name}"):
        os.rename(old, new)
    sync_directory(new.parent)
    if old.parent != new.parent:
        sync_directory(old.parent)


def cut(path: Path, length: int) -> int:
    """Cut the file to `length` bytes, durably; return how many bytes were dropped.

    Raises:
        DamageError: it is missing or shorter than that.
        StoreError: the disk failed.
    """
    size = path.stat().st_size if path.exists() else -1
    if size < length:
        state = "is missing" if size < 0 else f"has {size} bytes"
        raise DamageError(f"{path}: {state}, {length} bytes were committed")
    if size > length:
        with _store_errors(path, "cut"):
            os.truncate(path, length)
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    return size - length


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the disk that holds `path`."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def total_bytes(path: Path) -> int:
    """Size in bytes of the disk that holds `path`."""
    space = os.statvfs(path)
    return space.f_blocks * space.f_frsize


def reserve(path: Path, length: int) -> None:
    """Make `path` occupy `length` bytes of disk (the ballast that a repair may free).

    Raises:
        StoreError: there is no room.
    """
    with _store_errors(path, f"reserve {length} bytes"):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, length)
            if length:
                os.posix_fallocate(descriptor, 0, length)
        finally:
            os.close(descriptor)


class AppendFile:
    """A file that only grows; `length` counts all that was appended.

    Created if it does not exist (then its name is made durable at once), cut to
    `committed_length` if it does.

    Raises:
        DamageError: the file is shorter than `committed_length`, or missing.
        StoreError: the disk failed, now or in an earlier call.
    """

    __slots__ = ("_descriptor", "_failed", "length", "path")

    def __init__(self, path: Path, committed_length: int = 0) -> None:
        self.path = path
        self.length = committed_length
        self._failed = False
        fresh = not path.exists()
        if committed_length or not fresh:
            cut(path, committed_length)
        with _store_errors(path, "open"):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if fresh:
            self.sync()
            sync_directory(path.parent)

    @contextmanager
    def _poison(self, doing: str) -> Iterator[None]:
        if self._failed:
            raise StoreError(f"{self.path}: closed after a failed write")
        try:
            yield
        except OSError as error:
            self._failed = True
            raise StoreError(f"{self.path}: cannot {doing}: {error.strerror or error}") from error

    def append(self, data: bytes) -> int:
        """Append `data`; return the offset at which it begins."""
        with self._poison("append"):
            write_all(self._descriptor, data)
        offset = self.length
        self.length += len(data)
        return offset

    def sync(self) -> None:
        """Make all that was appended durable."""
        with self._poison("sync"):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; syncs nothing. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._failed = True

    def __repr__(self) -> str:
        return f"AppendFile({self.path.name}, {self.length} bytes)"


def read_range(path: Path, offset: int, length: int) -> bytes:
    """Return `length` bytes of the file from `offset`; fewer where it ends.

    Raises:
        DamageError: there is no such file, or the disk cannot read it.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return b"".join(_pieces(file.fileno(), offset, length))
    except OSError as error:
        raise DamageError(f"{path}: cannot read: {error.strerror or error}") from error


def _pieces(descriptor: int, offset: int, length: int) -> Iterable[bytes]:
    while length:
        piece = os.pread(descriptor, min(length, _READ_CHUNK_BYTES), offset)
        if not piece:
            return
        yield piece
        offset += len(piece)
        length -= len(piece)


class Lock:
    """The exclusive right to a directory, held until `release` or the end of the process.

    The file tells who holds it: name, process id and boot id (a random name of
    this start of the process), one line; nothing on a disk that is full. One
    that is `brief`, of a command that looks into a crawl at rest, says so too:
    who comes meanwhile waits for its end, at most `BRIEF_MAX`.

    Raises:
        BusyError: another process, or another Lock of this one, holds it.
        DirectoryError: it cannot be locked.
    """

    __slots__ = ("__weakref__", "_descriptor", "boot_id", "name", "path")

    def __init__(self, path: Path, name: str, *, boot_id: str = "", brief: bool = False) -> None:
        self.path = path
        self.name = name
        self.boot_id = boot_id or os.urandom(8).hex()
        self._descriptor = self._wait()
        _held.add(self)
        with suppress(OSError):  # a full disk must not keep anyone from making room
            os.ftruncate(self._descriptor, 0)
            words = f"{name} {os.getpid()} {self.boot_id}{' brief' * brief}\n"
            write_all(self._descriptor, words.encode())

    def _wait(self) -> int:
        """Open it, behind a holder that is brief or has not said yet who it is."""
        give_up = time.monotonic() + BRIEF_MAX
        while True:
            try:
                return self._open()
            except BusyError:
                if time.monotonic() > give_up or not _is_brief(self.path):
                    raise
            time.sleep(_LOOK_AGAIN)

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DirectoryError(f"{self.path}: cannot lock: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(f"{self.path}: in use by {lock_holder(self.path)}") from None
        except OSError as error:
            os.close(descriptor)
            raise DirectoryError(f"{self.path}: cannot lock: {error.strerror}") from error
        return descriptor

    def release(self) -> None:
        """Let others take it. A second call does nothing."""
        _held.discard(self)
        if self._descriptor >= 0:  # to close is not enough: a child on its way to exec still has a copy
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Lock({self.path}, {'held' if self._descriptor >= 0 else 'released'})"


def lock_holder(path: Path) -> str:
    """Who wrote the lock file last, as words for a message."""
    try:
        fields = path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        fields = []
    if len(fields) not in (3, 4):
        return "another process"
    return f"process {fields[0]} (pid {fields[1]}, boot {fields[2]})"


def _is_brief(path: Path) -> bool:
    """Whether the holder of a lock will let go soon, or the file is still that of one who has ended."""
    try:
        fields = path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False
    if len(fields) == 4 or not fields:
        return True
    return len(fields) == 3 and not Path("/proc", fields[1]).exists()


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _forget_in_child() -> None:
    """Close a forked child's copies, which would keep the locks after the parent's end."""
    for lock in list(_held):
        lock._close()  # the kernel keeps the parent's: only its last copy releases it
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def disown_locks(descriptors: Collection[int]) -> None:
    """Take their descriptors from locks of a simulated process that has died; nothing is closed.

    The numbers get other owners, whose files a release, or a forked child, would close.
    """
    for lock in list(_held):
        if lock._descriptor in descriptors:
            lock._descriptor = -1
            _held.discard(lock)


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where the disk knows no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
