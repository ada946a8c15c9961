"""The Chrome DevTools Protocol over a pipe. Messages are JSON, and each ends with a NUL byte.

A *call* has an id and gets one answer. Every other message that arrives is an *event*. Each call and event
names a session: "" stands for the browser as a whole. Any other session name stands for one target: a page, a
frame of another site, or a worker.

The other modules use the class `Session`. All calls in progress fail when the pipe is closed.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import msgspec

from crawler.errors import CrawlerError

_END = b"\0"
_READ_BYTES = 1 << 20
MESSAGE_BYTES_MAX = 64 << 20  # this is enough for a DOM of 20 MiB in which every character is escaped

Params = dict[str, Any]
OnEvent = Callable[[str, Params], None]

_encode = msgspec.json.Encoder().encode


class _Message(msgspec.Struct):
    """The parts of a message that this module reads."""

    id: int = 0
    method: str = ""
    session: str = msgspec.field(name="sessionId", default="")
    params: Params = {}
    result: Params = {}
    error: Params = {}


_decode = msgspec.json.Decoder(_Message).decode


class BrowserError(CrawlerError):
    """The browser did not start, has ended, or refused a call."""


class Pipe:
    """The two pipes of one browser. `listeners` maps sessions to functions that get the method and params of events."""

    def __init__(self, read: int, write: int, ended: Callable[[], None]) -> None:
        self._read, self._write = read, write
        self._ended = ended
        self._calls: dict[int, asyncio.Future[Params]] = {}
        self.listeners: dict[str, OnEvent] = {}
        self._received: list[bytes] = []
        self._received_bytes = 0
        self._unsent = bytearray()
        self._last = 0
        self.open = True
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(read, self._readable)

    async def call(self, session: str, method: str, params: Params) -> Params:
        """Make a call and return its result.

        Raises:
            BrowserError: the browser refuses the call, or has ended.
        """
        if not self.open:
            raise BrowserError("the browser has ended")
        number = self._last + 1
        future = self._calls[number] = self._loop.create_future()
        try:
            self.tell(session, method, params)
            return await future
        finally:
            self._calls.pop(number, None)

    def tell(self, session: str, method: str, params: Params) -> None:
        """Make a call whose result does not matter."""
        if not self.open:
            return
        self._last += 1
        message: Params = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        waiting = bool(self._unsent)
        self._unsent += _encode(message) + _END
        if not waiting:
            self._writable()

    def _writable(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._write, memoryview(self._unsent)[: 1 << 16])
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._write, self._writable)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._write)

    def _readable(self) -> None:
        try:
            data = os.read(self._read, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *whole, rest = data.split(_END)
        for piece in whole:
            self._received.append(piece)
            message = b"".join(self._received)
            self._received, self._received_bytes = [], 0
            self._dispatch(message)
        if rest:
            self._received.append(rest)
            self._received_bytes += len(rest)
            if self._received_bytes > MESSAGE_BYTES_MAX:
                self.close()

    def _dispatch(self, data: bytes) -> None:
        message = _decode(data)
        if not message.id:
            if (listener := self.listeners.get(message.session)) is not None:
                listener(message.method, message.params)
            return
        future = self._calls.get(message.id)
        if future is None or future.done():
            return
        if message.error:
            future.set_exception(BrowserError(str(message.error.get("message", "refused"))))
        else:
            future.set_result(message.result)

    def close(self) -> None:
        """Close the pipes. All calls in progress fail."""
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._read)
        self._loop.remove_writer(self._write)
        os.close(self._read)
        os.close(self._write)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(BrowserError("the browser has ended"))
        self._ended()


class Session:
    """One target of the browser, or the browser as a whole."""

    def __init__(self, pipe: Pipe, identity: str = "") -> None:
        self.pipe, self.identity = pipe, identity

    async def call(self, method: str, **params: object) -> Params:
        """Make a call and return its result; see `Pipe.call`."""
        return await self.pipe.call(self.identity, method, params)

    def tell(self, method: str, **params: object) -> None:
        """Make a call whose result does not matter."""
        self.pipe.tell(self.identity, method, params)

    def listen(self, on_event: OnEvent | None) -> None:
        """Pass the target's events to `on_event`. If `on_event` is None, drop the events."""
        if on_event is None:
            self.pipe.listeners.pop(self.identity, None)
        else:
            self.pipe.listeners[self.identity] = on_event
