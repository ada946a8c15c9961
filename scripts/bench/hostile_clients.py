"""Attack a crawl that serves pages, first by slow clients, then by junk signals; measure memory and speed.

    scripts/bench/hostile_clients.py [--clients 10000] [--signals 1000000] [--rate 10]

A crawl of an endless site, whose pages have two links each, fetches `--rate` pages per second and serves its
copies. First, `--clients` clients connect and send nothing, half a request line, or half a header. Meanwhile,
an honest client sends a request from time to time. Then `--signals` URLs of foreign hosts are sent by `POST
/signal`. Each notification has ten thousand URLs and comes from a different source.
"""

import asyncio
import collections
import json
import resource
import tempfile
import time
from pathlib import Path

from programs import CRAWLER, FULL_RATE, running

from crawler.bench import harness
from crawler.bench.meters import memory
from crawler.cli.loopback import free_port
from tests.end_to_end.web import Web, endless

HALVES = (b"", b"GET /page?ur", b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
AT_ONCE = 10_000  # number of URLs per notification


class Besieged:
    """The attacked crawl: its memory, its pages and its answers."""

    def __init__(self, pid: int, folder: Path, port: int, page: str) -> None:
        self._pid, self._lines, self.port, self._page = pid, folder / "pages.jsonl", port, page

    def memory(self) -> int:
        """Return the resident memory of the crawl in MiB."""
        return memory(self._pid).resident >> 20

    def pages(self) -> int:
        return self._lines.read_bytes().count(b"\n") if self._lines.exists() else 0

    async def exchange(self, head: str, body: bytes = b"") -> tuple[str, bytes, float]:
        """Send a request; return (status, body, seconds)."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(f"{head}\r\nHost: 127.0.0.1\r\nConnection: close\r\n".encode())
                writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body if body else b"\r\n")
                data = await reader.read()
                writer.close()
        except (OSError, TimeoutError) as error:
            return type(error).__name__, b"", time.monotonic() - began
        return data[9:12].decode(), data.partition(b"\r\n\r\n")[2], time.monotonic() - began

    async def ask(self) -> tuple[str, bytes, float]:
        return await self.exchange(f"GET /page?url={self._page} HTTP/1.1")


async def besiege(crawl: Besieged, clients: int) -> None:
    """Open connections and send only part of a request on each. At the same time, send honest requests."""
    before, pages, began = crawl.memory(), crawl.pages(), time.monotonic()
    writers, answers, most = [], [], before
    for number in range(clients):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", crawl.port)
        except OSError:
            continue
        writer.write(HALVES[number % len(HALVES)])
        writers.append(writer)
        if number % 500 == 499:
            answers.append(await crawl.ask())
            most = max(most, crawl.memory())
    for _ in range(10):
        answers.append(await crawl.ask())
        await asyncio.sleep(0.2)
    took = time.monotonic() - began
    statuses = dict(collections.Counter(status for status, _, _ in answers))
    print(
        f"{len(writers):,} half clients in {took:.1f} s: {len(answers)} honest requests {statuses}, the slowest "
        f"in {max(seconds for _, _, seconds in answers):.2f} s; memory {before} to {most} MiB; "
        f"{(crawl.pages() - pages) / took:.1f} pages/s",
        flush=True,
    )
    for writer in writers:
        writer.close()


async def junk(crawl: Besieged, signals: int) -> None:
    """Send signals for unknown hosts."""
    before, pages, began = crawl.memory(), crawl.pages(), time.monotonic()
    refused: collections.Counter[str] = collections.Counter()
    for batch in range(signals // AT_ONCE):
        urls = [f"http://x{batch}-{n}.example/{n}" for n in range(AT_ONCE)]
        body = json.dumps({"urls": urls, "source": f"s{batch}"}).encode()
        status, answer, _ = await crawl.exchange("POST /signal HTTP/1.1", body)
        refused.update(json.loads(answer)["why"] if status == "200" else {f"status {status}": AT_ONCE})
    took = time.monotonic() - began
    print(
        f"{signals:,} junk signals in {took:.1f} s: refused {dict(refused)}; memory {before} to {crawl.memory()} MiB; "
        f"{(crawl.pages() - pages) / took:.1f} pages/s",
        flush=True,
    )


async def main() -> None:
    parser = harness.parser(__doc__)
    for name, value in (("clients", 10_000), ("signals", 1_000_000), ("rate", 10)):
        parser.option(f"--{name}", value)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, options.clients + 1000), hard))
    port = free_port()
    with tempfile.TemporaryDirectory() as name, Web({}, other=endless) as web:
        page = web.url("/0", "127.0.0.1")
        command = [*CRAWLER, "crawl", page, "--dir", name, "--rate", str(options.rate), *FULL_RATE]
        with running([*command, "--serve", f"127.0.0.1:{port}"]) as process:
            crawl = Besieged(process.pid, Path(name), port, page)
            while (await crawl.ask())[0] != "200":
                await asyncio.sleep(0.2)
            await asyncio.sleep(3)
            print(f"before: memory {crawl.memory()} MiB, about {crawl.pages() / 3:.0f} pages/s", flush=True)
            await besiege(crawl, options.clients)
            await junk(crawl, options.signals)


if __name__ == "__main__":
    asyncio.run(main())
