"""Builds the page for webmasters that shows the requests to a host (`/bot/ledger?format=html`)."""

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from crawler.wording import describe_outcome, several

_HEADS = ("when", "URL", "status", "outcome", "bytes", "gap")


def page(found: Mapping[str, Any]) -> bytes:
    """Return an HTML document. `found` is what `/bot/ledger` answers as JSON."""
    host = escape(found["host"])
    gap = f", at least {found['least_gap']:g} s apart" if found["least_gap"] is not None else ""
    said = f"{several(found['requests'], 'request')}{gap}." if found["rows"] else "No request is in the log."
    robots = "".join(
        f"<p>The robots.txt of {escape(each['of'])}: {escape(describe_outcome(each['outcome']))}.</p>"
        for each in found["robots"]
    )
    missing = f"<p>Without {escape(', '.join(found['missing']))}.</p>" if found["missing"] else ""
    rows = "".join(map(_row, reversed(found["rows"])))
    heads = "".join(f"<th scope=col>{name}</th>" for name in _HEADS)
    table = f"""<div class=scroll tabindex=0 role=group aria-label="Requests, the latest first"><table>
<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"""
    return f"""<!doctype html>
<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>Requests to {host}</title><link rel=stylesheet href=/static/dashboard.css></head>
<body class=text><main><h1>Requests to {host}</h1>
<p>{said}</p>{robots}{missing}
{table if rows else ""}
<p><a href="/bot/ledger?host={quote(found["host"])}">as JSON</a> <a href="/bot">about the bot</a></p>
</main></body></html>
""".encode()


def _row(row: Mapping[str, Any]) -> str:
    gap = "" if row["gap"] is None else f"{row['gap']:.1f} s"
    cells = (
        row["ts"],
        row["url"],
        row["status"] or "",
        describe_outcome(row["outcome"]),
        f"{row['bytes'] or 0:,}",
        gap,
    )
    named = zip(_HEADS, cells, strict=True)
    # on a phone, each cell shows its heading
    return f"<tr>{''.join(f'<td data-head={head}>{escape(str(cell))}</td>' for head, cell in named)}</tr>"
