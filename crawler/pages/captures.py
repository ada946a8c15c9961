"""Nouns of the page cache, and how they stand in the store.

    u/<fp>          PageRecord     the URL's state after its last try
    c/<fp><ms>      Capture        where an answer lies; one a stored answer
    g/<sha1>        c/ key         the response that holds these payload bytes
    w/<segment>     length         how far the segment counts

Fingerprints, times (milliseconds) and lengths are 8 bytes, big-endian. Values
are sealed; records and captures are msgpack arrays inside.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from crawler.errors import DamageError
from crawler.pages import reading
from crawler.records import BUSY_STATUSES, Capture, Fetch, FetchTask, Outcome, PageRecord
from crawler.storage import keys
from crawler.storage.kv import seal, unseal
from crawler.urls.media_type import media_type

EMPTY_DIGEST = hashlib.sha1(b"").digest()
UNSPECIFIED = "unspecified"  # WARC-Truncated of a payload that is not there for an error of ours
_NO_COPY = BUSY_STATUSES | {206, 408, 416, 425}
_UNANSWERED = frozenset(
    {Outcome.BAD_STATUS, Outcome.HEADER_TOO_LARGE, Outcome.FRAMING, Outcome.ROBOTS_DENIED}
)

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(PageRecord).decode
_decode_capture = msgspec.msgpack.Decoder(Capture).decode


def record_key(fingerprint: int) -> bytes:
    return keys.PAGE + fingerprint.to_bytes(8, "big")


def capture_key(fingerprint: int, instant: float) -> bytes:
    return keys.CAPTURE + fingerprint.to_bytes(8, "big") + int(instant * 1000).to_bytes(8, "big")


def payload_key(digest: bytes) -> bytes:
    return keys.PAYLOAD + digest


def segment_key(segment: str) -> bytes:
    return keys.SEGMENT + segment.encode()


def pack(value: PageRecord | Capture) -> bytes:
    """The store's value of a record or capture."""
    return seal(_encode(value))


def unpack_record(key: bytes, value: bytes) -> PageRecord:
    """What `pack` was given.

    Raises:
        DamageError: the value is not what was written.
    """
    return _unpack(_decode_record, key, value)


def unpack_capture(key: bytes, value: bytes) -> Capture:
    """What `pack` was given.

    Raises:
        DamageError: the value is not what was written.
    """
    return _unpack(_decode_capture, key, value)


_T = TypeVar("_T")


def _unpack(decode: Callable[[bytes], _T], key: bytes, value: bytes) -> _T:
    try:
        return decode(unseal(key, value))
    except msgspec.MsgspecError as error:
        raise DamageError(f"store: value of key {key!r}: {error}") from error


class Original(msgspec.Struct, frozen=True, gc=False):
    """The response that holds some payload: its `c/` key, URL and instant."""

    key: bytes
    url: str
    fetched_at: float


class Capturing(msgspec.Struct, gc=False):
    """An answer on its way into the archive.

    `record` is the URL's new record, None for an answer that is no page
    (robots.txt); until `write` it may be changed. `stored` says whether WARC
    records are written, `profile` which revisit it is ("" = a response).
    `unchanged` tells that the page shows the content already known, `digest`
    its content digest (16 bytes), `directives` the page-level robots directives
    that count here. `capture` is filled by `write`. `new_record` and
    `new_capture` tell that the store will have one key more of that kind.
    """

    fetch: Fetch
    fetch_task: FetchTask
    fingerprint: int
    key: bytes
    instant: float
    stored: bool
    payload: bytes
    payload_digest: bytes
    digest: bytes
    profile: str = ""
    original: Original | None = None
    record: PageRecord | None = None
    unchanged: bool = False
    noarchive: bool = False
    directives: str = ""
    capture: Capture | None = None
    new_record: bool = False
    new_capture: bool = False

    def make_bare(self) -> None:
        """Leave URL, status and times: a response without fields or payload, which cannot fail to be built."""
        self.fetch = msgspec.structs.replace(
            self.fetch,
            version="HTTP/1.1",
            reason="",
            headers=(),
            body=b"",
            content=b"",
            request_head=b"",
            truncated=UNSPECIFIED,
        )
        self.payload, self.payload_digest = b"", EMPTY_DIGEST
        self.profile, self.original, self.directives = "", None, ""


class StoredPage(msgspec.Struct):
    """A capture read back: what the server sent, of a revisit together with the payload it repeats."""

    capture: Capture
    status: int
    reason: str
    version: str
    headers: tuple[tuple[bytes, bytes], ...]
    payload: bytes

    @property
    def content(self) -> bytes:
        """The payload without content coding."""
        codings = self.header(b"content-encoding")
        return reading.decode_payload(self.payload, codings)

    @property
    def header_charset(self) -> str:
        """The charset that the Content-Type names, as the fetcher read it; "" if it names none."""
        values = [value for field, value in self.headers if field.lower() == b"content-type"]
        return media_type(values)[1]

    def header(self, name: bytes) -> bytes:
        """The first value of the field `name` (lower case), b"" if there is none."""
        return next((value for field, value in self.headers if field.lower() == name), b"")


class Lost(msgspec.Struct, frozen=True):
    """A capture whose bytes are gone."""

    fingerprint: int
    key: bytes
    capture: Capture


class Problem(msgspec.Struct, frozen=True):
    """Something `check` found: where, and what is wrong."""

    where: str
    message: str


def is_answer(fetch: Fetch) -> bool:
    """Whether a server's answer came that a WARC record can hold."""
    return 100 <= fetch.status <= 999 and fetch.outcome not in _UNANSWERED


def is_copy(capture: Capture) -> bool:
    """Return whether a capture shows the page as it was.

    It does not if it is a temporary failure (408, 425, 429, 5xx), a part that
    was not asked for (206, 416, a 304 that confirms nothing), or an answer that
    broke off.
    """
    if capture.status >= 500 or capture.status in _NO_COPY or capture.broken:
        return False
    return capture.status != 304 or capture.kind == "revisit"


def newest_of(newest_first: Iterable[Capture]) -> Capture | None:
    """Return the first capture that is a copy of the page, or the first one if there is none."""
    newest = None
    for capture in newest_first:
        if is_copy(capture):
            return capture
        newest = newest or capture
    return newest


def end_of(capture: Capture) -> int:
    """Where the last record of the capture ends in its segment."""
    return capture.offset + max(capture.length, capture.extent)
