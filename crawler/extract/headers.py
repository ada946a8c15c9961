"""Reads the links in the header fields `Link` (RFC 8288) and `Refresh` (WHATWG HTML, 4.2.5.3)."""

import re
from collections.abc import Iterable, Iterator

_TARGET = re.compile(r"[\s,]*+<([^>]*+)>")
_PARAMETER = re.compile(
    r"""\s*+;\s*+([!#$%&'*+\-.^_`|~0-9A-Za-z]++)\s*+(?:=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,;"]*+)))?+"""
)
_EMPTY_PARAMETER = re.compile(r"\s*+;")
_QUOTED_PAIR = re.compile(r"\\(.)")
_REFRESH_TIME = re.compile(r"[\t\n\f\r ]*+([0-9]*+)([0-9.]*+)")
_REFRESH_SEPARATOR = re.compile(r"(?:[\t\n\f\r ]*+[;,]|[\t\n\f\r ])[\t\n\f\r ]*+")
_REFRESH_URL = re.compile(r"url[\t\n\f\r ]*+=[\t\n\f\r ]*+", re.IGNORECASE)


def link_headers(values: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the raw URL and the relation types (lower case) of each link in `Link` fields about this document.

    Links with an `anchor` are about another resource and are skipped. If a part of a field is unreadable, the
    rest of the field is ignored; the links before it are used.
    """
    for target, relations, _ in typed_link_headers(values):
        yield target, relations


def typed_link_headers(values: Iterable[str]) -> Iterator[tuple[str, frozenset[str], str]]:
    """Like `link_headers`, but also yield the media type (lower case) that each link announces, "" if none."""
    for value in values:
        at = 0
        while target := _TARGET.match(value, at):
            parameters, at = _parameters(value, target.end())
            if "anchor" not in parameters:
                relations = frozenset(parameters.get("rel", "").lower().split())
                yield target[1], relations, parameters.get("type", "").strip().lower()


def _parameters(value: str, at: int) -> tuple[dict[str, str], int]:
    """Return the parameters that begin at `at`, the first of each name (RFC 8288 3.3), and the end position."""
    found: dict[str, str] = {}
    while match := _PARAMETER.match(value, at) or _EMPTY_PARAMETER.match(value, at):
        if match.re is _PARAMETER:
            text = _QUOTED_PAIR.sub(r"\1", match[2]) if match[2] is not None else match[3] or ""
            found.setdefault(match[1].lower(), text)
        at = match.end()
    return found, at


def refresh(content: str) -> tuple[int, str] | None:
    """Return the seconds and the raw URL of a refresh ("" for the document itself); None if the refresh is invalid."""
    time = _REFRESH_TIME.match(content)
    if time is None or not (time[1] or time[2]):
        return None
    seconds = min(int(time[1][:9] or 0), 10**9)
    if time.end() == len(content):
        return seconds, ""
    separator = _REFRESH_SEPARATOR.match(content, time.end())
    if separator is None:
        return None
    return seconds, _refresh_url(content[separator.end() :])


def _refresh_url(text: str) -> str:
    if prefix := _REFRESH_URL.match(text):
        text = text[prefix.end() :]
    if text[:1] in ("'", '"') and text:
        text = text[1:].partition(text[0])[0]
    return text.strip("\t\n\f\r ")
