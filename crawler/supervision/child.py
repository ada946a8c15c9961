"""One process of `crawler crawl --processes N`, as the supervisor's child.

    python -m crawler.supervision.child FD

FD is one end of a socket pair. The supervisor writes one JSON object a line:
first `Start`, then {"addresses": {name: port}} whenever ports become known,
{"ended": true} when one process has found out that the crawl has ended, {"stop":
reason}; the end of the stream means that the supervisor is gone. The child
writes {"port": n}, {"status": ...} as often as it was asked to, and at last
{"report": ...}.
"""

import asyncio
import itertools
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from crawler.config import convert
from crawler.crawl.identity import SEEDS_AT_ONCE
from crawler.errors import CrawlerError
from crawler.process import ending
from crawler.process.collector import collect_rarely
from crawler.process.exchange import Member
from crawler.process.forked import Forked
from crawler.process.reader import fork_parser
from crawler.storage.commit import Change
from crawler.supervision.turns import take_long_turns

MESSAGE_BYTES_MAX = 64 << 20
LOOPBACK = "127.0.0.1"
CLEAR_LIMIT = 10.0  # seconds for what a child leaves behind in its loop


class Start(msgspec.Struct):
    """What a child is told first.

    `seeds_file` holds canonical seeds of this run, one a line; "" = none.
    `status_interval` is in seconds; 0 = nobody looks.
    """

    config: dict[str, Any]
    directory: str
    name: str
    crawl: str
    run: str
    ports: dict[str, int]
    seeds_file: str = ""
    ended: bool = False
    status_interval: float = 0.0
    level: int = logging.WARNING
    json_log: bool = False


def main(argv: list[str]) -> int:
    """`work` as a program of its own."""
    collect_rarely()
    return work(socket.socket(fileno=int(argv[0])))


def warm_up() -> None:
    """Import what each process would, once for all that are forked: saves each 0.02 CPU s."""
    import encodings.ascii
    import encodings.cp1252
    import encodings.idna  # noqa: F401

    import plyvel  # noqa: F401
    import uvloop  # noqa: F401

    import crawler.api  # noqa: F401


def work(link: socket.socket) -> int:
    """Crawl as the supervisor at the other end of `link` says; the exit codes are those of `crawler crawl`."""
    import gc

    import uvloop

    take_long_turns()
    parser = fork_parser()
    gc.freeze()
    try:
        return ending.run(_work(link, parser), uvloop.new_event_loop, CLEAR_LIMIT)
    except CrawlerError as error:
        print(f"crawler: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code


async def _work(link: socket.socket, parser: Forked | None) -> int:
    reader, writer = await asyncio.open_connection(sock=link, limit=MESSAGE_BYTES_MAX)
    line = await reader.readline()
    if not line:  # the supervisor has ended before it had anything to do
        return 0
    start = msgspec.json.decode(line, type=Start)
    await _Child(start, reader, writer).run(parser)
    return 0


class _Child:
    """The crawl of one process, and what is said about it."""

    def __init__(self, start: Start, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from crawler.cli.options import send_log

        self._start = start
        self._reader, self._writer = reader, writer
        directory = Path(start.directory)
        send_log(start.level, directory / "crawler.log", json=start.json_log, process=start.name)
        self._config = convert(start.config)

    async def run(self, parser: Forked | None) -> None:
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
        seeds = OwnSeeds(Path(start.seeds_file)) if start.seeds_file else None
        async with Crawl(
            self._config, directory=start.directory, seeds=seeds or (), member=member, parser=parser
        ) as crawl:
            if seeds is not None:
                seeds.enter(crawl)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, crawl.stop, "signal")
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, crawl.stop, "signal")
            assert crawl.process.exchange is not None
            self._exchange = crawl.process.exchange
            self._say({"port": self._exchange.address[1]})
            tasks = [asyncio.create_task(self._listen(crawl)), asyncio.create_task(self._tell(crawl))]
            try:
                report = await crawl.run()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        self._say({"report": report})
        self._writer.close()
        await ending.within(CLEAR_LIMIT, "supervisor's pipe", self._writer.wait_closed())

    def _say(self, message: dict[str, Any]) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _listen(self, crawl: Any) -> None:
        """Do what the supervisor says until it is gone."""
        assert self._exchange is not None
        while line := await self._reader.readline():
            message = msgspec.json.decode(line)
            for name, port in message.get("addresses", {}).items():
                if name != self._start.name:
                    self._exchange.peers.set_address(name, (LOOPBACK, port))
            if "ended" in message:
                self._exchange.learn_end()
            if reason := message.get("stop"):
                crawl.stop(reason)
        crawl.stop("supervisor gone")

    async def _tell(self, crawl: Any) -> None:
        """Say how it goes, if anybody looks."""
        while interval := self._start.status_interval:
            self._say({"status": crawl.status()})
            await self._writer.drain()
            await asyncio.sleep(interval)

    def _addresses(self) -> dict[str, tuple[str, int]]:
        """Where the siblings listen, as far as it is known."""
        from crawler.crawl.topology import process_names

        me, ports = self._start.name, self._start.ports
        return {name: (LOOPBACK, ports.get(name, 0)) for name in process_names(self._config) if name != me}


class OwnSeeds:
    """The seeds of a run that this process owns, in pieces; the scope learns all of them, as it is one for all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._crawl: Any = None

    def enter(self, crawl: Any) -> None:
        """Let the scope of `crawl` span all seeds before anything is fetched, else links would be dropped."""
        self._crawl = crawl
        if crawl.config.crawl.scope == "any":
            return
        for urls in self._pieces():
            change = Change()
            crawl.stages.harvest.widen(change, urls)
            crawl.process.queue(change)

    def __iter__(self) -> Iterator[list[str]]:
        stages = self._crawl.stages
        for urls in self._pieces():
            own = stages.topology.partition.split(stages.fingerprinter.fingerprints(urls)).get(
                stages.name, []
            )
            yield [urls[place] for place in own]

    def _pieces(self) -> Iterator[list[str]]:
        with self._path.open(encoding="ascii") as file:
            while piece := list(itertools.islice(file, SEEDS_AT_ONCE)):
                yield [line.rstrip("\n") for line in piece]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
