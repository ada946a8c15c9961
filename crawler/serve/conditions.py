"""Applies the conditions and range of a request: the answer is 304, 206, 412, 416 or all of the content.

The order is that of RFC 9110, 13.2.2: If-Match or If-Unmodified-Since, then If-None-Match or
If-Modified-Since, then Range with If-Range. Conditions apply only to a copy with status 200.
"""

from collections.abc import Mapping

from crawler import http_dates
from crawler.pages.stored_bodies import part
from crawler.serve import header_fields, ranges
from crawler.serve.http_error import HttpError
from crawler.serve.reply import Reply
from crawler.serve.representation import Representation, whole_length

CONDITIONS = frozenset(
    ("If-Match", "If-Unmodified-Since", "If-None-Match", "If-Modified-Since", "If-Range", "Range")
)
_NOT_MODIFIED = header_fields.head(304, "Not Modified", [])
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
        refusal = HttpError(412, "changed", "the newest copy is not the one that the request names")
        refusal.fields = (("ETag", ready.etag),)
        raise refusal


def _instant(headers: Mapping[str, str], name: str) -> float | None:
    return http_dates.instant(headers.get(name, ""))


def _whole(ready: Representation, extra: bytes) -> Reply:
    body = ready.held()
    return Reply(ready.status, ready.head + extra, ready.length, body, ready.pieces)


def _wants_range(ready: Representation, headers: Mapping[str, str], field: str) -> bool:
    if not field or not ranges.is_single(field):
        return False
    return ranges.allowed_by_if_range(headers.get("If-Range", ""), ready.etag, ready.modified)


def _range(ready: Representation, field: str, extra: bytes) -> Reply:
    length = whole_length(ready)
    try:
        span = ranges.resolve(field, length)
    except ranges.Unsatisfiable:
        refusal = HttpError(416, "bad_request", f"the representation has {length} bytes")
        refusal.fields = (("Content-Range", f"bytes */{length}"),)
        raise refusal from None
    if span is None:
        return _whole(ready, extra)
    first, end = span
    content_range = b"Content-Range: bytes %d-%d/%d\r\n" % (first, end - 1, length)
    head = b"".join((_PARTIAL, ready.head[ready.fields_at :], content_range, extra))
    if (content := ready.span(first, end)) is not None:
        return Reply(206, head, end - first, content)
    pieces = ready.pieces
    return Reply(206, head, end - first, None, lambda: part(pieces(), first, end))
