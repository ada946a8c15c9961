"""One connection: a request's bytes go out, an answer's come in, deadlines are watched.

    idle --exchange--> asking --answer complete--> idle (or closed)
      '--- any byte, or the end ---> closed

Reads are at most 64 KiB, which bounds what is read beyond a limit. Time limits
are watched by the client's one timer, which calls `check` on all connections in
use: a fetch starts no timer of its own. Bytes that arrive while nothing was
asked close the connection, so they are never taken for the next answer.
"""

import asyncio
import time
from typing import Any, Protocol

import aiohttp

from crawler.fetcher.answer import Answer, State
from crawler.fetcher.request import Limits

READ_BYTES = 64 << 10
_NEVER = 1 << 62


class Client(Protocol):
    """What a connection tells the client that owns it."""

    def forget(self, connection: "Connection") -> None: ...

    def grew_large(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """Takes over the transport of `opened`; `key` is what it can be used for again."""

    __slots__ = (
        "_answer",
        "_asked_at",
        "_deadline",
        "_heard_at",
        "_limits",
        "_client",
        "_error",
        "_large_bytes",
        "_paused_at",
        "_opened",
        "_view",
        "_waiter",
        "address",
        "idle_until",
        "key",
        "lost",
        "tls_ok",
        "transport",
    )

    def __init__(
        self,
        opened: aiohttp.connector.Connection,
        key: tuple[Any, ...],
        view: memoryview,
        client: Client,
        *,
        tls_ok: bool = True,
    ) -> None:
        assert opened.transport is not None
        self._opened = opened
        self._view = view
        self._client = client
        self._large_bytes = _NEVER
        self._paused_at = 0.0
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._limits: Limits | None = None
        self._asked_at = self._heard_at = self._deadline = 0.0
        self.key = key
        self.tls_ok = tls_ok
        self.idle_until = 0.0
        self.lost = False
        self.transport: Any = opened.transport
        peer = self.transport.get_extra_info("peername")
        self.address: str = peer[0] if peer else ""
        self.transport.set_protocol(self)
        self.lost = self.transport.is_closing()

    async def exchange(
        self, request: bytes, answer: Answer, limits: Limits, deadline: float, large_bytes: int
    ) -> None:
        """Send `request` and fill `answer`; all must be over at `deadline` (monotonic time).

        The client is told when more than `large_bytes` are held and more are to come.
        Raises whatever reading the answer raised, which would be a bug.
        """
        if self.lost:
            answer.end("connection lost")
            return
        self._answer, self._limits, self._deadline = answer, limits, deadline
        self._asked_at = self._heard_at = time.monotonic()
        self._large_bytes = large_bytes
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            await waiter
            if self._error is not None:
                raise self._error
        finally:
            self._answer = self._waiter = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        answer = self._answer
        if answer is None or answer.state is State.DONE:
            if answer is not None:
                answer.reusable = False
            self.close()
            return
        self._heard_at = time.monotonic()
        try:
            if answer.receive(self._view[:nbytes]):
                self._done()
            elif answer.held_bytes > self._large_bytes:
                self._large_bytes = _NEVER  # says so once an answer
                self._client.grew_large(self)
        except Exception as error:
            self.fail(error)

    def eof_received(self) -> bool:
        self._ended("")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._ended(f"{type(error).__name__}: {error}" if error is not None else "")
        self._client.forget(self)

    def check(self, now: float) -> None:
        """End the answer if a time limit is over; `now` is monotonic time."""
        answer, limits = self._answer, self._limits
        if answer is None or limits is None or answer.state is State.DONE or self._paused_at:
            return
        if now >= self._deadline:
            answer.expire(f"not over within {limits.total_timeout:g} s")
        elif answer.state is State.HEAD and now >= self._asked_at + limits.header_timeout:
            answer.expire(f"no header block within {limits.header_timeout:g} s")
        elif answer.state is State.BODY and now >= self._heard_at + limits.silence_timeout:
            answer.expire(f"silent for {limits.silence_timeout:g} s")
        else:
            return
        self._done()

    def pause(self) -> None:
        """Read no more and stop the clocks, until `resume`."""
        self._paused_at = time.monotonic()
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read on; the time of the pause counts for no limit."""
        now = time.monotonic()
        self._deadline += now - self._paused_at
        self._heard_at = now
        self._paused_at = 0.0
        self.transport.resume_reading()

    def close(self) -> None:
        """Close at once; harmless if done before."""
        self.lost = True
        self._opened.close()
        self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Let `exchange` raise `error`: what a callback raises would be lost in the loop, and the fetch hang."""
        self._error = self._error or error
        self._done()

    def _ended(self, error: str) -> None:
        answer = self._answer
        if answer is not None and answer.state is not State.DONE:
            try:
                answer.end(error)
            except Exception as bug:
                self._error = self._error or bug
            self._done()

    def _done(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def __repr__(self) -> str:
        state = "lost" if self.lost else "asking" if self._answer is not None else "idle"
        return f"Connection({self.address}, {state}, {self._answer!r})"
