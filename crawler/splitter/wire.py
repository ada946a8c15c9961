"""The wire format between two processes, as pure encode and decode functions.

A frame is

    length (4, big-endian)   of everything that follows; checked against a bound before memory is allocated
    type (1)                 a `Frame`
    payload                  the message in MessagePack, fields in order
    tag (16)                 HMAC-SHA256 of (frame number, type, payload), cut to 16 bytes

The tag of each side's first frame is computed with an empty key, so this tag is only a checksum. After that,
each direction has its own key, which is derived from the shared secret and the challenges of both sides. The
frames of a direction are numbered. So if a frame is repeated, omitted or moved, a tag is wrong.

An *entry* is one numbered piece of an outbox: links in MessagePack after a version byte and a crc32
(`storage.kv.seal`). An entry is stored and sent as the same bytes, so neither end encodes it again, and every
reader can detect damage.

For 100 links of 78 bytes, encoding takes 5 us, decoding takes 18 us, and computing the tag takes 8 us.
Entries are not front-coded; front coding omits the beginning that a URL shares with the URL before it. In
Python, front coding would take ten times as long as this encoding. Front coding would save only what the
store's own compression saves anyway.

Any input from a peer results in a message or in a `ProtocolError`.
"""

import hmac
import zlib
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from crawler.errors import CrawlerError
from crawler.records import UNDECODABLE, Link
from crawler.storage.kv import VALUE_VERSION, seal

PROTOCOL = 10  # the protocol number in the handshake
# The earlier number that is also accepted. A process with this number knows neither `Ask` nor `Fetched`.
WITHOUT_ASKS = 8
TAG_BYTES = 16
LENGTH_BYTES = 4
_SEAL_BYTES = 5  # length of the version and the crc32 at the start of an entry
FRAME_OVERHEAD = 1 + TAG_BYTES  # number of bytes that `length` counts but that are not payload
# maximum size of a frame from a peer that has not yet proved that it knows the secret
HANDSHAKE_BYTES_MAX = 4096


class PeerError(CrawlerError):
    """A fault of a peer or of the network. The connection ends, and the crawl continues."""


class ProtocolError(PeerError):
    """A peer violated the protocol."""


class OversizeError(ProtocolError):
    """The announced length of a frame exceeds the limit."""


class TagError(ProtocolError):
    """The tag of a frame is wrong, because the secrets differ or bytes were changed in transit."""


class NotOwnedError(ProtocolError):
    """A peer sent a link that this process does not own, because the bucket tables differ."""


class Frame(IntEnum):
    """Types of frames, in the order in which they occur on a connection."""

    OPEN = 1  # dialler: protocol and challenge
    CHALLENGE = 2  # listener: a challenge of its own; all later frames are authenticated by a key
    HELLO = 3  # dialler: its identity, and the facts on which both must agree
    WELCOME = 4  # listener: the last of the dialler's entries that is durable at the listener
    REFUSE = 5  # either side: the reason for closing
    ENTRIES = 6  # dialler: entries of its outbox
    ACK = 7  # listener: the number of the last durable entry, and the listener's counters
    RESYNC = 8  # listener: an entry is missing; send the entries after this number again
    HEARTBEAT = 9  # either side: the counters of the sender; also shows that the sender is alive
    ASK = 10  # dialler: make a request to one of the listener's hosts
    FETCHED = 11  # listener: a part of the result of such a request


class Reason(StrEnum):
    """The reasons why a connection is refused or ended."""

    PROTOCOL = "protocol"  # the protocol numbers differ, or a frame was not expected
    SECRET = "secret"  # the shared secrets differ
    CRAWL = "crawl"  # the processes belong to different crawls
    NAME = "name"  # the name is not in the table, or the dialler meant another process
    TABLE = "table"  # the bucket tables differ
    CANONICAL = "canonical"  # the canonical forms of URLs differ
    FINGERPRINT = "fingerprint"  # the seeds or methods of fingerprints differ
    DOUBLE = "double"  # a newer start under this name is known, or another process of this name is connected
    OWNER = "owner"  # the receiver does not own a link
    BEHIND = "behind"  # the peer's store lacks entries that the peer had confirmed
    BUSY = "busy"  # there are too many connections, or more data was sent than the window allows


_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Amount = Annotated[float, Meta(ge=0.0, le=1e300)]
_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_Text = Annotated[str, Meta(max_length=256)]
_Token = Annotated[bytes, Meta(max_length=64)]
_Nonce = Annotated[bytes, Meta(min_length=32, max_length=32)]
Epoch = Annotated[bytes, Meta(min_length=8, max_length=8)]
URL_CHARS_MAX = 8192
REQUEST_FIELDS_MAX = 100  # maximum number of header lines of a request that a peer is asked to make
# Maximum length of the answer to such a request. By default, an answer has a body of 10 MiB and its decoded form
# of 10 MiB.
ANSWER_BYTES_MAX = 64 << 20
ADDRESSES_PER_MESSAGE_MAX = 16
SKETCH_BYTES_MAX = 128
_Sketch = Annotated[bytes, Meta(max_length=SKETCH_BYTES_MAX)]


class PastEnd(IntEnum):
    """The state of an earlier end of the crawl, as a process knows it when it starts."""

    NONE = 0  # no earlier end of the crawl is known
    HOLDS = 1  # the crawl had ended, and this process has done nothing since then
    VOID = 2  # the crawl had ended, but later work or other limits have made it unfinished again


class _Message(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    pass


class Open(_Message, frozen=True):
    """The dialler's first frame. `magic` identifies the protocol, so other clients are rejected immediately."""

    magic: Annotated[bytes, Meta(min_length=8, max_length=8)]
    protocol: _Count
    nonce: _Nonce


class Challenge(_Message, frozen=True):
    """The listener's answer. The keys of all later frames are derived from this nonce and the dialler's."""

    nonce: _Nonce


class Hello(_Message, frozen=True):
    """The dialler's identity, the name of the process that it wants to reach, and the facts on which both must agree.

    `applied` is the number of links from the listener that were ever durable at the dialler, and `applied_in_all`
    is the number of such links from all processes.
    """

    crawl: _Text
    name: _Name
    to: _Name
    boot: _Token
    table_epoch: _Count
    table_digest: _Token
    canonical: _Count
    check: _Token
    outbox_epoch: Epoch
    incarnation: _Count = 0
    applied: _Count = 0
    applied_in_all: _Count = 0


class Welcome(_Message, frozen=True):
    """The listener's consent to receive entries. It tells the dialler where to continue.

    `durable` is the number of the last entry of the dialler's outbox epoch that is durable at the listener,
    or 0. `chain` is the checksum of the entries up to this one (see `chained`). `applied` is the number of
    links from the dialler, in all epochs, that were ever durable at the listener. `incarnation` is the number of
    the listener's start. `applied_in_all` is the number of links from all processes that were ever durable at the
    listener.
    """

    boot: _Token
    durable: _Count
    chain: Annotated[int, Meta(lt=1 << 32)]
    applied: _Count = 0
    incarnation: _Count = 0
    applied_in_all: _Count = 0


class Refuse(_Message, frozen=True):
    """The reason why the connection ends. `text` is for the log.

    If the reason is DOUBLE and no process of the peer's name is connected, `newest` is the number of the
    latest known start of this name. Otherwise, `newest` is 0.
    """

    reason: Reason
    text: _Text = ""
    newest: _Count = 0


class Entries(_Message, frozen=True):
    """Entries with consecutive numbers from `first` on, each in the form in which it is stored."""

    first: _Count
    entries: list[bytes]


class Counters(_Message, frozen=True):
    """The values that a process sends to all others, with every heartbeat and ack.

    `number` counts the messages of this process. `echo` is the number of the last message that the sender of
    these values got from their receiver, and `echo_boot` is the boot id in that message. `outbox` is the
    number of links that are not yet confirmed by their owners. `appended` counts the links that were ever
    appended to the outbox. `applied` counts the links from other processes that this process ever applied.
    `sent_sum` is a weighted sum of the links that their owners confirmed. `applied_sum` is a weighted sum of
    the links that this process applied (`coordination.py`, "The end"). Both sums are 0 in a process that has
    work. `work` is the number of hosts with URLs to fetch. `level`, `weight` and `busy` are values of the
    refresh schedule, which are 0 in a process that has no known pages to refetch. `past_end` tells what the
    process knew, when it started, about an earlier end of the crawl (`PastEnd`). `addresses` maps IP addresses
    to sketches of the domains that the process knows there (`shared_addresses.py`).
    """

    boot: _Token
    number: _Count
    echo: _Count = 0
    echo_boot: _Token = b""
    idle: bool = False
    ended: bool = False
    outbox: _Count = 0
    appended: _Count = 0
    applied: _Count = 0
    sent_sum: _Count = 0
    applied_sum: _Count = 0
    pages: _Count = 0
    bytes: _Count = 0
    in_flight: _Count = 0
    work: _Count = 0
    level: _Amount = 0.0
    weight: _Amount = 0.0
    busy: bool = False
    past_end: PastEnd = PastEnd.NONE
    addresses: Annotated[dict[_Name, _Sketch], Meta(max_length=ADDRESSES_PER_MESSAGE_MAX)] = {}


class Ack(_Message, frozen=True):
    """Reports that all entries up to `durable` are durable at their owner."""

    durable: _Count
    counters: Counters


class Resync(_Message, frozen=True):
    """Reports that the listener has accepted entries up to `accepted` and expects the next one."""

    accepted: _Count


class Heartbeat(_Message, frozen=True):
    """Is sent when nothing else was sent for a while."""

    counters: Counters


class AskedRequest(_Message, frozen=True):
    """A request that the owner of its host makes, for itself or for a peer. The owner follows no redirect.

    `obeys_robots` says whether the owner requests the URL only if robots.txt allows it. `credentials` says whether
    the request may contain the credentials and headers that are configured for the URL. `cookies` is the Cookie
    header; None stands for the cookies of the owner's crawl. The limits are those of a `FetchRequest`. `patience` is
    the number of seconds that the owner waits at most until its host may be requested.
    """

    url: Annotated[str, Meta(max_length=URL_CHARS_MAX)]
    method: Annotated[str, Meta(max_length=16)] = "GET"
    headers: Annotated[tuple[str, ...], Meta(max_length=REQUEST_FIELDS_MAX)] = ()
    body: bytes = b""
    cookies: str | None = None
    credentials: bool = True
    obeys_robots: bool = True
    tls: Annotated[str, Meta(max_length=16)] = ""
    proxy: str = ""
    body_bytes_max: _Count | None = None
    wire_bytes_max: _Count | None = None
    total_timeout: _Amount | None = None
    patience: _Amount = 0.0


class Ask(_Message, frozen=True):
    """Asks the listener to make a request to one of its hosts. `number` identifies the answer."""

    number: _Count
    request: AskedRequest


class Fetched(_Message, frozen=True):
    """A part of the result of a request for a peer. All parts together are an encoded `Fetch` (`asked_fetches.py`).

    They are b"" if there is no result.
    """

    number: _Count
    part: bytes
    last: bool


MAGIC = b"crawler\x01"
Message = Open | Challenge | Hello | Welcome | Refuse | Entries | Ack | Resync | Heartbeat | Ask | Fetched
_KINDS: dict[Frame, type] = {
    Frame.OPEN: Open,
    Frame.CHALLENGE: Challenge,
    Frame.HELLO: Hello,
    Frame.WELCOME: Welcome,
    Frame.REFUSE: Refuse,
    Frame.ENTRIES: Entries,
    Frame.ACK: Ack,
    Frame.RESYNC: Resync,
    Frame.HEARTBEAT: Heartbeat,
    Frame.ASK: Ask,
    Frame.FETCHED: Fetched,
}
_FRAMES = {kind: frame for frame, kind in _KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[int, msgspec.msgpack.Decoder] = {
    int(frame): msgspec.msgpack.Decoder(kind) for frame, kind in _KINDS.items()
}
_LINKS_DECODER = msgspec.msgpack.Decoder(list[Link])


class Tagger:
    """Computes the tags of one direction: an HMAC-SHA256 of a frame's number and content with the direction's key."""

    __slots__ = ("_keyed", "_number")

    def __init__(self, key: bytes = b"") -> None:
        self.rekey(key)
        self._number = 0

    def rekey(self, key: bytes) -> None:
        """Continue with another key. The numbering of frames is not restarted."""
        self._keyed = hmac.new(key, digestmod="sha256")

    def tag(self, content: bytes | memoryview) -> bytes:
        """Return the tag of the next frame. `content` is the frame's type and payload."""
        keyed = self._keyed.copy()
        keyed.update(self._number.to_bytes(8, "big"))
        keyed.update(content)
        self._number += 1
        return keyed.digest()[:TAG_BYTES]


def encode_frame(message: Message, tagger: Tagger) -> bytes:
    """Return `message` as the next frame in the direction to which `tagger` belongs."""
    content = bytes([_FRAMES[type(message)]]) + _ENCODER.encode(message)
    length = len(content) + TAG_BYTES
    return length.to_bytes(LENGTH_BYTES, "big") + content + tagger.tag(content)


class FrameReader:
    """Splits a stream of bytes into messages. The bytes may arrive in pieces of any size.

    After each `feed`, call `next_message` until it returns None. After that, at most one incomplete frame
    remains. So memory is bounded by `bytes_max` plus the bytes of one read.
    """

    __slots__ = ("_buffer", "_start", "bytes_max", "tagger")

    def __init__(self, bytes_max: int = HANDSHAKE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.tagger = Tagger()
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_message(self) -> Message | None:
        """Return the next complete message, or None if more bytes are needed.

        Raises:
            OversizeError: the announced length of the frame exceeds `bytes_max`.
            TagError: the tag of the frame is wrong.
            ProtocolError: the type of the frame is unknown, or its payload is not a message of that type.
        """
        held = len(self._buffer) - self._start
        if held < LENGTH_BYTES:
            return None
        content_start = self._start + LENGTH_BYTES
        length = int.from_bytes(self._buffer[self._start : content_start], "big")
        if not FRAME_OVERHEAD <= length <= self.bytes_max:
            raise OversizeError(f"splitter: a frame of {length} bytes exceeds the limit of {self.bytes_max}")
        if held < LENGTH_BYTES + length:
            return None
        self._start = content_start + length
        return self._open(bytes(memoryview(self._buffer)[content_start : self._start]))

    def _open(self, frame: bytes) -> Message:
        content, tag = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
        if not hmac.compare_digest(self.tagger.tag(content), tag):
            raise TagError("splitter: a frame with a wrong tag: the secrets differ or bytes were changed")
        decoder = _DECODERS.get(content[0])
        if decoder is None:
            raise ProtocolError(f"splitter: a frame of unknown type {content[0]}")
        try:
            return decoder.decode(content[1:])
        except UNDECODABLE as error:
            raise ProtocolError(f"splitter: {Frame(content[0]).name} cannot be read: {error}") from error

    def __len__(self) -> int:
        return len(self._buffer) - self._start

    def __repr__(self) -> str:
        return f"FrameReader({len(self)} of at most {self.bytes_max} bytes held)"


def encode_entries(links: Sequence[Link], bytes_max: int) -> list[tuple[bytes, int]]:
    """Encode `links` in order, and return pairs (entry, number of links in the entry).

    An entry has at most `bytes_max` bytes, or more if it holds a single link.
    """
    if not links:
        return []
    entry = seal(_ENCODER.encode(links))
    if len(entry) <= bytes_max or len(links) == 1:
        return [(entry, len(links))]
    # an eighth of each entry is left free, because links differ in length
    pieces = -(-len(entry) * 9 // (bytes_max * 8))
    step = max(1, len(links) // max(2, pieces))
    return [
        piece
        for start in range(0, len(links), step)
        for piece in encode_entries(links[start : start + step], bytes_max)
    ]


def chained(chain: int, entry: bytes) -> int:
    """Return the checksum of an epoch's entries up to `entry`. `chain` is the checksum of the earlier entries, or 0.

    If two queues have different checksums at the same epoch and number, one of them was continued from a copy
    or an older state of the store. That queue then has other entries under the same numbers.
    """
    return zlib.crc32(entry[:_SEAL_BYTES], chain)


def decode_entry(entry: bytes) -> list[Link]:
    """Return the links of an entry.

    Raises:
        ProtocolError: the entry is damaged, of another version, or contains an invalid link.
    """
    payload = entry[_SEAL_BYTES:]
    if (
        len(entry) < 6
        or entry[0] != VALUE_VERSION
        or zlib.crc32(payload) != int.from_bytes(entry[1:5], "little")
    ):
        raise ProtocolError("splitter: an entry fails its checksum or is of another version")
    try:
        return _LINKS_DECODER.decode(payload)
    except UNDECODABLE as error:
        raise ProtocolError(f"splitter: an entry cannot be read: {error}") from error


def link_count(entry: bytes) -> int:
    """Return the number of links in an entry. Only the first bytes of the entry are read."""
    kind = entry[5]
    if kind & 0xF0 == 0x90:
        return kind & 0x0F
    return int.from_bytes(entry[6:8] if kind == 0xDC else entry[6:10], "big")
