"""The page server: pages at GET, receivers at POST; what is answered is decided in `pages.py`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

from crawler.config import ServeConfig
from crawler.errors import CrawlerError
from crawler.serve import listener
from crawler.serve.asked import Asked, Door, parse
from crawler.serve.listening import (
    HttpListener,
    Sending,
    json_reply,
    plain_error,
    read_body,
    refusal_reply,
    short_path,
)
from crawler.serve.pages import Elsewhere, PageDesk
from crawler.serve.refusal import Refusal
from crawler.serve.reply import Reply

log = logging.getLogger("crawler")

Post = Callable[[Asked, web.BaseRequest, bytes], Awaitable[Reply]]
Forward = Callable[[str], Sending]


class PageServer:
    """`crawler serve`: pages at GET, receivers at POST.

    `receive` answers the doors that take something in, `forward` asks the
    process that owns a page; either may be missing.
    """

    def __init__(
        self,
        desk: PageDesk,
        config: ServeConfig,
        now: Callable[[], float],
        *,
        ready: Callable[[], str],
        receive: Post | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._desk = desk
        self.shelf = desk.shelf
        self._config = config
        self._now = now
        self._ready = ready
        self._receive = receive
        self._forward = forward
        self._names = frozenset(name.lower() for name in config.names)
        self.answers: dict[int, int] = {}
        self.listener = HttpListener(
            self._answer,
            now,
            connections_max=config.connections_max,
            header_bytes_max=config.header_bytes_max,
            idle_timeout=config.idle_timeout,
            write_timeout=config.write_timeout,
        )

    async def start(self, text: str, *, shared: bool = False) -> tuple[str, int]:
        """Listen at "ADDRESS:PORT"; the address it is."""
        await self.listener.start(
            listener.parse_address(text, "serve.address"), "serve.address", shared=shared
        )
        return self.listener.address

    async def close(self) -> None:
        await self.listener.close()

    async def _answer(self, request: web.BaseRequest) -> Sending:
        close = False
        try:
            reply = await self._reply(request)
        except Elsewhere as elsewhere:
            if self._forward is not None and _HOP not in request.headers:
                return self._forward(elsewhere.owner)
            why = f"process {elsewhere.owner} of the crawl has this page"
            reply = refusal_reply(Refusal(421, "elsewhere", why, owner=elsewhere.owner))
        except Refusal as refusal:
            reply = refusal_reply(refusal)
            close = refusal.status in (408, 413, 415)
        except CrawlerError as error:
            log.error("serve: %s", error)
            reply = refusal_reply(Refusal(502, "damaged", "the stored copy cannot be read"))
        self.answers[reply.status] = self.answers.get(reply.status, 0) + 1
        return Sending(reply, close=close)

    async def _reply(self, request: web.BaseRequest) -> Reply:
        method = request.method
        if method not in ("GET", "HEAD", "POST"):
            raise _not_allowed("GET, HEAD")
        target = request.raw_path
        host = ""
        if target[:1] == "/":
            host = listener.check_host(request.headers.getall("Host", []), self._names)
        asked = parse(target)
        headers: Mapping[str, str] = request.headers
        if asked.door in _PAGES:
            if method == "POST":
                raise _not_allowed("GET, HEAD")
            base = f"http://{host or '{}:{}'.format(*self.listener.address)}"
            return self._desk.reply(asked, headers, base, self._now())
        if asked.door in (Door.HEALTHZ, Door.READYZ):
            return self._health(asked.door)
        if self._receive is None:
            raise Refusal(503, "at_rest", "nothing is received while the crawl does not run")
        body = b""
        if method == "POST":
            body = await read_body(request, self._config.request_body_bytes_max, self._config.idle_timeout)
        return await self._receive(asked, request, body)

    def _health(self, door: Door) -> Reply:
        why = self._ready() if door is Door.READYZ else ""
        return json_reply(503 if why else 200, b'{"ok": %s}\n' % (b"false" if why else b"true"))


_PAGES = (Door.PAGE, Door.PROXY, Door.TIMEGATE, Door.TIMEMAP)


def _not_allowed(methods: str) -> Refusal:
    refusal = Refusal(405, "bad_request", f"only {methods}; nothing is ever fetched for a client")
    refusal.fields = (("Allow", methods),)
    return refusal


_HOP = "X-Crawler-Hop"  # on a request that a sibling passed on: it is never passed on again
SOCKET = "serve.sock"


def forward_to_sibling(folder: Path) -> Sending:
    """The answer of the process whose folder that is, passed on as it comes."""
    return _Forwarded(folder)


class _Forwarded(Sending):
    def __init__(self, folder: Path) -> None:
        super().__init__(Reply(200, b"", 0), close=True)
        self._folder = folder
        self._head = b""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Note what to ask; the connection ends with the answer, whose length is the sibling's affair."""
        self._connection = request.protocol  # type: ignore[assignment]
        self.keep_alive = False
        kept = [
            f"{name}: {value}"
            for name, value in request.headers.items()
            if name.lower() not in _NOT_PASSED_ON
        ]
        lines = [
            f"{request.method} {request.raw_path} HTTP/1.1",
            *kept,
            f"{_HOP}: 1",
            "Connection: close",
            "",
            "",
        ]
        self._head = "\r\n".join(lines).encode("utf-8", "surrogateescape")

    async def write_eof(self) -> None:
        assert self._connection is not None
        try:
            with short_path(self._folder, SOCKET) as path:
                reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            why = f"process {self._folder.name}, which has the page, does not answer: {error.strerror}"
            self._write(plain_error(503, "elsewhere", why))
            return
        try:
            writer.write(self._head)
            while data := await reader.read(1 << 16):
                self._write(data)
                await self._connection.room()
        finally:
            writer.close()

    def _write(self, data: bytes) -> None:
        assert self._connection is not None
        if self._connection.transport is None:
            raise ConnectionResetError("the client has gone")
        self._connection.transport.write(data)  # type: ignore[attr-defined]


_NOT_PASSED_ON = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "content-length",
    "expect",
)
