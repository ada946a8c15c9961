"""The checks of `crawler report`: one row per check, with its severity, its meaning and the remedy.

The report, the HTML page, `--fail-on` and the table in `audit/README.md` are all made from these rows. The
name of a check never changes, because it is a key of the JSON report. `--fail-on` accepts the same names,
written with dashes.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from crawler.errors import UsageError

SLOW_SECONDS = 1.0  # in seconds; an answer that takes longer than this is slow
DEEP_HOPS = 4  # a page with at least this depth, in links from a seed, is deep
# In characters: the limits that site audits usually apply, because search engines cut longer texts.
TITLE_CHARACTERS = 60
DESCRIPTION_CHARACTERS = 155
THIN_WORDS = 200  # a page with fewer words than this (outside of navigation and footer) is thin


class Severity(StrEnum):
    """The severity of a finding. The option `--fail-on` accepts these values."""

    ERROR = "error"  # visitors or search engines cannot use the page
    WARNING = "warning"  # the site loses visitors, time or ranking
    NOTICE = "notice"  # the finding may be intended


class Source(StrEnum):
    """The data that a check reads. A check cannot be made if the crawl has not kept them."""

    RECORDS = "records"  # the records of all URLs, which every crawl keeps
    PAGES = "pages"  # the stored copies of pages and sitemaps
    EXTERNAL = "external"  # the answers to external links


class Check(NamedTuple):
    """A check of the report: one row of the table.

    `value` and `others` are the headings of two more columns that the findings may have. The heading "" means
    that there is no such column. `arrow` is printed before each entry of the column `others`.
    """

    title: str
    severity: Severity
    meaning: str
    advice: str
    value: str = ""
    others: str = ""
    arrow: str = "<-"
    source: Source = Source.RECORDS

    @property
    def of_page(self) -> bool:
        """Return whether a finding is about one page, which is its subject, and not about links to the subject."""
        return self in _OF_PAGES


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTICE
_PAGES, _EXTERNAL = Source.PAGES, Source.EXTERNAL

# The checks in the order of the report.
CHECKS = {
    "dead_links": Check(
        "Dead links", _E, "URLs that return no page, and the pages that link to them.",
        "Correct or remove the links, or restore the pages.", "answer", "linked from",
    ),
    "external_dead_links": Check(
        "Dead external links", _E, "URLs of other sites that return no page, and the pages that link to them.",
        "Correct or remove the links.", "answer", "linked from", source=_EXTERNAL,
    ),
    "redirect_loops": Check(
        "Redirect loops", _E, "Redirects that lead back to themselves.",
        "End the redirects at a page.", "", "path", "->",
    ),
    "soft_404": Check(
        "Soft 404", _E, "Pages that say that nothing was found, but answer 200.",
        "Answer 404 or 410.", "says", source=_PAGES,
    ),
    "mixed_content": Check(
        "Mixed content", _E, "https pages that load parts over http, which browsers block.",
        "Load these parts over https.", "parts", "loads", "->", source=_PAGES,
    ),
    "canonical_conflicts": Check(
        "Canonical conflicts", _E, "Pages that name several canonical URLs.",
        "Name one canonical URL, in the header or in the page.", "URLs", "names", "->", source=_PAGES,
    ),
    "canonical_targets": Check(
        "Canonicals that are not pages", _E, "Canonical URLs that redirect, are dead or may not be indexed.",
        "Name the URL of an indexable page that answers 200.", "target", "names", "->", source=_PAGES,
    ),
    "hreflang_codes": Check(
        "Bad hreflang codes", _E,
        "hreflang codes that are neither x-default nor a language (ISO 639-1) with optional script or region.",
        "Write the code as in en, en-GB or zh-Hant.", "code", source=_PAGES,
    ),
    "hreflang_targets": Check(
        "hreflang to a URL that is not a page", _E, "URLs of translations that redirect, are dead or may not be indexed.",
        "Name the URL of an indexable page that answers 200.", "target", "names", "->", source=_PAGES,
    ),
    "hreflang_returns": Check(
        "hreflang without return link", _E,
        "Pages whose translations do not link back, so that search engines ignore both links.",
        "Name each page in the hreflang links of its translations.", "translations", "names", "->", source=_PAGES,
    ),
    "sitemap_errors": Check(
        "Errors in sitemaps", _E, "URLs in a sitemap that are dead or may not be indexed.",
        "Remove these URLs from the sitemap.", "reason", source=_PAGES,
    ),
    "sitemap_redirects": Check(
        "Redirects in sitemaps", _W, "URLs in a sitemap that redirect.",
        "List the targets of the redirects instead.", "target", source=_PAGES,
    ),
    "redirect_chains": Check(
        "Redirect chains", _W, "URLs that reach their page through more than one redirect.",
        "Redirect directly to the last URL.", "hops", "path", "->",
    ),
    "redirected_links": Check(
        "Links to redirects", _W, "Redirecting URLs that pages link to.",
        "Link to the target of the redirect.", "target", "linked from", source=_PAGES,
    ),
    "meta_refreshes": Check(
        "Meta refresh", _W, "Pages that send visitors to another URL by a refresh in the page or its header.",
        "Answer with a redirect (301 or 302).", "target", source=_PAGES,
    ),
    "slow_pages": Check(
        "Slow pages", _W, f"Answers that took longer than {SLOW_SECONDS:g} s.",
        "Find out why the server is slow.", "seconds",
    ),
    "missing_titles": Check(
        "Missing titles", _W, "HTML pages without a title.",
        "Write a title.", source=_PAGES,
    ),
    "duplicate_titles": Check(
        "Duplicate titles", _W, "Titles that several pages share.",
        "Write a title for each page, or name one page canonical.", "pages", "pages", "=", source=_PAGES,
    ),
    "long_titles": Check(
        "Long titles", _N, f"Titles of more than {TITLE_CHARACTERS} characters, which search engines cut off.",
        "Shorten the titles.", "characters", source=_PAGES,
    ),
    "missing_descriptions": Check(
        "Missing descriptions", _N, "HTML pages without a meta description.",
        "Write a description.", source=_PAGES,
    ),
    "duplicate_descriptions": Check(
        "Duplicate descriptions", _W, "Meta descriptions that several pages share.",
        "Write a description for each page.", "pages", "pages", "=", source=_PAGES,
    ),
    "long_descriptions": Check(
        "Long descriptions", _N,
        f"Meta descriptions of more than {DESCRIPTION_CHARACTERS} characters, which search engines cut off.",
        "Shorten the descriptions.", "characters", source=_PAGES,
    ),
    "missing_headings": Check(
        "No h1", _W, "HTML pages without a main heading.",
        "Put the subject of the page into an h1 element.", source=_PAGES,
    ),
    "several_headings": Check(
        "Several h1", _N, "HTML pages with more than one main heading.",
        "Keep one h1 element, and turn the other h1 elements into h2.", "headings", "headings", "=", source=_PAGES,
    ),
    "missing_alts": Check(
        "Images without alt", _W, "Pages with images that have no alt attribute.",
        'Describe each image in alt; write alt="" for decoration.', "images", "shows", "->", source=_PAGES,
    ),
    "duplicate_contents": Check(
        "Duplicate contents", _W, "Pages with the same bytes under several URLs.",
        "Name one of the URLs canonical, or redirect the other URLs to it.", "pages", "pages", "=",
    ),
    "thin_pages": Check(
        "Thin pages", _N, f"Pages with fewer than {THIN_WORDS} words outside of navigation and footer.",
        "Add content, or merge short pages.", "words", source=_PAGES,
    ),
    "noindex_pages": Check(
        "noindex", _N, "Pages that a robots meta tag or the header field excludes from indexing.",
        "Check that the site intends this.", "", "found on",
    ),
    "robots_blocked": Check(
        "Blocked by robots.txt", _N, "URLs that the robots.txt of their host forbids.",
        "Check that the site intends this.", "", "found on",
    ),
    "orphans": Check(
        "Orphans", _W, "Pages that a sitemap lists but no crawled page links to.",
        "Link to these pages.", source=_PAGES,
    ),
    "not_in_sitemap": Check(
        "Not in a sitemap", _N, "Pages found through links but missing from every sitemap.",
        "List these pages in a sitemap.", "", "found on", source=_PAGES,
    ),
    "deep_pages": Check(
        "Deep pages", _N, f"Pages that are at least {DEEP_HOPS} links away from the start.",
        "Link to these pages from pages nearer to the start.", "hops", "found on",
    ),
}  # fmt: skip


_OF_PAGES = frozenset(
    CHECKS[name]
    for name in (
        "soft_404", "mixed_content", "canonical_conflicts", "hreflang_codes", "hreflang_returns", "meta_refreshes",
        "missing_titles", "long_titles", "missing_descriptions", "long_descriptions",
        "missing_headings", "several_headings", "missing_alts", "thin_pages", "orphans",
        "not_in_sitemap", "deep_pages",
    )
)  # fmt: skip


def word(name: str) -> str:
    """Return the word by which the option `--fail-on` selects a check."""
    return name.replace("_", "-")


def named(words: Iterable[str]) -> frozenset[str]:
    """Return the checks that are selected by the words of the option `--fail-on`; raise UsageError for other words.

    A severity selects all checks of this severity or a worse one.
    """
    levels = list(Severity)
    found: set[str] = set()
    for each in words:
        if each in levels:
            bad = levels[: levels.index(Severity(each)) + 1]
            found.update(name for name, check in CHECKS.items() if check.severity in bad)
        elif (name := each.replace("-", "_")) in CHECKS:
            found.add(name)
        else:
            known = ", ".join([*levels, *map(word, CHECKS)])
            raise UsageError(f"report: --fail-on {each}: no such check; there are {known}")
    return frozenset(found)


def page_table() -> str:
    """Return the table of checks in Markdown, as it is printed in `audit/README.md`."""
    lines = ["| check | severity | what the check finds | what to do |", "|---|---|---|---|"]
    lines += [
        f"| `{word(name)}` | {check.severity} | {check.meaning} | {check.advice} |"
        for name, check in CHECKS.items()
    ]
    return "\n".join(lines)
