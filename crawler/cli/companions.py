"""Runs the services beside a command-line crawl: admin server, public page about the bot, messages to systemd."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.admin.explanation import SEARCHED_MAX
from crawler.clock import SystemClock
from crawler.config import AdminConfig, Config
from crawler.config.forms import http_origin

if TYPE_CHECKING:
    from crawler.admin.lazy_server import LazyAdminServer  # imported only when needed: it is slow
    from crawler.admin.status_source import StatusSource

OFF = "off"


@asynccontextmanager
async def companions(
    source: "StatusSource", config: Config, directory: Path, *, quiet: bool
) -> AsyncIterator[None]:
    """Run the servers beside the crawl, with data from `source`, and notify systemd while the crawl runs."""
    async with bot_listener(config, directory, quiet=quiet):
        server = _admin(source, config, directory, quiet=quiet)
        notify("READY=1")
        beating = asyncio.create_task(_beat())
        failure = ""
        try:
            yield
        except Exception as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            notify("STOPPING=1")
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            if server is not None:
                await server.close(failure)


@asynccontextmanager
async def bot_listener(config: Config, directory: Path, *, quiet: bool) -> AsyncIterator[None]:
    """Serve the public page about the bot and the key directory, if `serve.bot_listen` is set."""
    if not config.serve.bot_listen:
        yield
        return
    from crawler.admin.bot_server import BotServer

    server = BotServer(config, directory, SystemClock().now)
    await server.start(config.serve.bot_listen)
    if not quiet:
        print(f"about the bot: {http_origin(*server.listener.address)}/bot", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        await server.close()


def _admin(
    source: "StatusSource", config: Config, directory: Path, *, quiet: bool
) -> "LazyAdminServer | None":
    if config.admin.address == OFF:
        return None
    from crawler.admin.lazy_server import LazyAdminServer, start_or_say

    def search(url: str) -> dict[str, str]:
        from crawler.audit.unfollowed import unfollowed_facts  # imported here, because it is rarely needed

        return unfollowed_facts(directory, url, SEARCHED_MAX)

    door = LazyAdminServer(source, config, directory, SystemClock().now, search)
    if not start_or_say(door, config.admin.address, AdminConfig().address):
        return None
    if not quiet:
        print(f"dashboard: {door.link()}", file=sys.stderr, flush=True)
    return door


def notify(state: str) -> None:
    """Send one datagram to systemd's $NOTIFY_SOCKET (sd_notify(3)); do nothing if the variable is not set."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
        link.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        link.send(state.encode())


async def _beat() -> None:
    """Send systemd's watchdog a sign of life twice per interval ($WATCHDOG_USEC), as long as the event loop runs."""
    try:
        interval = int(os.environ.get("WATCHDOG_USEC", "")) / 2e6
    except ValueError:
        return
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while interval > 0.0:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval)
