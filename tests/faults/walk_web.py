"""Serve the web of the operator's walk on loopback, in a separate process, and log each request twice.

    python -m tests.faults.walk_web NET LOG

Page n is /n on the host NET.(n % HOSTS + 1). The pages below `TREE` form a tree, and each of the islands
above it is a small tree that no page of another tree links to. One page links to each URL, so a lost link
stays lost. The exception is the page /meeting, to which several pages on different hosts redirect. Every page
always has the same content (`content`), and some pages are large.

The server is also a proxy. Through the proxy, it serves the hosts of the earlier crawls in
`tests/upgrade/data`, too. When a request arrives and when its answer is complete, a line is appended to the log:

    begin <number> <time> <host> <path>
    end <number> <time> <status> <seconds of Retry-After>

An answer also ends when the client closes the connection; its status is then 0.
"""

import asyncio
import itertools
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from urllib.parse import urlsplit

HOSTS, TREE, FANOUT = 6, 96, 4
ISLANDS, ISLAND = 6, 4  # number of islands, and number of pages of each
PAGES = TREE + ISLANDS * ISLAND
SLOW, BROKEN, BUSY, CALM = 1, 2, 3, 4  # numbers of the hosts with a behaviour of their own
MEETING = (5, "/meeting")
SLOWNESS = 0.15  # seconds of each answer of the slow host
WINDOW, WINDOW_REQUESTS, RETRY_AFTER = 1.0, 4, 1  # limit of the busy host
CRAWL_DELAY = 0.4
LARGE = 200_000  # length of the text that large pages have in addition
FORMER_HOSTS = ("a.test", "b.test", "c.test")
FORMER_DEPTH = 3  # length of the longest paths on these hosts


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


def meets(page: int) -> bool:
    """Return whether a page is a redirect to the page /meeting."""
    return page < TREE and page % 13 == 4 and not moved(page)


def location(page: int) -> tuple[int, str]:
    """Return the number of the host and the path of a page's content."""
    if meets(page):
        return MEETING
    return ((page + 1) % HOSTS, f"/moved{page}") if moved(page) else (page % HOSTS, f"/{page}")


def large(page: int) -> bool:
    """Return whether a page is large."""
    return page % 11 == 5


def content(path: str, url: Callable[[int, str], str]) -> bytes:
    """Return the body at a path. `url` returns the URL of a path on a host, which is given by its number."""
    pages = [page for page in range(PAGES) if location(page)[1] == path]
    links = [url(child % HOSTS, f"/{child}") for page in pages for child in children(page)]
    links += [url(location(page)[0], f"/no{page}") for page in pages]
    listed = "".join(f'<a href="{link}">x</a>' for link in links)
    padding = f"<p>{f'{pages[0]:06d} ' * (LARGE // 7)}" if large(pages[0]) else ""
    return f"<!doctype html><title>{path}</title><p>page {path} of the walk</p>{listed}{padding}".encode()


def former_paths() -> list[str]:
    """Return the paths of the pages that each of `FORMER_HOSTS` has."""
    names = (name for length in range(FORMER_DEPTH + 1) for name in itertools.product("012", repeat=length))
    return ["/" + "".join(name) for name in names]


def former_content(host: str, path: str) -> bytes:
    """Return the body of a page of one of `FORMER_HOSTS`."""
    deepest = len(path) > FORMER_DEPTH
    links = "" if deepest else "".join(f'<a href="{path}{last}">' for last in "012")
    return f"<title>{host} {path[1:]}</title>{links}<p>{host}{path}".encode()


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

    def answer(self, host: str, path: str) -> tuple[int, str, bytes]:
        """Return the status, further header lines and body of an answer."""
        if host in FORMER_HOSTS:
            return self._former(host, path)
        number = self.number(host)
        if number == BUSY and self._exceeded():
            return 429, f"Retry-After: {RETRY_AFTER}\r\n", b"slow down"
        if path == "/robots.txt":
            delay = f"Crawl-delay: {CRAWL_DELAY}\n" if number == CALM else ""
            return 200, "", f"User-agent: *\n{delay}Disallow: /no\n".encode()
        if (number, path) == MEETING:
            return 200, "", content(path, self.url)
        name = path.removeprefix("/").removeprefix("moved")
        page = int(name) if name.isdigit() else PAGES
        if page >= PAGES or gone(page):
            return 404, "", b"none"
        if failing(page) or (flaky(page) and page not in self._asked):
            self._asked.add(page)
            return 500, "", b"broken"
        if location(page)[1] != path:
            return 302, f"Location: {self.url(*location(page))}\r\n", b""
        return 200, "", content(path, self.url)

    def _former(self, host: str, path: str) -> tuple[int, str, bytes]:
        if path == "/robots.txt":
            return 200, "", b"User-agent: *\nDisallow: /private\n"
        if path in former_paths():
            return 200, "", former_content(host, path)
        return 404, "", b"none"

    def number(self, host: str) -> int:
        """Return the number of a host, or -1."""
        return int(host.removeprefix(self.net + ".")) - 1 if host.startswith(self.net + ".") else -1

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

    def __init__(self, site: Site, address: str) -> None:
        self._site, self._address = site, address
        self._buffer, self._open = b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
            target = urlsplit(head.split(b" ", 2)[1].decode("latin-1"))
            host, path = target.hostname or self._address, target.path or "/"
            number = self._open = next(self._site.numbers)
            self._site.note("begin", number, f"{time.time():.6f}", host, path)
            if self._site.number(host) == SLOW:
                asyncio.get_running_loop().call_later(SLOWNESS, self._answer, number, host, path)
            else:
                self._answer(number, host, path)

    def connection_lost(self, error: Exception | None) -> None:
        if self._open >= 0:
            self._end(0, 0)

    def _answer(self, number: int, host: str, path: str) -> None:
        if self._open != number:
            return
        status, fields, body = self._site.answer(host, path)
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
        address = f"{net}.{host + 1}"
        server = await loop.create_server(
            lambda address=address: Connection(site, address),  # type: ignore[misc]
            address,
            site.port,
        )
        site.port = server.sockets[0].getsockname()[1]
    print(site.port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
