"""Test the lazy admin server: it listens from the start, but its code is imported when the first client connects."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from crawler.admin.lazy_server import LazyAdminServer, start_or_say
from crawler.config import AdminConfig, Config
from crawler.errors import ConfigError
from tests.admin.test_server import Processes


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def _door(folder: Path, source: Processes) -> LazyAdminServer:
    return LazyAdminServer(source, Config(), folder, lambda: 100.0, lambda url: {})


def _started(folder: Path, source: Processes) -> tuple[LazyAdminServer, int]:
    """Return a server that listens, and its port."""
    door = _door(folder, source)
    door.start("127.0.0.1:0")
    return door, int(door.link().split(":")[2].split("/")[0])


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_first_client_imports_the_server(tmp_path: Path, loop: object) -> None:
    """Clients that connect during the import have to wait. All clients are answered, including later ones."""
    source = Processes()

    async def play() -> None:
        door, port = _started(tmp_path, source)
        assert (tmp_path / "admin-token").exists()
        while not source.asked:
            await asyncio.sleep(0)
        assert door.server is None, "the curves begin before the server is imported"
        first = await asyncio.gather(*(_get(port, path) for path in ("/healthz", "/status", "/")))
        later = await _get(port, "/healthz")
        await door.close()
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in (*first, later))
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(play())


async def test_closing_without_a_client(tmp_path: Path) -> None:
    """After the server is closed, no listener is left.

    The server is closed before its first client connects, or right after it has connected.
    """
    for comes in (False, True):
        door, port = _started(tmp_path, Processes())
        if comes:
            client = socket.create_connection(("127.0.0.1", port))
            await asyncio.sleep(0)
        await door.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        if comes:
            client.close()


async def test_an_address_in_use(tmp_path: Path) -> None:
    """If the default address is in use, the crawl runs without a dashboard.

    If another address is in use, it is an error.
    """
    with socket.create_server(("127.0.0.1", 0)) as other:
        text = f"127.0.0.1:{other.getsockname()[1]}"
        assert not start_or_say(_door(tmp_path, Processes()), text, text)
        with pytest.raises(ConfigError, match="cannot listen on .*: Address already in use"):
            start_or_say(_door(tmp_path, Processes()), text, AdminConfig().address)


def test_a_crawl_without_dashboard_clients_imports_no_http_server() -> None:
    """The import takes a third of the CPU time of a start. A crawl without clients must not import the server."""
    code = (
        "import sys, crawler.api, crawler.cli.crawl, crawler.cli.companions, crawler.admin.lazy_server;"
        "assert not {'aiohttp', 'prometheus_client', 'rich'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
