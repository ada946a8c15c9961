"""Test that `recover` and `reshard` have the same result if they are killed before any write and repeated."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import BUILT, JOURNAL
from crawler.upgrade.ready import ready
from tests.end_to_end.test_many_processes import QUICK
from tests.end_to_end.test_many_processes import command as command_line
from tests.end_to_end.test_resharding import content, stored
from tests.faults.every_write import command, in_turn, kill_points, ran, run
from tests.faults.harness import TreeWeb, crawl, settings

PAGES = 200
# Number of a command's last writes. These writes change the journal, names and folders, so a kill is tried
# before each write.
LAST = 7


def is_clean(directory: Path) -> None:
    """Assert that any other command completes the switch, or finds no trace of the kill."""
    ready(CrawlDirectory(directory))
    assert not (directory / BUILT).exists() and not (directory / JOURNAL).exists()


# -- reshard


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a crawl of two processes that was stopped in the middle, while links waited in outboxes and DUEs."""
    folder = tmp_path_factory.mktemp("half_done")
    with TreeWeb(folder, PAGES, "--fanout", "3", "--delay", "0.05") as web:
        flags = ("--processes", "2", "--max-pages", "60", *QUICK, "--concurrency", "8")
        ended = crawl(folder / "crawl", web.seed, *settings(*flags))
        assert ended.code == 0, ended
    return folder / "crawl"


def copy_of(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(directory, to, ignore=shutil.ignore_patterns("*.sock")))


def test_a_killed_reshard_is_completed(half_done: Path, tmp_path: Path) -> None:
    directory = copy_of(half_done, tmp_path / "crawl")
    reshard = partial(command, "reshard", "--to", "3", "--dir", str(directory))
    alone = run(directory, reshard)
    assert alone is not None and alone.result == 0 and alone.writes > 30
    whole = ran(directory, content, directory)
    for kill_at in kill_points(alone.writes, parts=3, last=LAST):
        copy_of(half_done, directory)
        assert run(directory, reshard, kill_at=kill_at) is None, kill_at
        calls = (
            partial(is_clean, directory),
            reshard,
            partial(content, directory),
            partial(command, "check", "--dir", str(directory)),
        )
        assert ran(directory, in_turn, *calls) == [None, 0, whole, 0], kill_at
        left = [
            each.name for each in directory.iterdir() if each.name.startswith(".") or each.name == JOURNAL
        ]
        assert not left


@pytest.mark.parametrize(
    "words", [("status",), ("why", "http://localhost/"), ("check",), ("set", "crawl.rate=3")]
)
def test_the_next_command_removes_an_unfinished_folder(
    half_done: Path, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of(half_done, tmp_path / "crawl")
    monkeypatch.setenv("CRAWLER_FAULT", "reshard built:1")
    assert command_line(directory, "reshard", "--to", "3").code < 0
    monkeypatch.delenv("CRAWLER_FAULT")
    assert (directory / BUILT).exists()
    assert command_line(directory, *words).code == 0
    assert not (directory / BUILT).exists()


# -- recover


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TreeWeb, Path, str]]:
    """Build a finished crawl of three processes in which one process has lost its disk.

    Yield the web, the crawl's directory and the name of that process.
    """
    folder = tmp_path_factory.mktemp("lost")
    directory = folder / "crawl"
    with TreeWeb(folder, PAGES, "--fanout", "3", hosts=30) as web:
        ended = crawl(directory, web.seed, *settings("--processes", "3", *QUICK))
        assert ended.code == 0, ended
        owner = msgspec.json.decode(command_line(directory, "why", web.seed, "--json").out)["owner"]
        name = "p1" if owner != "p1" else "p2"
        shutil.rmtree(directory / name)
        yield web, directory, name


def test_the_crawl_continues_after_a_killed_recovery(lost: tuple[TreeWeb, Path, str], tmp_path: Path) -> None:
    """`recover` is killed halfway and repeated. Then the crawl fetches all missing pages."""
    web, source, name = lost
    directory = copy_of(source, tmp_path / "crawl")
    recover = partial(command, "recover", name, "--dir", str(directory))
    writes = run(
        copy_of(source, tmp_path / "alone"),
        partial(command, "recover", name, "--dir", str(tmp_path / "alone")),
    )
    assert writes is not None
    assert run(directory, recover, kill_at=writes.writes // 2) is None
    refused = crawl(directory, *settings(*QUICK))
    assert refused.code == 3 and f"`crawler recover {name}` continues it" in refused.err, refused
    assert ran(directory, recover) == 0
    again = crawl(directory, *settings(*QUICK))
    assert again.code == 0, again
    assert sorted(stored(directory)) == sorted(web.fetched()) and len(web.fetched()) == PAGES
