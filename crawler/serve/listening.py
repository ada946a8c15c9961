"""Opens a listening socket early. Clients wait in its queue while the server behind it is imported and opened."""

import os
import socket

from crawler.config.forms import http_origin
from crawler.errors import ConfigError


def listen(host: str, port: int, key: str) -> socket.socket:
    """Return a socket that listens on an address; port 0 picks a free port.

    Raises:
        ConfigError: the address is in use or cannot be used; the message names the configuration key `key`.
    """
    try:
        made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        where = http_origin(host, port).removeprefix("http://")
        raise ConfigError(f"{key}: cannot listen on {where}: {cause}") from error
    made.setblocking(False)
    return made


def origin(listening: socket.socket) -> str:
    """Return the origin of the URLs at which a socket listens."""
    host, port = listening.getsockname()[:2]
    return http_origin(host, port)
