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
    found, has_template = scan_page(utf8, encoding, page, config)
    if has_template and (opened := open_shadow_roots(utf8)) is not utf8:
        found, _ = scan_page(opened, encoding, page, config)
    return found


def scan_page(
    utf8: bytes, encoding: str, page: Context, config: ExtractConfig, scanner: type[LinkScanner] = LinkScanner
) -> tuple[Extracted | None, bool]:
    """Return what the scanner finds (None if the page must be parsed), and whether the page has a template."""
    found, others = Collected(page), None
    if page.want_requisites or config.all_attributes:
        from crawler.extract.requisites import OtherUrls  # imported here, because few crawls want requisites

        others = OtherUrls(config.links_max, all_attributes=config.all_attributes)
    reading = scanner(utf8, found, config.links_max, others)
    if not reading.scan():
        return None, reading.has_template
    if others is not None:
        others.add_to(found, requisites=page.want_requisites)
    return found.extracted(encoding, one_line(reading.title_text()), config.links_max), reading.has_template
