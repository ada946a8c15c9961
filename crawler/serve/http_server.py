"""The I/O shell of the HTTP servers: connections, limits and bytes.

`request_reader.py` parses requests. This module composes the bytes of responses itself, because a stored
answer is sent exactly as it was received. Each limit has a key in `[serve]`: the number of connections
(`connection_slots.py`), the bytes of a request header, the time until the header is complete, and the time in
which a client must read the data buffered for it.

`start` opens a listener. `close` closes the listener, with a grace period for answers in progress.
"""

import asyncio
import logging
import resource
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import cast

from crawler.errors import CrawlerError, blame_of_system
from crawler.serve.connection_slots import ConnectionSlots
from crawler.serve.dates import dates_of
from crawler.serve.header_fields import SANDBOX, head
from crawler.serve.http_error import HttpError, wants_page
from crawler.serve.listening_socket import cannot_listen
from crawler.serve.reply import Reply
from crawler.serve.representation import UNKNOWN_LENGTH
from crawler.serve.request_reader import RequestReader, ServedRequest
from crawler.unix_sockets import short_path

log = logging.getLogger("crawler")

SWEEP_INTERVAL = 1.0  # seconds between checks for clients that keep the server waiting
CLOSE_GRACE = 1.0  # number of seconds that answers in progress get at shutdown
# number of seconds for which a client's data is read and discarded before its connection is closed
LINGERING = 2.0
LINGERING_BYTES = 256 << 10  # maximum number of bytes that are discarded before the connection is closed
# maximum number of bytes of a request body held in memory; while there are more, nothing is read
BODY_HELD = 64 << 10
BACKLOG = 512
_DESCRIPTORS = 65_536  # number of file descriptors that the process requests, if the system allows that many
PAUSE_PIECES = 4  # number of pieces of a streamed body that are sent before other tasks may run
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_JSON = ((b"Content-Type", b"application/json"), *SANDBOX[1:])

Handle = Callable[[ServedRequest, "ServedConnection"], Awaitable["Sending"]]


def json_reply(status: int, content: bytes) -> Reply:
    """Return a reply with a JSON body."""
    return Reply(status, head(status, _REASONS[status], _JSON), len(content), content)


def whole_error(refusal: HttpError) -> bytes:
    """Return a complete error response that ends the connection."""
    reply = error_reply(refusal)
    assert reply.body is not None
    return reply.head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % reply.length + reply.body


def error_reply(refusal: HttpError, accept: str = "") -> Reply:
    """Return the reply that reports an error.

    The reply is a page if `accept` is the Accept field of a browser, and JSON otherwise.

    The reply must not be cached, because the page may be fetched or withdrawn at any time.
    """
    status, reason = refusal.status, _REASONS[refusal.status]
    readable = wants_page(accept)
    kind = b"text/html; charset=utf-8" if readable else b"application/json"
    content = refusal.page(reason) if readable else refusal.content()
    fields = [(b"Content-Type", kind), (b"Cache-Control", b"no-store"), *SANDBOX]
    fields += [(name.encode(), value.encode("latin-1", "replace")) for name, value in refusal.fields]
    return Reply(status, head(status, reason, fields), len(content), content)


def whole(reply: Reply, now: float) -> bytes:
    """Return a whole reply as bytes, with its body, for an HTTP/1.1 client whose connection stays open."""
    assert reply.body is not None
    date = dates_of(int(now)).field
    if reply.status in (204, 304):
        return b"%bDate: %b\r\n\r\n" % (reply.head, date)
    return b"%bDate: %b\r\nContent-Length: %d\r\n\r\n%b" % (reply.head, date, reply.length, reply.body)


class Sending:
    """A reply that is being sent to one client. After `send`, `keep_alive` tells whether the connection may continue."""

    __slots__ = ("_connection", "_reply", "keep_alive")

    def __init__(self, reply: Reply, *, close: bool = False) -> None:
        self._reply = reply
        self._connection: ServedConnection
        self.keep_alive = not close

    @property
    def status(self) -> int:
        return self._reply.status

    async def send(self, request: ServedRequest, connection: "ServedConnection") -> None:
        """Write the answer; return once the client has read most of it, so that pipelined answers do not accumulate."""
        self._connection = connection
        self.keep_alive = self.keep_alive and request.keep_alive
        await self.write(request)
        await connection.room()

    async def write(self, request: ServedRequest) -> None:
        """Write head and body."""
        reply = self._reply
        connection = self._connection
        bodiless = request.method == "HEAD" or reply.status in (204, 304)
        old = request.version < (1, 1)
        lines = [reply.head, b"Date: ", dates_of(int(connection.wall_time())).field]
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
        connection.write(b"".join(lines))
        if reply.body is None and reply.pieces is not None and not bodiless:
            await self._stream(chunked=reply.length == UNKNOWN_LENGTH and not old)

    async def _stream(self, *, chunked: bool) -> None:
        """Write the pieces, each as soon as the client has read the previous ones."""
        assert self._reply.pieces is not None
        connection = self._connection
        pieces = self._reply.pieces()
        try:
            for number, piece in enumerate(pieces, 1):
                connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await connection.room()
                if number % PAUSE_PIECES == 0:
                    await asyncio.sleep(0)
        except CrawlerError as error:
            # it is too late for an error status, so the client sees a truncated body
            log.error("serve: %s", error)
            connection.drop()
            raise ConnectionResetError(str(error)) from error
        finally:
            if isinstance(pieces, Generator):  # only a generator may hold a file open
                pieces.close()
        if chunked:
            connection.write(b"0\r\n\r\n")


class ServedConnection(asyncio.Protocol):
    """A connection to one client: answers the client's requests in order, and limits header size and waiting times.

        waiting --request--> answering --last answer read--> waiting, or lingering --> closed

    Reading pauses while more than one request is queued, or while much of a body is held in memory.
    """

    def __init__(self, listener: "HttpListener") -> None:
        self._listener = listener
        self._reader = RequestReader(listener.header_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[ServedRequest] = deque()
        self._current: ServedRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._reading = True
        self._lingering = self._eof = False
        self._thrown_away = 0
        self._news: asyncio.Future[None] | None = None  # set when more of the current body has arrived
        self._room: asyncio.Future[None] | None = None
        self._stuck: asyncio.TimerHandle | None = None

    @property
    def gone(self) -> bool:
        """True if the connection can no longer be written to."""
        return self._transport is None or self._transport.is_closing()

    @property
    def answering(self) -> asyncio.Task[None] | None:
        """The task that answers the current requests, if there is one."""
        return self._task

    def wall_time(self) -> float:
        return self._listener.now()

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionResetError: the client has disconnected.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._transport.write(data)

    # -- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport class does not inherit from `asyncio.Transport`
        self._transport = cast(asyncio.Transport, transport)
        self._listener.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._transport = None
        self._listener.leave(self)
        self._let_write()
        self._tell()

    def data_received(self, data: bytes) -> None:
        """Answer a request at once if it need not be parsed; otherwise parse the data."""
        if self._lingering:
            self._thrown_away += len(data)
            return self.drop() if self._thrown_away > LINGERING_BYTES else None
        if self._task is None and self._room is None and self._reader.at_rest and data.endswith(b"\r\n\r\n"):
            response = self._listener.answered(self, data)
            if response is not None:
                cast(asyncio.Transport, self._transport).write(response)
                return
        self._waiting += self._reader.feed(data)
        self._tell()
        if self._task is None and (self._waiting or self._reader.refusal is not None):
            self._task = asyncio.get_running_loop().create_task(self._answer_all())
        self._read_or_rest()

    def eof_received(self) -> bool:
        """Keep the connection open while answers are due. The client has closed only its sending side."""
        self._eof = True
        self._reader.end()
        self._tell()
        return self._task is not None

    def pause_writing(self) -> None:
        loop = asyncio.get_running_loop()
        self._room = loop.create_future()
        self._stuck = loop.call_later(self._listener.write_timeout, self.drop)
        self._listener.places.wait(self, loop.time())

    def resume_writing(self) -> None:
        if self._task is not None:
            self._listener.places.serve(self)
        self._let_write()

    # -- answering

    async def _answer_all(self) -> None:
        """Answer the queued requests one by one; then wait for more requests, or close the connection."""
        goes_on = True
        try:
            while self._waiting and goes_on:
                self._current = self._waiting.popleft()
                if not self._reading:
                    self._read_or_rest()
                goes_on = await self._answer(self._current)
                if self._waiting:
                    await asyncio.sleep(0)  # let other clients be served between the requests of one packet
            if goes_on and self._reader.refusal is not None:
                self.write(whole_error(self._reader.refusal))
                goes_on = False
        except ConnectionError:
            self.drop()
        finally:
            self._task = self._current = None
        if not goes_on:
            self._linger()
        self._read_or_rest()

    async def _answer(self, request: ServedRequest) -> bool:
        """Answer one request while its slot is marked as served; return whether the connection may continue."""
        places = self._listener.places
        places.serve(self)
        try:
            sending = await self._sending(request)
            await sending.send(request, self)
        finally:
            places.wait(self, asyncio.get_running_loop().time())
        return sending.keep_alive and (request.complete or await self._throw_away(request)) and not self._eof

    async def _throw_away(self, request: ServedRequest) -> bool:
        """Discard the unread rest of a body. Return whether the body ended within the limits."""
        size = 0
        with suppress(TimeoutError, HttpError):
            async with asyncio.timeout(LINGERING):
                async for part in self.body_pieces(request):
                    size += len(part)
                    if size > LINGERING_BYTES:
                        return False
        return request.complete

    async def _sending(self, request: ServedRequest) -> Sending:
        try:
            return await self._listener.handle(request, self)
        except ConnectionError:
            raise
        except Exception as error:
            if (expected := blame_of_system(error)) is not None:
                log.error("serve: a request failed: %s", expected)
                refusal = HttpError(503, "unavailable", "the server cannot read its files now; see its log")
                return Sending(error_reply(refusal), close=True)
            log.exception("serve: a request failed")
            refusal = HttpError(500, "error", "internal error of the server; see its log")
            return Sending(error_reply(refusal), close=True)

    def _linger(self) -> None:
        """Read on for a while before the connection is closed.

        If it were closed at once, a reset would discard the answer.
        """
        if self._transport is None or self._transport.is_closing():
            return
        if self._eof or (self._reader.refusal is None and not self._reader.busy):
            return self._transport.close()
        self._lingering = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGERING, self.drop)

    def _read_or_rest(self) -> None:
        """Read if at most one request is queued and little of a body is in memory. Otherwise, pause reading."""
        body = self._current.held if self._current is not None else 0
        wanted = self._lingering or (len(self._waiting) < 2 and body < BODY_HELD)
        if wanted != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _tell(self) -> None:
        """Wake the task that reads a body."""
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def body_pieces(self, request: ServedRequest) -> AsyncIterator[bytes]:
        """Yield the body of the current request as it arrives.

        Raises:
            HttpError: 400, the request is not valid HTTP.
            ConnectionResetError: the client has disconnected.
        """
        while True:
            for part in request.take():
                yield part
            if request.complete:
                return
            if request.broken:
                raise HttpError(400, "bad_request", "the request is not valid HTTP")
            if self.gone:
                raise ConnectionResetError("the client has disconnected")
            self._news = asyncio.get_running_loop().create_future()
            self._read_or_rest()
            await self._news

    def _let_write(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    async def room(self) -> None:
        """Wait until the client has read most of the data buffered for it."""
        if self._room is not None:
            await self._room
        if self.gone:
            raise ConnectionResetError("the client has disconnected")

    def turn_away(self) -> None:
        """Answer that all connection slots are taken, and close the connection."""
        self.write(_FULL)
        self._lingering = True
        cast(asyncio.Transport, self._transport).close()

    def drop(self) -> None:
        """Close the connection at once and discard buffered data."""
        if self._transport is not None:
            self._transport.abort()


class HttpListener:
    """A listening address; `handle` answers its requests, and `now` returns the wall time.

    The server first calls `again` with the bytes of a request. If the same bytes were answered before, it may
    return the whole stored response. If it returns None, `handle` answers the request.

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
        self.places: ConnectionSlots[ServedConnection] = ConnectionSlots(connections_max, idle_timeout)
        self.address: tuple[str, int] = ("", 0)
        self.requests = 0
        self._handle = handle
        self._again = again
        self._connections: set[ServedConnection] = set()
        self._sockets: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.Task[None] | None = None

    def _connection(self) -> ServedConnection:
        return ServedConnection(self)

    async def handle(self, request: ServedRequest, connection: ServedConnection) -> Sending:
        """Answer a request."""
        self.requests += 1
        return await self._handle(request, connection)

    def answered(self, connection: ServedConnection, request: bytes) -> bytes | None:
        """Return the response to a request that need not be parsed; None if the request must be parsed."""
        response = self._again(request)
        if response is not None:
            self.requests += 1
            self.places.note_answered(connection, asyncio.get_running_loop().time())
        return response

    async def start(self, address: tuple[str, int], key: str, *, shared: bool = False) -> None:
        """Listen on `address`; port 0 picks a free port. If `shared`, several processes may listen on the same port.

        Raises:
            ConfigError: the address is in use or cannot be used.
        """
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                self._connection, *address, backlog=BACKLOG, reuse_port=True if shared else None
            )
        except OSError as error:
            raise cannot_listen(*address, key, error) from error
        self._add(server)
        self.address = server.sockets[0].getsockname()[:2]

    async def start_on(self, sock: socket.socket) -> None:
        """Accept clients on a socket that already listens, including the clients in its queue."""
        server = await asyncio.get_running_loop().create_server(self._connection, sock=sock, backlog=BACKLOG)
        self._add(server)
        self.address = sock.getsockname()[:2]

    async def start_unix(self, folder: Path, name: str) -> None:
        """Also listen on a Unix socket for sibling processes. Replace a socket that a dead process has left."""
        loop = asyncio.get_running_loop()
        (folder / name).unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX)
        with short_path(folder, name) as path:
            made.bind(path)
        (folder / name).chmod(0o600)
        self._add(await loop.create_unix_server(self._connection, sock=made))

    def _add(self, server: asyncio.AbstractServer) -> None:
        self._sockets.append(server)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def enter(self, connection: ServedConnection) -> None:
        """Register a new client. If no slot is free, close the connection of another client or of this one."""
        self._connections.add(connection)
        stays, victim = self.places.enter(connection, asyncio.get_running_loop().time())
        if victim is not None:
            victim.drop()
        if not stays:
            connection.turn_away()

    def leave(self, connection: ServedConnection) -> None:
        """Unregister a client that disconnected."""
        self._connections.discard(connection)
        self.places.leave(connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL)
            for connection in self.places.overdue(asyncio.get_running_loop().time()):
                self.places.leave(connection)
                connection.drop()

    async def close(self) -> None:
        """Stop accepting clients and close the open connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for server in self._sockets:
            server.close()
        answering = [each.answering for each in self._connections if each.answering is not None]
        if answering:
            await asyncio.wait(answering, timeout=CLOSE_GRACE)
        for connection in list(self._connections):
            connection.drop()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        await asyncio.sleep(0)  # give the transports time to report that they are closed


async def read_body(
    request: ServedRequest, connection: ServedConnection, bytes_max: int, timeout: float
) -> bytes:
    """Return the body of a request.

    Raises:
        HttpError: 400 malformed, 408 too slow, 413 too large, or 415 with a content coding.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpError(415, "bad_request", "send the body without a content coding")
    if request.headers.get("Expect", "").lower() == "100-continue" and not request.complete:
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for part in connection.body_pieces(request):
                parts.append(part)
                size += len(part)
                if size > bytes_max:
                    raise HttpError(413, "bad_request", f"a request body may have at most {bytes_max} bytes")
    except TimeoutError:
        raise HttpError(408, "bad_request", "the request body did not arrive in time") from None
    return b"".join(parts)


def more_descriptors() -> None:
    """Raise this process's limit of open files to the maximum, so that there are enough for clients and fetches."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
