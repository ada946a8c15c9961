"""Forwards requests to the processes of the crawl that have the pages, on this machine or on other nodes.

    client --> any process --HOP: 1--> owner of the page ----> its copy
                                           | if it has none, asks all others for `/held?url=U`
                                           '--HOP: token--> process that has a copy, as a file of one of its pages

The owner decides whether the page may be shown, so only the owner may ask for the copies of other processes. It proves
with a token that it knows the secret of the crawl. Requests with HOP are not forwarded again, except by the owner.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from crawler.config.forms import named_addresses
from crawler.pages.holdings import HeldCopies, answering
from crawler.serve.http_error import HttpError
from crawler.serve.http_server import Sending, whole_error
from crawler.serve.reply import Reply
from crawler.serve.request_reader import ServedRequest
from crawler.unix_sockets import short_path

HOP = "X-Crawler-Hop"  # marks a request that a sibling forwarded: "1" to the owner, the token to another process
REFRESH = "X-Crawler-Refresh"  # the value of X-Refresh that the owner has decided on
SOCKET = "serve.sock"
# maximum number of seconds until the owner's first byte arrives; the owner is on a nearby network
CONNECT_TIMEOUT = 5.0
SILENCE_TIMEOUT = 30.0  # maximum number of seconds without a byte of the owner's answer
# maximum number of seconds until all processes have said whether they have a copy; those that are late have none
HELD_TIMEOUT = 1.0
SILENT_FOR = 10.0  # number of seconds for which a process that was late is not asked again
SEARCHES_MAX = 8  # number of searches for a copy at one time, so that clients cannot multiply their requests
_HELD_BYTES_MAX = 8192
_NOT_PASSED_ON = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length", "expect")
    + (HOP.lower(), REFRESH.lower())
)

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class SiblingClient:
    """Finds the page servers of the other processes of the crawl.

    `peers` names the servers on other nodes, each as "NAME=HOST:PORT" (`serve.peers`). The processes on this machine
    have their directories in `folder`. `others` are the names of all other processes, and `secret` is the secret of
    the crawl.
    """

    def __init__(
        self, peers: Sequence[str], folder: Path, others: Sequence[str] = (), secret: bytes = b""
    ) -> None:
        self._folder = folder
        self._addresses = named_addresses(peers)
        self._others = others
        self._token = hashlib.blake2b(key=secret, digest_size=16, person=b"page server").hexdigest()
        self._searches = asyncio.Semaphore(SEARCHES_MAX)
        self._silent_until: dict[str, float] = {}  # by the name of the process, in the time of the event loop

    def ask(self, owner: str, body: bytes = b"") -> "Forwarded | None":
        """Forward a request with `body` to its owner; return None if the owner is neither on this machine nor a peer."""
        connect = self._connect_to(owner)
        return None if connect is None else Forwarded(owner, connect, body)

    def sent(self, request: ServedRequest) -> bool:
        """Return whether the owner of a page has sent this request, to get a copy that this process has."""
        given = request.headers.get(HOP, "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._token.encode())

    async def holder(self, url: str) -> str | None:
        """Return the process that has copies of a URL of which its owner, this process, has none.

        Return None if there is no such process.
        """
        async with self._searches:
            found = await asyncio.gather(*(self._holding(name, url) for name in self._others))
        return answering(dict(zip(self._others, found, strict=True)))

    def ask_holder(self, holder: str, refresh: str) -> "Forwarded | None":
        """Forward a request to a process that has a copy. `refresh` is the value of X-Refresh; "" if there is none."""
        connect = self._connect_to(holder)
        fields = (f"{HOP}: {self._token}", *([f"{REFRESH}: {refresh}"] if refresh else []))
        return None if connect is None else Forwarded(holder, connect, fields=fields)

    async def _holding(self, name: str, url: str) -> HeldCopies | None:
        """Return what another process has stored of a URL; None if it has nothing, or does not answer."""
        connected, now = self._connect_to(name), asyncio.get_running_loop().time()
        if connected is None or now < self._silent_until.get(name, 0.0):
            return None
        target = f"/held?url={quote(url, safe=':/?=')}"
        request = f"GET {target} HTTP/1.0\r\nHost: localhost\r\n{HOP}: {self._token}\r\n\r\n".encode()
        writer = None
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            try:
                async with asyncio.timeout(HELD_TIMEOUT):
                    reader, writer = await connected()
                    writer.write(request)
                    answer = b""
                    while (data := await reader.read(_HELD_BYTES_MAX)) and len(answer) <= _HELD_BYTES_MAX:
                        answer += data
                head, _, body = answer.partition(b"\r\n\r\n")
                if head.split(b" ", 2)[1:2] == [b"200"]:
                    return msgspec.json.decode(body, type=HeldCopies | None)
            except TimeoutError:
                self._silent_until[name] = now + SILENT_FOR
            finally:
                if writer is not None:
                    writer.close()
        return None

    def _connect_to(self, name: str) -> Connect | None:
        """Return the function that connects to a process; None if it is neither on this machine nor a peer."""
        folder = self._folder / name

        async def connect_here() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            with short_path(folder, SOCKET) as path:
                return await asyncio.open_unix_connection(path)

        if (address := self._addresses.get(name)) is not None:
            return lambda: asyncio.open_connection(*address)
        return connect_here if (folder / SOCKET).exists() else None


class Forwarded(Sending):
    """The answer of the process `owner`, which gets the request, with the header `fields`, over a separate connection.

    The version of the request stays the same, so a client of HTTP/1.0 gets no chunks.
    """

    def __init__(
        self, owner: str, connect: Connect, body: bytes = b"", fields: Sequence[str] = (f"{HOP}: 1",)
    ) -> None:
        super().__init__(Reply(200, b"", 0), close=True)
        self._body, self._fields = body, fields
        self._owner = owner
        self._connect = connect

    def _request(self, request: ServedRequest) -> bytes:
        """Return the forwarded request, which makes the sibling close the connection after the answer."""
        lines = [f"{request.method} {request.raw_path} HTTP/{request.version[0]}.{request.version[1]}"]
        lines += [
            f"{name}: {value}"
            for name, value in request.headers.items()
            if name.lower() not in _NOT_PASSED_ON
        ]
        if request.method == "POST":
            lines.append(f"Content-Length: {len(self._body)}")
        lines += [*self._fields, "Connection: close", "", ""]
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
