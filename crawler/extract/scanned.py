"""Extracts a page with `link_scanner.py`, without a tree. The result is the same as that of `links.parse`, or None."""

from crawler.config import ExtractConfig
from crawler.extract.collected import Collected, Context, one_line
from crawler.extract.link_scanner import COMPILED, LinkScanner
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots


def can_scan(page: Context) -> bool:
    """Return whether `scanned` may have a result for pages with this context.

    If the scanner is not compiled, every page must be parsed, because the interpreted scanner would be slower
    than the parser. Pages for which `Context.needs_tree` is true must also be parsed.
    """
    return COMPILED and not page.needs_tree


def scanned(utf8: bytes, encoding: str, page: Context, config: ExtractConfig) -> Extracted | None:
    """Extract a page as `links.parse` does, in a fifth of the time. Return None if the page must be parsed.

    Shadow roots are opened only if the page has templates; most pages have none.
    """
    if not can_scan(page):
        return None
    scan = PageScan(utf8, page, config)
    if scan.has_template and (opened := open_shadow_roots(utf8)) is not utf8:
        scan = PageScan(opened, page, config)
    return scan.extracted(encoding)


class PageScan:
    """The result of scanning one page."""

    def __init__(
        self, utf8: bytes, page: Context, config: ExtractConfig, scanner: type[LinkScanner] = LinkScanner
    ) -> None:
        self._links_max = config.links_max
        self._wants_requisites = page.want_requisites
        self._found = Collected(page)
        self._others = None
        if page.want_requisites or config.all_attributes:
            # imported here, because few crawls want requisites
            from crawler.extract.requisites import OtherUrls

            self._others = OtherUrls(config.links_max, all_attributes=config.all_attributes)
        self._scanner = scanner(utf8, self._found, config.links_max, self._others)
        self._is_whole = self._scanner.scan()
        self.has_template = self._scanner.has_template

    def extracted(self, encoding: str) -> Extracted | None:
        """Return what the scanner found; None if the page must be parsed."""
        if not self._is_whole:
            return None
        if self._others is not None:
            self._others.add_to(self._found, requisites=self._wants_requisites)
        return self._found.extracted(encoding, one_line(self._scanner.title_text()), self._links_max)
