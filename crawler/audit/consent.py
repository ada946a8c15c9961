"""`crawler report --consent` counts the stored pages by host and use, and by whether the site allows the use."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from crawler.consent.statements import USES
from crawler.consent.summary import ANSWERS, Row, Summary, total
from crawler.export.archives import Crawled, opened
from crawler.export.consent_columns import stored_uses
from crawler.printable import csv_line, printable
from crawler.urls.canonical import hostname
from crawler.wording import several

_HOST_WIDTH = 40


def summary(path: Path) -> list[Row]:
    """Return one row per host. Hosts with the most pages come first. The crawl may be running."""
    counted = Summary()
    with opened(path) as crawled:
        for number, archive in enumerate(crawled.archives):
            for url, uses in stored_uses(archive, partial(_owns, crawled, number)):
                counted.add(hostname(url), uses)
    return counted.rows()


def _owns(crawled: Crawled, number: int, fingerprint: int) -> bool:
    """Return whether the process at a position among the archives owns a URL, or no process among them does."""
    return crawled.owner(fingerprint) in (number, -1)


def text(rows: Sequence[Row], limit: int) -> str:
    """Return a table by host and use, with the numbers of pages that allow the use, refuse it or do not mention it."""
    if not rows:
        return "no page is stored yet\n"
    lines = [
        f"{'host':<{_HOST_WIDTH}} {'pages':>9}" + "".join(f" {use.replace('_', '-'):>21}" for use in USES)
    ]
    lines.append(f"{'':<{_HOST_WIDTH}} {'':>9}" + f" {'y / n / unknown':>21}" * len(USES))
    shown = [total(rows), *rows[:limit]] if len(rows) > 1 else rows[:limit]
    for row in shown:
        cells = (" / ".join(f"{row[use][answer]:,}" for answer in ANSWERS) for use in USES)
        host = printable(row["host"])[:_HOST_WIDTH]
        lines.append(f"{host:<{_HOST_WIDTH}} {row['pages']:>9,}" + "".join(f" {cell:>21}" for cell in cells))
    if len(rows) > limit:
        lines.append(f"{several(len(rows) - limit, 'more host')} (--limit)")
    if missing := sum(row["without_receipt"] for row in rows):
        lines.append(
            f"{several(missing, 'page', 'have')} no receipt, because an earlier version fetched them"
        )
    return "\n".join(lines) + "\n"


def json(rows: Sequence[Row], limit: int) -> str:
    """Return the rows and their sum as JSON."""
    tree = {"all": total(rows), "hosts": rows[:limit]}
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"


def csv_table(rows: Sequence[Row], limit: int) -> str:
    """Return one line per host, with one column for each combination of use and answer."""
    columns = [(use, answer) for use in USES for answer in ANSWERS]
    lines = [csv_line(["host", "pages", *(f"{use}_{answer}" for use, answer in columns), "without_receipt"])]
    for row in rows[:limit]:
        counts = (row[use][answer] for use, answer in columns)
        lines.append(csv_line([printable(row["host"]), row["pages"], *counts, row["without_receipt"]]))
    return "".join(lines)


FORMATS: dict[str, Callable[[Sequence[Row], int], str]] = {"text": text, "json": json, "csv": csv_table}
