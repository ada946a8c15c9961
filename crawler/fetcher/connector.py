"""Opens all connections, so that none bypasses the address guard.

The guard is called in `_socket`, just before it connects to an address. A guard in the resolver could be
bypassed by an address in an odd spelling. This module looks up only the names of proxies.
The addresses of all other hosts come with the fetch request. Connecting has a time limit, and so has the TLS handshake.

    addresses -> guard -> TCP, as in RFC 8305 ----------> (TLS) -> the connection's protocol
    SOCKS proxy (python-socks; RFC 1928) -----------------^
    HTTP proxy, with or without TLS -> CONNECT for https -^

A failure raises `ConnectionNotOpened` with the outcome of the fetch.
"""

import asyncio
import base64
import errno
import os
import re
import socket
import ssl
import time
from typing import Any, NamedTuple
from urllib.parse import unquote

import aiohappyeyeballs

from crawler.config import FetchConfig
from crawler.config.forms import proxy_url
from crawler.errors import ConfigError, CrawlerError
from crawler.fetcher import tls
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.connection import READ_BYTES, Connection
from crawler.fetcher.fetch_request import Target
from crawler.fetcher.framing import HEAD_END, BadAnswer, parse_head
from crawler.fetcher.throttle import WINDOW_BYTES
from crawler.fetcher.tls import tls_outcome
from crawler.fetcher.tls_transport import Handshakes, TlsTransport
from crawler.records import Outcome
from crawler.wording import to_install

_SOCKS_TARGET = (3, 4, 5, 6)  # RFC 1928, 6: network or host unreachable, connection refused, TTL expired
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address is tried in parallel with the first (RFC 8305)
_HEAD_BYTES_MAX = 64 << 10  # maximum size of the header block with which a proxy answers CONNECT


class ConnectionNotOpened(CrawlerError):
    """No connection could be opened; `outcome` gives the reason."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class _Denied(OSError):
    """The guard denies this address."""


class Proxy(NamedTuple):
    """A proxy. `url` is its URL in the form that the SOCKS library reads, `address` is its URL without credentials.

    `authorization` is the Proxy-Authorization value made from the credentials, or "".
    """

    url: str
    address: str
    host: str
    port: int
    authorization: str

    @property
    def forwards(self) -> bool:
        """True for an HTTP proxy, which receives http URLs in absolute form."""
        return self.url.startswith("http")


class _Tunnel(asyncio.Protocol):
    """Requests a tunnel from an HTTP proxy."""

    def __init__(self) -> None:
        self._head = b""
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, transport: Any, target: Target, proxy: Proxy) -> None:
        """Open a tunnel to `target`.

        Raises:
            ConnectionNotOpened: the proxy refused.
            BadAnswer: the proxy's answer is not valid HTTP.
            OSError: the connection was lost.
        """
        name = f"[{target.hostname}]" if ":" in target.hostname else target.hostname
        login = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        place = f"{name}:{target.port}"
        transport.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{login}\r\n".encode("latin-1"))
        await self._answered
        head = parse_head(self._head, fields_max=_HEAD_BYTES_MAX, field_bytes_max=_HEAD_BYTES_MAX)
        if not 200 <= head.status < 300:
            said = f"the proxy answers {head.status} {head.reason}"[:300]
            raise ConnectionNotOpened(Outcome.PROXY_ERROR, said)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if HEAD_END.search(self._head) and not self._answered.done():
            self._answered.set_result(None)
        elif len(self._head) > _HEAD_BYTES_MAX:
            self.connection_lost(ConnectionResetError("the proxy's header block is too large"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(error or ConnectionResetError("the proxy closed the connection"))


class Connector:
    """Opens guarded TCP and TLS connections, direct or through `proxy` ("" = none).

    With a proxy the guard is not used, because the proxy chooses the addresses. `limited` means that there is
    a limit of bytes per second; then the kernel's receive buffer is kept small.
    """

    def __init__(self, guard: AddressGuard, proxy: str, *, limited: bool = False) -> None:
        self._guard = guard
        self._limited = limited
        self.proxy = check_proxy(proxy)
        self._contexts: dict[bool, tls.ResumingContext] = {}  # shared by the connectors of all proxies
        self._view = memoryview(bytearray(READ_BYTES))
        self.handshakes = Handshakes()

    def through(self, proxy: str) -> "Connector":
        """Return a connector through another proxy, with the same guard and TLS sessions."""
        made = Connector(self._guard, proxy, limited=self._limited)
        made._contexts = self._contexts
        return made

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
        limits: FetchConfig,
        deadline: float,
        *,
        verify: bool,
    ) -> None:
        """Open `connection`; with `verify`, require a valid certificate.

        Every time limit ends at `deadline` (monotonic time) at the latest.

        Raises:
            ConnectionNotOpened: the connection was denied, refused or timed out, or its handshake failed.
        """
        proxy = self.proxy
        allowed = () if proxy is not None else self._allowed(target, addresses)
        stream = self._stream(connection, target, verify) if target.scheme == "https" else None
        failed = Outcome.CONNECT_ERROR if proxy is None else Outcome.PROXY_ERROR
        try:
            async with asyncio.timeout(min(limits.connect_timeout, deadline - time.monotonic())):
                if proxy is not None and proxy.forwards:
                    await self._tunnel(proxy, target, stream or connection)
                else:
                    reaching = self._connect(allowed, target.port) if proxy is None else _reach(proxy, target)
                    sock = connection.sock = await reaching
                    await asyncio.get_running_loop().create_connection(
                        lambda: stream or connection, sock=sock
                    )
        except TimeoutError as error:
            raise ConnectionNotOpened(failed, "no connection in time") from error
        except (OSError, RuntimeError, BadAnswer) as error:
            failed = Outcome.ADDRESS_DENIED if isinstance(error, _Denied) else failed
            raise ConnectionNotOpened(failed, one_line(error)) from error
        if stream is not None:
            await self._handshake(stream, limits, deadline)
            connection.opened = "resumed" if stream.ssl_object.session_reused else "full"
            connection.connection_made(stream)

    async def _tunnel(self, proxy: Proxy, target: Target, protocol: asyncio.BufferedProtocol) -> None:
        """Connect `protocol` to an HTTP proxy or, for an https target, to the target through a tunnel of the proxy."""
        loop = asyncio.get_running_loop()
        context = self._context(True) if proxy.address.startswith("https:") else None
        if target.scheme == "http":
            await loop.create_connection(lambda: protocol, proxy.host, proxy.port, ssl=context)
            return
        transport, tunnel = await loop.create_connection(_Tunnel, proxy.host, proxy.port, ssl=context)
        try:
            await tunnel.open(transport, target, proxy)
        except BaseException:
            transport.abort()
            raise
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

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

    async def _handshake(self, stream: TlsTransport, limits: FetchConfig, deadline: float) -> None:
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


async def _reach(proxy: Proxy, target: Target) -> socket.socket:
    """Return a TCP connection to the target's name through a SOCKS proxy."""
    socks = _socks_library()
    try:
        made = await socks.async_.asyncio.Proxy.from_url(proxy.url, rdns=True).connect(
            target.hostname, target.port
        )
    # Some errors that the proxy reports mean that the target has failed, while the proxy works.
    except socks.ProxyError as error:
        of_target = getattr(error, "error_code", None) in _SOCKS_TARGET
        failed = Outcome.CONNECT_ERROR if of_target else Outcome.PROXY_ERROR
        raise ConnectionNotOpened(failed, one_line(error)) from error
    except (OSError, socks.ProxyConnectionError) as error:
        raise ConnectionNotOpened(Outcome.PROXY_ERROR, one_line(error)) from error
    assert isinstance(made, socket.socket)
    return made


def one_line(error: BaseException) -> str:
    """Return an exception's name and message on one line."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    if isinstance(error, OSError) and error.errno:  # replace the event loop's wording with the system's
        text = re.sub(r"\[?Connect call failed \([^)]*\)\]?", os.strerror(error.errno), text)
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def check_proxy(text: str) -> Proxy | None:
    """Return the proxy with this URL; None if the text is "".

    Raises:
        ConfigError: the text is not a proxy URL, or the SOCKS library is not installed.
    """
    if not text:
        return None
    parts, (host, port) = proxy_url(text)
    authorization = ""
    if parts.scheme.startswith("socks"):
        _socks_library()
    elif parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(login.encode()).decode()
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    url = re.sub(r"^(socks[45])[ah]:", r"\1:", text)
    return Proxy(url, address, host, port, authorization)


def _socks_library() -> Any:
    try:
        import python_socks.async_.asyncio  # imported only if needed, which is rare
    except ImportError:
        raise ConfigError(f"SOCKS needs python-socks: {to_install('socks')}") from None
    return python_socks
