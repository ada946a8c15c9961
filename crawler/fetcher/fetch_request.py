"""A request for one URL, and the bytes that are sent for it.

The request target is sent exactly as in the canonical URL: never decoded, re-encoded or re-ordered. No
Referer is ever sent. Configured headers with credentials are sent only if `FetchRequest.credentials` is set,
and are never recorded (`redaction.py`).
"""

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from crawler import content_codings
from crawler.config import FetchConfig, IdentityConfig
from crawler.config.credentials import has_credentials, is_credential
from crawler.config.forms import header_field
from crawler.version import __version__

if TYPE_CHECKING:
    from crawler.fetcher.file_body import FileBody

HTTP = "http"  # the name of the default fetcher
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE = re.compile(r"[^\x21-\x7e]")
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_DEFAULT_PORTS = {"http": 80, "https": 443}
# HEAD is left out, because the answers to HEAD have no body
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Requests with these methods have a Content-Length even if it is 0 (RFC 9110, 8.6).
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class HeldSlot(Protocol):
    """A fetch slot, held by a request in progress."""

    def is_needed(self) -> bool:
        """Return whether the request must end now, as if its time limit had passed, because its slot is needed."""

    def give(self) -> None:
        """Release the slot, because the request does not need a slot while it waits."""


class Cookies(Protocol):
    """A cookie jar (`cookies.CookieJar`). If `lasts` is True, it may hold logins, which are never recorded."""

    lasts: bool

    def header(self, target: "Target", now: float) -> str: ...

    def store(self, target: "Target", lines: list[bytes], now: float) -> None: ...


class ContentListener(Protocol):
    """Receives the content of an answer while it arrives. `restart` announces that another answer begins."""

    def restart(self) -> None: ...

    def feed(self, content: bytes) -> None: ...


class FetchRequest(msgspec.Struct):
    """One request, by default a GET, for the fetcher named in `fetcher` (`fetchers.py`).

    `addresses` are the host's addresses, tried in order; the tuple is empty if the host is an IP literal.
    `etag` and `last_modified` make the request conditional. After the answer, the connection may stay idle
    for `keep_alive` seconds. If the exchange took long, this time is at least `keep_alive_extra` (a setting)
    + `keep_alive_factor` x (duration of the exchange). If `keep_alive` is 0, the connection is closed. If a
    limit is None, the client's limit applies. `jar` holds the cookies of one redirect chain. `headers` are
    further header lines, "Name: value". `credentials` says whether the configured credentials may be sent to
    the URL. `tls` is "verify", "record", or "" to use the client's setting. `slot` is the fetch slot that the
    request holds and may have to give up. The memory of the answer is charged to `owner` until the client's
    `let_go` is called for that owner; without an owner, the charge ends with the answer. `body` is sent after
    the head. `secrets` are the names of the body's fields whose values are never recorded. `listener`
    receives the content of each answer piece by piece, as it arrives. `proxy` is the proxy for this request,
    or "" to use the client's proxy. `file` receives the body of a large file; without it, every body stays in
    memory.
    """

    url: str
    addresses: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    etag: str = ""
    last_modified: str = ""
    keep_alive: float = 0.0
    keep_alive_factor: float = 0.0
    accept: str = ""
    tls: str = ""
    body_bytes_max: int | None = None
    wire_bytes_max: int | None = None
    total_timeout: float | None = None
    jar: Cookies | None = None
    credentials: bool = False
    slot: HeldSlot | None = None
    owner: Hashable = None
    method: str = "GET"
    body: bytes = b""
    secrets: tuple[str, ...] = ()
    listener: ContentListener | None = None
    fetcher: str = HTTP
    proxy: str = ""
    file: "FileBody | None" = None

    @property
    def conditional(self) -> bool:
        return bool(self.etag or self.last_modified)

    def limits(self, default: FetchConfig) -> FetchConfig:
        """Return the limits of this request. Limits that the request does not set are taken from `default`."""
        if self.body_bytes_max is None and self.total_timeout is None and self.wire_bytes_max is None:
            return default
        own = {
            name: value
            for name in ("body_bytes_max", "wire_bytes_max", "total_timeout")
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(default, **own)


class Target(NamedTuple):
    """The parts of a canonical URL; `host` is as in the Host header, `hostname` is without brackets and port."""

    scheme: str
    host: str
    hostname: str
    port: int
    path: str


def split(url: str) -> Target:
    """Split a canonical http(s) URL (no userinfo, no fragment) into its parts."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if "?" in host:
        host, slash, path = host.partition("?")
        slash = "/?"
    hostname, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        hostname, port = host, ""
    if hostname.startswith("["):
        hostname = hostname[1:-1]
    return Target(
        scheme, host, hostname, int(port) if port else _DEFAULT_PORTS.get(scheme, 0), (slash or "/") + path
    )


def user_agent(identity: IdentityConfig) -> str:
    """Return the User-Agent of all requests: product token, version and contact."""
    product = f"{identity.token}/{__version__}"
    return f"{product} (+{identity.contact})" if identity.contact else product


class RequestWriter:
    """Writes request heads. The header fields that are the same in all requests are joined only once."""

    def __init__(self, identity: IdentityConfig, agent: str) -> None:
        fields = {
            "User-Agent": agent,
            "Accept": identity.accept,
            "Accept-Language": identity.accept_language,
            "Accept-Encoding": content_codings.ACCEPTED,
        }
        self._fields = _with(fields, tuple(line for line in identity.headers if not is_credential(line)))
        self._secrets = tuple(line for line in identity.headers if is_credential(line))
        self._common = _joined(self._fields)

    def is_secret(self, request: FetchRequest) -> bool:
        """Return whether the head of `request` will contain configured credentials."""
        return bool(request.credentials and self._secrets) or has_credentials(request.headers)

    def head(
        self,
        request: FetchRequest,
        target: Target,
        *,
        cookie: str = "",
        signature: str = "",
        proxied: bool = False,
        authorization: str = "",
    ) -> bytes:
        """Return the request line and header fields.

        `signature` holds the header lines that sign the request. If `proxied` is set, the request target is
        the absolute URL, which proxies need (RFC 9112 3.2.2).
        """
        path = f"{target.scheme}://{target.host}{target.path}" if proxied else target.path
        if _UNSAFE.search(path):
            path = quote(path, safe=_PRINTABLE, errors="replace")
        fields = self._common
        if request.headers or request.accept or (request.credentials and self._secrets):
            own: tuple[str, ...] = (f"Accept: {request.accept}",) if request.accept else ()
            own += (self._secrets if request.credentials else ()) + request.headers
            fields = _joined(_with(self._fields, own))
        if request.body or request.method in WITH_BODY:
            fields += f"Content-Length: {len(request.body)}\r\n"
        if request.etag:
            fields += f"If-None-Match: {_safe(request.etag)}\r\n"
        if request.last_modified:
            fields += f"If-Modified-Since: {_safe(request.last_modified)}\r\n"
        if request.file is not None:
            fields += request.file.range_fields(request.url)
        if cookie:
            fields += f"Cookie: {_safe(cookie)}\r\n"
        if authorization:
            fields += f"Proxy-Authorization: {authorization}\r\n"
        if request.keep_alive <= 0.0:
            fields += "Connection: close\r\n"
        fields += signature
        return f"{request.method} {path} HTTP/1.1\r\nHost: {target.host}\r\n{fields}\r\n".encode(
            "latin-1", "replace"
        )


def _with(fields: dict[str, str], lines: tuple[str, ...]) -> dict[str, str]:
    """Return `fields` with the fields of `lines` added. An added field replaces those of the same name."""
    merged = dict(fields)
    for line in lines:
        name, value = header_field(line)
        for known in [known for known in merged if known.lower() == name.lower()]:
            del merged[known]
        merged[name] = value
    return merged


def _joined(fields: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)


def _safe(value: str) -> str:
    """Return a header value that a server once sent. Remove control characters, which could end the header line."""
    return _CONTROLS.sub(" ", value)
