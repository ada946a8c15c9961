"""Serve healthy and hostile hosts on loopback, each at its own address, in a separate process.

    python -m tests.end_to_end.hostile_server --kind tar-pit --hosts 600 --port 8080 [--counts FILE]

Healthy hosts have the addresses 127.80.x.y. Each healthy host has an endless tree of small pages, which are
sent after 20 ms. Hostile hosts have the addresses 127.90.x.y. With --counts, a line is appended to FILE twice
a second. With `--kind healthy`, the line contains the number of pages sent so far; with any other kind, it
contains the number of requests received so far, in place of the pages. Each line of FILE is
`<monotonic seconds> <pages> <longest time without a request, in seconds>`.

    healthy          the small pages described above
    tar-pit          every answer sends one byte a second
    hang             no request is ever answered
    robots-redirect  each robots.txt redirects to one host, 127.91.0.1, that answers after 10 s
    link-farm        pages of 10 MB with 450,000 links, all different
    big-map          robots.txt names sitemaps of 50 MiB with 50,000 URLs
    packed-map       robots.txt names such sitemaps, gzipped
    dead-ports       pages link to closed ports of the healthy hosts
    chunks           endless bodies in chunks of two bytes
    robots-rules     the robots.txt has 42,000 wildcard rules, and URLs have 8 kB
    soft-404         the robots.txt has 500 kB, and every URL shows one text with links
    bad-tls          https links lead to ports that do not speak TLS
"""

import argparse
import asyncio
import gzip
import itertools
import socket
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import uvloop

DELAY = 0.02  # seconds until a healthy host answers
SLOW = 10.0  # seconds until the slow host answers
FARM_BYTES = 10 << 20
MAP_BYTES = 50 << 20
MAP_URLS = 50_000
BLOCK_URLS = 50
MAP_HEAD = b'<?xml version="1.0"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
MAP_END = b"</urlset>\n"
RULES = 42_000
ROBOTS_BYTES = 500_000
SLOW_HOST = "127.91.0.1"


def address(network: int, host: int) -> str:
    """Return the address of the host with this number in network 80 (healthy) or 90 (hostile)."""
    return f"127.{network}.{host // 250}.{host % 250 + 1}"


Chunks = Iterator[bytes]


def head(status: str, length: int | None = None, kind: str = "text/html", more: str = "") -> bytes:
    size = f"Content-Length: {length}\r\n" if length is not None else ""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{size}{more}\r\n".encode()


def whole(body: bytes, kind: str = "text/html") -> bytes:
    return head("200 OK", len(body), kind) + body


NOT_FOUND = head("404 Not Found", 0)


class Site:
    """The state that all connections of one server process share."""

    def __init__(self, kind: str, hosts: int, port: int) -> None:
        self.hosts, self.port = hosts, port
        self.answer: Callable[[Server, str, str], None] = getattr(self, "_" + kind.replace("-", "_"))
        self.pages = self.asked = 0
        self.asked_at = time.monotonic()
        self.gap = 0.0  # longest time without a request since the last line of the counts file
        self.dripping: set[Server] = set()

    def was_asked(self) -> None:
        """Count a request."""
        now = time.monotonic()
        self.asked += 1
        self.gap, self.asked_at = max(self.gap, now - self.asked_at), now

    def row(self, kind: str) -> str:
        """Return the next line of the counts file."""
        now = time.monotonic()
        gap, self.gap = max(self.gap, now - self.asked_at), 0.0
        return f"{now:.3f} {self.pages if kind == 'healthy' else self.asked} {gap:.3f}\n"

    # -- kinds of hosts: each function answers a request for `path` on a connection to `host`

    def _healthy(self, to: "Server", host: str, path: str) -> None:
        asyncio.get_running_loop().call_later(DELAY, self._send_page, to, host, path)

    def _send_page(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(NOT_FOUND)
        self.pages += 1
        n = int(path[1:]) if path[1:].isdigit() else 0
        links = "".join(f'<li><a href="/{k}">{k}</a>' for k in range(8 * n + 1, 8 * n + 9))
        text = f"page {n} of {host} " * 150
        to.send(whole(f"<title>{n}</title><p>{text}<ul>{links}</ul>".encode()))

    def _tar_pit(self, to: "Server", host: str, path: str) -> None:
        to.send(head("200 OK", 100_000))
        self.dripping.add(to)

    def _hang(self, to: "Server", host: str, path: str) -> None:
        pass

    def _robots_redirect(self, to: "Server", host: str, path: str) -> None:
        if host == SLOW_HOST:
            asyncio.get_running_loop().call_later(SLOW, to.send, NOT_FOUND)
        elif path == "/robots.txt":
            where = f"http://{SLOW_HOST}:{self.port}/robots-of-{host}"
            to.send(head("302 Found", 0, more=f"Location: {where}\r\n"))
        else:
            self._send_page(to, host, path)

    def _link_farm(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(NOT_FOUND)
        start = f'<base href="http://{host}:{self.port}/{abs(hash(path))}/">'.encode()
        body = _farm()
        to.stream(itertools.chain([head("200 OK", len(start) + len(body)), start], _pieces(body)))

    def _big_map(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            lines = "".join(f"Sitemap: http://{host}:{self.port}/map{n}.xml\n" for n in range(10))
            to.send(whole(lines.encode(), "text/plain"))
        elif path.startswith("/map"):
            to.stream(
                itertools.chain(
                    [head("200 OK", kind="text/xml", more="Connection: close\r\n")], self._map(host)
                )
            )
        else:
            self._send_page(to, host, path)

    def _map(self, host: str) -> Chunks:
        yield MAP_HEAD
        block, here = _map_block(MAP_BYTES // MAP_URLS - 95), f"{host}:{self.port}".encode()
        for n in range(MAP_URLS // BLOCK_URLS):
            yield block.replace(b"@HOST@", here).replace(b"@BLOCK@", b"%d" % n)
        yield MAP_END

    def _packed_map(self, to: "Server", host: str, path: str) -> None:
        if path.startswith("/map"):
            to.send(whole(self._packed(host), "application/gzip"))
        else:
            self._big_map(to, host, path)

    @lru_cache(maxsize=700)  # noqa: B019 a process has only one `Server`
    def _packed(self, host: str) -> bytes:
        """Return a gzipped sitemap. The padding in it is compressed only once for all hosts."""
        block, here = _map_block(0), f"{host}:{self.port}".encode()
        blocks = (block.replace(b"@BLOCK@", b"%d" % n) for n in range(MAP_URLS // BLOCK_URLS))
        return gzip.compress(MAP_HEAD + b"".join(blocks).replace(b"@HOST@", here), 1) + _packed_end()

    def _dead_ports(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(NOT_FOUND)
        n = int(path[1:]) if path[1:].isdigit() else 0
        dead = [
            f'<a href="http://{address(80, (k + n * 8) % self.hosts)}:{self.port + 1 + p}/">dead</a>'
            for k in range(8)
            for p in range(8)
        ]
        own = [f'<a href="/{k}">more</a>' for k in range(8 * n + 1, 8 * n + 9)]
        to.send(whole("\n".join(dead + own).encode()))

    def _chunks(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(NOT_FOUND)
        block = b"2\r\nab\r\n" * 8192
        to.stream(
            itertools.chain([head("200 OK", more="Transfer-Encoding: chunked\r\n")], itertools.repeat(block))
        )

    def _robots_rules(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(_rules())
        n = int(path[1:6]) if path[1:6].isdigit() else 0
        links = [f'<a href="/{k % 100_000:05}{"ab" * 4000}">long</a>' for k in range(8 * n + 1, 8 * n + 9)]
        to.send(whole("\n".join(links).encode()))

    def _soft_404(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(_long_robots())
        to.send(_soft())

    def _bad_tls(self, to: "Server", host: str, path: str) -> None:
        if path == "/robots.txt":
            return to.send(NOT_FOUND)
        links = [f'<a href="https://{host}:{self.port}/{k}">s</a><a href="/{k}">p</a>' for k in range(100)]
        to.send(whole("\n".join(links).encode()))

    async def drip(self) -> None:
        """Send one byte per second on each connection of the tar pit."""
        while True:
            await asyncio.sleep(1.0)
            for connection in list(self.dripping):
                connection.send(b".")


def _pieces(body: bytes) -> Chunks:
    view = memoryview(body)
    return (bytes(view[at : at + (256 << 10)]) for at in range(0, len(body), 256 << 10))


@lru_cache
def _farm() -> bytes:
    return b"".join(b"<a href=%07d>x</a>\n" % n for n in range(FARM_BYTES // 20))[: FARM_BYTES - 200]


@lru_cache
def _map_block(padding: int) -> bytes:
    pad = b"<!--" + b"p" * padding + b"-->"
    return b"".join(
        b"<url><loc>http://@HOST@/m/@BLOCK@/%02d</loc><lastmod>2026-01-%02d</lastmod>%b</url>\n"
        % (n, n % 28 + 1, pad)
        for n in range(BLOCK_URLS)
    )


@lru_cache
def _packed_end() -> bytes:
    pad = b"<!--" + b"p" * (MAP_BYTES // MAP_URLS - 105) + b"-->\n"
    return gzip.compress(pad * MAP_URLS + MAP_END, 1)


@lru_cache
def _rules() -> bytes:
    lines = b"".join(b"Disallow:*%x\n" % n for n in range(RULES))
    return whole(b"User-agent: *\n" + lines[: ROBOTS_BYTES + 200_000], "text/plain")


@lru_cache
def _long_robots() -> bytes:
    lines = b"".join(b"Disallow: /private/%d/\n" % n for n in range(ROBOTS_BYTES // 20))
    return whole((b"User-agent: *\n" + lines)[:ROBOTS_BYTES], "text/plain")


@lru_cache
def _soft() -> bytes:
    links = "".join(f'<a href="{name}/">{name}</a> ' for name in ("news", "shop", "help", "more"))
    return whole(f"<h1>We have moved</h1><p>{'Nothing is here. ' * 100}{links}".encode())


class Server(asyncio.Protocol):
    """A connection to a host."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._received = b""
        self._chunks: Chunks | None = None
        self._paused = False
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            request, _, self._received = self._received.partition(b"\r\n\r\n")
            words = request.split(b" ", 2)
            host = self._transport.get_extra_info("sockname")[0]
            self._site.was_asked()
            if len(words) == 3:
                self._site.answer(self, host, words[1].decode("latin-1"))
        if self._received[:1] == b"\x16":  # a TLS handshake
            self._transport.close()

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def stream(self, chunks: Chunks) -> None:
        """Send chunks as fast as the client reads them. Then close the connection if the header announces this."""
        self._chunks = chunks
        self._go_on()

    def _go_on(self) -> None:
        while self._chunks is not None and not self._paused and not self._transport.is_closing():
            chunk = next(self._chunks, None)
            if chunk is None:
                self._chunks = None
                self._transport.close()
            else:
                self._transport.write(chunk)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._chunks = None
        self._site.dripping.discard(self)


def listen(where: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((where, port))
    listener.listen(64)
    return listener


async def serve(options: argparse.Namespace) -> None:
    """Serve until the process is killed; print `ready` when all hosts listen."""
    site = Site(options.kind, options.hosts, options.port)
    network = 80 if options.kind == "healthy" else 90
    names = [address(network, host) for host in range(options.hosts)]
    if options.kind == "robots-redirect":
        names.append(SLOW_HOST)
    loop = asyncio.get_running_loop()
    for name in names:
        await loop.create_server(lambda: Server(site), sock=listen(name, options.port))
    dripping = loop.create_task(site.drip())
    print("ready", flush=True)
    while True:
        await asyncio.sleep(0.5)
        if options.counts:
            with Path(options.counts).open("a") as counts:
                counts.write(site.row(options.kind))
        assert not dripping.done()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--counts", default="")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
