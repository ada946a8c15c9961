"""Compare the crawler's client with a bare aiohttp session: CPU per GET of 45 kB on a kept-alive connection.

    python scripts/bench/fetch.py [--rounds 5] [--fetches 4000] [--profile]

The server is nginx in separate processes, with 16 hosts whose addresses start at 127.0.0.1. The script
measures the CPU time of its own process. Rounds of the two clients alternate. The median is printed.
"""

import asyncio
import cProfile
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import aiohttp
import uvloop
from programs import nginx, scratch
from yarl import URL

from crawler.bench import harness
from crawler.cli.loopback import free_port
from crawler.clock import SystemClock
from crawler.config import FetchConfig, IdentityConfig, NetworkConfig
from crawler.fetcher.client import Client
from crawler.fetcher.fetch_request import FetchRequest

HOSTS = 16
PAGE_BYTES = 45_000


@contextmanager
def server() -> Iterator[int]:
    with scratch("fetch") as folder:
        (folder / "page.html").write_bytes((b"<a href='/some/page'>text of a link</a>\n" * 2000)[:PAGE_BYTES])
        port = free_port()
        with nginx(folder, f"server {{ listen {port}; root {folder}; open_file_cache max=16; }}"):
            yield port


async def measure(get: Callable[[str], Awaitable[int]], port: int, fetches: int) -> float:
    """Return the CPU microseconds per fetch, with one request at a time on each of the hosts."""

    async def host(number: int) -> None:
        url = f"http://127.0.0.{number + 1}:{port}/page.html"
        for _ in range(fetches // HOSTS):
            assert await get(url) == PAGE_BYTES

    before = time.process_time()
    await asyncio.gather(*(host(number) for number in range(HOSTS)))
    return (time.process_time() - before) / fetches * 1e6


async def main(rounds: int, fetches: int, profile: bool) -> None:
    client = Client(
        FetchConfig(), IdentityConfig(), NetworkConfig(allow_networks=("127.0.0.0/8",)), SystemClock()
    )
    await client.start()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=3600),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        skip_auto_headers=("Accept", "User-Agent"),
    )

    async def bare(url: str) -> int:
        async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
            return len(await response.read())

    async def ours(url: str) -> int:
        fetch = await client.fetch(FetchRequest(url, keep_alive=10.0))
        return len(fetch.content)

    figures: dict[str, list[float]] = {"bare": [], "ours": []}
    with server() as port:
        await measure(bare, port, fetches // 4)
        await measure(ours, port, fetches // 4)
        for _ in range(rounds):
            figures["bare"].append(await measure(bare, port, fetches))
            figures["ours"].append(await measure(ours, port, fetches))
        if profile:
            profiler = cProfile.Profile()
            profiler.enable()
            await measure(ours, port, fetches)
            profiler.disable()
            profiler.print_stats("tottime")
        await session.close()
        await client.close()
    bare_cost, our_cost = statistics.median(figures["bare"]), statistics.median(figures["ours"])
    print(f"aiohttp GET {bare_cost:.1f} us, Client.fetch {our_cost:.1f} us, ratio {our_cost / bare_cost:.2}")


if __name__ == "__main__":
    parser = harness.parser(__doc__)
    parser.option("--rounds", 5)
    parser.option("--fetches", 4000)
    parser.option("--profile", False)
    arguments = parser.parse_args()
    uvloop.run(main(arguments.rounds, arguments.fetches, arguments.profile))
