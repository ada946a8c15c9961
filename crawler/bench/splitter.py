"""Measures the host splitter against a bare loop: both send links from one process to another.

In the host splitter and in the bare loop, the receiver acknowledges links only after it has stored them
durably.

There are two processes on loopback, each with its own LevelDB. The phase *fill* commits links to the sender's
outbox, one synced group at a time. The phase *drain* connects the processes and waits until the owner has
confirmed the last link. The bare loop sends the same bytes as length-prefixed frames. With one synced write
to LevelDB, the receiver stores all frames that have arrived, and then acknowledges them. The bare loop does
not decode links, and has neither tags nor an outbox.
"""

import argparse
import asyncio
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from crawler.bench import harness
from crawler.cli.parsing import OptionParser, positive_count
from crawler.clock import SystemClock
from crawler.config import SplitterConfig
from crawler.records import Link
from crawler.splitter.coordination import Coordination, Progress
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.splitter.peers import Address, Peers
from crawler.splitter.session import Common, Identity
from crawler.splitter.wire import encode_entries
from crawler.storage.engines import open_store

NAMES = ("receiver", "sender")
GROUP_LINKS = 1600  # number of links on 16 pages; in this benchmark, all of them belong to another process
SECRET = b"benchmark secret"


def add_arguments(parser: OptionParser) -> None:
    parser.option("--links", 1_000_000, type=positive_count())
    parser.option("--directory", Path, "folder for the stores (the temporary directory)", metavar="DIR")
    parser.option("--json", False, "print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Measure the splitter and the bare loop, and print their rows."""
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="splitter-bench-") as folder:
        rows = [
            _measure("bare loop", _bare_receiver, _bare_sender, Path(folder, "bare"), arguments.links),
            _measure("splitter", _receiver, _sender, Path(folder, "splitter"), arguments.links),
        ]
    if arguments.json:
        harness.show_json(benchmark="splitter", links=arguments.links, rows=rows)
    else:
        harness.show(f"{arguments.links:,} links in entries of 8 KiB, a synced write before every ack", rows)
    return 0


def _measure(name: str, receiver: Callable, sender: Callable, folder: Path, links: int) -> dict[str, Any]:
    """Run receiver and sender as separate processes and combine their reports."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(), context.Pipe()]
    folders = [folder / each for each in NAMES]
    for each in folders:
        each.mkdir(parents=True)
    receiving = context.Process(target=receiver, args=(pipes[0][1], folders[0], links))
    sending = context.Process(target=sender, args=(pipes[1][1], folders[1], links))
    receiving.start()
    sending.start()
    pipes[1][0].send(pipes[0][0].recv())  # the receiver's address
    sent = pipes[1][0].recv()
    received = pipes[0][0].recv()
    sending.join()
    receiving.join()
    return {
        "what": name,
        "fill links/s": links / sent["fill"] if sent["fill"] else 0.0,
        "drain links/s": links / sent["drain"],
        "drain entries/s": sent["entries"] / sent["drain"],
        "drain MB/s": sent["bytes"] / sent["drain"] / 1e6,
        "commits/s": received["commits"] / sent["drain"],
        "sender CPU us/link": sent["cpu"] / links * 1e6,
        "receiver CPU us/link": received["cpu"] / links * 1e6,
        "sender peak MB": sent["peak"],
        "receiver peak MB": received["peak"],
    }


def _links(count: int) -> Iterator[list[Link]]:
    """Yield groups of links whose buckets the receiver owns, with URLs of 60 to 80 bytes."""
    rng = random.Random(1)
    for start in range(0, count, GROUP_LINKS):
        yield [
            Link(
                rng.getrandbits(63),
                f"https://www.host{rng.randrange(500)}.example/section/{rng.randrange(10_000)}/page-{number}.html",
                depth=rng.randrange(12),
                via=rng.getrandbits(64),
            )
            for number in range(start, min(start + GROUP_LINKS, count))
        ]


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class _Process:
    """A process without a crawl, which has only a committer and the splitter's objects."""

    def __init__(self, name: str, folder: Path, peer_address: Address) -> None:
        self.store = open_store(folder / "store")
        config = SplitterConfig()
        partition = Partition.equal_ranges(NAMES)
        rng = random.SystemRandom()
        others = [other for other in NAMES if other != name]
        boot = rng.getrandbits(64).to_bytes(8, "big")
        self.outbox = Outbox(self.store, others, config, rng)
        self.inbox = Inbox(self.store, partition, name, others, config)
        common = Common(
            Identity("bench", name, boot, 1, b""),
            partition,
            self.outbox,
            self.inbox,
            Coordination(name, NAMES, boot, Progress),
            config,
            rng,
            secret=SECRET,
        )
        self.peers = Peers(
            common,
            {others[0]: peer_address},
            SystemClock(),
            on_news=self._on_news,
            on_failure=self._on_failure,
            on_older=lambda newest: None,
        )
        self.commits = 0
        self._news = asyncio.Event()

    def _on_failure(self, error: Exception) -> None:
        raise error

    def _on_news(self) -> None:
        self._news.set()

    async def commit(self, links: list[Link]) -> None:
        """Commit one group of changes: the links for the peer, and all links that have been received."""
        received = self.inbox.take()
        items = [(NAMES[0], links)] if links else []
        await asyncio.to_thread(self._write, items, received)
        self.outbox.committed()
        self.inbox.committed()
        self.commits += 1
        self.peers.flush(NAMES)

    def _write(self, items: list, received: list) -> None:
        batch = self.store.batch(sync=True)
        self.outbox.write(items)
        self.inbox.write(received)
        self.outbox.stage(batch)
        self.inbox.stage(batch)
        for entry in received:
            batch.put(b"t/" + entry.sequence.to_bytes(8, "big"), encode_entries(entry.links, 1 << 20)[0][0])
        self.store.write(batch)

    async def commit_received(self) -> None:
        """Wait until links have been received, and commit them."""
        await self._news.wait()
        self._news.clear()
        while self.inbox.waiting:
            await self.commit([])


def _receiver(pipe: Connection, folder: Path, links: int) -> None:
    async def main() -> None:
        process = _Process("receiver", folder, ("127.0.0.1", 1))
        pipe.send(await process.peers.start())
        cpu = time.process_time()
        while process.inbox.applied < links:
            await process.commit_received()
        await asyncio.sleep(0.1)  # wait long enough for the last ack to arrive
        pipe.send({"cpu": time.process_time() - cpu, "commits": process.commits, "peak": _peak()})
        await process.peers.close()

    uvloop.run(main())


def _sender(pipe: Connection, folder: Path, links: int) -> None:
    async def main() -> None:
        process = _Process("sender", folder, pipe.recv())
        groups = list(_links(links))
        began = time.monotonic()
        for group in groups:
            await process.commit(group)
        fill = time.monotonic() - began
        del groups
        entries, size = process.outbox.spools["receiver"].committed, process.outbox.bytes
        entries -= process.outbox.spools["receiver"].acked
        cpu, began = time.process_time(), time.monotonic()
        await process.peers.start()
        while process.outbox.links:
            await asyncio.sleep(0.02)
            await process.commit([])  # delete confirmed entries with each commit, as a crawl does
        drain = time.monotonic() - began
        cpu = time.process_time() - cpu
        await process.peers.close()
        pipe.send(
            {"fill": fill, "drain": drain, "entries": entries, "bytes": size, "cpu": cpu, "peak": _peak()}
        )

    uvloop.run(main())


def _bare_receiver(pipe: Connection, folder: Path, links: int) -> None:
    async def main() -> None:
        store = open_store(folder / "store")
        done = asyncio.Event()
        commits = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal commits
            count, pending, buffer = 0, [], b""
            while data := await reader.read(1 << 18):
                buffer += data
                at = 0
                while len(buffer) - at >= 4:
                    length = int.from_bytes(buffer[at : at + 4], "big")
                    if len(buffer) - at - 4 < length:
                        break
                    pending.append(buffer[at + 4 : at + 4 + length])
                    at += 4 + length
                buffer = buffer[at:]
                if pending:
                    batch = store.batch(sync=True)
                    for entry in pending:
                        count += 1
                        batch.put(b"t/" + count.to_bytes(8, "big"), entry)
                    await asyncio.to_thread(store.write, batch)
                    pending = []
                    commits += 1
                    writer.write(count.to_bytes(8, "big"))
            done.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[:2])
        cpu = time.process_time()
        await done.wait()
        pipe.send({"cpu": time.process_time() - cpu, "commits": commits, "peak": _peak()})

    uvloop.run(main())


def _bare_sender(pipe: Connection, folder: Path, links: int) -> None:
    async def main() -> None:
        host, port = pipe.recv()
        entries = [entry for group in _links(links) for entry, _ in encode_entries(group, 8192)]
        cpu, began = time.process_time(), time.monotonic()
        reader, writer = await asyncio.open_connection(host, port)
        acked, size, window = 0, 0, 128
        for number, entry in enumerate(entries):
            writer.write(len(entry).to_bytes(4, "big") + entry)
            size += len(entry)
            while number - acked >= window:
                acked = int.from_bytes((await reader.readexactly(8)), "big")
        while acked < len(entries):
            acked = int.from_bytes((await reader.readexactly(8)), "big")
        drain = time.monotonic() - began
        writer.close()
        cpu = time.process_time() - cpu
        pipe.send(
            {"fill": 0, "drain": drain, "entries": len(entries), "bytes": size, "cpu": cpu, "peak": _peak()}
        )

    uvloop.run(main())
