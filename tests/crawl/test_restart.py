"""Test that an existing crawl is renamed to the next number, unless a process has it open."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import earlier, rename_file_to_numbered, rename_to_numbered
from crawler.errors import DirectoryError
from crawler.signing.key_file import NAME
from crawler.storage.files import Lock


def test_each_crawl_is_renamed_to_the_next_number(tmp_path: Path) -> None:
    crawl = CrawlDirectory(tmp_path / "crawl")
    assert rename_to_numbered(crawl) is None, "there is no earlier crawl"
    for number in (1, 2, 3):
        crawl.create()
        (crawl.process("p0") / "store").mkdir(parents=True)
        assert rename_to_numbered(crawl) == tmp_path / f"crawl.{number}"
        assert not crawl.path.exists()
        with Lock(tmp_path / f"crawl.{number}" / "p0" / "node.lock", "p0"):
            pass  # the lock is free, because renaming the directory has released it
    (tmp_path / "crawl.1").rename(tmp_path / "kept")
    crawl.create()
    assert rename_to_numbered(crawl) == tmp_path / "crawl.4", (
        "a lower number would make it look older than crawl.2"
    )


def test_a_crawl_keeps_its_signing_key_though_its_move_is_killed(tmp_path: Path) -> None:
    """The key once stayed in the old crawl if the move was killed between the two renames."""
    crawl = CrawlDirectory(tmp_path / "crawl")
    crawl.create()
    (crawl.path / NAME).write_text("key")
    killed = subprocess.run(
        [sys.executable, "-m", "crawler", "demo", "--dir", str(crawl.path)],
        env={**os.environ, "CRAWLER_FAULT": "crawl moved aside:1"},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL and not crawl.path.exists(), killed
    assert rename_to_numbered(crawl) is None
    assert (crawl.path / NAME).read_text() == "key" and not (tmp_path / "crawl.1" / NAME).exists()
    assert rename_to_numbered(crawl) is None, "a directory that holds only the key is no crawl"


def test_earlier_crawls_are_listed_newest_first(tmp_path: Path) -> None:
    """Crawls that have not begun, and directories with a similar name, are not listed."""
    crawl = CrawlDirectory(tmp_path / "crawl[1]")
    for number in range(1, 12):
        crawl.create()
        if number != 2:
            (crawl.process("p0") / "store").mkdir(parents=True)
        rename_to_numbered(crawl)
    (tmp_path / "crawl1.99").mkdir()
    (tmp_path / "crawl[1].bak").mkdir()
    assert earlier(crawl) == [str(tmp_path / f"crawl[1].{n}") for n in range(11, 0, -1) if n != 2]


def test_a_file_is_renamed_to_the_first_free_number(tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "items.csv").write_text(text)
        rename_file_to_numbered(tmp_path / "items.csv")
    assert (tmp_path / "items.csv.1").read_text() == "first" and (tmp_path / "items.csv.2").exists()
    # this does nothing, because the file does not exist any more
    rename_file_to_numbered(tmp_path / "items.csv")


def test_a_crawl_in_use_is_not_renamed(tmp_path: Path) -> None:
    crawl = CrawlDirectory(tmp_path / "crawl")
    crawl.create()
    for name in ("p0", "p1"):
        (crawl.process(name) / "store").mkdir(parents=True)
    with Lock(crawl.process("p1") / "node.lock", "p1"), pytest.raises(DirectoryError, match="p1"):
        rename_to_numbered(crawl)
    with Lock(crawl.process("p0") / "node.lock", "p0"):
        pass  # the failed attempt to rename the directory has released this lock
    assert crawl.exists()


def test_a_crawl_that_cannot_be_renamed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl = CrawlDirectory(tmp_path / "crawl")
    crawl.create()

    def fails(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(DirectoryError, match="crawl: cannot be renamed: Invalid cross-device link"):
        rename_to_numbered(crawl)
