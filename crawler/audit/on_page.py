"""Checks each page by itself, and collects the facts from which the whole site is checked.

These functions depend only on their arguments.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from crawler.audit.check_table import DESCRIPTION_CHARACTERS, THIN_WORDS, TITLE_CHARACTERS
from crawler.audit.hreflang import is_code
from crawler.records import Extracted, Markup
from crawler.urls.page_urls import resolved

SOURCES_MAX = 20  # maximum number of related URLs that are listed per finding
SOFT_404_WORDS_MAX = 250  # a page with more words is not a soft 404, whatever its title says
# Phrases in the title or a main heading of pages that should have answered 404. The number alone is no such phrase:
# it may be a house, a model or a page.
_NOT_FOUND = re.compile(
    r"(?:^|[-–—|:·!.(]\s*|\b(?:error|http|code|status|oops|fehler|erreur|errore|erro|fout|fel|błąd|ошибка)\W*)404"
    r"(?:\s*$|\s*[-–—|:·!.,()]|\W+(?:error|not|page|seite|fehler)\b)"
    r"|\b(?:page|file|document|site) (?:was |could )?not (?:be )?found\b|^(?:not found|error)$"
    r"|no longer (?:exists|available)|(?:does not|doesn.t) exist|nicht gefunden|existiert nicht|introuvable"
    r"|n.existe pas|no encontrad[ao]|no existe|non trovat[ao]|n[ãa]o encontrad[ao]|niet gevonden"
    r"|hittades inte|nie znaleziono|не найден|見つかりません|找不到|未找到",
    re.IGNORECASE,
)  # fmt: skip


class Finding(msgspec.Struct, frozen=True):
    """One finding, which is a line of a section. `subject` is a URL (or a title), and `others` are related URLs.

    `count` is the number of all related URLs. `others` holds only the first few of these URLs.
    """

    subject: str
    value: str = ""
    others: tuple[str, ...] = ()
    count: int = 0


class PageFacts(msgspec.Struct):
    """The facts about a page that the checks of the whole site need, and the findings that concern only this page.

    `links` are the fingerprints (uint64) of the page's links to URLs in `Auditor.wanted`. `canonical` is the
    (fingerprint, URL) of the page's canonical link, if the page has only one and it leads to another page.
    `alternates` are the (fingerprint, URL) pairs of the page's translations. `refused` are the (fingerprint,
    URL) pairs of its links to ports that the crawler and browsers refuse.
    """

    fingerprint: int
    url: str
    title: str
    links: bytes = b""
    description: str = ""
    canonical: tuple[int, str] | None = None
    alternates: list[tuple[int, str]] = []
    refused: list[tuple[int, str]] = []
    findings: list[tuple[str, Finding]] = []


def facts(
    fingerprint: int, url: str, found: Extracted, links: bytes, identify: Callable[[str], int]
) -> PageFacts:
    """Return the facts of a page. `identify` returns the fingerprint of a URL."""
    page = PageFacts(fingerprint, url, found.title, links)
    page.findings = list(_of_extracted(url, found))
    markup = found.markup
    if markup is not None:
        page.description = next(iter(markup.descriptions), "")
        page.findings += _of_markup(url, found.title, markup)
        canonicals = {identify(each): each for each in resolved(found, markup.canonicals)}
        if len(canonicals) > 1:
            page.findings.append(("canonical_conflicts", _listed(url, list(canonicals.values()))))
        elif canonicals and fingerprint not in canonicals:
            page.canonical = next(iter(canonicals.items()))
        translations = resolved(found, [raw_url for _, raw_url in markup.alternates])
        page.alternates = [(identify(each), each) for each in translations]
    return page


def _of_extracted(url: str, found: Extracted) -> Iterator[tuple[str, Finding]]:
    if not found.title:
        yield "missing_titles", Finding(url)
    elif len(found.title) > TITLE_CHARACTERS:
        yield "long_titles", Finding(url, str(len(found.title)))
    if found.refresh:
        yield "meta_refreshes", Finding(url, next(iter(resolved(found, [found.refresh])), found.refresh))
    if url.startswith("https:"):
        insecure = [part for part in resolved(found, found.requisites) if part.startswith("http:")]
        if insecure:
            yield "mixed_content", _listed(url, insecure)


def _of_markup(url: str, title: str, markup: Markup) -> Iterator[tuple[str, Finding]]:
    description = next(iter(markup.descriptions), "")
    if not description:
        yield "missing_descriptions", Finding(url)
    elif len(description) > DESCRIPTION_CHARACTERS:
        yield "long_descriptions", Finding(url, str(len(description)))
    if not any(markup.headings):
        yield "missing_headings", Finding(url)
    elif len(markup.headings) > 1:
        yield "several_headings", _listed(url, markup.headings)
    if markup.unnamed_images:
        shown = tuple(src for src in markup.images if src)
        yield "missing_alts", Finding(url, str(markup.unnamed_images), shown, markup.unnamed_images)
    if 0 <= markup.words < THIN_WORDS:
        yield "thin_pages", Finding(url, str(markup.words))
    says = next((text for text in (title, *markup.headings) if _NOT_FOUND.search(text)), "")
    if says and markup.words <= SOFT_404_WORDS_MAX:
        yield "soft_404", Finding(url, says)
    for code in dict.fromkeys(code for code, _ in markup.alternates if not is_code(code)):
        yield "hreflang_codes", Finding(url, code or "empty")


def _listed(url: str, others: list[str]) -> Finding:
    return Finding(url, str(len(others)), tuple(others[:SOURCES_MAX]), len(others))
