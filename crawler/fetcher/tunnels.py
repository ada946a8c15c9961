"""Opens connections through an HTTP proxy with aiohttp: https URLs with CONNECT, and http URLs with forwarded requests.

Connecting has a time limit, and so has the TLS handshake with the target. The time of the handshake begins
when aiohttp makes the TLS object; the TLS context reports this moment.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from crawler.fetcher.connection import Connection
from crawler.fetcher.connection_error import ConnectionNotOpened, one_line
from crawler.fetcher.fetch_request import FetchLimits, Target
from crawler.fetcher.tls import ResumingContext, tls_outcome
from crawler.records import Outcome

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)


class _Tunnel:
    """One attempt to connect through a proxy: the proxy's address and the progress so far."""

    __slots__ = ("deadline", "handshaking", "scope", "tls_timeout")

    def __init__(self, tls_timeout: float, deadline: float) -> None:
        self.deadline = deadline
        self.tls_timeout = tls_timeout
        self.handshaking = False
        self.scope: asyncio.Timeout | None = None

    def handshake_began(self) -> None:
        if not self.handshaking and self.scope is not None:
            self.handshaking = True
            left = min(self.tls_timeout, self.deadline - time.monotonic())
            self.scope.reschedule(asyncio.get_running_loop().time() + left)


_tunnel: ContextVar[_Tunnel] = ContextVar("tunnel")


def _on_handshake() -> None:
    tunnel = _tunnel.get(None)
    if tunnel is not None:
        tunnel.handshake_began()


class _ProxyName(AbstractResolver):
    """Resolves the proxy's host name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [
            ResolveResult(
                hostname=host,
                host=str(entry[4][0]),
                port=port,
                family=entry[0],
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for entry in found
        ]

    async def close(self) -> None:
        pass


class Tunnels:
    """Opens connections through `proxy`; `context(verify)` returns the TLS context to use."""

    def __init__(self, proxy: URL, authorization: str, context: Callable[[bool], ResumingContext]) -> None:
        self._proxy = proxy
        self._authorization = authorization
        self._context = context
        self._connector = aiohttp.TCPConnector(
            limit=0, force_close=True, use_dns_cache=False, resolver=_ProxyName()
        )

    async def open(
        self, connection: Connection, target: Target, limits: FetchLimits, deadline: float, verify: bool
    ) -> None:
        """Open `connection`; the arguments are the same as for `Connector.open`.

        Raises:
            ConnectionNotOpened: the proxy refused or failed, or the TLS handshake failed.
        """
        tunnel = _Tunnel(limits.tls_timeout, deadline)
        token = _tunnel.set(tunnel)
        try:
            async with asyncio.timeout(min(limits.connect_timeout, deadline - time.monotonic())) as scope:
                tunnel.scope = scope
                opened = await self._connector.connect(self._request(target, verify), [], _NO_TIMEOUT)
        except TimeoutError as error:
            if tunnel.handshaking:
                raise ConnectionNotOpened(Outcome.TLS_ERROR, "no TLS handshake in time") from error
            raise ConnectionNotOpened(Outcome.PROXY_ERROR, "no connection in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _no_tunnel(tunnel, error) from error
        finally:
            # The context of the connection refers to `tunnel`. `tunnel.scope` refers to the task that opened
            # the connection. If `tunnel` kept its scope, the task would live as long as the connection.
            tunnel.scope = None
            _tunnel.reset(token)
        assert opened.transport is not None
        connection.on_close = opened.close
        opened.transport.set_protocol(connection)
        ssl_object = opened.transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            connection.opened = "resumed" if ssl_object.session_reused else "full"
        connection.connection_made(opened.transport)

    def _request(self, target: Target, verify: bool) -> aiohttp.ClientRequest:
        headers = CIMultiDict[str]()
        if self._authorization:
            headers["Proxy-Authorization"] = self._authorization
        return aiohttp.ClientRequest(
            "GET",
            URL(f"{target.scheme}://{target.host}/", encoded=True),
            loop=asyncio.get_running_loop(),
            ssl=self._tls(verify) if target.scheme == "https" else True,
            proxy=self._proxy,
            proxy_headers=headers,
        )

    def _tls(self, verify: bool) -> ResumingContext:
        context = self._context(verify)
        context.on_handshake = _on_handshake
        return context

    async def close(self) -> None:
        await self._connector.close()


def _no_tunnel(tunnel: _Tunnel, error: Exception) -> ConnectionNotOpened:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectionNotOpened(
            Outcome.PROXY_ERROR, f"the proxy answers {error.status} {error.message}"[:300]
        )
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    elif isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    message = one_line(cause)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ConnectionNotOpened(Outcome.PROXY_ERROR, message)
    failed = isinstance(error, ssl.SSLError | ssl.CertificateError | aiohttp.ClientSSLError)
    outcome = tls_outcome(cause) if failed or tunnel.handshaking else Outcome.PROXY_ERROR
    return ConnectionNotOpened(outcome, message)
