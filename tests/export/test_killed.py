"""Test that killed workers of an export or report are replaced, and that a killed export or report leaves no output."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler import cli
from crawler.export.worker_pool import processes
from tests.upgrade.support import unpacked
from tests.waiting import WAIT_MAX

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = unpacked("2026-11-22-1b5de44", tmp_path_factory.mktemp("crawl"))
    assert cli.main(["check", "--dir", str(made), "-q"]) == 0
    return made


COMMANDS = (["export", "--format", "jsonl", "--processes", "2"], ["report", "--format", "json"])


@pytest.fixture(params=COMMANDS, ids=lambda words: words[0])
def words(directory: Path, request: pytest.FixtureRequest) -> list[str]:
    """Return a command that reads the pages of the crawl with two processes."""
    if request.param[0] == "report" and processes() < 2:
        pytest.skip("a report uses one process per core")
    return [*request.param, "--dir", str(directory)]


@pytest.fixture
def started(words: list[str], tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a command that reads 13 pages, at least two at a time; each page takes 0.4 s."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.export.slow_pages", "0.4", *words, "-o", str(tmp_path / "made")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def workers(process: "subprocess.Popen[str]") -> list[int]:
    """Wait until the export has two child processes, and return them."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    give_up = time.monotonic() + WAIT_MAX
    while len(found := path.read_text().split()) < 2:
        assert time.monotonic() < give_up and process.poll() is None, (process.poll(), found)
        time.sleep(0.02)
    return [int(pid) for pid in found]


def ended(pids: list[int], within: float) -> bool:
    """Wait until all of these processes have ended; return False if the time limit is reached first."""
    give_up = time.monotonic() + within
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if not select.select([descriptor], [], [], max(0.0, give_up - time.monotonic()))[0]:
            return False
        os.close(descriptor)
    return True


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_worker_is_replaced(
    started: "subprocess.Popen[str]", words: list[str], tmp_path: Path, count: int
) -> None:
    for pid in workers(started)[:count]:
        os.kill(pid, signal.SIGKILL)
    _, err = started.communicate(timeout=120)
    assert started.returncode == 0, (started.returncode, err)
    assert cli.main([*words, "-o", str(tmp_path / "all")]) == 0
    assert _read(tmp_path / "made") == _read(tmp_path / "all")


def _read(made: Path) -> Any:
    """Return a report, or the URLs of rows.

    The other fields of rows may differ, because the pieces of a killed worker are read in careful mode.
    """
    lines = made.read_bytes().splitlines()
    if lines[0] == b"{":
        return msgspec.json.decode(made.read_bytes())
    return [msgspec.json.decode(line)["url"] for line in lines]


def test_a_killed_command_leaves_no_worker_and_no_output(
    started: "subprocess.Popen[str]", words: list[str], directory: Path, tmp_path: Path
) -> None:
    """The next command also removes the copy of the store."""
    children = workers(started)
    started.kill()
    started.wait()
    assert ended(children, 5.0)
    assert {path.name for path in tmp_path.iterdir()} <= {"made~"}
    made = tmp_path / "made"
    assert cli.main([*words, "-o", str(made)]) == 0
    assert made.read_bytes().count(b"\n") > 12 and list(tmp_path.iterdir()) == [made]
    assert not list(directory.glob("*/snapshot-*"))


@pytest.mark.parametrize("form", ["jsonl", "text", "warc", "wacz", "mirror", "parts"])
def test_an_export_that_fails_leaves_no_output(
    form: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an export fails, the output of an earlier export remains in place."""
    target = tmp_path / "made"
    words = ["export", "--dir", str(directory), "-o", str(target), "--processes", "1"]
    words += ["--format", "jsonl", "--part-size", "1k"] if form == "parts" else ["--format", form]
    if form not in ("mirror", "parts"):
        target.write_text("before")

    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    def sync() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        patched.setattr(os, "sync", sync)
        assert cli.main(words) == 75
    assert [path.name for path in tmp_path.iterdir()] == ([] if form in ("mirror", "parts") else ["made"])
    assert form in ("mirror", "parts") or target.read_text() == "before"
    assert cli.main(words) == 0 and target.exists()


def test_output_to_a_device_or_link_is_written(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An export writes to a device, follows a link, and refuses a folder."""
    words = ["export", "--dir", str(directory), "--format", "cdxj", "-o"]
    assert cli.main([*words, "/dev/stdout"]) == 0
    shown = capfd.readouterr().out
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    assert cli.main([*words, str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == shown != ""
    assert cli.main([*words, str(tmp_path)]) == 2 and cli.main([*words, str(tmp_path / "no" / "x")]) == 2


def test_a_mirror_replaces_an_earlier_one(directory: Path, tmp_path: Path) -> None:
    """If a kill between the two renames has left the old mirror under another name, the next run replaces it, too."""
    from crawler.export.writing import renew_mirror

    folder = tmp_path / "mirror"
    entry = renew_mirror(directory, folder, processes=1)
    assert Path(entry).is_file()
    (folder / "old").write_text("")
    folder.rename(tmp_path / "mirror~former")
    (tmp_path / "mirror~").mkdir()
    assert renew_mirror(directory, folder, processes=1) == entry
    assert [path.name for path in tmp_path.iterdir()] == ["mirror"] and not (folder / "old").exists()
