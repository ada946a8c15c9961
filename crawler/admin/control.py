"""The control socket of a running process: JSON lines over a Unix socket.

A request is one line {"command": name, ...}, and the answer is one line
{"ok": true, "result": ...} or {"ok": false, "error": text}. The socket is in the
process's folder and accessible only to its owner. `control_client.py` is the client.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin.control_client import SOCKET
from crawler.errors import CrawlerError, DirectoryError, blame_of_system, exit_code_of
from crawler.records import UNDECODABLE
from crawler.unix_sockets import short_path

REQUEST_BYTES_MAX = 1 << 20

log = logging.getLogger("crawler")

# From Python 3.13 on, when a server closes, it deletes the file at the path to which its socket was bound. Here,
# this path is only the temporary name of the socket.
_KEEP_NAME: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


def _bound(folder: Path) -> socket.socket:
    """Return a socket that only this user may connect to.

    Never await in this function, because the umask that it changes applies to the whole process.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o177)
    try:
        with short_path(folder, SOCKET) as path:
            made.bind(path)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


class ClosedError(CrawlerError):
    """The crawl was closed before it could answer a command."""


async def in_turns(steps: Generator[None, None, Any], *, is_open: Callable[[], bool] = lambda: True) -> Any:
    """Return the result of a command. Other tasks run whenever the command pauses.

    Raises:
        ClosedError: `is_open` returned false before a step of the command.
    """
    while True:
        if not is_open():
            raise ClosedError("the crawl has ended")
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)


class ControlServer:
    """Answers requests on `folder`/control.sock until closed."""

    def __init__(self, folder: Path, handler: Handler) -> None:
        self._folder = folder
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start listening. An existing socket is replaced: this process holds the lock, so the socket's owner is dead.

        Raises:
            DirectoryError: the file system does not support sockets, like some network file systems.
        """
        name = self._folder / SOCKET
        try:
            name.unlink(missing_ok=True)
            bound = _bound(self._folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            text = "a crawl needs a file system with sockets"
            raise DirectoryError(f"{name}: cannot be created: {error.strerror or error}; {text}") from error
        self._server = await asyncio.start_unix_server(
            self._serve, sock=bound, limit=REQUEST_BYTES_MAX, **_KEEP_NAME
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(OSError):  # the disk fails; the next server replaces the socket
                (self._folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await self._answer(line) + b"\n")
                await writer.drain()
        except ValueError:
            text = f"the request has more than {REQUEST_BYTES_MAX} bytes"
            writer.write(msgspec.json.encode({"ok": False, "error": text, "code": 2}) + b"\n")
        except (OSError, ClosedError):  # the client has disconnected, or the crawl has ended
            pass
        except asyncio.CancelledError:
            # The event loop ended while the connection was open. The error is not raised again, because
            # asyncio in Python 3.11 prints a traceback if the task of a connection is cancelled.
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
        except UNDECODABLE as error:
            return msgspec.json.encode({"ok": False, "error": f"not a JSON object: {error}", "code": 2})
        try:
            return msgspec.json.encode({"ok": True, "result": await self._handler(request)})
        except ClosedError:
            raise
        except CrawlerError as error:
            return msgspec.json.encode({"ok": False, "error": str(error), "code": error.exit_code})
        except Exception as error:  # after a bug in a command, the client still gets an answer
            if (expected := blame_of_system(error)) is not None:
                return msgspec.json.encode(
                    {"ok": False, "error": str(expected), "code": exit_code_of(expected)}
                )
            log.exception("control socket: %.200r", line)
            text = f"internal error: {type(error).__name__}: {error}; see the log"
            return msgspec.json.encode({"ok": False, "error": text, "code": 1})
