"""A page server on loopback with a page cache, and a client that can send any bytes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from crawler.change_signals import Signalled
from crawler.config import ConsentConfig, ServeConfig
from crawler.consent.use_rule import UseRule
from crawler.pages.archive import Archive
from crawler.serve.interfaces import Ahead, AheadState, Located
from crawler.serve.page_handler import PageHandler
from crawler.serve.rewriting import rewriter
from crawler.serve.server import PageServer
from crawler.urls.fingerprint import Fingerprinter
from tests.pages.support import START, Site, fetch

NAMES = Fingerprinter(bytes(16))


class CrawlOfSite:
    """A `ServedCrawl` on a test's page cache. Its lists record queued pages, counted requests and signals."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.asked: list[int] = []
        self.queued: list[str] = []
        self.signals: list[tuple[tuple[str, ...], str]] = []
        self.probability: float | None = None
        self.elsewhere, self.owner = False, "p1"
        self.scope = "http://site.example/"
        self.verdict = Ahead(AheadState.QUEUED, "ask again later")

    def locate(self, url: str) -> Located:
        return Located(NAMES.fingerprint(url), None if self.elsewhere else self.site.cache, self.owner)

    def others(self, fingerprint: int) -> dict[str, Archive]:
        return {"p0": self.site.cache} if self.elsewhere else {}

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        return ("unknown", "no link to it") if url.startswith(self.scope) else ("filtered", "scope")

    def fresh_probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        return self.probability

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        if self.verdict.queued and not url.startswith(self.scope):
            return Ahead(AheadState.OUT_OF_SCOPE, "scope")
        if self.verdict.queued:
            self.queued.append(url)
        return self.verdict

    def note_request(self, fingerprint: int) -> None:
        self.asked.append(fingerprint)

    async def signal(self, raw_urls: Sequence[str], source: str) -> Signalled:
        self.signals.append((tuple(raw_urls), source))
        return Signalled(noted=len(raw_urls))

    def ready(self) -> str:
        return ""


class Served:
    """A site, its page server, and a client for it. As an argument of a test, it runs during the test."""

    runs_during_test = True

    def __init__(self, folder: Path, **config: Any) -> None:
        self.site = Site(folder)
        self.crawl = CrawlOfSite(self.site)
        self.config = msgspec.structs.replace(ServeConfig(), **config)
        self.now = START + 100.0
        rule = UseRule.of(self.config.allow, ConsentConfig())
        handler = PageHandler(self.crawl, self.config, rewriter(), rule)
        self.handler = handler
        self.server = PageServer(handler, self.config, lambda: self.now, ready=lambda: "")
        self.port = 0

    def store(
        self, url: str = "http://site.example/", body: bytes = b"<p>page</p>", at: float = 0.0, **values: Any
    ) -> None:
        """Store an answer in the cache. `extracted` contains the directives of the page, `tags` those of the header."""
        extracted = values.pop("extracted", None)
        kept = {name: values.pop(name) for name in ("task", "tags") if name in values}
        answer = fetch(url, body, began=START + at, **values)
        self.site.visit(answer, NAMES.fingerprint(url), extracted, **kept)

    async def __aenter__(self) -> Self:
        """Start the server. Leaving the block closes the server."""
        _, self.port = await self.server.start("127.0.0.1:0")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.close()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield the streams of a connection to the server. Leaving the block closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def raw(self, data: bytes) -> bytes:
        """Send bytes unchanged. Return everything that is received until the server closes the connection."""
        async with self.connected() as (reader, writer):
            writer.write(data)
            try:
                return await reader.read()
            except ConnectionError:
                return b""

    async def get(self, target: str, *lines: str, method: str = "GET", version: str = "1.1") -> "Response":
        """Send one request with the header fields `lines` on a separate connection. Return the response."""
        given = [line for line in lines if line.lower().startswith("host:")]
        host = [] if given else [f"Host: 127.0.0.1:{self.port}"]
        head = [f"{method} {target} HTTP/{version}", *host, *lines, "Connection: close", "", ""]
        return Response(await self.raw("\r\n".join(head).encode("latin-1")))


class Response:
    """A parsed response. If the body came in chunks, they are joined."""

    def __init__(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first.startswith("HTTP/") else 0
        self.fields = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        self.names = [line.partition(":")[0].lower() for line in lines]
        if self.fields.get("transfer-encoding") == "chunked":
            body, rest = b"", body
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                n = int(size, 16)
                body, rest = body + rest[:n], rest[n + 2 :]
                if n == 0:
                    break
        self.body = body

    @property
    def json(self) -> dict:
        return msgspec.json.decode(self.body)
