"""The files to which the items of a crawl are written: one file for all items, or one for each type of items.

The extension of a file's name selects its format.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crawler.api.items import CsvItems, Items, JsonLinesItems
from crawler.api.parquet_items import ParquetItems
from crawler.errors import UsageError

ItemsGiven = str | Path | Mapping[type, str | Path]
FORMATS: dict[str, type[Items]] = {
    ".jsonl": JsonLinesItems,
    ".ndjson": JsonLinesItems,
    ".csv": CsvItems,
    ".parquet": ParquetItems,
}


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
        """Return the file of an item; raise Misuse if no file was given for items of this type."""
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
        """Write the remaining rows of all files. If one of them fails (StoreError), close the others nevertheless."""
        while self._open:
            try:
                self._open.pop().close()
            except BaseException:
                self.close()
                raise


def open_items(path: Path) -> Items:
    """Open an items file; raise UsageError if its extension is unknown, or if it cannot be written."""
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"items {path}: the name must end in one of {', '.join(FORMATS)}")
    try:
        return kind(path)
    except OSError as error:
        raise UsageError(f"items {path}: {error.strerror or error}") from error


def check_items(path: Path) -> None:
    """Raise UsageError if `open_items` would. The check does not leave a new file behind."""
    is_new = not path.exists() and not path.with_name(path.name + ".rows").exists()
    open_items(path).close()
    if is_new:
        path.unlink(missing_ok=True)


def item_paths(given: ItemsGiven) -> set[Path]:
    """Return the paths of the items files; raise UsageError if a key of the mapping is not a type."""
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
