"""Moves an existing crawl to another directory name, so that a new crawl can start in its place.

`earlier` lists the crawls that were moved, for a crawl that uses their answers again (`--cached`).
"""

import contextlib
import glob
from itertools import count
from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DirectoryError, UsageError
from crawler.signing.key_file import NAME
from crawler.storage.files import Lock

# Maximum number of crawls whose answers are used again; a copy of the store of each is open meanwhile.
EARLIER_MAX = 16


def earlier(directory: CrawlDirectory) -> list[str]:
    """Return the crawls that `rename_to_numbered` has renamed, the newest first, at most `EARLIER_MAX`."""
    path = directory.path.absolute()
    numbered = {
        int(number): each
        for each in path.parent.glob(f"{glob.escape(path.name)}.*")
        if (number := each.name.removeprefix(f"{path.name}.")).isdecimal()
    }
    crawls = [CrawlDirectory(numbered[number]) for number in sorted(numbered, reverse=True)]
    return [str(each.path) for each in crawls if each.exists() and each.process_names()][:EARLIER_MAX]


def rename_to_numbered(directory: CrawlDirectory) -> Path | None:
    """Rename a crawl directory to DIR.1, DIR.2 ..., except its signing key; return None if there is no crawl.

    Raises:
        DirectoryError: it is in use, or cannot be renamed.
    """
    if not directory.exists():
        return None
    with contextlib.ExitStack() as held:
        for name in directory.process_names():
            held.callback(Lock(directory.process(name) / "node.lock", name).release)
        path = directory.path.absolute()
        names = (path.with_name(f"{path.name}.{n}") for n in count(1))
        aside = next(name for name in names if not name.exists())
        try:
            path.rename(aside)
            if (aside / NAME).exists():  # one signing key serves all crawls of an operator
                path.mkdir()
                (aside / NAME).rename(path / NAME)
        except OSError as error:
            raise DirectoryError(f"{path}: cannot be renamed: {error.strerror}") from error
    return aside


def rename_file_to_numbered(path: Path) -> None:
    """Rename a file to NAME.1, NAME.2 or so on, if there is one.

    Raises:
        UsageError: it cannot be renamed.
    """
    if not path.is_file():
        return
    try:
        path.rename(next(name for n in count(1) if not (name := path.with_name(f"{path.name}.{n}")).exists()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be renamed: {error.strerror}") from error
