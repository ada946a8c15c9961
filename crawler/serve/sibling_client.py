"""Forwards requests to the processes of the crawl that own the pages, on this machine or on other nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from crawler.config.forms import named_addresses
from crawler.serve.http_error import HttpError
from crawler.serve.http_server import Sending, whole_error
from crawler.serve.reply import Reply
from crawler.serve.request_reader import ServedRequest
from crawler.unix_sockets import short_path

HOP = "X-Crawler-Hop"  # marks a request that a sibling forwarded; such a request is never forwarded again
SOCKET = "serve.sock"
# maximum number of seconds until the owner's first byte arrives; the owner is on a nearby network
CONNECT_TIMEOUT = 5.0
SILENCE_TIMEOUT = 30.0  # maximum number of seconds without a byte of the owner's answer
_NOT_PASSED_ON = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length", "expect")
)

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class SiblingClient:
    """Finds the page servers of the other processes of the crawl.

    `peers` names the servers on other nodes, each as "NAME=HOST:PORT" (`serve.peers`). The processes on this machine
    have their directories in `folder`.
    """

    def __init__(self, peers: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._addresses = named_addresses(peers)

    def ask(self, owner: str, body: bytes = b"") -> "Forwarded | None":
        """Forward a request with `body` to its owner; return None if the owner is neither on this machine nor a peer."""
        folder = self._folder / owner

        async def connect_here() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            with short_path(folder, SOCKET) as path:
                return await asyncio.open_unix_connection(path)

        if (address := self._addresses.get(owner)) is not None:
            return Forwarded(owner, lambda: asyncio.open_connection(*address), body)
        return Forwarded(owner, connect_here, body) if (folder / SOCKET).exists() else None


class Forwarded(Sending):
    """The answer of the process `owner`, which receives the request over a separate connection."""

    def __init__(self, owner: str, connect: Connect, body: bytes = b"") -> None:
        super().__init__(Reply(200, b"", 0), close=True)
        self._body = body
        self._owner = owner
        self._connect = connect

    def _request(self, request: ServedRequest) -> bytes:
        """Return the forwarded request, which makes the sibling close the connection after the answer."""
        lines = [f"{request.method} {request.raw_path} HTTP/1.1"]
        lines += [
            f"{name}: {value}"
            for name, value in request.headers.items()
            if name.lower() not in _NOT_PASSED_ON
        ]
        if request.method == "POST":
            lines.append(f"Content-Length: {len(self._body)}")
        lines += [f"{HOP}: 1", "Connection: close", "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape") + self._body

    async def write(self, request: ServedRequest) -> None:
        """Stream the owner's answer to the client."""
        writer, began = None, False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await self._connect()
                writer.write(self._request(request))
                data = await reader.read(1 << 16)
            while data:
                self._connection.write(data)
                began = True
                await self._connection.room()
                async with asyncio.timeout(SILENCE_TIMEOUT):
                    data = await reader.read(1 << 16)
        except (OSError, TimeoutError) as error:
            if began or self._connection.gone:
                raise ConnectionResetError(str(error)) from error  # the client gets a truncated body
            cause = getattr(error, "strerror", None) or "no answer in time"
            why = f"process {self._owner}, which has the page, does not answer: {cause}"
            self._connection.write(whole_error(HttpError(503, "elsewhere", why)))
        finally:
            if writer is not None:
                writer.close()
