"""A sitemap read while it arrives: its pieces go to the child, which parses them beside the download.

    parent  MapStream: pieces wait until they are worth a child, then go as its input has room
    child   MapReaders: one reader a map; CPU is limited over all pieces of it

Neither side holds a map, or its decoded form, in one piece: 50 MiB in one frame take 190 ms
of the loop and four copies in memory. Pieces need no answer; the last one is answered
like a page. A map whose child died is read again from its start.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from crawler.config import ByteCount, SitemapsConfig
from crawler.extract.documents import Document, found_in_map
from crawler.extract.sitemap import SitemapReader
from crawler.records import Extracted

STREAMS_MAX = 8  # maps that a child reads at once, at up to 10 MB each; others are sent once they are whole
PIECE_BYTES = 64 << 10


class MapPiece(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A part of map number `stream`; of the `last` one `content` may be empty. `document` says how to read it."""

    stream: int
    content: bytes
    document: Document
    last: bool = False
    dropped: bool = False  # nobody wants to know what the map holds


class MapReaders:
    """The child's side: the maps it reads, and the seconds of CPU that each has left."""

    def __init__(self, cpu_seconds_max: float) -> None:
        self._cpu_seconds_max = cpu_seconds_max
        self._open: dict[int, tuple[SitemapReader, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, piece: MapPiece) -> Extracted | None:
        """Read a piece; what the map holds behind its last one."""
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
    """The parent's side: what came of a map, and how much of it `send` has taken.

    `send(piece)` hands a piece to the child if that has room, and says whether it did.
    """

    def __init__(self, number: int, document: Document, send: Callable[[MapPiece], bool], least: int) -> None:
        self.number = number
        self.nbytes = 0
        self.sent = 0  # bytes
        self._document = document
        self._send = send
        self._least = least
        self._waiting: deque[bytes] = deque()

    def feed(self, content: bytes) -> None:
        """Take the next bytes of the map; behind the first `least` they go to the child."""
        self.nbytes += len(content)
        self._waiting.append(content)
        if self.nbytes <= self._least:
            return
        while self._waiting and self._send(MapPiece(self.number, self._waiting[0], self._document)):
            self.sent += len(self._waiting.popleft())

    def rest(self, content: bytes, *, again: bool) -> Iterator[MapPiece]:
        """Pieces of the whole `content` that the child has not got, or all (`again`), with the last one."""
        begin = 0 if again else self.sent
        for at in range(begin, len(content), PIECE_BYTES):
            yield MapPiece(self.number, content[at : at + PIECE_BYTES], self._document)
        yield MapPiece(self.number, b"", self._document, last=True)

    def dropped(self) -> MapPiece:
        """What lets the child forget the map."""
        return MapPiece(self.number, b"", self._document, dropped=True)
