"""Compares an audit with the audit of an earlier crawl.

`audit/README.md`, "In CI", has the rules. A file that `report --format json` has written contains no pages, so
with a file only the findings are compared. Only listed findings can be compared, so both audits list up to
`COMPARED_MAX` findings for each check. A comparison needs about 200 bytes of memory per page.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import mmh3
import msgspec

from crawler.audit.check_table import CHECKS, Check, Severity
from crawler.audit.findings import Audit, Section
from crawler.audit.on_page import Finding
from crawler.config import Config
from crawler.config.credentials import redacted

COMPARED_MAX = 100_000  # maximum number of compared findings per check
NEW, REPAIRED, SETTINGS = "new_", "repaired_", "different_settings"

_PAGES = {
    "new_pages": Check("New pages", Severity.NOTICE, "Pages that the earlier crawl did not have.", ""),
    "gone_pages": Check(
        "Gone pages",
        Severity.NOTICE,
        "Pages that only the earlier crawl had, and what their URLs answer now.",
        "",
        "answer",
    ),
    "moved_pages": Check(
        "Moved pages",
        Severity.NOTICE,
        "Pages of the earlier crawl that now redirect, and their targets.",
        "",
        "target",
    ),
    "changed_pages": Check("Changed pages", Severity.NOTICE, "Pages whose bytes differ.", ""),
}
_SETTINGS = Check(
    "Different settings",
    Severity.NOTICE,
    "Settings in which the two crawls differ. They may cause differences that are none of the site.",
    "",
    "this crawl",
    "earlier crawl",
    "earlier:",
)

# Sections of which every setting counts, and single settings of other sections.
_SECTIONS = ("urls", "extract", "filter", "traps", "sitemaps", "robots", "render", "hooks")
_KEYS = {
    "crawl": (
        "scope",
        "surts",
        "depth",
        "pages_per_host",
        "pages_per_domain",
        "hosts_per_domain",
        "requisites",
        "check_external",
    ),
    "identity": ("token", "contact", "accept", "accept_language", "headers", "signature"),
    "frontier": ("tries",),
    "fetch": (
        "total_timeout",
        "body_bytes_max",
        "wire_bytes_max",
        "files",
        "file_bytes_max",
        "redirects_max",
        "cookies",
        "cookies_file",
        "tls",
        "proxy",
    ),
    "network": ("allow_networks", "allow_ports"),
    "pages": ("store",),
}
_LISTS = ("seeds", "override")


class ComparedPage(NamedTuple):
    """A page of a crawl, given by its URL and the digest of its content."""

    url: str
    digest: str


class PageFate(NamedTuple):
    """The target of the redirect of a URL that is not a page, or else its answer in words."""

    target: str
    answer: str = ""


NOT_FOUND = PageFate("", "no link to it was followed")


def row_of(name: str) -> Check:
    """Return the table row (title, severity, ...) of a check, or of a section of a comparison."""
    if name in CHECKS:
        return CHECKS[name]
    if name in _PAGES:
        return _PAGES[name]
    if name == SETTINGS:
        return _SETTINGS
    kind = NEW if name.startswith(NEW) else REPAIRED
    check = CHECKS[name.removeprefix(kind)]
    title = f"{check.title}, {'new' if kind == NEW else 'repaired'}"
    return check._replace(title=title, severity=check.severity if kind == NEW else Severity.NOTICE)


def compared_settings(config: Config) -> dict[str, str]:
    """Return the settings that decide which pages a crawl finds and what it receives, as JSON texts.

    Such texts are also saved in the JSON report. The values of credentials are hidden.
    """
    tree = msgspec.to_builtins(redacted(config), enc_hook=lambda kind: kind + 0)
    return {key: msgspec.json.encode(value).decode() for key, value in _values(tree)}


def _values(tree: dict[str, dict[str, object]]) -> Iterator[tuple[str, object]]:
    for name in _LISTS:
        yield name, tree[name]
    for section, values in tree.items():
        for key in values if section in _SECTIONS else _KEYS.get(section, ()):
            yield f"{section}.{key}", values[key]


def compare_settings(audit: Audit, earlier: Audit) -> dict[str, Section]:
    """Return the section of settings that differ. A report of an earlier version may contain no settings."""
    if not earlier.settings:
        return {}
    found = [
        Finding(key, ours, (theirs,), 1)
        for key in sorted(audit.settings.keys() & earlier.settings.keys())
        if (ours := audit.settings[key]) != (theirs := earlier.settings[key])
    ]
    return {SETTINGS: Section(len(found), found)} if found else {}


def compare_findings(audit: Audit, earlier: Audit, pages: Iterable[str]) -> dict[str, Section]:
    """Return the sections of new and repaired findings of the checks that were made for both crawls.

    `pages` are the URLs of the crawl's pages.
    """
    sections = {}
    present = {_key(url) for url in pages}
    for name in CHECKS:
        if name in audit.not_made or name in earlier.not_made:
            continue
        ours, theirs = (each.sections.get(name, Section()).listed for each in (audit, earlier))
        for kind, some, others in ((NEW, ours, theirs), (REPAIRED, theirs, ours)):
            known = {finding.subject for finding in others}
            found = [finding for finding in some if finding.subject not in known]
            if kind == REPAIRED and CHECKS[name].of_page:
                found = [finding for finding in found if _key(finding.subject) in present]
            if found:
                sections[kind + name] = Section(len(found), found)
    return sections


def compare_pages(
    pages: Iterable[ComparedPage], earlier: Iterable[ComparedPage], fates: Iterable[tuple[str, PageFate]] = ()
) -> dict[str, Section]:
    """Return the sections of new, gone, moved and changed pages. `fates` has those of URLs that are not pages."""
    sections = {name: Section(listed=[]) for name in _PAGES}
    ours = {_key(page.url): _key(page.digest) for page in pages}
    fate_of = {_key(url): fate for url, fate in fates}
    met = set()
    for page in earlier:
        digest = ours.get(key := _key(page.url))
        met.add(key)
        if digest is None:
            fate = fate_of.get(key, NOT_FOUND)
            if fate.target:
                _add(sections["moved_pages"], page.url, fate.target)
            else:
                _add(sections["gone_pages"], page.url, fate.answer)
        elif digest != _key(page.digest):
            _add(sections["changed_pages"], page.url)
    for page in pages:
        if _key(page.url) not in met:
            _add(sections["new_pages"], page.url)
    return {name: section for name, section in sections.items() if section.total}


def trim(audit: Audit, listed_max: int) -> None:
    """Keep at most `listed_max` findings of each section."""
    for section in (*audit.sections.values(), *audit.comparison.values()):
        del section.listed[listed_max:]


def failing(audit: Audit, checks: Iterable[str], new: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield (section, number of findings) for each section that makes a report fail.

    A check in `checks` fails if it has findings. A check in `new` fails if it has findings that the earlier
    crawl did not have.
    """
    for name in checks:
        if name in audit.sections:
            yield name, audit.sections[name].total
    for name in new:
        if NEW + name in audit.comparison:
            yield NEW + name, audit.comparison[NEW + name].total


def decode(text: bytes) -> Audit:
    """Return the audit in a file written by `report --format json`; raise MsgspecError for any other file."""
    return msgspec.json.decode(text, type=Audit)


def _add(section: Section, url: str, value: str = "") -> None:
    section.total += 1
    if len(section.listed) < COMPARED_MAX:
        section.listed.append(Finding(url, value))


def _key(text: str) -> int:
    return mmh3.hash64(text)[0]
