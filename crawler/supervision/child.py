"""One process of `crawler crawl --processes N`, as a child of the supervisor.

    python -m crawler.supervision FD

FD is one end of a socket pair. Each message is one JSON object on a line. The first message of the supervisor
is `Start`. Its later messages are {"addresses": {name: port}} whenever ports become known, {"ended": true}
when a process has found that the crawl has ended, {"paused": true or false} when the user has paused or
resumed the crawl, {"warnings": ...} to the first child when the supervisor has logged a warning, so that every
view of the crawl's status shows it, and {"stop": reason} when the child should stop. The child first writes
{"port": n}, then {"status": ...} at the interval given in `Start`, {"paused": true or false} when it receives
such a command, and finally {"report": ...} or, after an error, {"failure": message}. The child ends after the
supervisor has answered this last message with {"reported": true}. If the stream from the supervisor ends, the
supervisor has ended. The child also watches the process of the supervisor (`parent.py`).
"""

import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler import early_signals
from crawler.admin.process_metrics import Warnings
from crawler.config import convert
from crawler.crawl.seeds import SeedFile
from crawler.errors import blame_of_system, exit_code_of
from crawler.forked_children import ForkedChild
from crawler.printable import printable_output
from crawler.process.exchange.exchange import Member
from crawler.process.fetching.reader import fork_parser
from crawler.process.lifecycle import shutdown
from crawler.process.lifecycle.garbage_collection import collect_rarely
from crawler.process.lifecycle.limits import SUPERVISOR_GONE
from crawler.storage.rotating_file import reopen_on
from crawler.supervision.parent import watch_parent
from crawler.supervision.time_slices import use_long_slices

if TYPE_CHECKING:
    from crawler.api import Crawl

MESSAGE_BYTES_MAX = 64 << 20
LOOPBACK = "127.0.0.1"
ORPHAN_GRACE = 1.0  # seconds that an orphaned child may use to complete its fetches in flight
CLEAR_LIMIT = 10.0  # seconds to end the tasks that remain in a child's loop

log = logging.getLogger("crawler")


class Start(msgspec.Struct):
    """The first message to a child.

    `supervisor` is the process id of the sender. `seeds_file` is the path of a file with the seeds of this
    run. `status_interval` is in seconds. If it is 0, no status is sent.
    """

    config: dict[str, Any]
    directory: str
    name: str
    crawl: str
    run: str
    ports: dict[str, int]
    supervisor: int
    seeds_file: str
    ended: bool = False
    paused: bool = False
    status_interval: float = 0.0
    level: int = logging.WARNING
    json_log: bool = False


def main(argv: list[str]) -> int:
    """Run `work` as a separate program."""
    collect_rarely()
    with printable_output():
        return work(socket.socket(fileno=int(argv[0])))


def warm_up() -> None:
    """Import the modules of a crawl once for all children, before forking. This saves 0.02 CPU seconds per child."""
    import encodings.ascii
    import encodings.cp1252
    import encodings.idna  # noqa: F401

    import uvloop  # noqa: F401

    import crawler.api  # noqa: F401
    from crawler.storage.engines import chosen

    chosen()


def work(link: socket.socket) -> int:
    """Crawl under the supervisor at the other end of `link`; return an exit code of `crawler crawl`."""
    import gc

    import uvloop

    use_long_slices()
    parser = fork_parser()
    gc.freeze()
    gc.enable()
    return shutdown.run(_work(link, parser), uvloop.new_event_loop, CLEAR_LIMIT)


async def _work(link: socket.socket, parser: ForkedChild | None) -> int:
    reader, writer = await asyncio.open_connection(sock=link, limit=MESSAGE_BYTES_MAX)
    line = b""
    with contextlib.suppress(ConnectionError):
        line = await reader.readline()
    if not line:  # the supervisor ended before it sent anything
        writer.close()
        return 0
    start = msgspec.json.decode(line, type=Start)
    child = _Child(start, reader, writer)
    try:
        await child.run(parser)
    except Exception as error:
        expected = blame_of_system(error)
        if expected is None:
            raise
        await child.hand_over({"failure": " ".join(str(expected).split())})
        return exit_code_of(expected)
    return 0


def _stop(loop: asyncio.AbstractEventLoop, crawl: "Crawl") -> None:
    """Handle a stop signal. If the crawl has already ended, do nothing, so that the exit code does not change.

    This is not a handler of the event loop: such a handler ends with the loop, and a later signal would end
    the process.
    """
    if not loop.is_closed():
        loop.call_soon_threadsafe(crawl.stop, "signal")


class _Child:
    """The crawl of one process, and its messages to and from the supervisor."""

    def __init__(self, start: Start, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from crawler.cli.options import send_log

        self._start = start
        self._reader, self._writer = reader, writer
        directory = Path(start.directory)
        self._config = convert(start.config)
        log_file = directory / "crawler.log"
        send_log(start.level, log_file, self._config.logs, json=start.json_log, process=start.name)

    async def run(self, parser: ForkedChild | None) -> None:
        from crawler.api import Crawl

        start = self._start
        member = Member(
            name=start.name,
            crawl=start.crawl,
            addresses=self._addresses(),
            run=start.run,
            ended=start.ended,
            supervised=True,
        )
        seeds = SeedFile(Path(start.seeds_file))
        async with Crawl(
            self._config, directory=start.directory, seeds=seeds, member=member, parser=parser
        ) as crawl:
            loop = asyncio.get_running_loop()
            for number in early_signals.stop_signals():
                signal.signal(number, lambda *_: _stop(loop, crawl))
            reopen_on(early_signals.REOPEN)
            if early_signals.begin():
                crawl.stop("signal")
            watch_parent(start.supervisor, lambda: loop.call_soon_threadsafe(self._orphaned, crawl))
            self._exchange = crawl.process.exchange
            crawl.live.commands.set_paused(start.paused)
            crawl.live.commands.tell_paused = lambda paused: self._say({"paused": paused})
            self._say({"port": self._exchange.address[1]})
            tasks = [asyncio.create_task(self._listen(crawl)), asyncio.create_task(self._tell(crawl))]
            try:
                await crawl.run()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await self.hand_over({"report": crawl.final})

    async def hand_over(self, message: dict[str, Any]) -> None:
        """Send the last message, and close the connection."""
        await shutdown.within(CLEAR_LIMIT, "report to the supervisor", self._confirmed(message))
        self._writer.close()
        await shutdown.within(CLEAR_LIMIT, "supervisor's pipe", self._closed())

    async def _closed(self) -> None:
        """Wait until the connection is closed. If the supervisor has ended, log it."""
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            log.warning("the supervisor has ended, so this process ends without a report to it")

    async def _confirmed(self, message: dict[str, Any]) -> None:
        """Send a message, and read messages until the supervisor confirms that it has received this one.

        Closing a socket that has unread messages resets the connection. After a reset, the supervisor could
        lose messages that it has not read yet.
        """
        self._say(message)
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                if "reported" in msgspec.json.decode(line):
                    return

    def _say(self, message: dict[str, Any]) -> None:
        """Send a message, unless the connection has been closed because the supervisor has ended."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _listen(self, crawl: "Crawl") -> None:
        """Receive and obey messages of the supervisor until the supervisor has ended."""
        with contextlib.suppress(ConnectionError):  # the supervisor ended before it read our messages
            while line := await self._reader.readline():
                self._heed(crawl, msgspec.json.decode(line))
        self._orphaned(crawl)

    def _heed(self, crawl: "Crawl", message: dict[str, Any]) -> None:
        for name, port in message.get("addresses", {}).items():
            if name != self._start.name:
                self._exchange.set_address(name, (LOOPBACK, port))
        if "ended" in message:
            self._exchange.learn_end()
        if "paused" in message:
            crawl.live.commands.set_paused(message["paused"])
        if "warnings" in message:
            crawl.live.vital_signs.parents = msgspec.convert(message["warnings"], Warnings)
        if reason := message.get("stop"):
            crawl.stop(reason)

    def _orphaned(self, crawl: "Crawl") -> None:
        crawl.stop(SUPERVISOR_GONE, grace=ORPHAN_GRACE)

    async def _tell(self, crawl: "Crawl") -> None:
        """Send the status at each interval, if an interval is set."""
        while interval := self._start.status_interval:
            self._say({"status": crawl.status()})
            await self._writer.drain()
            await asyncio.sleep(interval)

    def _addresses(self) -> dict[str, tuple[str, int]]:
        """Return the addresses of the sibling processes. If the port of a sibling is not known, its port is 0."""
        from crawler.crawl.process_names import process_names

        me, ports = self._start.name, self._start.ports
        return {name: (LOOPBACK, ports.get(name, 0)) for name in process_names(self._config) if name != me}
