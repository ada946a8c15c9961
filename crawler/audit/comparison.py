"""Compares an audit with the audit of an earlier crawl.

The comparison finds new, gone and changed pages, and new and repaired findings. The earlier crawl is given as
a crawl directory, or as a file that `report --format json` has written. A report file contains no pages, so
with a file only the findings are compared. Two findings are the same if they have the same check and the same
subject. Only listed findings can be compared, so both audits list up to `COMPARED_MAX` findings for each
check. A comparison needs about 200 bytes of memory per page.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import mmh3
import msgspec

from crawler.audit.check_table import CHECKS, Check, Severity
from crawler.audit.findings import Audit, Section
from crawler.audit.on_page import Finding

COMPARED_MAX = 100_000  # maximum number of compared findings per check
NEW, REPAIRED = "new_", "repaired_"

_PAGES = {
    "new_pages": Check("New pages", Severity.NOTICE, "Pages that the earlier crawl did not have.", ""),
    "gone_pages": Check("Gone pages", Severity.NOTICE, "Pages that only the earlier crawl had.", ""),
    "changed_pages": Check("Changed pages", Severity.NOTICE, "Pages whose bytes differ.", ""),
}


class ComparedPage(NamedTuple):
    """A page of a crawl, given by its URL and the digest of its content."""

    url: str
    digest: str


def row_of(name: str) -> Check:
    """Return the table row (title, severity, ...) of a check, or of a section of a comparison."""
    if name in CHECKS:
        return CHECKS[name]
    if name in _PAGES:
        return _PAGES[name]
    kind = NEW if name.startswith(NEW) else REPAIRED
    check = CHECKS[name.removeprefix(kind)]
    title = f"{check.title}, {'new' if kind == NEW else 'repaired'}"
    return check._replace(title=title, severity=check.severity if kind == NEW else Severity.NOTICE)


def compare_findings(audit: Audit, earlier: Audit) -> dict[str, Section]:
    """Return the sections of new and repaired findings of the checks that were made for both crawls."""
    sections = {}
    for name in CHECKS:
        if name in audit.not_made or name in earlier.not_made:
            continue
        ours, theirs = (each.sections.get(name, Section()).listed for each in (audit, earlier))
        for kind, some, others in ((NEW, ours, theirs), (REPAIRED, theirs, ours)):
            known = {finding.subject for finding in others}
            if found := [finding for finding in some if finding.subject not in known]:
                sections[kind + name] = Section(len(found), found)
    return sections


def compare_pages(pages: Iterable[ComparedPage], earlier: Iterable[ComparedPage]) -> dict[str, Section]:
    """Return the sections of pages that are new, gone or changed."""
    sections = {name: Section(listed=[]) for name in _PAGES}
    ours = {_key(page.url): _key(page.digest) for page in pages}
    met = set()
    for page in earlier:
        digest = ours.get(key := _key(page.url))
        met.add(key)
        if digest is None:
            _add(sections["gone_pages"], page.url)
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
    """Return the audit that a file written by `report --format json` contains.

    Raises:
        msgspec.MsgspecError: the file is not such a report.
    """
    return msgspec.json.decode(text, type=Audit)


def _add(section: Section, url: str) -> None:
    section.total += 1
    if len(section.listed) < COMPARED_MAX:
        section.listed.append(Finding(url))


def _key(text: str) -> int:
    return mmh3.hash64(text)[0]
