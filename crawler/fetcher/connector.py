"""Opens all connections, so that none bypasses the address guard. Libraries implement the protocols of proxies.

The guard is called in `_socket`, just before it connects to an address. A guard in the resolver could be
bypassed by an address in an odd spelling. This module looks up only the names of proxies.
The addresses of all other hosts come with the fetch request. Connecting has a time limit, and so has the TLS handshake.

    addresses -> guard -> TCP, as in RFC 8305 -> (TLS) -> the connection's protocol
    SOCKS proxy (python-socks; RFC 1928) -------^
    HTTP proxy (aiohttp; CONNECT for https) ---------------> the connection's protocol

A failure raises `ConnectionNotOpened` with the outcome of the fetch.
"""

import asyncio
import base64
import errno
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import aiohappyeyeballs

from crawler.config.forms import PROXY
from crawler.errors import ConfigError
from crawler.fetcher import tls
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.connection import READ_BYTES, Connection
from crawler.fetcher.connection_error import ConnectionNotOpened, one_line
from crawler.fetcher.fetch_request import FetchLimits, Target
from crawler.fetcher.throttle import WINDOW_BYTES
from crawler.fetcher.tls import tls_outcome
from crawler.fetcher.tls_transport import Handshakes, TlsTransport
from crawler.records import Outcome

if TYPE_CHECKING:
    from yarl import URL

    from crawler.fetcher.tunnels import Tunnels

_SOCKS_TARGET = (3, 4, 5, 6)  # RFC 1928, 6: network or host unreachable, connection refused, TTL expired
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address is tried in parallel with the first (RFC 8305)


class _Denied(OSError):
    """The guard denies this address."""


class Connector:
    """Opens guarded TCP and TLS connections, direct or through `proxy` ("" = none).

    With a proxy the guard is not used, because the proxy chooses the addresses. `limited` means that there is
    a limit of bytes per second; then the kernel's receive buffer is kept small.
    """

    def __init__(self, guard: AddressGuard, proxy: str, *, limited: bool = False) -> None:
        self._guard = guard
        self._limited = limited
        self._proxy, self.authorization = check_proxy(proxy)
        self._socks = re.sub(r"^(socks[45])[ah]:", r"\1:", proxy) if proxy.startswith("socks") else ""
        self._contexts: dict[bool, tls.ResumingContext] = {}  # shared by the connectors of all proxies
        self._view = memoryview(bytearray(READ_BYTES))
        self.handshakes = Handshakes()
        self._tunnels: Tunnels | None = None
        if self._proxy is not None and not self._socks:
            # imported only if needed: importing aiohttp takes a third of the start-up time
            from crawler.fetcher import (
                tunnels,
            )

            self._tunnels = tunnels.Tunnels(self._proxy, self.authorization, self._context)

    def through(self, proxy: str) -> "Connector":
        """Return a connector through another proxy, with the same guard and TLS sessions."""
        made = Connector(self._guard, proxy, limited=self._limited)
        made._contexts = self._contexts
        return made

    @property
    def proxy(self) -> str:
        """The proxy's address without credentials; "" if there is none."""
        return "" if self._proxy is None else str(self._proxy).rstrip("/")

    @property
    def proxied(self) -> bool:
        """True if a proxy chooses the addresses."""
        return self._proxy is not None

    @property
    def forwards(self) -> bool:
        """True if the proxy is an HTTP proxy, which receives http URLs in absolute form."""
        return self._proxy is not None and not self._socks

    def _context(self, verify: bool) -> tls.ResumingContext:
        context = self._contexts.get(verify)
        # made on first use: reading the system's root certificates takes some milliseconds
        if context is None:
            context = self._contexts[verify] = tls.verifying() if verify else tls.recording()
        return context

    def keep_session(self, hostname: str, transport: asyncio.BaseTransport, *, verify: bool) -> None:
        """Remember the TLS session of a connection that worked and has ended, for a later connection to resume."""
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self._context(verify).keep(hostname, ssl_object, time.time())

    async def open(
        self,
        connection: Connection,
        target: Target,
        addresses: tuple[str, ...],
        limits: FetchLimits,
        deadline: float,
        *,
        verify: bool,
    ) -> None:
        """Open `connection`; with `verify`, require a valid certificate.

        Every time limit ends at `deadline` (monotonic time) at the latest.

        Raises:
            ConnectionNotOpened: the connection was denied, refused or timed out, or its handshake failed.
        """
        if self._tunnels is not None:
            return await self._tunnels.open(connection, target, limits, deadline, verify)
        allowed = () if self._socks else self._allowed(target, addresses)
        stream = self._stream(connection, target, verify) if target.scheme == "https" else None
        try:
            async with asyncio.timeout(min(limits.connect_timeout, deadline - time.monotonic())):
                sock = connection.sock = await self._reach(target, allowed)
                await asyncio.get_running_loop().create_connection(lambda: stream or connection, sock=sock)
        except TimeoutError as error:
            failed = Outcome.PROXY_ERROR if self._socks else Outcome.CONNECT_ERROR
            raise ConnectionNotOpened(failed, "no connection in time") from error
        except (OSError, RuntimeError) as error:
            raise ConnectionNotOpened(_denied_or(Outcome.CONNECT_ERROR, error), one_line(error)) from error
        if stream is not None:
            await self._handshake(stream, limits, deadline)
            connection.opened = "resumed" if stream.ssl_object.session_reused else "full"
            connection.connection_made(stream)

    async def _reach(self, target: Target, addresses: tuple[str, ...]) -> socket.socket:
        """Return a TCP connection to one of the addresses or, through a SOCKS proxy, to the target's name."""
        if not self._socks:
            return await self._connect(addresses, target.port)
        socks = _socks_library()
        try:
            proxy = socks.async_.asyncio.Proxy.from_url(self._socks, rdns=True)
            made = await proxy.connect(target.hostname, target.port)
        # Some errors that the proxy reports mean that the target has failed, while the proxy works.
        except socks.ProxyError as error:
            of_target = getattr(error, "error_code", None) in _SOCKS_TARGET
            failed = Outcome.CONNECT_ERROR if of_target else Outcome.PROXY_ERROR
            raise ConnectionNotOpened(failed, one_line(error)) from error
        except (OSError, socks.ProxyConnectionError) as error:
            raise ConnectionNotOpened(Outcome.PROXY_ERROR, one_line(error)) from error
        assert isinstance(made, socket.socket)
        return made

    async def _connect(self, addresses: tuple[str, ...], port: int) -> socket.socket:
        infos = [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                0,
                "",
                (address, port),
            )
            for address in addresses
        ]
        return await aiohappyeyeballs.start_connection(
            infos, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, socket_factory=self._socket
        )

    def _stream(self, connection: Connection, target: Target, verify: bool) -> TlsTransport:
        try:
            context = self._context(verify)
            return TlsTransport(connection, context, target.hostname, self._view, self.handshakes)
        # ValueError is raised for a name that no certificate can contain
        except (ValueError, ssl.SSLError) as error:
            raise ConnectionNotOpened(tls_outcome(error), one_line(error)) from error

    async def _handshake(self, stream: TlsTransport, limits: FetchLimits, deadline: float) -> None:
        try:
            async with asyncio.timeout(min(limits.tls_timeout, deadline - time.monotonic())):
                await stream.handshake()
        except TimeoutError as error:
            raise ConnectionNotOpened(Outcome.TLS_ERROR, "no TLS handshake in time") from error
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConnectionNotOpened(tls_outcome(error), one_line(error)) from error

    def _allowed(self, target: Target, addresses: tuple[str, ...]) -> tuple[str, ...]:
        if not self._guard.allows_port(target.port):
            raise ConnectionNotOpened(
                Outcome.ADDRESS_DENIED,
                f"port of another protocol: {target.port} (network.allow_ports allows it)",
            )
        if ":" in target.hostname or target.hostname.replace(".", "").isdigit():
            addresses = (target.hostname,)
        if not addresses:
            raise ConnectionNotOpened(Outcome.DNS_NOT_FOUND, f"no address for {target.hostname}")
        allowed = tuple(address for address in addresses if self._guard.allows(address))
        if not allowed:
            raise ConnectionNotOpened(Outcome.ADDRESS_DENIED, f"address not allowed: {', '.join(addresses)}")
        return allowed

    def _socket(self, info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._guard.allows(address[0]):
            raise _Denied(errno.EACCES, f"address not allowed: {address[0]}")
        made = socket.socket(family, kind, protocol)
        if self._limited:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
        return made

    async def close(self) -> None:
        if self._tunnels is not None:
            await self._tunnels.close()


def _denied_or(outcome: Outcome, error: BaseException) -> Outcome:
    return Outcome.ADDRESS_DENIED if isinstance(error, _Denied) else outcome


def check_proxy(text: str) -> "tuple[URL | None, str]":
    """Return the proxy's URL without its credentials, and the Proxy-Authorization value made from the credentials.

    Raises:
        ConfigError: the text is not a proxy URL, or the SOCKS library is not installed.
    """
    if not text:
        return None, ""
    from yarl import URL  # imported here, as few crawls have a proxy

    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if not PROXY.match(text) or not url.host:
        raise ConfigError(
            "configuration: fetch.proxy: not a proxy URL such as http://proxy:3128 or socks5://proxy:1080"
        )
    if url.scheme.startswith("socks"):
        _socks_library()
        return url.with_user(None), ""
    if url.user is None:
        return url, ""
    credentials = f"{url.user}:{url.password or ''}".encode()
    return url.with_user(None), "Basic " + base64.b64encode(credentials).decode()


def _socks_library() -> Any:
    try:
        import python_socks.async_.asyncio  # imported only if needed, which is rare
    except ImportError:
        raise ConfigError(
            "configuration: fetch.proxy: SOCKS needs python-socks: pip install 'crawler[socks]'"
        ) from None
    return python_socks
