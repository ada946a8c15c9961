"""Measure the CPU time of exports and of the report, and compare it with that of a bare loop over the same pages.

    python scripts/bench/export.py DIR

The bare loop only parses each page and extracts its text, in one process. No export with text can be cheaper.
The CPU time is the sum over all processes.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crawler.audit import collect
from crawler.bench import harness
from crawler.bench.meters import cpu_so_far
from crawler.export.archives import opened
from crawler.export.worker_pool import processes
from crawler.export.writing import Export, ExportRequest
from crawler.extract.decode import to_utf8
from crawler.extract.types import is_html
from crawler.pages.formats.selection import Selection, newest_pages
from crawler.pages.formats.text import text_of


def _bare(directory: Path) -> tuple[int, float]:
    """Parse all HTML pages and extract their text; return the number of pages and the CPU seconds."""
    with opened(directory) as crawled:
        stored = (page for _, page in newest_pages(crawled.archives, Selection()))
        html = (page for page in stored if is_html(page.capture.content_type))
        bodies = [to_utf8(page.content, page.header_charset)[0] for page in html]
    began = cpu_so_far()
    for body in bodies:
        text_of(body, tame=True)
    return len(bodies), cpu_so_far() - began


def _measure(
    table: harness.Table, name: str, run: Callable[[], object], pages: int, reference: float
) -> None:
    began, wall = cpu_so_far(), time.perf_counter()
    run()
    took = cpu_so_far() - began
    table.row(name, pages, took, took / reference, 1e3 * took / pages, time.perf_counter() - wall)


def main(directory: Path) -> None:
    """Print one line per format."""
    pages, reference = _bare(directory)
    table = harness.Table(f"{'':20}", "  pages", "CPU s", "ratio", "ms a page", "wall s")
    table.row("bare loop", pages, reference, 1.0, 1e3 * reference / pages, "")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cdxj", "links", "text", "jsonl", "parquet", "mirror", "wacz"):
            export = Export(ExportRequest(name, Path(folder) / name, processes=processes()))
            _measure(table, name, partial(export.run, directory), pages, reference)
        export = Export(
            ExportRequest("jsonl", Path(folder) / "main", main_content=True, processes=processes())
        )
        _measure(table, "jsonl --main-content", partial(export.run, directory), pages, reference)
    _measure(table, "report", lambda: collect.audit(directory, processes=processes()), pages, reference)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
