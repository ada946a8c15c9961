"""Byte ranges (RFC 9110, section 14): applies a Range field to a representation of a given length.

A request for one range gets that range. A request for a list of ranges gets the whole representation, as the
RFC allows, because clients need only one range, and lists of overlapping ranges could overload the server.
"""

import re

_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)

WHOLE = None


class Unsatisfiable(Exception):
    """The range contains no byte of the representation; the answer is 416."""


def is_single(field: str) -> bool:
    """Return whether the field requests exactly one byte range."""
    match = _RANGE.fullmatch(field)
    return match is not None and bool(match[1] or match[2])


def resolve(field: str, length: int) -> tuple[int, int] | None:
    """Return the range as (first byte, byte after the last) of `length` bytes, or None if all bytes are to be served.

    Raises:
        Unsatisfiable: the range starts after the end, or is an empty suffix.
    """
    match = _RANGE.fullmatch(field)
    if match is None or not (match[1] or match[2]):
        return WHOLE
    if not match[1]:
        suffix = int(match[2])
        if suffix == 0 or length == 0:
            raise Unsatisfiable
        return max(0, length - suffix), length
    first = int(match[1])
    last = int(match[2]) if match[2] else length - 1
    if match[2] and last < first:
        return WHOLE  # the field is invalid, and so ignored (RFC 9110, 14.1.1)
    if first >= length:
        raise Unsatisfiable
    return first, min(last + 1, length)


def allowed_by_if_range(field: str, etag: str, modified: str) -> bool:
    """Return whether an If-Range field permits the range: it must equal a strong validator (RFC 9110, 13.1.5)."""
    if not field:
        return True
    return field == etag if field.startswith(('"', "W/")) else field == modified
