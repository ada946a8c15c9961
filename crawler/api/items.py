"""Items to a file: JSONL, CSV or Parquet, as its name ends.

An existing file is continued, so a crawl in several runs ends with one file. Items
written before `sync` returns survive a crash. A page whose items were written but
whose end was not committed is given again: after a crash an item may stand twice.
None is lost.
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
    """An item as a mapping of JSON values.

    Raises:
        TypeError: it is no mapping, dataclass or msgspec struct.
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
    """Where items go."""

    @property
    def written(self) -> int:
        """Rows taken."""

    def add(self, row: dict[str, Any]) -> None:
        """Take a row."""

    def sync(self) -> None:
        """Make the rows taken so far durable; may be called in another thread."""

    def close(self) -> None:
        """Write what is left."""


def open_items(path: Path) -> Items:
    """The file of items at `path`.

    Raises:
        UsageError: the name says no format, or the file cannot be written.
    """
    kinds: dict[str, Callable[[Path], Items]] = {
        ".jsonl": JsonLinesItems,
        ".ndjson": JsonLinesItems,
        ".csv": CsvItems,
        ".parquet": ParquetItems,
    }
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"items {path}: the name ends in none of {', '.join(kinds)}")
    try:
        return kind(path)
    except OSError as error:
        raise UsageError(f"items {path}: {error.strerror or error}") from error


class _File:
    """A file that rows are appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._file = path.open("a+b")
        self._mend()

    def _mend(self) -> None:
        """Cut off a row that a crash left half written."""
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
    """An object a line."""

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(row) + b"\n")
        self.written += 1


class CsvItems(_File):
    """A header of the first item's keys, then a line an item; lists and mappings stand as JSON.

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
            raise ValueError(f"{self.path}: no column {', '.join(unknown)}; give all keys in each item")
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
    """A Parquet file, written from a JSONL file beside it (`.rows`) when the crawl ends."""

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
