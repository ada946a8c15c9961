"""Defines the types of the values in the page cache's store, and their encoding.

Fingerprints, times (milliseconds) and lengths are 8 bytes, big-endian. Values are sealed, which means that
they have a checksum. Records and captures are encoded as msgpack arrays.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from crawler.pages import reading
from crawler.pages.withdrawals import Erased
from crawler.records import BUSY_STATUSES, Capture, Fetch, FetchTask, Outcome, PageRecord, ReceiptStamp
from crawler.storage import keys
from crawler.storage.kv import seal, unpacker
from crawler.urls.media_type import media_type

EMPTY_DIGEST = hashlib.sha1(b"").digest()
# the value of WARC-Truncated if the payload is missing because of an error of the crawler
UNSPECIFIED = "unspecified"
_NO_COPY = BUSY_STATUSES | {206, 408, 416, 425}
_UNANSWERED = frozenset(
    {
        Outcome.BAD_STATUS,
        Outcome.HEADER_TOO_LARGE,
        Outcome.FRAMING,
        Outcome.NOT_RENDERED,
        Outcome.ROBOTS_DENIED,
        Outcome.WITHDRAWN,
    }
)

# Header fields that describe the body of an answer, and so do not apply to a DOM that replaces the body.
_OF_THE_BODY = frozenset(
    {b"content-type", b"content-encoding", b"content-length", b"etag", b"last-modified", b"digest"}
)

_encode = msgspec.msgpack.Encoder().encode
# These functions decode a value that `pack` encoded.
unpack_record = unpacker(PageRecord)
unpack_capture = unpacker(Capture)
unpack_tombstone = unpacker(Erased)


def record_key(fingerprint: int) -> bytes:
    return keys.PAGE + fingerprint.to_bytes(8, "big")


def capture_key(fingerprint: int, instant: float) -> bytes:
    return keys.CAPTURE + fingerprint.to_bytes(8, "big") + int(instant * 1000).to_bytes(8, "big")


def tombstone_key(fingerprint: int) -> bytes:
    return keys.TOMBSTONE + fingerprint.to_bytes(8, "big")


def asks_no_archive(record: PageRecord | None, capture: Capture | None) -> bool:
    """Return whether the page's author asks, in the copy or in the latest answer, that the copy is not shown."""
    return (record is not None and record.noarchive) or (capture is not None and capture.noarchive)


def fingerprint_of(key: bytes) -> int:
    """Return the fingerprint in a `c/` key."""
    return int.from_bytes(key[2:10], "big")


def payload_key(digest: bytes) -> bytes:
    return keys.PAYLOAD + digest


def segment_key(segment: str) -> bytes:
    return keys.SEGMENT + segment.encode()


def pack(value: PageRecord | Capture | Erased) -> bytes:
    """Encode a record, a capture or a tombstone as a value of the store."""
    return seal(_encode(value))


class Original(msgspec.Struct, frozen=True, gc=False):
    """The response that holds a payload: its `c/` key, URL and time."""

    key: bytes
    url: str
    fetched_at: float


class Capturing(msgspec.Struct, gc=False):
    """An answer that is being added to the archive.

    `record` is the URL's new record, which may be changed until `write` is called. `record` is None for an
    answer that is not a page (robots.txt). `stored` is True if WARC records are written. `profile` is the
    WARC profile of a revisit, or "" for a response. `unchanged` is True if the page shows the content that is
    already known. `new_form` is True if the page cannot be compared with the stored copy, because a browser
    rendered only one of them. `returned` is True if the page shows the content that it had before its last change.
    `digest` is the content digest of the page (16 bytes), and `directives` are the
    robots directives that apply to the page. `write` sets `capture`. `new_record` and `new_capture` are True
    if the record, or the capture, adds a new key to the store. `stamp` is the consent receipt of the answer.
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
    new_form: bool = False
    returned: bool = False
    noarchive: bool = False
    directives: str = ""
    capture: Capture | None = None
    new_record: bool = False
    new_capture: bool = False
    stamp: ReceiptStamp | None = None

    @property
    def payload_bytes(self) -> int:
        """The length in bytes of the payload, which is in memory or in a file (`storage/parts.py`)."""
        return len(self.payload) if self.fetch.part is None else self.fetch.part.length

    def make_bare(self) -> None:
        """Reduce the capture to its URL, status and times, from which a response record can always be built."""
        self.fetch = msgspec.structs.replace(
            self.fetch,
            version="HTTP/1.1",
            reason="",
            headers=(),
            head_block=b"",
            body=b"",
            content=b"",
            request_head=b"",
            request_body=b"",
            truncated=UNSPECIFIED,
            rendering=None,
            part=None,
        )
        self.payload, self.payload_digest = b"", EMPTY_DIGEST
        self.profile, self.original, self.directives = "", None, ""


class StoredPage(msgspec.Struct):
    """The server's answer, read from the archive. For a revisit, the payload is the one that the revisit repeats.

    If a browser showed the page, `rendered` is True and the payload is the DOM, unless the caller asked for
    the server's answer.
    """

    capture: Capture
    status: int
    reason: str
    version: str
    headers: tuple[tuple[bytes, bytes], ...]
    payload: bytes
    rendered: bool = False

    @property
    def content(self) -> bytes:
        """The payload without its content coding, as the fetcher decoded it; b"" if the coding is not known."""
        return reading.content_of(self.payload, self.headers)

    @property
    def header_charset(self) -> str:
        """The charset in the Content-Type, parsed as in the fetcher; "" if there is none."""
        values = [value for field, value in self.headers if field.lower() == b"content-type"]
        return media_type(values)[1]

    def header(self, name: bytes) -> bytes:
        """Return the first value of the field `name` (in lower case), or b"" if there is none."""
        return next((value for field, value in self.headers if field.lower() == name), b"")


class Lost(msgspec.Struct, frozen=True):
    """A capture whose bytes are lost."""

    fingerprint: int
    key: bytes
    capture: Capture


class Problem(msgspec.Struct, frozen=True):
    """A problem that `check` found: its place and a description."""

    where: str
    message: str


def shown_fields(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header fields of an answer whose body is replaced by the DOM that a browser showed."""
    kept = [field for field in headers if field[0].lower() not in _OF_THE_BODY]
    return (*kept, (b"Content-Type", b"text/html; charset=utf-8"))


def static_form(capture: Capture) -> Capture:
    """Return the capture with the server's answer in place of the DOM that a browser showed."""
    return msgspec.structs.replace(capture, dom_offset=0, dom_length=0) if capture.dom_length else capture


def is_answer(fetch: Fetch) -> bool:
    """Return whether the server sent an answer that shows the page and fits into a WARC record."""
    return 100 <= fetch.status <= 999 and fetch.outcome not in _UNANSWERED


def is_copy(capture: Capture) -> bool:
    """Return whether a capture shows the page as it was at the time of the fetch.

    A capture does not show the page if it is a temporary failure (408, 425, 429, 5xx), a partial
    answer that was not requested (206, 416, a 304 that confirms nothing), or an
    answer that was cut off.
    """
    if capture.status >= 500 or capture.status in _NO_COPY or capture.broken:
        return False
    return capture.status != 304 or capture.kind == "revisit"


def newest_of(newest_first: Iterable[Capture]) -> Capture | None:
    """Return the first capture that is a copy of the page, or the first capture if none is a copy."""
    newest = None
    for capture in newest_first:
        if is_copy(capture):
            return capture
        newest = newest or capture
    return newest


def end_of(capture: Capture) -> int:
    """Return the offset in the segment at which the last record of the capture ends."""
    return capture.offset + max(capture.length, capture.extent)
