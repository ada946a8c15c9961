"""Test operations on durable files: append, cut, replace and lock."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crawler.errors import BusyError, DamageError, DirectoryError, StoreError
from crawler.pages import released
from crawler.storage import files

ROOT = Path(__file__).resolve().parents[2]


def test_append_continues_at_the_committed_length(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with_tail = files.AppendFile(path)
    assert with_tail.append(b"committed") == 0
    assert with_tail.append(b" torn tail") == 9
    with_tail.sync()
    with_tail.close()
    again = files.AppendFile(path, 9)
    assert again.append(b"!") == 9
    assert path.read_bytes() == b"committed!"
    assert again.length == 10


def test_a_file_without_committed_bytes_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"never committed")
    assert files.AppendFile(tmp_path / "log").length == 0
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("size", [-1, 0, 4])
def test_a_short_or_missing_file_is_damage(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    if size >= 0:
        path.write_bytes(b"x" * size)
    with pytest.raises(DamageError, match="5 bytes were committed"):
        files.AppendFile(path, 5)
    assert path.exists() == (size >= 0), "opening must not create a missing file"


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk may accept only a part of the bytes, without an error."""
    real = os.write
    monkeypatch.setattr(files.os, "write", lambda descriptor, data: real(descriptor, bytes(data[:3])))
    log = files.AppendFile(tmp_path / "log")
    log.append(b"0123456789")
    assert (tmp_path / "log").read_bytes() == b"0123456789"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_can_be_read_but_not_crawled(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No crawl can run there, so a reader needs no lock."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "lock").touch()
    monkeypatch.setattr(files.fcntl, "flock", flock)
    with released.reading(tmp_path):
        assert not files.is_held(tmp_path / "lock")
    with pytest.raises(DirectoryError, match=r"cannot lock: .*; a crawl needs a file system with locks"):
        files.Lock(tmp_path / "lock", "p0")


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_the_first_failure_closes_the_file_permanently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A full disk may have space again later, but it is unknown which bytes of the failed write are on the disk."""
    log = files.AppendFile(tmp_path / "log")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files.os, call, full)
        with pytest.raises(StoreError, match="No space left"):
            log.append(b"x")
            log.sync()
    with pytest.raises(StoreError, match="closed after a failed write"):
        log.append(b"y")
    with pytest.raises(StoreError):
        log.sync()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    log = files.AppendFile(tmp_path / "log")
    log.close()
    log.close()
    with pytest.raises(StoreError):
        log.append(b"x")


def test_atomic_write_replaces_a_file_or_leaves_it_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list"
    files.atomic_write(path, b"old")
    files.atomic_write(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(StoreError, match="list"):
        files.atomic_write(path, b"newer")
    assert path.read_bytes() == b"new"


def test_two_writers_of_a_file_do_not_mix_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer waits for the first one, and gives up after a while. A draft of a dead writer is replaced."""
    path, draft = tmp_path / "list", tmp_path / "list~"
    draft.write_bytes(b"longer than what the next writer writes")
    second = threading.Thread(target=files.atomic_write, args=(path, b"second"))
    with files.new_file(path) as file:
        file.write(b"first")
        second.start()
        with monkeypatch.context() as context, pytest.raises(BusyError, match="is writing it"):
            context.setattr(files, "BRIEF_MAX", 0.0)
            files.atomic_write(path, b"third")
        assert not path.exists()
    second.join()
    assert path.read_bytes() == b"second" and not draft.exists()


def test_a_writer_whose_draft_was_renamed_in_the_meantime_begins_a_new_one(tmp_path: Path) -> None:
    """Otherwise, it would write into the file of the writer before it."""
    path = tmp_path / "list"
    (tmp_path / "list~").touch()
    descriptor = os.open(tmp_path / "list~", os.O_WRONLY)
    assert files._is_named(descriptor, tmp_path / "list~")
    (tmp_path / "list~").rename(path)
    assert not files._is_named(descriptor, tmp_path / "list~")
    (tmp_path / "list~").touch()
    assert not files._is_named(descriptor, tmp_path / "list~")
    os.close(descriptor)


def test_cut_returns_the_number_of_dropped_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    assert files.cut(path, 10) == 0
    assert files.cut(path, 4) == 6
    assert path.read_bytes() == b"0123"


def test_rename_moves_between_directories(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "sub").mkdir()
    files.rename(tmp_path / "a", tmp_path / "sub" / "b")
    assert (tmp_path / "sub" / "b").read_bytes() == b"x"
    with pytest.raises(StoreError):
        files.rename(tmp_path / "a", tmp_path / "c")


def test_free_space_and_reserved_space(tmp_path: Path) -> None:
    assert 0 < files.free_bytes(tmp_path) <= files.total_bytes(tmp_path)
    # this folder does not exist, like the directory of a running crawl that was removed
    with pytest.raises(StoreError, match="cannot read the free space"):
        files.free_bytes(tmp_path / "removed")
    files.reserve(tmp_path / "ballast", 1 << 16)
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= 1 << 16
    with pytest.raises(StoreError, match="reserve"):
        files.reserve(tmp_path / "missing" / "ballast", 1)


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    with files.Lock(path, "p0") as lock:
        assert path.read_text().split() == ["p0", str(os.getpid()), lock.boot_id]
        with pytest.raises(
            DirectoryError,
            match=rf"in use by process p0 \(pid {os.getpid()}\); `ps -p {os.getpid()}` shows it, `crawler stop --wait`",
        ):
            files.Lock(path, "p1")
        assert "held" in repr(lock)
    with files.Lock(path, "a-much-shorter-or-longer-name", boot_id="b"):
        assert path.read_text() == f"a-much-shorter-or-longer-name {os.getpid()} b\n"


def test_a_failed_second_lock_leaves_the_first_in_place(tmp_path: Path) -> None:
    """If `Lock` used fcntl locks, closing the file after the failed second attempt would release the first lock."""
    path = tmp_path / "node.lock"
    lock = files.Lock(path, "p0")
    for _ in range(2):
        with pytest.raises(DirectoryError):
            files.Lock(path, "p1")
    lock.release()
    lock.release()
    files.Lock(path, "p1").release()


def test_a_lock_is_not_inherited(tmp_path: Path) -> None:
    """Neither a forked child nor an executed child keeps the lock after the parent has released it."""
    path = tmp_path / "node.lock"
    lock = files.Lock(path, "p0")
    begin, end = os.pipe()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:  # the child waits until the parent closes the pipe
        os.close(end)
        os.write(tell, b"!")
        os.read(begin, 1)
        os._exit(0)
    os.read(ready, 1)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with pytest.raises(DirectoryError):
            files.Lock(path, "p1")
        lock.release()
        files.Lock(path, "p1").release()
    finally:
        for descriptor in (end, begin, ready, tell):
            os.close(descriptor)
        os.waitpid(child, 0)
        sleeper.communicate(b"\n")


def test_a_released_lock_is_free_even_if_a_child_has_a_copy(tmp_path: Path) -> None:
    """A child that has not yet called exec has a copy of the descriptor."""
    lock = files.Lock(tmp_path / "node.lock", "p0")
    copy = os.dup(lock._descriptor)
    lock.release()
    files.Lock(tmp_path / "node.lock", "p1").release()
    os.close(copy)


def test_a_lock_is_released_when_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    code = (
        "import sys, os; from pathlib import Path; from crawler.storage.files import Lock;"
        f"lock = Lock(Path({str(path)!r}), 'p9'); print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(DirectoryError, match=f"process p9 .pid {holder.pid}.;"):
        files.Lock(path, "p0")
    holder.kill()
    holder.communicate()
    files.Lock(path, "p0").release()


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "node.lock").mkdir()
    with pytest.raises(DirectoryError, match=r"node\.lock"):
        files.Lock(tmp_path / "node.lock", "p0")
    assert files.lock_holder(tmp_path / "none") == "another process"


def test_a_process_waits_for_a_short_lock(tmp_path: Path) -> None:
    """A node that starts while a command reads the crawl must not fail."""
    path = tmp_path / "node.lock"
    reader = files.Lock(path, "p0", brief=True)
    starting = threading.Thread(target=lambda: files.Lock(path, "p0").release())
    starting.start()
    reader.release()
    starting.join()
    with files.Lock(path, "p0"), pytest.raises(BusyError, match="in use by process p0"):
        files.Lock(path, "p0", brief=True)


# -- new files and folders --------------------------------------------------------------------


def test_a_file_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(b"before")
    (tmp_path / "made~").write_bytes(b"of a writer that was killed, and longer")
    reached: list[tuple[str, bytes]] = []
    with files.new_file(path, reached=lambda step: reached.append((step, path.read_bytes()))) as file:
        file.write(b"all")
        assert path.read_bytes() == b"before"
    before, after = b"before", b"all"
    assert reached == [("written", before), ("synced", before), ("renamed", after), ("named", after)]
    with pytest.raises(KeyError), files.new_file(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == after and [each.name for each in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_gets_its_name_when_it_is_complete(tmp_path: Path, there: bool) -> None:
    """If an empty folder of this name exists, it is kept, not replaced."""
    path = tmp_path / "made"
    if there:
        path.mkdir()
    inode = path.stat().st_ino if there else 0
    (tmp_path / "made~").mkdir()
    (tmp_path / "made~" / "left").write_text("of a writer that was killed")
    with files.new_folder(path) as draft:
        (draft / "deep").mkdir()
        (draft / "deep" / "file").write_text("1")
        assert not there or not list(path.iterdir())
    assert [each.name for each in path.iterdir()] == ["deep"] and (not there or path.stat().st_ino == inode)
    with pytest.raises(KeyError), files.new_folder(path, replace=True) as draft:
        raise KeyError
    assert [each.name for each in path.iterdir()] == ["deep"]
    with files.new_folder(path, replace=True) as draft:
        (draft / "other").write_text("2")
    assert [each.name for each in path.iterdir()] == ["other"]
    assert [each.name for each in tmp_path.iterdir()] == ["made"]
