"""The parser of the options that all benchmarks share, and the printing of their tables, ratios and JSON."""

import argparse
import json
import os
import platform
import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from crawler.cli.parsing import OptionParser

Row = Mapping[str, Any]


def parser(description: str | None) -> OptionParser:
    """Return a parser whose help begins with `description`, the docstring of a script, and keeps its line breaks."""
    return OptionParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def machine() -> dict[str, Any]:
    """Return the properties of the machine that affect the measurements."""
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}


class Table:
    """A table that prints each row at once: the first column is aligned left, the others right.

    Args:
        columns: the names of the columns; spaces around a name make its column wider.
    """

    def __init__(self, *columns: str) -> None:
        self._widths = [len(column) for column in columns]
        print(*columns, sep="  ", flush=True)

    def row(self, *values: object) -> None:
        """Print a row. Numbers are printed with four significant digits; strings are printed as they are."""
        first, *others = map(_text, values)
        widths = self._widths[1:]
        cells = [each.rjust(width) for each, width in zip(others, widths, strict=True)]
        print(first.ljust(self._widths[0]), *cells, sep="  ", flush=True)


def show(title: str, rows: Iterable[Row]) -> None:
    """Print the title and, below it, a table of the rows. All rows have the same keys."""
    lines = [dict(row) for row in rows]
    if not lines:
        return
    cells = [[_text(value) for value in line.values()] for line in lines]
    first, *others = (max(map(len, column)) for column in zip(lines[0], *cells, strict=True))
    names = list(lines[0])
    print(f"\n{title}")
    table = Table(names[0].ljust(first), *map(str.rjust, names[1:], others))
    for row in cells:
        table.row(*row)


def show_json(**parts: object) -> None:
    """Print all parts as one JSON object."""
    print(json.dumps({**parts, "machine": machine()}, indent=2))


def spread(values: Collection[float], digits: int = 2) -> str:
    """Return the median, the minimum and the maximum of some numbers, such as the ratios of all rounds."""
    figures = (statistics.median(values), min(values), max(values))
    return "{} ({} to {})".format(*(f"{figure:.{digits}f}" for figure in figures))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
