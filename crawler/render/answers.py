"""Translates the fetcher's answers for the browser, and the browser's requests for the fetcher.

The fetcher has already decoded the body, so the header fields that describe the coding of the body are
removed. Other header fields are removed because they would give the browser another way to the network, or
would affect the browser beyond this page.
"""

import base64
from collections.abc import Mapping
from typing import Any

from crawler.records import TLS_FAILURES, Fetch, Outcome

# An image of one transparent pixel. The image is valid, so scripts that wait for its load event continue.
PIXEL = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,"
    b"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)

_NOT_PASSED = frozenset(
    {
        b"content-encoding",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"keep-alive",
        b"set-cookie",
        b"strict-transport-security",
        b"public-key-pins",
        b"alt-svc",
        b"clear-site-data",
        b"service-worker-allowed",
        b"report-to",
        b"reporting-endpoints",
        b"nel",
        b"link",
        b"refresh",
        b"content-disposition",
    }
)

_REASONS = {
    Outcome.DNS_ERROR: "NameNotResolved",
    Outcome.DNS_NOT_FOUND: "NameNotResolved",
    Outcome.ADDRESS_DENIED: "AddressUnreachable",
    Outcome.ROBOTS_DENIED: "BlockedByClient",
    Outcome.CONNECT_ERROR: "ConnectionRefused",
    **dict.fromkeys(TLS_FAILURES, "ConnectionFailed"),
    Outcome.RESET: "ConnectionReset",
    Outcome.HEADER_TIMEOUT: "TimedOut",
    Outcome.TRUNCATED: "ConnectionAborted",
}

# request fields that the fetcher sets itself, whatever values the page requests
_NOT_ASKED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "cookie",
        "host",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
    }
)
_FIELDS_MAX, _FIELD_CHARS_MAX = 30, 4096


def passed_fields(fetch: Fetch) -> list[dict[str, str]]:
    """Return an answer's header fields as the protocol expects them, without those that must not reach the browser."""
    return [
        {"name": name.decode("latin-1"), "value": value.decode("latin-1")}
        for name, value in fetch.headers
        if name.lower() not in _NOT_PASSED
    ]


def error_reason(fetch: Fetch) -> str:
    """Return the error code by which the browser learns why a request gets no answer."""
    return _REASONS.get(fetch.outcome, "Failed")


def asked_body(request: Mapping[str, Any]) -> bytes:
    """Return the body of a request that a page makes, without the parts that are files."""
    entries = request.get("postDataEntries", ())
    return b"".join(base64.b64decode(entry["bytes"]) for entry in entries if "bytes" in entry)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request is a preflight, which asks another origin for permission. Scripts cannot send one."""
    return method == "OPTIONS" and "access-control-request-method" in map(str.lower, headers)


def asked_fields(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return those header fields of a page's request that the fetcher sends as well. Each is a line "Name: value"."""
    lines = []
    for name, value in headers.items():
        lower = name.lower()
        if lower in _NOT_ASKED or lower.startswith(("sec-", "proxy-")):
            continue
        if name.isascii() and len(value) <= _FIELD_CHARS_MAX and not set(value) & set("\r\n\0"):
            lines.append(f"{name}: {value}")
    return tuple(lines[:_FIELDS_MAX])
