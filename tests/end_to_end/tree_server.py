"""Serve a tree-shaped web on loopback, in a separate process, and log every request.

    python -m tests.end_to_end.tree_server --pages 1000 --hosts 5 --log FILE [--port P] ...

Page n is /n on the host with the number n % hosts (127.1.x.y). Page n links to its children, the pages
n * fanout + 1 to n * fanout + fanout. So exactly one page links to each URL, and a lost link stays lost.
Bodies are distinct. When a request is answered, one line is appended to the log:

    <begin> <end> <address, or name with --names> <path> <status>

Options:

    --delay                makes hosts slow
    --per-minute           limits the requests to a host; further requests get a 429 with Retry-After
    --window               sets the length of such a minute, in seconds
    --robots               gives each host a robots.txt, in which | ends a line; pages then link to /forbidden...
    --names                gives the hosts names on one address; in a name such as hostN.site.localhost, N stands
                           for the number of the host
    --down HOST:FROM:TO    makes a host unavailable for a time, in seconds since the start
"""

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict, deque


def address(host: int) -> str:
    """Return the address of the host with this number. The variable TREE_NET replaces the network 127.1."""
    return f"{os.environ.get('TREE_NET', '127.1')}.{host // 250}.{host % 250 + 1}"


def url(page: int, hosts: int, port: int) -> str:
    return f"http://{address(page % hosts)}:{port}/{page}"


class Site:
    """The state shared by all connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.recent: dict[str, deque[float]] = defaultdict(deque)
        self.started = 0.0  # time of the first request
        self.down = [tuple(map(float, text.split(":"))) for text in options.down]

    def answer(self, host: str, path: str) -> tuple[int, bytes, bytes]:
        """Return (status, extra header lines, body) for a request."""
        if self._is_down(host):
            return 503, b"", b"down"
        if path == "/robots.txt":
            rules = self.options.robots.replace("|", "\n").encode()
            return (200, b"", rules) if rules else (404, b"", b"")
        if self.options.per_minute and (wait := self._wait(host)):
            return 429, b"Retry-After: %d\r\n" % wait, b"slow down"
        number = path[1:]
        if not number.isdigit() or int(number) >= self.options.pages:
            return 404, b"", b"none"
        return 200, b"", self._page(int(number))

    def _is_down(self, host: str) -> bool:
        self.started = self.started or time.monotonic()
        now = time.monotonic() - self.started
        return any(host == address(int(number)) and begin <= now < end for number, begin, end in self.down)

    def _wait(self, host: str) -> int:
        """Return the number of seconds until the host may be requested again; 0 means now."""
        now = time.monotonic()
        recent = self.recent[host]
        window = self.options.window
        while recent and now - recent[0] >= window:
            recent.popleft()
        if len(recent) >= self.options.per_minute:
            return int(window - (now - recent[0])) + 1
        recent.append(now)
        return 0

    def _page(self, n: int) -> bytes:
        options = self.options
        first = n * options.fanout + 1
        children = range(first, min(first + options.fanout, options.pages))
        links = "".join(f'<a href="{self._url(child)}">{child}</a>' for child in children)
        robots = f'<a href="{self._url(n, "forbidden")}">no</a>' if options.robots else ""
        return f"<!doctype html><title>{n}</title><p>page {n} of the tree</p>{links}{robots}".encode()

    def _url(self, page: int, folder: str = "") -> str:
        options = self.options
        host = page % options.hosts
        name = options.names.replace("N", str(host)) if options.names else address(host)
        return f"http://{name}:{options.port}/{folder}{page}"


class Connection(asyncio.Protocol):
    """A connection on which requests without bodies are answered in order."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.address = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            path = head.split(b" ", 2)[1].decode("latin-1")
            self.host = _host_of(head) if self.site.options.names else self.address
            begun = time.time()
            if delay := self.site.options.delay:
                asyncio.get_running_loop().call_later(delay, self._answer, path, begun)
            else:
                self._answer(path, begun)

    def _answer(self, path: str, begun: float) -> None:
        status, headers, body = self.site.answer(self.host, path)
        line = f"{begun:.6f} {time.time():.6f} {self.host} {path} {status}\n"
        os.write(self.site.log, line.encode())
        self.transport.write(
            b"HTTP/1.1 %d X\r\nContent-Type: text/html\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, headers, len(body), body)
        )


def _host_of(head: bytes) -> str:
    """Return the name in the Host field of a request."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return next(value.strip().split(b":")[0].decode() for name, _, value in fields if name.lower() == b"host")


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    if not options.port:
        first = await loop.create_server(
            lambda: Connection(site), "127.0.0.1" if options.names else address(0), 0
        )
        options.port = first.sockets[0].getsockname()[1]
        taken = 1
    else:
        taken = 0
    site = Site(options)
    for host in range(taken, 1 if options.names else options.hosts):
        await loop.create_server(lambda: Connection(site), address(host), options.port, backlog=512)
    print(options.port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # blocks until the parent process ends


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--fanout", type=int, default=10)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--per-minute", type=int, default=0)
    parser.add_argument("--window", type=float, default=60.0)
    parser.add_argument("--names", default="")
    parser.add_argument("--robots", default="")
    parser.add_argument("--down", action="append", default=[])
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
