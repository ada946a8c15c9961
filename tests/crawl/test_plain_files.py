"""Test that a crawl directory with entries of the wrong kind or size is refused, with one line about the entry."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.plain_files import WHOLE_BYTES_MAX, strange_entry
from crawler.errors import DirectoryError


def enlarge(path: Path) -> None:
    path.touch()
    os.truncate(path, WHOLE_BYTES_MAX + 1)


def large_but_allowed(path: Path) -> None:
    path.touch()
    os.truncate(path, WHOLE_BYTES_MAX)


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("crawl.toml", enlarge, "larger than 64 MiB"),
        ("seed", enlarge, "larger than 64 MiB"),
        ("crawl.toml", large_but_allowed, ""),
        ("pages.jsonl", enlarge, ""),
        ("journal.json", Path.mkdir, "is a folder"),
        (".reshard", Path.touch, "is a file"),
        (".resharded", Path.touch, "is a file"),
        ("p0/control.sock", Path.mkdir, "is a folder"),
        ("p0/warc", Path.touch, "is a file"),
        ("warc", Path.touch, ""),
        ("mirror", Path.mkdir, ""),
        ("crawler.log", os.mkfifo, "is a pipe"),
        ("p0/ballast", lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    ],
)
def test_strange_entries_are_refused(
    tmp_path: Path, name: str, make: Callable[[Path], object], told: str
) -> None:
    """A folder in place of the control socket once made a crawl of several processes restart them forever."""
    (tmp_path / "p0" / "store").mkdir(parents=True)
    assert strange_entry(tmp_path) == ""
    make(tmp_path / name)
    found = strange_entry(tmp_path)
    assert (told in found) and bool(found) == bool(told), found
    if told:
        with pytest.raises(DirectoryError, match=told):
            CrawlDirectory(tmp_path).require()


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    """The message was once `crawl/credentials: cannot be read: Not a directory`."""
    file = tmp_path / "crawl"
    file.touch()
    with pytest.raises(DirectoryError, match=r"^\S+/crawl: is a file, not a directory$"):
        CrawlDirectory(file).exists()
    assert strange_entry(tmp_path / "new") == ""
