"""Listens for the admin server from the start of a crawl, and imports the server for the first client.

Importing the HTTP library would take a third of the CPU time of a crawl's start, and most crawls end before a
client connects. So at the start of a crawl, the socket is opened and the sampling of the curves begins
(`sampling.py`), but nothing else. When the first client connects, a thread imports the server.
"""

import asyncio
import importlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.admin import actions
from crawler.admin.sampling import Sampler
from crawler.admin.status_source import StatusSource
from crawler.config import Config
from crawler.errors import ConfigError
from crawler.serve import host_check
from crawler.serve.listening_socket import listen, origin

if TYPE_CHECKING:
    from crawler.admin.server import AdminServer, Search

log = logging.getLogger("crawler")


class LazyAdminServer:
    """Listens in place of the admin server; it has the same arguments as `AdminServer`."""

    def __init__(
        self,
        source: StatusSource,
        config: Config,
        directory: Path,
        now: Callable[[], float],
        search: "Search",
    ) -> None:
        self._source = source
        self._config = config
        self._directory = directory
        self._now = now
        self._search = search
        self._token = actions.token(directory)
        self._looking = Sampler(source, config.admin, now, directory)
        self._socket: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self.server: AdminServer | None = None

    def start(self, text: str) -> None:
        """Listen at "ADDRESS:PORT".

        Raises:
            ConfigError: the server cannot listen on the address, or the address is in use.
        """
        self._socket = listen(*host_check.parse_address(text, "admin.address"), "admin.address")
        self._looking.start()
        asyncio.get_running_loop().add_reader(self._socket, self._open_soon)

    def link(self) -> str:
        """The dashboard's URL with the token in its fragment; the page's script sends the token as a header field."""
        assert self._socket is not None
        return f"{origin(self._socket)}/#token={self._token}"

    def _open_soon(self) -> None:
        """Start the server when the first client connects; meanwhile the client waits in the socket's queue."""
        asyncio.get_running_loop().remove_reader(self._socket)  # type: ignore[arg-type]
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        module = await asyncio.to_thread(importlib.import_module, "crawler.admin.server")
        assert self._socket is not None
        server = module.AdminServer(
            self._source, self._config, self._directory, self._now, self._looking, self._search
        )
        await server.start_on(self._socket)
        self.server = server

    async def close(self, failure: str = "") -> None:
        """End the event streams, with the reason if the crawl failed, and stop listening."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self.server is not None:
            await self.server.close(failure)
        await self._looking.close(failure)
        if self._socket is not None:
            self._socket.close()


def start_or_say(door: LazyAdminServer, address: str, default: str) -> bool:
    """Start at `address`. If the default address is in use, only warn, since the crawl can run without a server.

    Raises:
        ConfigError: the server cannot listen on an address other than the default.
    """
    try:
        door.start(address)
    except ConfigError as error:
        if address != default:
            raise
        log.warning("no dashboard: %s (choose another with --admin ADDRESS:PORT, or --admin off)", error)
        return False
    return True
