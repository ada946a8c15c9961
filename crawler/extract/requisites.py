"""Finds page requisites and, on demand, the URLs in all other attributes.

Requisites are images (with every candidate of a srcset), scripts, style sheets, icons, media, embedded
objects, frames, and the URLs in the CSS of the page itself. `css.py` reads the URLs in style sheets.
With the setting `all_attributes`, every attribute that holds a URL is read, except in forms that are not
sent by GET, because their URLs must not be fetched.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.extract.collected import Collected
from crawler.extract.css import css_urls
from crawler.extract.link_attributes import LINK_ATTRIBUTES, REQUISITE_RELATIONS, Form, Kind, LinkAttribute

_NEEDED = (Kind.REQUISITE, Kind.FRAME)
_OTHER_ROWS = [
    row for row in LINK_ATTRIBUTES if row.kind is Kind.LINK and not (row.followed or row.by_relation)
]


def _selector(rows: Iterable[LinkAttribute]) -> str:
    """Return a selector for these rows: names of attributes, or of elements if an attribute has a colon."""
    found = {
        name for row in rows for name in (row.elements if ":" in row.attribute else [f"[{row.attribute}]"])
    }
    return ",".join(sorted(found))


_REQUISITE_ROWS = [row for row in LINK_ATTRIBUTES if row.kind in _NEEDED]
_SELECTOR = _selector(_REQUISITE_ROWS) + ",style"
_ALL_SELECTOR = _selector(_REQUISITE_ROWS + _OTHER_ROWS) + ",style"
_OF_BUTTONS = frozenset(row.attribute for row in _OTHER_ROWS if row.of_form and "form" not in row.elements)


def _names(rows: Iterable[LinkAttribute], *more: str) -> dict[bytes, str]:
    return {name.encode(): name for name in [*(row.attribute for row in rows), *more]}


_WANTED = _names(_REQUISITE_ROWS, "rel")
_ALL_WANTED = _names(_REQUISITE_ROWS + _OTHER_ROWS, "rel", "method", "formmethod")

_CANDIDATE = re.compile(r"[, \t\n\f\r]*+([^ \t\n\f\r]++)")
_DESCRIPTORS = re.compile(r"(?:[^,(]|\([^)]*+\)?)*+,?")


class OtherUrls:
    """Collects the requisites of a page; with `all_attributes`, also the URLs in rarer attributes.

    The elements come from a tree (`take_tree`), or one by one from the scanner (`link_scanner.py`), in document
    order. `wanted` names the attributes that the scanner must read. At most `count_max` URLs of either kind are kept.
    """

    def __init__(self, count_max: int, *, all_attributes: bool) -> None:
        self._count_max = count_max
        self._all = all_attributes
        self._requisites: dict[str, None] = {}
        self._others: dict[str, None] = {}
        self.wanted = _ALL_WANTED if all_attributes else _WANTED

    def take(self, tag: str, attributes: Mapping[str, str | None], form_method: str = "") -> None:
        """Take an element, given its name in lower case.

        `form_method` is the method of the form around it. It matters only if `needs_tree` is true.
        """
        for attribute, form in _needed_by(tag):
            if value := attributes.get(attribute):
                self._add(self._requisites, _READERS[form](value))
        if tag == "link":
            self._add(self._requisites, (_link_requisite(attributes),))
        if self._all:
            method = attributes.get("formmethod") or form_method
            if tag == "form":
                method = method or attributes.get("method") or "get"
            self._add(self._others, _others_of(tag, attributes, method.lower() == "get"))

    def take_sheet(self, text: str) -> None:
        """Collect the URLs in the text of a `<style>` element."""
        self._add(self._requisites, css_urls(text))

    def take_tree(self, tree: LexborHTMLParser) -> None:
        """Collect the URLs of all elements of a page."""
        for node in tree.css(_ALL_SELECTOR if self._all else _SELECTOR):
            tag, attributes = (node.tag or "").lower(), node.attributes
            self.take(
                tag, attributes, _form_method(node) if self._all and self.needs_tree(attributes) else ""
            )
            if tag == "style":
                self.take_sheet(node.text())

    @staticmethod
    def needs_tree(attributes: Mapping[str, str | None]) -> bool:
        """Return whether only the tree can tell if the URLs are used: those of a button depend on its form."""
        return not _OF_BUTTONS.isdisjoint(attributes)

    def _add(self, found: dict[str, None], raw_urls: Iterable[str | None]) -> None:
        for raw_url in raw_urls:
            if raw_url and not raw_url.startswith("#") and len(found) < self._count_max:
                found[raw_url.partition("#")[0]] = None

    def add_to(self, found: Collected, *, requisites: bool) -> None:
        """Add the collected URLs to the links of the page, and, if `requisites` is set, to its requisites."""
        if requisites:
            found.requisites = list(self._requisites)
        if self._all:
            for raw_url in islice({**self._requisites, **self._others}, self._count_max):
                found.add(raw_url)


def _others_of(tag: str, attributes: Mapping[str, str | None], gets: bool) -> Iterator[str | None]:
    """Yield an element's links that count only with `all_attributes`. `gets` means that its form is sent by GET."""
    for row in _OTHER_ROWS:
        if (gets or not row.of_form) and (not row.elements or tag in row.elements):
            yield attributes.get(row.attribute)


def _form_method(node: LexborNode) -> str:
    """Return the method of the form to which a node belongs; "get" if there is none."""
    form: LexborNode | None = node
    while form is not None and form.tag != "form":
        form = form.parent
    return form.attributes.get("method") or "get" if form is not None else "get"


@lru_cache(maxsize=256)
def _needed_by(tag: str) -> tuple[tuple[str, Form], ...]:
    """Return the attributes of an element that hold requisites, each with the syntax of its value."""
    return tuple(
        (row.attribute, row.form) for row in _REQUISITE_ROWS if not row.elements or tag in row.elements
    )


def _link_requisite(attributes: Mapping[str, str | None]) -> str | None:
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
