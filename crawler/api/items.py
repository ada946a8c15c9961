"""Writes items to a JSONL, CSV or Parquet file, chosen by the extension of its name.

Items are appended to an existing file, so a crawl in several runs makes one file. Items
written before `sync` returns survive a crash. A page whose items were written but whose
delivery was not committed is delivered again, so after a crash an item may occur twice.
No item is lost.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crawler.errors import StoreError, UsageError
from crawler.printable import csv_cell
from crawler.storage.files import new_file


def plain(item: object) -> dict[str, Any]:
    """Return an item as a mapping of JSON values.

    Raises:
        TypeError: the item is not a mapping, dataclass or msgspec struct.
    """
    if isinstance(item, Mapping):
        return dict(msgspec.to_builtins(dict(item), str_keys=True))
    if isinstance(item, msgspec.Struct) or (dataclasses.is_dataclass(item) and not isinstance(item, type)):
        made = msgspec.to_builtins(item)
        if isinstance(made, dict):
            return made
    raise TypeError(
        f"a callback yielded {type(item).__name__}; items are dicts, dataclasses or msgspec structs"
    )


class Items(Protocol):
    """A destination of items."""

    @property
    def written(self) -> int:
        """Return the number of rows added."""

    def add(self, row: dict[str, Any]) -> None:
        """Add a row."""

    def sync(self) -> None:
        """Make the rows added so far durable; may be called from another thread."""

    def close(self) -> None:
        """Write the remaining rows."""


def open_items(path: Path) -> Items:
    """Open the items file at `path`.

    Raises:
        UsageError: the extension is unknown, or the file cannot be written.
    """
    kinds: dict[str, Callable[[Path], Items]] = {
        ".jsonl": JsonLinesItems,
        ".ndjson": JsonLinesItems,
        ".csv": CsvItems,
        ".parquet": ParquetItems,
    }
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"items {path}: the name must end in one of {', '.join(kinds)}")
    try:
        return kind(path)
    except OSError as error:
        raise UsageError(f"items {path}: {error.strerror or error}") from error


class _File:
    """A file to which rows are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._file = path.open("a+b")
        self._mend()

    def _mend(self) -> None:
        """Remove an incomplete row that a crash left at the end."""
        end = self._file.seek(0, os.SEEK_END)
        if not end:
            return
        self._file.seek(0)
        data = self._file.read()
        if not data.endswith(b"\n"):
            self._file.truncate(data.rfind(b"\n") + 1)

    def sync(self) -> None:
        try:
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"items {self.path}: {error.strerror}") from error

    def close(self) -> None:
        self.sync()
        self._file.close()


class JsonLinesItems(_File):
    """One JSON object per line."""

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(row) + b"\n")
        self.written += 1


class CsvItems(_File):
    """A header of the first item's keys, then one line per item; lists and mappings are written as JSON.

    Raises:
        ValueError: an item has a key that the header lacks.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file.seek(0)
        first = self._file.readline().decode("utf-8-sig")
        self._columns = next(csv.reader([first]), []) if first else []

    def add(self, row: dict[str, Any]) -> None:
        if not self._columns:
            self._columns = list(row)
            self._write(self._columns)
        if unknown := [name for name in row if name not in self._columns]:
            raise ValueError(
                f"{self.path}: no column {', '.join(unknown)}; every item must have the same keys"
            )
        self._write([_cell(row.get(name)) for name in self._columns])
        self.written += 1

    def _write(self, cells: Sequence[object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        self._file.write(text.getvalue().encode())


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return csv_cell(value) if isinstance(value, str) else "" if value is None else value


class ParquetItems:
    """A Parquet file, written when the crawl ends from a JSONL file next to it (`.rows`)."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow  # noqa: F401  # needed at the end only
        except ImportError:
            raise UsageError(f"items {path}: Parquet needs pyarrow: pip install 'crawler[export]'") from None
        self.path = path
        self._rows = JsonLinesItems(path.with_name(path.name + ".rows"))

    @property
    def written(self) -> int:
        return self._rows.written

    def add(self, row: dict[str, Any]) -> None:
        self._rows.add(row)

    def sync(self) -> None:
        self._rows.sync()

    def close(self) -> None:
        import pyarrow
        import pyarrow.parquet

        self._rows.close()
        with self._rows.path.open("rb") as file:
            rows = [msgspec.json.decode(line) for line in file]
        if not rows:
            return
        columns = dict.fromkeys(name for row in rows for name in row)
        table = pyarrow.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows])
        with new_file(self.path) as made:
            pyarrow.parquet.write_table(table, made)
