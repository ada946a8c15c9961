"""Test fetching through an HTTP proxy: the absolute form for http, a tunnel for https, and outcomes of the proxy."""

import asyncio
import base64
from pathlib import Path

import pytest

from crawler.config import NetworkConfig, Seconds
from crawler.fetcher import tls
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.proxy_health import ProxyHealth
from crawler.records import Blame, Fetch, Outcome
from tests.fetcher.scripted import OK, Relay, Server, joined, make_client, silent_port, small
from tests.fetcher.test_tls import DATA, server_context


class Proxy(Relay):
    """Answers plain requests itself. For CONNECT, it opens a tunnel to `port`, or refuses with `status`."""

    def __init__(self, port: int = 0, status: bytes = b"200 OK") -> None:
        self.heads: list[bytes] = []
        self._port = port
        self._status = status

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if head.startswith(b"CONNECT "):
                writer.write(b"HTTP/1.1 " + self._status + b"\r\n\r\n")
                return await joined(reader, writer, self._port)
            writer.write(OK.replace(b"200 OK", self._status))


async def test_http_goes_to_the_proxy_in_absolute_form() -> None:
    """The credentials for the proxy are sent to the proxy, and never recorded."""
    async with (
        Proxy() as proxy,
        make_client(small(proxy=f"http://me:secret@{proxy.authority}"), network=NetworkConfig()) as client,
    ):
        for _ in range(2):
            got = await client.fetch(FetchRequest("http://host.test/a?b", keep_alive=5.0))
            assert (got.outcome, got.content, got.address) == (Outcome.FETCHED, b"hello", "")
            assert got.request_head.startswith(b"GET /a?b HTTP/1.1\r\n")
            assert b"Proxy" not in got.request_head
        assert proxy.heads[0].startswith(b"GET http://host.test/a?b HTTP/1.1\r\nHost: host.test\r\n")
        expected = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:secret")
        assert expected in proxy.heads[0]


async def test_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(DATA) / "authority.pem"))

    async with (
        Server([OK], context=server_context()) as server,
        Proxy(server.port) as proxy,
        make_client(small(proxy=f"http://me:secret@{proxy.authority}")) as client,
    ):
        for _ in range(2):
            got = await client.fetch(FetchRequest(server.url(scheme="https"), keep_alive=5.0))
            assert (got.outcome, got.content, got.tls_ok) == (Outcome.FETCHED, b"hello", True)
        assert proxy.heads[0].startswith(f"CONNECT host.test:{server.port} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic " in proxy.heads[0]
        assert (len(proxy.heads), server.connections) == (1, 1)
        assert b"Proxy" not in server.requests[0]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_connection_to_the_proxy_may_use_tls(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "verifying", tls.recording)  # the test certificate does not name 127.0.0.1
    async with Server([OK], context=server_context()) as server:
        proxy = Proxy(server.port)
        proxy.context = server_context()
        async with proxy, make_client(small(proxy=f"https://{proxy.authority}")) as client:
            for _ in range(2):
                got = await client.fetch(FetchRequest(server.url(scheme=scheme), keep_alive=5.0))
                assert (got.outcome, got.content) == (Outcome.FETCHED, b"hello"), got.error
        assert proxy.heads[0].startswith(
            b"CONNECT host.test:" if scheme == "https" else b"GET http://host.test:"
        )


class Answering(Relay):
    """Answers CONNECT with `pieces`, and then connects the client to `port` unless that is 0."""

    def __init__(self, port: int, *pieces: bytes) -> None:
        self._port, self._pieces = port, pieces

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in self._pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if self._port:
            await joined(reader, writer, self._port)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.0 200 Connection established\n\n"],
        [bytes([octet]) for octet in b"HTTP/1.1 299 Odd\r\nVia: me\r\n\r\n"],
    ],
)
async def test_answers_that_open_a_tunnel(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(DATA) / "authority.pem"))
    async with (
        Server([OK], context=server_context()) as server,
        Answering(server.port, *pieces) as proxy,
        make_client(small(proxy=f"http://{proxy.authority}")) as client,
    ):
        got = await client.fetch(FetchRequest("https://host.test/"))
        assert (got.outcome, got.content) == (Outcome.FETCHED, b"hello"), got.error


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([], "the proxy closed the connection"),
        ([b"HTTP/1.1 200 OK\r\n"], "the proxy closed the connection"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "no status line"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"x" * 1000] * 100], "header block is too large"),
    ],
)
async def test_answers_that_open_no_tunnel(pieces: list[bytes], error: str) -> None:
    async with (
        Answering(0, *pieces) as proxy,
        make_client(small(proxy=f"http://{proxy.authority}")) as client,
    ):
        got = await client.fetch(FetchRequest("https://host.test/"))
        assert got.outcome is Outcome.PROXY_ERROR and error in got.error


@pytest.mark.parametrize(
    ("roots", "host", "outcome"),
    [
        ("authority", "other.test", Outcome.CERTIFICATE_MISMATCH),
        ("expired", "host.test", Outcome.CERTIFICATE_UNTRUSTED),
    ],
)
async def test_a_bad_certificate_behind_a_tunnel_is_not_a_failure_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, roots: str, host: str, outcome: Outcome
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(DATA) / f"{roots}.pem"))
    async with (
        Server([OK], context=server_context()) as server,
        Proxy(server.port) as proxy,
        make_client(small(proxy=f"http://{proxy.authority}")) as client,
    ):
        got = await client.fetch(FetchRequest(server.url(host=host, scheme="https")))
    assert (got.outcome, got.blame) == (outcome, Blame.HOST)


async def test_a_refusing_proxy_is_a_proxy_error() -> None:
    for url, status in (
        ("http://host.test/", b"407 Proxy Authentication Required"),
        ("https://host.test/", b"407 Proxy Authentication Required"),
        ("https://host.test/", b"502 Bad Gateway"),
    ):
        async with (
            Proxy(status=status) as proxy,
            make_client(small(proxy=f"http://{proxy.authority}")) as client,
        ):
            got = await client.fetch(FetchRequest(url))
            assert (got.outcome, got.blame) == (Outcome.PROXY_ERROR, Blame.HOST), got
            assert url.startswith("http:") or got.error == f"the proxy answers {status.decode()}"


async def test_a_missing_proxy_is_a_proxy_error() -> None:
    async with Server([OK]) as server:
        pass
    async with make_client(small(proxy=f"http://127.0.0.1:{server.port}")) as client:
        for url in ("http://host.test/", "https://host.test/"):
            got = await client.fetch(FetchRequest(url))
            assert (got.outcome, got.blame) == (Outcome.PROXY_ERROR, Blame.HOST)


async def test_a_hanging_proxy_is_a_proxy_error() -> None:
    with silent_port() as port:
        async with make_client(
            small(proxy=f"http://127.0.0.1:{port}", connect_timeout=Seconds(0.2))
        ) as client:
            got = await client.fetch(FetchRequest("https://host.test/"))
            assert (got.outcome, got.error) == (Outcome.PROXY_ERROR, "no connection in time")


async def test_a_failing_proxy_is_logged_at_once_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without this error, a crawl with `-q` and a dead proxy would be silent for ten minutes."""
    async with Server([OK]) as server:
        pass
    address = f"127.0.0.1:{server.port}"
    async with make_client(small(proxy=f"http://me:secret@{address}")) as client:
        for name in ("one", "two"):
            await client.fetch(FetchRequest(f"http://{name}.test/"))
    (said,) = caplog.records
    assert said.levelname == "ERROR" and f"the proxy http://{address} failed: " in said.message
    assert "refused" in said.message.lower() and "secret" not in said.message


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ("", "it requires a login (fetch.proxy=http://USER:PASSWORD@HOST:PORT) "),
        ("me:wrong@", "it rejects the user and password that fetch.proxy contains "),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_missing_login_and_a_rejected_one_are_told_apart(
    login: str, said: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(status=b"407 Proxy Authentication Required") as proxy:
        async with make_client(small(proxy=f"http://{login}{proxy.authority}")) as client:
            await client.fetch(FetchRequest(f"{scheme}://host.test/"))
        assert f"the proxy http://{proxy.authority} failed: {said}" in caplog.text
    assert "wrong" not in caplog.text


def test_log_lines_about_a_proxy(caplog: pytest.LogCaptureFixture) -> None:
    """A failure of the proxy and its recovery are logged, repeated failures rarely, errors of a host never."""
    health = ProxyHealth("http://proxy:3128")
    fails = Fetch("http://x/", Outcome.PROXY_ERROR, Blame.HOST, status=407)
    works = Fetch("http://x/", Outcome.GONE, Blame.URL, status=404)
    for now, fetch in ((0.0, works), (1.0, fails), (2.0, fails), (3.0, works), (4.0, fails), (70.0, fails)):
        health.note(fetch, now)
    health.note(works, 71.0)
    health.note(
        Fetch("https://x/", Outcome.PROXY_ERROR, Blame.HOST, error="the proxy answers 502 Bad"), 200.0
    )
    never = ProxyHealth("http://proxy:3128")
    never.note(Fetch("https://x/", Outcome.PROXY_ERROR, Blame.HOST, error="the proxy answers 502 Bad"), 0.0)
    assert [record.message.partition("proxy:3128 ")[2][:20] for record in caplog.records] == [
        "failed: it requires ",
        "answers again",
        "failed: it requires ",
        "answers again",
        "failed: the proxy an",
    ]
