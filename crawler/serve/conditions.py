"""Applies the conditions and range of a request: the answer is 304, 206, 412, 416 or all of the content.

The order is that of RFC 9110, 13.2.2: If-Match or If-Unmodified-Since, then If-None-Match or
If-Modified-Since, then Range with If-Range. Conditions apply only to a copy with status 200.

A request for one range gets that range (RFC 9110, section 14). A request for a list of ranges gets the whole
representation, as the RFC allows, because clients need only one range, and lists of overlapping ranges could
overload the server.
"""

import re
from collections.abc import Mapping

from crawler import http_dates
from crawler.pages.stored_bodies import part
from crawler.serve import header_fields
from crawler.serve.http_error import HttpError
from crawler.serve.reply import Reply
from crawler.serve.representation import Representation, whole_length

CONDITIONS = frozenset(
    ("If-Match", "If-Unmodified-Since", "If-None-Match", "If-Modified-Since", "If-Range", "Range")
)
_NOT_MODIFIED = header_fields.head(304, "Not Modified", [])
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)
_PARTIAL = header_fields.head(206, "Partial Content", [])


def conditional(ready: Representation, headers: Mapping[str, str], extra: bytes, modified: float) -> Reply:
    """Return the reply to a request with the fields `headers`; `extra` are lines to add to the head of the reply.

    `modified` is the time of the copy.

    Raises:
        HttpError: 412, a precondition failed; 416, the range contains no byte of the copy.
    """
    if headers and ready.status == 200 and not CONDITIONS.isdisjoint(headers):
        if "If-Match" in headers or "If-Unmodified-Since" in headers:
            _check_preconditions(ready, headers, modified)
        seen = _instant(headers, "If-Modified-Since")
        if header_fields.not_modified(headers.get("If-None-Match", ""), seen, ready.etag, modified):
            lasting = ready.head[ready.lasting_at :]
            return Reply(304, b"%b%b%b" % (_NOT_MODIFIED, lasting, extra), 0, b"")
        range_field = headers.get("Range", "")
        if _wants_range(ready, headers, range_field):
            return _range(ready, range_field, extra)
    return _whole(ready, extra)


def _check_preconditions(ready: Representation, headers: Mapping[str, str], modified: float) -> None:
    since = _instant(headers, "If-Unmodified-Since")
    if not header_fields.still_matches(headers.get("If-Match", ""), since, ready.etag, modified):
        why = "the newest copy is not the one that the request names"
        raise HttpError(412, "changed", why, fields=(("ETag", ready.etag),))


def _instant(headers: Mapping[str, str], name: str) -> float | None:
    return http_dates.instant(headers.get(name, ""))


def _whole(ready: Representation, extra: bytes) -> Reply:
    body = ready.held()
    return Reply(ready.status, ready.head + extra, ready.length, body, ready.pieces)


def _wants_range(ready: Representation, headers: Mapping[str, str], field: str) -> bool:
    if not field or not is_single(field):
        return False
    return allowed_by_if_range(headers.get("If-Range", ""), ready.etag, ready.modified)


def _range(ready: Representation, field: str, extra: bytes) -> Reply:
    length = whole_length(ready)
    try:
        span = resolve(field, length)
    except Unsatisfiable:
        why, fields = f"the representation has {length} bytes", (("Content-Range", f"bytes */{length}"),)
        raise HttpError(416, "bad_request", why, fields=fields) from None
    if span is None:
        return _whole(ready, extra)
    first, end = span
    content_range = b"Content-Range: bytes %d-%d/%d\r\n" % (first, end - 1, length)
    head = b"".join((_PARTIAL, ready.head[ready.fields_at :], content_range, extra))
    if (content := ready.span(first, end)) is not None:
        return Reply(206, head, end - first, content)
    pieces = ready.pieces
    return Reply(206, head, end - first, None, lambda: part(pieces(), first, end))


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
        return None
    if not match[1]:
        suffix = int(match[2])
        if suffix == 0 or length == 0:
            raise Unsatisfiable
        return max(0, length - suffix), length
    first = int(match[1])
    last = int(match[2]) if match[2] else length - 1
    if match[2] and last < first:
        return None  # the field is invalid, and so ignored (RFC 9110, 14.1.1)
    if first >= length:
        raise Unsatisfiable
    return first, min(last + 1, length)


def allowed_by_if_range(field: str, etag: str, modified: str) -> bool:
    """Return whether an If-Range field permits the range: it must equal a strong validator (RFC 9110, 13.1.5)."""
    if not field:
        return True
    return field == etag if field.startswith(('"', "W/")) else field == modified
