"""Opens a listening socket before its server is ready.

Clients wait in the queue of the socket until the server is ready.
"""

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
        raise cannot_listen(host, port, key, error) from error
    made.setblocking(False)
    return made


def cannot_listen(host: str, port: int, key: str, error: OSError) -> ConfigError:
    """Return the error to raise if `error` prevents a server from listening on an address."""
    cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    where = http_origin(host, port).removeprefix("http://")
    return ConfigError(f"{key}: cannot listen on {where}: {cause}")


def origin(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return http_origin(host, port)
