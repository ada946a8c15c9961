"""Test that signals, locks, full disks and clock jumps end a crawl as promised, and that a later run continues it.

The results are checked against a tree-shaped web and the server's log, as in `test_crash.py`.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.api import Crawl, configure
from crawler.pages import warc
from crawler.process.lifecycle import disk_watch, run_end
from crawler.process.opening.environment import Environment
from crawler.storage.commit import CommitPoint
from tests.faults.harness import (
    CONCURRENCY,
    ROOT,
    TreeWeb,
    crawl,
    end,
    finish,
    judge,
    settings,
    several,
    start,
)
from tests.waiting import until

PAGES = 300
IN_TERMINAL = ("tests.faults.terminal", "crawler")
NO_TERMINAL = ("tests.faults.terminal", "--none", "crawler")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TreeWeb]:
    with TreeWeb(tmp_path, PAGES, "--delay", "0.02") as web:
        yield web


def begin(
    web: TreeWeb, directory: Path, *arguments: str, pages: int = 40, module: Sequence[str] = ("crawler",)
) -> "subprocess.Popen[str]":
    """Start a crawl, and wait until the crawl has fetched `pages` pages."""
    before = web.fetched().total()
    process = start(directory, web.seed, *settings("--concurrency", "5", *arguments), module=module)
    until(lambda: web.fetched().total() >= before + pages, process)
    return process


def test_the_first_signal_stops_cleanly(web: TreeWeb, tmp_path: Path) -> None:
    """The exit code is 0, and a line explains how to continue. The next run fetches no page again."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = begin(web, tmp_path / "crawl", module=IN_TERMINAL)
        process.send_signal(number)
        ended = end(process)
        assert ended.code == 0 and "continue later with" in ended.err, ended
    finish(web, tmp_path / "crawl")
    found = judge(web, tmp_path / "crawl")
    assert found.flawless and found.refetched == 0, found


@pytest.mark.parametrize(("nohup", "processes"), [(True, "2"), (False, "1")])
def test_signals_that_must_not_stop_a_crawl(
    web: TreeWeb, tmp_path: Path, nohup: bool, processes: str
) -> None:
    """SIGHUP does not stop a crawl under nohup or a service, which has no terminal.

    SIGUSR1 does not stop any crawl.
    """
    kept = signal.getsignal(signal.SIGHUP)
    if nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the child process inherits this setting
    try:
        module = IN_TERMINAL if nohup else NO_TERMINAL
        process = begin(web, tmp_path / "crawl", "--processes", processes, module=module)
    finally:
        signal.signal(signal.SIGHUP, kept)
    for pid in (process.pid, *_children(process.pid)):
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGUSR1)
    ended = end(process)
    assert ended.code == 0 and "stopping" not in ended.err, ended
    found = judge(web, tmp_path / "crawl")
    assert found.flawless and found.refetched == 0, found


@pytest.mark.parametrize(
    ("number", "point"),
    [
        ("SIGTERM", "exit"),
        ("SIGTERM", "threads"),
        ("SIGHUP", "exit"),
        ("SIGINT", "threads"),
        ("SIGINT", "closing"),
        ("SIGUSR1", "exit"),
    ],
)
def test_a_signal_while_the_process_ends_keeps_the_exit_code(
    web: TreeWeb, tmp_path: Path, number: str, point: str
) -> None:
    """The signal arrives after the command has ended. The exit code is 0, as without the signal.

    A SIGTERM right after `crawler stop` once ended the process with the code -15, and a SIGINT while the crawl
    closed once ended it with 130.
    """
    late = ("tests.faults.late", number, point)
    ended = crawl(tmp_path / "crawl", web.seed, *settings("--max-pages", "20"), module=late)
    assert ended.code == 0 and "late signal" in ended.err and "stopping" not in ended.err, ended


def test_the_second_signal_stops_immediately(tmp_path: Path) -> None:
    with TreeWeb(tmp_path, PAGES, "--delay", "0.3") as web:
        process = begin(web, tmp_path / "crawl", pages=3)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and "continue later with" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        killed = time.time()
        assert end(process).code == 130
    with TreeWeb(tmp_path, PAGES, "--port", str(web.port)) as web:
        finish(web, tmp_path / "crawl")
        assert judge(web, tmp_path / "crawl", [killed]).flawless


def test_a_process_that_is_suspended_for_a_while(web: TreeWeb, tmp_path: Path) -> None:
    """After SIGSTOP and SIGCONT, no page is lost or fetched twice."""
    process = begin(web, tmp_path / "crawl")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # the time for which the process is suspended
    process.send_signal(signal.SIGCONT)
    assert end(process).code == 0
    found = judge(web, tmp_path / "crawl")
    assert found.flawless and found.refetched == 0, found


def test_a_killed_parser_is_replaced(web: TreeWeb, tmp_path: Path) -> None:
    """The page that was being parsed is scanned without building a tree, and the next page gets a new parser."""
    process = begin(web, tmp_path / "crawl", "--set", "extract.inline_bytes_max=1")
    for _ in range(3):
        _kill_parser(process)
    assert end(process).code == 0
    found = judge(web, tmp_path / "crawl")
    assert found.flawless and found.refetched == 0, found


def _kill_parser(process: "subprocess.Popen[str]") -> None:
    running: list[list[int]] = [[]]

    def is_running() -> bool:
        running[0] = _parsers(process.pid)
        return bool(running[0])

    until(is_running, process)
    victim = running[0][0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in _parsers(process.pid), process)


def _parsers(pid: int) -> list[int]:
    """Return the running child processes, which are all parsers.

    Killed children have no command line and are left out.
    """
    return [child for child in _children(pid) if Path(f"/proc/{child}/cmdline").read_bytes()]


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_process_on_a_directory_is_refused(tmp_path: Path, processes: int) -> None:
    """The error names the holder of the lock, although the ports of the second process are in use, too."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        admin = f"127.0.0.1:{taken.getsockname()[1]}"
    more = ("--admin", admin, *several(processes))
    with TreeWeb(tmp_path, PAGES, "--delay", "0.5") as web:
        process = begin(web, tmp_path / "crawl", *more, pages=1)
        second = crawl(tmp_path / "crawl", web.seed, *settings(*more))
        process.send_signal(signal.SIGTERM)
        assert end(process).code == 0
    assert second.code == 75, second
    assert f"in use by process {'p0' if processes == 1 else 'supervisor'} (pid {process.pid})" in second.err
    assert second.err.count("\n") == 1, second.err


@pytest.mark.parametrize(
    ("arguments", "size", "named"),
    [((), 60_000, ".warc.gz.open"), (("--set", "pages.segment_bytes=20000"), 110_000, "store: write failed")],
)
def test_a_failed_write_ends_the_run(
    web: TreeWeb, tmp_path: Path, arguments: tuple[str, ...], size: int, named: str
) -> None:
    """If a write to the WARC or the store fails, the run ends with exit code 75 and an error of one line.

    The next run completes the crawl.
    """
    full = crawl(tmp_path / "crawl", web.seed, *settings(*arguments), file_bytes_max=size)
    killed = time.time()
    assert full.code == 75 and full.err.count("\n") == 1 and named in full.err, full
    finish(web, tmp_path / "crawl", *arguments)
    found = judge(web, tmp_path / "crawl", [killed])
    assert found.flawless and found.refetched <= CONCURRENCY, found


def _config(**sections: dict[str, object]) -> dict[str, object]:
    free = {"delay": 0.0, "delay_factor": 0.0}
    network = {"allow_networks": ["127.0.0.0/8"]}
    return {"crawl": {"scope": "any"}, "politeness": free, "network": network, **sections}


def _crawl_here(config: dict[str, object], web: TreeWeb, directory: Path) -> dict[str, Any]:
    """Run a crawl in this process. Return its report."""

    async def run() -> dict[str, Any]:
        async with Crawl(configure(config), directory=directory, seeds=[web.seed]) as crawling:
            return await crawling.run()

    return asyncio.run(run())


def test_fetching_pauses_while_space_is_low(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk is nearly full, no page is fetched. When there is space again, the crawl continues."""
    free = iter([1 << 30] * 3)
    looks: list[int] = []

    def free_bytes(_: Path) -> int:
        looks.append(web.fetched().total())
        return next(free, 1 << 50)

    monkeypatch.setattr(disk_watch, "free_bytes", free_bytes)
    monkeypatch.setattr(disk_watch, "total_bytes", lambda _: 1 << 50)
    monkeypatch.setattr(Environment, "watch_interval", 0.1)
    report = _crawl_here(_config(), web, tmp_path / "crawl")
    assert report["stopped_by"] == "done"
    assert looks[:4] == [0, 0, 0, 0]
    assert judge(web, tmp_path / "crawl").flawless


def test_a_bug_in_the_writer_thread_costs_one_body(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug is logged once and counted, the crawl continues until its end, and the page has a record."""
    request = warc.request

    def broken(*arguments: bytes, **options: bool) -> bytes:
        if b"/7 HTTP" in arguments[-1]:
            raise RuntimeError("planted")
        return request(*arguments, **options)

    monkeypatch.setattr(warc, "request", broken)
    report: dict[str, Any] = _crawl_here(_config(), web, tmp_path / "crawl")
    assert (report["stopped_by"], report["conservation"]) == ("done", "holds")
    assert report["run"]["bodies"] == {"unwritten": 1}
    assert caplog.text.count("Traceback") == 1 and "the body is not stored" in caplog.text
    assert judge(web, tmp_path / "crawl").flawless


def test_a_bug_outside_of_any_page_ends_the_run(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log shows where the bug is, no page is lost, and the next run continues the crawl."""

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(CommitPoint, "_write_batch", broken)
        with pytest.raises(RuntimeError, match="planted"):
            _crawl_here(_config(), web, tmp_path / "crawl")
    assert (
        caplog.text.count("Traceback") == 1 and "the run ends because of a bug in the crawler" in caplog.text
    )
    assert _crawl_here(_config(), web, tmp_path / "crawl")["stopped_by"] == "done"
    assert judge(web, tmp_path / "crawl").flawless


@pytest.mark.parametrize("jump", [3600.0, -(86_400.0 * 365)])
def test_a_clock_that_jumps_delays_no_host(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The wall clock jumps between two runs. No host has to wait longer because of the jump, and no page is lost."""
    assert crawl(tmp_path / "crawl", web.seed, *settings("--max-pages", "50")).code == 0
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    begun = time.monotonic()
    report = _crawl_here(_config(crawl={"scope": "any", "depth": 1000}), web, tmp_path / "crawl")
    assert report["stopped_by"] == "done" and report["conservation"] == "holds"
    assert time.monotonic() - begun < 60.0
    found = judge(web, tmp_path / "crawl")
    assert found.flawless and found.refetched == 0, found


def test_a_fetch_that_outlasts_the_grace_period_of_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host stays occupied until the fetch is aborted. The stop is clean, and the next run fetches the page."""
    monkeypatch.setattr(run_end, "STOP_GRACE", 0.05)
    monkeypatch.setattr(Environment, "watch_interval", 0.05)
    limits = {"scope": "any", "depth": 1000, "max_time": 0.3}
    with TreeWeb(tmp_path, 20, "--delay", "2") as web:
        report = _crawl_here(_config(crawl=limits), web, tmp_path / "crawl")
        assert (report["stopped_by"], report["conservation"]) == ("max_time", "holds")
    with TreeWeb(tmp_path, 20, "--port", str(web.port)) as web:
        finish(web, tmp_path / "crawl")
        found = judge(web, tmp_path / "crawl")
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found


@pytest.mark.parametrize(
    ("number", "module"),
    [("SIGHUP", "crawler.cli"), ("SIGTERM", "crawler.cli.crawl"), ("SIGTERM", "crawler.process.process")],
)
def test_a_signal_during_the_imports_stops_cleanly(
    web: TreeWeb, tmp_path: Path, number: str, module: str
) -> None:
    """The exit code is 0, and the seeds are saved for the next run.

    The process sends the signal to itself while it imports a module.
    """
    early = (IN_TERMINAL[0], "tests.faults.early", number, module)
    first = crawl(tmp_path / "crawl", web.seed, *settings(), module=early)
    assert first.code == 0 and "stopping as soon" in first.err, first
    assert web.fetched().total() <= CONCURRENCY
    finish(web, tmp_path / "crawl")
    assert judge(web, tmp_path / "crawl").flawless


def test_a_signal_during_the_imports_stops_all_processes(web: TreeWeb, tmp_path: Path) -> None:
    """Children that are forked after the signal also stop, together with their supervisor."""
    several = settings("--processes", "2")
    early = (IN_TERMINAL[0], "tests.faults.early", "SIGHUP", "crawler.supervision.supervisor")
    first = crawl(tmp_path / "crawl", web.seed, *several, module=early)
    assert first.code == 0, first
    ended = crawl(tmp_path / "crawl", *several)
    assert ended.code == 0, ended
    assert judge(web, tmp_path / "crawl").flawless


def test_a_signal_ends_a_command_that_needs_no_clean_stop(tmp_path: Path) -> None:
    """The signal ends `crawler status` immediately, as it ends most programs."""
    words = ["-m", "tests.faults.early", "SIGTERM", "crawler.cli", "status", "--dir", str(tmp_path)]
    assert subprocess.run([sys.executable, *words], check=False, capture_output=True).returncode == -15


@pytest.mark.parametrize("module", ["crawler.cli", "crawler.cli.crawl", "crawler.api"])
def test_ctrl_c_during_the_imports_ends_a_crawl_with_one_line(tmp_path: Path, module: str) -> None:
    words = [
        "-m",
        "tests.faults.early",
        "SIGINT",
        module,
        "crawl",
        "http://a.example/",
        "--dir",
        str(tmp_path),
    ]
    done = subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "crawler: interrupted\n")


SCRIPT = """
import sys
from tests.faults import early
early.plant("SIGINT", sys.argv[1])
import crawler
report = crawler.run("http://127.0.0.1:8/", directory=sys.argv[2], config={"crawl": {"patience": 0}})
print(report["stopped_by"], report["pages"].get("fetched", 0))
"""


@pytest.mark.parametrize("module", ["crawler.api.crawl", "crawler.api.page"])
def test_ctrl_c_during_the_imports_ends_a_script_with_one_line(tmp_path: Path, module: str) -> None:
    words = [sys.executable, "-c", SCRIPT, module, str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "crawler: interrupted\n")


def test_ctrl_c_while_a_script_opens_its_crawl_stops_it_cleanly(tmp_path: Path) -> None:
    """The crawl stops as soon as it is open, so the next run of the script continues it."""
    words = [sys.executable, "-c", SCRIPT, "crawler.fetcher.resolver", str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "signal 0\n"), done
    assert "Traceback" not in done.stderr and "run the script again to continue" in done.stderr


def test_signal_handlers_are_installed_before_any_import() -> None:
    """Signals are handled as soon as the interpreter has started."""
    code = "import sys, crawler.__main__; print([name for name in sys.modules if name.startswith('crawler')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (
        done.stdout.strip()
        == "['crawler.kernel_selection', 'crawler', 'crawler.early_signals', 'crawler.__main__']"
    )
