"""Test that slow, greedy or malformed clients get the right status and do not slow down other clients."""

import asyncio
import gc
import resource
import socket
from pathlib import Path

import pytest

from tests.serve.support import Response, Served

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    made.store()
    return made


@pytest.mark.parametrize(
    ("request_text", "statuses"),
    [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", {421}),
        (f"GET {AT} HTTP/1.1\r\nHost: evil.example\r\n\r\n", {421}),
        (f"GET {AT} HTTP/1.1\r\n\r\n", {400}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", {400}),
        ("CONNECT site.example:443 HTTP/1.1\r\nHost: site.example:443\r\n\r\n", {400, 405}),
        ("CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400, 405}),
        ("GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", {404}),
        ("GET http://127.0.0.1:22/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {404}),
        ("GET file:///etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400}),
        ("GET /../../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400, 404}),
        ("GET /page/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {404}),
        ("GET \\..\\x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400, 404}),
        ("GET /page?url=file:///etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400}),
        ("GET /page?url=gopher://127.0.0.1:6379/_x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400}),
        ("GET /page?url=http://localhost:1/%0d%0aX:y HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {400, 404}),
        ("nonsense\r\n\r\n", {400}),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405}),
        ("GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n", {400, 404}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\n\r\n", {400}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", {400}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n", {400}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "a" * 40_000 + "\r\n\r\n", {431}),
        ("GET /page?url=" + "a" * 40_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {414, 431}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\n" + f"X: {'a' * 100}\r\n" * 1000 + "\r\n", {400, 431}),
        (f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "".join(f"X{i}: y\r\n" for i in range(200)) + "\r\n", {400, 431}),
    ],
)  # fmt: skip
async def test_invalid_requests_get_the_right_status(
    served: Served, request_text: str, statuses: set[int]
) -> None:
    async with served.connected() as (reader, writer):
        writer.write(request_text.encode("latin-1"))
        head = b""
        while b"\r\n\r\n" not in head and (data := await reader.read(65536)):
            head += data
    assert Response(head).status in statuses, head[:200]
    assert b"root:" not in head
    assert (await served.get(AT)).status == 200


async def test_an_endless_header_is_cut_off(served: Served) -> None:
    """A client that keeps sending header fields is disconnected at the limit, before memory fills."""
    async with served.connected() as (reader, writer):
        writer.write(f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode())
        sent = 0
        try:
            while sent < 10_000_000:
                writer.write(b"X-Field: " + b"a" * 900 + b"\r\n")
                sent += 911
                await writer.drain()
                await asyncio.sleep(0)
            pytest.fail("10 MB of header were taken")
        except ConnectionError:
            pass
    assert (await served.get(AT)).status == 200


async def test_slow_clients_lose_their_slots_to_others(tmp_path: Path) -> None:
    """Honest clients are answered while 500 clients with incomplete requests compete for 50 slots.

    `ConnectionSlots` is tested with a manual clock elsewhere. Here, the honest clients only wait until the
    slow clients have used up the configured time.
    """
    async with Served(tmp_path, connections_max=50, idle_timeout=2.0) as served:
        served.store()
        slow = []
        for number in range(500):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            if number % 2:
                writer.write(b"GET /page?url=")
            slow.append(writer)
        answered = 0
        while answered < 20:
            response = await served.get(AT)
            answered += response.status == 200
            assert response.status in (0, 200, 503)
            assert len(served.server.listener.places) <= 50
        served.server.listener.places._check()
        for writer in slow:
            writer.close()


async def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    """The client is disconnected after the write timeout.

    Until then, the answers to its pipelined requests do not fill the memory.
    """
    async with Served(tmp_path, write_timeout=0.5) as served:
        served.store(body=b"x" * 500_000)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        await loop.sock_sendall(client, f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 60)
        while len(served.server.listener.places) == 0:
            await asyncio.sleep(0.01)
        while len(served.server.listener.places):
            await asyncio.sleep(0.05)
        assert served.server.listener.requests < 20
        client.close()


async def test_many_connections_leave_no_memory_behind(served: Served) -> None:
    """Memory does not grow over thousands of requests, including rejected ones."""

    async def some(n: int) -> None:
        for number in range(n):
            await served.get(AT if number % 2 else f"/page?url=http://x{number}.example/")

    await some(300)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await some(1500)
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000  # kB
    assert len(served.server.listener.places) <= 2
