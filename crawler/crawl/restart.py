"""Moves an existing crawl to another directory name, so that a new crawl can start in its place."""

import contextlib
from itertools import count
from pathlib import Path

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DirectoryError
from crawler.signing.key_file import NAME
from crawler.storage.files import Lock


def put_aside(directory: CrawlDirectory) -> Path | None:
    """Rename a crawl directory to DIR.1, DIR.2 or so on; None if there is no crawl. The signing key stays in DIR.

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
            if (aside / NAME).exists():  # one key serves all crawls of an operator
                path.mkdir()
                (aside / NAME).rename(path / NAME)
        except OSError as error:
            raise DirectoryError(f"{path}: cannot be renamed: {error.strerror}") from error
    return aside
