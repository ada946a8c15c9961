"""Reads the markup that the audit checks in a page: description, headings, canonical and alternate links, images, words.

The markup is read from the same tree as the links (`links.py`), so each page is parsed once. All lists are
bounded. Words in scripts, navigation and footer are not counted. In Chinese, Japanese and Thai, two
characters count as about one word.
"""

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.extract.collected import Context, one_line
from crawler.extract.headers import link_headers
from crawler.records import Markup

_LISTED_MAX = 20  # maximum number of descriptions, headings, canonical links and images, each
_ALTERNATES_MAX = 500  # alternate links kept
_HEADING_CHARACTERS_MAX = 200
_SELECTOR = "meta[name],h1,link[rel],img:not([alt])"
_ASIDE = "script,style,noscript,template,nav,footer"
_ASIDE_MAX = 2000  # maximum number of elements of _ASIDE; if a page has more, its words are not counted
_ANCESTORS_MAX = 100  # maximum number of ancestors examined to find out whether an element is inside another
# Characters of writing systems that put no blanks between words.
_DENSE = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_DECORATION = ("presentation", "none")


def read_markup(tree: LexborHTMLParser, page: Context) -> Markup:
    """Return the page's markup; the time is linear in the size of the page."""
    found = Markup(words=count_words(tree))
    for raw_url, relations in link_headers(page.link_values):
        _add_canonical(found, raw_url, relations)
    for node in tree.css(_SELECTOR):
        _READERS[node.tag or ""](node, found)
    return found


def _take_meta(node: LexborNode, found: Markup) -> None:
    if (node.attrs.get("name") or "").strip().lower() == "description":
        text = one_line(node.attrs.get("content") or "")
        if text and len(found.descriptions) < _LISTED_MAX:
            found.descriptions.append(text)


def _take_heading(node: LexborNode, found: Markup) -> None:
    if len(found.headings) < _LISTED_MAX:
        found.headings.append(one_line(node.text())[:_HEADING_CHARACTERS_MAX])


def _take_link(node: LexborNode, found: Markup) -> None:
    relations = frozenset((node.attrs.get("rel") or "").lower().split())
    href = node.attrs.get("href")
    if not href:
        return
    _add_canonical(found, href, relations)
    code = node.attrs.get("hreflang")
    if code is not None and "alternate" in relations and len(found.alternates) < _ALTERNATES_MAX:
        found.alternates.append((code.strip(), href))


def _add_canonical(found: Markup, raw_url: str, relations: frozenset[str]) -> None:
    if "canonical" in relations and raw_url not in found.canonicals and len(found.canonicals) < _LISTED_MAX:
        found.canonicals.append(raw_url)


def _take_image(node: LexborNode, found: Markup) -> None:
    if node.attrs.get("role") in _DECORATION or node.attrs.get("aria-hidden") == "true":
        return
    found.unnamed_images += 1
    if len(found.images) < _LISTED_MAX:
        found.images.append(node.attrs.get("src") or "")


_READERS = {"meta": _take_meta, "h1": _take_heading, "link": _take_link, "img": _take_image}


def count_words(tree: LexborHTMLParser) -> int:
    """Return the number of words outside scripts, navigation and footer; -1 if there are too many of these elements."""
    if tree.body is None:
        return 0
    aside = tree.css(_ASIDE)
    if len(aside) > _ASIDE_MAX:
        return -1
    outermost = {node.mem_id: node for node in aside}
    inner = [name for name, node in outermost.items() if _is_inside(node, outermost)]
    for name in inner:
        del outermost[name]
    without = sum(_words(node.text(separator=" ")) for node in outermost.values() if node.parent is not None)
    return max(0, _words(tree.body.text(separator=" ")) - without)


def _is_inside(node: LexborNode, others: dict[int, LexborNode]) -> bool:
    """Return whether an element is inside one of `others` or the head. A deeply nested element counts as inside."""
    above = node.parent
    for _ in range(_ANCESTORS_MAX):
        if above is None:
            return False
        if above.mem_id in others or above.tag == "head":
            return True
        above = above.parent
    return True


def _words(text: str) -> int:
    words = len(text.split())
    if text.isascii():
        return words
    return words + len(_DENSE.findall(text)) // 2
