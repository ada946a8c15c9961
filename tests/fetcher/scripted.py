"""A raw server on loopback that sends the answers of a script, and a client with small limits."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Self

import msgspec
import uvloop

from crawler.clock import VirtualClock
from crawler.config import FetchConfig, IdentityConfig, NetworkConfig, Seconds
from crawler.fetcher.client import Client
from crawler.fetcher.fetch_request import FetchRequest
from crawler.records import Fetch


class Do(Enum):
    """The steps of a script, except for sending bytes."""

    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"  # send nothing until the client closes the connection
    POUR = "pour"  # repeat the preceding bytes forever


# a step may also be bytes, which are sent to the client, or a float, which is a pause in seconds
Script = Sequence[bytes | Do | float]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"

PATIENT = FetchConfig()
HASTY = FetchConfig(
    connect_timeout=Seconds(0.2),
    tls_timeout=Seconds(0.2),
    header_timeout=Seconds(0.15),
    silence_timeout=Seconds(0.15),
    total_timeout=Seconds(2.0),
)  # small limits, in seconds, for tests that wait until a time limit has passed
LOOPBACK = NetworkConfig(allow_networks=("127.0.0.0/8",))


def small(**changes: Any) -> FetchConfig:
    """Return limits in which `changes` replace the defaults; the default time limits are too long for a test."""
    return msgspec.structs.replace(PATIENT, **changes)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port of loopback that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("0.0.0.0", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port of loopback that accepts connections but never answers."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield listening.getsockname()[1]


class Relay:
    """A proxy on loopback that runs `_talk` for each client. It is a context manager, and listens at `authority`."""

    context: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        self.authority = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Forward bytes between a client and a port on loopback until both of them have ended."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


class Server:
    """Answers each request with the next of `scripts`. The last script is repeated."""

    def __init__(self, *scripts: Script, context: ssl.SSLContext | None = None) -> None:
        self.scripts = list(scripts)
        self.requests: list[bytes] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.sent = 0
        self.port = 0
        self._context = context

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def url(self, path: str = "/", host: str = "host.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def request(
        self, path: str = "/", host: str = "host.test", scheme: str = "http", **fields: Any
    ) -> FetchRequest:
        return FetchRequest(self.url(path, host, scheme), ("127.0.0.1",), **fields)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
                await self._play(script, reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last = b""
        for step in script:
            if isinstance(step, bytes):
                last = step
                writer.write(step)
                self.sent += len(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is Do.HANG:
                await reader.read()
            elif step is Do.POUR:
                while True:
                    writer.write(last)
                    self.sent += len(last)
                    await writer.drain()
            else:
                if step is Do.RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                raise asyncio.IncompleteReadError(b"", None)


class ScriptedClient(Client):
    """A client that is a context manager: it starts when the context is entered."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def make_client(
    fetch: FetchConfig = PATIENT,
    *,
    identity: IdentityConfig | None = None,
    network: NetworkConfig = LOOPBACK,
    clock: VirtualClock | None = None,
) -> ScriptedClient:
    return ScriptedClient(fetch, identity or IdentityConfig(), network, clock or VirtualClock())


async def _one(script: Script, config: FetchConfig, fields: dict[str, Any]) -> tuple[Fetch, Server]:
    async with make_client(config) as client, Server(script) as server:
        request = server.request(fields.pop("path", "/"), **fields)
        return await client.fetch(request), server


def fetch(*script: bytes | Do | float, config: FetchConfig = PATIENT, **fields: Any) -> Fetch:
    """Fetch one scripted answer with the client, and return the result. `fields` are the fields of the request."""
    return run(_one(script, config, fields))[0]


def run(coroutine: Any) -> Any:
    """Run on uvloop, as the crawler does, for at most 30 s.

    If a test fails, its loop stays open, because closing it would wait for the tasks that the test left
    behind.
    """
    loop = uvloop.new_event_loop()
    result = loop.run_until_complete(asyncio.wait_for(coroutine, 30.0))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    return result
