"""Test crawls whose environment fails: a directory that vanishes, a file system that fails, too little memory."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import ROOT, Ended, TreeWeb, crawl, end, judge, settings, several, start

PAGES = 300
MIB = 1 << 20


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TreeWeb]:
    with TreeWeb(tmp_path, PAGES, "--delay", "0.02") as served:
        yield served


def begin(web: TreeWeb, directory: Path, *flags: str) -> "subprocess.Popen[str]":
    """Start a crawl; return when it has fetched some pages."""
    running = start(directory, web.seed, *flags)
    while running.poll() is None and sum(web.fetched().values()) < PAGES // 10:
        time.sleep(0.01)
    return running


def is_clear(ended: Ended) -> bool:
    """Return whether a command ended with a line that names the cause, and blamed neither itself nor a page."""
    assert "Traceback" not in ended.err and "bug" not in ended.err, ended.err
    return ended.err.splitlines()[-1].startswith("crawler: ")


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_directory_that_vanishes_ends_the_crawl(
    web: TreeWeb, tmp_path: Path, how: str, processes: int
) -> None:
    """The crawl makes no new directory. If the directory was only moved, the crawl continues at its new place."""
    directory, moved = tmp_path / "crawl", tmp_path / "moved"
    flags = settings(*several(processes))
    running = begin(web, directory, *flags)
    directory.rename(moved)
    if how == "removed":
        shutil.rmtree(moved)
    ended = end(running, 60)
    assert ended.code in (3, 75) and is_clear(ended), ended
    assert not directory.exists()
    if how == "moved":
        assert crawl(moved, web.seed, *flags).code == 0
        found = judge(web, moved, processes=processes)
        assert found.lost == found.unstored == found.stored_twice == 0, found


@pytest.mark.parametrize(("mebibytes", "processes"), [(250, 1), (300, 1), (300, 3), (400, 3)])
def test_too_little_memory_is_not_reported_as_a_bug(
    web: TreeWeb, tmp_path: Path, mebibytes: int, processes: int
) -> None:
    """If the crawl ends, it says why. The next run, which has enough memory, completes the crawl."""
    flags = (web.seed, *settings(*several(processes)))
    command = [sys.executable, "-m", "crawler", "crawl", "--dir", str(tmp_path / "crawl"), *flags]
    limited = ["prlimit", f"--as={mebibytes * MIB}", *command]
    few = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
    ended = Ended(few.returncode, few.stdout, few.stderr)
    assert ended.code == 0 or (ended.code == 75 and is_clear(ended) and "memory" in ended.err), ended
    assert crawl(tmp_path / "crawl", *flags).code == 0
    found = judge(web, tmp_path / "crawl", processes=processes)
    assert found.lost == found.unstored == found.stored_twice == 0, found
