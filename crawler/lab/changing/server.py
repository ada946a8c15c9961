"""Serves a changing web on loopback, with one address per host and one port. `web.ChangingWeb` makes the answers.

    web = ChangingWeb(hosts, horizon=1461 * DAY, start=clock.now())
    async with ChangingServer(web, clock) as server:
        ... crawl server.seeds() on the same clock ...
    web.freshness(begin, end)

Give the same clock to the server and to the crawl. The web's dates (Date, Last-Modified, lastmod) follow this
clock, so the crawl sees no dates in the future.
"""

import asyncio
import contextlib
import sys
from email.utils import formatdate
from ipaddress import IPv4Address
from typing import Protocol, Self

from aiohttp import web

from crawler.cli.loopback import LoopbackSites
from crawler.clock import Clock
from crawler.lab.changing.web import HostSpec, WebAnswer

FIRST_ADDRESS = IPv4Address("127.0.0.21")  # host n has the address FIRST_ADDRESS + n
HOSTS_MAX = 4000  # the number of hosts is limited, because each has a listening socket

# Configuration (TOML) for a command-line crawl of this web, without the waits that the real web requires.
LOOPBACK = """
[network]
allow_networks = ["127.0.0.0/8"]
[politeness]
delay = 0.02
delay_factor = 0.0
address_delay_share = 0.0
[sitemaps]
robots = false
[due]
max_wait = 0.2
[admin]
address = "off"
[store]
durability = "process"
"""


async def crawler(*arguments: str) -> None:
    """Run a command of the crawler; if the command fails, print its output and exit."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "crawler", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    text, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"crawler {arguments[0]}: exit {process.returncode}\n{text.decode()}")


def _address(number: int) -> str:
    return str(FIRST_ADDRESS + number)


class WebModel(Protocol):
    """A web that can be served. It begins at `start`; `origins` are the prefixes of its URLs, set by the server."""

    hosts: tuple[HostSpec, ...]
    start: float
    origins: list[str]

    def answer(self, host: int, path: str, headers: dict[str, str], now: float) -> WebAnswer:
        """Return the host's answer to a GET, and log the request; header names are in lower case."""


class ChangingServer(LoopbackSites):
    """Serves a changing web until it is closed. Use it as an async context manager."""

    def __init__(self, model: WebModel, clock: Clock) -> None:
        if len(model.hosts) > HOSTS_MAX:
            raise ValueError(f"{len(model.hosts)} hosts; there are addresses for only {HOSTS_MAX}")
        super().__init__(self._answer, map(_address, range(len(model.hosts))))
        self.model = model
        self._clock = clock
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.model.origins[:] = [f"http://{_address(n)}:{self.port}" for n in range(len(self.model.hosts))]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing.set()
        await super().__aexit__(*exc)

    async def _closes_within(self, seconds: float) -> bool:
        """Wait for this time, but at most until the server is closed; return whether it is closed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closing.is_set()

    def seeds(self) -> list[str]:
        """Return the URL of the first page of each host."""
        return [f"{origin}/" for origin in self.model.origins]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405)
        assert request.transport is not None
        address = IPv4Address(request.transport.get_extra_info("sockname")[0])
        host = int(address) - int(FIRST_ADDRESS)
        delay = self.model.hosts[host].delay(self._clock.now() - self.model.start)
        if delay and await self._closes_within(delay):
            return web.Response(status=503)
        now = self._clock.now()
        headers = {name.lower(): value for name, value in request.headers.items()}
        given = self.model.answer(host, request.path, headers, now)
        sent = {**given.headers, "Date": formatdate(now, usegmt=True)}
        return web.Response(status=given.status, headers=sent, body=given.body)

    def __repr__(self) -> str:
        return f"ChangingServer({self.model!r} on port {self.port})"
