"""Writes items to a Parquet file at the end of the crawl.

During the crawl, the items are written to the file `NAME.rows`, one JSON object per line, where NAME is the
name of the Parquet file. A column of a Parquet file has one type. If a column contains both integers and
floating-point numbers, its integers become floating-point numbers. If a column contains mappings, each
mapping gets all keys that occur in the column; a missing value becomes null. If the types in a column have
nothing in common, the column becomes text: values that are text are kept, and other values are written as
JSON. For such a column, a warning names the column and the first row of each type.

    items ──► NAME.rows ──► types of the columns (first reading) ──► NAME (second) ──► NAME.rows is deleted

If the Parquet file cannot be written, `NAME.rows` is kept, and the error message names it. The next run with
the same Parquet file adds its items to `NAME.rows`. This file can also be read as JSONL.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.api.items import JsonLinesItems
from crawler.errors import StoreError, UsageError, reason_of
from crawler.storage.files import new_file
from crawler.wording import to_install

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("crawler")

# number of rows that are in memory at a time; each row group of the file has this many rows
ROWS_TOGETHER = 10_000


class ParquetItems(JsonLinesItems):
    """The items file NAME.parquet. Until it is written, the rows are in NAME.parquet.rows."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow  # noqa: F401  # needed only at the end
        except ImportError:
            raise UsageError(f"items {path}: Parquet needs pyarrow: {to_install('export')}") from None
        self._parquet = path
        rows = path.with_name(path.name + ".rows")
        continued = path.exists() and not rows.exists()
        super().__init__(rows)
        if continued:
            self._restore()

    def _restore(self) -> None:
        """Copy the rows of an existing Parquet file to NAME.rows. They do not count as written."""
        import pyarrow
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(self._parquet) as file:
                for batch in file.iter_batches(ROWS_TOGETHER):
                    for row in batch.to_pylist():
                        self.add(row)
        except (pyarrow.ArrowException, OSError) as error:
            super().close()
            self.path.unlink()
            raise UsageError(
                f"items {self._parquet}: not a Parquet file that items can be added to: {reason_of(error)}"
            ) from None
        self.written = 0

    def close(self) -> None:
        """Write the Parquet file and delete the rows; keep them and raise StoreError if the file cannot be written."""
        import pyarrow

        super().close()
        try:
            self._write()
        except (pyarrow.ArrowException, StoreError, OSError) as error:
            said = " ".join(str(error).split())
            raise StoreError(
                f"items {self._parquet}: cannot be written: {said}; the items are kept in {self.path} (JSONL)"
            ) from None
        self.path.unlink()

    def _write(self) -> None:
        import pyarrow.parquet

        columns = ItemColumns()
        for rows in self._read():
            columns.see(rows)
        if not columns.names:
            return
        for said in columns.mixed():
            log.warning("items %s: %s", self._parquet, said)
        schema = columns.schema()
        with new_file(self._parquet) as made, pyarrow.parquet.ParquetWriter(made, schema) as writer:
            for rows in self._read():
                writer.write_table(columns.table(rows))

    def _read(self) -> Iterator[tuple[dict[str, Any], ...]]:
        with self.path.open("rb") as file:
            rows = map(msgspec.json.decode, file)
            while batch := tuple(islice(rows, ROWS_TOGETHER)):
                yield batch


class ItemColumns:
    """The names and types of the columns of all rows seen. The type None means that a column is written as text."""

    def __init__(self) -> None:
        self._types: dict[str, pyarrow.DataType | None] = {}
        # column -> type of a value -> number of the first row with a value of this type
        self._first: dict[str, dict[str, int]] = {}
        self._rows = 0

    @property
    def names(self) -> list[str]:
        """Return the names of the columns in the order in which they first appeared."""
        return list(self._types)

    def see(self, rows: Iterable[dict[str, Any]]) -> None:
        """Widen the types of the columns so that they can hold the values of these rows."""
        import pyarrow

        values: dict[str, list[Any]] = {}
        for row in rows:
            self._rows += 1
            for name, value in row.items():
                values.setdefault(name, []).append(value)
                if value is not None:
                    self._first.setdefault(name, {}).setdefault(type(value).__name__, self._rows)
        for name, column in values.items():
            self._types[name] = _wider(self._types.get(name, pyarrow.null()), column)

    def mixed(self) -> Iterator[str]:
        """Yield a sentence about each column that becomes text."""
        for name, kind in self._types.items():
            if kind is None:
                first = ", ".join(f"{kind} in row {row}" for kind, row in self._first[name].items())
                yield f"the values of column {name!r} have no common type ({first}), so it is written as text"

    def schema(self) -> "pyarrow.Schema":
        """Return the schema of the file."""
        import pyarrow

        texts = self._texts()
        columns = self._types.items()
        return pyarrow.schema([(name, pyarrow.string() if name in texts else kind) for name, kind in columns])

    def _texts(self) -> set[str]:
        return {name for name, kind in self._types.items() if kind is None or _has_empty_mapping(kind)}

    def table(self, rows: Iterable[dict[str, Any]]) -> "pyarrow.Table":
        """Return the rows as a table with the schema of the file."""
        import pyarrow

        texts = self._texts()
        plain = [
            {name: _as_text(value) if name in texts else value for name, value in row.items()} for row in rows
        ]
        return pyarrow.Table.from_pylist(plain, schema=self.schema())


def _wider(kind: "pyarrow.DataType | None", values: list[Any]) -> "pyarrow.DataType | None":
    """Return a type that can hold both these values and those of type `kind`; None if only text can hold them all."""
    import pyarrow

    if kind is None:
        return None
    try:
        own = pyarrow.array(values).type
        both = [pyarrow.schema([("", each)]) for each in (kind, own)]
        return pyarrow.unify_schemas(both, promote_options="permissive").field(0).type
    except (pyarrow.ArrowException, OverflowError):
        return None


def _has_empty_mapping(kind: "pyarrow.DataType") -> bool:
    """Return whether a type contains a mapping without keys, which Parquet cannot store."""
    import pyarrow

    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return (pyarrow.types.is_struct(kind) and not inner) or any(map(_has_empty_mapping, inner))


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
