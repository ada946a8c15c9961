"""Test that after kill -9, three processes lose no URL that one sent to another, and apply no such URL twice.

`splitter/README.md`, "Protocol", promises that no URL is lost and that none is applied twice. Real processes
run under the supervisor on a tree-shaped web, where every URL has one in-link and two thirds of the links
lead from one process to another. The processes are killed from outside at random times, or kill themselves at
the steps of the exchange. Then the server's log and the WARC files are compared with the pages that exist.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from crawler.errors import DirectoryError
from tests.faults.harness import TreeWeb, end, judge, kill_at, pids, settings, several, start

PAGES = 300
FLAGS = several(3)


def kill_one(directory: Path, rng: random.Random) -> list[float]:
    """Kill one of the processes. Return a list with the time of the kill, or an empty list if no process runs."""
    running = pids(directory)
    if not running:
        return []
    os.kill(rng.choice(running), signal.SIGKILL)
    return [time.time()]


def crawl_and_kill(web: TreeWeb, directory: Path, kills: int, rng: random.Random) -> list[float]:
    """Crawl to the end, and kill one process at intervals. Return the time of each kill."""
    process = start(directory, web.seed, *settings(*FLAGS))
    instants: list[float] = []
    fetched = 0
    while process.poll() is None and len(instants) < kills:
        now = sum(web.fetched().values())
        if now - fetched >= PAGES // (kills + 2):
            instants += kill_one(directory, rng)
            fetched = now
        time.sleep(0.02)
    ended = end(process)
    assert ended.code == 0, ended
    return instants


def books(directory: Path) -> object:
    return msgspec.json.decode((directory / "report.json").read_bytes())["conservation"]


def test_kills_of_random_processes_lose_nothing(tmp_path: Path) -> None:
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        kills = crawl_and_kill(web, tmp_path / "crawl", 6, random.Random(4))
        found = judge(web, tmp_path / "crawl", kills)
    assert len(kills) >= 4
    assert found.flawless, found
    assert books(tmp_path / "crawl") == "holds"


def test_the_harness_counts_the_kills_of_all_processes(tmp_path: Path) -> None:
    """The harness counts lines of the log. After their wording changed, it counted none, and `crash.py` failed."""
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert len(kill_at(web, tmp_path / "crawl", "committed:5", *FLAGS)) == 3


def crawl_with_fault(web: TreeWeb, directory: Path, fault: str, module: Sequence[str] = ("crawler",)) -> bool:
    """Crawl with a fault for at most 60 s, then kill the crawl and its children. Return whether it ended cleanly.

    A process stops with exit code 3 if it has lost links after confirming them to its peers.
    """
    process = start(directory, web.seed, *settings(*FLAGS), fault=fault, module=module)
    try:
        ended = end(process, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        end(process)
        return False
    assert ended.code in (0, DirectoryError.exit_code), ended
    return ended.code == 0


@pytest.mark.parametrize("fault", ["entries sent:3", "entries accepted:3", "acks sent:3"])
def test_kills_at_the_steps_of_the_exchange_lose_nothing(tmp_path: Path, fault: str) -> None:
    """Each process kills itself once at each step of the exchange."""
    with TreeWeb(tmp_path, PAGES, "--fanout", "3") as web:
        assert crawl_with_fault(web, tmp_path / "crawl", fault)
        found = judge(web, tmp_path / "crawl")
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found
    assert books(tmp_path / "crawl") == "holds"


@pytest.mark.parametrize(
    ("bug", "point"), [("ack-before-commit", "acks sent"), ("outbox-in-memory", "batch written")]
)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str, point: str) -> None:
    """A crash test that cannot fail proves nothing. Not every crash shows the bug, so six crawls are tried.

    The effect of the bug is that links are lost, that peers refuse a process because it has lost links, or
    that the crawl waits for such links forever.
    """
    for times in (3, 5, 8, 12, 17, 23):
        folder = tmp_path / str(times)
        folder.mkdir()
        with TreeWeb(folder, PAGES, "--fanout", "3") as web:
            planted = ("tests.faults.planted", bug)
            ended = crawl_with_fault(web, folder / "crawl", f"{point}:{times}", planted)
            if not ended or judge(web, folder / "crawl").lost:
                return
    pytest.fail(f"{bug} was not seen")
