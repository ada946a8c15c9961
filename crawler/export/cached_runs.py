"""Starts a run that uses stored answers of earlier runs (`--cached`), and removes runs that only repeat other runs.

Each run with `--cached` is a separate crawl, which is marked with the file DIR/cached. The next run with
`--cached` moves the crawl that is in DIR to DIR.N, and then removes every marked crawl whose answers are all
in other crawls as well. So only two kinds of crawls remain: the crawl that made the requests, and the few
runs with `--cached` that added answers. A crawl without the file `cached` is never removed.
"""

import contextlib
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import earlier, rename_to_numbered
from crawler.errors import DamageError, DirectoryError
from crawler.export.archives import opened
from crawler.pages.captures import is_copy
from crawler.storage.files import Lock

MARK = "cached"
_BEING_REMOVED = ".removed"


class CachedStart(NamedTuple):
    """The directory to which the existing crawl was moved, and the crawls whose answers are used.

    `aside` is the directory to which the existing crawl was moved. It is None if there was no crawl, or if the
    moved crawl was removed because it is no longer needed.
    """

    aside: Path | None
    answers_from: list[str]


def start_cached(directory: CrawlDirectory) -> CachedStart:
    """Move the existing crawl aside, remove marked crawls that are no longer needed, and mark the new crawl.

    Raises:
        DirectoryError: the existing crawl is in use, or cannot be renamed.
    """
    aside = rename_to_numbered(directory)
    crawls = earlier(directory)
    for path in reversed(crawls.copy()):
        others = [each for each in crawls if each != path]
        if (Path(path) / MARK).exists() and _repeats(path, others) and _remove(CrawlDirectory(Path(path))):
            crawls = others
    directory.path.mkdir(parents=True, exist_ok=True)
    (directory.path / MARK).touch()
    return CachedStart(aside if aside is not None and aside.exists() else None, crawls)


def _repeats(path: str, others: Sequence[str]) -> bool:
    """Return whether, for each answer of a crawl, the other crawls have the same answer or a newer one."""
    try:
        with contextlib.ExitStack() as held:
            crawled = held.enter_context(opened(Path(path)))
            rest = [held.enter_context(opened(Path(each))) for each in others]
            captures = itertools.chain.from_iterable(each.newest_captures() for each in crawled.archives)
            return all(
                any(
                    copy.fetched_at >= capture.fetched_at
                    for each in rest
                    for _, _, copy in each.newest_copies(capture.url)
                )
                for fingerprint, capture in captures
                if is_copy(capture)
                # a cached run uses only copies that are stored under their URL
                and fingerprint == crawled.fingerprint(capture.url)
            )
    except (DamageError, DirectoryError):
        return False


def _remove(directory: CrawlDirectory) -> bool:
    """Delete a crawl; return False if a process uses it. The crawl is renamed before it is deleted."""
    try:
        with contextlib.ExitStack() as held:
            for name in directory.process_names():
                held.callback(Lock(directory.process(name) / "node.lock", name).release)
            gone = directory.path.rename(directory.path.with_name(directory.path.name + _BEING_REMOVED))
    except (DirectoryError, OSError):
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True
