"""The shell of our HTTP servers: connections, limits and bytes.

aiohttp parses requests and keeps connections; the answer's bytes are ours, since a
stored answer is sent as it was received. Limits, each a key of `[serve]`: connections
(`connection_places.py`), bytes of a request header, time without a whole header, time
in which a client must take what is buffered for it.

`start` opens a listener. `close` ends it and gives answers under way a moment.
"""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from crawler.errors import ConfigError, CrawlerError
from crawler.serve.answers import UNKNOWN_LENGTH
from crawler.serve.connection_places import ConnectionPlaces
from crawler.serve.fields import SANDBOX, head, http_date
from crawler.serve.refusal import Refusal
from crawler.serve.reply import Reply

log = logging.getLogger("crawler")

SWEEP_INTERVAL = 1.0  # seconds between looks for clients that keep us waiting
CLOSE_GRACE = 1.0  # seconds that answers under way are given at the end
BACKLOG = 512
_DESCRIPTORS = 65_536  # that are asked for, if the system allows so many
PAUSE_PIECES = 4  # pieces of a streamed body after which other work gets a turn
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_REASONS = {
    200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 413: "Content Too Large",
    414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 421: "Misdirected Request",
    422: "Unprocessable Content", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_JSON = ((b"Content-Type", b"application/json"), *SANDBOX[1:])

Handle = Callable[[web.BaseRequest], Awaitable["Sending"]]


def json_reply(status: int, content: bytes, more: tuple[tuple[str, str], ...] = ()) -> Reply:
    """A reply that holds JSON."""
    fields = [*_JSON, *((name.encode(), value.encode("latin-1", "replace")) for name, value in more)]
    return Reply(status, head(status, _REASONS.get(status, "Unknown"), fields), len(content), content)


def plain_error(status: int, state: str, why: str) -> bytes:
    """A whole response that says why there is no other, and ends the connection."""
    reply = refusal_reply(Refusal(status, state, why))
    assert reply.body is not None
    return reply.head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % reply.length + reply.body


@contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """A path to a file of a folder that is short enough for a socket's name (107 bytes)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def refusal_reply(refusal: Refusal) -> Reply:
    return json_reply(refusal.status, refusal.content(), refusal.fields)


def whole(reply: Reply, now: float) -> bytes:
    """A reply with its body as it goes to a client of HTTP/1.1 that stays."""
    assert reply.body is not None
    date = http_date(int(now)).encode()
    return b"%bDate: %b\r\nContent-Length: %d\r\n\r\n%b" % (reply.head, date, reply.length, reply.body)


class Sending:
    """A reply on its way: what aiohttp's server asks of a response."""

    __slots__ = ("_connection", "_reply", "keep_alive")

    def __init__(self, reply: Reply, *, close: bool = False) -> None:
        self._reply = reply
        self._connection: ServedConnection | None = None
        self.keep_alive = not close

    @property
    def status(self) -> int:
        return self._reply.status

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write the head, and the body if it is held."""
        reply = self._reply
        connection: Any = request.protocol
        self._connection = connection
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        bodiless = request.method == "HEAD" or reply.status in (204, 304)
        old = request.version < (1, 1)
        self.keep_alive = self.keep_alive and request.keep_alive
        lines = [reply.head, b"Date: ", http_date(int(connection.wall_time())).encode()]
        if reply.length != UNKNOWN_LENGTH and reply.status not in (204, 304):
            lines.append(b"\r\nContent-Length: %d" % reply.length)
        elif not old and reply.status not in (204, 304):
            lines.append(b"\r\nTransfer-Encoding: chunked")
        else:
            self.keep_alive = self.keep_alive and reply.status in (204, 304)
        if not self.keep_alive:
            lines.append(b"\r\nConnection: close\r\n\r\n")
        else:
            lines.append(b"\r\nConnection: keep-alive\r\n\r\n" if old else b"\r\n\r\n")
        if reply.body is not None and not bodiless:
            lines.append(reply.body)
        transport.write(b"".join(lines))
        if reply.body is None and reply.pieces is not None and not bodiless:
            await self._stream(transport, chunked=reply.length == UNKNOWN_LENGTH and not old)

    async def _stream(self, transport: asyncio.Transport, *, chunked: bool) -> None:
        """Write the pieces, each as soon as the client has taken those before it."""
        assert self._reply.pieces is not None and self._connection is not None
        pieces = self._reply.pieces()
        try:
            for number, piece in enumerate(pieces, 1):
                transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await self._connection.room()
                if number % PAUSE_PIECES == 0:
                    await asyncio.sleep(0)
        except CrawlerError as error:  # too late for a status: the client sees a body cut short
            log.error("serve: %s", error)
            transport.abort()
            raise ConnectionResetError(str(error)) from error
        finally:
            pieces.close()  # type: ignore[attr-defined]  # they are generators, or iterators without a file
        if chunked:
            transport.write(b"0\r\n\r\n")

    async def write_eof(self) -> None:
        """The end: wait until the client has taken what is buffered, so that pipelined requests pile up nothing."""
        if self._connection is not None:
            await self._connection.room()


class ServedConnection(RequestHandler):
    """One client; tells its listener whose turn it is, and bounds its header and its slowness.

    `read` is the request that came last, if each read so far held exactly one without a body; else empty.
    """

    __slots__ = (
        "_body",
        "_header_bytes",
        "_listener",
        "_one_each",
        "_requests_before",
        "_room",
        "_stuck",
        "read",
    )

    def __init__(self, manager: web.Server, listener: "HttpListener", **options: Any) -> None:
        super().__init__(manager, **options)
        self._listener = listener
        self._header_bytes = 0
        self._requests_before = 0
        self._one_each = True
        self.read = b""
        self._body: StreamReader | None = None  # of the request that came last
        self._room: asyncio.Future[None] | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def wall_time(self) -> float:
        return self._listener.now()

    def loop_time(self) -> float:
        return self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.places.leave(self)
        self._let_write()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer at once, or parse; what belongs to no whole request may not exceed the header's limit."""
        one = self._one_each and data.find(b"\r\n\r\n") == len(data) - 4
        if one and self._at_rest() and (response := self._listener.answered(self, data)) is not None:
            self.transport.write(response)  # type: ignore[union-attr]
            return
        self.read = data if one else b""
        in_body = self._body is not None and not self._body.is_eof()
        super().data_received(data)
        if self._request_count != self._requests_before:  # a header came whole
            self._requests_before, self._header_bytes = self._request_count, 0
            self._body = self._messages[-1][1] if self._messages else None
            self._one_each = one and self._body is not None and self._body.is_eof()
        elif not in_body:
            self._one_each = False
            self._header_bytes += len(data)
            if self._header_bytes > self._listener.header_bytes_max and self.transport is not None:
                self.transport.write(_TOO_LARGE)  # type: ignore[attr-defined]
                self.force_close()

    def _at_rest(self) -> bool:
        """Whether all requests so far are answered and taken: the next may be answered at once."""
        return (
            self._waiter is not None
            and not self._waiter.done()
            and self._room is None
            and not self._buffer_paused
            and not self._close
            and not self._force_close
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        loop = asyncio.get_running_loop()
        self._room = loop.create_future()
        self._stuck = loop.call_later(self._listener.write_timeout, self.drop)
        self._listener.places.wait(self, loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._listener.places.serve(self)
        self._let_write()

    def _let_write(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    async def room(self) -> None:
        """Wait until the client has taken most of what is buffered for it."""
        if self._room is not None:
            await self._room
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has gone")

    def drop(self) -> None:
        """Close at once, whatever is buffered."""
        if self.transport is not None:
            self.transport.abort()  # type: ignore[attr-defined]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Any:
        """The answer to what is no HTTP, or to a bug of ours; a client that goes in the middle is none."""
        if status == 500:
            if not isinstance(exc, ConnectionError):
                log.error("serve: a request failed", exc_info=exc)
            return Sending(
                refusal_reply(Refusal(500, "error", "an error of the server; its log has it")), close=True
            )
        if isinstance(exc, LineTooLong):
            return Sending(
                refusal_reply(Refusal(431, "bad_request", "a header line is too long")), close=True
            )
        return Sending(refusal_reply(Refusal(status, "bad_request", "this is no HTTP request")), close=True)


class _Server(web.Server):
    def __init__(self, listener: "HttpListener", handle: Handle) -> None:
        super().__init__(handle, access_log=None)  # type: ignore[arg-type]
        self._listener = listener

    def __call__(self) -> ServedConnection:
        return ServedConnection(
            self,
            self._listener,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=86_400,  # the listener ends idle connections
            max_line_size=self._listener.header_bytes_max,
            max_field_size=self._listener.header_bytes_max,
            max_headers=128,
            lingering_time=2.0,
            auto_decompress=False,
            access_log=None,
        )


class HttpListener:
    """An address on which `handle` answers; `now` gives the wall time.

    `again` is asked first: the whole response to the bytes of a request, None = `handle` answers it.
    """

    def __init__(
        self,
        handle: Handle,
        now: Callable[[], float],
        *,
        connections_max: int,
        header_bytes_max: int,
        idle_timeout: float,
        write_timeout: float,
        again: Callable[[bytes], bytes | None] = lambda request: None,
    ) -> None:
        self.now = now
        self.header_bytes_max = max(header_bytes_max, 1024)
        self.write_timeout = write_timeout
        self.places: ConnectionPlaces[ServedConnection] = ConnectionPlaces(connections_max, idle_timeout)
        self.address: tuple[str, int] = ("", 0)
        self.requests = 0
        self._handle = handle
        self._again = again
        self._made: _Server | None = None
        self._sockets: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def _server(self) -> _Server:
        """aiohttp's server, made in the loop it is for."""
        if self._made is None:
            self._made = _Server(self, self._count)
        return self._made

    async def _count(self, request: web.BaseRequest) -> Sending:
        connection: Any = request.protocol
        self.places.serve(connection)
        self.requests += 1
        try:
            return await self._handle(request)
        finally:
            self.places.wait(connection, asyncio.get_running_loop().time())

    def answered(self, connection: ServedConnection, request: bytes) -> bytes | None:
        """The response to a request that need not be parsed, if it is one."""
        response = self._again(request)
        if response is not None:
            self.requests += 1
            self.places.answered(connection, connection.loop_time())
        return response

    async def start(self, address: tuple[str, int], key: str, *, shared: bool = False) -> None:
        """Listen; port 0 = any. With `shared` several processes may listen on one port.

        Raises:
            ConfigError: nobody can listen there, or somebody does.
        """
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                self._server, *address, backlog=BACKLOG, reuse_port=True if shared else None
            )
        except OSError as error:
            raise ConfigError(
                f"{key}: cannot listen on {address[0]}:{address[1]}: {_cause(error)}"
            ) from error
        self._sockets.append(server)
        self.address = server.sockets[0].getsockname()[:2]
        self._sweep_from_now_on()

    async def start_on(self, sock: socket.socket) -> None:
        """Answer what comes to a socket that listens already, clients in its queue first."""
        server = await asyncio.get_running_loop().create_server(self._server, sock=sock, backlog=BACKLOG)
        self._sockets.append(server)
        self.address = sock.getsockname()[:2]
        self._sweep_from_now_on()

    async def start_unix(self, folder: Path, name: str = "serve.sock") -> None:
        """Listen on a Unix socket too, for siblings; a dead one's is taken over."""
        loop = asyncio.get_running_loop()
        (folder / name).unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX)
        with short_path(folder, name) as path:
            made.bind(path)
        (folder / name).chmod(0o600)
        self._sockets.append(await loop.create_unix_server(self._server, sock=made))
        self._sweep_from_now_on()

    def _sweep_from_now_on(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def enter(self, connection: ServedConnection) -> None:
        """A client has connected: it stays, perhaps in the place of another, or goes."""
        stays, victim = self.places.enter(connection, asyncio.get_running_loop().time())
        if victim is not None:
            victim.drop()
        if not stays and connection.transport is not None:
            connection.transport.write(_FULL)  # type: ignore[attr-defined]
            connection.force_close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL)
            for connection in self.places.overdue(asyncio.get_running_loop().time()):
                self.places.leave(connection)
                connection.drop()

    async def close(self) -> None:
        """Take no new clients, end the present ones."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for server in self._sockets:
            server.close()
        if self._made is not None:
            await self._made.shutdown(CLOSE_GRACE)


def _cause(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


async def read_body(request: web.BaseRequest, bytes_max: int, timeout: float) -> bytes:
    """The body of a request.

    Raises:
        Refusal: 408, 413 or 415: it is slow, large, or coded.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refusal(415, "bad_request", "send the body without a content coding")
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > bytes_max:
                    raise Refusal(413, "bad_request", f"a body has at most {bytes_max} bytes")
    except TimeoutError:
        raise Refusal(408, "bad_request", "the body did not come in time") from None
    return b"".join(parts)


def more_descriptors() -> None:
    """Let this process open as many files as it may: clients must not take those of fetches."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
