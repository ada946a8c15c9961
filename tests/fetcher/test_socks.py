"""Test fetching through a SOCKS proxy (RFC 1928, RFC 1929), which resolves names.

The errors of the proxy have distinct outcomes.
"""

import asyncio
from pathlib import Path

import pytest

from crawler.api import Request
from crawler.config import NetworkConfig, convert
from crawler.errors import ConfigError
from crawler.fetcher.connector import check_proxy
from crawler.fetcher.fetch_request import FetchRequest
from crawler.records import Outcome
from tests.fetcher.scripted import OK, Relay, Server, joined, make_client, small
from tests.fetcher.test_tls import DATA, server_context

pytest.importorskip("python_socks")


class Socks(Relay):
    """A SOCKS 5 server that requires `login`, answers with `reply`, and connects any name to `port` on loopback."""

    def __init__(self, port: int, *, reply: int = 0, login: tuple[bytes, bytes] | None = None) -> None:
        self.port = port
        self.reply = reply
        self.login = login
        self.asked: list[tuple[bytes, int]] = []

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._greet(reader, writer)
        await self._connect(reader, writer)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the greeting of the client (RFC 1928, section 3), and check the login (RFC 1929)."""
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        assert version == 5
        wanted = 2 if self.login else 0
        writer.write(bytes([5, wanted if wanted in methods else 255]))
        if self.login:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(bytes([1, (user, password) != self.login]))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open the connection that the client requests (RFC 1928, sections 4 and 6). Require a name (ATYP 3)."""
        version, command, _, kind, length = await reader.readexactly(5)
        assert (version, command, kind) == (5, 1, 3), "the client must send the name itself"
        name = await reader.readexactly(length)
        self.asked.append((name, int.from_bytes(await reader.readexactly(2), "big")))
        writer.write(bytes([5, self.reply, 0, 1, 0, 0, 0, 0, 0, 0]))
        if not self.reply:
            await joined(reader, writer, self.port)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_the_proxy_gets_the_host_name_and_the_host_gets_the_request(scheme: str) -> None:
    """Requests have the origin form, as without a proxy. The credentials for the proxy are not recorded."""
    login = (b"me", b"secret")
    async with Server([OK]) as server, Socks(server.port, login=login) as socks:
        proxy = f"{scheme}://me:secret@{socks.authority}"
        async with make_client(small(proxy=proxy), network=NetworkConfig()) as client:
            for _ in range(2):
                got = await client.fetch(FetchRequest("http://host.test/a?b", keep_alive=5.0))
                assert (got.outcome, got.content, got.address) == (Outcome.FETCHED, b"hello", "")
                assert b"secret" not in got.request_head
            assert socks.asked == [(b"host.test", 80)] and server.connections == 1
            assert server.requests[0].startswith(b"GET /a?b HTTP/1.1\r\nHost: host.test\r\n")


async def test_tls_through_the_socks_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(DATA) / "authority.pem"))

    async with (
        Server([OK], context=server_context()) as server,
        Socks(server.port) as socks,
        make_client(small(proxy=f"socks5://{socks.authority}"), network=NetworkConfig()) as client,
    ):
        got = await client.fetch(FetchRequest("https://host.test/"))
        assert (got.outcome, got.tls_ok) == (Outcome.FETCHED, True), got.error


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [(1, "proxy_error"), (2, "proxy_error"), (4, "connect_error"), (5, "connect_error"), (8, "proxy_error")],
)
async def test_errors_of_a_socks_proxy_have_distinct_outcomes(reply: int, outcome: str) -> None:
    """The error of an unreachable host is charged to that host. Any other error is charged to the proxy."""
    async with (
        Socks(0, reply=reply) as socks,
        make_client(small(proxy=f"socks5://{socks.authority}"), network=NetworkConfig()) as client,
    ):
        got = await client.fetch(FetchRequest("http://host.test/"))
        assert got.outcome == outcome and got.error


async def test_a_wrong_password_and_a_dead_proxy_are_proxy_errors() -> None:
    async with Socks(0, login=(b"me", b"right")) as socks:
        for proxy in (f"socks5://me:wrong@{socks.authority}", "socks5://127.0.0.1:1"):
            async with make_client(small(proxy=proxy), network=NetworkConfig()) as client:
                got = await client.fetch(FetchRequest("http://host.test/"))
                assert got.outcome is Outcome.PROXY_ERROR and "wrong" not in got.error


@pytest.mark.parametrize(
    "text",
    [
        "socks6://h:1",
        "socks5://",
        "ftp://h:1",
        "socks5:h",
        "http://h:99999",
        "http://h:x",
        "http://:80",
        "http://[h",
    ],
)
def test_invalid_proxy_settings_are_refused(text: str) -> None:
    """The configuration, a request and the fetcher refuse the same texts."""
    refused = "'.+' is not a URL such as http://proxy:3128 or socks5://proxy:1080"
    with pytest.raises(ConfigError, match=f"^{refused}"):
        check_proxy(text)
    with pytest.raises(ConfigError, match=f"^configuration: fetch.proxy: {refused}"):
        convert({"fetch": {"proxy": text}})
    with pytest.raises(ValueError, match=f": proxy: {refused}"):
        Request("http://a.org/", proxy=text)


@pytest.mark.parametrize("text", ["http://me:secret@h:99999", "http://me:se/cret@h", "http://me:se@cret@h:x"])
def test_errors_do_not_show_the_login_of_a_proxy(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_proxy(text)
    assert "cret" not in str(raised.value) and "me" not in str(raised.value)
