"""Log files to which several processes append, and which are rotated while they are open.

    pages.jsonl   pages.jsonl.1   pages.jsonl.2 ...     the newest lines are in the file without a number

A file is rotated when it would exceed a given size, or when its first line is older than a given age. Any
process may rotate a file. The process that rotates a file holds a lock on the file meanwhile. At their next
write, the other processes notice that the name now belongs to another file. In the same way, they notice a
rotation by logrotate, which may also compress the former files. No line is split between two files. With
`reopen_on`, a process opens its files again when it receives a signal. So the process closes a renamed file
at once. Without `reopen_on`, a process closes a renamed file only when it writes the next line.

A write costs two system calls (3 us) more than a plain append.
"""

import fcntl
import gzip
import os
import re
import signal
import threading
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from crawler.storage.files import write_all

_INSTANT = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_HEAD_BYTES = 4096  # number of bytes at the start of a file in which the time of the first line is looked for
_THREAD = "reopen"
_files: "weakref.WeakSet[RotatingFile]" = weakref.WeakSet()  # the files of this process


class RotatingFile:
    """Appends to `path`.

    A new file is started at `bytes_max`, or when the file is `age_max` seconds old (0: no limit). At most
    `kept` former files remain (0: all). The lines must contain a time in ISO form, from which their age is
    computed. `write` and `reopen` raise OSError if the file cannot be opened, renamed or written.
    """

    def __init__(self, path: Path, *, bytes_max: int = 0, age_max: float = 0.0, kept: int = 0) -> None:
        self.path = path
        self._bytes_max, self._age_max, self._kept = bytes_max, age_max, kept
        self._descriptor = -1
        self._lock = threading.Lock()  # `reopen` is called by another thread
        self._opened()
        _files.add(self)

    def write(self, data: bytes, now: float) -> None:
        """Append whole lines."""
        if data:
            with self._lock:
                if not self._is_current():
                    self._opened()
                if self._is_full(len(data), now):
                    self._rotate(len(data), now)
                write_all(self._descriptor, data)

    def reopen(self) -> None:
        """Open the file again if its name now belongs to another file or to none. A closed file stays closed."""
        with self._lock:
            if not self.closed and not self._is_current():
                self._opened()

    def close(self) -> None:
        """Close the file. Do nothing if it is closed already."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def _opened(self) -> None:
        self._close()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._began = 0.0  # the age is not known yet

    def _is_current(self) -> bool:
        """Return whether the name still belongs to the open file."""
        if self.closed:
            return False
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor)
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def _is_full(self, more: int, now: float) -> bool:
        size = os.fstat(self._descriptor).st_size
        if not size:
            return False
        if self._bytes_max and size + more > self._bytes_max:
            return True
        if not self._age_max:
            return False
        self._began = self._began or _first_instant(os.pread(self._descriptor, _HEAD_BYTES, 0)) or now
        return now - self._began > self._age_max

    def _rotate(self, more: int, now: float) -> None:
        """Rename the file, unless another process has just renamed it, and open the new file."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            if self._is_current() and self._is_full(more, now):
                self._shift()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._opened()

    def _shift(self) -> None:
        numbers = [number for number, _ in _numbered(self.path)]
        for number in sorted(numbers, reverse=True):
            former = self.path.with_name(f"{self.path.name}.{number}")
            if self._kept and number >= self._kept:
                former.unlink(missing_ok=True)
            else:
                former.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))


def reopen_on(number: signal.Signals) -> None:
    """Start a thread that reopens the files of this process at each signal.

    All other threads must block the signal.
    """
    if any(thread.name == _THREAD for thread in threading.enumerate()):
        return

    def wait() -> None:
        while True:
            signal.sigwait((number,))
            for file in list(_files):
                # the next write tries to reopen the file again; if this fails, its caller reports the error
                with suppress(OSError):
                    file.reopen()

    threading.Thread(target=wait, name=_THREAD, daemon=True).start()


def generations(path: Path) -> list[Path]:
    """Return the existing files of a log: the oldest first, and `path` last.

    Former files that logrotate has compressed are among them; `open_generation` opens them all.
    """
    former = [file for _, file in sorted(_numbered(path, suffix=r"(?:\.gz)?"), reverse=True)]
    return former + ([path] if path.exists() else [])


def open_generation(file: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file of a log for reading, compressed or not."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")


def _numbered(path: Path, suffix: str = "") -> list[tuple[int, Path]]:
    """Return the number and the path of each former file. `suffix` matches what may follow the number."""
    pattern = re.compile(re.escape(path.name) + r"\.([1-9]\d{0,5})" + suffix)
    found = ((pattern.fullmatch(entry.name), entry) for entry in path.parent.glob(f"{path.name}.*"))
    return [(int(match[1]), entry) for match, entry in found if match]


def _first_instant(head: bytes) -> float:
    """Return the first time in the text, which is read as UTC; 0.0 if the text has no time."""
    match = _INSTANT.search(head)
    try:
        return datetime.fromisoformat(match[0].decode()).replace(tzinfo=UTC).timestamp() if match else 0.0
    except ValueError:
        return 0.0
