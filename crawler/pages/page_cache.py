"""The page cache of a process: answers go in, captures come out.

A *capture* is one stored answer of a URL. Its bytes lie in a WARC segment; what
is known of it lies in the store, in the same batch as the rest of its group:

    u/<fp>          PageRecord     the URL's state after its last try
    c/<fp><ms>      Capture        where the answer lies; one a stored answer
    g/<sha1>        c/ key         the response that holds these payload bytes
    w/<segment>     length         how far the segment counts

An answer takes three steps, one in each phase of the commit:

    capture(fetch, ...)   loop thread     digest, response or revisit, new record
    write(capturings)     writer thread   build, compress, append, sync
    stage(batch)          writer thread   the four keys
    committed()           loop thread     forget what was pending

Decisions are made in the first step, in the order of the commit queue, so they
count what is decided but not yet committed: of two equal answers in one group
the second is a revisit of the first. That is safe since groups commit in
order, and a group that fails ends the process.

A segment that is missing or short when the cache is opened does not stop it:
`lost` names the captures that are gone, and `forget` drops them.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from crawler.config import PagesConfig
from crawler.errors import DamageError
from crawler.pages import change, reading, segments, warc
from crawler.records import Capture, Errand, Extracted, Fetch, Outcome, PageRecord, Task
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

_HOPS_CACHED_MAX = 4096  # URLs remembered by fingerprint, for `via`
_TEMPORARY = frozenset({408, 425, 429})
_UNANSWERED = frozenset(
    {Outcome.BAD_STATUS, Outcome.HEADER_TOO_LARGE, Outcome.FRAMING, Outcome.ROBOTS_DENIED}
)

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(PageRecord).decode
_decode_capture = msgspec.msgpack.Decoder(Capture).decode


def record_key(fingerprint: int) -> bytes:
    return b"u/" + fingerprint.to_bytes(8, "big")


def capture_key(fingerprint: int, instant: float) -> bytes:
    return b"c/" + fingerprint.to_bytes(8, "big") + int(instant * 1000).to_bytes(8, "big")


def _unpack(decode: Callable[[bytes], Any], key: bytes, value: bytes) -> Any:
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
    its content digest (16 bytes). `capture` is filled by `write`.
    """

    fetch: Fetch
    errand: Errand
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
    capture: Capture | None = None


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
        return reading.decode_payload(
            reading.HttpMessage("", self.status, self.reason, self.version, self.headers, self.payload)
        )


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


class PageCache:
    """Captures of one process, in `directory/warc` and `store`; see the module's text.

    Args:
        ignored: patterns (bytes) that a URL's comparisons leave out; none by default.
        fingerprint: fingerprint of a URL, for answers whose errand has none (robots.txt).
        operator, robots_policy: for the warcinfo record.
        random: random bytes for record ids.
        sync: whether appended bytes are made durable before they are named.

    Raises:
        StoreError, DirectoryError: the folder cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        store: KeyValue,
        config: PagesConfig,
        *,
        process: str,
        software: str = "crawler",
        operator: str = "",
        robots_policy: str = "obey",
        ignored: Callable[[str], change.Patterns] = lambda url: (),
        fingerprint: Callable[[str], int] | None = None,
        random: Callable[[int], bytes] = os.urandom,
        sync: bool = True,
    ) -> None:
        self.folder = directory / "warc"
        self._store = store
        self._decoded = config.store == "decoded"
        self._ignored = ignored
        self._fingerprint = fingerprint
        self._random = random
        self._compress = warc.compressor(config.gzip_level)
        self._about = (
            ("software", software),
            ("operator", operator),
            ("hostname", process),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
            ("robots", robots_policy),
            ("http-header-blocks", "rebuilt from the parsed fields; codings in X-Crawler- fields are undone"),
        )
        committed = dict(self._committed_lengths())
        self.recovery = segments.recover(self.folder, committed)
        self.lost = self._find_lost()
        self._writer = segments.SegmentWriter(
            self.folder,
            f"{config.prefix}-{process}",
            segment_bytes=config.segment_bytes,
            serial=segments.next_serial(list(committed)),
            opening=self._opening,
            sync=sync,
        )
        self._pending_originals: dict[bytes, Original] = {}
        self._pending_records: dict[int, PageRecord] = {}
        self._written: list[Capturing] = []
        self._staged: deque[list[Capturing]] = deque()
        self._urls: dict[int, str] = {}

    # -- what is known of a URL

    def record(self, fingerprint: int) -> PageRecord | None:
        """The record of a URL, one that is not yet committed included; None if it was never tried.

        Raises:
            DamageError: the stored value is not what was written.
        """
        pending = self._pending_records.get(fingerprint)
        return pending if pending is not None else self._stored_record(fingerprint)

    def _stored_record(self, fingerprint: int) -> PageRecord | None:
        key = record_key(fingerprint)
        value = self._store.get(key)
        return None if value is None else _unpack(_decode_record, key, value)

    def put_record(self, batch: Batch, fingerprint: int, record: PageRecord) -> None:
        """Put a URL's record where no answer was captured (a retired URL, a signal)."""
        batch.put(record_key(fingerprint), seal(_encode(record)))

    def captures(self, fingerprint: int) -> Iterator[Capture]:
        """Committed captures of a URL, newest first."""
        for _, capture in self._captures(fingerprint):
            yield capture

    def _captures(self, fingerprint: int) -> Iterator[tuple[bytes, Capture]]:
        prefix = b"c/" + fingerprint.to_bytes(8, "big")
        for key, value in self._store.scan(prefix, prefix + b"\xff" * 9, reverse=True):
            yield key, _unpack(_decode_capture, key, value)

    def all_captures(self) -> Iterator[tuple[bytes, Capture]]:
        """(`c/` key, capture) of every committed capture, by fingerprint and time."""
        for key, value in scan_prefix(self._store, b"c/"):
            yield key, _unpack(_decode_capture, key, value)

    def all_records(self) -> Iterator[tuple[int, PageRecord]]:
        """(fingerprint, record) of every URL that was tried, by fingerprint."""
        for key, value in scan_prefix(self._store, b"u/"):
            yield int.from_bytes(key[2:], "big"), _unpack(_decode_record, key, value)

    # -- first step: decide

    def capture(
        self, fetch: Fetch, errand: Errand, extracted: Extracted | None, now: float, *, final: bool = True
    ) -> Capturing:
        """Decide how an answer, or its absence, is kept. Hand the result to `write`, in this order.

        With `final` False another try follows: the URL's record is renewed, but
        nothing is stored. Costs one SHA-1 of the payload and two look-ups.
        """
        fingerprint = errand.fingerprint
        if not fingerprint and self._fingerprint is not None:
            fingerprint = self._fingerprint(fetch.url)
        instant = fetch.began or now
        payload = self._payload(fetch)
        capturing = Capturing(
            fetch=fetch,
            errand=errand,
            fingerprint=fingerprint,
            key=capture_key(fingerprint, instant),
            instant=instant,
            stored=final and is_answer(fetch),
            payload=payload,
            payload_digest=hashlib.sha1(payload).digest() if fetch.status else b"",
            digest=b"",
        )
        previous = None
        if errand.task is not Task.ROBOTS:
            previous = self.record(fingerprint)
            self._renew_record(capturing, previous, extracted)
        if capturing.stored:
            self._choose_kind(capturing, previous)
        return capturing

    def _payload(self, fetch: Fetch) -> bytes:
        return (fetch.content or fetch.body) if self._decoded else fetch.body

    def _renew_record(
        self, capturing: Capturing, previous: PageRecord | None, extracted: Extracted | None
    ) -> None:
        fetch = capturing.fetch
        if fetch.outcome in change.SUCCESSES and fetch.outcome is not Outcome.UNCHANGED:
            content = fetch.content or fetch.body
            capturing.digest = change.content_digest(content, self._ignored(fetch.url))
        capturing.unchanged = change.is_unchanged(previous, fetch.outcome, capturing.digest)
        capturing.record = change.next_record(
            previous,
            fetch,
            capturing.errand,
            extracted,
            payload_digest=capturing.payload_digest,
            digest=capturing.digest,
            now=capturing.instant,
        )
        capturing.noarchive = extracted.noarchive if extracted is not None else capturing.record.noarchive
        self._pending_records[capturing.fingerprint] = capturing.record
        self._remember_url(capturing.fingerprint, fetch.url)

    def _choose_kind(self, capturing: Capturing, previous: PageRecord | None) -> None:
        """Response or revisit; a response becomes the original of its payload."""
        if capturing.fetch.outcome is Outcome.UNCHANGED and previous is not None:
            capturing.original = self._original(previous.digest)
            capturing.profile = warc.NOT_MODIFIED if capturing.original else ""
        elif capturing.payload:
            capturing.original = self._original(capturing.payload_digest)
            capturing.profile = warc.IDENTICAL_PAYLOAD if capturing.original else ""
        if capturing.original is None and capturing.payload:
            original = Original(capturing.key, capturing.fetch.url, capturing.instant)
            self._pending_originals[capturing.payload_digest] = original

    def _original(self, digest: bytes) -> Original | None:
        """The response that holds the payload with this SHA-1."""
        pending = self._pending_originals.get(digest)
        if pending is not None or not digest:
            return pending
        key = b"g/" + digest
        value = self._store.get(key)
        if value is None:
            return None
        capture = self._capture_at(unseal(key, value))
        return None if capture is None else Original(unseal(key, value), capture.url, capture.fetched_at)

    def _capture_at(self, key: bytes) -> Capture | None:
        value = self._store.get(key)
        return None if value is None else _unpack(_decode_capture, key, value)

    def _remember_url(self, fingerprint: int, url: str) -> None:
        if len(self._urls) >= _HOPS_CACHED_MAX:
            del self._urls[next(iter(self._urls))]
        self._urls[fingerprint] = url

    # -- second step: write

    def write(self, capturings: list[Capturing]) -> None:
        """Append the records of a group and make them durable.

        Raises:
            StoreError: the disk failed; nothing of the group may be committed.
        """
        self._written = capturings
        for capturing in capturings:
            if capturing.stored:
                self._append(capturing)
        self._writer.sync()

    def _append(self, capturing: Capturing) -> None:
        members = [self._compress(record) for record in self._records(capturing)]
        place = self._writer.append(members, capturing.instant)[0]
        fetch, record = capturing.fetch, capturing.record
        confirmed = record if record is not None and fetch.outcome is Outcome.UNCHANGED else None
        capturing.capture = Capture(
            segment=place.segment,
            offset=place.offset,
            length=place.length,
            kind="revisit" if capturing.profile else "response",
            fetched_at=capturing.instant,
            status=fetch.status,
            content_type=confirmed.content_type if confirmed else fetch.content_type,
            digest=confirmed.digest if confirmed else capturing.payload_digest,
            url=fetch.url,
            refers_to=capturing.original.key if capturing.original else b"",
            noarchive=capturing.noarchive,
            extent=sum(map(len, members)),
        )

    def _records(self, capturing: Capturing) -> Iterator[bytes]:
        """The WARC records of a capture, uncompressed; the answer comes first."""
        fetch = capturing.fetch
        date = warc.date_text(capturing.instant)
        target = warc.target_fields(fetch.url, fetch.address, fetch.version)
        identity = warc.record_id(self._random)
        yield self._answer(capturing, identity, date, target)
        if fetch.request_head:
            yield warc.request(warc.record_id(self._random), date, target, identity, fetch.request_head)
        if capturing.record is not None:
            facts = self._facts(capturing, capturing.record)
            yield warc.metadata(warc.record_id(self._random), date, target, identity, facts)

    def _answer(self, capturing: Capturing, identity: bytes, date: bytes, target: bytes) -> bytes:
        fetch = capturing.fetch
        line = f"{fetch.version} {fetch.status:03d} {fetch.reason}".encode("latin-1", "replace")
        undone = self._decoded and bool(fetch.content)
        headers: warc.Headers = fetch.headers
        if fetch.outcome is not Outcome.UNCHANGED:  # the length in a 304 is that of the page
            headers = warc.stored_headers(fetch.headers, len(capturing.payload), decoded=undone)
        head = warc.http_head(line, headers)
        if capturing.original is None or not capturing.profile:
            digest = capturing.payload_digest
            return warc.response(
                identity, date, target, head, capturing.payload, digest, truncated=fetch.truncated
            )
        return warc.revisit(
            identity,
            date,
            target,
            head,
            self._repeated_digest(capturing),
            profile=capturing.profile,
            refers_to_url=capturing.original.url,
            refers_to_date=warc.date_text(capturing.original.fetched_at),
        )

    @staticmethod
    def _repeated_digest(capturing: Capturing) -> bytes:
        """SHA-1 of the payload that a revisit repeats."""
        if capturing.profile == warc.NOT_MODIFIED and capturing.record is not None:
            return capturing.record.digest
        return capturing.payload_digest

    def _facts(self, capturing: Capturing, record: PageRecord) -> list[tuple[str, object]]:
        fetch, errand = capturing.fetch, capturing.errand
        directives = ("noindex" if record.noindex else "", "noarchive" if record.noarchive else "")
        return [
            ("via", self._url_of(errand.via) if errand.via else ""),
            ("depth", errand.depth),
            ("redirects", errand.redirects),
            ("fetchTimeMs", int(fetch.took * 1000)),
            ("outcome", fetch.outcome.value),
            ("robots", " ".join(filter(None, directives))),
            ("tls", "" if fetch.tls_ok else "not verified"),
        ]

    def _url_of(self, fingerprint: int) -> str:
        url = self._urls.get(fingerprint)
        if url is None:
            record = self._stored_record(fingerprint)
            url = record.url if record is not None else f"urn:fingerprint:{fingerprint:016x}"
        return url

    def _opening(self, name: str, now: float) -> bytes:
        identity = warc.record_id(self._random)
        return self._compress(warc.warcinfo(identity, warc.date_text(now), name, self._about))

    # -- third step: name

    def stage(self, batch: Batch) -> None:
        """Put `u/`, `c/`, `g/` and `w/` of what the last `write` appended."""
        for capturing in self._written:
            if capturing.record is not None:
                self.put_record(batch, capturing.fingerprint, capturing.record)
            if capturing.capture is not None:
                batch.put(capturing.key, seal(_encode(capturing.capture)))
                if capturing.original is None and capturing.payload:
                    batch.put(b"g/" + capturing.payload_digest, seal(capturing.key))
        for segment, length in self._writer.take_lengths().items():
            batch.put(b"w/" + segment.encode(), seal(length.to_bytes(8, "big")))
        self._staged.append(self._written)
        self._written = []

    def committed(self) -> None:
        """The oldest staged group is durable; call once a group, on the loop thread."""
        for capturing in self._staged.popleft():
            if self._pending_records.get(capturing.fingerprint) is capturing.record:
                self._pending_records.pop(capturing.fingerprint, None)
            original = self._pending_originals.get(capturing.payload_digest)
            if original is not None and original.key == capturing.key:
                del self._pending_originals[capturing.payload_digest]

    def close(self) -> None:
        """Finish the open segment; nothing may be written after it.

        Raises:
            StoreError: the disk failed.
        """
        self._writer.finish()

    # -- reading back

    def get(
        self, fingerprint: int, at: float | None = None, *, with_noarchive: bool = False
    ) -> StoredPage | None:
        """The newest copy of a URL (not newer than `at`); None if there is none, or it may not be shown.

        A temporary failure (408, 425, 429, 5xx) hides no earlier copy.

        Raises:
            DamageError: its bytes cannot be read.
        """
        capture = self._newest(fingerprint, at)
        if capture is None or (capture.noarchive and not with_noarchive):
            return None
        return self.read(capture)

    def _newest(self, fingerprint: int, at: float | None) -> Capture | None:
        newest = None
        for capture in self.captures(fingerprint):
            if at is not None and capture.fetched_at > at:
                continue
            if capture.status < 500 and capture.status not in _TEMPORARY:
                return capture
            newest = newest or capture
        return newest

    def read(self, capture: Capture) -> StoredPage:
        """Read a capture back from its segment, which may still be open; a revisit with its payload.

        A 304 comes back with the status and headers of the response it confirms.

        Raises:
            DamageError: the bytes are not there, or are not a record.
        """
        message = self._message(capture)
        payload = message.payload
        if capture.refers_to:
            original = self._capture_at(capture.refers_to)
            if original is None:
                raise DamageError(f"{capture.url}: the response that it repeats is not in the store")
            repeated = self._message(original)
            payload = repeated.payload
            if capture.status == 304:
                message = repeated
        return StoredPage(capture, message.status, message.reason, message.version, message.headers, payload)

    def _message(self, capture: Capture) -> reading.HttpMessage:
        place = segments.Place(capture.segment, capture.offset, capture.length)
        data = segments.read_member(self.folder, place, bytes_max=reading.RECORD_BYTES_MAX)
        return reading.parse_http(reading.parse_record(data, f"{place.segment} at {place.offset}").block)

    # -- damage

    def _committed_lengths(self) -> Iterator[tuple[str, int]]:
        for key, value in scan_prefix(self._store, b"w/"):
            yield key[2:].decode(), int.from_bytes(unseal(key, value), "big")

    def _find_lost(self) -> list[Lost]:
        """Captures whose segment is missing or too short, and revisits of such responses."""
        sizes = self.recovery.damaged
        if not sizes:
            return []
        gone = {
            key
            for key, capture in self.all_captures()
            if _end(capture) > sizes.get(capture.segment, _end(capture))
        }
        return [
            Lost(int.from_bytes(key[2:10], "big"), key, capture)
            for key, capture in self.all_captures()
            if key in gone or capture.refers_to in gone
        ]

    def forget(self, batch: Batch) -> None:
        """Drop every capture in `lost`, and what rested on it, from the store; `u/` stays to the caller."""
        for lost in self.lost:
            batch.delete(lost.key)
            key = b"g/" + lost.capture.digest
            value = self._store.get(key)
            if value is not None and unseal(key, value) == lost.key:
                batch.delete(key)
        for segment, size in self.recovery.damaged.items():
            self._shorten(batch, segment, size)

    def _shorten(self, batch: Batch, segment: str, size: int) -> None:
        """Commit a damaged segment to its last whole capture; the next opening cuts it there."""
        ends = [_end(capture) for _, capture in self.all_captures() if capture.segment == segment]
        end = max((end for end in ends if end <= size), default=0)
        key = b"w/" + segment.encode()
        batch.put(key, seal(end.to_bytes(8, "big"))) if end else batch.delete(key)

    def check(self) -> Iterator[Problem]:
        """Read every committed record and compare its digests; yields what is wrong."""
        for segment, length in self._committed_lengths():
            try:
                yield from self._check_segment(segment, length)
            except DamageError as error:
                yield Problem(segment, str(error))
        for key, capture in self.all_captures():
            if capture.refers_to and self._capture_at(capture.refers_to) is None:
                yield Problem(repr(key), f"{capture.url}: the response that it repeats is not in the store")

    def _check_segment(self, segment: str, length: int) -> Iterator[Problem]:
        path = segments.segment_path(self.folder, segment)
        end = 0
        for offset, size in segments.members(path):
            if offset >= length:
                break
            end = offset + size
            where = f"{segment} at {offset}"
            data = segments.read_member(
                self.folder, segments.Place(segment, offset, size), bytes_max=reading.RECORD_BYTES_MAX
            )
            for message in reading.check_digests(reading.parse_record(data, where)):
                yield Problem(where, message)
        if end != length:
            yield Problem(segment, f"{length} bytes were committed, whole records end at {end}")

    def _check(self) -> None:
        """Assert what holds between groups."""
        assert len(self._urls) <= _HOPS_CACHED_MAX
        if not self._written and not self._staged:
            assert not self._pending_records, self._pending_records
            assert not self._pending_originals, self._pending_originals

    def __repr__(self) -> str:
        return f"PageCache({self._writer!r}, {len(self._pending_records)} pending)"


def _end(capture: Capture) -> int:
    return capture.offset + max(capture.length, capture.extent)
