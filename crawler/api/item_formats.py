"""Opens an items file; the extension of its name selects the format."""

from collections.abc import Callable
from pathlib import Path

from crawler.api.items import CsvItems, Items, JsonLinesItems
from crawler.api.parquet_items import ParquetItems
from crawler.errors import UsageError


def check_items(path: Path) -> None:
    """Check that items can be written to the file at `path`. The check does not leave a new file behind.

    Raises:
        UsageError: the extension is unknown, or the file cannot be written.
    """
    is_new = not path.exists() and not path.with_name(path.name + ".rows").exists()
    open_items(path).close()
    if is_new:
        path.unlink(missing_ok=True)


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
