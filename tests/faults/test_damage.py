"""Test that lost and damaged files of a crawl at rest are found, named, and repaired if that loses no data."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crawler.pages.segments import contents
from crawler.storage import files
from crawler.storage.engines import open_store
from crawler.storage.kv import scan_prefix
from crawler.storage.log_format import fragment_at
from crawler.storage.snapshot import snapshot
from crawler.upkeep import check as checking
from tests.faults.harness import ROOT, TreeWeb, crawl, judge, settings

PAGES = 150
TABLE = "p0/store/0*.[ls][ds][bt]"  # .ldb or .sst
SMALL = ("--set", "pages.segment_bytes=20000")


class Site:
    """A web, and a finished crawl of this web, which the tests copy and damage."""

    def __init__(self, web: TreeWeb, directory: Path) -> None:
        self.web = web
        self.directory = directory


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield a crawl with the default storage engine; `tests/faults/test_engines.py` tests the other engine."""
    folder = tmp_path_factory.mktemp("site")
    with TreeWeb(folder, PAGES) as web:
        ended = crawl(folder / "crawl", web.seed, *settings(*SMALL))
        assert ended.code == 0, ended
        yield Site(web, folder / "crawl")


@pytest.fixture
def directory(site: Site, tmp_path: Path) -> Path:
    return Path(shutil.copytree(site.directory, tmp_path / "crawl"))


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "crawler", *map(str, arguments)]
    return subprocess.run(
        words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("p0/warc/*.warc.gz"))


def within_response(path: Path, place: int) -> int:
    """Return a position in the first response after `place`. A cut at this position removes the whole payload."""
    members = contents(path, bytes_max=1 << 20)
    return next(
        offset + 15
        for offset, _, record in members
        if offset >= place and record is not None and b"WARC-Type: response" in record
    )


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("left", [0, 5000])
def test_pages_of_a_lost_segment_are_fetched_again(site: Site, directory: Path, left: int) -> None:
    """`check` reports a missing or truncated file.

    The next crawl queues the pages of the lost segment, and fetches only these pages again.
    """
    path = segments(directory)[1]
    if not left:
        path.unlink()
    else:
        os.truncate(path, within_response(path, left))
    checked = command("check", "--dir", directory)
    assert checked.returncode == 3 and path.name in checked.stdout, checked
    before = site.web.fetched()
    ended = crawl(directory, site.web.seed, *settings(*SMALL))
    assert ended.code == 0 and "will be fetched again" in ended.err, ended
    again = site.web.fetched() - before
    found = judge(site.web, directory)
    assert 5 < again.total() < PAGES / 2 and max(again.values()) == 1
    assert found.lost == found.unstored == found.stored_twice == 0, found
    assert command("check", "--dir", directory).returncode == 0


def test_reserved_space_is_allocated_and_freed(site: Site, directory: Path) -> None:
    ended = crawl(directory, site.web.seed, *settings("--set", "store.ballast_bytes=1MiB"))
    ballast = directory / "p0" / "ballast"
    assert ended.code == 0 and ballast.stat().st_blocks * 512 >= 1 << 20
    repaired = command("check", "--dir", directory, "--repair")
    assert repaired.returncode == 0 and "freed 1 MiB of ballast" in repaired.stdout
    assert not ballast.exists()


def test_a_repair_frees_reserved_space_before_it_writes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = directory / "p0" / "ballast"
    ballast.write_bytes(bytes(1 << 20))

    def write_all(descriptor: int, data: bytes) -> None:
        if ballast.exists():
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", write_all)
    monkeypatch.setattr(
        checking,
        "repair_store",
        lambda store, engine, before: ("" if not ballast.exists() else "too early", False),
    )
    assert checking.repair_before_opening(directory / "p0") == ["freed 1 MiB of ballast"]


def newest_log(directory: Path) -> Path:
    return max(directory.glob("p0/store/*.log"))


def leave_log(directory: Path) -> None:
    """Add writes to the newest log, as after a crash. When RocksDB is closed cleanly, it leaves an empty log."""
    path, copy = directory / "p0" / "store", directory / "copy"
    with closing(open_store(path)) as store:
        for key, value in list(scan_prefix(store, b"u/")):
            batch = store.batch()
            batch.put(key, value)
            store.write(batch)
        snapshot(path, copy)
    shutil.rmtree(path)
    copy.rename(path)


def test_a_torn_tail_of_the_store_is_cut(site: Site, directory: Path) -> None:
    """A power cut may leave bytes after the last complete record of the log.

    These bytes are cut off and reported, and the crawl continues.
    """
    leave_log(directory)
    log = newest_log(directory)
    log.write_bytes(log.read_bytes() + bytes(range(256)) * 20)
    ended = crawl(directory, site.web.seed, *settings(*SMALL))
    assert ended.code == 0 and "5120 bytes of a torn tail cut off" in ended.err, ended
    assert command("check", "--dir", directory).returncode == 0


@pytest.mark.parametrize("byte", [5, 100])
def test_damage_in_the_middle_of_the_store_is_refused(site: Site, directory: Path, byte: int) -> None:
    """The content or the length of a record is damaged.

    A record longer than the file must not count as the log's end.
    """
    leave_log(directory)
    log = newest_log(directory)
    data = log.read_bytes()
    begin = len(data) - len(data) % (32 << 10)  # the last block
    assert len(data) > begin + 200
    flip(log, begin + byte)
    ended = crawl(directory, site.web.seed, *settings(*SMALL))
    assert ended.code == 3 and "store" in ended.err and ended.err.count("\n") == 1, ended


def test_an_invalid_admin_token_is_reported_and_replaced(site: Site, directory: Path) -> None:
    token = directory / "admin-token"
    token.write_text("deadbeef\n")
    checked = command("check", "--dir", directory)
    assert checked.returncode == 3 and "admin-token: not a valid token" in checked.stdout, checked
    assert command("check", "--dir", directory, "--repair").returncode == 0
    assert crawl(directory, site.web.seed, *settings(*SMALL)).code == 0
    assert command("check", "--dir", directory).returncode == 0


def test_a_log_that_was_cut_between_two_records_is_refused(site: Site, directory: Path) -> None:
    """The log looks intact, but the entry about the last clean shutdown is missing."""
    log = newest_log(directory)
    data = log.read_bytes()
    if not data:
        pytest.skip("RocksDB leaves an empty log")
    begins, at = [], 0
    while (fragment := fragment_at(data, at)) is not None and fragment.end < 32 << 10:
        begins.append(at := fragment.end)
    os.truncate(log, begins[len(begins) // 2])
    ended = crawl(directory, site.web.seed, *settings(*SMALL))
    assert ended.code == 3 and "older than the last run" in ended.err and ended.err.count("\n") == 1, ended
    repaired = command("check", "--dir", directory, "--repair")
    assert repaired.returncode == 0, repaired
    assert crawl(directory, site.web.seed, *settings(*SMALL)).code == 0
    found = judge(site.web, directory)
    assert found.lost == found.unstored == 0, found


@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        ("p0/store", "deleted"),
        (TABLE, "deleted"),
        (TABLE, "cut"),
        (TABLE, "flipped"),
        ("p0/due/*.run", "deleted"),
        ("p0/due/*.run", "flipped"),
        ("p0/warc/*.gz", "flipped"),
    ],
)
def test_damage_is_never_silent(site: Site, directory: Path, pattern: str, how: str) -> None:
    """`check` ends with exit code 3, and names a damaged run.

    After a repair, the crawl has all pages and has fetched only a few of them again.
    """
    assert command("check", "--dir", directory).returncode == 0
    open_store(directory / "p0" / "store").close()  # opening the store turns the log into a table
    path = max(directory.glob(pattern), key=lambda path: path.stat().st_size)
    if how == "flipped":
        flip(path, path.stat().st_size // 2)
    elif how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    checked = command("check", "--dir", directory)
    assert checked.returncode == 3 and "Traceback" not in checked.stderr, checked
    assert path.suffix != ".run" or path.name in checked.stdout + checked.stderr, checked
    repaired = command("check", "--dir", directory, "--repair")
    assert repaired.returncode == 0 and "repaired: " in repaired.stdout, repaired
    before = site.web.fetched()
    ended = crawl(directory, site.web.seed, *settings(*SMALL))
    assert ended.code == 0, ended
    assert (site.web.fetched() - before).total() < 5
    found = judge(site.web, directory)
    assert found.lost == found.unstored == 0, found
    assert command("check", "--dir", directory).returncode == 0
