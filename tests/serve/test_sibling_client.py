"""Test that a request for another node's page is forwarded at most once, and that the answer is streamed."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from crawler.records import Directives, TaskKind
from crawler.serve import sibling_client
from crawler.serve.interfaces import Ahead, AheadState
from crawler.serve.sibling_client import SiblingClient
from tests.fetcher.scripted import silent_port
from tests.pages.support import HTML
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
        first.server._siblings = SiblingClient([f"p1=127.0.0.1:{owner.port}"], tmp_path)
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
        assert (first.server.requests, owner.server.requests) == (2, 1), "each request is counted once"
        head = await first.get(AT, method="HEAD")
        assert head.body == b"" and head.fields["content-length"] == str(len(direct.body))
        part = await first.get(AT, "Range: bytes=4-9")
        assert part.status == 206 and part.body == direct.body[4:10]
        assert (await first.get(AT, f"If-None-Match: {direct.fields['etag']}")).status == 304
        assert (await first.get(AT + "none")).status == 404
        assert (await first.get("/timemap/link/" + PAGE)).status == 200


FILE = "http://site.example/image"
SECRET = b"secret of the crawl"


@asynccontextmanager
async def three(tmp_path: Path) -> AsyncIterator[list[Served]]:
    """Start three nodes with the same secret. The first owns all URLs, and the other two store files of their pages."""
    nodes = [Served(tmp_path / name) for name in ("p0", "p1", "p2")]
    async with nodes[0], nodes[1], nodes[2]:
        for number, node in enumerate(nodes):
            node.crawl.elsewhere, node.crawl.owner = number > 0, "p0"
            peers = [f"p{n}=127.0.0.1:{other.port}" for n, other in enumerate(nodes) if other is not node]
            others = [peer.partition("=")[0] for peer in peers]
            node.server._siblings = SiblingClient(peers, tmp_path, others, SECRET)
        yield nodes


async def test_the_owner_finds_the_newest_copy_that_other_nodes_stored(tmp_path: Path) -> None:
    """A client gets the same copy from each node, in each form."""
    async with three(tmp_path) as (owner, first, second):
        first.store(FILE, b"old", task=TaskKind.SUBRESOURCE)
        second.store(FILE, b"newer", at=20.0, task=TaskKind.SUBRESOURCE)
        owner.crawl.verdict = Ahead(AheadState.QUEUED, "soon", wait=2.5)
        for node in (owner, first):
            client = partial(node.get, "/page?url=" + FILE)
            response = await client()
            assert (response.status, response.body) == (200, b"newer")
            assert (await client(f"If-None-Match: {response.fields['etag']}")).status == 304
            assert (await client("Range: bytes=1-2")).body == b"ew"
            assert (await node.get(f"/page?url={FILE}&refresh=1")).fields["x-refresh"] == "queued; wait=3"
            assert (await node.get(f"/page?url={FILE}&at=2000")).body == b"newer"
            assert (await node.get("/timegate/" + FILE)).status == 302
            assert (await node.get("/timemap/link/" + FILE)).body.count(b'memento"') == 1
            assert (await node.get(FILE)).body == b"newer"
            missing = await node.get("/page?url=http://site.example/none")
            assert missing.status == 404 and missing.json["state"] == "unknown"
        assert set(owner.crawl.queued) == {FILE} and not second.crawl.queued + first.crawl.queued
        assert owner.crawl.asked and not first.crawl.asked + second.crawl.asked, (
            "the owner counts the requests"
        )
        owner.store(FILE, b"a page of the owner")
        assert (await first.get("/page?url=" + FILE)).body == b"a page of the owner"


async def test_a_file_that_one_node_withholds_is_withheld(tmp_path: Path) -> None:
    async with three(tmp_path) as (owner, first, second):
        first.store(FILE, b"old", task=TaskKind.SUBRESOURCE, tags=Directives(noarchive=True))
        second.store(FILE, b"newer", at=20.0, task=TaskKind.SUBRESOURCE)
        for node in (owner, first, second):
            assert (await node.get("/page?url=" + FILE)).status == 451


async def test_only_the_owner_may_ask_for_the_copies_of_other_nodes(tmp_path: Path) -> None:
    """A client that forges the fields of the nodes gets the answer that it would get without them."""
    async with three(tmp_path) as (owner, first, _):
        first.store(FILE, b"file", task=TaskKind.SUBRESOURCE, tags=Directives(noarchive=True))
        wrong = SiblingClient([], tmp_path, [], b"another secret")._token
        for hop in ("1", "token", wrong, "\xe9"):
            assert (await first.get(f"/held?url={FILE}", f"X-Crawler-Hop: {hop}")).status == 404
            assert (await first.get("/page?url=" + FILE, f"X-Crawler-Hop: {hop}")).status == 421
            forged = await owner.get(
                "/page?url=" + FILE, f"X-Crawler-Hop: {hop}", "X-Crawler-Refresh: forged"
            )
            assert forged.status == 451 and "x-refresh" not in forged.fields


async def test_a_node_that_does_not_answer_has_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sibling_client, "HELD_TIMEOUT", 0.2)
    async with three(tmp_path) as (owner, first, second):
        second.store(FILE, b"file", task=TaskKind.SUBRESOURCE)
        with silent_port() as port:
            peers = [f"p1=127.0.0.1:{port}", f"p2=127.0.0.1:{second.port}"]
            owner.server._siblings = SiblingClient(peers, tmp_path, ["p1", "p2", "p3"], SECRET)
            assert (await owner.get("/page?url=" + FILE)).body == b"file"
            first.store(FILE, b"newer", at=20.0, task=TaskKind.SUBRESOURCE)
            owner.server._siblings._addresses["p1"] = ("127.0.0.1", first.port)
            assert (await owner.get("/page?url=" + FILE)).body == b"file", (
                "a late node is not asked for a while"
            )
            monkeypatch.setattr(owner.server._siblings, "_silent_until", {})
            assert (await owner.get("/page?url=" + FILE)).body == b"newer"


async def test_a_client_of_an_old_version_gets_no_chunks_of_another_node(tmp_path: Path) -> None:
    async with between(tmp_path) as (first, owner):
        packed = gzip.compress(b"decoded " * 300_000, mtime=0)
        owner.store(PAGE + "z", packed, headers=(*HTML, (b"Content-Encoding", b"gzip")))
        for node in (owner, first):
            response = await node.get(AT + "z", version="1.0")
            assert "transfer-encoding" not in response.fields and response.body == b"decoded " * 300_000


async def test_a_request_is_forwarded_only_once(tmp_path: Path) -> None:
    """If two nodes disagree about the owner, the request must not be forwarded forever."""

    async with between(tmp_path) as (first, owner):
        owner.crawl.elsewhere = True
        owner.server._siblings = SiblingClient([f"p1=127.0.0.1:{first.port}"], tmp_path)
        response = await first.get(AT)
        assert response.status == 421 and response.json["owner"] == "p1"


async def test_an_owner_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sibling_client, "CONNECT_TIMEOUT", 0.2)

    async with between(tmp_path) as (first, owner):
        with silent_port() as port:
            first.server._siblings = SiblingClient([f"p1=127.0.0.1:{port}"], tmp_path)
            response = await first.get(AT)
            assert response.status == 503 and "no answer in time" in response.json["why"]
        response = await first.get(AT)
        assert response.status == 503 and "p1" in response.json["why"]
        first.server._siblings = SiblingClient([], tmp_path)
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
        first.server._siblings = SiblingClient([f"p1=127.0.0.1:{port}"], tmp_path)
        response = await first.get(AT)
        assert response.fields["content-length"] == "100" and response.body == b"half"
        dying.close()
        assert (await first.get("/healthz")).status == 200
