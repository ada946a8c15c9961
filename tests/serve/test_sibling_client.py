"""Test that a request for another node's page is forwarded at most once, and that the answer is streamed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.serve import sibling_client
from crawler.serve.sibling_client import SiblingClient
from tests.fetcher.scripted import silent_port
from tests.serve.support import Served

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE


@asynccontextmanager
async def between(tmp_path: Path) -> AsyncIterator[tuple[Served, Served]]:
    """Start two nodes. The owner p1 has the pages. The first node has no pages and knows p1 as a peer."""
    first, owner = Served(tmp_path / "a"), Served(tmp_path / "b")
    first.crawl.elsewhere = True
    owner.store(body=b"the owner's page " * 20_000)
    async with owner, first:
        first.server._forward = SiblingClient([f"p1=127.0.0.1:{owner.port}"], tmp_path).ask
        yield first, owner


async def test_a_request_for_another_nodes_page_is_forwarded(tmp_path: Path) -> None:
    async with between(tmp_path) as (first, owner):
        direct = await owner.get(AT, "Host: 127.0.0.1")
        for _ in range(2):
            passed = await first.get(AT, "Host: 127.0.0.1")
            assert passed.status == 200 and passed.body == direct.body
            assert {**passed.fields, "date": ""} == {**direct.fields, "date": ""}
        assert len(first.crawl.asked) == 0 and len(owner.crawl.asked) == 3, (
            "the request is counted by the page's owner"
        )
        head = await first.get(AT, method="HEAD")
        assert head.body == b"" and head.fields["content-length"] == str(len(direct.body))
        part = await first.get(AT, "Range: bytes=4-9")
        assert part.status == 206 and part.body == direct.body[4:10]
        assert (await first.get(AT, f"If-None-Match: {direct.fields['etag']}")).status == 304
        assert (await first.get(AT + "none")).status == 404
        assert (await first.get("/timemap/link/" + PAGE)).status == 200


async def test_a_request_is_forwarded_only_once(tmp_path: Path) -> None:
    """If two nodes disagree about the owner, the request must not be forwarded forever."""

    async with between(tmp_path) as (first, owner):
        owner.crawl.elsewhere = True
        owner.server._forward = SiblingClient([f"p1=127.0.0.1:{first.port}"], tmp_path).ask
        response = await first.get(AT)
        assert response.status == 421 and response.json["owner"] == "p1"


async def test_an_owner_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sibling_client, "CONNECT_TIMEOUT", 0.2)

    async with between(tmp_path) as (first, owner):
        with silent_port() as port:
            first.server._forward = SiblingClient([f"p1=127.0.0.1:{port}"], tmp_path).ask
            response = await first.get(AT)
            assert response.status == 503 and "no answer in time" in response.json["why"]
        response = await first.get(AT)
        assert response.status == 503 and "p1" in response.json["why"]
        first.server._forward = SiblingClient([], tmp_path).ask
        response = await first.get(AT)
        assert response.status == 421 and response.json["owner"] == "p1"


async def test_an_owner_that_dies_during_an_answer(tmp_path: Path) -> None:
    """The body ends before its announced length, so the client sees that the body is incomplete."""

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with between(tmp_path) as (first, owner):
        dying = await asyncio.start_server(half, "127.0.0.1", 0)
        port = dying.sockets[0].getsockname()[1]
        first.server._forward = SiblingClient([f"p1=127.0.0.1:{port}"], tmp_path).ask
        response = await first.get(AT)
        assert response.fields["content-length"] == "100" and response.body == b"half"
        dying.close()
        assert (await first.get("/healthz")).status == 200
