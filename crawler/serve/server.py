"""The page server: answers GET with pages, and accepts notifications by POST; `page_handler.py` decides the answers."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec.structs import replace

from crawler.config import ServeConfig
from crawler.config.forms import http_origin
from crawler.errors import CrawlerError, ShippedError
from crawler.serve import host_check
from crawler.serve.client_headers import ClientHeaders, ClientHeadersCache, without_condition
from crawler.serve.client_headers import read as read_fields
from crawler.serve.front_page import front_page
from crawler.serve.http_error import HttpError, check_method
from crawler.serve.http_server import (
    HttpListener,
    Sending,
    ServedConnection,
    error_reply,
    json_reply,
    read_body,
    whole,
)
from crawler.serve.page_handler import MissingCopyError, OwnedByOther, PageHandler
from crawler.serve.reply import Reply
from crawler.serve.request_parsing import ParsedRequest, Route, no_such_path, parse
from crawler.serve.request_reader import ServedRequest
from crawler.serve.sibling_client import HOP, REFRESH, SiblingClient

log = logging.getLogger("crawler")

Post = Callable[[ParsedRequest, ServedRequest, bytes], Awaitable[Reply]]


class PageServer:
    """The server of `crawler serve`: answers GET with pages, and accepts notifications by POST.

    `receive` answers the POST endpoints. `siblings` are the other processes of the crawl, which answer requests
    for the pages that they own or have. Both may be missing.
    """

    def __init__(
        self,
        handler: PageHandler,
        config: ServeConfig,
        now: Callable[[], float],
        *,
        ready: Callable[[], str],
        receive: Post | None = None,
        siblings: SiblingClient | None = None,
    ) -> None:
        self._handler = handler
        self.response_cache = handler.response_cache
        self.disk_cache = handler.disk_cache
        self._config = config
        self._now = now
        self._ready = ready
        self._receive = receive
        self._siblings = siblings
        self._names = frozenset(name.lower() for name in config.names)
        self._client_headers = ClientHeadersCache()
        self.answers: dict[int, int] = {}
        # number of requests that other processes of the crawl sent or forwarded; they have counted those of clients
        self.from_siblings = 0
        self.listener = HttpListener(
            self._answer,
            now,
            connections_max=config.connections_max,
            header_bytes_max=config.header_bytes_max,
            idle_timeout=config.idle_timeout,
            write_timeout=config.write_timeout,
            again=self._again,
        )

    @property
    def answered(self) -> int:
        """The number of answers up to now."""
        return sum(self.answers.values())

    @property
    def requests(self) -> int:
        """The number of requests of clients up to now. With several processes, each request is counted by one of them."""
        return self.listener.requests - self.from_siblings

    async def start(self, text: str, *, shared: bool = False) -> tuple[str, int]:
        """Listen at "ADDRESS:PORT"; return the address in use."""
        await self.listener.start(
            host_check.parse_address(text, "serve.address"), "serve.address", shared=shared
        )
        return self.listener.address

    async def close(self) -> None:
        await self.listener.close()
        self._handler.copies.close()

    async def _answer(self, request: ServedRequest, connection: ServedConnection) -> Sending:
        close = False
        self.from_siblings += HOP in request.headers
        accept = request.headers.get("Accept", "")
        try:
            try:
                reply = await self._reply(request, connection)
            except (OwnedByOther, MissingCopyError) as elsewhere:
                passed_on = await self._passed_on(elsewhere, request)
                if passed_on is not None:
                    return passed_on
                raise
        except OwnedByOther as elsewhere:
            why = f"process {elsewhere.owner} of the crawl has this page or site"
            reply = error_reply(HttpError(421, "elsewhere", why, owner=elsewhere.owner), accept)
        except HttpError as refusal:
            reply = error_reply(refusal, accept)
            close = refusal.status in (408, 413, 415)
        except ShippedError as error:
            log.error("serve: %s", error)
            why = "the stored copy lies in object storage; the operator can bring it back"
            reply = error_reply(HttpError(503, "shipped", why), accept)
        except CrawlerError as error:
            log.error("serve: %s", error)
            reply = error_reply(HttpError(502, "damaged", "the stored copy cannot be read"), accept)
        self.answers[reply.status] = self.answers.get(reply.status, 0) + 1
        return Sending(reply, close=close)

    async def _passed_on(
        self, elsewhere: OwnedByOther | MissingCopyError, request: ServedRequest
    ) -> Sending | None:
        """Forward a request to the owner of its page, or to the process that has a copy; None if no process has one."""
        siblings = self._siblings
        if siblings is None:
            return None
        if isinstance(elsewhere, OwnedByOther):
            return None if HOP in request.headers else siblings.ask(elsewhere.owner, elsewhere.body)
        holder = None if siblings.sent(request) else await siblings.holder(elsewhere.url)
        if holder is None:
            return None
        self._handler.check_allowed(elsewhere.url)
        return siblings.ask_holder(holder, elsewhere.refresh)

    def _again(self, request: bytes) -> bytes | None:
        """Return the response if the request differs from an earlier request only in target and condition, else None."""
        line_end = request.find(b"\r\n")
        line, block = request[:line_end], request[line_end:]
        conditions: dict[str, str] = {}
        client_headers = self._client_headers.get(block)
        if client_headers is None:
            block, conditions = without_condition(block)
            client_headers = self._client_headers.get(block) if conditions else None
        if client_headers is None:
            return None
        now = self._now()
        try:
            reply = self._handler.again(line, client_headers, conditions, now)
            if reply is None and (match := _PLAIN_LINE.fullmatch(line)) is not None:
                asked = parse(match[1].decode())
                reply = self._handler.at_once(line, asked, client_headers, conditions, now)
        except (HttpError, CrawlerError):
            return None  # `handle` repeats the work and reports the error
        if reply is None:
            return None
        self.answers[reply.status] = self.answers.get(reply.status, 0) + 1
        return whole(reply, now)

    async def _reply(self, request: ServedRequest, connection: ServedConnection) -> Reply:
        method = request.method
        target = request.raw_path
        _check_method(method, target)
        host, hosts = "", request.headers.getall("Host", [])
        if target[:1] == "/":
            host = host_check.check_host(hosts, self._names)
        elif len(hosts) != 1 and request.version == (1, 1):
            raise HttpError(400, "bad_request", "send exactly one Host field")  # RFC 9112, 3.2
        asked = parse(target)
        if asked.refresh or asked.max_stale is not None or asked.door not in _READS:
            host_check.check_same_site(
                request.headers, host, "a page of another origin may not request fetches"
            )
        from_owner = self._siblings is not None and self._siblings.sent(request)
        if asked.door is Route.HELD and not from_owner:
            raise no_such_path()
        if asked.door is Route.HELD:
            return json_reply(200, msgspec.json.encode(self._handler.held_files.find(asked.url)[1]) + b"\n")
        if asked.door in _PAGES:
            base = f"http://{host}" if host else http_origin(*self.listener.address)
            client_headers = read_fields(_of_method(request), base)
            if client_headers.demand is not None and not host_check.is_same_site(request.headers, host):
                # a page of another origin may not request fetches
                client_headers = replace(client_headers, demand=None, plain=False)
            if host and method == "GET" and request.version == (1, 1):
                self._remember(request, client_headers)
            if from_owner:
                said = request.headers.get(REFRESH, "")
                return self._handler.holder_reply(asked, client_headers, self._now(), said)
            return self._handler.reply(asked, client_headers, self._now())
        if asked.door is Route.FRONT:
            return front_page()
        if asked.door in (Route.HEALTHZ, Route.READYZ):
            why = self._ready() if asked.door is Route.READYZ else ""
            return json_reply(503 if why else 200, b'{"ok": %s}\n' % (b"false" if why else b"true"))
        if self._receive is None:
            raise HttpError(503, "at_rest", "notifications are not accepted while the crawl is not running")
        body = b""
        if method == "POST":
            limit, timeout = self._config.request_body_bytes_max, self._config.idle_timeout
            body = await read_body(request, connection, limit, timeout)
        return await self._receive(asked, request, body)

    def _remember(self, request: ServedRequest, client_headers: ClientHeaders) -> None:
        """Remember the client's headers for `_again`. The key is the bytes of the header fields of the request."""
        line_end = request.raw.find(b"\r\n")
        if _PLAIN_LINE.fullmatch(request.raw[:line_end]):
            self._client_headers.put(request.raw[line_end:], client_headers)


def _of_method(request: ServedRequest) -> Mapping[str, str]:
    """Return the header fields that count for the method: a range is defined only for GET (RFC 9110, 14.2)."""
    if request.method != "HEAD" or "Range" not in request.headers:
        return request.headers
    fields = request.headers.copy()
    for name in ("Range", "If-Range"):
        fields.popall(name, None)
    return fields


_PLAIN_LINE = re.compile(rb"GET (/page\?[!\"$-~]{1,500}) HTTP/1\.1")
_PAGES = (Route.PAGE, Route.VIEW, Route.PROXY, Route.TIMEGATE, Route.TIMEMAP)
_READS = (*_PAGES, Route.FRONT, Route.HEALTHZ, Route.READYZ, Route.HELD)


_READING = ("GET", "HEAD")
_METHODS = {
    "signal": ("POST",), "indexnow": (*_READING, "POST"), "websub": (*_READING, "POST"),
    "": _READING, "page": _READING, "view": _READING, "held": _READING, "timegate": _READING, "timemap": _READING,
    "healthz": _READING, "readyz": _READING,
}  # fmt: skip


def _check_method(method: str, target: str) -> None:
    """Raise HttpError (405) if the endpoint does not have this method; a URL as target has GET and HEAD."""
    endpoint = re.split(r"[/?]", target[1:], maxsplit=1)[0] if target[:1] == "/" else ""
    if endpoint in _METHODS:  # other paths are unknown, whatever the method
        check_method(method, _METHODS[endpoint])
