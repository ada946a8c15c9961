"""Opens connections through aiohttp's connector, so that none escapes the guard.

The guard stands in `socket_factory`, where the address is the one that is about
to be connected to: a custom resolver alone is passed by when the host is an
address in an odd spelling. aiohttp looks nothing up; it is given the addresses
of the request. Connecting and the TLS handshake have a time-out each.

What fails here ends in `NotOpened` with its outcome.
"""

import asyncio
import base64
import errno
import socket
import ssl
import time
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from crawler.errors import ConfigError, CrawlerError
from crawler.fetcher import tls
from crawler.fetcher.guard import Guard
from crawler.fetcher.request import Limits, Target
from crawler.records import Outcome

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address is tried beside the first (RFC 8305)


class NotOpened(CrawlerError):
    """No connection; `outcome` says why."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class _Denied(OSError):
    """The guard does not allow this address."""


class _Opening:
    """One attempt: its addresses, and where it stands."""

    __slots__ = ("addresses", "deadline", "handshaking", "hostname", "scope", "tls_timeout")

    def __init__(
        self, target: Target, addresses: tuple[str, ...], tls_timeout: float, deadline: float
    ) -> None:
        self.deadline = deadline
        self.hostname = target.hostname
        self.addresses = addresses
        self.tls_timeout = tls_timeout
        self.handshaking = False
        self.scope: asyncio.Timeout | None = None

    def handshake_began(self) -> None:
        if not self.handshaking and self.scope is not None:
            self.handshaking = True
            left = min(self.tls_timeout, self.deadline - time.monotonic())
            self.scope.reschedule(asyncio.get_running_loop().time() + left)


_opening: ContextVar[_Opening] = ContextVar("opening")


def _on_handshake() -> None:
    opening = _opening.get(None)
    if opening is not None:
        opening.handshake_began()


class _GivenAddresses(AbstractResolver):
    """Answers with the addresses of the present attempt; only a proxy's name is looked up."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        opening = _opening.get()
        addresses: tuple[str, ...] = opening.addresses
        if host != opening.hostname:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = tuple(str(entry[4][0]) for entry in found)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


class Connector:
    """Opens guarded TCP and TLS connections, straight or through `proxy` ("" = none).

    Behind a proxy the guard is not asked: the proxy chooses the addresses.
    """

    def __init__(self, guard: Guard, proxy: str) -> None:
        self._guard = guard
        self._proxy, self.authorization = check_proxy(proxy)
        self._contexts: dict[bool, tls.ResumingContext] = {}
        self._connector = aiohttp.TCPConnector(
            limit=0,
            force_close=True,
            use_dns_cache=False,
            resolver=_GivenAddresses(),
            happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY,
            socket_factory=self._socket,
        )

    @property
    def proxied(self) -> bool:
        return self._proxy is not None

    def _context(self, verify: bool) -> tls.ResumingContext:
        context = self._contexts.get(verify)
        if context is None:  # reading the system's roots takes some milliseconds
            context = self._contexts[verify] = tls.verifying() if verify else tls.recording()
            context.on_handshake = _on_handshake
        return context

    def keep_session(self, hostname: str, transport: Any, *, verify: bool) -> None:
        """Remember the TLS session of a connection that worked, to resume it."""
        self._context(verify).keep(hostname, transport.get_extra_info("ssl_object"))

    async def open(
        self, target: Target, addresses: tuple[str, ...], limits: Limits, deadline: float, *, verify: bool
    ) -> aiohttp.connector.Connection:
        """Return an open connection; `verify` asks for a certificate that holds.

        No time limit outlasts `deadline` (monotonic time).

        Raises:
            NotOpened: denied, refused, out of time, or no handshake.
        """
        allowed = self._allowed(target, addresses)
        opening = _Opening(target, allowed, limits.tls_timeout, deadline)
        left = deadline - time.monotonic()
        token = _opening.set(opening)
        try:
            async with asyncio.timeout(min(limits.connect_timeout, left)) as opening.scope:
                request = self._request(target, verify)
                return await self._connector.connect(request, [], _NO_TIMEOUT)
        except TimeoutError as error:
            raise self._out_of_time(opening) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failed(opening, error) from error
        finally:
            _opening.reset(token)

    def _allowed(self, target: Target, addresses: tuple[str, ...]) -> tuple[str, ...]:
        if self.proxied:
            return addresses
        if ":" in target.hostname or target.hostname.replace(".", "").isdigit():
            addresses = (target.hostname,)
        if not addresses:
            raise NotOpened(Outcome.DNS_NOT_FOUND, f"no address of {target.hostname}")
        allowed = tuple(address for address in addresses if self._guard.allows(address))
        if not allowed:
            raise NotOpened(Outcome.ADDRESS_DENIED, f"address not allowed: {', '.join(addresses)}")
        return allowed

    def _request(self, target: Target, verify: bool) -> aiohttp.ClientRequest:
        proxy_headers: CIMultiDict[str] | None = None
        if self.proxied:
            proxy_headers = CIMultiDict()
            if self.authorization:
                proxy_headers["Proxy-Authorization"] = self.authorization
        return aiohttp.ClientRequest(
            "GET",
            URL(f"{target.scheme}://{target.host}/", encoded=True),
            loop=asyncio.get_running_loop(),
            ssl=self._context(verify) if target.scheme == "https" else True,
            proxy=self._proxy,
            proxy_headers=proxy_headers,
        )

    def _socket(self, info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self.proxied and not self._guard.allows(address[0]):
            raise _Denied(errno.EACCES, f"address not allowed: {address[0]}")
        return socket.socket(family, kind, protocol)

    def _out_of_time(self, opening: _Opening) -> NotOpened:
        if opening.handshaking:
            return NotOpened(Outcome.TLS_ERROR, "no TLS handshake in time")
        outcome = Outcome.PROXY_ERROR if self.proxied else Outcome.CONNECT_ERROR
        return NotOpened(outcome, "no connection in time")

    def _failed(self, opening: _Opening, error: Exception) -> NotOpened:
        message = _one_line(error)
        if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
            return NotOpened(Outcome.PROXY_ERROR, message)
        if (
            isinstance(error, ssl.SSLError | ssl.CertificateError | aiohttp.ClientSSLError)
            or opening.handshaking
        ):
            return NotOpened(Outcome.TLS_ERROR, message)
        if isinstance(error.__cause__, _Denied) or isinstance(error, _Denied):
            return NotOpened(Outcome.ADDRESS_DENIED, message)
        return NotOpened(Outcome.PROXY_ERROR if self.proxied else Outcome.CONNECT_ERROR, message)

    async def close(self) -> None:
        await self._connector.close()


def check_proxy(text: str) -> tuple[URL | None, str]:
    """The proxy's URL without credentials, and the Proxy-Authorization value they make.

    Raises:
        ConfigError: it is no http(s) URL.
    """
    if not text:
        return None, ""
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"configuration: fetch.proxy: {text!r} is no http(s) URL such as http://proxy:3128")
    if url.user is None:
        return url, ""
    credentials = f"{url.user}:{url.password or ''}".encode()
    return url.with_user(None), "Basic " + base64.b64encode(credentials).decode()


def _one_line(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
