"""Durable files: append, sync, replace and lock files, and find the free space of a disk.

The guarantee of each operation after a crash:

    append           the bytes are in the kernel's page cache; a power cut may lose all or some of them
    sync             the bytes and the length are on the disk (fdatasync)
    sync_directory   the names in a directory are on the disk: after create, rename, unlink
    new_file         gets its name once its content is on the disk; until then it is `NAME~`
    atomic_write     the old content or the new one, never a mixture

All functions raise StoreError if the disk fails. After an error of `new_file`, `atomic_write` or `new_folder`, the
old file or folder is unchanged.

An `AppendFile` is cut to its committed length when it is opened: later bytes belong to a group that never
committed. The first failed write closes the file permanently, because it is unknown how many bytes were
written. After a failed write, the process ends with StoreError and is restarted
(`storage/README.md`, "Known traps of LevelDB").

A lock is an `flock` on a file that is never deleted. If the file of a lock were deleted, two processes could
each lock a different file of the same name. The kernel releases the lock when the process ends for any
reason. A child process does not inherit the lock: the descriptor of the lock is closed on exec and in a
forked child.
"""

import errno
import fcntl
import mmap
import os
import shutil
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from crawler import bus_errors
from crawler.errors import BusyError, DamageError, DirectoryError, StoreError, UsageError

# the errors of `flock` on a file system that has no locks, and of a network file system without a lock server
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_LOCKS_NEEDED = "; a crawl needs a file system with locks (flock)"
BRIEF_MAX = 30.0  # seconds to wait for a lock that its holder will release soon
_LOOK_AGAIN = 0.05  # seconds between two attempts to get the lock


@contextmanager
def store_errors(path: Path, doing: str) -> Iterator[None]:
    """Raise a StoreError if the block raises an OSError. The message says what failed: `PATH: cannot DOING`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot {doing}: {error.strerror or error}") from error


@contextmanager
def opened(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """Yield a descriptor of a file or directory, and close it at the end of the block."""
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in the directory `path` durable."""
    with store_errors(path, "sync directory"), opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


@contextmanager
def closed_on_error(close: Callable[[], object]) -> Iterator[None]:
    """Call `close` if the block raises an exception, because the caller then gets no object to close."""
    try:
        yield
    except BaseException:
        close()
        raise


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte of `data`.

    On a nearly full disk, a single `os.write` may write only a part, without an error.
    """
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]


def mapped_file(path: Path, size: int) -> mmap.mmap:
    """Map a file for reading and writing. A new file, or a shorter one, is filled with zeros up to `size` bytes.

    A kill of the process loses no byte that was written to the map. A power cut may lose any of them.
    """
    bus_errors.install()
    with store_errors(path, "map"), opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
        length = os.lseek(descriptor, 0, os.SEEK_END)
        write_all(descriptor, bytes(max(0, size - length)))
        return mmap.mmap(descriptor, 0)


UNFINISHED = "~"  # suffix of a file or folder that is being written
_FORMER = "~former"  # suffix of the name of a folder that is being replaced


@contextmanager
def new_file(
    path: Path, *, mode: int = 0o644, reached: Callable[[str], None] = lambda _: None
) -> Iterator[IO[bytes]]:
    """Open a file for writing that durably replaces `path` when the block ends. If this fails, `path` is unchanged.

    If the program is killed, `NAME~` stays on the disk. The next writer of the same file overwrites it. If
    another program is writing the file, wait for that up to `BRIEF_MAX` seconds.
    `reached` is called with the name of each step, so that tests can crash there.

    Raises:
        BusyError: another program is still writing the file.
    """
    draft = path.with_name(path.name + UNFINISHED)
    with store_errors(path, "write"), open(_own_draft(draft, mode), "wb") as file:
        try:
            yield file
            file.flush()
            reached("written")
            os.fsync(file.fileno())
            reached("synced")
            os.rename(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            unlock(file.fileno())
    reached("renamed")
    sync_directory(path.parent)
    reached("named")


def _own_draft(draft: Path, mode: int) -> int:
    """Open an empty draft that no other writer uses.

    Otherwise, a writer could give the final name to what another writer has half written.
    """
    give_up = time.monotonic() + BRIEF_MAX
    while True:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
        with closed_on_error(partial(os.close, descriptor)):
            if _lock_now(descriptor) and _is_named(descriptor, draft):
                os.ftruncate(descriptor, 0)
                return descriptor
        os.close(descriptor)
        if time.monotonic() > give_up:
            raise BusyError(f"{draft}: another program is writing it; try again when that program has ended")
        time.sleep(_LOOK_AGAIN)


def _lock_now(descriptor: int) -> bool:
    """Take an exclusive lock and return True, or return False if another writer has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_named(descriptor: int, path: Path) -> bool:
    """Return whether `path` still names the open file: its former writer may have renamed or removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def named_output(path: Path) -> Iterator[IO[bytes]]:
    """Open an output file that a user named. Unlike `new_file`, follow symbolic links, and open pipes and devices.

    Raises:
        UsageError: the output cannot be written.
        StoreError: the disk failed; `path` is unchanged.
    """
    refuse_output(path)
    if _is_open_already(path):
        with store_errors(path, "write"), path.open("wb") as file:
            yield file
        return
    with new_file(path.resolve()) as file:
        yield file


def _is_open_already(path: Path) -> bool:
    """Return whether `path` must not be replaced, because it is a pipe, a device or a descriptor such as /dev/stdout."""
    named = str(path)
    is_descriptor = named.startswith(("/dev/", "/proc/")) and not named.startswith("/dev/shm/")
    return path.exists() and (not path.is_file() or is_descriptor)


def refuse_output(path: Path) -> None:
    """Raise UsageError if `path` cannot be written by `named_output`."""
    folder = path.resolve().parent
    if path.is_dir():
        number = errno.EISDIR
    elif not folder.is_dir() and not _is_open_already(path):
        number = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(path if _is_open_already(path) else folder, os.W_OK):
        number = errno.EACCES
    else:
        return
    raise UsageError(f"{path}: cannot write: {os.strerror(number)}")


def refuse_occupied(folder: Path) -> None:
    """Raise UsageError unless `folder` is an empty folder, or does not exist but can be created."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        occupied = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder}: cannot use as output: {error.strerror}") from error
    if occupied:
        raise UsageError(f"{folder}: is not empty; name a new directory")


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder, which becomes `path` when the block ends.

    With `replace`, the folder replaces an existing one. Without `replace`, `path` must be an empty folder, or
    must not exist. If the program is killed, the folder stays on the disk under the name `NAME~`. The next writer
    deletes it and starts again.
    """
    draft, former = path.with_name(path.name + UNFINISHED), path.with_name(path.name + _FORMER)
    with store_errors(path, "write"):
        if former.exists() and not path.exists():
            os.rename(former, path)  # an earlier writer was killed between the two renames: undo the first
        for left in (draft, former):
            if left.exists():
                shutil.rmtree(left)
        draft.mkdir(parents=True)
        try:
            yield draft
            os.sync()  # one `sync` is faster than one fsync for each of many files
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if replace and path.exists():
            os.rename(path, former)
        if path.exists():  # keep the existing folder: it may be the working directory of a process
            for entry in sorted(draft.iterdir()):
                os.rename(entry, path / entry.name)
            draft.rmdir()
        else:
            os.rename(draft, path)
    sync_directory(path.parent)
    shutil.rmtree(former, ignore_errors=True)


def atomic_write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of `path` by `data` durably, or leave the old content."""
    with new_file(path, mode=mode) as file:
        file.write(data)


def rename(old: Path, new: Path) -> None:
    """Rename a file durably. The new name may be in another directory of the same disk."""
    with store_errors(old, f"rename to {new.name}"):
        os.rename(old, new)
    sync_directory(new.parent)
    if old.parent != new.parent:
        sync_directory(old.parent)


def cut(path: Path, length: int) -> int:
    """Cut the file durably to `length` bytes; return the number of bytes that were dropped.

    Raises:
        DamageError: the file is missing or shorter than `length`.
        StoreError: the disk failed.
    """
    size = path.stat().st_size if path.exists() else -1
    if size < length:
        state = "is missing" if size < 0 else f"has {size} bytes"
        raise DamageError(f"{path}: {state}, but {length} bytes were committed")
    if size > length:
        with store_errors(path, "cut"):
            os.truncate(path, length)
            with opened(path, os.O_RDONLY) as descriptor:
                os.fsync(descriptor)
    return size - length


def free_bytes(path: Path) -> int:
    """Return the free space in bytes, for this user, of the disk that holds `path`."""
    space = _space(path)
    return space.f_bavail * space.f_frsize


def total_bytes(path: Path) -> int:
    """Return the size in bytes of the disk that holds `path`."""
    space = _space(path)
    return space.f_blocks * space.f_frsize


def _space(path: Path) -> os.statvfs_result:
    with store_errors(path, "read the free space"):
        return os.statvfs(path)


def reserve(path: Path, length: int) -> None:
    """Allocate `length` bytes of disk space to the file `path`.

    The file is called the ballast. A repair may free this space.
    """
    flags = os.O_WRONLY | os.O_CREAT
    with store_errors(path, f"reserve {length} bytes"), opened(path, flags, 0o600) as descriptor:
        os.ftruncate(descriptor, length)
        if length:
            os.posix_fallocate(descriptor, 0, length)


class AppendFile:
    """A file that only grows. `length` is the number of bytes in the file.

    A missing file is created, and its name is made durable immediately. An existing file is cut to
    `committed_length`.

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
        with store_errors(path, "open"):
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
        """Make all appended bytes durable."""
        with self._poison("sync"):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor without a sync. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._failed = True

    def __repr__(self) -> str:
        return f"AppendFile({self.path.name}, {self.length} bytes)"


class Lock:
    """The exclusive right to a directory, held until `release` or the end of the process.

    The lock file has one line about the holder: its name, process id and boot id (a random id of this start
    of the process). The line is missing if the disk is full. A command that reads a crawl which is not
    running marks its lock as `brief`. Other processes wait up to `BRIEF_MAX` seconds until such a lock is
    released.

    Raises:
        BusyError: another process, or another Lock of this process, holds the lock.
        DirectoryError: the directory cannot be locked.
    """

    __slots__ = ("__weakref__", "_descriptor", "boot_id", "name", "path")

    def __init__(self, path: Path, name: str, *, boot_id: str = "", brief: bool = False) -> None:
        self.path = path
        self.name = name
        self.boot_id = boot_id or os.urandom(8).hex()
        self._descriptor = self._wait()
        _held.add(self)
        with suppress(OSError):  # even on a full disk, a command that frees space must get the lock
            os.ftruncate(self._descriptor, 0)
            words = f"{name} {os.getpid()} {self.boot_id}{' brief' * brief}\n"
            write_all(self._descriptor, words.encode())

    def _wait(self) -> int:
        """Open and lock the file. If another process holds the lock and will release it soon, wait for that."""
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
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            with closed_on_error(lambda: os.close(descriptor)):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(in_use(self.path)) from None
        except OSError as error:
            need = _LOCKS_NEEDED if error.errno in _NO_LOCKS else ""
            raise DirectoryError(f"{self.path}: cannot lock: {error.strerror}{need}") from error
        return descriptor

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        _held.discard(self)
        if self._descriptor >= 0:
            unlock(self._descriptor)
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


def share(descriptor: int, *, wait: bool = True) -> None:
    """Take a shared lock. On a file system without locks, do nothing: no crawl can run there.

    Raises:
        BlockingIOError: `wait` is false, and another descriptor has an exclusive lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def unlock(descriptor: int) -> None:
    """Release a lock at once. Closing the descriptor is not enough: a forked child may have a copy of it."""
    with suppress(OSError):  # nothing was locked: the file system has no locks
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_held(path: Path, boot_id: str = "") -> bool:
    """Return whether a process holds the lock at `path` now; if `boot_id` is given, a process with this id."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        share(descriptor, wait=False)
    except BlockingIOError:
        return not boot_id or boot_id in (_words(path) or ())
    finally:
        os.close(descriptor)
    return False


def _words(path: Path) -> list[str] | None:
    """Return the words in a lock file: name, process id, boot id, and "brief" for a brief lock; None if unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return None


def lock_holder(path: Path) -> str:
    """Return a text for messages that names the present or last holder of the lock, as stated in the lock file."""
    words = _words(path) or []
    return f"process {words[0]} (pid {words[1]})" if len(words) in (3, 4) else "another process"


def in_use(path: Path) -> str:
    """Return a message that names the holder of a lock, and the commands that show and stop it."""
    words = _words(path) or []
    shown = f"`ps -p {words[1]}` shows it, " if len(words) in (3, 4) else ""
    return f"{path}: in use by {lock_holder(path)}; {shown}`crawler stop --wait` stops a crawl"


def _is_brief(path: Path) -> bool:
    """Return whether the lock will be released soon: it is brief, its file is empty, or its process has ended."""
    words = _words(path)
    if words is None:
        return False
    return len(words) in (0, 4) or (len(words) == 3 and not Path("/proc", words[1]).exists())


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _forget_in_child() -> None:
    """Close a forked child's copies of the descriptors. They would keep the locks after the parent has ended."""
    for lock in list(_held):
        lock._close()  # closes only the child's copy of the descriptor; the parent keeps its lock
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def disown_locks(descriptors: Collection[int]) -> None:
    """Make the locks of a simulated process that has ended forget these descriptors, which stay open.

    Later, other files will have the numbers of these descriptors. If the locks still had the numbers, a
    release or a forked child would close those files.
    """
    for lock in list(_held):
        if lock._descriptor in descriptors:
            lock._descriptor = -1
            _held.discard(lock)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a second name to a file that never changes, or copy the file if the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
