"""Parses the head of a stored answer; the server needs only some of its fields.

The page cache wrote the head (`pages/warc.py`), so lines end with CRLF and no field is
folded. Pages of the same site mostly have equal header lines, so the parsed form of each line is remembered.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from crawler.pages.reading import codings_of
from crawler.records import only_value
from crawler.serve import header_fields
from crawler.serve.header_fields import Field

_READ = (*header_fields.PASSED, b"content-encoding", b"location", b"refresh", b"connection")
_FIELD = re.compile(rb"\r\n(%b):[ \t]*(.*?)[ \t]*(?=\r\n)" % b"|".join(_READ), re.IGNORECASE)
_GAP = b"\r\n\r\n"
_OF_A_BODY = (b"content-type", b"content-disposition", b"content-language")
_LIFETIMES = (b"cache-control", b"expires")


class StoredHead(msgspec.Struct, frozen=True, gc=False):
    """The status, the reason, and the fields that the server needs. `status` is 0 if the answer has no status."""

    status: int
    reason: str
    fields: tuple[Field, ...] = ()


def of_fields(status: int, reason: str, fields: Iterable[Field]) -> StoredHead:
    """Make a head from parsed fields."""
    return StoredHead(status, reason, tuple(field for field in fields if field[0].lower() in _READ))


NO_HEAD = StoredHead(0, "")


def parse_head(head: bytes) -> StoredHead:
    """Parse the head of a response record: WARC fields and HTTP head."""
    start = head.find(_GAP) + len(_GAP)
    end = head.find(b"\r\n", start)
    if end < 0:
        return NO_HEAD
    status, reason = _status(head[start:end])
    return StoredHead(status, reason, tuple(_FIELD.findall(head, end)))


@lru_cache(maxsize=256)
def _status(line: bytes) -> tuple[int, str]:
    words = line.decode("latin-1").split(" ", 2)
    if not words[0].upper().startswith("HTTP/"):
        return 0, ""
    code = words[1] if len(words) > 1 else ""
    status = int(code) if code.isascii() and code.isdigit() and len(code) <= 3 else 0
    return status, words[2] if len(words) > 2 else ""


class PassedLines(msgspec.Struct, frozen=True):
    """The lines of a stored answer that are passed on, and the values of its fields that the server uses.

    `of_body` contains the lines that describe the body, and `lasting` contains all other lines. `codings` are
    the content codings, in the order in which they were applied, and `kinds` are the values of Content-Type.
    `has_lifetime` is true if the answer tells for how long it may be cached.
    """

    of_body: bytes
    lasting: bytes
    has_lifetime: bool
    codings: tuple[bytes, ...]
    kinds: tuple[bytes, ...]
    location: bytes
    refresh: bytes


def _values(fields: Iterable[Field], name: bytes) -> tuple[bytes, ...]:
    return tuple(value for field, value in fields if field.lower() == name)


@lru_cache(maxsize=1024)
def passed_lines(fields: tuple[Field, ...]) -> PassedLines:
    """Return the lines of the stored `fields` that are passed on."""
    passed = header_fields.passed_on(fields)
    return PassedLines(
        header_fields.lines(field for field in passed if field[0].lower() in _OF_A_BODY),
        header_fields.lines(field for field in passed if field[0].lower() not in _OF_A_BODY),
        any(name.lower() in _LIFETIMES for name, _ in passed),
        tuple(codings_of(fields)),
        _values(fields, b"content-type"),
        only_value(_values(fields, b"location")),
        next(iter(_values(fields, b"refresh")), b""),
    )
