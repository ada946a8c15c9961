"""Test that each URL is handed out exactly once, whatever step a SIGKILL or a power cut interrupts.

Groups, flushes and compactions are interrupted at every step. After a crash, the store is opened again, and
the stream continues after the last group in the store. In the end, the frontier must have received the first
link to each URL, in order, and no other link.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from crawler.storage.engines import open_store
from crawler.storage.kv import MemoryStore
from tests.due import crash_child

STEPS = [
    "links file begun",
    "links written",
    "links synced",
    "group staged",
    "group durable",
    "flush joined",
    "flush written",
    "flush synced",
    "flush renamed",
    "flush named",
    "flush staged",
    "flush durable",
    "flush finished",
    "compaction written",
    "compaction synced",
    "compaction renamed",
    "compaction named",
    "compaction staged",
    "compaction durable",
    "run unlinked",
]


def test_the_list_of_steps_is_complete(tmp_path: Path) -> None:
    """The list contains every step of the stream, and each step occurs at least three times."""
    seen: list[str] = []
    store = MemoryStore()
    crash_child.feed(store, crash_child.open_due(tmp_path, store, seen.append), seen.append)
    assert set(seen) == set(STEPS)
    assert all(seen.count(step) >= 3 for step in STEPS)
    assert crash_child.handed_out(store) == crash_child.expected()
    assert 60 < len(crash_child.expected()) < 12 * crash_child.GROUPS / 2


def _finish(directory: Path, store) -> None:
    due = crash_child.open_due(directory, store)
    due._check()
    crash_child.feed(store, due)
    due._check()
    assert due.check() == []
    assert crash_child.handed_out(store) == crash_child.expected()
    assert len(list((directory / "due").iterdir())) == len(due.known_set.runs), "an orphan was left"
    due.close()


@pytest.mark.parametrize("step", STEPS)
def test_kill_9(tmp_path: Path, step: str) -> None:
    child = os.fork()
    if not child:
        try:
            crash_child.main(tmp_path, step, 3)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    store = open_store(tmp_path / "store")
    _finish(tmp_path, store)
    store.close()


class Crash(BaseException):
    """A planted crash. It is a BaseException, so that no handler for Exception catches it."""


class DurableImage:
    """Keeps what survives a power cut.

    For a folder, these are the names in it when it was last synced, and for a file, the bytes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names: dict[str, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        for call in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, call, self._sync)

    def _sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[os.fstat(descriptor).st_ino] = Path(path).read_bytes()

    def restore(self, directory: Path) -> None:
        """Restore the directory to its state after a power cut."""
        for folder in ("due", "links"):
            shutil.rmtree(directory / folder, ignore_errors=True)
            (directory / folder).mkdir()
            for name, inode in self._names.get(str(directory / folder), {}).items():
                (directory / folder / name).write_bytes(self._contents.get(inode, b""))


@pytest.mark.parametrize("occurrence", [1, 2, 5])
@pytest.mark.parametrize("step", STEPS)
def test_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, occurrence: int) -> None:
    """Only synced data survives a power cut, so no batch may depend on unsynced data."""
    left = occurrence

    def crash(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            raise Crash(name)

    store = MemoryStore(keep_durable=True)
    with monkeypatch.context() as patched:
        image = DurableImage(patched)
        with pytest.raises(Crash):
            crash_child.feed(store, crash_child.open_due(tmp_path, store, crash), crash)
        image.restore(tmp_path)
    _finish(tmp_path, MemoryStore(store.durable))


def test_a_crash_in_the_recovery_itself(tmp_path: Path) -> None:
    """Crash ten times in a row, and then run to the end without a crash.

    Each crash occurs six steps later than the one before, counted from the start of its process.
    """
    store = MemoryStore()
    for fatal in range(1, 60, 6):
        left = fatal

        def crash(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(name)

        with pytest.raises(Crash):
            crash_child.feed(store, crash_child.open_due(tmp_path, store, crash), crash)
    _finish(tmp_path, store)
