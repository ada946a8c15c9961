"""A consistent copy of a store that another process has open.

Only one process may open a store. But the tables of a store never change after they are written, so a hard
link to a table serves as a copy. The log and the manifest only grow, so their copies are in a state that a
crash could have left. When the copy is opened, the engine replays its log and manifest as after a crash. A
copy is valid only if the manifest is the same before and after copying, because then no table was added or
removed in the meantime. The crawling process is not involved.

    CURRENT, MANIFEST-*, *.log    copied (a few MB); also the files by which a RocksDB store is recognized
    *.ldb, *.sst                  linked; see `link`

A copy costs one link per table, which takes 20 us. As long as the copy exists, tables that the store has
removed in compactions still take disk space.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.storage.manifest import read_manifest

T = TypeVar("T")

# number of attempts; one fails if the manifest changes meanwhile, as after each flush (every few MB of
# writes)
TRIES = 50
PAUSE = 0.02  # seconds between two attempts
_LINKED = (".ldb", ".sst")
_COPIED = ("CURRENT", "IDENTITY", "OPTIONS-", "rocksdict-config")


_FOLDER = "snapshot-"


@contextmanager
def private_folder(beside: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, and delete it at the end.

    If possible, the folder is made in `beside`, so that it is on the same file system and can contain hard links
    to files there. Folders that killed readers have left in `beside` are deleted, too.
    """
    folder = _made(beside)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def made_privately(beside: Path, make: Callable[[Path], T]) -> Iterator[T]:
    """Yield what `make` returns for a new folder in `beside`, or in the system's temporary folder if `beside` is full.

    Raises:
        StoreError: there is no room in either place.
    """
    with ExitStack() as stack:
        try:
            made = make(stack.enter_context(private_folder(beside)))
        except StoreError:
            made = make(stack.enter_context(private_folder()))
        yield made


def _made(beside: Path | None) -> Path:
    if beside is not None:
        _remove_left_over(beside)
        try:
            return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=beside))
        except OSError:  # `beside` is read-only, full, or belongs to another user
            pass
    return Path(tempfile.mkdtemp(prefix=_FOLDER))


def _remove_left_over(beside: Path) -> None:
    for folder in beside.glob(f"{_FOLDER}*-*"):
        maker = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if maker.isdigit() and not Path(f"/proc/{maker}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def snapshot(store: Path, into: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
    """Copy the store in the folder `store` to the new folder `into`.

    Raises:
        DirectoryError: there is no store, this user may not read it, or it changes too fast.
        DamageError: `CURRENT` names no manifest, or one that is missing.
        StoreError: the copy cannot be written.
    """
    for _ in range(TRIES):
        shutil.rmtree(into, ignore_errors=True)
        try:
            if _copied(store, into):
                return
        except FileNotFoundError:
            if not (store / "CURRENT").exists():
                raise DirectoryError(f"store {store}: cannot be read: CURRENT is missing") from None
        except PermissionError as error:
            raise DirectoryError(f"{error.filename or store}: cannot copy: {error.strerror}") from error
        except OSError as error:
            raise StoreError(
                f"{error.filename or store}: cannot be copied: {error.strerror or error}"
            ) from error
        pause(PAUSE)
    if not (store / (name := _manifest_name(store))).exists():
        raise DamageError(
            f"store {store}: CURRENT names {name}, which is missing; `crawler check --repair` may repair it"
        )
    raise DirectoryError(f"store {store}: it changes faster than it can be copied; try again")


def _copied(store: Path, into: Path) -> bool:
    """Copy the files of `store` that exist; return whether they form one state of the store."""
    into.mkdir(parents=True)
    before = _manifest(store)
    names = sorted(entry.name for entry in os.scandir(store))
    # Copy the older log first: a log that has a successor is complete, so no write between two logs is missed.
    for name in names:
        if name.endswith(".log") or name == before[0] or name.startswith(_COPIED):
            copy(store / name, into / name)
    # A store that is opened on the copy gives its new tables the numbers from `fresh` on. The original store
    # may already have files with these numbers that the manifest does not name yet. They must not be linked,
    # because the store opened on the copy would overwrite them.
    fresh = read_manifest((into / before[0]).read_bytes()).next_file
    for name in names:
        if name.endswith(_LINKED) and int(name.partition(".")[0]) < fresh:
            link(store / name, into / name)
    if before != _manifest(store):
        return False
    return (into / before[0]).stat().st_size == before[1] and (into / "CURRENT").exists()


def _manifest(store: Path) -> tuple[str, int]:
    """Return the name of the current manifest, and its length in bytes."""
    name = _manifest_name(store)
    return name, (store / name).stat().st_size


def _manifest_name(store: Path) -> str:
    current = store / "CURRENT"
    try:
        name = current.read_text(errors="replace").strip()
    except OSError as error:
        error.filename = error.filename or str(current)
        raise
    if not re.fullmatch(r"MANIFEST-[0-9]+", name):
        raise DamageError(f"store {store}: CURRENT names no manifest; `crawler check --repair` may repair it")
    return name


def copy(source: Path, target: Path) -> None:
    """Copy the bytes of a file. An OSError names the file that was being copied."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        error.filename = error.filename or str(source)
        raise


def link(source: Path, target: Path) -> None:
    """Give an immutable file a second name: a hard link, or a symbolic link if its file system is read-only.

    If neither is possible, the file is copied.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file is on another file system, or belongs to another user
        if os.statvfs(source).f_flag & os.ST_RDONLY:
            os.symlink(source.absolute(), target)
        else:
            copy(source, target)
