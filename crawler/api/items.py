"""Writes items to a JSONL or CSV file.

`parquet_items.py` writes Parquet files, and `item_files.py` chooses the format. Items are appended to an
existing file, so a crawl in several runs makes one file. Items written before `sync` returns survive a crash.
If a crash comes after the items of a page were written but before its delivery is committed, the page is
delivered again, and its items occur twice in the file. So a crash may duplicate items but never loses any.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import StoreError
from crawler.printable import csv_line
from crawler.storage.files import new_file


class ItemError(TypeError):
    """An item of the user's code that cannot be written. The message says all; no traceback is needed."""


def plain(item: object) -> dict[str, Any]:
    """Return an item (a mapping, dataclass or msgspec struct) as a mapping of JSON values; otherwise raise ItemError."""
    if isinstance(item, Mapping):
        item = dict(item)
    elif not (
        isinstance(item, msgspec.Struct) or (dataclasses.is_dataclass(item) and not isinstance(item, type))
    ):
        raise _no_item(item)
    try:
        made = msgspec.to_builtins(item, str_keys=True)
    except Exception as error:
        raise ItemError(f"{_culprit(item)}{error}") from error
    if not isinstance(made, dict):
        raise _no_item(item)
    return made


def _no_item(item: object) -> ItemError:
    return ItemError(
        f"a callback yielded {type(item).__name__}; items are dicts, dataclasses or msgspec structs"
    )


def _culprit(item: Any) -> str:
    """Return a phrase that names the first field whose value is not a JSON value; "" if there is none."""
    fields = item if isinstance(item, dict) else {name: getattr(item, name) for name in _names(item)}
    for name, value in fields.items():
        try:
            msgspec.to_builtins(value, str_keys=True)
        except Exception:
            return f"field {name!r} of an item: "
    return ""


def _names(item: Any) -> Iterable[str]:
    if isinstance(item, msgspec.Struct):
        return item.__struct_fields__
    return (field.name for field in dataclasses.fields(item))


class Items:
    """A file to which rows are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0  # number of rows that were added
        self._open()

    def _open(self) -> None:
        self._file = self.path.open("a+b")
        self._file.seek(0)
        rows = sum(map(len, self._rows(self._file)))
        self._file.truncate(rows)  # cut off an incomplete row that a crash left at the end

    def _rows(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the complete rows of a file."""
        return (line for line in lines if line.endswith(b"\n"))

    def add(self, row: dict[str, Any]) -> None:
        """Add a row."""
        line = self._encoded(row)  # a CSV file may be replaced by one with more columns here
        self._file.write(line)
        self.written += 1

    def _encoded(self, row: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def sync(self) -> None:
        """Make the rows added so far durable. Another thread may call this method."""
        try:
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"items {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Write the remaining rows; raise StoreError if the disk failed."""
        self.sync()
        self._file.close()


class JsonLinesItems(Items):
    """A file with one JSON object per line."""

    def _encoded(self, row: dict[str, Any]) -> bytes:
        return msgspec.json.encode(row) + b"\n"


class CsvItems(Items):
    """A CSV file.

    The first line of the file contains the keys of the items, and each further line is an item. Lists and
    mappings are written as JSON. An item with a new key adds a column: the file is rewritten, with an empty
    cell in each earlier row.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._columns = self._header()

    def _header(self) -> list[str]:
        self._file.seek(0)
        first = next(self._rows(self._file), b"").decode("utf-8-sig")
        return next(csv.reader(io.StringIO(first, newline="")), [])

    def _rows(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the complete rows; a row may contain line breaks within quotes."""
        row, within_quotes = [], False
        for line in lines:
            row.append(line)
            within_quotes ^= line.count(b'"') % 2 == 1
            if not within_quotes and line.endswith(b"\n"):
                yield b"".join(row)
                row = []

    def _encoded(self, row: dict[str, Any]) -> bytes:
        if new := [name for name in row if name not in self._columns]:
            self._widen(new)
        return csv_line(_cell(row.get(name)) for name in self._columns).encode()

    def _widen(self, new: Sequence[str]) -> None:
        """Add columns by replacing the whole file in one step."""
        self._file.flush()
        self._file.seek(0)
        rows = self._rows(self._file)
        next(rows, None)
        columns = [*self._columns, *new]
        with new_file(self.path) as made:
            made.write(csv_line(columns).encode())
            for row in rows:
                made.write(row.removesuffix(b"\n").removesuffix(b"\r") + b"," * len(new) + b"\n")
        self._file.close()
        self._open()
        self._columns = columns


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return value
