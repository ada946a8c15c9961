"""Finds the parts of a page that are not HTML: SVG, MathML, and the contents of templates.

A `<base>` in a part that is not HTML does not set the page's base URL. The rewriter reads tags without a
tree, so it uses this module, which follows only the tags that begin and end the parts that are not HTML
(WHATWG HTML, 13.2.6.5):

    svg, math                    begin a foreign part
    foreignObject, desc, mi ...  integration points: HTML begins again within
    p, div, table ...            end a foreign part without an end tag
    template                     its contents are not in the document

This module is called only for pages that contain a `<base>` and also `<svg>`, `<math>` or `<template>`.
Finding the parts takes linear time for any input.
"""

import re
from bisect import bisect_right
from collections import Counter

MAY_CONTAIN = re.compile(rb"(?i)<(?:svg|math|template)[\t\n\f\r />]")
_FOREIGN = frozenset([b"svg", b"math"])
_POINTS = frozenset([b"foreignobject", b"desc", b"title", b"mi", b"mo", b"mn", b"ms", b"mtext"])
_ANNOTATION = b"annotation-xml"
_HTML_ANNOTATION = re.compile(
    rb"(?i)[\t\n\f\r /\"']encoding[\t\n\f\r ]*+=[\t\n\f\r ]*+[\"']?(?:text/html|application/xhtml\+xml)"
)
_BREAKS_OUT = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu "
    b"meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
_ENDS_BREAKING_OUT = frozenset([b"p", b"br"])
_FOLLOWED = b"|".join(sorted([*_FOREIGN, *_POINTS, *_BREAKS_OUT, _ANNOTATION, b"template"], reverse=True))
_ATTRIBUTES = rb"(?:[^>=]++|=[\t\n\f\r ]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+)*+"
_TAG = re.compile(
    rb"(?i)<!--(?:-?>|(?s:.*?)(?:--!?>|\Z))"
    rb"|<(?P<raw>script|style|textarea|xmp|iframe|noembed|noframes)(?=[\t\n\f\r />])"
    rb"(?:[^<]++|<(?!/(?P=raw)[\t\n\f\r />]))*+"
    rb"|<(?P<end>/?)(?P<name>%b)(?=[\t\n\f\r />])(?P<attributes>%b)"
    rb"|<[a-z]%b" % (_FOLLOWED, _ATTRIBUTES, _ATTRIBUTES)
)


class Foreign:
    """The parts of `content` that are not HTML."""

    def __init__(self, content: bytes) -> None:
        self._open: list[bytes] = []  # names of the open elements that begin or end foreign parts
        self._names: Counter[bytes] = Counter()
        # ascending positions: HTML ends at the first position, begins again at the second, ends at the third,
        # and so on
        self._changes: list[int] = []
        if MAY_CONTAIN.search(content):
            for match in _TAG.finditer(content):
                if match["name"]:
                    self._take(match)
                    if self._is_html() is bool(len(self._changes) % 2):
                        self._changes.append(match.end())

    def __contains__(self, position: int) -> bool:
        """Return whether a tag that begins at `position` is not HTML."""
        return bool(bisect_right(self._changes, position) % 2)

    def _is_html(self) -> bool:
        return not self._names[b"template"] and not self._in_foreign()

    def _in_foreign(self) -> bool:
        return bool(self._open) and self._open[-1] in _FOREIGN

    def _take(self, match: re.Match[bytes]) -> None:
        name = match["name"].lower()
        if match["end"] and name not in _ENDS_BREAKING_OUT:
            self._close(name)
        elif name in _BREAKS_OUT:
            while self._in_foreign():
                self._pop()
        elif self._begins_part(name, match["attributes"]):
            self._open.append(name)
            self._names[name] += 1

    def _begins_part(self, name: bytes, attributes: bytes) -> bool:
        if name == b"template":
            return True
        is_point = name in _POINTS or (name == _ANNOTATION and bool(_HTML_ANNOTATION.search(attributes)))
        return (name in _FOREIGN or (is_point and self._in_foreign())) and not attributes.endswith(b"/")

    def _close(self, name: bytes) -> None:
        while self._names[name] and self._pop() != name:
            pass

    def _pop(self) -> bytes:
        name = self._open.pop()
        self._names[name] -= 1
        return name
