"""Test that a command with an external error prints one line, without a traceback, and returns an exit code."""

import errno
import gc
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawler import cli
from crawler.errors import CrawlerError, DirectoryError, NoSeedError, StoreError
from crawler.process.lifecycle.garbage_collection import settings_kept
from tests.end_to_end.web import Web, crawl, page, run


def _directory_error(number: int) -> DirectoryError:
    """Return a directory error that an error of the operating system caused."""
    try:
        raise DirectoryError("/x: cannot be made") from OSError(number, "why")
    except DirectoryError as error:
        return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 75),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 75),
        (OSError(errno.EIO, "Input/output error"), 75),
        (_directory_error(errno.ENOSPC), 75),
        (_directory_error(errno.EFBIG), 75),
        (_directory_error(errno.EACCES), DirectoryError.exit_code),
        (_directory_error(errno.EMFILE), 75),
        (OSError(errno.EMFILE, "Too many open files", "/x"), 75),
        (MemoryError(), 75),
        (RuntimeError("can't start new thread"), 75),
        (StoreError("the disk"), 75),
        (CrawlerError("something"), CrawlerError.exit_code),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_of_external_errors(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the disk is full, the exit code is 75, so scripts try again.

    It does not matter which module finds the disk full.
    """

    def main(*_: Any) -> int:
        raise error

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=main))
    assert cli._run("crawl", []) == code
    assert capsys.readouterr().err.count("\n") == (0 if code == 130 else 1)


def test_a_bug_is_shown_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `OSError` without a number does not come from the system."""
    for bug in (OSError("what"), RuntimeError("what"), KeyError("what")):

        def main(*_: Any, bug: Exception = bug) -> int:
            raise bug

        monkeypatch.setattr(
            cli.importlib, "import_module", lambda name, main=main: SimpleNamespace(main=main)
        )
        with pytest.raises(type(bug)):
            cli._run("crawl", [])


@pytest.mark.parametrize("arguments", [[], ["/"], ["."], ["/x/st"], ["--dir=/y"], ["--dir", ""]])
def test_an_error_of_the_system_that_no_code_expects_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 75, as for a crawl (`blame_of_system`), unless the user gave the path."""

    def main(*_: Any) -> int:
        raise OSError(errno.ESTALE, "Stale file handle", "/x/state")

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=main))
    assert cli._run("crawl", arguments) == 75
    assert capsys.readouterr().err == "crawler: /x/state: Stale file handle\n"


@pytest.mark.parametrize("arguments", [["/x/y"], ["--out", "/x"], ["--out=/x/"], ["a", "/x/y/"]])
def test_an_error_about_a_given_path_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(*_: Any) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file", "/x/y")

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=main))
    assert cli._run("lab", arguments) == 2
    assert capsys.readouterr().err == "crawler: /x/y: No such file\n"


@pytest.mark.parametrize(
    "command",
    [
        "lab order --documents",
        "lab league --data",
        "lab histories --out made --git",
        "lab trace info",
        "lab trace import",
        "lab cache",
        "lab refresh --pages",
        "lab import",
        "lab web --certificate",
        "config",
        "plan --pages 1000 --units",
        "status --dir",
    ],
)
def test_a_path_that_cannot_exist_is_one_line(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system cannot look up a name this long, and `Path.is_dir` raises an error."""
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "a" * 300, *(["made"] if command == "lab trace import" else [])]
    assert cli.main(words) in (2, 3)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def collecting() -> Iterator[None]:
    """Restore the settings of the garbage collector after the test."""
    with settings_kept():
        yield


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        ["--help"],
        ["no-such-command"],
        ["status", "--dir", "/nonexistent"],
        ["crawl", "ftp://a.org/"],
    ],
)
def test_the_settings_of_the_garbage_collector_are_restored_after_a_command(argv: list[str]) -> None:
    """The garbage collector is off while a command is imported.

    If it stayed off, a program that runs commands would use more and more memory.
    """
    gc.enable()
    gc.set_threshold(9_999, 9, 9)
    cli.main(argv)
    assert gc.isenabled() and gc.get_threshold() == (9_999, 9, 9)
    gc.disable()
    cli.main(argv)
    assert not gc.isenabled()


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>/dev/full"])
def test_a_crawl_runs_without_standard_streams(tmp_path: Path, closed: str) -> None:
    """Programs such as cron may start a command with closed streams. Before, the crawl ended with a traceback."""
    words = [
        sys.executable,
        "-m",
        "crawler",
        "crawl",
        "http://127.0.0.1:1/",
        "--dir",
        str(tmp_path / "crawl"),
    ]
    words += ["--contact", "you@example.test", "--admin", "off", "--allow-network", "127.0.0.0/8"]
    command = f"{shlex.join([*words, '--patience', '0', '--progress', 'none'])} {closed}"
    ended = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == NoSeedError.exit_code, ended
    assert "Traceback" not in ended.stderr
    assert " started" in (tmp_path / "crawl" / "crawler.log").read_text()


def test_a_full_disk_below_an_output_file(tmp_path: Path) -> None:
    """`crawler get -o` once ended with 2, as after a mistake of the user, and left a part of the page in the file."""
    with Web({"/": page()}) as web:
        crawl(tmp_path / "crawl", web.url())
        for words in (["get", web.url()], ["report"], ["export", "--format", "cdxj"]):
            ran = run(*words, "--dir", tmp_path / "crawl", "-o", "/dev/full")
            assert ran.code == StoreError.exit_code and ran.err.count("\n") == 1, ran
            assert run(*words, "--dir", tmp_path / "crawl", "-o", tmp_path / "none" / "out").code == 2


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["crawl", "--help"], ["config", "show"], ["config", "check"], ["man"]]
)
def test_output_to_a_full_disk_or_a_closed_pipe(argv: list[str]) -> None:
    """A full disk is an error of one line. If the reader closes the pipe, as `head` does, the command ends with 0."""
    words = [sys.executable, "-c", "from crawler.__main__ import main; main()", *argv]
    # With PYTHONUNBUFFERED, each line is written at once. Without, short output is written at the end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    started = partial(subprocess.run, words, check=False, stderr=subprocess.PIPE, text=True, timeout=120)
    with open("/dev/full", "wb") as full:
        ended = started(stdout=full, env=environment)
    assert ended.returncode == StoreError.exit_code
    assert ended.stderr.endswith("No space left on device\n") and ended.stderr.count("\n") == 1
    reader, writer = os.pipe()
    os.close(reader)
    ended = started(stdout=writer, env=environment)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def _without_reader(*argv: str, module: str = "crawler", unbuffered: bool = False) -> int:
    """Run a command whose standard output and standard error are a pipe without a reader; return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", module, *argv]
    try:
        ended = subprocess.run(words, check=False, stdout=writer, stderr=writer, env=environment, timeout=120)
    finally:
        os.close(writer)
    return ended.returncode


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_closed_pipe_does_not_hide_a_failed_check(tmp_path: Path, unbuffered: bool) -> None:
    """`crawler report --fail-on error | head` must fail in a script with `set -o pipefail`. Before, its code was 0."""
    with Web({"/": page()}) as web:
        crawl(tmp_path / "crawl", web.url())
    argv = ["report", "--dir", str(tmp_path / "crawl"), "--fail-on", "missing-descriptions"]
    assert _without_reader(*argv, unbuffered=unbuffered) == run(*argv).code == 10


def test_a_closed_pipe_does_not_stop_a_repair(tmp_path: Path) -> None:
    """A repair prints what it has repaired so far. Before, it stopped at its first line, with the exit code 0."""
    folder = tmp_path / "crawl"
    with Web({"/": page()}) as web:
        crawl(folder, web.url())
    (folder / "admin-token").write_text("deadbeef\n")
    next(folder.glob("p0/warc/*.warc.gz")).unlink()
    _without_reader("check", "--dir", str(folder), "--repair", unbuffered=True)
    assert run("check", "--dir", folder).code == 0


@pytest.mark.parametrize("argv", [["crawler.lab", "worlds", "--list"], ["crawler.bench", "cache", "--help"]])
def test_a_module_run_by_its_name_ends_like_its_command(argv: list[str]) -> None:
    """`python -m crawler.lab` is `crawler lab`. Before, a closed pipe was a traceback."""
    assert _without_reader(*argv[1:], module=argv[0]) == 0
