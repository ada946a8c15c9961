"""The files to which the items of a crawl are written: one file for all items, or one for each type of items."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crawler.api.item_formats import open_items
from crawler.api.items import Items
from crawler.errors import UsageError

ItemsGiven = str | Path | Mapping[type, str | Path]


class Misuse(UsageError):
    """The arguments of the crawl do not fit its callbacks."""


class ItemFiles:
    """The open items files, `files`, by path.

    Each item is written to the file of the first type of which it is an instance. Types may share a file.
    """

    def __init__(self, given: ItemsGiven) -> None:
        self._types = tuple((kind, path) for kind, path in _pairs(given))
        self.files: dict[Path, Items] = {}
        self._open: list[Items] = []
        try:
            for _, path in self._types:
                if path not in self.files:
                    self.files[path] = file = open_items(path)
                    self._open.append(file)
        except BaseException:
            self.close()
            raise

    @property
    def written(self) -> int:
        """Return the number of rows that were added to all files."""
        return sum(file.written for file in self.files.values())

    def file_of(self, item: object) -> Items:
        """Return the file of an item.

        Raises:
            Misuse: no file was given for items of this type.
        """
        if not self._types:
            raise Misuse("a callback yielded items, but no file is given; set items=")
        for kind, path in self._types:
            if isinstance(item, kind):
                return self.files[path]
        names = ", ".join(kind.__name__ for kind, _ in self._types)
        raise Misuse(f"items: no file is given for {type(item).__name__}, only for {names}")

    def sync(self) -> None:
        """Make the rows added so far durable. Another thread may call this method."""
        for file in self.files.values():
            file.sync()

    def close(self) -> None:
        """Write the remaining rows of all files.

        Raises:
            StoreError: the disk failed. The other files are closed nevertheless.
        """
        while self._open:
            try:
                self._open.pop().close()
            except BaseException:
                self.close()
                raise


def item_paths(given: ItemsGiven) -> set[Path]:
    """Return the paths of the items files.

    Raises:
        UsageError: a key of the mapping is not a type.
    """
    return {path for _, path in _pairs(given)}


def _pairs(given: Any) -> Iterator[tuple[type, Path]]:
    if not isinstance(given, Mapping):
        if given:
            yield object, Path(given)
        return
    for kind, path in given.items():
        if not isinstance(kind, type):
            raise UsageError(f"items: expected a class for each file, got {kind!r:.100}")
        yield kind, Path(path)
