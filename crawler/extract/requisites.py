"""Finds page requisites, and the URLs in rarer attributes.

Requisites are images (with every candidate of a srcset), scripts, style sheets, icons, media, embedded
objects, frames, and the URLs in the CSS of the page itself. `css.py` reads the URLs in style sheets.
`other_links` implements the setting `all_attributes`. It reads every attribute that holds a URL, except in
forms that are not sent by GET, because their URLs must not be fetched.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.extract.css import css_urls
from crawler.extract.link_attributes import LINK_ATTRIBUTES, REQUISITE_RELATIONS, Form, Kind, LinkAttribute

_NEEDED = (Kind.REQUISITE, Kind.FRAME)
_OTHER_ROWS = [
    row for row in LINK_ATTRIBUTES if row.kind is Kind.LINK and not (row.followed or row.by_relation)
]


def _selector(rows: Iterable[LinkAttribute]) -> str:
    """Return a selector for these rows.

    For an attribute with a colon, the selector names the elements of the row; for any other, it names the
    attribute.
    """
    found = {
        name for row in rows for name in (row.elements if ":" in row.attribute else [f"[{row.attribute}]"])
    }
    return ",".join(sorted(found))


_REQUISITE_SELECTOR = _selector(row for row in LINK_ATTRIBUTES if row.kind in _NEEDED) + ",style"
_OTHER_SELECTOR = _selector(_OTHER_ROWS)

_CANDIDATE = re.compile(r"[, \t\n\f\r]*+([^ \t\n\f\r]++)")
_DESCRIPTORS = re.compile(r"(?:[^,(]|\([^)]*+\)?)*+,?")


def requisites(tree: LexborHTMLParser, count_max: int) -> list[str]:
    """Return the raw URLs of the page's requisites, unique, in order of appearance, at most `count_max`."""
    return _first(_all_requisites(tree), count_max)


def other_links(tree: LexborHTMLParser, count_max: int) -> list[str]:
    """Return the raw URLs of all attributes that hold URLs but are not followed by default."""
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
        method = attributes.get("formmethod") or _form_method(node)
        asked = method.lower() == "get"
        for row in _OTHER_ROWS:
            if (asked or not row.of_form) and (not row.elements or (node.tag or "").lower() in row.elements):
                yield attributes.get(row.attribute)


def _form_method(node: LexborNode) -> str:
    """Return the method of the form to which a node belongs; "get" if there is none."""
    form: LexborNode | None = node
    while form is not None and form.tag != "form":
        form = form.parent
    return form.attributes.get("method") or "get" if form is not None else "get"


def _all_requisites(tree: LexborHTMLParser) -> Iterator[str | None]:
    for node in tree.css(_REQUISITE_SELECTOR):
        tag = (node.tag or "").lower()
        attributes = node.attributes
        for attribute, form in _needed_by(tag):
            if value := attributes.get(attribute):
                yield from _READERS[form](value)
        if tag == "style":
            yield from css_urls(node.text())
        elif tag == "link":
            yield _link_requisite(attributes)


@lru_cache(maxsize=256)
def _needed_by(tag: str) -> tuple[tuple[str, Form], ...]:
    """Return the attributes of an element that hold requisites, each with the syntax of its value."""
    rows = [row for row in LINK_ATTRIBUTES if row.kind in _NEEDED]
    return tuple((row.attribute, row.form) for row in rows if not row.elements or tag in row.elements)


def _link_requisite(attributes: dict[str, str | None]) -> str | None:
    relations = (attributes.get("rel") or "").lower().split()
    return None if REQUISITE_RELATIONS.isdisjoint(relations) else attributes.get("href")


def srcset(value: str | None) -> Iterator[str]:
    """Yield the URLs of a srcset attribute (WHATWG HTML, 4.8.4.3.10)."""
    for start, end in srcset_spans(value or ""):
        yield value[start:end] if value else ""


def srcset_spans(value: str) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each URL in a srcset attribute."""
    at = 0
    while match := _CANDIDATE.match(value, at):
        start, at = match.span(1)
        end = at
        while value[end - 1] == ",":  # the loop ends, because a URL does not begin with a comma
            end -= 1
        yield start, end
        if end == at:
            descriptors = _DESCRIPTORS.match(value, at)
            at = descriptors.end() if descriptors else at


_READERS: dict[Form, Callable[[str], Iterable[str]]] = {
    Form.URL: lambda value: (value,),
    Form.CANDIDATES: srcset,
    Form.CSS: css_urls,
}
