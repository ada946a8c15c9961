"""Parses Content-Type fields in the same way as browsers, and decides which answers are pages.

A page is HTML. Its media type says so or, if the media type is unusable, its first bytes do (WHATWG MIME
Sniffing, section 7.1). All functions but `media_type` take a media type as `media_type` returns it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

XHTML, CSS, SVG = "application/xhtml+xml", "text/css", "image/svg+xml"
HTML_TYPES = frozenset(("text/html", XHTML))

# Types that say nothing about the body (WHATWG MIME Sniffing, section 7, step 1).
_UNUSABLE = frozenset({"", "unknown/unknown", "application/unknown", "*/*"})
_HTML_START = re.compile(
    rb"[\t\n\x0c\r ]*(?:<!--|<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body"
    rb"|br|p)[ >])",
    re.IGNORECASE,
)
_CACHED_BYTES_MAX = 128
_CHARSET = re.compile(rb"(?:^|;)[ \t]*charset[ \t]*=[ \t]*(?:\"([^\"]*)\"?|([^;]*))", re.IGNORECASE)


def media_type(values: Sequence[bytes]) -> tuple[str, str]:
    """Return (essence, charset) of the last usable Content-Type, in lower case. A missing part is "".

    Args:
        values: the values of all Content-Type fields of an answer, in order.
    """
    for value in reversed(values):
        found = _read(value) if len(value) > _CACHED_BYTES_MAX else _read_short(value)
        if found is not None:
            return found
    return "", ""


def is_html(kind: str) -> bool:
    """Return whether a body of this type is HTML."""
    return kind in HTML_TYPES


def is_usable(kind: str) -> bool:
    """Return whether the type says what the body is. If it does not, `sniff_html` decides."""
    return kind not in _UNUSABLE and "/" in kind


def is_page(kind: str, content: bytes) -> bool:
    """Return whether an answer is a page. Its type decides or, if the type is unusable, its first bytes."""
    return is_html(kind) or (not is_usable(kind) and sniff_html(content))


def may_be_page(kind: str) -> bool:
    """Return whether `is_page` can be true for a body of this type."""
    return is_html(kind) or not is_usable(kind)


def sniff_html(content: bytes) -> bool:
    """Return whether a body without a usable type begins like HTML."""
    return _HTML_START.match(content.removeprefix(b"\xef\xbb\xbf")) is not None


def _read(value: bytes) -> tuple[str, str] | None:
    """Return (essence, charset) of a Content-Type, or None if it is not usable."""
    essence, _, parameters = value.partition(b";")
    essence = essence.strip(b" \t").lower()
    kind, slash, subtype = essence.partition(b"/")
    if kind and slash and subtype and b" " not in essence and essence != b"*/*":
        return field_text(essence), _charset(parameters) if parameters else ""
    return None


_read_short = lru_cache(maxsize=256)(_read)  # most answers have one of a few values


def field_text(raw: bytes) -> str:
    """Return a field value as text, decoded as UTF-8 if it is valid UTF-8, and otherwise as latin-1."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _charset(parameters: bytes) -> str:
    match = _CHARSET.search(parameters)
    if match is None:
        return ""
    value = match[1] if match[1] is not None else match[2]
    return field_text(value.strip(b" \t'\"")).lower()
