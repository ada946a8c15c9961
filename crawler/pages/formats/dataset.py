"""Writes rows as JSON lines or Parquet, to one stream or to files of about equal size.

A Parquet file holds row groups of about 32 MB, compressed with zstd. Times in a Parquet file are timestamps
in UTC. Files are named `part-00000.parquet` and so on. Readers such as pyarrow, DuckDB, Spark and `datasets`
read the folder as one table.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from crawler.errors import UsageError
from crawler.pages.formats.rows import FIELDS, INSTANTS
from crawler.storage.files import new_folder, refuse_occupied
from crawler.wording import to_install

_GROUP_BYTES = 32 << 20  # bytes of text in a row group
_GROUP_ROWS = 10_000

Row = Mapping[str, Any]
_encode = msgspec.json.Encoder().encode


class RowWriter(Protocol):
    """A writer of one file of rows."""

    def write(self, row: Row) -> None: ...

    def size(self) -> int:
        """Return the approximate size of the file so far, in bytes."""
        ...

    def finish(self) -> None:
        """Write the remaining rows. The file stays open."""
        ...


class JsonLines:
    """Writes the columns `fields` of rows as JSON lines."""

    def __init__(self, file: IO[bytes], fields: Sequence[str]) -> None:
        self._file = file
        self._fields = fields
        self._size = 0

    def write(self, row: Row) -> None:
        line = _encode({name: row[name] for name in self._fields}) + b"\n"
        self._size += len(line)
        self._file.write(line)

    def size(self) -> int:
        return self._size

    def finish(self) -> None:
        pass


class Parquet:
    """Writes the columns `fields` of rows as one Parquet file.

    Raises:
        UsageError: pyarrow is not installed.
    """

    def __init__(self, file: IO[bytes], fields: Sequence[str]) -> None:
        pyarrow, parquet = load_pyarrow()
        self._file = file
        self._schema = pyarrow.schema([(name, _arrow_type(pyarrow, name)) for name in fields])
        self._table = pyarrow.Table
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._waiting = 0

    def write(self, row: Row) -> None:
        self._rows.append({name: _arrow_value(name, row[name]) for name in self._schema.names})
        self._waiting += 200 + len(row["text"] or "") * ("text" in self._schema.names)
        if self._waiting >= _GROUP_BYTES or len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            try:
                self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
            except BaseException:
                # otherwise, the writer's destructor would write to the closed file and print a traceback
                self._writer.is_open = False
                raise
            self._rows, self._waiting = [], 0

    def size(self) -> int:
        # the file will grow by about a quarter of the buffered bytes
        return self._file.tell() + self._waiting // 4

    def finish(self) -> None:
        self._flush()
        self._writer.close()


def load_pyarrow() -> tuple[Any, Any]:
    """Return (pyarrow, pyarrow.parquet).

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"export: the format parquet needs pyarrow: {to_install('export')}") from None
    return pyarrow, parquet


def _arrow_type(pyarrow: Any, name: str) -> Any:
    if name in INSTANTS:
        return pyarrow.timestamp("ms", tz="UTC")
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    return kinds[FIELDS[name]]


def _arrow_value(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if value is not None and name in INSTANTS else value


MAKERS: dict[str, Callable[[IO[bytes], Sequence[str]], RowWriter]] = {"jsonl": JsonLines, "parquet": Parquet}


def write_rows(rows: Iterable[Row], form: str, file: IO[bytes], fields: Sequence[str]) -> int:
    """Write rows to one file; return the number of rows."""
    writer = MAKERS[form](file, fields)
    count = 0
    for row in rows:
        writer.write(row)
        count += 1
    writer.finish()
    return count


def write_parts(
    rows: Iterable[Row], form: str, folder: Path, fields: Sequence[str], *, part_bytes: int
) -> int:
    """Write rows to files of about `part_bytes` in a new or empty folder; return the number of rows.

    Raises:
        UsageError: the folder is not empty.
        StoreError: the disk failed.
    """
    refuse_occupied(folder)
    source, count = iter(rows), 0
    with new_folder(folder) as made:
        for number in itertools.count():
            first = next(source, None)
            if first is None:
                break
            with (made / f"part-{number:05d}.{form}").open("xb") as file:
                writer = MAKERS[form](file, fields)
                for row in itertools.chain([first], source):
                    writer.write(row)
                    count += 1
                    if writer.size() >= part_bytes:
                        break
                writer.finish()
    return count
