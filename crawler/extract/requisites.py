"""Page requisites, and the rarer attributes that hold URLs.

Requisites are images (with every candidate of a srcset), scripts, style
sheets, icons, media, embedded objects, frames, and the URLs of CSS in the page
itself (`css.py` reads those of style sheets). `other_links` serves the setting
`all_attributes`: every attribute that holds a URL, except of forms that are not sent
by GET, whose URLs must not be asked for.
"""

import re
from collections.abc import Iterable, Iterator

from selectolax.lexbor import LexborHTMLParser

from crawler.extract.css import css_urls

REQUISITE_RELATIONS = frozenset(
    {"stylesheet", "icon", "apple-touch-icon", "mask-icon", "preload", "modulepreload", "manifest"}
)
_SRC_TAGS = frozenset(
    {"img", "script", "source", "video", "audio", "track", "embed", "input", "image"} | {"iframe", "frame"}
)
_HREF_TAGS = frozenset({"image", "use", "feimage"})  # of SVG
_REQUISITE_SELECTOR = (
    "[src],[href],image,use,feimage,[srcset],[imagesrcset],[poster],object[data],[background],[style],style"
)
_OTHER_SELECTOR = "[cite],[longdesc],[action],[formaction]"

_CANDIDATE = re.compile(r"[, \t\n\f\r]*+([^ \t\n\f\r]++)")
_DESCRIPTORS = re.compile(r"(?:[^,(]|\([^)]*+\)?)*+,?")


def requisites(tree: LexborHTMLParser, count_max: int) -> list[str]:
    """Raw URLs of what the page needs, unique, in order of appearance, at most `count_max`."""
    return _first(_all_requisites(tree), count_max)


def other_links(tree: LexborHTMLParser, count_max: int) -> list[str]:
    """Raw URLs of every URL-bearing attribute that is not a link anyway."""
    return _first(_all_others(tree), count_max)


def _first(raw_urls: Iterable[str | None], count_max: int) -> list[str]:
    found: dict[str, None] = {}
    for raw_url in raw_urls:
        if raw_url and not raw_url.startswith("#"):
            found[raw_url.partition("#")[0]] = None
            if len(found) >= count_max:
                break
    return list(found)


def _all_others(tree: LexborHTMLParser) -> Iterator[str | None]:
    yield from _all_requisites(tree)
    for node in tree.css(_OTHER_SELECTOR):
        attributes = node.attributes
        yield attributes.get("cite")
        yield attributes.get("longdesc")
        if (attributes.get("method") or attributes.get("formmethod") or "get").lower() == "get":
            yield attributes.get("action")
            yield attributes.get("formaction")


def _all_requisites(tree: LexborHTMLParser) -> Iterator[str | None]:
    for node in tree.css(_REQUISITE_SELECTOR):
        tag = (node.tag or "").lower()
        attributes = node.attributes
        if tag in _SRC_TAGS:
            yield attributes.get("src")
        yield from srcset(attributes.get("srcset"))
        yield from srcset(attributes.get("imagesrcset"))
        yield attributes.get("poster")
        yield attributes.get("background")
        yield from css_urls(attributes.get("style"))
        if tag == "object":
            yield attributes.get("data")
        elif tag == "style":
            yield from css_urls(node.text())
        elif tag == "link":
            yield _link_requisite(attributes)
        elif tag in _HREF_TAGS:
            yield attributes.get("href")
            yield attributes.get("xlink:href")


def _link_requisite(attributes: dict[str, str | None]) -> str | None:
    relations = (attributes.get("rel") or "").lower().split()
    return None if REQUISITE_RELATIONS.isdisjoint(relations) else attributes.get("href")


def srcset(value: str | None) -> Iterator[str]:
    """The URLs of a srcset attribute (WHATWG HTML, 4.8.4.3.10)."""
    for start, end in srcset_spans(value or ""):
        yield value[start:end] if value else ""


def srcset_spans(value: str) -> Iterator[tuple[int, int]]:
    """Where the URLs of a srcset attribute begin and end."""
    at = 0
    while match := _CANDIDATE.match(value, at):
        start, at = match.span(1)
        end = at
        while value[end - 1] == ",":  # a candidate begins with something else
            end -= 1
        yield start, end
        if end == at:
            descriptors = _DESCRIPTORS.match(value, at)
            at = descriptors.end() if descriptors else at
