"""Redaction: requests and answers are shown and stored with the names of credentials, but never with their values.

All records, logs and exports use `Fetch.request_head`, `Fetch.request_body` and `Fetch.headers`, so the
client needs to redact only these three. It redacts a value whether the value was configured, came from a
cookie jar, or was set by a server.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import quote, unquote_plus

from crawler.config.credentials import REDACTED, is_secret_field, redacted_headers

Fields = tuple[tuple[bytes, bytes], ...]
_SIGNATURE = re.compile(rb"(?<=\r\nSignature: )[^\r]*")
_LENGTH = re.compile(rb"(?<=\r\nContent-Length: )\d+")
_TYPE = re.compile(rb"\r\nContent-Type:[ \t]*([^\r]*)", re.IGNORECASE)
_PART_NAME = re.compile(rb"content-disposition:[^\r\n]*\bname=\"?([^\"\r\n;]*)", re.IGNORECASE)


def redacted_head(head: bytes) -> bytes:
    """Return a request head with `[redacted]` as the value of each field with credentials. This takes 8 us."""
    first, *lines = head.decode("latin-1").split("\r\n")
    return "\r\n".join((first, *redacted_headers(lines))).encode("latin-1")


def redacted_signature(head: bytes) -> bytes:
    """Return a request head without its signature, which could be replayed until it expires. This takes 1 us."""
    return _SIGNATURE.sub(REDACTED.encode(), head)


def redacted_fields(fields: Fields) -> Fields:
    """Return the fields of an answer, with the cookie's name but not its value in each Set-Cookie field."""
    return tuple(
        (name, value.partition(b"=")[0] + b"=" + REDACTED.encode())
        if name.lower() == b"set-cookie"
        else (name, value)
        for name, value in fields
    )


def redacted_request(head: bytes, body: bytes, secrets: Collection[str]) -> tuple[bytes, bytes]:
    """Return head and body of a request without the values of secret body fields.

    A body field is secret if its name is in `secrets`, or if `is_secret_field` says so.

    The Content-Length in the returned head is the length of the returned body.
    """
    found = _TYPE.search(head)
    shown = redacted_body(body, "" if found is None else found[1].decode("latin-1").lower(), secrets)
    return (head if shown == body else _LENGTH.sub(b"%d" % len(shown), head)), shown


def redacted_body(body: bytes, content_type: str, secrets: Collection[str]) -> bytes:
    """Return a form or a JSON document with `[redacted]` as the value of each secret field.

    A multipart body that has a secret field is redacted as a whole. Other bodies have no field names and stay
    as they are.
    """

    def is_secret(name: str) -> bool:
        return name in secrets or is_secret_field(name)

    if content_type.startswith("application/x-www-form-urlencoded"):
        return b"&".join(_redacted_pair(pair, is_secret) for pair in body.split(b"&"))
    if content_type.startswith("multipart/"):
        names = (name.decode("utf-8", "replace") for name in _PART_NAME.findall(body))
        return REDACTED.encode() if any(map(is_secret, names)) else body
    if not content_type.startswith(("application/json", "text/plain")):
        return body
    try:
        document = json.loads(body)
        shown = _redacted_values(document, is_secret)
    except (ValueError, RecursionError):
        return body
    return body if shown == document else json.dumps(shown).encode()


def _redacted_pair(pair: bytes, is_secret: Callable[[str], bool]) -> bytes:
    name, equals, _ = pair.partition(b"=")
    if not equals or not is_secret(unquote_plus(name.decode("latin-1"))):
        return pair
    return name + b"=" + quote(REDACTED).encode()


def _redacted_values(value: Any, is_secret: Callable[[str], bool]) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED if is_secret(key) else _redacted_values(inner, is_secret)
            for key, inner in value.items()
        }
    return [_redacted_values(inner, is_secret) for inner in value] if isinstance(value, list) else value
