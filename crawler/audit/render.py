"""Renders an audit as text, JSON or CSV."""

from collections.abc import Mapping
from typing import Any

import msgspec

from crawler.audit.check_table import Check, Severity, word
from crawler.audit.comparison import row_of
from crawler.audit.findings import TO_DO, Audit, Section
from crawler.audit.on_page import Finding
from crawler.printable import csv_line, printable, printable_text
from crawler.wording import several, words

# The number of findings per section that the text report shows.
_TEXT_FINDINGS = {Severity.ERROR: 10, Severity.WARNING: 10, Severity.NOTICE: 3}
_TEXT_OTHERS = 3
_DEPTHS = 12  # depths of which the text and HTML reports count the pages one by one


def text(audit: Audit) -> str:
    """Return the audit as text: a summary that fills one or two screens."""
    lines = [headline(audit), ""]
    tables: dict[str, Mapping[Any, Any]] = {
        "status": audit.statuses,
        "depth": depths(audit),
        "answer": {name: f"{seconds:g} s" for name, seconds in audit.seconds.items()},
    }
    if audit.sitemap["listed"]:
        tables["sitemap"] = audit.sitemap
    if audit.external:
        tables["external"] = audit.external
    if audit.unfetched:
        tables["left"] = audit.unfetched
    for name, values in tables.items():
        shown = ", ".join(
            f"{words(str(key))} {n:,}" if isinstance(n, int) else f"{key} {n}" for key, n in values.items()
        )
        lines.append(f"{name + ':':<10}{shown or 'nothing'}")
    if audit.compared_with:
        found = (f"{row_of(name).title.lower()}: {each.total:,}" for name, each in audit.comparison.items())
        lines += ["", f"Since {printable(audit.compared_with)}: {'; '.join(found) or 'nothing has changed'}"]
    for name, section in (*audit.comparison.items(), *audit.sections.items()):
        lines += ["", *_section(row_of(name), section)]
    if not audit.sections:
        lines += ["", "No problems found."]
    if notes := limits(audit):
        lines += ["", *notes]
    return "\n".join(lines) + "\n"


def depths(audit: Audit) -> dict[str, int]:
    """Return the number of pages by depth. All depths after the first `_DEPTHS` are counted together."""
    rows = list(audit.depths.items())
    shown = {str(depth): count for depth, count in rows[:_DEPTHS]}
    if rest := rows[_DEPTHS:]:
        shown[f"{rest[0][0]} to {rest[-1][0]}"] = sum(count for _, count in rest)
    return shown


def headline(audit: Audit) -> str:
    """Return one sentence with the number of URLs, the hosts and the time."""
    hosts = len(audit.hosts)
    of = next(iter(audit.hosts), "no host") if hosts == 1 else several(hosts, "host")
    when = (
        f", fetched from {audit.started[:10]} {audit.started[11:16]} to {audit.ended[:10]} {audit.ended[11:16]} UTC"
        if audit.ended
        else ""
    )
    return f"{several(audit.urls, 'URL')} of {of}, {several(audit.pages, 'HTML page')}{when}"


def limits(audit: Audit) -> list[str]:
    """Return sentences that name the checks that were not made, and the pages that the checks left out."""
    notes = [f"Not checked, because {why}: {names}." for why, names in _by_reason(audit.not_made)]
    if 0 < audit.unstored < audit.pages:
        notes.append(
            f"Not checked, because they are not stored: the contents of {audit.unstored:,} "
            f"of {several(audit.pages, 'HTML page')}."
        )
    if audit.compared_with:
        notes += _unfinished(audit)
    only_earlier = {name: why for name, why in audit.not_compared.items() if name not in audit.not_made}
    notes += [
        f"Not compared, because in {printable(audit.compared_with)} {why}: {names}."
        for why, names in _by_reason(only_earlier)
    ]
    return notes


def _unfinished(audit: Audit) -> list[str]:
    """Return sentences that name the crawls that had not fetched all URLs when they were compared."""
    earlier, ours = audit.compared_left, audit.unfetched.get(TO_DO, 0)
    notes = []
    if earlier:
        notes.append(
            f"Some pages may only seem to be new: {printable(audit.compared_with)} left {several(earlier, 'URL')} to do."
        )
    if ours:
        notes.append(f"Some pages may only seem to be gone: this crawl left {several(ours, 'URL')} to do.")
    return notes


def _by_reason(checks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each reason with the names of its checks."""
    groups: dict[str, list[str]] = {}
    for name, why in checks.items():
        groups.setdefault(why, []).append(word(name))
    return [(why, ", ".join(names)) for why, names in groups.items()]


def _section(check: Check, section: Section) -> list[str]:
    shown = _TEXT_FINDINGS[check.severity]
    lines = [f"{check.title}: {section.total:,}", f"  {check.meaning}"]
    lines += [line for finding in section.listed[:shown] for line in _lines(finding, check.arrow)]
    if section.total > shown:
        lines.append(f"  ... {section.total - shown:,} more; all with --format html, csv or json")
    return lines


def _lines(finding: Finding, arrow: str) -> list[str]:
    value = f"   [{printable(finding.value)}]" if finding.value else ""
    lines = [f"  {printable(finding.subject)}{value}"]
    lines += [f"      {arrow} {printable(other)}" for other in finding.others[:_TEXT_OTHERS]]
    if finding.count > _TEXT_OTHERS:
        lines.append(f"      ... {finding.count:,} in all")
    return lines


def json(audit: Audit) -> str:
    """Return the audit as JSON, with all listed findings."""
    return printable_text(msgspec.json.format(msgspec.json.encode(audit), indent=1).decode()) + "\n"


def csv_table(audit: Audit) -> str:
    """Return a table with one line per finding and related URL: finding, subject, value, other."""
    lines = [csv_line(("finding", "subject", "value", "other"))]
    for name, section in (*audit.sections.items(), *audit.comparison.items()):
        for finding in section.listed:
            for other in finding.others or ("",):
                lines.append(csv_line(map(printable, (name, finding.subject, finding.value, other))))
    return "".join(lines)
