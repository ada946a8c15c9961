"""Makes a private copy of the store and the DUE for a reader. The reader needs no lock and changes no file of the crawl.

    DIR/p0/snapshot-PID-.../store     a copy of the store as it is committed now (`storage/snapshot.py`)
    DIR/p0/snapshot-PID-.../due       links to the runs, which never change
    DIR/p0/snapshot-PID-.../links     copies of the links log
    DIR/p0/warc                       is read in place: committed bytes never change, and no segment is
                                      deleted while it is read (`pages/released.py`)

The store determines which data is committed. All files that the store may name are linked before the store is
copied. Files that appeared in the meantime are linked afterwards. So all files that the copy names exist,
even if the process merges or deletes its own files at the same time. A reader opens the copy as a process
opens its own files after a crash. Recovery may then cut or delete files, but only those of the copy.

If the file system of the crawl is read-only or full, the copy is in the system's temporary folder. For a
private copy, each table and each run is linked, and the logs are copied.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from crawler.errors import DirectoryError, StoreError
from crawler.storage.snapshot import copy, link, made_privately, snapshot

T = TypeVar("T")

_LINKED = ("due", "*.run")  # immutable files
_GROWING = ("links", "*.log")


@contextmanager
def private_copy(process: Path, open_copy: Callable[[Path], T]) -> Iterator[T]:
    """Yield what `open_copy` returns for a folder with a copy of the store and the DUE of `process`.

    The copy is deleted at the end. A reader that opens the copy writes to it, so `open_copy` may find the disk
    full, too. It is then called again with a copy in the system's temporary folder.

    Raises:
        DirectoryError: there is no store, this user may not read it, or it changes too fast.
        StoreError: there is no room for the copy.
    """

    def make(folder: Path) -> T:
        _fill(process, folder)
        return open_copy(folder)

    with made_privately(process, make) as opened:
        yield opened


def signature(process: Path) -> list[tuple[str, int]]:
    """Return the names and sizes of the files of the store. Every write changes at least one of these."""
    try:
        return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(process / "store"))
    except OSError:
        return []


def _fill(process: Path, folder: Path) -> None:
    try:
        for kind in (_LINKED, _GROWING):
            _link_new(process, folder, *kind)
        snapshot(process / "store", folder / "store")
        for kind in (_LINKED, _GROWING):
            _link_new(process, folder, *kind)
        for log in (folder / _GROWING[0]).iterdir():
            _copy(process / _GROWING[0] / log.name, log)
    except PermissionError as error:
        raise DirectoryError(f"{error.filename}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise StoreError(
            f"{error.filename or process}: cannot be copied: {error.strerror or error}"
        ) from error


def _link_new(process: Path, folder: Path, name: str, pattern: str) -> None:
    (folder / name).mkdir(exist_ok=True)
    for path in (process / name).glob(pattern):
        target = folder / name / path.name
        if not os.path.lexists(target):
            try:
                link(path, target)
            except FileNotFoundError:
                # The store has replaced this file by another one in the meantime (after a merge or a flush),
                # so the store no longer names it.
                continue


def _copy(source: Path, linked: Path) -> None:
    """Replace a hard link with a copy, because a log may be truncated when it is opened."""
    draft = linked.with_suffix(".copy")
    try:
        copy(source, draft)
    except FileNotFoundError:  # the process deleted the file after it was linked
        copy(linked, draft)
    os.replace(draft, linked)
