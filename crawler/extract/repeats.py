"""Links as often as they stand on a page, for URL traces (Broder, Najork, Wiener 2003, section 4.2).

`links.py` makes the links of a page unique; a trace needs every mention, since
repeats on one page are a good part of what a URL cache answers.
"""

from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import prepare
from crawler.extract.parser_guard import Judgement, judge

TAGS = ("a", "area", "iframe", "frame")
_SELECTOR = "a[href],area[href],iframe[src],frame[src]"


def links_with_repeats(content: bytes, page: Context, config: ExtractConfig) -> list[str]:
    """The raw URLs of a page's links in document order, with repeats; [] for pages that the guard suspects."""
    utf8, _ = prepare(content, page)
    if judge(utf8, config) is not Judgement.SAFE:
        return []
    found = []
    for node in LexborHTMLParser(utf8).css(_SELECTOR):
        attributes = node.attrs
        raw_url = attributes.get("href") or attributes.get("src")
        if raw_url:
            found.append(raw_url)
    return found
