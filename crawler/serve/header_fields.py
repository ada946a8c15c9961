"""Decides which stored header fields an answer passes on, which fields it adds, and when the answer is 304.

Copies are foreign pages, but browsers treat them as pages of this origin, and a stored header field might act
on this origin. Since browsers support new fields every year, a stored field is passed on only if it is in
`PASSED`. The fields in `PASSED` describe only the copy itself, never the origin, other URLs, or connections
to other hosts. A Content-Type is passed on only if it describes one document (`_TYPE`). A
Content-Security-Policy puts the page into a sandbox without scripts.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

Field = tuple[bytes, bytes]

# Stored fields that are passed on, with the reason. All other fields stay in the archive (see `crawler get
# --headers`).
PASSED = {
    b"content-type": "how to read the copy; only media types of one document",
    b"content-language": "the language of the copy",
    b"content-disposition": "the name under which to save it",
    b"cache-control": "how long it may be kept, counted with our Age",
    b"expires": "the same, from servers of HTTP/1.0",
    b"retry-after": "belongs to the stored status 429, 503 or 3xx",
    b"allow": "belongs to the stored status 405",
    b"x-robots-tag": "whether search engines may index it",
}
# Top-level media types (RFC 6838, 4.2) whose content is one document. `message` and `multipart` are containers;
# multipart/x-mixed-replace, for example, shows one document after another, each with its own fields.
_TYPE = re.compile(
    rb"\s*(?:application|audio|font|haptics|image|model|text|video)/[!#$&^_.+0-9A-Za-z-]{1,127}\s*(?:;[^,]*)?",
    re.IGNORECASE,
)
BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_POLICY = (
    "default-src 'self' data: 'unsafe-inline'; script-src 'none'; object-src 'none'; connect-src 'none'; "
    "worker-src 'none'; form-action 'none'; frame-ancestors 'self'"
)
SANDBOX: tuple[Field, ...] = (
    (b"Content-Security-Policy", f"sandbox; {_POLICY}".encode()),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)
# A page with rewritten links loads its images from /page. From an opaque origin, these requests would be
# cross-origin, and the resource policy would block them. So the page keeps the origin of the server. Scripts
# are disabled, so nothing can abuse this origin.
SANDBOX_REWRITTEN: tuple[Field, ...] = (
    (b"Content-Security-Policy", f"sandbox allow-same-origin; {_POLICY}".encode()),
    *SANDBOX[1:],
)


def passed_on(headers: Iterable[Field]) -> list[Field]:
    """Return the stored fields that are passed on to the client, in order.

    A field named by Connection applies to one hop only and is not passed on (RFC 9110, 7.6.1).
    """
    headers = list(headers)
    named: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            named.update(part.strip().lower() for part in value.split(b","))
    return [
        (name, value)
        for name, value in headers
        if (lowered := name.lower()) in PASSED
        and lowered not in named
        and not BAD_VALUE.search(value)
        and (lowered != b"content-type" or _TYPE.fullmatch(value))
    ]


@lru_cache(maxsize=256)
def accepted(field: str) -> frozenset[bytes]:
    """Return those of the usual content codings that an Accept-Encoding field accepts.

    An empty or missing field accepts no coding. RFC 9110, 12.5.3 would allow a coding if the field is
    missing, but many clients that send no such field cannot decode any coding.
    """
    given = weights(field)
    other = given.get("*", 0.0)
    taken = {name for name in _CODINGS if given.get(name, other) > 0.0}
    return frozenset(name.encode() for name in taken | ({"x-gzip"} if "gzip" in taken else set()))


_CODINGS = ("gzip", "deflate", "br", "zstd", "compress")


def weights(field: str) -> dict[str, float]:
    """Return the names that a field of the Accept family lists, in lower case, with their weights."""
    found = {}
    for part in field.lower().split(","):
        name, _, parameters = part.partition(";")
        found[name.strip()] = _weight(parameters)
    return found


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def not_modified(if_none_match: str, if_modified_since: float | None, etag: str, modified: float) -> bool:
    """Return whether the client already has this copy, so that the answer is 304 (RFC 9110, 13.2.2).

    If the request has If-None-Match, this field alone decides, by weak comparison.
    """
    if if_none_match:
        if if_none_match == etag or if_none_match.strip() == "*":
            return True
        tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
        return etag.removeprefix("W/") in tags
    return if_modified_since is not None and int(modified) <= if_modified_since


def still_matches(if_match: str, if_unmodified_since: float | None, etag: str, modified: float) -> bool:
    """Return whether the preconditions hold. If they do not, the answer is 412 (RFC 9110, 13.1.1 and 13.1.4).

    If the request has If-Match, this field alone decides, by strong comparison.
    """
    if if_match:
        return if_match.strip() == "*" or etag in [tag.strip() for tag in if_match.split(",")]
    return if_unmodified_since is None or int(modified) <= if_unmodified_since


def head(status: int, reason: str, fields: Iterable[Field]) -> bytes:
    """Return the status line and the fields as bytes to send, without the final empty line."""
    text = BAD_VALUE.sub(b"", reason.encode("latin-1", "replace"))[:256]
    return b"HTTP/1.1 %d %s\r\n%s" % (status, text, lines(fields))


def lines(fields: Iterable[Field]) -> bytes:
    """Return the fields as bytes to send."""
    return b"".join([b"%s: %s\r\n" % field for field in fields])
