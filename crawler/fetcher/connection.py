"""One connection: a request's bytes go out, an answer's come in, deadlines are watched.

    idle --exchange--> asking --answer complete--> idle (or closed)
      '--- any byte, or the end ---> closed

Reads are at most 64 KiB, which bounds what is read beyond a limit. After each
`REST_BYTES` of an answer the connection rests until the client lets it go on, a few
connections a turn of the loop (`read_turns.py`). Without rests one turn could read
2 MiB from each of hundreds of servers, and short answers would wait for them. Once
reading has had its share of a turn, reads are short, and a rest follows each. The
client's one timer watches the time limits: it calls `check` on all connections in
use. Bytes that arrive while nothing was asked close the connection, so they are
never taken for the next answer; the socket is checked for unread bytes before it
is used again.

Acknowledgements are sent at once. A server that writes header and body in two
pieces, with Nagle's algorithm on, would hold the second back until the kernel's
delayed acknowledgement of the first, 40 ms later: 50 pages of such a server take
0.2 s instead of 2.2.

The time of an exchange is that of the server and the network: from the request's
leaving to the last byte's arrival. The kernel knows both instants; our own loop
sees them late when it is busy.
"""

import asyncio
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

from crawler.fetcher.answer import Answer, AnswerState
from crawler.fetcher.fetch_request import FetchLimits, HeldSlot
from crawler.fetcher.idle_pool import Authority

READ_BYTES = 64 << 10
REST_BYTES = 128 << 10  # nine in ten pages are smaller
SHORT_BYTES = 4 << 10
_TICK = 0.01  # s; the kernel counts in clock ticks of up to 10 ms: only a larger lag is taken off
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux
MEMORY, RATE, REST = 1, 2, 4  # why a connection is not read; its clocks run on while it rests
# Milliseconds since data was last sent and received, of Linux's struct tcp_info (tcp(7)).
_LAST_DATA = struct.Struct("=44x I 4x I")


class ConnectionOwner(Protocol):
    """What a connection tells the client that owns it."""

    def has_time(self) -> bool: ...

    def spent(self, seconds: float) -> None: ...

    def rests(self, connection: "Connection") -> None: ...

    def parts(self, connection: "Connection", transport: asyncio.BaseTransport) -> None: ...

    def grew(self, connection: "Connection", nbytes: int) -> None: ...

    def received(self, connection: "Connection", nbytes: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol of one transport, plain or TLS; `key` says what it can be used for again.

        `sock` is its socket if that is known, `opened` how it was opened ("plain",
        "full" or "resumed" handshake), `took` the seconds of the last exchange,
    `read_time` those of them in which we read the answer.
        `on_close` is called once at its end.
    """

    __slots__ = (
        "_answer",
        "_asked_at",
        "_client",
        "_deadline",
        "_heard_at",
        "_limits",
        "_error",
        "_paused_at",
        "_place",
        "_pauses",
        "_told_bytes",
        "_unrested_bytes",
        "_view",
        "_waiter",
        "address",
        "idle_until",
        "key",
        "lost",
        "on_close",
        "opened",
        "read_time",
        "sock",
        "tls_ok",
        "took",
        "transport",
    )

    def __init__(
        self, key: Authority, view: memoryview, client: ConnectionOwner, *, tls_ok: bool = True
    ) -> None:
        self._view = view
        self._client = client
        self._told_bytes = 0
        self._paused_at = 0.0
        self._pauses = 0
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._limits: FetchLimits | None = None
        self._place: HeldSlot | None = None
        self._unrested_bytes = 0
        self._asked_at = self._heard_at = self._deadline = 0.0
        self.key = key
        self.tls_ok = tls_ok
        self.idle_until = 0.0
        self.lost = False
        self.took = 0.0
        self.read_time = 0.0
        self.opened = "plain"
        self.address = ""
        self.sock: socket.socket | None = None
        self.on_close: Callable[[], None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self.lost = self.lost or transport.is_closing()

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, not even the end; False for what is lost."""
        if self.lost or self.sock is None:
            return not self.lost
        waiting = select.poll()  # a peek would raise for each quiet one, which costs five times as much
        try:
            waiting.register(self.sock, select.POLLIN)
        except (OSError, ValueError):  # closed
            return False
        return not waiting.poll(0)

    async def exchange(
        self,
        request: bytes,
        answer: Answer,
        limits: FetchLimits,
        deadline: float,
        place: HeldSlot | None = None,
    ) -> None:
        """Send `request` and fill `answer`; all must be over at `deadline` (monotonic time), or when `place` is needed.

        The client is told of all that is held while more is to come.
        Raises whatever reading the answer raised, which would be a bug.
        """
        if self.lost:
            answer.end("connection lost")
            return
        self._answer, self._limits, self._deadline = answer, limits, deadline
        self._asked_at = self._heard_at = time.monotonic()
        self._told_bytes = 0
        self._unrested_bytes = 0
        self.read_time = 0.0
        self._place = place
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        self._acknowledge_at_once()
        try:
            await waiter
            if self._error is not None:
                raise self._error
        finally:
            self._answer = self._waiter = self._limits = self._place = None

    def _acknowledge_at_once(self) -> None:
        """The kernel forgets it with what is sent, so it is said with each request."""
        if self.sock is not None and _QUICKACK is not None:
            try:
                self.sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:  # closed meanwhile; the exchange will tell
                pass

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view if self._client.has_time() else self._view[:SHORT_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        answer = self._answer
        if answer is None or answer.state is AnswerState.DONE:
            if answer is not None:
                answer.reusable = False
            self.close()
            return
        self._heard_at, began = time.monotonic(), time.thread_time()
        try:
            self._client.received(self, nbytes)
            if answer.receive(self._view[:nbytes]):
                self._done(self._lag())
            elif answer.held_bytes > self._told_bytes:
                more, self._told_bytes = answer.held_bytes - self._told_bytes, answer.held_bytes
                self._client.grew(self, more)
            spent = time.thread_time() - began
            self.read_time += spent
            self._client.spent(spent)
            if answer.state is not AnswerState.DONE:
                self._rest(nbytes)
        except Exception as error:
            self.fail(error)

    def eof_received(self) -> bool:
        self._ended("")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(f"{type(error).__name__}: {error}" if error is not None else "")
        self._part()

    def check(self, now: float) -> None:
        """End the answer if a time limit is over; `now` is monotonic time."""
        answer, limits = self._answer, self._limits
        if answer is None or limits is None or answer.state is AnswerState.DONE or self._paused_at:
            return
        if now >= self._deadline:
            answer.expire(f"not over within {limits.total_timeout:g} s")
        elif answer.state is AnswerState.HEAD and now >= self._asked_at + limits.header_timeout:
            answer.expire(f"no header block within {limits.header_timeout:g} s")
        elif answer.state is AnswerState.BODY and now >= self._heard_at + limits.silence_timeout:
            answer.expire(f"silent for {limits.silence_timeout:g} s")
        elif self._place is not None and self._place.is_needed():
            answer.expire("not over when its place was needed")
        else:
            return
        self._done()

    def _rest(self, nbytes: int) -> None:
        """Count bytes; behind many of them, or in a long turn, read no more until the client says `go_on`."""
        self._unrested_bytes += nbytes
        if self._unrested_bytes < REST_BYTES and self._client.has_time():
            return
        if not self._pauses & REST and self.transport is not None:
            self._pauses |= REST
            self.transport.pause_reading()
            self._client.rests(self)

    def go_on(self) -> None:
        """The rest is over; harmless if the connection is, too."""
        self._pauses &= ~REST
        self._unrested_bytes = 0
        if self.transport is not None and not self._pauses:
            self.transport.resume_reading()

    def pause(self, reason: int = MEMORY) -> None:
        """Read no more and stop the clocks, until each reason has ended (`resume`).

        A request that waits for memory has no place.
        """
        before, self._pauses = self._pauses, self._pauses | reason
        if reason == MEMORY and self._place is not None:
            self._place.give()
        if before & ~REST:
            return
        self._paused_at = time.monotonic()
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self, reason: int = MEMORY) -> None:
        """The reason is gone: read on if it was the last one; the time of the pause counts for no limit."""
        before, self._pauses = self._pauses, self._pauses & ~reason
        if not before & ~REST or self._pauses & ~REST:
            return
        now = time.monotonic()
        self._deadline += now - self._paused_at
        self._asked_at += now - self._paused_at
        self._heard_at = now
        self._paused_at = 0.0
        if self.transport is not None and not self._pauses:
            self.transport.resume_reading()

    def close(self) -> None:
        """Close at once, and end what is under way; harmless if done before."""
        self._part()
        self._ended("")

    def _part(self) -> None:
        """Let go of the transport, which holds this protocol: nothing waits for the garbage collector."""
        self.lost = True
        transport, self.transport, self.sock = self.transport, None, None
        if transport is None:
            return
        self._client.parts(self, transport)
        transport.abort()
        if self.on_close is not None:
            self.on_close()

    def fail(self, error: Exception) -> None:
        """Let `exchange` raise `error`: what a callback raises would be lost in the loop, and the fetch hang."""
        self._error = self._error or error
        self._done()

    def _ended(self, error: str) -> None:
        answer = self._answer
        if answer is not None and answer.state is not AnswerState.DONE:
            try:
                answer.end(error)
            except Exception as bug:
                self._error = self._error or bug
            self._done()

    def _done(self, lag: float = 0.0) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self.took = max(time.monotonic() - self._asked_at - lag, 0.0)
            waiter.set_result(None)

    def _lag(self) -> float:
        """Seconds by which our loop saw the exchange that has just ended longer than the kernel did."""
        if self.sock is None:
            return 0.0
        took = time.monotonic() - self._asked_at
        if took < 2 * _TICK:
            return 0.0
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA.size)
            sent, received = _LAST_DATA.unpack(info)
        except (OSError, AttributeError, struct.error):  # not Linux
            return 0.0
        lag = took - (sent - received) / 1000.0
        return float(min(lag, took)) if lag > _TICK else 0.0

    def __repr__(self) -> str:
        state = "lost" if self.lost else "asking" if self._answer is not None else "idle"
        return f"Connection({self.address}, {state}, {self._answer!r})"
