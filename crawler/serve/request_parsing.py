"""Parses a request: converts the request target and the header fields to one `ParsedRequest`.

    /                                                               a form for people
    /page?url=U[&at=TIME][&max-stale=S][&refresh=1][&rewrite=1][&static=1]     a copy of U
    /view?url=U[&at=TIME]                                           the picture of U that a browser took
    /timegate/U           with Accept-Datetime                      the copy nearest to it (RFC 7089)
    /timemap/link/U                                                 the list of copies
    http://host/path      the proxy form (`curl -x`)                as /page?url=http://host/path
    /signal /indexnow /websub/TOKEN /healthz /readyz                the other endpoints
    /held?url=U                                                     `HeldCopies` of U, for other processes

In `/timegate/U` and `/timemap/link/U`, everything after the prefix is U, including the query of U, as in RFC
7089 and other archives. A target is only compared with these prefixes, and U is only looked up in the store,
so no target can name a file.
"""

import re
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from crawler import http_dates
from crawler.config.units import Seconds, shown
from crawler.errors import UsageError
from crawler.serve.http_error import HttpError
from crawler.serve.query import query_fields
from crawler.typed_time import typed_period
from crawler.urls.typed_url import looked_up
from crawler.wording import not_one_of

TARGET_CHARS_MAX = 16_384  # enough for a URL of 8,192 octets, half of which are escaped
_ONLY_A_URL = re.compile(r"url=([-.0-9:A-Z_a-z~/]+)")  # a URL without escapes, so there is nothing to decode
# number of parsed targets that are cached, each of at most `_PARSED_CHARS` characters: 4 MB
_PARSED_MAX = 4096
_PARSED_CHARS = 512


class Route(StrEnum):
    """The service of this server that is selected by the target of a request."""

    FRONT = "front"
    PAGE = "page"
    VIEW = "view"
    PROXY = "proxy"
    TIMEGATE = "timegate"
    TIMEMAP = "timemap"
    SIGNAL = "signal"
    INDEXNOW = "indexnow"
    WEBSUB = "websub"
    HEALTHZ = "healthz"
    READYZ = "readyz"
    HELD = "held"


_COPY_PARAMETERS = ("url", "at", "max-stale", "refresh", "rewrite", "static")
_PARAMETERS = {Route.PAGE: _COPY_PARAMETERS, Route.HELD: _COPY_PARAMETERS, Route.VIEW: ("url", "at")}


class ParsedRequest(msgspec.Struct, frozen=True):
    """A parsed request. `url` is the request form ("" if the endpoint needs none), `rest` the path after the endpoint.

    `at` is a time, `max_stale` a length of time; each is None if the request does not give it.
    """

    door: Route
    url: str = ""
    rest: str = ""
    at: float | None = None
    max_stale: float | None = None
    refresh: bool = False
    rewrite: bool = False
    static: bool = False


def parse(target: str) -> ParsedRequest:
    """Parse a request target.

    Raises:
        HttpError: 400 it cannot be parsed, 404 the path is unknown, 414 it is too long.
    """
    return _remembered(target) if len(target) <= _PARSED_CHARS else _parse(target)


def _parse(target: str) -> ParsedRequest:
    if len(target) > TARGET_CHARS_MAX:
        raise HttpError(
            414, "bad_request", f"a request target may have at most {TARGET_CHARS_MAX} characters"
        )
    if target[:1] != "/":
        return _proxy(target)
    path, _, query = target.partition("?")
    if path == "/":
        return ParsedRequest(Route.FRONT)
    if path in ("/page", "/view"):
        return _page(Route(path[1:]), query)
    if target.startswith("/timegate/"):
        return ParsedRequest(Route.TIMEGATE, url=_url(_embedded(target[len("/timegate/") :])))
    if target.startswith("/timemap/link/"):
        return ParsedRequest(Route.TIMEMAP, url=_url(_embedded(target[len("/timemap/link/") :])))
    if path.startswith("/websub/"):
        return ParsedRequest(Route.WEBSUB, rest=path[len("/websub/") :])
    if path in ("/signal", "/indexnow", "/healthz", "/readyz"):
        return ParsedRequest(Route(path[1:]))
    if path == "/held":
        return _page(Route.HELD, query)
    raise no_such_path()


def no_such_path() -> HttpError:
    why = "the endpoints are /page?url=, /view?url=, /timegate/, /timemap/link/, /signal, /indexnow"
    return HttpError(404, "no_such_path", why)


_remembered = lru_cache(maxsize=_PARSED_MAX)(_parse)


def _proxy(target: str) -> ParsedRequest:
    scheme = target.partition("://")[0].lower()
    if scheme not in ("http", "https"):
        raise HttpError(400, "bad_request", "the target is neither a path nor an http(s) URL")
    return ParsedRequest(Route.PROXY, url=_url(target))


def _page(door: Route, query: str) -> ParsedRequest:
    if match := _ONLY_A_URL.fullmatch(query):
        return ParsedRequest(door, url=_url(match[1]))
    fields = query_fields(query, f"/{door}", _PARAMETERS[door])
    if not fields.get("url"):
        raise HttpError(400, "bad_request", f"name the page: /{door}?url=URL, with the URL percent-encoded")
    at = _at(fields["at"]) if "at" in fields else None
    if door is Route.VIEW:
        return ParsedRequest(door, url=_url(fields["url"]), at=at)
    stale = fields.get("max-stale")
    return ParsedRequest(
        door,
        url=_url(fields["url"]),
        at=at,
        max_stale=None if stale is None else _seconds("max-stale", stale),
        refresh=_flag(fields, "refresh"),
        rewrite=_flag(fields, "rewrite"),
        static=_flag(fields, "static"),
    )


def _seconds(name: str, text: str) -> float:
    """Return the time that a parameter gives, written as in the configuration."""
    try:
        return Seconds.parse(text)
    except ValueError as error:
        raise HttpError(400, "bad_request", f"{name}: {error}") from None


def _flag(fields: dict[str, str], name: str) -> bool:
    value = fields.get(name, "0")
    if value not in ("0", "1"):
        raise HttpError(400, "bad_request", f"{name}: {not_one_of(shown(value), ('0', '1'))}")
    return value == "1"


def _embedded(text: str) -> str:
    """Return the URL that a path contains, either plain or percent-encoded as a whole."""
    return text if "://" in text[:9] else unquote(text, errors="surrogateescape")


def _url(text: str) -> str:
    """Return the request form of a URL.

    Raises:
        HttpError: 400, it is not a URL.
    """
    try:
        return looked_up(text)
    except UsageError as error:
        raise HttpError(400, "bad_request", str(error)) from None


def _at(text: str) -> float:
    """Return the last second of the period that `at=` names (`typed_time.py`).

    Raises:
        HttpError: 400, it is not a date or time.
    """
    try:
        return typed_period(text).last
    except UsageError as error:
        raise HttpError(400, "bad_request", str(error)) from None


def accept_datetime(text: str) -> float | None:
    """Return the time that an Accept-Datetime field names, or None for an empty field.

    Raises:
        HttpError: 400, it is not a date (RFC 7089, 4.5.3).
    """
    if not text:
        return None
    found = http_dates.instant(text)
    if found is None:
        raise HttpError(400, "bad_request", "Accept-Datetime is not an HTTP date")
    return found
