"""Prints rows of measurements as an aligned table or as JSON."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def machine() -> dict[str, Any]:
    """Return the properties of the machine that affect the measurements."""
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}


def show(title: str, rows: Iterable[Row]) -> None:
    """Print the title and, below it, a table of the rows. All rows have the same keys."""
    lines = [dict(row) for row in rows]
    if not lines:
        return
    cells = [list(lines[0])] + [[_text(value) for value in line.values()] for line in lines]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join([first.strip().ljust(widths[0]), *others]))


def show_json(**parts: object) -> None:
    """Print all parts as one JSON object."""
    print(json.dumps({**parts, "machine": machine()}, indent=2))


def count_argument(text: str) -> int:
    """Parse a positive count, which may be written as 1e7."""
    value = int(float(text))
    if value < 1:
        raise ValueError(text)
    return value


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
