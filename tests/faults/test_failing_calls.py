"""Test commands on a file system whose calls fail: each works, or ends with one line and loses nothing.

The calls fail in a library that is preloaded (`failing_calls.c`). Without gcc, the tests are skipped.
"""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import ROOT, Ended, TreeWeb, crawl, end, judge, settings, several

PAGES = 60
READ = (("status",), ("check",), ("export", "--format", "cdxj"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    made = tmp_path_factory.mktemp("library") / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TreeWeb, Path]]:
    folder = tmp_path_factory.mktemp("half_done")
    with TreeWeb(folder, PAGES) as web:
        assert crawl(folder / "crawl", web.seed, *settings("--max-pages", "30")).code == 0
        yield web, folder / "crawl"


def started(library: Path, failing: str, *words: object, gate: Path | None = None) -> "subprocess.Popen[str]":
    """Start a command whose calls fail as `failing` says: at once or, with `gate`, once that file exists."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library), "FAILING": failing}
    if gate is not None:
        environ["FAILING_IF"] = str(gate)
    command = [sys.executable, "-m", "crawler", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environ, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def is_clear(ended: Ended) -> bool:
    return "Traceback" not in ended.err and ended.err.splitlines()[-1].startswith("crawler: ")


@pytest.mark.parametrize(
    ("failing", "works"),
    [
        (f"lock {errno.EOPNOTSUPP} /crawl", True),
        (f"map {errno.ENODEV} /crawl/", True),
        (f"sync {errno.EOPNOTSUPP} /crawl/", True),
        (f"allocate {errno.EOPNOTSUPP} /crawl/", True),
        (f"names {errno.EXDEV} /crawl/", True),
        (f"write {errno.EROFS} /crawl/", True),
        (f"open {errno.ENFILE} /crawl/", False),
        (f"read {errno.EIO} crawl.toml", False),
        (f"read {errno.EIO} CURRENT", False),
    ],
)
def test_commands_that_read_work_or_end_with_75(
    half_done: tuple[TreeWeb, Path], tmp_path: Path, library: Path, failing: str, works: bool
) -> None:
    directory = shutil.copytree(half_done[1], tmp_path / "crawl", ignore=shutil.ignore_patterns("*.sock"))
    running = [started(library, failing, *words, "--dir", directory) for words in READ]
    for process in running:
        ended = end(process, 60)
        if works:
            assert ended.code == 0 and ended.out and "Traceback" not in ended.err, ended
        else:
            assert ended.code == 75 and is_clear(ended) and len(ended.err.splitlines()) == 1, ended


@pytest.mark.parametrize("failing", [f"lock {errno.ENOLCK} /crawl", f"map {errno.ENODEV} /crawl/p0/store"])
def test_a_crawl_on_a_file_system_that_lacks_something_says_what(
    half_done: tuple[TreeWeb, Path], tmp_path: Path, library: Path, failing: str
) -> None:
    directory = shutil.copytree(half_done[1], tmp_path / "crawl", ignore=shutil.ignore_patterns("*.sock"))
    ended = end(started(library, failing, "crawl", "--dir", directory, *settings()), 60)
    assert ended.code == (3 if "lock" in failing else 75) and is_clear(ended), ended
    assert os.strerror(int(failing.split()[1])) in ended.err


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("call", ["write", "sync", "names"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_during_a_crawl_ends_it_without_a_loss(
    tmp_path: Path, library: Path, number: int, call: str, processes: int
) -> None:
    """A file system that becomes read-only after an error fails in this way, too."""
    directory, gate, flags = tmp_path / "crawl", tmp_path / "gate", settings(*several(processes))
    with TreeWeb(tmp_path, PAGES * 3, "--delay", "0.02") as web:
        words = ("crawl", web.seed, "--dir", directory, *flags)
        running = started(library, f"{call} {number} /crawl/", *words, gate=gate)
        while running.poll() is None and sum(web.fetched().values()) < PAGES // 2:
            time.sleep(0.01)
        gate.touch()
        ended = end(running, 120)
        assert ended.code == 75 and is_clear(ended), ended
        assert crawl(directory, *flags).code == 0
        found = judge(web, directory, processes=processes)
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found
