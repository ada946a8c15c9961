"""Test two commands on one directory at the same time: the second one works, or one line says what it waits for.

The first command is a real process that stops itself in the middle of its work. Its locks, its journal and its
unfinished files are then as they are while it works. After all other commands were tried, it continues.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from typing import NamedTuple

import pytest

from crawler.admin import control_client
from crawler.cli import access
from crawler.storage import files
from tests.end_to_end.web import FAST, Web, page, run
from tests.faults.harness import ROOT
from tests.upgrade.support import unpacked
from tests.waiting import WAIT_MAX

# Stops itself at the audit event that the first argument names, such as `os.rename:crawl.toml`.
HOLDER = """
import os, signal, sys
place, words = sys.argv[1], sys.argv[2:]
events = ("open", "os.rename", "os.remove", "os.mkdir")
held = []

def look(event, arguments):
    if event in events and not held:
        path = arguments[event == "os.rename"]
        if not isinstance(path, int) and f"{event}:{os.path.basename(os.fsdecode(path))}" == place:
            held.append(event)
            os.write(2, b"held\\n")
            os.kill(os.getpid(), signal.SIGSTOP)

from crawler.cli import main
sys.addaudithook(look)
raise SystemExit(main(words))
"""


class First(NamedTuple):
    """A command, the place where it stops, the commands that work beside it, and the crawl in which it runs."""

    words: tuple[str, ...]
    place: str
    works: set[str]
    crawl: str = "one"


SEED = "http://localhost/"
COMMANDS: dict[str, tuple[str, ...]] = {
    "crawl": ("crawl", *FAST),
    "seed": ("seed", f"{SEED}new"),
    "signal": ("signal", SEED),
    "block": ("block", "h.example"),
    "retire": ("retire", "nothing"),
    "withdraw": ("withdraw", f"{SEED}none"),
    "erase": ("withdraw", f"{SEED}none", "--erase"),
    "set": ("set", "politeness.delay=1"),
    "status": ("status",),
    "key": ("key", "new"),
    "export": ("export", "--format", "cdxj"),
    "check": ("check",),
    "repair": ("check", "--repair"),
    "reshard": ("reshard", "--to", "3", "-q"),
    "recover": ("recover", "p1"),
}
# The commands that work beside a command which has only the lock of the crawl directory, or no lock at all.
READ = {"status", "check", "export", "key"}
CHANGE = {"seed", "signal", "block", "retire", "withdraw", "set"}
ALL = {*COMMANDS} - {"recover"}  # p1 is not among the processes of the crawl `one`
FIRST = {
    "repair": First(COMMANDS["repair"], "os.rename:journal.json", READ | CHANGE | {"crawl"}),
    "repair, begun": First(COMMANDS["repair"], "os.remove:journal.json", {"key"}),
    "reshard, built": First(COMMANDS["reshard"], "os.rename:journal.json", READ | {"set"}),
    "reshard, decided": First(COMMANDS["reshard"], "os.mkdir:.resharded", {"key"}),
    "erase, begun": First(COMMANDS["erase"], "os.rename:withdrawn.json", {"key"}),
    "erase, done": First(COMMANDS["erase"], "os.remove:journal.json", {"key"}),
    "recover": First(COMMANDS["recover"], "os.rename:journal.json", {"key", "set"}, "two"),
    "recover, begun": First(COMMANDS["recover"], "os.remove:journal.json", {"key"}, "two"),
    "upgrade": First(COMMANDS["status"], "os.rename:format", {"key"}, "former"),
    "set": First(COMMANDS["set"], "os.rename:crawl.toml", ALL - {"set", "crawl", "reshard"}),
    "key": First(COMMANDS["key"], "os.rename:signing.key", ALL - {"key"}),
    "block": First(COMMANDS["block"], "os.rename:blocked.json", READ | {"set"}),
    "crawl": First(COMMANDS["crawl"], "os.rename:report.json", READ - {"check"}),
    "export": First(("export", "--format", "warc", "-o", "made"), "os.rename:made", ALL),
}
# commands that fail in the crawl `two` also if they are alone, because its process p1 is lost
LOST = {"status", "check", "export", "reshard"}


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Return a crawl of one process, a crawl of two that has lost p1, and a crawl of a former format."""
    folder = tmp_path_factory.mktemp("crawls")
    with Web({"/": page("/a")}, other=page()) as web:
        seeds = [web.url("/", f"h{n}.localhost") for n in range(6)]
        assert run("crawl", web.url(), "--dir", folder / "one", *FAST).code == 0
        assert run("crawl", *seeds, "--dir", folder / "two", *FAST, "--processes", "2").code == 0
        rmtree(folder / "two" / "p1")
        (folder / "old").mkdir()
        yield {
            "one": folder / "one",
            "two": folder / "two",
            "former": unpacked("2026-11-22-93aa052-refreshed:1", folder / "old"),
        }


@contextmanager
def stopped(first: First, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start the command, and wait until it has stopped itself. Kill it at the end of the block."""
    command = [sys.executable, "-c", HOLDER, first.place, *first.words, "--dir", str(directory)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environ, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            assert "held\n" in lines, "the command ended before it reached the place"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", FIRST)
def test_a_second_command_works_or_names_the_first(
    crawls: dict[str, Path], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RESTART_WAIT", 0.1)
    monkeypatch.setattr(files, "BRIEF_MAX", 0.1)
    monkeypatch.setattr(control_client, "TIMEOUT", 0.1)
    first = FIRST[name]
    directory = copytree(crawls[first.crawl], tmp_path / "crawl", ignore=ignore_patterns("*.sock"))
    with stopped(first, directory) as process:
        ended = {second: run(*words, "--dir", directory) for second, words in COMMANDS.items()}
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=WAIT_MAX)
    assert process.returncode == 0, err
    for second, result in ended.items():
        if result.code:
            assert result.code == 75 or second in ("recover", *LOST), (second, result)
            assert result.err.startswith("crawler: ") and result.err.count("\n") == 1, (second, result)
    assert {second for second, result in ended.items() if not result.code} == first.works
    assert run("check", "--dir", directory).code == 0
