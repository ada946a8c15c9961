"""Test that `withdraw` (also with `--erase`) hides pages and loses no other page if it is killed before any write.

The site is a tree, so a page that is lost would stay lost. Several hosts have equal pages, so remaining
copies may refer to the responses of erased pages.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from crawler.crawl.journal import JOURNAL
from crawler.export.archives import opened
from crawler.storage.keys import ERASING
from crawler.storage.kv import scan_prefix
from crawler.urls.canonical import hostname
from tests.end_to_end.test_live import Running
from tests.end_to_end.test_withdraw import do
from tests.end_to_end.web import Web, crawl, page
from tests.faults.every_write import command, in_turn, kill_points, ran, run
from tests.pages.support import records

HOSTS, PAGES, FANOUT = 6, 60, 3
LEAF = "a leaf among equals"
LAST = 3  # number of a command's last writes; in separate runs, the command is killed before each of them


def host(number: int) -> str:
    return f"h{number % HOSTS}.localhost"


def tree_page(web: Web, number: int) -> str:
    """Return the page with this number in a tree over all hosts. Every third leaf has the same bytes."""
    children = range(number * FANOUT + 1, min(number * FANOUT + FANOUT + 1, PAGES))
    links = [web.url(f"/{child}", host(child)) for child in children]
    return page(*links, text=LEAF if not links and number % 3 else f"page {number}")


@pytest.fixture(scope="module", params=[1, 3])
def crawled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Web, Path]]:
    """Return two crawls at rest, one of one process and one of three, with small segments."""
    directory = tmp_path_factory.mktemp("crawled") / "crawl"
    with Web({}) as web:
        web.routes = {f"{host(n)}/{n}": tree_page(web, n) for n in range(PAGES)}
        flags = ("--scope", "any", "--processes", request.param, "--set", "pages.segment_bytes=20000")
        crawl(directory, web.url("/0", host(0)), *flags)
        assert len(shown(directory)) == PAGES
        yield web, directory


def shown(directory: Path) -> dict[str, bytes]:
    """Return the content of every page that readers see, by its path and host."""
    found = {}
    with opened(directory) as stored:
        for archive in stored.archives:
            for _, capture in archive.newest_captures():
                if not capture.url.endswith("robots.txt"):
                    found[capture.url] = archive.read(capture).content
    return found


def holder(directory: Path) -> str:
    """Equal leaves of several hosts refer to one response. Return the host that has this response."""
    with opened(directory) as stored:
        for archive in stored.archives:
            for _, capture in archive.all_captures():
                if capture.refers_to:
                    original = archive.capture_at(capture.refers_to)
                    assert original is not None
                    if hostname(original.url) != hostname(capture.url):
                        return hostname(original.url)
    raise AssertionError("no page repeats one of another host")


def records_of(directory: Path, name: str) -> int:
    """Return the number of WARC records in the directory that belong to the host or refer to a page of the host."""
    return sum(
        any(
            f"//{name}:" in record.fields.get(field, "")
            for field in ("warc-target-uri", "warc-refers-to-target-uri")
        )
        for path in directory.glob("*/warc/*.warc.gz*")
        for record in records(path)
    )


def listed(directory: Path) -> int:
    with opened(directory) as stored:
        return sum(1 for archive in stored.archives for _ in scan_prefix(archive.store, ERASING))


def copy_of(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(directory, to, ignore=shutil.ignore_patterns("*.sock")))


@pytest.mark.parametrize("flags", [(), ("--erase",)], ids=["withdraw", "erase"])
def test_a_withdrawal_killed_before_any_write_is_completed(
    crawled: tuple[Web, Path], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    _, source = crawled
    before = shown(source)
    name = holder(source)
    kept = {url: content for url, content in before.items() if f"//{name}:" not in url}
    assert 0 < len(kept) < len(before)
    directory = copy_of(source, tmp_path / "crawl")
    words = ("withdraw", "--host", name, *flags, "--dir", str(directory))
    alone = run(directory, partial(command, *words))
    assert alone is not None and alone.result == 0
    for kill_at in kill_points(alone.writes, parts=4, last=LAST):
        copy_of(source, directory)
        assert run(directory, partial(command, *words), kill_at=kill_at) is None, kill_at
        refused = [partial(command, "status", "--dir", str(directory))] * (directory / JOURNAL).exists()
        repeated = (
            partial(command, *words),
            partial(shown, directory),
            partial(command, "check", "--dir", str(directory)),
        )
        results = ran(directory, in_turn, *refused, *repeated)
        assert results == [3] * len(refused) + [0, kept, 0], kill_at
        assert not (directory / JOURNAL).exists()
        if flags:
            assert not listed(directory)
            assert not records_of(directory, name), kill_at


@pytest.mark.parametrize(
    "fault",
    ["erasing:1", "erasing:4", "erased:1", "erasure noted:1", "erasure noted:2", "withdrawal recorded:1"],
)
def test_an_erasure_killed_within_a_write_is_completed(
    crawled: tuple[Web, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """If only half of a record was overwritten, the next command that opens the crawl overwrites the rest."""
    _, source = crawled
    name = holder(source)
    directory = copy_of(source, tmp_path / "crawl")
    words = [
        sys.executable,
        "-m",
        "crawler",
        "withdraw",
        "--host",
        name,
        "--erase",
        "--dir",
        str(directory),
        "-q",
    ]
    killed = subprocess.run(words, env={**os.environ, "CRAWLER_FAULT": fault}, check=False)
    assert killed.returncode == -signal.SIGKILL
    told = subprocess.run(
        [*words[:4], "--list", *words[-3:]], check=False, capture_output=True, text=True
    ).stdout
    ended = fault == "erasure noted:2"
    assert ("erasure not finished" in told) == (fault != "withdrawal recorded:1" and not ended), told
    assert subprocess.run(words, check=False, capture_output=True).returncode == 0
    kept = {url: content for url, content in shown(source).items() if f"//{name}:" not in url}
    assert shown(directory) == kept
    assert listed(directory) == 0
    assert ran(directory, command, "check", "--dir", str(directory)) == 0


@pytest.mark.parametrize("fault", ["erasing:2", "erased:1"])
def test_a_running_crawl_is_killed_while_it_erases(
    crawled: tuple[Web, Path], tmp_path: Path, fault: str
) -> None:
    """The next start of the crawl completes the erasures that are listed.

    The other erasures are completed when the command is repeated.
    """
    _, source = crawled
    directory = copy_of(source, tmp_path / "crawl")
    if len(list(directory.glob("p*/store"))) > 1:
        pytest.skip("a supervisor starts the process again, and the fault point kills it for ever")
    flags = ("--scope", "any", "--set", "refresh.min_age=100000000", "--set", "refresh.explore=0")
    name = holder(source)
    kept = {url: content for url, content in shown(source).items() if f"//{name}:" not in url}
    words = ("withdraw", "--host", name, "--erase")
    os.environ["CRAWLER_FAULT"] = fault
    try:
        running = Running(tmp_path, [], *flags, command="refresh")
    finally:
        del os.environ["CRAWLER_FAULT"]
    try:
        running.until(lambda: running.status().get("refreshing", {}).get("pages"))
        with pytest.raises((OSError, HTTPException)):
            do(running, host=name, erase=True)
        assert running.process.wait(120) == -signal.SIGKILL
        running.end()
        assert ran(directory, command, "check", "--dir", str(directory)) == 0
        running = Running(tmp_path, [], *flags, command="refresh")
        running.until(lambda: running.status().get("refreshing", {}).get("pages"))
        assert running.command(*words).returncode == 0
    finally:
        running.end()
    assert shown(directory) == kept
    assert listed(directory) == 0
    assert ran(directory, command, "check", "--dir", str(directory)) == 0
