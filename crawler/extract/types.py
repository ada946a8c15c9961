"""Decides which bodies are read for links (`extract/README.md`, "Types and charset"; WHATWG MIME Sniffing, 7.1)."""

import re

from crawler.urls.media_type import HTML_TYPES, XHTML

# Types that say nothing about the body (WHATWG MIME Sniffing, section 7, step 1).
_UNUSABLE = frozenset({"", "unknown/unknown", "application/unknown", "*/*"})
_HTML_START = re.compile(
    rb"[\t\n\x0c\r ]*(?:<!--|<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body"
    rb"|br|p)[ >])",
    re.IGNORECASE,
)


def essence(content_type: str) -> str:
    """Return the type without parameters, in lower case: "text/html" for "Text/HTML; charset=x"."""
    return content_type.partition(";")[0].strip().lower()


def is_html(content_type: str) -> bool:
    """Return whether a body of this type is read for links."""
    return content_type == "text/html" or essence(content_type) in HTML_TYPES


def is_xhtml(content_type: str) -> bool:
    """Return whether `<script/>` and similar tags are complete elements in this type."""
    return content_type != "text/html" and essence(content_type) == XHTML


def is_css(content_type: str) -> bool:
    """Return whether a body of this type is a style sheet."""
    return essence(content_type) == "text/css"


def is_usable(content_type: str) -> bool:
    """Return whether the type says what the body is. If it does not, `sniff_html` decides."""
    kind = essence(content_type)
    return kind not in _UNUSABLE and "/" in kind


def is_page(content_type: str, content: bytes) -> bool:
    """Return whether a body is read as a page. Its type decides or, if the type is unusable, its first bytes."""
    return is_html(content_type) or (not is_usable(content_type) and sniff_html(content))


def may_be_page(content_type: str) -> bool:
    """Return whether `is_page` can be true for a body of this type."""
    return is_html(content_type) or not is_usable(content_type)


def sniff_html(content: bytes) -> bool:
    """Return whether a body without a usable type begins like HTML."""
    return _HTML_START.match(content.removeprefix(b"\xef\xbb\xbf")) is not None
