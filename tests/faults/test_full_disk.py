"""Test a full disk, which is a small tmpfs. If the user may not mount a tmpfs, the tests are skipped."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from crawler.crawl.journal import load_journal
from crawler.pages.withdrawals import load_rules
from tests.end_to_end.test_many_processes import command
from tests.end_to_end.web import run
from tests.faults.harness import TreeWeb, crawl, judge, settings, several

PAGES = 60
# These settings disable the limits on free space and the reserved file, so that writes fail.
BARE = settings(
    *("--set", "store.low_water_bytes=0", "--set", "store.stop_water_bytes=0"),
    *("--set", "store.ballast_bytes=0"),
    # A flush that fails is retried after this number of seconds, and the process ends after twelve failures.
    *("--set", "due.max_wait=0.1"),
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill the disk except for `left` KiB."""
    state = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, state.f_bavail * state.f_bsize - (left << 10))))


@pytest.mark.parametrize("left", [0, 8, 24, 64, 160])
def test_commands_that_read_work_on_a_full_disk(tmp_path: Path, disk: Path, left: int) -> None:
    """Depending on `left`, the disk is full when the private copy is made, or when the engine opens the copy."""
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, "--max-pages", "40").code == 0
        fill(disk, left)
        for words in (
            ("status",),
            ("check",),
            ("why", web.seed),
            ("get", web.seed),
            ("export", "--format", "cdxj"),
            ("report",),
        ):
            ended = run(*words, "--dir", directory)
            assert ended.code == 0 and ended.out, (words, ended)
        assert not list(directory.glob("*/snapshot-*"))


@pytest.mark.parametrize(
    ("begun", "left"),
    [(False, 0), (False, 4), (False, 20), (False, 32), (False, 64), (False, 80), (True, 0), (True, 8)],
)
def test_a_full_disk_gives_exit_code_75_and_loses_nothing(
    tmp_path: Path, disk: Path, begun: bool, left: int
) -> None:
    """Depending on `left`, the disk is full when the seed, the store, the settings, a run of the DUE or the archive is
    written.

    In each case, the error message is one line, and the next run completes the crawl.
    """
    with TreeWeb(tmp_path, PAGES) as web:
        if begun:
            assert crawl(disk / "crawl", web.seed, *BARE, "--max-pages", "20").code == 0
        fill(disk, left)
        full = crawl(disk / "crawl", web.seed, *BARE)
        assert full.code == 75 and "Traceback" not in full.err, full
        assert "No space left" in full.err.splitlines()[-1]
        (disk / "filler").unlink()
        ended = crawl(disk / "crawl", web.seed, *BARE)
        assert ended.code == 0, ended
        found = judge(web, disk / "crawl")
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found


@pytest.mark.parametrize(("begun", "left"), [(False, 64), (False, 160), (True, 0), (True, 24)])
def test_several_processes_on_a_full_disk_end_at_once_and_lose_nothing(
    tmp_path: Path, disk: Path, begun: bool, left: int
) -> None:
    """Each process is restarted at most once, since a restart does not help while the disk is full."""
    flags = (*BARE, *several(3))
    with TreeWeb(tmp_path, PAGES) as web:
        if begun:
            assert crawl(disk / "crawl", web.seed, *flags, "--max-pages", "20").code == 0
        fill(disk, left)
        full = crawl(disk / "crawl", web.seed, *flags)
        assert full.code == 75 and "Traceback" not in full.err, full
        assert "No space left" in full.err.splitlines()[-1], full
        assert full.err.count("restarting it in") <= 3 and "restarting it in 0.8 s" not in full.err, full
        (disk / "filler").unlink()
        ended = crawl(disk / "crawl", web.seed, *flags)
        assert ended.code == 0, ended
        found = judge(web, disk / "crawl", processes=3)
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found


def no_segment(directory: Path) -> None:
    min((directory / "p0" / "warc").glob("*.gz")).unlink()


def no_manifest(directory: Path) -> None:
    next((directory / "p0" / "store").glob("MANIFEST-*")).unlink()


@pytest.mark.parametrize("left", [0, 8, 32, 64, 128])
@pytest.mark.parametrize("damage", [lambda directory: None, no_segment, no_manifest])
def test_a_repair_on_a_full_disk_that_changed_nothing_does_not_block_the_crawl(
    tmp_path: Path, disk: Path, damage: Callable[[Path], None], left: int
) -> None:
    """A repair that has changed the crawl must be completed first. In both cases, no page is lost or stored twice."""
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, "--max-pages", "40").code == 0
        damage(directory)
        fill(disk, left)
        full = run("check", "--repair", "--dir", directory)
        assert full.code in (0, 1, 75), full
        assert full.code != 75 or "No space left" in full.err, full
        (disk / "filler").unlink()
        journal = load_journal(directory)
        if journal is not None:
            assert any(fact is not None for fact in journal.facts.values()), journal
            assert run("check", "--repair", "--dir", directory).code in (0, 1)
        elif damage is not no_manifest or full.code != 75:
            ended = crawl(directory, web.seed, *BARE)
            assert ended.code == 0, ended
            found = judge(web, directory)
            assert found.lost == found.unstored == found.stored_twice == found.torn == 0, (found, full)


def is_untouched(directory: Path) -> bool:
    """Return whether a command has left no journal, no unfinished file and no unfinished folder."""
    return load_journal(directory) is None and not [*directory.rglob("*~"), *directory.glob(".reshard*")]


@pytest.mark.parametrize("left", [0, 64, 160])
def test_a_reshard_on_a_full_disk_leaves_the_crawl_as_it_was(tmp_path: Path, disk: Path, left: int) -> None:
    """The new folders are removed, because they take space."""
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, "--max-pages", "40").code == 0
        fill(disk, left)
        full = run("reshard", "--to", "3", "--dir", directory)
        assert full.code == 75 and "No space left" in full.err, full
        assert is_untouched(directory)
        (disk / "filler").unlink()
        assert crawl(directory, web.seed, *BARE).code == 0
        found = judge(web, directory)
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found


def test_a_reshard_that_meets_a_full_disk_after_its_decision_is_finished_by_any_command(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, "--max-pages", "40").code == 0
        monkeypatch.setenv("CRAWLER_FAULT", "reshard decided:1")
        assert command(directory, "reshard", "--to", "3").code < 0
        monkeypatch.delenv("CRAWLER_FAULT")
        fill(disk, 0)
        full = run("status", "--dir", directory)
        assert full.code == 75 and "No space left" in full.err and len(full.err.splitlines()) == 1, full
        (disk / "filler").unlink()
        assert run("status", "--dir", directory).code == 0 and is_untouched(directory)
        assert crawl(directory, web.seed, *BARE).code == 0
        found = judge(web, directory, processes=3)
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found


@pytest.mark.parametrize("left", [0, 4, 8, 12, 40])
def test_an_erasure_on_a_full_disk_is_undone_or_named_by_other_commands(
    tmp_path: Path, disk: Path, left: int
) -> None:
    """If no rule was in force when the disk was full, the crawl is as it was."""
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, "--max-pages", "40").code == 0
        fill(disk, left)
        full = run("withdraw", web.seed, "--erase", "--dir", directory)
        (disk / "filler").unlink()
        if full.code:
            assert full.code == 75 and "No space left" in full.err, full
            begun = bool(load_rules(directory))
            assert is_untouched(directory) is not begun
            if begun:
                refused = run("status", "--dir", directory)
                assert refused.code == 3 and "`crawler withdraw` continues it" in refused.err, refused
                assert run("withdraw", "--dir", directory).code == 0
        assert run("get", web.seed, "--dir", directory).code == (4 if load_rules(directory) else 0)
        assert crawl(directory, web.seed, *BARE).code == 0


@pytest.mark.parametrize("left", [0, 8])
def test_a_recovery_on_a_full_disk_leaves_the_crawl_as_it_was(tmp_path: Path, disk: Path, left: int) -> None:
    directory = disk / "crawl"
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(directory, web.seed, *BARE, *several(3), "--max-pages", "40").code == 0
        shutil.rmtree(directory / "p1")
        fill(disk, left)
        full = run("recover", "p1", "--dir", directory)
        assert full.code == 75 and "No space left" in full.err, full
        assert is_untouched(directory)
        (disk / "filler").unlink()
        assert run("recover", "p1", "--dir", directory).code == 0
        assert crawl(directory, web.seed, *BARE, *several(3)).code == 0
        found = judge(web, directory, processes=3)
    assert found.lost == 0, found


@pytest.mark.parametrize("left", [0, 8])
def test_an_example_on_a_full_disk_is_not_half_written(disk: Path, left: int) -> None:
    fill(disk, left)
    full = run("new", disk / "teas")
    assert full.code == 75 and "No space left" in full.err, full
    assert [path.name for path in disk.iterdir()] == ["filler"]
    (disk / "filler").unlink()
    assert run("new", disk / "teas").code == 0


def test_the_page_server_starts_on_a_full_disk(tmp_path: Path, disk: Path) -> None:
    """It reads a copy of the store in the system's temporary folder."""
    with TreeWeb(tmp_path, PAGES) as web:
        assert crawl(disk / "crawl", web.seed, *BARE).code == 0
    fill(disk, 0)
    command = [sys.executable, "-m", "crawler", "serve", "--dir", str(disk / "crawl"), "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        served = re.search(r"http://[^/]+/page", server.stdout.readline())
        assert served is not None, server.stderr.read()
        with urlopen(f"{served[0]}?url={web.seed}") as answer:
            assert answer.status == 200
        server.terminate()
        said = server.stderr.read()
    assert server.returncode == 0 and "No space left" in said and "Traceback" not in said, said
