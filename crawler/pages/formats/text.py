"""Extracts the readable text of a page.

If resiliparse is installed, it extracts the text. Otherwise, the text is the page without its tags. The
parser of resiliparse takes quadratic time for some inputs. So if a page is not `tame`, its tags are removed
by a plain scan, which takes linear time for any input. Checking a page with `is_tame` takes longer than
parsing the page. Callers that have a cheaper check (`crawler/export`) therefore try that check first.
"""

import html
import importlib.util
import re
from functools import cache
from typing import Any

from crawler.shadow_roots import open_shadow_roots

# Limits on pages, because the parser of resiliparse takes quadratic time for some pages.
PARSED_BYTES_MAX = 2 << 20
UNCLOSED_TAGS_MAX = 2_000
_TAG_BYTES_MAX = 64 << 10
_SKIPPED = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|template|noscript|textarea)\b.*?(?:</\1[^<>]*>|\Z)|</?[a-z!?/][^>]*(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(rb"</?[a-zA-Z][a-zA-Z0-9]*+")
_SLASH = ord("/")
# The heuristics are doubted if they find less than the first share of the text of the page, or less than the second
# share of the text of the marked element. They have then taken lists of the content for menus.
_MAIN_SHARE = 0.25
_MARKED_SHARE = 0.5
_MARKED_CHARACTERS_MIN = 200  # a marked element with less text may be a frame that a script fills
_LITTLE = 0.1  # without a marked element, main content that is less than this share of the text is discarded
_MARKS = ("article", "main, [role=main]")
# The heuristics of resiliparse discard every `<ul>` that has at most two elements between itself and the body.
_SHALLOW_LISTS = "body > ul, body > * > ul, body > * > * > ul"
_LISTS_MAX = 500  # number of shallow lists that are examined
_LINKED_SHARE = 0.5  # a list with more than this share of link text is a menu
_VOID = set(b"area base br col embed hr img input link meta source track wbr".split())
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
_LINES = re.compile(r" ?\n[ \n]*")


def text_of(utf8: bytes, *, tame: bool, main_content: bool = False) -> str:
    """Return the text of an HTML page.

    Args:
        utf8: the page.
        tame: whether the page may be parsed.
        main_content: leave out the text around the content, such as menus and footers.
    """
    return text_in(tree_of(utf8, tame=tame), utf8, main_content=main_content)


def tree_of(utf8: bytes, *, tame: bool) -> Any:
    """Return resiliparse's tree of a page, or None if the page may not be parsed or the library is not installed."""
    library = _library() if tame else None
    return library[0](open_shadow_roots(utf8), "utf-8") if library is not None else None


def text_in(tree: Any, utf8: bytes, *, main_content: bool = False) -> str:
    """Return the text of a page. `tree` is the result of `tree_of`, which may be None."""
    library = _library()
    if tree is None or library is None:
        return _scanned(open_shadow_roots(utf8).decode("utf-8", "replace"))
    whole: str = library[1](tree)
    return _main(library, tree, whole) if main_content else whole


def _main(library: tuple[Any, Any], tree: Any, whole: str) -> str:
    """Return the main content of a page whose whole text is `whole`.

    It is what resiliparse's heuristics find, with two exceptions. If the heuristics find little, as on tables of
    contents, and exactly one element is marked as main content, the result is the text of the element. Without
    such an element, the result is `whole` if the heuristics find less than `_LITTLE` of it.
    """
    _deepen_lists(tree)
    found: str = library[1](tree, main_content=True)
    if len(found) >= _MARKED_SHARE * len(whole):
        return found
    for selector in _MARKS:
        marked = tree.body.query_selector_all(selector) if tree.body is not None else []
        if len(marked) == 1:
            inside: str = library[1](marked[0].html)
            if len(inside) >= _MARKED_CHARACTERS_MIN:
                least = max(_MAIN_SHARE * len(whole), _MARKED_SHARE * len(inside))
                return found if len(found) >= least else inside
    return found if len(found) >= _LITTLE * len(whole) else whole


def _deepen_lists(tree: Any) -> None:
    """Wrap each shallow list that is not a menu in three more elements, so that the heuristics keep the list."""
    if tree.body is None:
        return
    lists = tree.body.query_selector_all(_SHALLOW_LISTS)
    for node in [lists.item(number) for number in range(min(len(lists), _LISTS_MAX))]:
        links = node.query_selector_all("a")
        linked = sum(len(links.item(number).text) for number in range(len(links)))
        if linked <= _LINKED_SHARE * len(node.text):
            for _ in range(3):
                outer = tree.create_element("div")
                node.parent.replace_child(outer, node)
                outer.append_child(node)


def is_tame(utf8: bytes) -> bool:
    """Return whether the size, tags and nesting of a page are small enough for a parser to take about linear time."""
    if len(utf8) > PARSED_BYTES_MAX or max(map(len, utf8.split(b"<"))) > _TAG_BYTES_MAX:
        return False
    tags = _TAG.findall(utf8)
    names = {tag: _nesting_name(tag) for tag in set(tags)}
    unclosed = dict.fromkeys(names.values(), 0)
    total = 0
    for tag in tags:
        if not (name := names[tag]):
            continue
        if tag[1] != _SLASH:
            unclosed[name] += 1
            total += 1
            if total > UNCLOSED_TAGS_MAX:
                return False
        elif unclosed[name]:
            unclosed[name] -= 1
            total -= 1
    return True


def _nesting_name(tag: bytes) -> bytes:
    """Return the name of the element in a tag that begins with `<` or `</`.

    Elements that never have content give an empty name.
    """
    name = tag.lstrip(b"</")
    return b"" if name.lower() in _VOID else name


def is_installed() -> bool:
    return importlib.util.find_spec("resiliparse") is not None


@cache
def _library() -> tuple[Any, Any] | None:
    """Return resiliparse's parser and text extraction, or None if resiliparse is not installed."""
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.html import HTMLTree
    except ImportError:
        return None
    return HTMLTree.parse_from_bytes, extract_plain_text


def _scanned(source: str) -> str:
    text = html.unescape(_SKIPPED.sub(" ", source))
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip()
