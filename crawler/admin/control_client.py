"""The client of the control socket (`control.py`).

This module does not import asyncio, so that commands which send requests to a crawl start fast.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import CrawlerError, DirectoryError

ANSWER_BYTES_MAX = 64 << 20
# seconds to wait for a process that does not answer although other processes do; it may be restarting
RESTART_WAIT = 10.0
TIMEOUT = 30.0  # seconds to wait for an answer; a process answers from memory or after a few reads

NOBODY = object()  # the result of `ask` if no process runs


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Yield a path of the control socket in `folder` that is short enough to connect to."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/control.sock"
    finally:
        os.close(descriptor)


def listens(folder: Path) -> bool:
    """Return whether a process accepts requests in `folder`."""
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(TIMEOUT)
            link.connect(path)
            return True
    except OSError:
        return False


def ask(folder: Path, command: str, **arguments: Any) -> Any:
    """Send a command to the process that runs in `folder`; return its result, or NOBODY if no process answers.

    Raises:
        CrawlerError: the process rejected the command; the message is its reason.
    """
    request = msgspec.json.encode({"command": command, **arguments}) + b"\n"
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(TIMEOUT)
            link.connect(path)
            link.sendall(request)
            with link.makefile("rb") as answers:
                line = answers.readline(ANSWER_BYTES_MAX)
    except (FileNotFoundError, ConnectionError, NotADirectoryError):
        return NOBODY
    except TimeoutError as error:
        raise DirectoryError(f"{folder}: the running process does not answer") from error
    if not line:
        return NOBODY
    answer = msgspec.json.decode(line)
    if not answer["ok"]:
        failure = CrawlerError(answer["error"])
        failure.exit_code = answer.get("code", 1)
        raise failure
    return answer["result"]
