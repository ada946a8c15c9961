"""The page server: pages at GET, receivers at POST; what is answered is decided in `pages.py`."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from crawler.config import ServeConfig
from crawler.errors import CrawlerError
from crawler.serve import listener
from crawler.serve.asked import Asked, Door, parse
from crawler.serve.listening import Answer, Listener, json_reply, read_body, refusal_reply
from crawler.serve.pages import Elsewhere, PageDesk, Reply
from crawler.serve.refusal import Refusal

log = logging.getLogger("crawler")

Post = Callable[[Asked, web.BaseRequest, bytes], Awaitable[Reply]]
Forward = Callable[[web.BaseRequest, str], Awaitable[Reply]]


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
        self._config = config
        self._now = now
        self._ready = ready
        self._receive = receive
        self._forward = forward
        self._names = frozenset(name.lower() for name in config.names)
        self.answers: dict[int, int] = {}
        self.listener = Listener(
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

    async def _answer(self, request: web.BaseRequest) -> Answer:
        close = False
        try:
            reply = await self._reply(request)
        except Refusal as refusal:
            reply = refusal_reply(refusal)
            close = refusal.status in (408, 413, 415)
        except CrawlerError as error:
            log.error("serve: %s", error)
            reply = refusal_reply(Refusal(502, "damaged", "the stored copy cannot be read"))
        self.answers[reply.status] = self.answers.get(reply.status, 0) + 1
        return Answer(reply, close=close)

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
            try:
                return self._desk.reply(asked, headers, base, self._now())
            except Elsewhere as elsewhere:
                return await self._elsewhere(request, elsewhere.owner)
        if asked.door in (Door.HEALTHZ, Door.READYZ):
            return self._health(asked.door)
        if self._receive is None:
            raise Refusal(503, "at_rest", "nothing is received while the crawl does not run")
        body = b""
        if method == "POST":
            body = await read_body(request, self._config.request_body_bytes_max, self._config.idle_timeout)
        return await self._receive(asked, request, body)

    async def _elsewhere(self, request: web.BaseRequest, owner: str) -> Reply:
        if self._forward is None:
            raise Refusal(421, "elsewhere", f"process {owner} of the crawl has this page", owner=owner)
        return await self._forward(request, owner)

    def _health(self, door: Door) -> Reply:
        why = self._ready() if door is Door.READYZ else ""
        return json_reply(503 if why else 200, b'{"ok": %s}\n' % (b"false" if why else b"true"))


_PAGES = (Door.PAGE, Door.PROXY, Door.TIMEGATE, Door.TIMEMAP)


def _not_allowed(methods: str) -> Refusal:
    refusal = Refusal(405, "bad_request", f"only {methods}; nothing is ever fetched for a client")
    refusal.fields = (("Allow", methods),)
    return refusal
