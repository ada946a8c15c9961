"""Test that a command leaves nothing behind when it ends: files, sockets, maps, threads, children, signal handlers.

Each command runs twice in this process, because the first run may keep something that all later runs use. The
garbage collector is off: it would close files late, or never, because a crawl exempts old objects from it.
"""

import asyncio
import gc
import io
import os
import resource
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

import crawler
from crawler.cli import access
from crawler.cli.command_table import COMMANDS
from crawler.cli.loopback import free_port
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError
from tests.end_to_end.test_live import ask
from tests.end_to_end.web import FAST, SETTINGS, Ran, run
from tests.faults.harness import TreeWeb
from tests.faults.power import family
from tests.waiting import until

T = TypeVar("T")

PAGES = 40
QUICK = tuple(flag for flag in FAST if flag not in ("--patience", "5"))  # for commands without --patience


@pytest.fixture(autouse=True)
def uncollected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switch the garbage collector off, and let no command switch it on."""
    gc.collect()
    gc.disable()
    with monkeypatch.context() as patch:
        patch.setattr(gc, "enable", lambda: None)
        patch.setattr(gc, "collect", lambda *_: 0)
        yield
    gc.enable()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeWeb]:
    with TreeWeb(tmp_path_factory.mktemp("web"), pages=PAGES, hosts=1) as web:
        yield web


def in_use() -> Counter[str]:
    """Return what this process has open. Sockets and pipes count by their kind."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            found[os.readlink(f"/proc/self/fd/{name}").split(":[")[0]] += 1
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(None, 5)[5:]
        if path and path[0].startswith("/") and ".so" not in path[0]:
            found[f"map of {path[0]}"] += 1
    found["thread"] = threads()
    found["process"] = len(family(os.getpid()))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        found[f"{number.name}: {signal.getsignal(number)}"] += 1
    return found


def threads() -> int:
    """Return the number of threads that run Python. LevelDB and libuv start threads of their own, once per process."""
    return len(sys._current_frames())


def assert_closes(call: Callable[[], T], what: object) -> T:
    """Call twice, assert that the second call leaves nothing open, and return the result of the first call.

    A watchdog thread may end a moment after the call, because no caller waits for it.
    """
    first = call()
    before = in_use()
    second = call()
    until(lambda: threads() <= before["thread"])
    left = in_use() - before
    assert not left, (what, left, second)
    return first


@contextmanager
def interrupted(port: int) -> Iterator[None]:
    """Send SIGINT to this process as soon as the server on a port answers."""

    def interrupt() -> None:
        until(lambda: answers(port))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    yield
    thread.join()


def answers(port: int) -> bool:
    with suppress(OSError):
        return ask(port, "/")[0] > 0
    return False


def served(directory: Path) -> Ran:
    port = free_port()
    with interrupted(port):
        return run("serve", "--dir", directory, f"127.0.0.1:{port}")


def table(web: TreeWeb, here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Callable[[], Ran]]]:
    """Return calls of each command, in an order in which they work on the crawl that the first one makes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    directory, numbers = here / "crawl", iter(range(1000))

    def on(*words: object) -> Callable[[], Ran]:
        return lambda: run(*words, "--dir", directory)

    def exported(form: str) -> Callable[[], Ran]:
        return lambda: run(
            "export", "--format", form, "--dir", directory, "--to", here / f"{form}{next(numbers)}"
        )

    url = web.url(3)
    return {
        "crawl": [
            on("crawl", web.seed, *FAST),
            on("crawl", web.seed, *FAST, "--set", "crawl.trace=true", "--timestamping"),
            on("crawl", web.seed, "--dry-run"),
            lambda: run("crawl", web.seed, "--dir", here / "two", *FAST, "--processes", "2"),
            on("crawl", "ftp://a.org/"),
        ],
        "refresh": [on("refresh", *QUICK, "--max-time", "0.5")],
        "node": [on("node", *QUICK)],
        "seed": [on("seed", web.url(PAGES))],
        "signal": [on("signal", url)],
        "block": [on("block", "a.org")],
        "unblock": [on("unblock", "a.org")],
        "retire": [on("retire", "zzz")],
        "withdraw": [
            on("withdraw", web.url(5)),
            on("withdraw", web.url(5), "--undo"),
            on("withdraw", "--list"),
        ],
        "pause": [on("pause")],
        "resume": [on("resume")],
        "stop": [on("stop", "--wait")],
        "set": [on("set", "politeness.delay=1")],
        "top": [on("top", "--count", "1")],
        "status": [on("status"), lambda: run("status", "--dir", here / "two")],
        "why": [on("why", url)],
        "get": [on("get", url), on("get", web.url(PAGES + 1))],
        "report": [on("report"), on("report", "--format", "html")],
        "shell": [on("shell", url, *QUICK[:2], "-c", "page.status")],
        "serve": [lambda: served(directory)],
        "key": [on("key", "new"), on("key", "rotate"), on("key", "show")],
        "export": [
            *map(
                exported, ("jsonl", "parquet", "text", "links", "warc", "wacz", "cdxj", "crawl-log", "mirror")
            )
        ],
        "ship": [on("ship", "--to", f"file://{here / 'shipped'}"), on("ship", "--list")],
        "check": [on("check"), on("check", "--repair")],
        "config": [on("config", "show"), on("config", "check")],
        "completion": [lambda: run("completion", "bash")],
        "man": [lambda: run("man", "crawl")],
        "plan": [lambda: run("plan", "--pages", "1e6", "--hosts", "5000")],
        "new": [lambda: run("new", here / f"new{next(numbers)}")],
        "lab": [lambda: run("lab", "--help")],
        "bench": [lambda: run("bench", "--help")],
        "demo": [lambda: run("demo", "--help")],
        "recover": [on("recover", "p0")],
        "reshard": [on("reshard", "--to", "2"), on("reshard", "--to", "1")],
    }


# Exit codes of the calls that fail: an unknown scheme, no peers, nothing to pause, no such page, nothing to recover.
CODES = {("crawl", 4): 2, ("node", 0): 2, ("pause", 0): 2, ("resume", 0): 2, ("get", 1): 4, ("recover", 0): 3}


def test_each_command_closes_what_it_opens(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = table(web, tmp_path, monkeypatch)
    assert calls.keys() == COMMANDS.keys(), "add the new command to the table"
    for name, each in calls.items():
        for number, call in enumerate(each):
            ran = assert_closes(call, (name, number))
            assert ran.code == CODES.get((name, number), 0), (name, number, ran)


def test_commands_that_fail_close_what_they_opened(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the DUE is damaged, so no command can open the whole crawl."""
    calls = table(web, tmp_path, monkeypatch)
    assert calls["crawl"][0]().code == 0
    damaged = sorted((tmp_path / "crawl/p0/due").glob("*.run"))[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    for name in ("crawl", "refresh", "seed", "block", "withdraw", "status", "why", "get", "check", "reshard"):
        assert assert_closes(calls[name][0], name).code == 3, name


@pytest.mark.parametrize("kept", [slice(0, -1), slice(0, -100), slice(8, None)])
def test_an_error_keeps_no_file_open(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    """A program may keep the exception, and with it the objects that were being made when it was raised."""
    calls = table(web, tmp_path, monkeypatch)
    directory = CrawlDirectory(tmp_path / "crawl")
    assert calls["crawl"][0]().code == 0
    run("crawl", web.url(PAGES), "--dir", directory.path, *FAST)  # adds a second run to the DUE
    paths = sorted((directory.path / "p0/due").glob("*.run"))
    assert len(paths) > 1
    for damaged in paths:
        whole = damaged.read_bytes()
        damaged.write_bytes(bytes(8 - len(whole[kept]) % 8) + whole[kept])
        before = in_use()
        with pytest.raises(DamageError) as raised, access.at_rest(directory, "p0"):
            pass
        assert not in_use() - before, raised.value
        damaged.write_bytes(whole)


def test_a_crawl_whose_disk_fails_closes_what_it_opened(
    web: TreeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file may grow beyond a few kilobytes, which are as many as the first commits take."""
    calls = table(web, tmp_path, monkeypatch)

    def failing(bytes_max: int) -> Ran:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
        try:
            return calls["crawl"][0]()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    for bytes_max in (5_000, 20_000):
        assert assert_closes(partial(failing, bytes_max), bytes_max).code == 75


def test_the_python_api_closes_what_it_opens(web: TreeWeb, tmp_path: Path) -> None:
    directory = tmp_path / "crawl"

    def crawled() -> object:
        return crawler.run(web.seed, directory=directory, config=SETTINGS)

    async def left_early() -> None:
        async with crawler.Crawl(SETTINGS, directory=directory, seeds=[web.seed]) as crawl:
            async for _ in crawl.pages():
                break

    async def never_run() -> None:
        async with crawler.Crawl(SETTINGS, directory=directory) as crawl:
            crawl.status()

    async def withdrawn() -> None:
        await crawler.Crawl(directory=directory).withdraw(url=web.url(7))

    def failing() -> None:
        with suppress(crawler.CrawlerError):
            crawler.run("ftp://a.org/", directory=directory, config=SETTINGS)

    stored = crawler.Crawl(directory=directory)
    calls: list[Callable[[], object]] = [
        crawled,
        lambda: asyncio.run(left_early()),
        lambda: asyncio.run(never_run()),
        lambda: asyncio.run(crawler.run_async(web.seed, directory=directory, config=SETTINGS)),
        lambda: asyncio.run(withdrawn()),
        lambda: len(list(stored.stored())),
        lambda: next(iter(stored.stored())).status,
        lambda: crawler.fetch(web.url(1), SETTINGS).status,
        failing,
    ]
    for number, call in enumerate(calls):
        assert_closes(call, number)
