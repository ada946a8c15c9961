"""Test the logs of real crawls: rotation by size, age, a signal and logrotate. Test the public listener, too."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest

from crawler.cli.loopback import free_port
from crawler.storage.rotating_file import generations
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_live import tree as tree  # a fixture

QUICK = ("--delay", "0.02", "--scope", "host")
OPERATING = Path(__file__).parents[2] / "crawler" / "OPERATING.md"
LOGROTATE = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def pids(folder: Path) -> list[int]:
    """Return the process ids of a crawl, read from its lock files as `OPERATING.md` describes."""
    locks = [*folder.glob("*.lock"), *folder.glob("*/node.lock")]
    return [int(file.read_text().split()[1]) for file in locks]


def fetches(folder: Path) -> list[str]:
    """Return the URLs in all files of the log of fetches; every line must be complete."""
    lines = [line for file in generations(folder / "pages.jsonl") for line in file.read_bytes().splitlines()]
    return [json.loads(line)["url"] for line in lines]


def fetched_pages(folder: Path) -> int:
    return sum(json.loads((folder / "report.json").read_bytes())["pages"].values())


def is_open(pid: int, path: Path) -> bool:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(descriptor) == str(path):
                    return True
    return False


@pytest.mark.parametrize("processes", ["1", "3"])
def test_logs_are_rotated_by_size(tmp_path: Path, tree: list[str], processes: str) -> None:
    """No file exceeds the limit, no line is lost or split, and readers see all files.

    Meanwhile, the public listener answers.
    """
    bot = free_port()
    flags = ("--delay", "0.1", "--scope", "host", "--processes", processes, "-v")
    limits = ("logs.bytes_max=6000", "logs.log_files=2", f"serve.bot_listen=127.0.0.1:{bot}")
    with Running(tmp_path, tree, *flags, *(word for limit in limits for word in ("--set", limit))) as running:
        assert running.until(lambda: ask(bot, "/bot"))[0] == 200
        for path in ("/metrics", "/status", "/do"):
            assert ask(bot, path)[0] == 404, path
        running.until(lambda: running.fetched() > 10)
        headers = {"Content_Type": "application/json", "X_Admin_Token": running.token()}
        for _ in range(60):  # each change writes a line to crawler.log
            done = ask(running.admin, "/do", "POST", {"command": "retire", "pattern": "x" * 300}, **headers)
            assert done[0] == 200, done
        running.until(lambda: running.fetched() >= 150)
    found = fetches(running.folder)
    assert len(found) == len(set(found)) >= fetched_pages(running.folder) >= 150
    files = generations(running.folder / "pages.jsonl")
    assert len(files) > 4 and max(file.stat().st_size for file in files) <= 6000
    logs = generations(running.folder / "crawler.log")
    assert len(logs) == 3 and max(file.stat().st_size for file in logs) <= 6000, "the limit of former files"
    log = running.command("export", "--format", "crawl-log").stdout
    assert all(url in log for url in found)


def test_logs_are_rotated_by_age(tmp_path: Path, tree: list[str]) -> None:
    with Running(tmp_path, tree, *QUICK, "--processes", "3", "--set", "logs.age_max=1") as running:
        running.until(lambda: len(generations(running.folder / "pages.jsonl")) > 3)
    for file in generations(running.folder / "pages.jsonl"):
        times = [datetime.fromisoformat(json.loads(line)["ts"]) for line in file.read_bytes().splitlines()]
        # a line is written when the commit is durable, but it has the time of the fetch
        assert (max(times) - min(times)).total_seconds() < 3.0, file
    found = fetches(running.folder)
    assert len(found) == len(set(found)) >= fetched_pages(running.folder)


@pytest.mark.parametrize("processes", ["1", "3"])
def test_a_signal_reopens_the_logs_and_a_hangup_stops_nothing(
    tmp_path: Path, tree: list[str], processes: str
) -> None:
    """The crawl is paused and writes no lines. So only SIGUSR1 can make a process close the renamed files."""
    with Running(tmp_path, tree, *QUICK, "--processes", processes) as running:
        running.until(lambda: running.fetched() > 20)
        assert running.command("pause").returncode == 0
        running.until(lambda: running.status()["paused"] and not running.status()["frontier"]["in_flight"])
        for name in ("pages.jsonl", "crawler.log"):
            (running.folder / name).rename(running.folder / f"{name}.moved")
        moved = [running.folder / f"{name}.moved" for name in ("pages.jsonl", "crawler.log")]
        members = pids(running.folder)
        assert any(is_open(pid, file) for pid in members for file in moved)
        for pid in members:
            os.kill(pid, signal.SIGUSR1)
        running.until(lambda: not any(is_open(pid, file) for pid in members for file in moved))
        for pid in members:
            os.kill(pid, signal.SIGHUP)
        before = running.fetched()
        assert running.command("resume").returncode == 0
        running.until(lambda: running.fetched() > before + 20)
        assert (running.folder / "pages.jsonl").stat().st_size > 0


@pytest.mark.skipif(LOGROTATE is None, reason="no logrotate")
def test_logrotate_with_the_configuration_of_the_page(tmp_path: Path, tree: list[str]) -> None:
    """logrotate renames and compresses the logs of a running crawl, and no line is lost."""
    block = re.search(r"^ +(/srv/crawl/crawler\.log \{.*?^ +\})$", OPERATING.read_text(), re.M | re.S)
    assert block is not None and LOGROTATE is not None
    running = Running(tmp_path, tree, *QUICK, "--processes", "3", "--set", "logs.bytes_max=0", "-v")
    text = block[1].replace(
        "/srv/crawl/crawler.log", f"{running.folder}/crawler.log {running.folder}/pages.jsonl"
    )
    (tmp_path / "logrotate.conf").write_text(text)
    rotate = [LOGROTATE, "--force", "--state", str(tmp_path / "state"), str(tmp_path / "logrotate.conf")]
    try:
        for number in range(1, 4):
            running.until(lambda number=number: running.fetched() > 40 * number)
            subprocess.run(rotate, check=True)
        running.until((running.folder / "pages.jsonl").exists)
    finally:
        running.end()
    former = sorted(running.folder.glob("pages.jsonl.*"))
    assert [file.name for file in former] == ["pages.jsonl.1", "pages.jsonl.2.gz", "pages.jsonl.3.gz"]
    unpacked = [subprocess.run(["zcat", "-f", *former], check=True, capture_output=True).stdout]
    unpacked.append((running.folder / "pages.jsonl").read_bytes())
    found = [json.loads(line)["url"] for part in unpacked for line in part.splitlines()]
    assert len(found) == len(set(found)) >= fetched_pages(running.folder)
