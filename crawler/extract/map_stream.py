"""Reads a sitemap while it arrives: the pieces are sent to the child process, which parses them during the download.

    parent  MapStream: holds the first pieces, then sends pieces as the child's input has room; the body itself goes
            to disk (`fetcher/file_body.py`), from where a child that fell behind or died gets it again
    child   MapReaders: one reader per map; CPU time is limited over all pieces of a map

Neither process holds a map in one piece, encoded or decoded. Sending a whole map of 50 MiB to the child as
one message would block the event loop for 190 ms and need four copies in memory. The child sends one answer
per map, after the last piece. If the child dies, the map is read again from its start.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from crawler.config import ByteCount, SitemapsConfig
from crawler.extract.documents import Document, found_in_map
from crawler.extract.sitemap import SitemapReader
from crawler.records import Extracted

# Maximum number of maps that a child reads while they arrive. Each needs up to 10 MB. Further maps are sent
# to the child when they are complete.
STREAMS_MAX = 4
PIECE_BYTES = 64 << 10
# Maximum number of bytes of a map that wait for the child; the fetcher holds these bytes, too.
_WAITING_BYTES_MAX = 256 << 10


class MapPiece(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A piece of the map number `stream`. The `last` piece may be empty. `document` says how to read the map."""

    stream: int
    content: bytes
    document: Document
    last: bool = False
    dropped: bool = False  # True if the result is no longer wanted


class MapReaders:
    """The child's side: the maps being read, and the seconds of CPU that each has left."""

    def __init__(self, cpu_seconds_max: float) -> None:
        self._cpu_seconds_max = cpu_seconds_max
        self._open: dict[int, tuple[SitemapReader, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, piece: MapPiece) -> Extracted | None:
        """Read a piece. After the last piece, return the contents of the map."""
        if piece.dropped:
            self._open.pop(piece.stream, None)
            return None
        opened = self._open.pop(piece.stream, None)
        reader, left = opened or (SitemapReader(_limits(piece.document)), self._cpu_seconds_max)
        signal.setitimer(signal.ITIMER_PROF, left)
        reader.feed(piece.content)
        found = found_in_map(reader.close(), piece.document) if piece.last else None
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        if found is None:
            self._open[piece.stream] = reader, left
        return found


def _limits(document: Document) -> SitemapsConfig:
    return SitemapsConfig(
        bytes_max=ByteCount(document.bytes_max), urls_max=document.urls_max, maps_max=document.maps_max
    )


class MapStream:
    """The parent's side: the pieces of a map that are not yet sent, and the number of bytes sent.

    If the child's input has room, `send(piece)` gives a piece to the child and returns True. If `late` is
    set, nothing is sent until the map is complete.
    """

    def __init__(
        self,
        number: int,
        document: Document,
        send: Callable[[MapPiece], bool],
        least: int,
        *,
        late: bool = False,
    ) -> None:
        self.number = number
        self.sent = 0  # bytes
        self._document = document
        self._send = send
        self._least = least
        self._is_late = late
        self._waiting: deque[bytes] = deque()
        self.restart()

    def restart(self) -> None:
        """Discard all bytes that were fed before, because another answer begins."""
        self.nbytes = 0
        self._waiting.clear()
        self._is_stale = self.sent > 0  # the child has bytes of an earlier answer
        self._is_behind = self._is_late or self._is_stale

    def feed(self, content: bytes) -> None:
        """Add the next bytes of the map, and send them to the child once the map is longer than `least` bytes.

        If the child falls too far behind, the remaining bytes are sent to it when the map is complete.
        """
        self.nbytes += len(content)
        if self._is_behind:
            return
        self._waiting.append(content)
        if self.nbytes <= self._least:
            return
        while self._waiting and self._send(MapPiece(self.number, self._waiting[0], self._document)):
            self.sent += len(self._waiting.popleft())
        if self.nbytes - self.sent > self._least + _WAITING_BYTES_MAX:
            self._is_behind = True
            self._waiting.clear()

    def rest(self, content: Iterable[bytes], *, again: bool) -> Iterator[MapPiece]:
        """Yield the pieces of `content` not sent yet, or all if `again` is set; then yield an empty last piece."""
        if self._is_stale:
            yield self.dropped()
        if again or self._is_behind:
            content = _after(content, 0 if again or self._is_stale else self.sent)
        else:
            content = self._waiting
        for each in content:
            for at in range(0, len(each), PIECE_BYTES):
                yield MapPiece(self.number, each[at : at + PIECE_BYTES], self._document)
        yield MapPiece(self.number, b"", self._document, last=True)

    def dropped(self) -> MapPiece:
        """Return the piece that tells the child to drop the map."""
        return MapPiece(self.number, b"", self._document, dropped=True)


def _after(pieces: Iterable[bytes], skipped: int) -> Iterator[bytes]:
    """Yield the bytes of `pieces` that follow the first `skipped` bytes."""
    for piece in pieces:
        if rest := piece[skipped:]:
            yield rest
        skipped = max(0, skipped - len(piece))
