"""Redaction: requests and answers are shown and stored with the names of credentials, never their values.

All records, logs and exports use `Fetch.request_head` and `Fetch.headers`, so the
client redacts only those, whether a value was configured, came from a cookie jar or was
set by a server.
"""

import re

from crawler.config.credentials import REDACTED, redacted_headers

Fields = tuple[tuple[bytes, bytes], ...]
_SIGNATURE = re.compile(rb"(?<=\r\nSignature: )[^\r]*")


def redacted_head(head: bytes) -> bytes:
    """Return a request head with `[redacted]` as the value of each field that carries credentials."""
    first, *lines = head.decode("latin-1").split("\r\n")
    return "\r\n".join((first, *redacted_headers(lines))).encode("latin-1")


def redacted_signature(head: bytes) -> bytes:
    """Return a request head without its signature, which could be replayed until it expires; 1 us, the rest 8 us."""
    return _SIGNATURE.sub(REDACTED.encode(), head)


def redacted_fields(fields: Fields) -> Fields:
    """Return the fields of an answer; Set-Cookie fields keep the cookie's name without its value."""
    return tuple(
        (name, value.partition(b"=")[0] + b"=" + REDACTED.encode())
        if name.lower() == b"set-cookie"
        else (name, value)
        for name, value in fields
    )
