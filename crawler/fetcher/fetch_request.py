"""A request, and its bytes.

The request target is sent as it stands in the canonical URL: never decoded,
re-encoded or re-ordered. No Referer is ever sent. Configured headers with
credentials go only with requests that say so (`FetchRequest.credentials`) and
stand in no record (`redaction.py`).
"""

import re
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

import msgspec

from crawler.config import FetchConfig, IdentityConfig
from crawler.config.credentials import has_credentials, is_credential
from crawler.config.forms import header_field
from crawler.fetcher import coding

HTTP = "http"  # the name of the fetcher that most tasks are for
_UNSAFE = re.compile(r"[^\x21-\x7e]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")  # an answer to HEAD is framed otherwise
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # their length is said even if it is 0 (RFC 9110, 8.6)


class HeldSlot(Protocol):
    """The place that a request holds among those that may be under way."""

    def is_needed(self) -> bool:
        """Whether the request is to end now, as if its time were over, since another needs the place."""

    def give(self) -> None:
        """The place is free: the request waits for something other than its server."""


class FetchLimits(msgspec.Struct, frozen=True, gc=False):
    """Sizes in bytes and times in seconds that bind one fetch (`fetcher/README.md`, "Time and size limits")."""

    connect_timeout: float
    tls_timeout: float
    header_timeout: float
    silence_timeout: float
    total_timeout: float
    header_bytes_max: int
    header_field_bytes_max: int
    header_fields_max: int
    body_bytes_max: int
    wire_bytes_max: int
    decode_step_bytes: int
    content_codings_max: int

    @classmethod
    def of(cls, config: FetchConfig) -> "FetchLimits":
        return cls(**{name: getattr(config, name) for name in cls.__struct_fields__})


class Cookies(Protocol):
    """A cookie jar (`cookies.CookieJar`); one that `lasts` may hold logins, which stand in no record."""

    lasts: bool

    def header(self, target: "Target", now: float) -> str: ...

    def store(self, target: "Target", lines: list[bytes], now: float) -> None: ...


class FetchRequest(msgspec.Struct):
    """One request, a GET unless `method` says otherwise, for the fetcher of that name (`fetchers.py`).

    `addresses` are the host's, tried in order; a host that is an IP literal needs none.
    `etag` and `last_modified` make it conditional. The connection may idle
    afterwards for `keep_alive` seconds or, if that is more, `keep_alive_factor`
    times what the exchange took; a `keep_alive` of 0 closes it. None for a limit means the
    client's. `jar` holds the cookies of one redirect chain; `headers` are
    "Name: value". `credentials`: the URL is one for which those of the
    configuration were given. `tls` is "verify", "record" or "" for the client's setting. `slot` is
    what it holds and may have to give up. `owner` is charged for what is received until the client is told to let go of
    it; without one nobody is, once the answer has come.
    `body` is sent behind the head, and stands in no record. `listener` gets the content, piece by piece as it comes.
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
    listener: Callable[[bytes], None] | None = None
    fetcher: str = HTTP

    @property
    def conditional(self) -> bool:
        return bool(self.etag or self.last_modified)

    def limits(self, default: FetchLimits) -> FetchLimits:
        """`default` with this request's own limits."""
        if self.body_bytes_max is None and self.total_timeout is None and self.wire_bytes_max is None:
            return default
        own = {
            name: value
            for name in ("body_bytes_max", "wire_bytes_max", "total_timeout")
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(default, **own)


class Target(NamedTuple):
    """The parts of a canonical URL; `host` as it stands in Host (brackets, port), `hostname` bare."""

    scheme: str
    host: str
    hostname: str
    port: int
    path: str


def split(url: str) -> Target:
    """The parts of a canonical http(s) URL (no userinfo, no fragment)."""
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


class RequestWriter:
    """Writes request heads; the fields that never change are joined once."""

    def __init__(self, identity: IdentityConfig, agent: str) -> None:
        fields = {
            "User-Agent": agent,
            "Accept": identity.accept,
            "Accept-Language": identity.accept_language,
            "Accept-Encoding": coding.ACCEPTED,
        }
        self._fields = _with(fields, tuple(line for line in identity.headers if not is_credential(line)))
        self._secrets = tuple(line for line in identity.headers if is_credential(line))
        self._common = _joined(self._fields)

    def is_secret(self, request: FetchRequest) -> bool:
        """Whether the head of `request` holds credentials that were configured."""
        return bool(request.credentials and self._secrets) or has_credentials(request.headers)

    def head(
        self,
        request: FetchRequest,
        target: Target,
        *,
        cookie: str = "",
        proxied: bool = False,
        authorization: str = "",
    ) -> bytes:
        """Request line and header fields as they are sent; `proxied` in the form a proxy gets (RFC 9112 3.2.2)."""
        path = f"{target.scheme}://{target.host}{target.path}" if proxied else target.path
        if _UNSAFE.search(path):
            path = _UNSAFE.sub(_escaped, path)
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
        if cookie:
            fields += f"Cookie: {cookie}\r\n"
        if authorization:
            fields += f"Proxy-Authorization: {authorization}\r\n"
        if request.keep_alive <= 0.0:
            fields += "Connection: close\r\n"
        return f"{request.method} {path} HTTP/1.1\r\nHost: {target.host}\r\n{fields}\r\n".encode(
            "latin-1", "replace"
        )


def _with(fields: dict[str, str], lines: tuple[str, ...]) -> dict[str, str]:
    """`fields` and those of `lines`, which take the place of fields of the same name."""
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
    """A stored header value without anything that could end its line."""
    return value.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))
