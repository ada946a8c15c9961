"""Test connections: order of answers, keep-alive, bodies, half-closed connections, greedy clients, server shutdown."""

import asyncio
import logging
from pathlib import Path

import pytest

from crawler.serve import http_server
from crawler.serve.http_server import json_reply
from crawler.serve.reply import Reply
from crawler.serve.request_parsing import ParsedRequest
from crawler.serve.request_reader import ServedRequest
from tests.serve.support import Response, Served
from tests.serve.test_again import AT, answers, asks


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path, request_body_bytes_max=1000)
    made.store(body=b"page")
    return made


def echoing(served: Served) -> None:
    """Make the POST endpoints answer with the body of the request."""

    async def receive(asked: ParsedRequest, request: ServedRequest, body: bytes) -> Reply:
        return json_reply(200, body)

    served.server._receive = receive


@pytest.mark.parametrize(
    ("version", "lines", "stays"),
    [("1.1", (), True), ("1.1", ("Connection: close",), False), ("1.1", ("connection: Keep-Alive, CLOSE",), False),
     ("1.0", (), False), ("1.0", ("Connection: keep-alive",), True)],
)  # fmt: skip
async def test_connections_are_kept_open_as_requested(
    served: Served, version: str, lines: tuple[str, ...], stays: bool
) -> None:
    request = "\r\n".join([f"GET {AT} HTTP/{version}", "Host: 127.0.0.1", *lines, "", ""]).encode()

    async with served.connected() as (reader, writer):
        for _ in range(3 if stays else 1):
            writer.write(request)
            (response,) = await answers(reader, 1)
            assert response.status == 200 and response.body == b"page"
            said = response.fields.get("connection", "")
            assert said == ("" if stays and version == "1.1" else "keep-alive" if stays else "close")
        if not stays:
            assert await reader.read() == b""


@pytest.mark.parametrize(
    ("coded", "status", "body"),
    [
        (b"Content-Length: 5\r\n\r\nhello", 200, b"hello"),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 200, b"hello"),
        (b"Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\nhello", 415, None),
        (b"Content-Length: 1001\r\n\r\n" + b"a" * 1001, 413, None),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nxx\r\n", 400, None),
    ],
)
@pytest.mark.parametrize("step", [3, 1 << 20])
async def test_request_bodies_are_decoded_or_rejected(
    served: Served, coded: bytes, status: int, body: bytes | None, step: int
) -> None:
    echoing(served)

    async with served.connected() as (reader, writer):
        data = b"POST /signal HTTP/1.1\r\nHost: 127.0.0.1\r\n" + coded
        for begin in range(0, len(data), step):
            writer.write(data[begin : begin + step])
            await asyncio.sleep(0)
        (response,) = await answers(reader, 1)
        assert response.status == status and (body is None or response.body == body)
        if status == 200:
            writer.write(asks())
            assert (await answers(reader, 1))[0].body == b"page"


async def test_a_client_waits_for_100_continue(served: Served) -> None:
    echoing(served)

    async with served.connected() as (reader, writer):
        writer.write(asks("/signal", "Expect: 100-continue", "Content-Length: 5", method="POST"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await answers(reader, 1))[0].body == b"hello"


async def test_a_client_that_sends_too_much_can_read_the_error(served: Served) -> None:
    """The server reads and discards the client's data for a while before it closes the connection.

    If it closed the connection immediately, the connection would be reset, and the answer would be lost.
    """
    echoing(served)

    async with served.connected() as (reader, writer):
        writer.write(asks("/signal", "Content-Length: 100000000", method="POST"))
        for _ in range(20):
            writer.write(b"x" * 5000)
            await asyncio.sleep(0)
        assert Response(await reader.read()).status == 413
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                writer.write(b"x" * 5000)
                await writer.drain()
                await asyncio.sleep(0)


async def test_the_memory_for_an_unread_body_is_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = asyncio.Event(), []

    async def slowly(request: ServedRequest, connection: http_server.ServedConnection) -> http_server.Sending:
        await gate.wait()
        seen.append(request.held)
        return http_server.Sending(json_reply(200, b"late"))

    served.server.listener._handle = slowly
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(asks("/signal", "Content-Length: 50000000", method="POST"))
    for _ in range(300):
        writer.write(b"x" * 50_000)
        await asyncio.sleep(0)
    gate.set()
    assert (await answers(reader, 1))[0].body == b"late"
    assert seen[0] <= http_server.BODY_HELD + (256 << 10)
    writer.transport.abort()


async def test_a_half_closed_client_gets_its_answers(served: Served) -> None:
    async with served.connected() as (reader, writer):
        writer.write(asks(AT, "User-Agent: half") * 3)
        writer.write_eof()
        said = await answers(reader, 3)
        assert [each.body for each in said] == [b"page"] * 3 and await reader.read() == b""


async def test_a_post_is_completed_after_its_client_disconnects(served: Served) -> None:
    """A POST that an endpoint has begun to process is completed after the client disconnects."""
    begun, gate, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def receive(asked: ParsedRequest, request: ServedRequest, body: bytes) -> Reply:
        begun.set()
        await gate.wait()
        done.set()
        return json_reply(200, b"")

    served.server._receive = receive
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(asks("/signal", "Content-Length: 2", method="POST") + b"{}")
    await begun.wait()
    writer.transport.abort()
    (connection,) = served.server.listener._connections
    while not (connection._eof or connection.gone):
        await asyncio.sleep(0)
    gate.set()
    await done.wait()


async def test_many_pipelined_requests_do_not_delay_other_clients(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(asks(AT, "User-Agent: many") * 2000)
    await answers(reader, 1)
    assert (await served.get(AT)).status == 200
    assert served.server.listener.requests < 1000, (
        "the other client was answered before all pipelined requests"
    )
    writer.transport.abort()


async def test_a_client_that_idles_after_a_long_answer_loses_its_slot(tmp_path: Path) -> None:
    """Once the answer is sent, the client counts as idle, so another client may get its slot."""
    async with Served(tmp_path, idle_timeout=0.5, held_bytes_max=1000) as served:
        served.store(body=b"x" * 20_000_000)
        async with served.connected() as (reader, writer):
            writer.write(asks())
            (response,) = await answers(reader, 1)
            assert len(response.body) == 20_000_000
            while len(served.server.listener.places):
                await asyncio.sleep(0.05)
            assert await reader.read() == b""


async def test_an_internal_error_gives_500_and_ends_the_connection(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> Reply:
        raise ValueError("ours")

    served.server._receive = broken
    with caplog.at_level(logging.ERROR):
        response = await served.get("/websub/x")
    assert response.status == 500 and response.json["state"] == "error"
    assert "a request failed" in caplog.text and "ValueError: ours" in caplog.text


async def test_answers_in_progress_get_a_grace_period_at_shutdown(served: Served) -> None:
    """Idle connections are closed. Answers that are not complete after the grace period are cut."""
    gates = [asyncio.Event(), asyncio.Event()]

    async def receive(asked: ParsedRequest, request: ServedRequest, body: bytes) -> Reply:
        await gates[asked.door == "indexnow"].wait()
        return json_reply(200, b"made it")

    served.server._receive = receive
    clients = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
    clients[0][1].write(asks("/websub/x"))
    clients[1][1].write(asks("/indexnow?url=x&key=y"))
    while served.server.listener.requests < 2:
        await asyncio.sleep(0)
    closing = asyncio.create_task(served.server.close())
    await asyncio.sleep(0)
    gates[0].set()
    assert (await answers(clients[0][0], 1))[0].body == b"made it"
    await closing
    assert not served.server.listener._connections
    for reader, writer in clients:
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
