"""Serve the web of the operator's walk on loopback, in a separate process, and log each request twice.

    python -m tests.faults.walk_web NET LOG

Page n is /n on the host NET.(n % HOSTS + 1). The pages below `TREE` form a tree, and each of the islands
above it is a small tree that no page of another tree links to. One page links to each URL, so a lost link
stays lost. When a request arrives and when its answer is complete, a line is appended to the log:

    begin <number> <time> <address> <path>
    end <number> <time> <status> <seconds of Retry-After>

An answer also ends when the client closes the connection; its status is then 0.
"""

import asyncio
import itertools
import os
import sys
import time
from collections import defaultdict, deque

HOSTS, TREE, FANOUT = 6, 96, 4
ISLANDS, ISLAND = 6, 4  # number of islands, and number of pages of each
PAGES = TREE + ISLANDS * ISLAND
SLOW, BROKEN, BUSY, CALM = 1, 2, 3, 4  # numbers of the hosts with a behaviour of their own
SLOWNESS = 0.15  # seconds of each answer of the slow host
WINDOW, WINDOW_REQUESTS, RETRY_AFTER = 1.0, 4, 1  # limit of the busy host
CRAWL_DELAY = 0.4


def children(page: int) -> range:
    """Return the pages that a page links to."""
    if page < TREE:
        first = page * FANOUT + 1
        return range(min(first, TREE), min(first + FANOUT, TREE))
    return range(page + 1, page + ISLAND) if (page - TREE) % ISLAND == 0 else range(0)


def moved(page: int) -> bool:
    """Return whether a page is a redirect to a page on the next host, which has its content."""
    return page % 17 == 9


def gone(page: int) -> bool:
    """Return whether a page is answered with 404."""
    return page % HOSTS == BROKEN and page % 7 == 3


def flaky(page: int) -> bool:
    """Return whether the first request for a page is answered with 500."""
    return page % HOSTS == BROKEN and page % 5 == 0


def failing(page: int) -> bool:
    """Return whether all requests for a page are answered with 500."""
    return page % HOSTS == BROKEN and page % 13 == 12


def location(page: int) -> tuple[int, str]:
    """Return the number of the host and the path of a page's content."""
    return ((page + 1) % HOSTS, f"/moved{page}") if moved(page) else (page % HOSTS, f"/{page}")


class Site:
    """The state shared by all connections."""

    def __init__(self, net: str, log: str) -> None:
        self.net, self.port = net, 0
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._recent: dict[int, deque[float]] = defaultdict(deque)
        self._asked: set[int] = set()
        self.numbers = itertools.count()

    def note(self, *fields: object) -> None:
        os.write(self._log, (" ".join(map(str, fields)) + "\n").encode())

    def answer(self, host: int, path: str) -> tuple[int, str, str]:
        """Return the status, further header lines and body of an answer."""
        if host == BUSY and self._exceeded():
            return 429, f"Retry-After: {RETRY_AFTER}\r\n", "slow down"
        if path == "/robots.txt":
            delay = f"Crawl-delay: {CRAWL_DELAY}\n" if host == CALM else ""
            return 200, "", f"User-agent: *\n{delay}Disallow: /no\n"
        name = path.removeprefix("/").removeprefix("moved")
        page = int(name) if name.isdigit() else PAGES
        if page >= PAGES or gone(page):
            return 404, "", "none"
        if failing(page) or (flaky(page) and page not in self._asked):
            self._asked.add(page)
            return 500, "", "broken"
        if moved(page) and not path.startswith("/moved"):
            return 302, f"Location: {self.url(*location(page))}\r\n", ""
        links = [self.url(child % HOSTS, f"/{child}") for child in children(page)]
        links += [self.url(page % HOSTS, f"/no{page}")]
        listed = "".join(f'<a href="{link}">x</a>' for link in links)
        return 200, "", f"<!doctype html><title>{page}</title><p>page {page} of the walk</p>{listed}"

    def url(self, host: int, path: str) -> str:
        return f"http://{self.net}.{host + 1}:{self.port}{path}"

    def _exceeded(self) -> bool:
        now, recent = time.monotonic(), self._recent[BUSY]
        while recent and now - recent[0] >= WINDOW:
            recent.popleft()
        if len(recent) >= WINDOW_REQUESTS:
            return True
        recent.append(now)
        return False


class Connection(asyncio.Protocol):
    """A connection on which requests without bodies are answered in order."""

    def __init__(self, site: Site, host: int) -> None:
        self._site, self._host = site, host
        self._buffer, self._open = b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
            path = head.split(b" ", 2)[1].decode("latin-1")
            number = self._open = next(self._site.numbers)
            self._site.note("begin", number, f"{time.time():.6f}", f"{self._site.net}.{self._host + 1}", path)
            if self._host == SLOW:
                asyncio.get_running_loop().call_later(SLOWNESS, self._answer, number, path)
            else:
                self._answer(number, path)

    def connection_lost(self, error: Exception | None) -> None:
        if self._open >= 0:
            self._end(0, 0)

    def _answer(self, number: int, path: str) -> None:
        if self._open != number:
            return
        status, fields, text = self._site.answer(self._host, path)
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        )
        self._end(status, RETRY_AFTER if status == 429 else 0)
        self._transport.write(head.encode() + body)

    def _end(self, status: int, retry_after: int) -> None:
        self._site.note("end", self._open, f"{time.time():.6f}", status, retry_after)
        self._open = -1


async def serve(net: str, log: str) -> None:
    """Serve until standard input is closed. Print the port."""
    loop, site = asyncio.get_running_loop(), Site(net, log)
    for host in range(HOSTS):
        server = await loop.create_server(
            lambda host=host: Connection(site, host),  # type: ignore[misc]
            f"{net}.{host + 1}",
            site.port,
        )
        site.port = server.sockets[0].getsockname()[1]
    print(site.port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
