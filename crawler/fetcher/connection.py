"""One connection, which sends a request, receives its answer, and watches the deadlines.

    idle --exchange--> asking --answer complete--> idle (or closed)
      '--- any byte, or the end ---> closed

A read is at most 64 KiB, so at most 64 KiB are read beyond a limit. After each `REST_BYTES` of an answer,
the connection stops reading (it "rests") until the client resumes it. The client resumes a few connections
per turn of the event loop (`read_turns.py`). Without these rests, one turn could read 2 MiB from each of
hundreds of servers, and short answers would wait for them. Once reading has used its share of a turn, reads
are short and each is followed by a rest. The client's single timer watches the time limits: it calls `check`
on all connections in use. If bytes arrive while no request is in progress, the connection is closed, so they
are never taken for the next answer. Before the connection is reused, its socket is checked for unread bytes.

TCP acknowledgements are sent at once. A server that uses Nagle's algorithm may write header and body in two
pieces. Such a server holds the second piece back until the first piece is acknowledged, and our kernel would
normally delay this acknowledgement by 40 ms. Without the delayed acknowledgements, 50 pages of such a server
take 0.2 s instead of 2.2 s.

The measured time of an exchange is the time that the server and the network take, from the sending of the
request to the arrival of the last byte. The times of sending and of arrival are taken from the kernel,
because a busy event loop notices the events late.
"""

import asyncio
import select
import socket
import struct
import time
from typing import Any, Protocol

from crawler.config import FetchConfig
from crawler.fetcher.answer import Answer, AnswerState
from crawler.fetcher.fetch_request import HeldSlot
from crawler.fetcher.idle_pool import Authority

READ_BYTES = 64 << 10
REST_BYTES = 128 << 10  # reading an answer rests after this many bytes; nine of ten pages are smaller
SHORT_BYTES = 4 << 10
# Seconds. The kernel measures time in ticks of up to 10 ms. So the lag that is computed from its times may be
# one tick too long, and `_lag` subtracts a tick. A gap depends on the duration of the answer without the lag:
# the gap may be too long, but not too short.
_TICK = 0.01
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux
# reasons to pause reading; while REST is the only reason, the time limits keep running
MEMORY, RATE, REST = 1, 2, 4
# Milliseconds since data was last sent and received, from Linux's struct tcp_info (tcp(7)).
_LAST_DATA = struct.Struct("=44x I 4x I")


class ConnectionOwner(Protocol):
    """The callbacks by which a connection informs the client that owns it."""

    def has_time(self) -> bool: ...

    def spent(self, seconds: float) -> None: ...

    def rests(self, connection: "Connection") -> None: ...

    def parts(self, connection: "Connection", transport: asyncio.BaseTransport) -> None: ...

    def grew(self, connection: "Connection", nbytes: int) -> None: ...

    def received(self, connection: "Connection", nbytes: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol of one transport, plain or TLS. `key` identifies the requests that may reuse the connection.

    `sock` is the socket, if it is known. `opened` says how the connection was opened: "plain", or with a
    "full" or "resumed" TLS handshake. `took` is the duration of the last exchange in seconds, and `read_time`
    is the part of it that we spent reading the answer.
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
        "_slot",
        "_pauses",
        "_told_bytes",
        "_unrested_bytes",
        "_view",
        "_waiter",
        "address",
        "idle_until",
        "key",
        "lost",
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
        self._limits: FetchConfig | None = None
        self._slot: HeldSlot | None = None
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
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self.lost = self.lost or transport.is_closing()

    def is_quiet(self) -> bool:
        """Return whether the connection is alive and nothing, not even a close, has arrived since its last answer."""
        if self.lost or self.sock is None:
            return not self.lost
        # `poll` is used, because peeking at the socket would raise an error on each quiet connection, and
        # would take five times as long
        waiting = select.poll()
        try:
            waiting.register(self.sock, select.POLLIN)
        except (OSError, ValueError):  # closed
            return False
        return not waiting.poll(0)

    async def exchange(
        self,
        request: bytes,
        answer: Answer,
        limits: FetchConfig,
        deadline: float,
        slot: HeldSlot | None = None,
    ) -> None:
        """Send `request` and fill `answer`.

        The exchange ends at `deadline` (monotonic time) at the latest, or when another request needs `slot`.
        As long as more bytes are expected, the client is informed of the number of bytes in memory. An
        exception in the code that reads the answer is a bug; `exchange` raises it.
        """
        if self.lost:
            answer.end("connection lost")
            return
        self._answer, self._limits, self._deadline = answer, limits, deadline
        self._asked_at = self._heard_at = time.monotonic()
        self._told_bytes = 0
        self._unrested_bytes = 0
        self.read_time = 0.0
        self._slot = slot
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        self._acknowledge_at_once()
        try:
            await waiter
            if self._error is not None:
                raise self._error
        finally:
            self._answer = self._waiter = self._limits = self._slot = None

    def _acknowledge_at_once(self) -> None:
        """Turn delayed acknowledgements off for this request; the kernel turns them on again when it sends data."""
        if self.sock is not None and _QUICKACK is not None:
            try:
                self.sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:  # the socket was closed meanwhile; the exchange will report it
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
        # Reading a thread's CPU clock is a system call, so the first piece of an answer is measured in wall
        # time.
        clock = time.thread_time if answer.wire_bytes else time.monotonic
        began = clock()
        self._heard_at = time.monotonic()
        try:
            self._client.received(self, nbytes)
            if answer.receive(self._view[:nbytes]):
                self._done(self._lag())
            elif answer.held_bytes > self._told_bytes:
                more, self._told_bytes = answer.held_bytes - self._told_bytes, answer.held_bytes
                self._client.grew(self, more)
            spent = clock() - began
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
        """End the answer if a time limit has passed; `now` is monotonic time."""
        answer, limits = self._answer, self._limits
        if answer is None or limits is None or answer.state is AnswerState.DONE or self._paused_at:
            return
        if answer.is_patient and self._slot is not None:
            self._slot.give()  # the transfer may take long, so it must not hold a fetch slot
            self._slot = None
        if now >= self._deadline and answer.is_patient and answer.keeps_rate(limits.total_timeout):
            self._deadline = now + limits.total_timeout
            return
        if now >= self._deadline:
            answer.expire(f"not complete within {limits.total_timeout:g} s")
        elif answer.state is AnswerState.HEAD and now >= self._asked_at + limits.header_timeout:
            answer.expire(f"no header block within {limits.header_timeout:g} s")
        elif answer.state is AnswerState.BODY and now >= self._heard_at + limits.silence_timeout:
            answer.expire(f"silent for {limits.silence_timeout:g} s")
        elif self._slot is not None and self._slot.is_needed():
            answer.expire("not complete when its fetch slot was needed")
        else:
            return
        self._done()

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds`, in which this process did not run, although the server may have answered."""
        if not self._paused_at:  # `resume` does not count the time of a pause
            self._deadline += seconds
            self._asked_at += seconds
            self._heard_at += seconds

    def _rest(self, nbytes: int) -> None:
        """Count received bytes. After many bytes, or in a long turn, stop reading until the client calls `go_on`."""
        self._unrested_bytes += nbytes
        if self._unrested_bytes < REST_BYTES and self._client.has_time():
            return
        if not self._pauses & REST and self.transport is not None:
            self._pauses |= REST
            self.transport.pause_reading()
            self._client.rests(self)

    def go_on(self) -> None:
        """Resume reading after a rest; harmless if the connection has ended meanwhile."""
        self._pauses &= ~REST
        self._unrested_bytes = 0
        if self.transport is not None and not self._pauses:
            self.transport.resume_reading()

    def pause(self, reason: int = MEMORY) -> None:
        """Stop reading and stop the time limits until `resume` has ended every reason for the pause.

        A request that waits for memory gives up its fetch slot.
        """
        before, self._pauses = self._pauses, self._pauses | reason
        if reason == MEMORY and self._slot is not None:
            self._slot.give()
        if before & ~REST:
            return
        self._paused_at = time.monotonic()
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self, reason: int = MEMORY) -> None:
        """End one reason for the pause. When the last reason ends, continue reading. No time limit includes the pause."""
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
        """Close at once and end any exchange in progress; harmless if already closed."""
        self._part()
        self._ended("")

    def _part(self) -> None:
        """Drop the transport, because transport and protocol would otherwise refer to each other and stay in memory."""
        self.lost = True
        transport, self.transport, self.sock = self.transport, None, None
        if transport is None:
            return
        self._client.parts(self, transport)
        transport.abort()

    def fail(self, error: Exception) -> None:
        """Make `exchange` raise `error`. An error raised by a callback would be lost, and the fetch would hang."""
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
        """Return the measured duration of the last exchange minus the longest that it can have lasted in the kernel."""
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
        lag = took - (sent - received) / 1000.0 - _TICK
        return float(min(max(lag, 0.0), took))

    def __repr__(self) -> str:
        state = "lost" if self.lost else "asking" if self._answer is not None else "idle"
        return f"Connection({self.address}, {state}, {self._answer!r})"
