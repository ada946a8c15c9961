"""Reads the page cache: records, captures and their bytes.

An `Archive` reads a store and its folder of segments without changing them, so commands and servers can use
an archive while a process crawls. An archive sees everything that is committed, including the records in a
segment that is still open.

Readers never see withdrawn copies (`withdrawals.py`). The methods leave these copies out, and methods that
list records leave out the records of withdrawn URLs. Maintenance, which needs every copy, uses the methods
named `stored_...`.

All methods and functions raise DamageError if a value of the store, or the bytes of a record, are damaged or missing.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from crawler.errors import DamageError
from crawler.pages import reading, segments
from crawler.pages.captures import (
    Original,
    StoredPage,
    asks_no_archive,
    capture_key,
    is_copy,
    newest_of,
    payload_key,
    record_key,
    static_form,
    tombstone_key,
    unpack_capture,
    unpack_record,
    unpack_tombstone,
)
from crawler.pages.shipping import note_of
from crawler.pages.stored_bodies import open_capture
from crawler.pages.withdrawals import Erased, Withdrawal, Withdrawals
from crawler.records import Capture, PageRecord
from crawler.storage import keys
from crawler.storage.kv import KeyValue, after_prefix, scan_prefix, unseal


class Archive:
    """Reads the committed captures of one process, except withdrawn ones, from `store` and the segments in `folder`."""

    def __init__(self, folder: Path, store: KeyValue, withdrawals: Withdrawals | None = None) -> None:
        self.folder = folder
        self.store = store
        self.withdrawals = withdrawals if withdrawals is not None else Withdrawals()
        # number of segments whose captures were moved away; earlier places of captures may be invalid
        self.releases = 0

    # -- look-ups by URL

    def record(self, fingerprint: int) -> PageRecord | None:
        """Return the committed record of a URL, or None if the URL was never tried."""
        key = record_key(fingerprint)
        value = self.store.get(key)
        return None if value is None else unpack_record(key, value)

    def captures(self, fingerprint: int, *, until: bytes = b"") -> Iterator[Capture]:
        """Yield the committed captures of a URL, newest first.

        With `until` (a `c/` key), captures that are later than `until` are left out.
        """
        for key, capture in self.stored_captures_of(fingerprint):
            if not (until and key > until) and not self.is_withdrawn(capture):
                yield capture

    def newest_capture(self, fingerprint: int, record: PageRecord | None) -> Capture | None:
        """Return the newest capture that is a copy of the page, or else the newest capture.

        `record` is the URL's record. The newest capture has the time of the last answer, so one look-up
        usually finds it. A capture with a later time was stored when the clock was ahead. Such a capture is
        returned only if there is no other copy.
        """
        if record is not None:
            key = capture_key(fingerprint, record.fetched_at)
            if value := self.store.get(key):
                capture = unpack_capture(key, value)
                if is_copy(capture) and not self.is_withdrawn(capture):
                    return capture
            earlier = newest_of(self.captures(fingerprint, until=key))
            if earlier is not None and is_copy(earlier):
                return earlier
        return newest_of(self.captures(fingerprint))

    def stored_captures_of(self, fingerprint: int) -> Iterator[tuple[bytes, Capture]]:
        """Yield (`c/` key, capture) for every committed capture of a URL, newest first, including withdrawn ones."""
        prefix = keys.CAPTURE + fingerprint.to_bytes(8, "big")
        for key, value in self.store.scan(prefix, prefix + b"\xff" * 9, reverse=True):
            yield key, unpack_capture(key, value)

    def all_captures(self) -> Iterator[tuple[bytes, Capture]]:
        """Yield (`c/` key, capture) for every committed capture, ordered by fingerprint and time."""
        for key, capture in self.stored_captures():
            if not self.is_withdrawn(capture):
                yield key, capture

    def stored_captures(self, begin: bytes = b"") -> Iterator[tuple[bytes, Capture]]:
        """Yield (`c/` key, capture) for every committed capture, including withdrawn ones, from the key `begin` on."""
        for key, value in self.store.scan(begin or keys.CAPTURE, after_prefix(keys.CAPTURE)):
            yield key, unpack_capture(key, value)

    def newest_captures(self, *, withdrawn: bool = False) -> Iterator[tuple[int, Capture]]:
        """Yield (fingerprint, newest capture) for every URL that has a capture. The newest one is chosen as in `get`.

        With `withdrawn`, include withdrawn captures.
        """
        captures = self.stored_captures() if withdrawn else self.all_captures()
        for prefix, group in itertools.groupby(captures, key=lambda item: item[0][:10]):
            fingerprint = int.from_bytes(prefix[2:], "big")
            found = iter(group)
            newest_key, newest = next(found)
            until = b""
            for key, capture in found:
                until = until or self._last_answer(fingerprint)
                if newest_key <= until < key and is_copy(newest):
                    break  # this capture and later ones were stored when the clock was ahead
                if is_copy(capture) or not is_copy(newest):
                    newest_key, newest = key, capture
            yield fingerprint, newest

    def _last_answer(self, fingerprint: int) -> bytes:
        """Return the `c/` key of a URL's last answer, or a key above all others if the URL has no record."""
        record = self.record(fingerprint)
        return (
            after_prefix(keys.CAPTURE) or b""
            if record is None
            else capture_key(fingerprint, record.fetched_at)
        )

    def all_records(self, begin: int = 0) -> Iterator[tuple[int, PageRecord]]:
        """Yield (fingerprint, record) for every URL that was tried, ordered by fingerprint, from `begin` on."""
        if begin >= 1 << 64:
            return
        for key, value in self.store.scan(record_key(begin), after_prefix(keys.PAGE)):
            record = unpack_record(key, value)
            if not self.withdrawals.stops(record.url):
                yield int.from_bytes(key[2:], "big"), record

    def stored_records(self) -> Iterator[tuple[int, Callable[[], PageRecord]]]:
        """Yield (fingerprint, function that reads the record) for every URL that was tried, ordered by fingerprint.

        Withdrawn URLs are included.
        """
        for key, value in scan_prefix(self.store, keys.PAGE):
            yield int.from_bytes(key[2:], "big"), partial(unpack_record, key, value)

    def capture_at(self, key: bytes) -> Capture | None:
        """Return the committed capture with this `c/` key.

        If a reshard copied the capture from another process, it is stored under a `v/` key with the same
        number.
        """
        value = self.store.get(key) or self.store.get(keys.ELSEWHERE + key[2:])
        return None if value is None else unpack_capture(key, value)

    def response_with(self, digest: bytes) -> bytes | None:
        """Return the `c/` key of the committed response that holds the payload with this SHA-1, or None."""
        key = payload_key(digest)
        value = self.store.get(key)
        return None if value is None else unseal(key, value)

    # -- withdrawals

    def is_withdrawn(self, capture: Capture) -> bool:
        """Return whether a withdrawal rule covers a capture."""
        return self.withdrawals.of_copy(capture.url, capture.fetched_at) is not None

    def withdrawn(
        self, fingerprint: int, url: str, shown: Capture | None = None
    ) -> Withdrawal | Erased | None:
        """Return the rule or tombstone that withdraws all copies of `url` (request form), or None if there is none.

        A page is not withdrawn if a rule covers only its older copies. `shown` is a copy of the page that
        this archive has returned, if any.
        """
        if rule := self.withdrawals.of_url(url):
            return rule
        if shown is not None:
            return None
        hidden = None
        if self.withdrawals:
            for _, capture in self.stored_captures_of(fingerprint):
                hidden = self.withdrawals.of_copy(capture.url, capture.fetched_at)
                if hidden is None:
                    return None
        return hidden or self.tombstone(fingerprint)

    def tombstone(self, fingerprint: int) -> Erased | None:
        """Return the tombstone of a URL whose copies were erased.

        Return None if the URL has no tombstone, or has a copy again.
        """
        key = tombstone_key(fingerprint)
        value = self.store.get(key)
        if value is None or next(self.stored_captures_of(fingerprint), None) is not None:
            return None
        return unpack_tombstone(key, value)

    # -- bytes

    def get(
        self,
        fingerprint: int,
        at: float | None = None,
        *,
        with_noarchive: bool = False,
        static: bool = False,
        refused: Callable[[Capture, PageRecord | None], object] | None = None,
    ) -> StoredPage | None:
        """Return the newest copy of a URL, as `shown_capture` chooses it, or None if no copy may be shown."""
        capture = shown_capture(self, fingerprint, at, with_noarchive=with_noarchive, refused=refused)
        return None if capture is None else self.read(capture, static=static)

    def read(self, capture: Capture, *, static: bool = False) -> StoredPage:
        """Read a capture from its segment, which may still be open.

        For a revisit, the payload is that of the response to which it refers. A 304 gets the status and
        headers of the response that it confirms. If a browser showed the page, the payload is the DOM. With
        `static`, it is the payload of the server's answer instead.
        """
        return read_capture(self.folder, capture, original_of(self, capture), static=static)

    def view(self, capture: Capture) -> bytes:
        """Return the screenshot (PNG) of a page that a browser showed, or b"" if there is none (`render.screenshot`)."""
        # it is among the records between the answer and the DOM
        if not capture.dom_length:
            return b""
        start, end = capture.offset + capture.length, capture.offset + capture.dom_offset
        data, view = segments.read_segment(self.folder, capture.segment, start, end - start), b""
        where = f"{capture.segment} at {start}"
        while data:
            length = reading.member_length([data], where)
            record = reading.parse_record(reading.expand(data[:length], where=where), where)
            if record.fields.get("warc-target-uri", "").startswith("urn:view:"):
                view = record.block
            data = data[length:]
        return view

    def raw_pieces(self, capture: Capture) -> Iterator[bytes]:
        """Yield all WARC records of a capture as gzip members, unchanged from the segment, in pieces."""
        end = capture.offset + capture.extent
        if segments.size_of(self.folder, capture.segment) < end:
            raise DamageError(f"{capture.segment} at {capture.offset}: segment is too short")
        return segments.chunks(self.folder, capture.segment, capture.offset, end)

    def warcinfo(self, segment: str, offset: int = 0) -> bytes:
        """Return a warcinfo record of a segment (a gzip member), by default the first record of the segment."""
        chunks = segments.chunks(self.folder, segment, offset)
        length = reading.member_length(chunks, f"{segment} at {offset}")
        return segments.read_segment(self.folder, segment, offset, length)

    def committed_lengths(self) -> Iterator[tuple[str, int]]:
        """Yield (segment, committed length in bytes) for every segment."""
        for key, value in scan_prefix(self.store, keys.SEGMENT):
            yield key[2:].decode(), int.from_bytes(unseal(key, value), "big")

    def damage(self) -> list[str]:
        """Return a message for each segment that is missing or too short. The pages in these segments are lost."""
        return [
            f"{self.folder / segment}: missing or too short; `crawler check --repair` queues its pages again"
            for segment in self.damaged_segments()
        ]

    def damaged_segments(self) -> list[str]:
        """Return the names of the segments that are missing or shorter than their committed length.

        A segment that lies only in object storage is not missing.
        """
        damaged = segments.survey(self.folder, dict(self.committed_lengths())).damaged
        return sorted(segment for segment in damaged if note_of(self.folder, segment) is None)


def shown_capture(
    archive: Archive,
    fingerprint: int,
    at: float | None = None,
    *,
    with_noarchive: bool = False,
    refused: Callable[[Capture, PageRecord | None], object] | None = None,
) -> Capture | None:
    """Return the newest capture of a URL, not newer than `at`, or None if there is no copy that may be shown.

    If a newer capture is not a whole page (`is_copy`), an earlier copy is returned. `refused(capture, record)`
    returns the reason why a copy may not be used, or a false value if it may be used.
    """
    record = archive.record(fingerprint)
    if at is None:
        capture = archive.newest_capture(fingerprint, record)
    else:
        captures = archive.captures(fingerprint)
        capture = newest_of(capture for capture in captures if capture.fetched_at <= at)
    if capture is None or (asks_no_archive(record, capture) and not with_noarchive):
        return None
    if refused is not None and refused(capture, record):
        return None
    return capture


def original_of(archive: Archive, capture: Capture) -> Capture | None:
    """Return the response that a revisit repeats; None if the capture is not a revisit.

    Raises:
        DamageError: the store lacks the response.
    """
    original = archive.capture_at(capture.refers_to) if capture.refers_to else None
    if capture.refers_to and original is None:
        raise DamageError(f"{capture.url}: the response that this revisit repeats is not in the store")
    return original


def original_with(archive: Archive, digest: bytes) -> Original | None:
    """Return the response that holds the payload with this SHA-1, or None if it is missing or withdrawn."""
    key = archive.response_with(digest)
    capture = archive.capture_at(key) if key is not None else None
    if key is None or capture is None or archive.is_withdrawn(capture):
        return None
    return Original(key, capture.url, capture.fetched_at)


def read_capture(
    folder: Path, capture: Capture, original: Capture | None, *, static: bool = False
) -> StoredPage:
    """Read a capture from the segments in `folder`; `original` is the response that a revisit repeats.

    Reading needs no store, so several processes can do it at the same time.
    """
    copy = open_capture(folder, static_form(capture) if static else capture, original)
    if copy.length > reading.RECORD_BYTES_MAX:
        raise DamageError(
            f"{capture.segment} at {capture.offset}: record is larger than {reading.RECORD_BYTES_MAX} bytes; "
            "`crawler serve`, `get` and mirrors read such files"
        )
    payload, rendered = b"".join(copy.pieces()), bool(capture.dom_length) and not static
    return StoredPage(capture, copy.status, copy.reason, copy.version, copy.headers, payload, rendered)
