"""Files of pages and their parameters: CSV with a header, one page per line.

The columns are `importance` and `change_rate` (changes per unit of time). The name of a page is in the column
`page` or `url`; without a name, the page gets the number of its row. Two more columns may describe the signals:
`recall`, and either `false_rate` or `precision`. The column `labelled` (0 or 1) marks pages with trusted signals.
Lines that begin with # are comments.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from crawler.errors import UsageError, reason_of
from crawler.freshness.params import Pages
from crawler.input_files import lines_of

ROWS_MAX = 20_000_000  # maximum number of pages; arrays of this size take 1.3 GB
# maximum rate or importance; 1 / SIZE_MAX is the minimum, so the ratio of any two numbers is finite
SIZE_MAX = 1e30


class PagesFile(msgspec.Struct, frozen=True):
    """The contents of a pages file: for each page, its name, its parameters, and whether it is labelled."""

    names: list[str]
    pages: Pages
    labelled: np.ndarray


def read(path: Path) -> PagesFile:
    """Read a pages file.

    Raises:
        UsageError: the file cannot be read, lacks a column, or has an impossible value, whose line the message names.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _parse(path, lines_of(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"pages file {path}: {reason_of(error)}") from error


def _parse(path: Path, lines: Iterable[str]) -> PagesFile:
    place = [0]  # the number of the last line read, counted with the comments
    reader = csv.DictReader(_without_comments(lines, place))
    missing = {"importance", "change_rate"} - set(reader.fieldnames or ())
    if missing:
        raise UsageError(f"pages file {path}: missing column {', '.join(sorted(missing))}")
    given = list(reader.fieldnames or ())
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise UsageError(f"pages file {path}: duplicate column {', '.join(twice)}")
    names, rows = [], []
    for number, row in enumerate(reader, start=1):
        if number > ROWS_MAX:
            raise UsageError(f"pages file {path}: more than {ROWS_MAX} pages")
        try:
            rows.append(_numbers(row))
        except ValueError as error:
            raise UsageError(f"pages file {path}, line {place[0]}: {error}") from None
        names.append(row.get("page") or row.get("url") or str(number))
    if not rows:
        raise UsageError(f"pages file {path}: no pages")
    table = np.array(rows)
    if not table[:, 0].any():
        raise UsageError(f"pages file {path}: no page has an importance above 0")
    return PagesFile(names, Pages(*table[:, :4].T), table[:, 4] > 0.0)


def _without_comments(lines: Iterable[str], place: list[int]) -> Iterator[str]:
    """Yield the lines that do not begin with #. Store the number of the last line yielded in `place[0]`."""
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#"):
            place[0] = number
            yield line


def _numbers(row: dict[str, str]) -> tuple[float, float, float, float, float]:
    """Return (importance, change_rate, recall, false_rate, labelled) of a row.

    Raise ValueError for impossible values.
    """
    importance, change_rate = _number(row, "importance"), _number(row, "change_rate")
    recall = _number(row, "recall", 1.0) if row.get("recall") else 0.0
    if row.get("precision") and row.get("false_rate"):
        raise ValueError("precision and false_rate both say how often signals are false; give one of them")
    if row.get("precision") and not row.get("recall"):
        raise ValueError("precision needs recall")
    if row.get("precision") and recall > 0.0:
        precision = _number(row, "precision", 1.0)
        if precision == 0.0:
            raise ValueError("precision 0 with recall above 0")
        false_rate = recall * change_rate * (1.0 - precision) / precision
    else:
        false_rate = _number(row, "false_rate") if row.get("false_rate") else 0.0
    return importance, change_rate, recall, false_rate, _number(row, "labelled", 1.0, "0")


def _number(row: dict[str, str], column: str, most: float = SIZE_MAX, default: str = "") -> float:
    """Parse and return a number from 0 to `most`. Unless it is 0, it must be at least 1 / SIZE_MAX."""
    text = row.get(column) or default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} is {text[:40]!r}, expected a number") from None
    if value != 0.0 and not 1.0 / SIZE_MAX <= value <= most:
        raise ValueError(f"{column} is {text[:40]!r}, expected 0 to {most:g}")
    return value


def write_records(path: Path, kind: type[msgspec.Struct], rows: Iterable[object], *comments: str) -> None:
    """Write rows of the type `kind` as CSV, with a column for each field; see `write_rows`."""
    columns = kind.__struct_fields__
    write_rows(path, columns, ([getattr(row, name) for name in columns] for row in rows), *comments)


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]], *comments: str) -> None:
    """Write a CSV file with comment lines before its header. Raise UsageError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            file.writelines(f"# {comment}\n" for comment in comments)
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(
                [f"{value:.10g}" if value.__class__ is float else _cell(value) for value in row]
                for row in rows
            )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _cell(value: object) -> object:
    """Format floats with ten digits, so that all machines write the same text.

    Simulations are less precise than that.
    """
    return f"{value:.10g}" if isinstance(value, float | np.floating) else value
