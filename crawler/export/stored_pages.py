"""Reads stored pages again, in the same way as the crawl read them after their fetch.

Exports (for rows, links and titles), the report, the Python API and recovery all read pages with this module.
The rules (`extract/page_rules.py`) and the parser with its limits (`extract/parser_process.py`) are the same
as in the fetch loop, so all results agree with each other and with pages.jsonl.
"""

from crawler.config import Config
from crawler.extract.collected import Context
from crawler.extract.headers import link_headers
from crawler.extract.page_rules import PageRules
from crawler.extract.parser_process import ParserProcess
from crawler.pages.captures import StoredPage
from crawler.records import Extracted, LinkFlag
from crawler.urls.media_type import is_page
from crawler.urls.page_urls import resolved

_SITEMAP, _REQUISITE = LinkFlag.SITEMAP, LinkFlag.REQUISITE


class StoredPages:
    """Reads stored pages under the configuration of their crawl.

    Args:
        want_all: include requisites, and links that must not be followed (robots directives, `rel=nofollow`).
        want_markup: include the markup that the audit checks.
    """

    def __init__(self, config: Config, *, want_all: bool = False, want_markup: bool = False) -> None:
        self._rules = PageRules(config, want_all=want_all, want_markup=want_markup)
        self._parser = ParserProcess(config.extract)

    def read(self, page: StoredPage, flags: int = 0, *, careful: bool = False) -> Extracted | None:
        """Return the content of a stored page; None if the crawl would not parse it as a page.

        Args:
            flags: the LinkFlags of the page's URL.
            careful: True to parse nothing in this process.
        """
        content = page.content
        if not _is_read(page, flags, content):
            return None
        found = self._parser.extract(content, self._context(page), careful=careful)
        if flags & _REQUISITE:  # the answer belongs to a frame, whose links are not links of the page
            found.hrefs, found.refresh = [], ""
        return found

    def title(self, page: StoredPage, flags: int = 0, *, careful: bool = False) -> str:
        """Return the title of a stored page, as `read` finds it; "" if there is none."""
        content = page.content
        if not _is_read(page, flags, content):
            return ""
        return self._parser.title(content, self._context(page), careful=careful)

    def links(self, page: StoredPage, flags: int = 0, *, careful: bool = False) -> list[str]:
        """Return the canonical URLs to which a stored page links, in order and without duplicates."""
        found = self.read(page, flags, careful=careful)
        if found is None:
            return []
        raw_urls = [*found.hrefs, found.refresh] if found.refresh else found.hrefs
        return resolved(found, raw_urls)

    def header_links(self, page: StoredPage) -> list[tuple[str, frozenset[str]]]:
        """Return (raw URL, relation types in lower case) for each link in the `Link` header fields of a stored page."""
        return list(link_headers(self._context(page).link_values))

    def close(self) -> None:
        """End the child process of the parser."""
        self._parser.close()

    def _context(self, page: StoredPage) -> Context:
        return self._rules.context(
            page.capture.url, page.headers, page.capture.content_type, page.header_charset
        )


def _is_read(page: StoredPage, flags: int, content: bytes) -> bool:
    """Return whether the crawl would parse an answer as a page: it is HTML, and neither a sitemap nor an error."""
    return not flags & _SITEMAP and 200 <= page.status < 300 and is_page(page.capture.content_type, content)
