"""Builds WARC/1.1 records (ISO 28500:2017; `pages/README.md`, "WARC").

A stored answer is one *capture*. A capture consists of a `response` or `revisit` record, the `request` that
led to this answer, and a `metadata` record. The records of a capture follow each other in one segment, and
each record is a gzip member (`gzip_members.py`):

    segment  = warcinfo capture*            <prefix>-<process>-<time>-<serial>.warc.gz
    capture  = (response | revisit) request [metadata]
    record   = gzip( version, named fields, blank line, block, two line ends )

The functions that build a record are pure: they turn bytes into bytes. Bytes chosen by a server reach a
record only through `clean`. So no header value, reason or URL can end a line and start a new field or record.
`Content-Length` delimits the block, whatever it contains.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from crawler.records import ReceiptStamp

IDENTICAL_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
RECEIPT_URI = b"urn:consent:"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

_HTTP_RESPONSE = b"Content-Type: application/http; msgtype=response\r\n"
_HTTP_REQUEST = b"Content-Type: application/http; msgtype=request\r\n"
_WARC_FIELDS = b"Content-Type: application/warc-fields\r\n"

# Line ends and NUL become blanks, because header values must not contain these characters.
_UNSAFE_IN_VALUE = bytes.maketrans(b"\r\n\0", b"   ")
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_TOKEN_TABLE = bytes(byte if byte in _TOKEN else ord("-") for byte in range(256))

_WELL_FORMED = re.compile(
    rb"HTTP/1\.[01] [1-5][0-9]{2}(?: [^\r\n\0]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n)*\r\n"
)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([^\r]*?)[ \t]*\r", re.IGNORECASE)
_TRANSFER_CODING = re.compile(rb"(?<=\n)transfer-encoding(?=:)", re.IGNORECASE)

_BASE32 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".ljust(256, b"\0")
# Each of these steps moves the upper half of every group of bits away from the lower half. After the last
# step, each byte holds five bits. A step is a mask, which selects the upper halves, and a factor. Adding the
# selected bits times the factor moves the upper halves to their new place.
_SPREADS = tuple(
    (
        int.from_bytes((((1 << half) - 1) << half).to_bytes(2 * half // 5, "big") * (80 // half), "big"),
        (1 << half * 3 // 5) - 1,
    )
    for half in (80, 40, 20, 10, 5)
)

Headers = Sequence[tuple[bytes, bytes]]


def clean(value: bytes) -> bytes:
    """Return `value` with blanks in place of bytes that could end a line."""
    return value.translate(_UNSAFE_IN_VALUE)


def clean_name(name: bytes) -> bytes:
    """Return `name` as an HTTP token (RFC 9110, 5.6.2). Bytes that a token cannot contain become "-"."""
    return name.translate(_TOKEN_TABLE) or b"-"


@lru_cache(maxsize=256)
def _second_text(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def date_text(instant: float) -> bytes:
    """Return a time in the format `2026-11-20T23:59:59Z`, without fractions, which some readers reject."""
    return _second_text(int(instant))


def base32(digest: bytes) -> bytes:
    """Return 20 bytes as Base32 (RFC 4648).

    This implementation takes two fifths of the time of the standard library's.
    """
    number = int.from_bytes(digest, "big")
    for upper_halves, factor in _SPREADS:
        number += (number & upper_halves) * factor
    return number.to_bytes(32, "big").translate(_BASE32)


def digest_text(digest: bytes) -> bytes:
    """Return `sha1:` followed by the base32 form of a SHA-1 of 20 bytes."""
    return b"sha1:" + base32(digest)


def record_ids(random: Callable[[int], bytes], count: int) -> list[bytes]:
    """Return 1 to 16 new `<urn:uuid:...>` (version 4), which differ only in one digit.

    `random(n)` returns n bytes.
    """
    raw = random(16)
    text = raw.hex()
    head = f"<urn:uuid:{text[:8]}-{text[8:12]}-4{text[13:16]}-{'89ab'[raw[8] & 3]}{text[17:20]}-{text[20:31]}"
    start, last = head.encode(), raw[15] & 15
    return [b"%b%x>" % (start, last ^ number) for number in range(count)]


class Heading(NamedTuple):
    """The id and the date of a record of a capture, and the lines that all its records share (`target_fields`)."""

    identity: bytes
    date: bytes
    target: bytes


def record(
    kind: bytes,
    identity: bytes,
    date: bytes,
    fields: bytes,
    head: bytes,
    payload: bytes = b"",
    *,
    block_digest: bool = True,
) -> bytes:
    """Build one uncompressed record whose block is `head` + `payload`. `fields` holds whole lines."""
    if block_digest:
        digest = hashlib.sha1(head)
        digest.update(payload)
        fields += _block_digest_line(digest.digest())
    top = _record_head(kind, identity, date, fields, len(head) + len(payload))
    return b"".join((top, head, payload, b"\r\n\r\n"))


def _block_digest_line(digest: bytes) -> bytes:
    return b"WARC-Block-Digest: %b\r\n" % digest_text(digest)


def _record_head(kind: bytes, identity: bytes, date: bytes, fields: bytes, length: int) -> bytes:
    """Return the named fields of a record and the blank line after them."""
    return (
        b"WARC/1.1\r\nWARC-Type: %b\r\nWARC-Record-ID: %b\r\nWARC-Date: %b\r\n%bContent-Length: %d\r\n\r\n"
        % (kind, identity, date, fields, length)
    )


class LargeRecord:
    """An uncompressed record whose payload is read in pieces. Iterate over the record to get its bytes."""

    def __init__(self, head: bytes, pieces: Callable[[], Iterator[bytes]]) -> None:
        self._head = head
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        yield from self._pieces()
        yield b"\r\n\r\n"


def http_head(start_line: bytes, headers: Headers) -> bytes:
    """Return the start line, the fields and a blank line. Line ends inside a value become blanks."""
    lines = [start_line]
    lines += [name + b": " + value for name, value in headers]
    head = b"\r\n".join(lines)
    ends = len(headers)
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head or not _all_tokens(headers):
        lines = [clean(start_line)]
        lines += [clean_name(name) + b": " + clean(value) for name, value in headers]
        head = b"\r\n".join(lines)
    return head + b"\r\n\r\n"


def _all_tokens(headers: Headers) -> bool:
    names = b"".join([name for name, _ in headers])
    return names == names.translate(_TOKEN_TABLE) and all(name for name, _ in headers)


def received_head(block: bytes, payload_length: int | None) -> bytes:
    """Return a header block as it was received, or b"" if it cannot be stored like that.

    The block can be stored if it is well-formed, so that all readers see the same fields, and if its
    Content-Length is the length of the payload. A transfer coding is renamed as in `stored_headers`.
    """
    if _WELL_FORMED.fullmatch(block) is None:
        return b""
    lowered = block.lower()
    lengths = lowered.count(b"\ncontent-length:")
    recoded = lowered.count(b"\ntransfer-encoding:")
    if recoded and (lengths or recoded > 1):
        return b""
    if lengths and payload_length is not None:
        value = _LENGTH.search(block)
        if lengths > 1 or value is None or value[1] != b"%d" % payload_length:
            return b""
    if not recoded or payload_length is None:
        return b"" if recoded else block
    renamed = _TRANSFER_CODING.sub(b"X-Crawler-Transfer-Encoding", block, count=1)
    return b"%bContent-Length: %d\r\n\r\n" % (renamed[:-2], payload_length)


def stored_headers(
    headers: Headers, payload_length: int | None, *, decoded: bool = False
) -> list[tuple[bytes, bytes]]:
    """Return the fields of an answer as they are stored in its record.

    If the answer had a `Content-Length` or a transfer coding, `Content-Length` becomes the length of the
    payload. If `payload_length` is None, the field is kept; this is for a 304, for example, where the field
    is not the length of the payload. If a coding was undone, the field that stated it is renamed.
    """
    stored = []
    has_length = recoded = False
    length = (b"Content-Length", b"%d" % (payload_length or 0))
    for field in headers:
        name = field[0].lower()
        if name == b"content-length" and payload_length is not None:
            if not has_length:
                stored.append(length)
            has_length = True
        elif name == b"transfer-encoding":
            stored.append((b"X-Crawler-Transfer-Encoding", field[1]))
            recoded = True
        elif decoded and name == b"content-encoding":
            stored.append((b"X-Crawler-Content-Encoding", field[1]))
        else:
            stored.append(field)
    if recoded and not has_length and payload_length is not None:
        stored.append(length)
    return stored


def target_fields(url: str, address: str, version: str, warcinfo: bytes = b"") -> bytes:
    """Return the lines that all records of a capture share: URI, address, protocol, and the warcinfo record's id."""
    uri = clean(url.encode("utf-8", "replace")).replace(b" ", b"%20")
    return b"WARC-Target-URI: %b\r\n%b" % (uri, _server_fields(address, version, warcinfo))


@lru_cache(maxsize=256)
def _server_fields(address: str, version: str, warcinfo: bytes) -> bytes:
    lines = b""
    if address:
        lines += b"WARC-IP-Address: %b\r\n" % clean(address.encode("utf-8", "replace"))
    if version:
        lines += b"WARC-Protocol: %b\r\n" % clean(version.lower().encode("utf-8", "replace"))
    return lines + warcinfo_field(warcinfo)


def warcinfo_field(identity: bytes) -> bytes:
    """Return the line that refers to the warcinfo record by its id, or b"" if the id is unknown."""
    return b"WARC-Warcinfo-ID: %b\r\n" % clean(identity) if identity else b""


def response(
    of: Heading, head: bytes, payload: bytes, digest: bytes, *, truncated: str = "", block_digest: bool = True
) -> bytes:
    """Build a `response` record. `digest` is the SHA-1 of `payload`."""
    fields = _response_fields(of.target, digest, truncated)
    return record(b"response", of.identity, of.date, fields, head, payload, block_digest=block_digest)


def _response_fields(target: bytes, digest: bytes, truncated: str) -> bytes:
    fields = target + b"WARC-Payload-Digest: %b\r\n" % digest_text(digest)
    if truncated:
        fields += b"WARC-Truncated: %b\r\n" % truncated.encode()
    return fields + _HTTP_RESPONSE


def revisit(
    of: Heading,
    head: bytes,
    digest: bytes,
    *,
    profile: str,
    refers_to_url: str,
    refers_to_date: bytes,
    block_digest: bool = True,
) -> bytes:
    """Build a `revisit` record, which repeats the payload of a response and refers to it by URL and date."""
    fields = b"%bWARC-Profile: %b\r\nWARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: %b\r\n" % (
        of.target,
        profile.encode(),
        clean(refers_to_url.encode("utf-8", "replace")).replace(b" ", b"%20"),
        refers_to_date,
    )
    if digest:
        fields += b"WARC-Payload-Digest: %b\r\n" % digest_text(digest)
    return record(b"revisit", of.identity, of.date, fields + _HTTP_RESPONSE, head, block_digest=block_digest)


def request(of: Heading, concurrent_to: bytes, head: bytes, *, block_digest: bool = True) -> bytes:
    """Build a `request` record. `head` is the request as it was sent."""
    fields = b"%bWARC-Concurrent-To: %b\r\n%b" % (of.target, concurrent_to, _HTTP_REQUEST)
    return record(b"request", of.identity, of.date, fields, head, block_digest=block_digest)


def metadata(
    of: Heading, concurrent_to: bytes, facts: Iterable[tuple[str, object]], *, block_digest: bool = True
) -> bytes:
    """Build a `metadata` record of `name: value` lines about a capture."""
    fields = b"%bWARC-Concurrent-To: %b\r\n%b" % (of.target, concurrent_to, _WARC_FIELDS)
    return record(b"metadata", of.identity, of.date, fields, fact_lines(facts), block_digest=block_digest)


def receipt(identity: bytes, date: bytes, stamp: ReceiptStamp, warcinfo: bytes = b"") -> bytes:
    """Build a `metadata` record with a whole consent receipt as JSON.

    Captures refer to the receipt by its digest.
    """
    fields = b"WARC-Target-URI: %b%b\r\nContent-Type: application/json\r\n" % (
        RECEIPT_URI,
        stamp.digest.hex().encode(),
    )
    return record(b"metadata", identity, date, fields + warcinfo_field(warcinfo), stamp.block)


def resource(
    identity: bytes,
    date: bytes,
    uri: str,
    refers_to: bytes,
    media_type: bytes,
    payload: bytes,
    cut_by: str = "",
    warcinfo: bytes = b"",
) -> bytes:
    """Build a `resource` record of data that was made from the answer `refers_to`. `cut_by` is `Rendering.broke`."""
    fields = b"WARC-Target-URI: %b\r\nWARC-Refers-To: %b\r\n" % (
        clean(uri.encode("utf-8", "replace")).replace(b" ", b"%20"),
        refers_to,
    )
    fields += b"WARC-Payload-Digest: %b\r\n" % digest_text(hashlib.sha1(payload).digest())
    fields += warcinfo_field(warcinfo)
    if cut_by:
        fields += b"WARC-Truncated: %b\r\n" % (b"time" if cut_by in ("time", "cpu") else b"unspecified")
    return record(b"resource", identity, date, fields + b"Content-Type: %b\r\n" % media_type, b"", payload)


class SegmentFacts(NamedTuple):
    """The facts about a crawl that the first record of each segment states. `agent` is the User-Agent."""

    process: str
    software: str = "crawler"
    operator: str = ""
    robots_policy: str = "obey"
    hostname: str = ""
    agent: str = ""

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return the facts as the pairs (name, value) of `warcinfo`."""
        return (
            ("software", self.software),
            ("operator", self.operator),
            ("hostname", self.hostname),
            ("process", self.process),
            ("http-header-user-agent", self.agent),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
            ("robots", self.robots_policy),
            (
                "http-header-blocks",
                "as received, or rebuilt (httpHead in the metadata); codings in X-Crawler- fields are undone",
            ),
        )


def warcinfo(identity: bytes, date: bytes, filename: str, facts: Iterable[tuple[str, object]]) -> bytes:
    """Build the first record of a segment: the software, its operator and its settings."""
    fields = b"WARC-Filename: %b\r\n" % clean(filename.encode())
    return record(b"warcinfo", identity, date, fields + _WARC_FIELDS, fact_lines(facts))


def large_response(
    of: Heading,
    head: bytes,
    pieces: Callable[[], Iterator[bytes]],
    length: int,
    digest: bytes,
    *,
    truncated: str = "",
    block_digest: bool = True,
) -> LargeRecord:
    """Build a `response` record whose payload is read when the record is written.

    If the record needs a block digest, the payload is read once before that.
    """
    fields = _response_fields(of.target, digest, truncated)
    if block_digest:
        block = hashlib.sha1(head)
        for piece in pieces():
            block.update(piece)
        fields += _block_digest_line(block.digest())
    top = _record_head(b"response", of.identity, of.date, fields, len(head) + length)
    return LargeRecord(top + head, pieces)


def fact_lines(facts: Iterable[tuple[str, object]]) -> bytes:
    """Return the facts as `application/warc-fields`, one per line. Facts with an empty value are left out."""
    lines = [f"{name}: {value}" for name, value in facts if value != ""]
    text = "\r\n".join([*lines, ""]).encode("utf-8", "replace")
    if text.count(b"\n") == len(lines) and text.count(b"\r") == len(lines) and b"\0" not in text:
        return text
    return b"".join([b"%b\r\n" % clean(line.encode("utf-8", "replace")) for line in lines])
