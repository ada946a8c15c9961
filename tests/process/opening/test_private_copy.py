"""Test reading the store of a process from outside.

A reader needs no lock, changes nothing, and sees a committed state.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError, DirectoryError
from crawler.process.opening import private_copy as module
from crawler.process.opening.private_copy import private_copy
from crawler.process.opening.stages import Stages, at_rest, reading
from crawler.storage import snapshot
from crawler.upkeep.check import check
from tests.engines import ENGINES
from tests.process.opening.test_stages import URL, fetched
from tests.process.support import new_links


@pytest.fixture(params=ENGINES)
def crawl(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[CrawlDirectory, Any]:
    """Create an empty crawl of one process; return its directory and its configuration."""
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create(bytes(16))
    config = convert({"store": {"engine": request.param}, "due": {"buffer_entries_max": 1000}})
    directory.settings.save(config)
    return directory, config


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and modification time of each file of a process, except for the diagnostic log of RocksDB."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "LOG"
    }


def test_several_readers_beside_a_writer(crawl: tuple[CrawlDirectory, Any]) -> None:
    """Each reader sees the state that was committed when it opened the store.

    The readers change no file, and another writer can start later.
    """
    directory, config = crawl
    folder = directory.process("p0")
    with at_rest(config, directory, "p0", clock=VirtualClock()) as writer:
        fetched(writer, URL)
        writer.commits.commit(new_links(writer, ["http://a.org/waiting"]))
        before = files(folder)
        with reading(config, directory, "p0", clock=VirtualClock()) as first:
            fetched(writer, "http://a.org/later", b"later")
            with reading(config, directory, "p0", clock=VirtualClock()) as second:
                for reader, count in ((first, 1), (second, 2)):
                    assert [record.url for _, record in reader.pages.all_records()].count(URL) == 1
                    assert reader.point.counters["stored.records"] == count
                    assert reader.due.pending == (1 if reader is first else 0)
                    page = reader.pages.get(writer.fingerprinter.fingerprint(URL))
                    assert page is not None and b"one page" in page.payload
                    assert check(reader) == []
        assert before.keys() <= files(folder).keys()
        assert not list(folder.glob("snapshot-*"))
    with reading(config, directory, "p0", clock=VirtualClock()) as reader:
        with at_rest(config, directory, "p0", clock=VirtualClock()) as writer:
            fetched(writer, "http://a.org/beside", b"beside")
        assert reader.point.counters["stored.records"] == 2 and check(reader) == []


def test_a_reader_recovers_nothing(crawl: tuple[CrawlDirectory, Any]) -> None:
    """After a crash, a writer cuts off uncommitted data and moves unknown files away; a reader must do neither."""
    directory, config = crawl
    folder = directory.process("p0")
    stages = Stages(config, folder, bytes(16), clock=VirtualClock())
    fetched(stages, URL)
    stages.commits.commit(new_links(stages, ["http://a.org/waiting"]))
    stages.close(clean=False)
    for path in [*folder.glob("warc/*.open"), *folder.glob("links/*.log")]:
        with path.open("ab") as file:
            file.write(b"\x1f\x8btorn")
    (folder / "warc" / "unknown.warc.gz").write_bytes(b"unknown")
    (folder / "due" / "00000099.run").write_bytes(b"unknown")
    before = files(folder)
    with reading(config, directory, "p0", clock=VirtualClock()) as reader:
        assert check(reader) == [] and reader.due.pending == 1 and reader.restored == 0
    assert files(folder) == before


def test_damage_is_reported_with_the_path_of_the_original(crawl: tuple[CrawlDirectory, Any]) -> None:
    directory, config = crawl
    with at_rest(config, directory, "p0", clock=VirtualClock()) as writer:
        fetched(writer, URL)
    (run,) = directory.process("p0").glob("due/*.run")
    run.write_bytes(b"damaged")
    with pytest.raises(DamageError) as found, reading(config, directory, "p0", clock=VirtualClock()):
        pass
    assert str(run) in str(found.value), found.value
    shutil.rmtree(directory.process("p0") / "store")
    with (
        pytest.raises(DirectoryError, match="is missing"),
        reading(config, directory, "p0", clock=VirtualClock()),
    ):
        pass


def test_a_process_that_changes_its_files_meanwhile(
    crawl: tuple[CrawlDirectory, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is reported only if the store did not change during the copy. Otherwise, a new copy is made."""
    directory, config = crawl
    with at_rest(config, directory, "p0", clock=VirtualClock()) as writer:
        fetched(writer, URL)
        opened: list[Path] = []
        real = Stages.__init__

        def failing(self: Stages, *args: Any, **how: Any) -> None:
            if how.get("copy") and not opened:
                opened.append(how["copy"])
                fetched(writer, "http://a.org/later", b"later")
                raise DamageError("a run is missing")
            real(self, *args, **how)

        monkeypatch.setattr(Stages, "__init__", failing)
        with reading(config, directory, "p0", clock=VirtualClock()) as reader:
            assert reader.point.counters["stored.records"] == 2 and opened


def merging(process: Path, real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """Return a replacement for `snapshot` that first lets the process merge its runs and flush its links."""

    def snapshot_beside(store: Path, into: Path) -> None:
        (process / "due" / "1.run").unlink()
        (process / "due" / "2.run").write_bytes(b"merged")
        (process / "links" / "1.log").unlink()
        (process / "links" / "2.log").write_bytes(b"new")
        with (process / "links" / "0.log").open("ab") as log:
            log.write(b" longer")
        real(store, into)

    return snapshot_beside


@pytest.mark.parametrize("links", ["hard", "symbolic", "none"])
def test_every_file_that_the_store_may_name_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: str
) -> None:
    """The copy is complete even if the process deletes files meanwhile, with and without hard links.

    Logs are copied, not linked.
    """
    process = tmp_path / "p0"
    for name in ("due/1.run", "links/0.log", "links/1.log", "store/CURRENT"):
        (process / name).parent.mkdir(parents=True, exist_ok=True)
        (process / name).write_bytes(name.encode())
    if links != "none":
        monkeypatch.setattr(module, "snapshot", merging(process, lambda store, into: None))
    else:
        monkeypatch.setattr(module, "snapshot", lambda store, into: None)
    if links != "hard":
        monkeypatch.setattr(os, "link", _refusing)
    if links == "symbolic":
        monkeypatch.setattr(module, "snapshot", lambda store, into: None)
        read_only = os.statvfs_result((0,) * 8 + (os.ST_RDONLY, 255))
        monkeypatch.setattr(snapshot.os, "statvfs", lambda path: read_only)
    with private_copy(process, lambda copy: copy) as copy:
        assert {"1.run"} <= {path.name for path in (copy / "due").iterdir()}
        assert (copy / "due" / "1.run").is_symlink() == (links == "symbolic")
        for log in (copy / "links").iterdir():
            assert not log.is_symlink() and log.stat().st_nlink == 1
        assert (copy / "links" / "1.log").read_bytes() == b"links/1.log"
        if links == "hard":
            assert (copy / "due" / "2.run").read_bytes() == b"merged"
            assert (copy / "links" / "0.log").read_bytes() == b"links/0.log longer"
            assert (copy / "links" / "2.log").read_bytes() == b"new"
    assert not copy.exists()


def _refusing(*_: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_without_room_beside_the_store_the_copy_is_made_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = tmp_path / "p0"
    (process / "links").mkdir(parents=True)
    (process / "links" / "0.log").write_bytes(b"links")
    monkeypatch.setattr(module, "snapshot", lambda store, into: None)
    real = shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if Path(target).is_relative_to(process):
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr(shutil, "copyfile", full)
    with private_copy(process, lambda copy: copy) as copy:
        assert not copy.is_relative_to(process)
        assert (copy / "links" / "0.log").read_bytes() == b"links"


def test_copies_left_by_killed_readers_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = tmp_path / "p0"
    (process / f"snapshot-{2**22 + 1}-x" / "store").mkdir(parents=True)  # no process can have this ID
    (process / f"snapshot-{os.getpid()}-y").mkdir()
    monkeypatch.setattr(module, "snapshot", lambda store, into: None)
    with private_copy(process, lambda copy: copy):
        pass
    assert [path.name for path in process.glob("snapshot-*")] == [f"snapshot-{os.getpid()}-y"]
