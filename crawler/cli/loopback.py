"""Web sites on loopback, for the demonstration, the lab and tests. Each host has an address; all share one port."""

import contextlib
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

from aiohttp import web

from crawler.errors import UsageError

# If a program leaves the choice of a port to Linux, Linux chooses one above this range. So no other program
# gets a port of this range between the call of `free_ports` and the use of the port.
_PORTS = range(10_000, 32_768)
_TRIES = 1000


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return `count` ports of an address that were free when this was called; raise UsageError if there are fewer."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, _TRIES):
        with contextlib.suppress(OSError):
            _bound(address, port).close()
            found.append(port)
        if len(found) == count:
            return found
    raise UsageError(f"{address}: fewer than {count} ports are free")


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that was free when this was called."""
    return free_ports(1, address)[0]


def _bound(address: str, port: int) -> socket.socket:
    link = socket.socket()
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind((address, port))
    except OSError:
        link.close()
        raise
    return link


class LoopbackSites:
    """Serves sites on several addresses until it is closed. Use it as an async context manager.

    Args:
        answer: handles all requests; it may return or raise an HTTPException.
        addresses: one per host.
        port: shared by all hosts; 0: the system chooses one on entering.
        tls: for https.
    """

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        addresses: Iterable[str],
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self._addresses, self._tls = list(addresses), tls
        self._runner = web.ServerRunner(web.Server(answer, access_log=None))

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        for address in self._addresses:
            link = _bound(address, self.port)
            self.port = link.getsockname()[1]
            await web.SockSite(self._runner, link, ssl_context=self._tls).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
