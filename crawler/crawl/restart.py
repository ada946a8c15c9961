"""Moves an existing crawl to another directory name, so that a new crawl can start in its place.

A crawl with `--cached` uses the answers of earlier crawls again. `earlier` lists these earlier crawls, which
were moved to other names.
"""

import contextlib
import glob
from itertools import count
from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DirectoryError, UsageError
from crawler.signing.key_file import NAME
from crawler.storage.faults import reach
from crawler.storage.files import Lock, sync_directory

# Maximum number of earlier crawls whose answers are used again. A copy of the store of each of these crawls
# stays open during the run.
EARLIER_MAX = 16


def earlier(directory: CrawlDirectory) -> list[str]:
    """Return up to `EARLIER_MAX` of the crawls that `rename_to_numbered` has renamed, the newest first."""
    numbered = _numbered(directory.path.absolute())
    crawls = [CrawlDirectory(numbered[number]) for number in sorted(numbered, reverse=True)]
    return [str(each.path) for each in crawls if each.exists() and each.process_names()][:EARLIER_MAX]


def _numbered(path: Path) -> dict[int, Path]:
    """Return the files and folders named PATH.N, by number."""
    return {
        int(number): each
        for each in path.parent.glob(f"{glob.escape(path.name)}.*")
        if (number := each.name.removeprefix(f"{path.name}.")).isdecimal()
    }


def rename_to_numbered(directory: CrawlDirectory) -> Path | None:
    """Rename a crawl directory to DIR.1 or DIR.2 ..., but keep its signing key in DIR; do nothing if there is no crawl.

    The new number is higher than all existing numbers, so the numbers show the order of the crawls. If the
    process is killed after it has renamed the directory and before it has moved the key back, the next call
    moves the key back.

    Raises:
        DirectoryError: the crawl is in use, or cannot be renamed.
    """
    path, aside = directory.path.absolute(), None
    numbered = _numbered(path)
    try:
        if directory.exists():
            aside = path.with_name(f"{path.name}.{max(numbered, default=0) + 1}")
            with contextlib.ExitStack() as held:
                for name in directory.process_names():
                    held.callback(Lock(directory.process(name) / "node.lock", name).release)
                path.rename(aside)
            sync_directory(path.parent)
            reach("crawl moved aside")
        newest = aside if aside is not None else numbered[max(numbered)] if numbered else None
        if newest is not None:
            _take_key(newest, path)
    except OSError as error:
        raise DirectoryError(f"{path}: cannot be renamed: {error.strerror}") from error
    return aside


def _take_key(newest: Path, path: Path) -> None:
    """Move the signing key back to `path`, because an operator uses the same key for all crawls."""
    if (newest / NAME).exists() and not (path / NAME).exists():
        path.mkdir(exist_ok=True)
        (newest / NAME).rename(path / NAME)
        sync_directory(path)
        sync_directory(path.parent)


def rename_file_to_numbered(path: Path) -> None:
    """Rename a file, if it exists, to NAME.1, or to NAME.2 if that name is taken, and so on.

    Raises:
        UsageError: the file cannot be renamed.
    """
    if not path.is_file():
        return
    try:
        path.rename(next(name for n in count(1) if not (name := path.with_name(f"{path.name}.{n}")).exists()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be renamed: {error.strerror}") from error
