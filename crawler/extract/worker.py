"""Extraction for the fetch loop: harmless pages at once, heavy ones in a child process.

A page that is large, or that the guard suspects, goes to the child (`parser_child.py`),
one at a time, in order of arrival. If no child was forked before the loop began, the
first such page starts one. If the child dies (CPU or memory limit, or a crash of the
parser) the page gets a plain scan and is marked `parse_limit`; the next page starts
another child. Beyond `worker_queue_max` waiting pages a page gets a plain scan only,
so a site of heavy pages does not hold up others for long.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple, Protocol

import msgspec

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.documents import Document
from crawler.extract.links import prepare
from crawler.extract.loop_share import LoopShare
from crawler.extract.map_stream import STREAMS_MAX, MapPiece, MapStream
from crawler.extract.parser_child import LENGTH, Job, limits_of, program, read_here, run
from crawler.extract.parser_guard import Judgement, judge
from crawler.extract.scan import scan, scan_utf8
from crawler.records import Extracted

# Wall time given to a page, as a multiple of its CPU time: the machine may be busy with other things.
WALL_FACTOR = 10.0
SCAN_INLINE_BYTES = 128 << 10  # scanned at once; in the worst case, tag after tag, at 0.2 us a byte
_BEHIND_BYTES = (
    1 << 20
)  # that the child has not read yet; further ones wait on our side, where they are kept anyway
# Bytes that parsing takes for each of a page: its copies on both sides and its tree.
PARSED_FACTOR = 16
START_SECONDS = 30.0  # wall time a child may take to start, on top


class ChildProcess(Protocol):
    """What a worker needs of its child, a fork or a program."""

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class Fork(ChildProcess, Protocol):
    """A child that runs `work` at the other end of `link`."""

    link: socket.socket


Apart = Callable[[], None]


def nothing() -> None:
    """Nobody wants to know that an answer is waited for."""


class Holding(Protocol):
    """Who keeps account of the bytes in memory."""

    def hold_more(self, owner: Hashable, nbytes: int) -> None: ...

    def let_go(self, owner: Hashable) -> None: ...


class _Child(NamedTuple):
    process: ChildProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def work(link: socket.socket) -> int:
    """Parse for the process that this one was forked from; returns its exit code."""
    os.closerange(3, link.fileno())  # the parent's files and connections are none of ours
    os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    return run(link.makefile("rb"), link.makefile("wb"))


class Worker:
    """Extracts pages of any kind under the limits of `config`; `fork` is its first child, if there is one."""

    def __init__(
        self, config: ExtractConfig, fork: Fork | None = None, share: LoopShare | None = None
    ) -> None:
        self._config = config
        self._fork = fork
        self._child: _Child | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._streams: dict[int, _Child | None] = {}  # and the child that has what came first
        self._stream_number = 0
        self.holding: Holding | None = None  # who is told what parsing takes
        self.share = LoopShare() if share is None else share  # of all that is read in the loop
        self.starts = 0
        self.deaths = 0
        self.refused = 0

    async def extract(self, content: bytes, page: Context, apart: Apart = nothing) -> Extracted:
        """Return what the page holds; never fails, and never holds the loop for long.

        `apart` is called before the child is waited for.
        """
        config = self._config
        if len(content) > config.inline_bytes_max:
            apart()
            return await self.extract_apart(content, page)
        await self.share.mine()
        with self.share.spending():
            utf8, encoding = prepare(content, page)
            judgement = judge(utf8, config)
            if (found := read_here(utf8, encoding, judgement, page, config)) is not None:
                return found
        if judgement is Judgement.EXCESSIVE:
            return await _beside(utf8, scan_utf8, utf8, encoding, page, config)
        apart()
        return await self.extract_apart(content, page)

    async def read(self, content: bytes, page: Context, document: Document) -> Extracted:
        """Read a document in the child, when its turn comes; nothing is found if that cannot be."""
        async with self._turn:
            found = await self._ask_job(Job(page, content, document))
        return found if found is not None else Extracted(page.url, parse_limit=True)

    def follow(self, document: Document, least: int) -> MapStream | None:
        """A stream for a map that is about to arrive and may have more than `least` bytes; None: too many are open.

        It ends with `read_stream` or `drop`.
        """
        if len(self._streams) >= STREAMS_MAX:
            return None
        self._stream_number += 1
        stream = MapStream(self._stream_number, document, self._send, least)
        self._streams[stream.number] = None
        return stream

    def _send(self, piece: MapPiece) -> bool:
        """Write a piece to the child if that runs, is the one that has what came before, and is not behind."""
        child, begun = self._child, self._streams[piece.stream]
        if child is None or child.process.returncode is not None or child.writer.is_closing():
            return False
        if begun not in (None, child) or child.writer.transport.get_write_buffer_size() > _BEHIND_BYTES:
            return False
        self._streams[piece.stream] = child
        _write(child, piece)
        return True

    async def read_stream(self, stream: MapStream, content: bytes, document: Document) -> Extracted:
        """What the map of that content holds, all of which `stream` was fed or none; nothing if that cannot be."""
        try:
            async with self._turn:
                found = await self._ask(lambda child: self._finish(child, stream, content, document))
        finally:
            self._streams.pop(stream.number, None)
        return found if found is not None else Extracted(document.url, parse_limit=True)

    async def _finish(self, child: _Child, stream: MapStream, content: bytes, document: Document) -> None:
        for piece in stream.rest(content, again=self._streams[stream.number] is not child):
            _write(child, msgspec.structs.replace(piece, document=document))
            await child.writer.drain()

    def drop(self, stream: MapStream) -> None:
        """Nobody wants to know what the map holds; harmless if it has been read."""
        child = self._streams.pop(stream.number, None)
        if child is not None and child is self._child and not child.writer.is_closing():
            _write(child, stream.dropped())

    async def extract_apart(self, content: bytes, page: Context) -> Extracted:
        """Parse in the child; a plain scan if that cannot be."""
        found = None
        if self._waiting > self._config.worker_queue_max:
            self.refused += 1
        else:
            self._waiting += 1
            try:
                async with self._turn:
                    found = await self._parse(Job(page, content))
            finally:
                self._waiting -= 1
        if found is not None:
            return found
        return await _beside(content, scan, content, page, self._config)

    async def close(self) -> None:
        """End the child."""
        async with self._turn:
            await self._end()

    async def _parse(self, job: Job) -> Extracted | None:
        """What the child finds in a page; meanwhile its memory counts as what is held."""
        if self.holding is None:
            return await self._ask_job(job)
        tree = min(PARSED_FACTOR * len(job.content), self._config.worker_memory_bytes_max)
        self.holding.hold_more(self, tree)
        try:
            return await self._ask_job(job)
        finally:
            self.holding.let_go(self)

    async def _ask_job(self, job: Job) -> Extracted | None:
        async def send(child: _Child) -> None:
            _write(child, job)
            await child.writer.drain()

        return await self._ask(send)

    async def _ask(self, send: Callable[[_Child], Awaitable[None]]) -> Extracted | None:
        """The child's answer to what `send` gives it, None if it died over that."""
        limit = START_SECONDS + WALL_FACTOR * self._config.cpu_seconds_max
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(send)
        except (OSError, EOFError, TimeoutError, msgspec.MsgspecError):
            self.deaths += 1
            await self._end()
            return None
        except asyncio.CancelledError:  # the answer would be taken for that of the next page
            await self._end()
            raise

    async def _exchange(self, send: Callable[[_Child], Awaitable[None]]) -> Extracted:
        child = self._child
        if child is None or child.process.returncode is not None:
            child = self._child = await self._start()
            child.writer.write(limits_of(self._config))
        await send(child)
        (length,) = LENGTH.unpack(await child.reader.readexactly(LENGTH.size))
        return msgspec.msgpack.decode(await child.reader.readexactly(length), type=Extracted)

    async def _start(self) -> _Child:
        self.starts += 1
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.link.setblocking(False)
            return _Child(fork, *await asyncio.open_connection(sock=fork.link))
        command, environment = program()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdin is not None and process.stdout is not None
        return _Child(process, process.stdout, process.stdin)

    async def _end(self) -> None:
        """End the child, and the fork if no page has needed it."""
        child, self._child = self._child, None
        if child is not None:
            child.writer.close()
            await _kill(child.process)
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.link.close()
            await _kill(fork)

    def __repr__(self) -> str:
        waiting, starts, deaths, refused = self._waiting, self.starts, self.deaths, self.refused
        return f"Worker({waiting=}, {starts=}, {deaths=}, {refused=})"


def _write(child: _Child, frame: Job | MapPiece) -> None:
    request = msgspec.msgpack.encode(frame)
    child.writer.write(LENGTH.pack(len(request)))
    child.writer.write(request)


async def _beside(content: bytes, call: Callable[..., Extracted], *arguments: object) -> Extracted:
    """What `call` finds in `content`: at once, or in a thread if it could hold the loop."""
    if len(content) <= SCAN_INLINE_BYTES:
        return call(*arguments)
    return await asyncio.to_thread(call, *arguments)


async def _kill(process: ChildProcess) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await process.wait()
