"""The client of the control socket (`control.py`).

This module does not import asyncio, so that commands which send requests to a crawl start fast.
"""

import socket
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import BusyError, CrawlerError
from crawler.unix_sockets import short_path

SOCKET = "control.sock"  # in the folder of the process
ANSWER_BYTES_MAX = 64 << 20
# seconds to wait for a process that does not answer although other processes do; it may be restarting
RESTART_WAIT = 10.0
TIMEOUT = 30.0  # seconds to wait for an answer; a process answers from memory or after a few reads

NOBODY = object()  # the result of `ask` if no process runs


def listens(folder: Path) -> bool:
    """Return whether a process accepts requests in `folder`."""
    try:
        with short_path(folder, SOCKET) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(TIMEOUT)
            link.connect(path)
            return True
    except OSError:
        return False


def ask(folder: Path, command: str, **arguments: Any) -> Any:
    """Send a command to the process that runs in `folder`; return its result, or NOBODY if no process answers.

    Raises:
        BusyError: the process accepts requests, but does not answer within `TIMEOUT` seconds.
        CrawlerError: the process rejected the command; the message is its reason.
    """
    request = msgspec.json.encode({"command": command, **arguments}) + b"\n"
    try:
        with short_path(folder, SOCKET) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(TIMEOUT)
            link.connect(path)
            link.sendall(request)
            with link.makefile("rb") as answers:
                line = answers.readline(ANSWER_BYTES_MAX)
    except (FileNotFoundError, ConnectionError, NotADirectoryError):
        return NOBODY
    except TimeoutError as error:
        raise BusyError(f"{folder}: the running process does not answer; it may be suspended") from error
    if not line:
        return NOBODY
    answer = msgspec.json.decode(line)
    if not answer["ok"]:
        failure = CrawlerError(answer["error"])
        failure.exit_code = answer.get("code", 1)
        raise failure
    return answer["result"]
