"""Crawl a set of pages with as little work as possible in Python. `beside_loop.py` compares crawls with this loop.

    python scripts/bench/bare_loop.py SEEDS PATTERN [--concurrency 64] [--per-host 8]

aiohttp fetches pages, lexbor finds `<a href>`, ada-url joins URLs, and a set of fingerprints holds the URLs
that were found. There is one queue per host. URLs that match PATTERN are followed. The loop uses no
robots.txt and no delay, and stores nothing on disk. At the end, the script prints the number of pages that it
fetched.
"""

import asyncio
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import mmh3
import uvloop
from ada_url import join_url
from selectolax.lexbor import LexborHTMLParser
from yarl import URL

from crawler.bench import harness


class Queues:
    """The URLs that were found but not yet fetched, by host. `ready` contains each host at most `per_host` times."""

    def __init__(self, follows: Callable[[str], object], per_host: int) -> None:
        self._follows = follows
        self._per_host = per_host
        self._seen: set[bytes] = set()
        self._hosts: defaultdict[str, deque[str]] = defaultdict(deque)
        self._places: Counter[str] = Counter()
        self.ready: asyncio.Queue[str] = asyncio.Queue()

    def add(self, url: str) -> None:
        """Queue a URL that matches and is new."""
        if not self._follows(url):
            return
        fingerprint = mmh3.mmh3_x64_128_digest(url.encode())
        if fingerprint in self._seen:
            return
        self._seen.add(fingerprint)
        host = url.split("/", 3)[2]
        self._hosts[host].append(url)
        if self._places[host] < self._per_host:
            self._places[host] += 1
            self.ready.put_nowait(host)

    def take(self, host: str) -> str:
        """Return the next URL of a host.

        If there is none, the host gives back one of its places in the queue `ready`, and the result is "".
        """
        if self._hosts[host]:
            return self._hosts[host].popleft()
        self._places[host] -= 1
        return ""


def links(url: str, body: bytes) -> Iterator[str]:
    """Yield the distinct targets of the `<a href>` of a page."""
    tree = LexborHTMLParser(body)
    element = tree.css_first("base[href]")
    base = join_url(url, element.attrs["href"] or "") if element is not None else url
    done = set()
    for node in tree.css("a[href]"):
        href = (node.attrs.get("href") or "").split("#", 1)[0].strip()
        if href and href not in done:
            done.add(href)
            try:
                yield join_url(base, href)
            except ValueError:
                continue


async def fetch(session: aiohttp.ClientSession, queues: Queues) -> int:
    """Fetch pages until this task is cancelled; return the number of pages."""
    pages = 0
    try:
        while True:
            host = await queues.ready.get()
            if url := queues.take(host):
                try:
                    async with session.get(URL(url, encoded=True), allow_redirects=False) as answer:
                        body, good = await answer.read(), answer.status == 200
                except aiohttp.ClientError:
                    good = False
                if good:
                    pages += 1
                    for link in links(url, body):
                        queues.add(link)
                queues.ready.put_nowait(host)
            queues.ready.task_done()
    except asyncio.CancelledError:
        return pages


async def crawl(seeds: Path, pattern: str, concurrency: int, per_host: int) -> int:
    """Crawl from the seeds until no URL is left; return the number of fetched pages."""
    queues = Queues(re.compile(pattern).match, per_host)
    for line in seeds.read_text().splitlines():
        queues.add(line)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        skip_auto_headers=("Accept", "User-Agent"),
        headers={"User-Agent": "bench"},
    ) as session:
        fetchers = [asyncio.create_task(fetch(session, queues)) for _ in range(concurrency)]
        await queues.ready.join()
        for each in fetchers:
            each.cancel()
        return sum(await asyncio.gather(*fetchers))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("seeds", type=Path)
    parser.add_argument("pattern")
    parser.option("--concurrency", 64)
    parser.option("--per-host", 8)
    args = parser.parse_args()
    print(uvloop.run(crawl(args.seeds, args.pattern, args.concurrency, args.per_host)))


if __name__ == "__main__":
    main()
