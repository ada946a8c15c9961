"""TLS over an open TCP transport, for one connection.

    TCP transport --ciphertext--> buffer_updated --> OpenSSL --plain text--> the protocol above
                  <--------------- write <------------'

This module replaces uvloop's TLS protocol, which takes 130 to 210 KiB for each idle connection, and leaves a
cycle of references when a connection ends. With uvloop, each TLS connection has its own read buffer of 256
KiB, and memory BIOs as large as the largest read. Here all connections of a client share one buffer for
ciphertext, OpenSSL gets at most `_SLICE` bytes at once, and no cycle is left at the end. After a page of 30
KB, a connection holds 56 KiB (with uvloop 145 KiB), which are freed as soon as the connection ends. A fetch
with a full handshake takes 0.95 ms of CPU time (with uvloop, 1.35 ms).

Hundreds of servers may answer between two turns of the event loop, and a step of a full
handshake takes up to a millisecond, so `Handshakes` spreads the steps over turns.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

from crawler.turn_share import TurnShare

# Bytes that an idle BIO keeps. With this size, a connection holds 56 KiB; with 16 KiB, it would hold 71 KiB.
# The CPU time is the same.
_SLICE = 4 << 10
HANDSHAKES = 0.006  # seconds of handshakes per turn of the loop


class Handshakes(TurnShare[Callable[[], None]]):
    """Runs handshake steps in order of arrival, for at most `seconds` per turn of the event loop.

    The time is read from `clock`, by default the CPU time of the thread.
    """

    def __init__(self, seconds: float = HANDSHAKES, clock: Callable[[], float] = time.thread_time) -> None:
        super().__init__(seconds, clock)

    def step(self, step: Callable[[], None]) -> None:
        """Run `step` now, or in a later turn."""
        if self.now:
            self._take(step)
        else:
            self._waiting.append(step)
        self._renew_soon()

    def _take(self, step: Callable[[], None]) -> None:
        began = self._clock()
        try:
            step()
        finally:
            self._left -= self._clock() - began

    def _serve(self) -> None:
        while self._waiting and self._left > 0.0:
            self._take(self._waiting.popleft())


class TlsTransport(asyncio.BufferedProtocol):
    """Acts as the protocol of the TCP transport and, after `handshake` has returned, as the transport of `protocol`.

    Ciphertext is read into `view`. `view` and `handshakes` may be shared by all connections of a loop.
    """

    __slots__ = (
        "_handshakes",
        "_handshaking",
        "_incoming",
        "_outgoing",
        "_paused",
        "_protocol",
        "_rest",
        "_transport",
        "_view",
        "_waiter",
        "ssl_object",
    )

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        hostname: str,
        view: memoryview,
        handshakes: Handshakes,
    ) -> None:
        self._protocol: asyncio.BufferedProtocol | None = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self._view = view
        self._handshakes = handshakes
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._handshaking = True
        self._paused = False
        self._rest = b""  # ciphertext that waits for the handshake's turn, or that arrived before a pause

    async def handshake(self) -> None:
        """Do the handshake. If the handshake fails or is cancelled, the connection is closed.

        Raises:
            ssl.SSLError: the peer does not speak acceptable TLS, or has a bad certificate.
            OSError: the connection was lost.
        """
        self._waiter = asyncio.get_running_loop().create_future()
        self._handshakes.step(self._shake_hands)
        try:
            await self._waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None

    # -- the protocol of the TCP transport ----------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        received = self._view[:nbytes]
        if not self._handshaking:
            self._take(received)
        elif self._handshakes.now and not self._rest:
            self._handshakes.step(lambda: self._take(received))
        else:
            waits, self._rest = bool(self._rest), self._rest + bytes(received)
            if not waits:
                self._handshakes.step(self._take_rest)

    def eof_received(self) -> bool:
        self._take_rest()
        if self._protocol is not None and not self._handshaking:
            self._protocol.eof_received()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._take_rest()
        protocol, self._protocol = self._protocol, None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error or ConnectionResetError("closed in the TLS handshake"))
        elif protocol is not None and not self._handshaking:
            protocol.connection_lost(error)
        self._transport = None

    # -- the transport that the HTTP protocol uses --------------------------------

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self.ssl_object.write(data)
            self._flush()

    def pause_reading(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        rest, self._rest = self._rest, b""
        self._read()
        self._take(memoryview(rest))
        if self._transport is not None and not self._paused:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport is None or bool(self._transport.is_closing())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self.ssl_object
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def abort(self) -> None:
        """Close the connection at once."""
        self._protocol = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # -- the TLS object between them ----------------------------------------------

    def _take_rest(self) -> None:
        """Process the ciphertext held back, when the handshake may continue or the peer has closed the connection."""
        if self._handshaking and self._rest:
            rest, self._rest = self._rest, b""
            self._take(memoryview(rest))

    def _take(self, received: memoryview) -> None:
        for start in range(0, len(received), _SLICE):
            if self._transport is None:
                return
            if self._paused:
                self._rest += bytes(received[start:])
                return
            self._incoming.write(received[start : start + _SLICE])
            if self._handshaking:
                self._shake_hands()
            if not self._handshaking:
                self._read()

    def _shake_hands(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, ValueError) as error:
            self._flush()  # send the alert that explains the failure
            # The traceback is removed, because its frames refer to `waiter`. Since `waiter` refers to the error,
            # there would be a cycle of references.
            waiter.set_exception(error.with_traceback(None))
        else:
            self._handshaking = False
            self._flush()
            waiter.set_result(None)

    def _read(self) -> None:
        """Pass the available plain text to the protocol."""
        error: Exception | None = None
        try:
            while self._protocol is not None and not self._paused:
                view = self._protocol.get_buffer(-1)
                count: Any = self.ssl_object.read(len(view), view)  # type: ignore[arg-type]
                if not count:
                    break
                self._protocol.buffer_updated(count)
            else:
                return
        except ssl.SSLWantReadError:
            return self._flush()  # send the answer to a key update
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLError as bad_record:
            # An error refers to its traceback, and the traceback to this frame, which refers to `error`.
            # Removing the traceback breaks this cycle of references.
            error = bad_record.with_traceback(None)
        if self._protocol is not None:
            self._end(self._protocol, error)

    def _end(self, protocol: asyncio.BufferedProtocol, error: Exception | None) -> None:
        """End the connection, because the peer has closed it or sent invalid TLS."""
        if error is None:
            protocol.eof_received()
        protocol.connection_lost(error)
        self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def __repr__(self) -> str:
        state = "closed" if self._transport is None else "shaking hands" if self._handshaking else "open"
        return f"TlsTransport({state})"
