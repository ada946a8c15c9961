"""Finds the links of a page (`extract/README.md`, "Links") with selectolax (lexbor).

Lexbor builds its tree as the HTML standard requires, and only elements of this tree yield links. The contents
of comments, script, style, textarea and title yield no links. The contents of templates yield no links
either, because they are not in the searched tree. The contents of noscript are read as if scripting were off.
Shadow roots are part of the page (`shadow_roots.py`).

One selector visits every relevant element, in document order. Lexbor is fastest with selectors that name only
attributes. The selectors of `_ALL` take 59 us for a 45 kB page; with `iframe[src]` and `frame[src]` in place
of `[src]:not(img,script)`, they take 100 us. The `src` of images and scripts is left out, because it is not a
link. The kind of an element is read from its numeric tag id. The values of attributes are read one by one,
because lexbor's `attributes` builds a dict and costs twice as much.

The parser takes quadratic time for some inputs and holds the interpreter lock while it runs.
`parser_guard.py` decides which pages must not be parsed here; `worker.py` parses them
under a limit. Most pages are not parsed, because `link_scanner.py` finds the same links without a tree.
"""

import re

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from crawler.config import ExtractConfig
from crawler.extract.collected import Collected, Context, one_line
from crawler.extract.decode import to_utf8
from crawler.extract.link_attributes import FOLLOWED
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots
from crawler.urls.media_type import HTML_TYPES

ANCHOR_CHARACTERS_MAX = 250
TITLE_PREFIX_BYTES = 8 << 10  # bytes read first if only the title is wanted; they contain most titles

# Elements are not cloned into <selectedcontent>, which saves 3 % of the time.
_AS_WRITTEN = LexborDocumentOptions.WO_EVENTS.value
_ALL = "[href],[content],[src]:not(img,script)"
_FOLLOWED = '[href]:not([rel~="nofollow" i]),[content],[src]:not(img,script)'


def _tag_ids(*names: str) -> list[int]:
    document = LexborHTMLParser(b"")
    return [document.create_node(name).tag_id for name in names]


_A, _LINK, _META, _BASE, _TITLE = _tag_ids("a", "link", "meta", "base", "title")
_FOLLOWED_BY_ID = dict(zip(_tag_ids(*FOLLOWED), FOLLOWED.values(), strict=True))
_OTHERS = frozenset((*_FOLLOWED_BY_ID, _LINK, _META, _BASE)) - {_A}
# Elements that begin SVG and MathML, and elements inside which HTML begins again.
_FOREIGN = frozenset(["svg", "math"])
_INTEGRATION_POINTS = frozenset(["foreignObject", "desc", "title", "mi", "mo", "mn", "ms", "mtext"])
# maximum number of ancestors examined per <base>; if there are more, the <base> is ignored
_ANCESTORS_MAX = 100
# Self-closed elements of XML, such as `<script src="x"/>`. An HTML parser would search in vain for their end
# tag.
_SELF_CLOSED = re.compile(
    rb"<((script|style|title|textarea|iframe|noframes|noembed|noscript|xmp|a)(?=[\s/])[^<>]*)/>",
    re.IGNORECASE,
)


def extract_page(content: bytes, page: Context, config: ExtractConfig) -> Extracted:
    """Extract a page with the parser alone; use this only for pages that are known to be harmless.

    Raw URLs are returned as written, without their fragment, so two URLs that differ only in the fragment are
    one link. Links of the header field `Link` come first.
    """
    utf8, encoding = prepare(content, page)
    return parse(utf8, encoding, page, config)


def prepare(content: bytes, page: Context) -> tuple[bytes, str]:
    """Return the bytes for the parser, and the page's encoding. This takes linear time."""
    utf8, encoding = prepare_scan(content, page)
    return open_shadow_roots(utf8), encoding


def prepare_scan(content: bytes, page: Context) -> tuple[bytes, str]:
    """Like `prepare`, but return the bytes for `scanned`. In these bytes, shadow roots are not opened."""
    utf8, encoding = to_utf8(content, page.charset)
    return _SELF_CLOSED.sub(rb"<\1></\2>", utf8) if page.xhtml else utf8, encoding


def parse(utf8: bytes, encoding: str, page: Context, config: ExtractConfig) -> Extracted:
    """Extract a page that `prepare` has converted to UTF-8."""
    found = Collected(page)
    tree = LexborHTMLParser(utf8, options=_AS_WRITTEN)
    _take_elements(tree, found)
    if page.want_anchors:
        _take_anchors(tree, found)
    if page.want_requisites or config.all_attributes:
        from crawler.extract.requisites import OtherUrls  # imported here, because few crawls want requisites

        others = OtherUrls(config.links_max, all_attributes=config.all_attributes)
        others.take_tree(tree)
        others.add_to(found, requisites=page.want_requisites)
    extracted = found.extracted(encoding, _title(tree), config.links_max)
    if page.want_markup:
        # imported here, because only the audit wants the markup
        from crawler.extract.markup import read_markup

        extracted.markup = read_markup(tree, page)
    return extracted


def _take_elements(tree: LexborHTMLParser, found: Collected) -> None:
    """Visit every element that may hold a link or a directive. This is the hot loop of the extractor."""
    hrefs = found.hrefs
    anchor = _A
    for node in tree.css(_FOLLOWED if found.skips_nofollow else _ALL):
        tag = node.tag_id
        if tag == anchor:
            href = node.attrs.get("href")
            if href is not None:
                hrefs[href if "#" not in href else href[: href.index("#")]] = None
        elif tag in _OTHERS:
            _take_other(node, tag, found)


def _take_anchors(tree: LexborHTMLParser, found: Collected) -> None:
    """Add to each link the text of its first anchor that has text; replace each run of blanks by one space."""
    hrefs = found.hrefs
    for node in tree.css("a[href]"):
        href = (node.attrs.get("href") or "").partition("#")[0]
        if href in hrefs and not hrefs[href]:
            hrefs[href] = " ".join(node.text()[: 4 * ANCHOR_CHARACTERS_MAX].split())[:ANCHOR_CHARACTERS_MAX]


def _take_other(node: LexborNode, tag: int, found: Collected) -> None:
    attributes = node.attrs
    if tag == _LINK:
        found.take_link(attributes.get("rel"), attributes.get("href"), attributes.get("type"))
    elif tag == _META:
        found.take_meta(attributes.get("name"), attributes.get("http-equiv"), attributes.get("content"))
    elif tag == _BASE:
        if found.wants_base():
            found.take_base(attributes.get("href") if _is_html(node) else None)
    else:
        found.add(attributes.get(_FOLLOWED_BY_ID[tag]))


def _is_html(node: LexborNode) -> bool:
    """Return whether an element is HTML; SVG and MathML have elements of the same names (WHATWG HTML 13.2.6)."""
    above = node.parent
    for _ in range(_ANCESTORS_MAX):
        if above is None:
            return True
        if above.tag in _FOREIGN:
            return False
        if above.tag in _INTEGRATION_POINTS:
            return True
        if above.tag == "annotation-xml":
            return (above.attrs.get("encoding") or "").lower() in HTML_TYPES
        above = above.parent
    return False


def early_title(utf8: bytes) -> str | None:
    """Return the title that `parse` would find, given the first bytes of a page; None if these bytes are too few.

    Later bytes cannot add a title before the first title in the head. This title is complete if any content
    follows it.
    """
    tree = LexborHTMLParser(utf8[:TITLE_PREFIX_BYTES], options=_AS_WRITTEN)
    node = _title_node(tree)
    if node is None or len(utf8) > TITLE_PREFIX_BYTES and not _is_followed(node, tree):
        return None
    return one_line(node.text())


def _is_followed(node: LexborNode, tree: LexborHTMLParser) -> bool:
    return node.next is not None or (tree.body is not None and tree.body.first_child is not None)


def _title(tree: LexborHTMLParser) -> str:
    """Return at most 1,000 characters of the first title; replace each run of blanks by one space."""
    node = _title_node(tree)
    return "" if node is None else one_line(node.text())


def _title_node(tree: LexborHTMLParser) -> LexborNode | None:
    node = tree.head.first_child if tree.head is not None else None
    while node is not None and node.tag_id != _TITLE:
        node = node.next
    return node
