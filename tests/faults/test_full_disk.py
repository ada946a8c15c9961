"""Test a full disk, which is a small tmpfs. If the user may not mount a tmpfs, the tests are skipped."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.web import run
from tests.faults.harness import TreeWeb, crawl, judge, settings

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
