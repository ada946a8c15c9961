"""Renders an audit as one HTML page for light and dark mode and any screen width.

The page has no scripts and requests nothing.
"""

from collections.abc import Mapping
from html import escape

from crawler.audit.check_table import CHECKS, Severity
from crawler.audit.comparison import SETTINGS, row_of
from crawler.audit.findings import Audit, Section
from crawler.audit.on_page import Finding
from crawler.audit.render import depths, headline, limits
from crawler.wording import several, words

_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--raised:#f5f6f8;--ink:#1b1f24;--soft:#5b6470;--line:#dfe3e8;
--link:#0b57d0;--bad:#b3261e;--warn:#8a5300;--good:#1a7f37;--bar:#9db8e6}
@media(prefers-color-scheme:dark){:root{--ground:#14171b;--raised:#1d2126;--ink:#e6e9ee;--soft:#9aa4b1;--line:#30363d;
--link:#8ab4f8;--bad:#ff8a80;--warn:#f0b429;--good:#7ee2a0;--bar:#3f5f94}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1rem;margin:0 0 .6rem}
.soft{color:var(--soft)} p{margin:.25rem 0}
a{color:var(--link);text-decoration:none} a:hover{text-decoration:underline}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.6rem;margin:1.25rem 0}
.tile{display:block;
background:var(--raised);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem;color:inherit}
.tile b{display:block;font-size:1.45rem;line-height:1.2;font-variant-numeric:tabular-nums}
.bad b{color:var(--bad)} .warn b{color:var(--warn)} .good b{color:var(--good)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:1rem 2rem;margin:1.5rem 0}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:.2rem .6rem;align-items:center}
.bars i{display:block;height:.7rem;min-width:2px;background:var(--bar);border-radius:.2rem}
.bars span{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
details{border-top:1px solid var(--line)} details:last-of-type{border-bottom:1px solid var(--line)}
summary{cursor:pointer;padding:.7rem .2rem;display:flex;gap:.8rem;align-items:baseline}
summary::before{content:"+";color:var(--soft);width:1ch} details[open]>summary::before{content:"\\2013"}
summary b{flex:1} .count{font-variant-numeric:tabular-nums;font-weight:600}
.count.bad{color:var(--bad)} .count.warn{color:var(--warn)}
.body{padding:0 0 1rem 1.8ch}
table{border-collapse:collapse;width:100%;table-layout:fixed;margin-top:.5rem}
th{font-weight:600;text-align:left;color:var(--soft);font-size:.85rem}
th,td{padding:.35rem .8rem .35rem 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
.value{width:9rem} td .more{color:var(--soft);font-size:.85rem} td a{display:block}
@media(max-width:40rem){table,tbody,tr,td{display:block;width:auto}thead{display:none}td{border:0;padding:.1rem 0}
tr{border-bottom:1px solid var(--line);padding:.45rem 0;display:block}
td:nth-child(n+2){padding-left:1rem;font-size:.92rem}
td[data-name]::before{content:attr(data-name) ": ";color:var(--soft)}}
@media print{details>*{display:block}a{color:inherit}}
"""

_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTICE: "soft"}
_SUBJECTS = {"duplicate_titles": "title", "duplicate_descriptions": "description", SETTINGS: "setting"}


def page(audit: Audit) -> str:
    """Return the report as a complete HTML document."""
    title = f"Crawl report: {next(iter(audit.hosts), 'nothing')}"
    if len(audit.hosts) > 1:
        title += f" and {several(len(audit.hosts) - 1, 'more host')}"
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src 'unsafe-inline'\">",
        f"<meta name=referrer content=no-referrer><title>{escape(title)}</title><style>{_STYLE}</style></head>",
        f"<body><main><h1>{escape(title)}</h1><p class=soft>{escape(headline(audit))}</p>",
        _tiles(audit),
        _charts(audit),
        f"<h2>Since {escape(audit.compared_with)}</h2>" if audit.compared_with else "",
        *(_section(name, section) for name, section in audit.comparison.items()),
        "<h2>Findings</h2>" if audit.compared_with else "",
        *(_section(name, section) for name, section in audit.sections.items()),
        "" if audit.sections else "<p>No problems found.</p>",
        *(f"<p class=soft>{escape(note)}</p>" for note in limits(audit)),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _tiles(audit: Audit) -> str:
    tiles = [_tile(f"{audit.pages:,}", "HTML pages"), _tile(f"{audit.urls:,}", "URLs tried")]
    for name in ("dead_links", "redirect_chains", "duplicate_titles", "orphans", "robots_blocked"):
        section = audit.sections.get(name)
        total = section.total if section is not None else 0
        tone = _TONES[CHECKS[name].severity] if total else "good"
        tiles.append(_tile(f"{total:,}", CHECKS[name].title, tone, name if total else ""))
    if median := audit.seconds.get("median"):
        tiles.append(_tile(f"{median:g} s", "median answer"))
    return f"<div class=tiles>{''.join(tiles)}</div>"


def _tile(number: str, label: str, tone: str = "", target: str = "") -> str:
    element, link = ("a", f' href="#{target}"') if target else ("div", "")
    return f'<{element} class="tile {tone}"{link}><b>{number}</b>{escape(label)}</{element}>'


def _charts(audit: Audit) -> str:
    charts = [
        _bars("Status", audit.statuses),
        _bars("Hops from the start", depths(audit)),
        _bars("Types", dict(list(audit.types.items())[:8])),
    ]
    if audit.external:
        charts.append(_bars("External links", audit.external))
    if audit.sitemap["listed"]:
        charts.append(_bars("Sitemaps", audit.sitemap))
    return f"<div class=charts>{''.join(charts)}</div>"


def _bars(title: str, values: Mapping[str, int] | Mapping[int, int]) -> str:
    most = max(values.values(), default=0) or 1
    rows = "".join(
        f'<span>{escape(words(str(name)))}</span><i style="width:{100 * n / most:.1f}%"></i><span>{n:,}</span>'
        for name, n in values.items()
    )
    return f"<section><h2>{escape(title)}</h2><div class=bars>{rows}</div></section>"


def _section(name: str, section: Section) -> str:
    check = row_of(name)
    value, others, tone = check.value, check.others, _TONES[check.severity]
    subject = _SUBJECTS.get(name, "URL")
    heads = [f"<th>{subject}</th>"]
    heads += [f"<th class=value>{escape(value)}</th>"] if value else []
    heads += [f"<th>{escape(others)}</th>"] if others else []
    rows = "".join(_row(finding, value, others) for finding in section.listed)
    left = section.total - len(section.listed)
    opened = " open" if check.severity is Severity.ERROR else ""
    more = (
        f"<p class=soft>The first {len(section.listed):,}; {left:,} more are not listed.</p>" if left else ""
    )
    return (
        f'<details id="{name}"{opened}><summary><b>{escape(check.title)}</b>'
        f'<span class="count {tone}">{section.total:,}</span></summary><div class=body>'
        f"<p class=soft>{escape(check.meaning)} {escape(check.advice)}</p>{more}"
        f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _row(finding: Finding, value: str, others: str) -> str:
    cells = [f"<td>{_linked(finding.subject)}</td>"]
    if value:
        cells.append(f'<td data-name="{escape(value)}">{_linked(finding.value)}</td>')
    if others:
        left = finding.count - len(finding.others)
        more = f"<span class=more>and {left:,} more</span>" if left > 0 else ""
        named = "".join(map(_linked, finding.others))
        cells.append(f'<td data-name="{escape(others)}">{named}{more}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _linked(text: str) -> str:
    """Return the text as HTML: a URL becomes a link, and any other text is only escaped."""
    shown = escape(text)
    if not text.startswith(("http://", "https://")):
        return shown
    return f'<a href="{shown}" rel="noreferrer noopener nofollow">{shown}</a>'
