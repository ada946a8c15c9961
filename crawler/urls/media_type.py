"""Parses Content-Type fields in the same way as browsers, and names the media types of HTML."""

import re
from collections.abc import Sequence
from functools import lru_cache

XHTML = "application/xhtml+xml"
HTML_TYPES = frozenset(("text/html", XHTML))

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
