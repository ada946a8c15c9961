"""A request that a callback makes: a URL, how to fetch it, and which callback receives its page.

A request that is more than a plain GET has a fingerprint of its own. Such a fingerprint is made from the
fingerprint of the URL, the method, the body and the jar, and with `dont_filter` also from a random value. So
the duplicate check does not confuse the request with a plain GET of the same URL, or with a request that
sends another form to that URL.
"""

import os
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any
from urllib.parse import urlencode

import msgspec

from crawler.config.forms import header_field
from crawler.errors import ConfigError
from crawler.fetcher.connector import check_proxy
from crawler.fetcher.fetch_request import METHODS
from crawler.records import LinkFlag, RequestOptions
from crawler.storage.keys import HANDOVER
from crawler.storage.kv import seal, unseal

Callback = Callable[[Any], Any]

PRIORITY = 128  # rank of a link in the frontier: 0 is first, 255 last
_LOW_48 = (1 << 48) - 1
_SHOWN = {None: 0, True: LinkFlag.RENDER, False: LinkFlag.STATIC}


# The types of the fields whose values would otherwise fail only when the request is made.
_KINDS: dict[str, type | UnionType] = {
    "url": str, "meta": Mapping, "priority": int, "method": str, "body": bytes | str | Mapping,
    "headers": Mapping, "jar": str, "proxy": str,
}  # fmt: skip


class Request(msgspec.Struct, frozen=True):
    """A URL to fetch once per crawl; it may be relative to the page on which it was found.

    If `callback` is given, the page is passed to it and not to `parse`. `callback` must be a named function
    or method, because its name is stored with the URL. `meta` is returned as `page.meta`; it is stored as
    JSON. The URL filter, robots.txt, politeness and the duplicate check apply as for any link; a URL that was
    fetched before is not fetched again.

        >>> from crawler import Request
        >>> Request("/page/2", meta={"shelf": 7}).url
        '/page/2'

    Of the requests to a host, those with a higher `priority` (from -127 to 128; 0 by default) are sent first.
    `body` is bytes, text (sent as UTF-8), or a mapping, which is sent as a form. If there is a `body` but no
    `method`, the request is a POST. The same form is sent to a URL only once. The
    archive keeps the body without the values of secret fields. A field is secret if `secrets` names it, or if
    it has a name like `password` or `token`. With `pages.request_bodies = false`, the archive keeps no body
    at all. `headers` are added to this request; headers with credentials are sent only to the request's own
    host. If `dont_filter` is true, the URL is fetched even if it was fetched before.

        >>> Request("/search", body={"q": "green tea"}).method
        'POST'

    `errback` receives the page instead of `callback` if the request ends without a status 2xx. The
    reason may be an error status, an unusable redirect, or a robots.txt that forbids the URL (then the status
    is 0, and `page.outcome` is the reason). `errback` is called only after the last retry. If a server cannot
    be reached, its requests stay in the queue. When the run has nothing else to fetch, the errbacks of these
    requests are called with status 0; the next run tries the requests again. If the URL filter rejects a
    request, for example because it is out of scope, `errback` is called at once, with the outcome `filtered`.
    `errback` must be a named function, like `callback`. `jar` names a cookie jar: only requests that name the
    same jar share its cookies. `proxy` is the URL of a proxy for this request only. If this proxy fails, the
    request is tried as often as after an error status, and the host's other requests do not wait.

        >>> Request("/account", jar="alice") == Request("/account", jar="bob")
        False

    If `render` is True, this page is rendered in a browser; if it is False, the page is not rendered. Both
    values override `render.when`, also when the page is refreshed, and for the targets of its redirects. If
    `render` is None, the configuration decides whether the page is rendered.

        >>> Request("/app", render=True).render
        True
    """

    url: str
    callback: Callback | None = None
    meta: Mapping[str, Any] = {}
    priority: int = 0
    method: str = ""
    body: bytes | str | Mapping[str, str] = b""
    headers: Mapping[str, str] = {}
    dont_filter: bool = False
    errback: Callback | None = None
    jar: str = ""
    proxy: str = ""
    render: bool | None = None
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, kind in _KINDS.items():
            if not isinstance(value := getattr(self, field), kind):
                raise TypeError(f"Request({self.url!r}): {field}: {value!r:.100} is of the wrong type")
        if isinstance(self.secrets, str):
            raise TypeError(f"Request({self.url!r}): secrets: expected a list of names, got one name")
        for callback in (self.callback, self.errback):
            name = callback_name(callback)
            if callback is not None and (not name or name.startswith("<")):
                raise ValueError(
                    f"Request({self.url!r}): a callback must be a named function or method, not a lambda"
                )
        try:
            check_proxy(self.proxy)
        except ConfigError as error:
            raise ValueError(f"Request({self.url!r}): proxy: {error}") from None
        method = (self.method or ("POST" if self.body else "GET")).upper()
        if method not in METHODS:
            raise ValueError(f"Request({self.url!r}): method {method} is not one of {', '.join(METHODS)}")
        msgspec.structs.force_setattr(self, "method", method)
        try:
            for line in self._headers():
                header_field(line)
        except ConfigError:
            raise ValueError(f"Request({self.url!r}): a header is invalid") from None

    def _headers(self) -> tuple[str, ...]:
        lines = [f"{name}: {value}" for name, value in self.headers.items()]
        if isinstance(self.body, Mapping) and not any(
            name.lower() == "content-type" for name in self.headers
        ):
            lines.append("Content-Type: application/x-www-form-urlencoded")
        return tuple(lines)

    @property
    def options(self) -> RequestOptions:
        """Return the options with which the request is sent to the server."""
        body = urlencode(self.body) if isinstance(self.body, Mapping) else self.body
        sent = body.encode() if isinstance(body, str) else body
        return RequestOptions(self.method, sent, self._headers(), self.jar, self.proxy, tuple(self.secrets))

    @property
    def flags(self) -> int:
        """Return the flags of the link that the request becomes."""
        own = self.dont_filter or self.options != RequestOptions()
        flags = (LinkFlag.OWN_REQUEST if own else 0) | (LinkFlag.RANKED if self.priority else 0)
        return flags | _SHOWN[self.render]

    def fingerprint(self, of_url: int, hash: Callable[[bytes], int]) -> int:
        """Return the fingerprint of the request; `of_url` is the fingerprint of its URL."""
        way = self.options
        if not self.dont_filter and (way.method, way.body, way.jar) == ("GET", b"", ""):
            return of_url
        chance = os.urandom(16) if self.dont_filter else b""
        jar = [way.jar.encode()] if way.jar else []
        own = b"\0".join((of_url.to_bytes(8, "big"), way.method.encode(), chance, way.body, *jar))
        return of_url & ~_LOW_48 | hash(own) & _LOW_48


def callback_name(callback: Callback | None) -> str:
    """Return the name under which a callback is stored; "" for None."""
    return "" if callback is None else str(getattr(callback, "__name__", ""))


class Handover(msgspec.Struct, frozen=True, array_like=True):
    """How to request a page and deliver it to the user's code.

    A handover is stored in the process's store under the key `x/<fingerprint>`. A handover that differs from
    the default is stored when the request is queued. When the page is committed, its handover is stored in any
    case, with `waiting` set. The handover is deleted when the user's code has finished with the page.
    """

    callback: str = ""
    meta: dict[str, Any] = {}
    waiting: bool = False
    depth: int = 0
    options: RequestOptions = RequestOptions()
    rank: int = PRIORITY
    errback: str = ""
    failed: tuple[str, int, str] | None = None  # URL, status and outcome of a page that waits for its errback
    render: bool | None = None

    @classmethod
    def of(cls, request: Request) -> "Handover":
        rank = max(0, min(PRIORITY - request.priority, 255))
        meta, way = dict(request.meta), request.options
        errback = callback_name(request.errback)
        name = callback_name(request.callback)
        return cls(name, meta, options=way, rank=rank, errback=errback, render=request.render)

    @property
    def flags(self) -> int:
        """Return the flags that say whether a browser renders the page."""
        return _SHOWN[self.render]


_decode = msgspec.msgpack.Decoder(Handover).decode


def key(fingerprint: int) -> bytes:
    """Return the key of a page's handover."""
    return HANDOVER + fingerprint.to_bytes(8, "big")


def pack(handover: Handover) -> bytes:
    """Encode a handover as the value in the store."""
    return seal(msgspec.msgpack.encode(handover))


def unpack(at: bytes, value: bytes | None) -> Handover:
    """Decode the value made by `pack`; return an empty handover for None."""
    return Handover() if value is None else _decode(unseal(at, value))
