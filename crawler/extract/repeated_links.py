"""Finds the links of a page, including repeated links, for URL traces (Broder, Najork, Wiener 2003, section 4.2).

`links.py` returns each link of a page once. A trace is used to measure URL caches. A trace must contain every
occurrence of a link, because the look-ups that a cache saves are those of repeated links.
"""

from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.link_attributes import FOLLOWED
from crawler.extract.links import prepare
from crawler.extract.parser_guard import Judgement, judge

TAGS = tuple(FOLLOWED)
_SELECTOR = ",".join(f"{element}[{attribute}]" for element, attribute in FOLLOWED.items())


def links_with_repeats(content: bytes, page: Context, config: ExtractConfig) -> list[str]:
    """Return the raw URLs of a page's links in document order, with repeats; [] if the guard suspects the page."""
    utf8, _ = prepare(content, page)
    if judge(utf8, config) is not Judgement.SAFE:
        return []
    found = []
    for node in LexborHTMLParser(utf8).css(_SELECTOR):
        if raw_url := node.attrs.get(FOLLOWED[node.tag or ""]):
            found.append(raw_url)
    return found
