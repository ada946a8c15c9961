"""A scripted web on loopback for end-to-end tests, and functions that crawl it.

One server thread answers for every name below `localhost`, so a test can have any number of hosts. An answer
is a body, a tuple (status, headers, body), or a function that receives the request and returns a body or a
tuple.
"""

import contextlib
import gzip
import io
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crawler.cli import main
from crawler.records import Outcome


class ReceivedRequest(NamedTuple):
    """A request as the server saw it; `host` does not include the port."""

    host: str
    path: str
    headers: Mapping[str, str]
    method: str = "GET"
    body: bytes = b""


Answer = str | bytes | tuple[int, Mapping[str, str], str | bytes]
Route = Answer | Callable[[ReceivedRequest], Answer]


class Web:
    """A web server, used as a context manager. `routes` maps "host/path" or, for any host, "/path" to the answer.

    `other` is the answer to all other requests. With `tls`, the server uses TLS, but `url` still returns http
    URLs. With `address` 0.0.0.0, each loopback address is a host.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        tls: ssl.SSLContext | None = None,
        *,
        address: str = "127.0.0.1",
        other: Route = (404, {}, ""),
        port: int = 0,
    ) -> None:
        self.routes = dict(routes)
        self._other = other
        self.asked: list[ReceivedRequest] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                web._answer(self)

            do_POST = do_PUT = do_OPTIONS = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = type("Server", (ThreadingHTTPServer,), {"address_family": family})
        self._server: ThreadingHTTPServer = server((address, port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> "Web":
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"http://{host}:{self.port}{path}"

    def paths(self, host: str = "") -> list[str]:
        """Return the paths requested from one host or from all hosts, in order and without robots.txt."""
        return [
            asked.path for asked in self.asked if asked.path != "/robots.txt" and host in ("", asked.host)
        ]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        if "://" in path:  # a request to a proxy has this form
            path = "/" + path.split("/", 3)[3]
        sent = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        asked = ReceivedRequest(
            handler.headers["Host"].rsplit(":", 1)[0], path, handler.headers, handler.command, sent
        )
        self.asked.append(asked)
        route = self.routes.get(asked.host + path, self.routes.get(path, self._other))
        answer = route(asked) if callable(route) else route
        status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
        data = body.encode() if isinstance(body, str) else body
        handler.send_response(status)
        for name, value in ({"Content-Type": "text/html; charset=utf-8"} | dict(headers)).items():
            handler.send_header(name, value)
        if "Content-Length" in headers:  # a length that is too large simulates an answer that ends too early
            handler.close_connection = True
        else:
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


class Tunnels(BaseHTTPRequestHandler):
    """A proxy that accepts only CONNECT. Every tunnel leads to `port` on loopback, whatever host was requested."""

    port = 0
    asked: list[str]

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.port)) as far:
            ends = {self.connection: far, far: self.connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end].sendall(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve with a handler of http.server, because such a handler can control every byte of its answers.

    Yield the port.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def tunnels(port: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a CONNECT proxy whose tunnels lead to `port`, and a list of the requested hosts."""
    asked: list[str] = []
    handler = type("TunnelsTo", (Tunnels,), {"port": port, "asked": asked})
    with served(handler) as at:
        yield f"http://127.0.0.1:{at}", asked


def page(*links: str, head: str = "", text: str = "") -> str:
    """Return a page whose text depends on its links."""
    items = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return f"<!doctype html><title>{text or 'page'}</title>{head}<p>{text}{items}</p>"


def endless(asked: ReceivedRequest) -> Answer:
    """Answer for a site without end: page n, at `/n`, links to the pages 2n + 1 and 2n + 2. Page 0 is also at `/`."""
    name = asked.path[1:] or "0"
    if not name.isdigit():
        return 404, {}, ""
    number = int(name)
    return page(f"/{2 * number + 1}", f"/{2 * number + 2}", text=f"{asked.host} {number}")


def redirect(location: str, status: int = 302, **headers: str) -> Answer:
    return status, {"Location": location, **headers}, ""


FAST = (
    "--allow-network", "127.0.0.0/8", "--delay", "0", "--delay-factor", "0", "--progress", "none",
    "--patience", "5", "--concurrency", "8",
    "--set", "due.max_wait=0.05",
    "--set", "politeness.backoff_first=0.05", "--set", "frontier.retry_delays=[0.05]",
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "network": {"allow_networks": ["127.0.0.0/8"]},
    "politeness": {"delay": 0, "delay_factor": 0, "backoff_first": 0.05},
    "crawl": {"patience": 5, "concurrency": 8},
    "due": {"max_wait": 0.05},
}


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def run(*arguments: object) -> Ran:
    """Run a `crawler` command in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    out.flush()
    return Ran(code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]


def crawl(directory: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    """Run `crawler crawl` without delays; return its report."""
    ran = run("crawl", "--dir", directory, *FAST, *arguments)
    assert ran.code == code, ran
    report = msgspec.json.decode((directory / "report.json").read_bytes())
    assert report["conservation"] == "holds", report["conservation"]
    return report


def lines(directory: Path) -> Iterator[dict[str, Any]]:
    """Return the lines of pages.jsonl."""
    return map(msgspec.json.decode, (directory / "pages.jsonl").read_bytes().splitlines())


def uncompressed(path: Path) -> bytes:
    """Return the content of a file, with its gzip members decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def damaged_copy(directory: Path, copy: Path) -> Path:
    """Copy a crawl of one process, overwrite a part of its first segment with zeros, and return the copy."""
    shutil.copytree(directory, copy)
    segment = min(copy.glob("p0/warc/*.warc.gz*"))
    content = bytearray(segment.read_bytes())
    begin, end = len(content) // 4, len(content) * 3 // 4
    content[begin:end] = bytes(end - begin)
    segment.write_bytes(content)
    return copy


def outcomes(directory: Path) -> dict[str, str]:
    """Return the outcome of the last fetch of each path."""
    found = {"/" + line["url"].split("/", 3)[3]: line["outcome"] for line in lines(directory)}
    assert set(found.values()) <= set(Outcome)
    return found


def on_terminal(*arguments: str) -> bytes:
    """Return the output of a command whose standard output and standard error are a terminal."""
    master, slave = os.openpty()
    command = [sys.executable, "-m", "crawler", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 1 << 16):
            shown += data
    except OSError:  # the other end of the terminal is closed
        pass
    finally:
        os.close(master)
    assert process.wait() == 0, shown
    return shown
