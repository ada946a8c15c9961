"""Extracts pages for the fetch loop, expensive ones in a child (`extract/README.md`, "Bounded time").

The child (`parser_child.py`) gets one page at a time, in order of arrival. If no child was forked before the loop
began, the first expensive page starts one. When more than `worker_queue_max` pages wait, a page gets only a plain
scan, so a site with expensive pages does not delay other sites for long.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.documents import Document
from crawler.extract.links import prepare_scan
from crawler.extract.loop_share import LoopShare
from crawler.extract.map_stream import STREAMS_MAX, MapPiece, MapStream
from crawler.extract.parser_child import LENGTH, Job, limits_of, program, read_here, run
from crawler.extract.parser_guard import Judgement
from crawler.extract.scan import scan, scan_utf8
from crawler.extract.scanned import can_scan
from crawler.forked_children import ForkedChild
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots

# Limit of wall time for a page, as a multiple of the limit of CPU time. Wall time may be longer, because
# other processes use the machine, too.
WALL_FACTOR = 10.0
# Maximum number of bytes scanned in the event loop. On a page of nothing but tags, the scan takes 0.2 us per
# byte.
SCAN_INLINE_BYTES = 128 << 10
# Pages that can be scanned without a tree may be larger by this factor. The scanner takes a fifth of the
# parser's time. Sending a page to the child would take as long as scanning it here.
SCANNED_FACTOR = 2
# maximum number of bytes that the child has not read yet; further pieces wait in the stream
_BEHIND_BYTES = 1 << 20
# Bytes of memory that parsing needs per byte of a page, for the copies in parent and child and for the tree.
PARSED_FACTOR = 16
START_SECONDS = 30.0  # extra wall time for starting a child


ChildProcess = asyncio.subprocess.Process | ForkedChild
Apart = Callable[[], None]


def nothing() -> None:
    """Do nothing. This is the default for `apart`."""


class Holding(Protocol):
    """Accounts for memory: it is told how many bytes an owner, such as a parser, holds."""

    def hold_more(self, owner: Hashable, nbytes: int) -> None: ...

    def let_go(self, owner: Hashable) -> None: ...


class _Child(NamedTuple):
    process: ChildProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def work(link: socket.socket) -> int:
    """Parse pages for the parent of this fork until the input ends; return the exit code."""
    os.closerange(3, link.fileno())  # close the files and connections inherited from the parent
    os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    return run(link.makefile("rb"), link.makefile("wb"))


class Worker:
    """Extracts pages of any kind under the limits of `config`. `fork`, if given, becomes the first child process."""

    def __init__(
        self, config: ExtractConfig, fork: ForkedChild | None = None, share: LoopShare | None = None
    ) -> None:
        self._config = config
        self._fork = fork
        self._child: _Child | None = None
        self._turn = asyncio.Lock()
        self._scanning = asyncio.Lock()
        self._waiting = 0
        # the number of a sitemap -> the child that has its first pieces
        self._streams: dict[int, _Child | None] = {}
        self._stream_number = 0
        self.holding: Holding | None = None  # accounts for the memory of parsing
        # limits the time that parsing takes in the event loop
        self.share = LoopShare() if share is None else share
        self.starts = 0
        self.deaths = 0
        self.refused = 0

    async def extract(self, content: bytes, page: Context, apart: Apart = nothing) -> Extracted:
        """Extract a page. Never fail, and never block the loop for long. Call `apart` before waiting for the child."""
        config = self._config
        factor = SCANNED_FACTOR if can_scan(page) else 1
        if len(content) > factor * config.inline_bytes_max:
            apart()
            return await self.extract_apart(content, page)
        await self.share.mine()
        with self.share:
            utf8, encoding = prepare_scan(content, page)
            found = read_here(utf8, encoding, page, config)
        if isinstance(found, Extracted):
            return found
        if found is Judgement.EXCESSIVE:
            utf8 = open_shadow_roots(utf8)
            return await self._scan_off_loop(utf8, scan_utf8, utf8, encoding, page, config)
        apart()
        return await self.extract_apart(content, page)

    async def read(self, content: bytes, page: Context, document: Document) -> Extracted:
        """Read a document in the child, in order of arrival. If this fails, return an empty result."""
        async with self._turn:
            found = await self._ask_job(Job(page, content, document))
        return found if found is not None else Extracted(page.url, parse_limit=True)

    def follow(self, document: Document, least: int) -> MapStream:
        """Return a stream that parses a sitemap as it arrives, if the sitemap exceeds `least` bytes.

        If many streams are open, the stream is `late`: it sends nothing until the map is complete.
        The caller must end the stream with `read_stream` or `drop`.
        """
        self._stream_number += 1
        late = len(self._streams) >= STREAMS_MAX
        stream = MapStream(self._stream_number, document, self._send, least, late=late)
        self._streams[stream.number] = None
        return stream

    def _send(self, piece: MapPiece) -> bool:
        """Write a piece to the child if it is running, has all earlier pieces, and keeps up with its input."""
        child, begun = self._child, self._streams[piece.stream]
        if child is None or child.process.returncode is not None or child.writer.is_closing():
            return False
        if begun not in (None, child) or child.writer.transport.get_write_buffer_size() > _BEHIND_BYTES:
            return False
        self._streams[piece.stream] = child
        try:
            _write(child, piece)
        except EOFError:
            return False
        return True

    async def read_stream(self, stream: MapStream, content: Iterable[bytes], document: Document) -> Extracted:
        """Read the map that was fed to `stream`. `content` holds the whole map. On failure, return an empty result."""
        try:
            async with self._turn:
                found = await self._ask(lambda child: self._finish(child, stream, content, document))
        finally:
            self._streams.pop(stream.number, None)
        return found if found is not None else Extracted(document.url, parse_limit=True)

    async def _finish(
        self, child: _Child, stream: MapStream, content: Iterable[bytes], document: Document
    ) -> None:
        rest = stream.rest(content, again=self._streams[stream.number] not in (None, child))
        # this may read `content` from disk and decode it
        while (piece := await asyncio.to_thread(next, rest, None)) is not None:
            _write(child, msgspec.structs.replace(piece, document=document))
            await child.writer.drain()

    def drop(self, stream: MapStream) -> None:
        """Abandon the map of `stream`; this is harmless if the map has been read."""
        child = self._streams.pop(stream.number, None)
        if child is not None and child is self._child and not child.writer.is_closing():
            with suppress(EOFError):
                _write(child, stream.dropped())

    async def extract_apart(self, content: bytes, page: Context) -> Extracted:
        """Parse a page in the child. If this fails, use a plain scan."""
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
        return await self._scan_off_loop(content, scan, content, page, self._config)

    async def _scan_off_loop(
        self, content: bytes, call: Callable[..., Extracted], *arguments: object
    ) -> Extracted:
        """Return the result of `call`. Call it at once, or in a thread if the call could block the event loop.

        Such a thread holds the interpreter lock part of the time, which delays the loop, so only one thread
        runs at a time.
        """
        if len(content) <= SCAN_INLINE_BYTES:
            return call(*arguments)
        async with self._scanning:
            return await asyncio.to_thread(call, *arguments)

    async def close(self) -> None:
        """End the child."""
        async with self._turn:
            await self._end()

    async def _parse(self, job: Job) -> Extracted | None:
        """Return what the child extracts from a page. Meanwhile, account for the memory that parsing uses."""
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
        """Send a request to the child with `send` and return the child's answer; None if the child died."""
        limit = START_SECONDS + WALL_FACTOR * self._config.cpu_seconds_max
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(send)
        except (OSError, EOFError, TimeoutError, msgspec.MsgspecError):
            self.deaths += 1
            await self._end()
            return None
        except asyncio.CancelledError:  # end the child; otherwise, the next page would receive this answer
            await self._end()
            raise

    async def _exchange(self, send: Callable[[_Child], Awaitable[None]]) -> Extracted:
        child = self._child
        if child is None or child.process.returncode is not None:
            child = self._child = await self._start()
            _put(child, limits_of(self._config))
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
        """End the child, and the forked process that this worker was given, if it was not used as a child yet."""
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
    _put(child, LENGTH.pack(len(request)))
    _put(child, request)


def _put(child: _Child, data: bytes) -> None:
    """Write to a child.

    Raises:
        EOFError: the child has ended.
    """
    try:
        child.writer.write(data)
    except RuntimeError as error:  # raised by uvloop for a pipe whose other end the child has closed already
        raise EOFError("the parser has ended") from error


async def _kill(process: ChildProcess) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await process.wait()
