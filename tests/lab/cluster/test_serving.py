"""Test the synthetic web on loopback: it gives a real crawler the same answers as simulated processes receive."""

import asyncio
import ssl
import sys
from pathlib import Path

import pytest

from crawler.bench.certificates import make_chain
from crawler.cli.loopback import free_port
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.cluster.serving import WebServer, address, names
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.lab.commands.web import summary, tls_of


def test_addresses_are_loopback_and_differ() -> None:
    found = [address(number) for number in range(4000)]
    assert len(set(found)) == 4000 and all(each.startswith("127.") for each in found)
    assert not any(each.endswith(".0.0") for each in found)


def test_a_real_crawl_finds_every_page(tmp_path: Path) -> None:
    async def crawl() -> str:
        port = free_port(address(0))
        spec = WebSpec(hosts=5, pages=60, latency=0.0, slow=0.0, down=0.0, traps=0.0, flaws=False)
        model = SyntheticWeb(spec, 3, name=names(port))
        async with WebServer(model, SystemClock(), port) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "crawler", "crawl", server.seed, "--dir", str(tmp_path / "crawl"),
                "--scope", "any", "--allow-network", "127.64.0.0/10", "--delay", "0", "--delay-factor", "0",
                "--progress", "none", "-q",
            )  # fmt: skip
            assert await process.wait() == 0
            return summary(model, server.log)

    text = asyncio.run(crawl())
    assert "60 of 60 pages answered, 0 forbidden" in text


@pytest.mark.parametrize("status", [200, 304, 404, 421])
def test_answers_as_http(status: int) -> None:
    """A Host field without a port means the same host as one with the port."""
    import aiohttp

    async def ask() -> int:
        port = free_port(address(0))
        model = SyntheticWeb(
            WebSpec(hosts=2, pages=4, latency=0.0, flaws=False, down=0.0), 3, name=names(port)
        )
        async with WebServer(model, SystemClock(), port) as server, aiohttp.ClientSession() as session:
            headers = {
                304: {"If-None-Match": '"0-0"'},
                421: {"Host": "other.test"},
                200: {"Host": address(0)},
            }.get(status, {})
            url = server.seed.rsplit("/", 1)[0] + "/nothing" if status == 404 else server.seed
            async with session.get(url, headers=headers) as answer:
                return answer.status

    assert asyncio.run(ask()) == status


def test_a_web_over_tls_compresses_and_closes_connections(tmp_path: Path) -> None:
    """The body equals that of the model.

    Each answer closes its connection, so three requests need three handshakes.
    """
    import aiohttp

    make_chain(tmp_path, [f"IP:{address(0)}"])
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    tls = tls_of(tmp_path / "leaf.pem", sessions=False)

    async def ask() -> list[tuple[str, str, bytes]]:
        port = free_port(address(0))
        spec = WebSpec(hosts=1, pages=4, latency=0.0, flaws=False, down=0.0, padding=2000, scheme="https")
        model = SyntheticWeb(spec, 3, name=names(port))
        found = []
        async with (
            WebServer(model, SystemClock(), port, tls=tls, packed=True, closing=True) as server,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
        ):
            assert server.seed.startswith("https://")
            for _ in range(3):
                async with session.get(server.seed) as answer:
                    headers = answer.headers
                    found.append((headers["Content-Encoding"], headers["Connection"], await answer.read()))
        assert {body for *_, body in found} == {model.body(0, 0)}
        return found

    assert [row[:2] for row in asyncio.run(ask())] == [("gzip", "close")] * 3


def test_an_invalid_certificate_is_rejected_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pem", Path(__file__)):
        with pytest.raises(UsageError):
            tls_of(path, sessions=True)


def test_more_phrases_make_fewer_tags_in_the_same_bytes() -> None:
    few, many = (
        SyntheticWeb(WebSpec(hosts=1, pages=1, padding=50_000, phrases=phrases), 3).body(0, 0)
        for phrases in (100, 1)
    )
    assert len(few) == len(many)
    assert few.count(b"class=") * 20 < many.count(b"class=")
