"""Serves the synthetic web on loopback, for real crawlers. Each host has an address; all have the same port.

    web = SyntheticWeb(spec, seed, start=clock.now(), name=names(port))
    async with WebServer(web, clock, port) as server:
        ... crawl server.seed ...
    server.log

Hosts are 127.64.0.1, 127.64.0.2, ... The crawler must be allowed to fetch from loopback addresses. Delays are
real. If a host is down or resets a connection, the server closes the connection without an answer. With a
certificate, the server uses TLS; `WebSpec.scheme` must then be "https". With `packed`, bodies are compressed
for clients that accept gzip. With `closing`, each answer closes its connection.
"""

import asyncio
import gzip
import ssl
from collections import Counter
from collections.abc import Callable

import msgspec
from aiohttp import web

from crawler.cli.loopback import LoopbackSites
from crawler.clock import Clock
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebReply

HOSTS_MAX = 4000  # the number of hosts is limited, because each has a listening socket
LOG_MAX = 10_000_000
GZIP_LEVEL = 6


class Served(msgspec.Struct, frozen=True, gc=False):
    """A request: its time, host and path, the status, page and version of the answer, and the client's User-Agent."""

    at: float
    host: str
    path: str
    status: int
    page: int
    version: int
    agent: str


def address(number: int) -> str:
    """Return the address at which host `number`, counted from 0, listens."""
    return f"127.64.{(number + 1) >> 8 & 255}.{(number + 1) & 255}"


def names(port: int) -> Callable[[int], str]:
    """Return a function that converts the number of a host to the name of the host in URLs."""
    return lambda number: f"{address(number)}:{port}"


class WebServer(LoopbackSites):
    """Serves a synthetic web until it is closed. Use it as an async context manager."""

    def __init__(
        self,
        model: SyntheticWeb,
        clock: Clock,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        packed: bool = False,
        closing: bool = False,
    ) -> None:
        assert len(model.hosts) <= HOSTS_MAX, model
        super().__init__(self._answer, map(address, range(len(model.hosts))), port=port, tls=tls)
        self.model = model
        self._packed, self._closing = packed, closing
        self.log: list[Served] = []
        self._clock = clock
        self._times: Counter[tuple[str, str]] = Counter()

    @property
    def seed(self) -> str:
        """The URL of the page from which all others can be reached."""
        return self.model.url(0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        name, path = self._name(request.headers.get("Host", "")), request.path_qs
        if request.method not in ("GET", "HEAD") or not self.model.exists(name):
            return web.Response(status=405 if self.model.exists(name) else 421)
        key = (name, path)
        tag = request.headers.get("If-None-Match", "")
        now = self._clock.now()
        reply = self.model.answer(name, path, now, asked=self._times[key], etag=tag)
        self._times[key] += 1
        self._note(now, key, reply, request.headers.get("User-Agent", ""))
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.failure is not None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        headers = {"Content-Type": f"{reply.content_type}; charset=utf-8"}
        headers |= {"ETag": reply.etag} if reply.etag else {}
        headers |= {"Location": reply.location} if reply.location else {}
        body = reply.body
        if self._packed and body and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"], body = "gzip", gzip.compress(body, GZIP_LEVEL)
        response = web.Response(status=reply.status, headers=headers, body=body)
        if self._closing:
            response.force_close()
        return response

    def _name(self, host: str) -> str:
        """Return the host's name in URLs, with the port.

        The port is added if it is missing, because some clients (wget2) omit it in the Host field.
        """
        return host if self.model.exists(host) else f"{host}:{self.port}"

    def _note(self, now: float, key: tuple[str, str], reply: WebReply, agent: str) -> None:
        if len(self.log) < LOG_MAX:
            self.log.append(Served(now, *key, reply.status, reply.page, reply.version, agent))

    def __repr__(self) -> str:
        return f"WebServer({self.model!r} on port {self.port}, {len(self.log)} requests)"
