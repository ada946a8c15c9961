"""Files of pages and their parameters: CSV with a header, one page a line.

Columns: `page` (any name, such as a URL), `importance`, `change_rate` (changes
per unit of time), and optionally the signals, either as `recall` and
`false_rate` or as `recall` and `precision`; `labelled` (0 or 1) marks pages
with trusted signals. Lines that begin with # are comments.
"""

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from crawler.errors import UsageError
from crawler.freshness.params import Pages

ROWS_MAX = 20_000_000  # arrays of this size take 1.3 GB


class PagesFile(msgspec.Struct, frozen=True):
    """The contents: names (m,), parameters, and which pages are labelled (m,) bool."""

    names: list[str]
    pages: Pages
    labelled: np.ndarray


def read(path: Path) -> PagesFile:
    """Read a pages file.

    Raises:
        UsageError: it cannot be read, lacks a column, or a value is impossible; with the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _parse(path, file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"pages file {path}: {error}") from error


def _parse(path: Path, lines: Iterable[str]) -> PagesFile:
    reader = csv.DictReader(line for line in lines if not line.startswith("#"))
    missing = {"importance", "change_rate"} - set(reader.fieldnames or ())
    if missing:
        raise UsageError(f"pages file {path}: no column {', '.join(sorted(missing))}")
    names, rows = [], []
    for number, row in enumerate(reader, start=2):
        if number > ROWS_MAX:
            raise UsageError(f"pages file {path}: more than {ROWS_MAX} lines")
        try:
            rows.append(_numbers(row))
        except (TypeError, ValueError) as error:
            raise UsageError(f"pages file {path}, line {number}: {error}") from None
        names.append(row.get("page") or str(number - 1))
    if not rows:
        raise UsageError(f"pages file {path}: no pages")
    table = np.array(rows)
    return PagesFile(names, Pages(*table[:, :4].T), table[:, 4] > 0.0)


def _numbers(row: dict[str, str]) -> tuple[float, float, float, float, float]:
    """importance, change_rate, recall, false_rate, labelled of one line; ValueError if impossible."""
    importance, change_rate = _number(row, "importance"), _number(row, "change_rate")
    recall = _number(row, "recall", 1.0) if row.get("recall") else 0.0
    if row.get("precision") and recall > 0.0:
        precision = _number(row, "precision", 1.0)
        if precision == 0.0:
            raise ValueError("precision 0 with recall above 0")
        false_rate = recall * change_rate * (1.0 - precision) / precision
    else:
        false_rate = _number(row, "false_rate") if row.get("false_rate") else 0.0
    return importance, change_rate, recall, false_rate, float(row.get("labelled") or 0.0)


def _number(row: dict[str, str], column: str, most: float = math.inf) -> float:
    value = float(row[column])
    if not 0.0 <= value <= most or math.isinf(value):
        raise ValueError(f"{column} is {row[column]!r}")
    return value


def write_rows(
    path: Path, columns: list[str], rows: Iterable[Iterable[object]], comments: Iterator[str]
) -> None:
    """Write a CSV with comment lines before its header; UsageError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            file.writelines(f"# {comment}\n" for comment in comments)
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(value) for value in row] for row in rows)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _cell(value: object) -> object:
    """Numbers with ten digits: all that a simulation means, and the same on every machine."""
    return f"{value:.10g}" if isinstance(value, float | np.floating) else value
