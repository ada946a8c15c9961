"""The dashboard's page about what sites allow: the number of stored pages by host, use and the site's permission."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from crawler.consent.statements import USES
from crawler.consent.summary import ANSWERS, total
from crawler.wording import several

HOSTS_SHOWN = 200  # maximum number of rows that the page shows; /consent?format=json has all rows


def page(rows: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> bytes:
    """Return an HTML document; `missing` are the processes whose hosts are not in the document."""
    heads = "".join(f"<th scope=colgroup colspan=3>{_name(use)}</th>" for use in USES)
    answers = "".join(f"<th scope=col>{escape(answer)}</th>" for _ in USES for answer in ANSWERS)
    shown = [total(rows), *rows[:HOSTS_SHOWN]] if rows else []
    body = "".join(map(_row, shown)) or "<tr><td>no page is stored yet</td></tr>"
    notes = [f"The first {HOSTS_SHOWN} of {len(rows):,} hosts."] if len(rows) > HOSTS_SHOWN else []
    if missing:
        notes.append(f"Without the hosts of {escape(', '.join(missing))}, which did not answer.")
    if without := sum(row["without_receipt"] for row in rows):
        notes.append(
            f"{several(without, 'page', 'have')} no receipt, because an earlier version fetched them."
        )
    return f"""<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>What sites allow</title><link rel=stylesheet href=/static/dashboard.css></head>
<body class=text><main><h1>What sites allow</h1>
<p>Stored pages by host: how many may be used for each purpose (y), may not (n), and say nothing (unknown), by the consent
receipts of their newest copies. {" ".join(notes)}</p>
<div class=scroll tabindex=0 role=group aria-label="Pages by host and use"><table>
<thead><tr><th scope=col rowspan=2>host</th><th scope=col rowspan=2>pages</th>{heads}</tr><tr>{answers}</tr></thead>
<tbody>{body}</tbody></table></div>
<p><a href="/consent?format=json">as JSON</a> <a href="/">dashboard</a></p>
</main></body></html>
""".encode()


def _row(row: Mapping[str, Any]) -> str:
    """Return a row of the table. On a phone, each cell shows its heading (`data-head`)."""
    cells = "".join(
        f'<td data-head="{_name(use)}: {escape(answer)}">{row[use][answer]:,}</td>'
        for use in USES
        for answer in ANSWERS
    )
    pages = f"<td data-head=pages>{row['pages']:,}</td>"
    return f"<tr><th scope=row>{escape(row['host'])}</th>{pages}{cells}</tr>"


def _name(use: str) -> str:
    return escape(use.replace("_", "-"))
