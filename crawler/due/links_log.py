"""The links log: a log on disk that holds the links waiting for the next flush.

The DUE sees one endless stream of blocks; a *position* is a byte offset in that stream.
On disk, the stream is a sequence of files. Each file is named by the position of its
first byte and is unlinked once all its links are flushed.

    0000000000000000.log   | block | block | block |
    0000000001000123.log                            | block | block |  <- append
                                       ^ flushed         ^ committed

    block    4 bytes length of the payload, 4 bytes CRC-32 of it, payload: links as MessagePack arrays

Each `append` writes one or more blocks. The store holds the committed end of the log (`d/links`) and the
flushed position (`d/flushed`). The committed end and the flushed position are block boundaries. After a
crash, everything beyond the committed end is cut off.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crawler.due.runs import Reached
from crawler.errors import DamageError, StoreError
from crawler.records import Link
from crawler.storage.files import sync_directory, write_all

BLOCK_LINKS_MAX = 1024
_BUFFER_BYTES = 1 << 20  # the buffer is written to the file once it holds this many bytes
_HEADER = struct.Struct("<II")
_NAME_DIGITS = 16
_NAME = re.compile(rf"[0-9a-f]{{{_NAME_DIGITS}}}\.log")


class LinksLog:
    """Appends blocks of links, reads them back, and removes flushed files.

    `append`, `write_out` and `sync` must be called by one thread at a time. `read` and `drop_before` may run
    in other threads.

    Args:
        begin, end: positions between which the log must be complete.
        file_bytes_max: when a file has reached this size, a new file is begun.

    Raises:
        DamageError: a part of the log between `begin` and `end` is missing.
    """

    def __init__(
        self, directory: Path, *, begin: int, end: int, file_bytes_max: int, fault: Reached = lambda _: None
    ) -> None:
        self._directory = directory
        self._file_bytes_max = file_bytes_max
        self._fault = fault
        self._encoder = msgspec.msgpack.Encoder()
        # Most links are never decoded, because their URLs are known.
        self._block_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
        self._link_decoder = msgspec.msgpack.Decoder(Link)
        self._buffer = bytearray()
        self._descriptor = -1
        self._unsynced = False
        self._starts = self._open(begin, end)
        self.end = end  # position after the last appended byte

    def _open(self, begin: int, end: int) -> list[int]:
        """Cut the log to the range from `begin` to `end`, and return the start position of each file.

        Raises a DamageError if any part of the log between these positions is missing.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        names = filter(_NAME.fullmatch, os.listdir(self._directory))
        starts = sorted(int(name.removesuffix(".log"), 16) for name in names)
        kept = []
        for start, following in zip(starts, [*starts[1:], None], strict=False):
            if start >= end or (following is not None and following <= begin):
                self._path(start).unlink()
            else:
                kept.append(start)
        at = min(begin, kept[0]) if kept else begin
        for start in kept:
            at = start + self._cut(start, end) if start == at else at
        if begin < end and at < end:
            raise DamageError(f"{self._path(at)}: a file of links that wait for the DUE is missing")
        return kept

    def _cut(self, start: int, end: int) -> int:
        """Truncate a file at position `end`; return its length."""
        path = self._path(start)
        length = path.stat().st_size
        if start + length > end:
            os.truncate(path, end - start)
        return min(length, end - start)

    def _path(self, start: int) -> Path:
        return self._directory / f"{start:0{_NAME_DIGITS}x}.log"

    def append(self, links: Sequence[Link]) -> Iterator[tuple[Sequence[Link], int]]:
        """Append `links` in blocks. For each block, yield its links and the position of its end."""
        for start in range(0, len(links), BLOCK_LINKS_MAX):
            block = links[start : start + BLOCK_LINKS_MAX]
            payload = self._encoder.encode(block)
            self._buffer += _HEADER.pack(len(payload), zlib.crc32(payload))
            self._buffer += payload
            self.end += _HEADER.size + len(payload)
            if len(self._buffer) >= _BUFFER_BYTES:
                self.write_out()
            yield block, self.end

    def write_out(self) -> None:
        """Write the buffered links to the file, without syncing it.

        Raises:
            StoreError: the disk is full or failing; the appended links are lost, and the process must end.
        """
        if not self._buffer:
            return
        try:
            if self._descriptor < 0 or self.end - self._starts[-1] > self._file_bytes_max:
                self._begin_file(self.end - len(self._buffer))
            write_all(self._descriptor, self._buffer)
        except OSError as error:
            raise StoreError(f"{self._directory}: links cannot be written: {error.strerror}") from error
        self._buffer.clear()
        self._unsynced = True
        self._fault("links written")

    def _begin_file(self, start: int) -> None:
        """Begin a new file, and make its directory entry durable."""
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = os.open(
            self._path(start), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
        )
        sync_directory(self._directory)
        self._starts.append(start)
        self._fault("links file begun")

    def sync(self) -> None:
        """Make all appended links durable.

        Raises:
            StoreError: the disk is full or failing.
        """
        self.write_out()
        if not self._unsynced:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise StoreError(f"{self._directory}: links cannot be synced: {error.strerror}") from error
        self._unsynced = False
        self._fault("links synced")

    def read(
        self, begin: int, end: int, places: Sequence[int], links_max: int
    ) -> tuple[list[Link], int, int]:
        """Return the links at `places`, as (links, passed, position). May run in any thread.

        `position` is the position at which the search ended, and `passed` is the number of links from `begin`
        to there.

        Args:
            places: indices of the links to return, ascending; 0 is the first link after `begin`.
            links_max: stop after the block that reaches this many links.

        Raises:
            DamageError: a block is damaged.
        """
        found: list[Link] = []
        passed = 0
        for links, position in self._blocks(begin, end):
            stop = passed + len(links)
            while len(found) < len(places) and places[len(found)] < stop:
                found.append(self._decode_link(links[places[len(found)] - passed]))
            passed = stop
            if links_max <= len(found) < len(places):
                return found, passed, position
        return found, passed, end

    def fingerprints(self, begin: int, end: int) -> Iterator[tuple[list[int], int]]:
        """Yield, for each block between two positions, its fingerprints and the position of its end.

        Any thread may call this.

        Raises:
            DamageError: a block is damaged.
        """
        for links, position in self._blocks(begin, end):
            yield [self._decode_link(link).fingerprint for link in links], position

    def _blocks(self, begin: int, end: int) -> Iterator[tuple[list[msgspec.Raw], int]]:
        """Yield, for each block, its links, still encoded, and the position of its end."""
        starts = list(self._starts)
        for start, following in zip(starts, [*starts[1:], end], strict=False):
            if begin < following and start < end:
                yield from self._read_file(start, max(begin, start), min(end, following))

    def _read_file(self, start: int, begin: int, end: int) -> Iterator[tuple[list[msgspec.Raw], int]]:
        path = self._path(start)
        try:
            with path.open("rb") as file:
                file.seek(begin - start)
                while begin < end:
                    length, crc = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size))
                    payload = file.read(length) if length <= end - begin - _HEADER.size else b""
                    begin += _HEADER.size + length
                    yield self._decode_block(path, payload, crc), begin
        except OSError as error:
            raise DamageError(f"{path}: cannot be read: {error.strerror}") from error

    def _decode_block(self, path: Path, payload: bytes, crc: int) -> list[msgspec.Raw]:
        if zlib.crc32(payload) != crc or not payload:
            raise DamageError(f"{path}: a block of links fails its checksum")
        try:
            return self._block_decoder.decode(payload)
        except msgspec.MsgspecError as error:
            raise DamageError(f"{path}: a block of links cannot be read: {error}") from error

    def _decode_link(self, encoded: msgspec.Raw) -> Link:
        try:
            return self._link_decoder.decode(encoded)
        except msgspec.MsgspecError as error:
            raise DamageError(f"{self._directory}: a link cannot be read: {error}") from error

    def drop_before(self, position: int) -> None:
        """Unlink all files that end at or before `position`, except the file being appended to."""
        while len(self._starts) > 1 and self._starts[1] <= position:
            self._path(self._starts.pop(0)).unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def salvage(directory: Path) -> Iterator[Link]:
    """Yield the links of all blocks, including flushed ones. The rest of a file after a damaged block is skipped."""
    decode = msgspec.msgpack.Decoder(list[Link]).decode
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at + _HEADER.size <= len(data):
            length, crc = _HEADER.unpack_from(data, at)
            payload = data[at + _HEADER.size : at + _HEADER.size + length]
            if len(payload) != length or zlib.crc32(payload) != crc:
                break
            with suppress(msgspec.MsgspecError):
                yield from decode(payload)
            at += _HEADER.size + length
