"""The admin server's address from the start of a crawl, its server from the first client on.

The HTTP library takes a third of the CPU of a crawl's start, and most crawls end
before anybody looks. So the socket listens, the curves are kept (`sampling.py`),
and the server is imported, in a thread, when somebody connects.
"""

import asyncio
import importlib
import logging
import os
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

if TYPE_CHECKING:
    from crawler.admin.server import AdminServer

log = logging.getLogger("crawler")


class LazyAdminServer:
    """Listens for the admin server; the arguments are its own."""

    def __init__(
        self, source: StatusSource, config: Config, directory: Path, now: Callable[[], float]
    ) -> None:
        self._source = source
        self._config = config
        self._directory = directory
        self._now = now
        self._token = actions.token(directory)
        self._looking = Sampler(source, config.admin, now)
        self._socket: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self.server: AdminServer | None = None

    def start(self, text: str) -> None:
        """Listen at "ADDRESS:PORT".

        Raises:
            ConfigError: nobody can listen there, or somebody does.
        """
        self._socket = _listen(*host_check.parse_address(text, "admin.address"))
        self._looking.start()
        asyncio.get_running_loop().add_reader(self._socket, self._open_soon)

    def link(self) -> str:
        """The dashboard's address with the token, which its script takes out of it and sends as a header field."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}/#token={self._token}"

    def _open_soon(self) -> None:
        """Somebody has connected, and waits in the socket's queue."""
        asyncio.get_running_loop().remove_reader(self._socket)  # type: ignore[arg-type]
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        module = await asyncio.to_thread(importlib.import_module, "crawler.admin.server")
        assert self._socket is not None
        server = module.AdminServer(self._source, self._config, self._directory, self._now, self._looking)
        await server.start_on(self._socket)
        self.server = server

    async def close(self) -> None:
        """End the watchers and listen no more."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self.server is not None:
            await self.server.close()
        await self._looking.close()
        if self._socket is not None:
            self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(f"admin.address: cannot listen on {host}:{port}: {cause}") from error
    made.setblocking(False)
    return made


def start_or_say(door: LazyAdminServer, address: str, default: str) -> bool:
    """Start at `address`; where the default one is taken only say so, since the crawl matters more.

    Raises:
        ConfigError: another address than the default cannot be listened on.
    """
    try:
        door.start(address)
    except ConfigError as error:
        if address != default:
            raise
        log.warning("no dashboard: %s (--admin ADDRESS:PORT names another, --admin off none)", error)
        return False
    return True
