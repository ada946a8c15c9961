"""Rebuilds captures and page records from the WARC files, and removes captures and records whose bytes are lost."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from crawler.consent.receipts import ReceiptBlock, packed, receipt_key
from crawler.errors import DamageError
from crawler.fetcher.framing import head_of
from crawler.fetcher.outcome import location_of
from crawler.pages import reading, segments
from crawler.pages.archive import Archive
from crawler.pages.captures import (
    capture_key,
    end_of,
    fingerprint_of,
    pack,
    payload_key,
    record_key,
    segment_key,
    unpack_capture,
    unpack_record,
)
from crawler.pages.change_detection import is_back, next_record, note_same_content
from crawler.pages.erased_bytes import is_filler
from crawler.pages.request_query import query_of_request, url_with
from crawler.pages.shipping import refuse_elsewhere
from crawler.records import (
    Capture,
    Fetch,
    FetchTask,
    LinkFlag,
    Outcome,
    PageRecord,
    PageState,
    Rendering,
    TaskKind,
)
from crawler.storage.files import cut, rename
from crawler.storage.keys import CAPTURE, ELSEWHERE, PAGE, PAYLOAD, SEGMENT
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.upkeep import lost_receipts
from crawler.upkeep.repair import Repair
from crawler.upkeep.warc_members import mended

T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,12}")
_REQUEST_KEY = re.compile(r"[0-9a-f]{16}")
# Maximum number of receipts in memory. Between two records of the same receipt in a segment, there are at most
# half this number of other receipts.
_RECEIPTS_MAX = 2 * 65_536
# Maximum number of revisit records in memory whose responses were not found yet. Pages with further such
# records are fetched again.
_REVISITS_MAX = 65_536


class Dom(NamedTuple):
    """The record of a DOM that a browser rendered: its offset in the segment, its length, the HTML, and a picture."""

    offset: int
    length: int
    html: bytes
    picture: bytes


class Found(NamedTuple):
    """A capture found in a segment: its place, URL and time, answer, request and DOM, and the facts of its metadata."""

    segment: str
    offset: int
    length: int
    extent: int
    url: str
    at: float
    answer: reading.Record
    request: bytes
    dom: Dom | None
    facts: dict[str, str]
    warcinfo: int  # offset of the warcinfo record to which the answer refers


class Recapture:
    """Repairs the data of `pages/`, which are the keys `c/`, `u/`, `g/` and `w/`, and the segments."""

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self._store, self._writer, self._lost = repair.store, repair.writer, repair.lost
        self._restored: Counter[str] = Counter()  # numbers of restored values by kind
        self._known: dict[str, set[int]] = {}  # segment -> offsets of the captures that the store has
        # segment -> its ranges that were blanked, as (first byte, end)
        self._blank: dict[str, list[tuple[int, int]]] = {}
        self._receipts: dict[str, ReceiptBlock] = {}  # digest -> receipt found so far
        # (segment, offset) -> key of the response of another process at this place
        self._elsewhere: dict[tuple[str, int], bytes] = {}
        # revisit records whose responses were not found yet; None once all segments were read
        self._revisits: list[Found] | None = []

    def mend_segments(self) -> None:
        """Blank the broken records in each file, and restore the keys of intact records."""
        folder = self._repair.folder / "warc"
        folder.mkdir(parents=True, exist_ok=True)
        if self._repair.store_damaged:
            refuse_elsewhere([folder])
            self._take_back(folder)
        for key in lost_receipts.broken(self._store):
            self._writer.delete(key)
        self._writer.flush()
        archive = Archive(folder, self._store)
        committed = dict(archive.committed_lengths())
        for _, capture in archive.stored_captures():
            self._known.setdefault(capture.segment, set()).add(capture.offset)
        for key, value in scan_prefix(self._store, ELSEWHERE):
            capture = unpack_capture(key, value)
            self._elsewhere[capture.segment, capture.offset] = key
        for path in sorted(folder.glob("*.warc.gz*")):
            name = path.name.removesuffix(segments.OPEN_SUFFIX)
            if name in committed or self._repair.store_damaged:
                end = path.stat().st_size if self._repair.store_damaged else committed[name]
                whole = self._mend_segment(path, name, end)
                if committed.get(name) != whole:
                    self._writer.put(segment_key(name), seal(whole.to_bytes(8, "big")))
        # After a reshard or a cleaning of old copies, the response to which a revisit record refers may be in a
        # later segment.
        revisits, self._revisits = self._revisits, None
        for found in revisits or ():
            self._restore_found(found)
        self._writer.flush()
        self._forget_receipts(archive)
        self._repair.done += [f"{n} {what} restored from WARC records" for what, n in self._restored.items()]

    def _forget_receipts(self, archive: Archive) -> None:
        """Remove references to lost receipts, so that their pages count as fetched without a receipt."""
        gone = 0
        for key, capture in archive.stored_captures():
            if self._lacks_receipt(fingerprint_of(key), capture.receipt):
                self._writer.put(key, pack(replace(capture, receipt=b"")))
                gone += 1
        for fingerprint, read in archive.stored_records():
            record = read()
            if self._lacks_receipt(fingerprint, record.receipt):
                self._writer.put(record_key(fingerprint), pack(replace(record, receipt=b"")))
        self._writer.flush()
        self._repair.done += [f"consent receipts lost: {gone:,}"] if gone else []

    def _lacks_receipt(self, fingerprint: int, digest: bytes) -> bool:
        return bool(digest) and self._store.get(receipt_key(fingerprint, digest)) is None

    def _take_back(self, folder: Path) -> None:
        """Move back the segments that were moved to lost+found because the store had lost their names."""
        for path in sorted((folder / segments.LOST_AND_FOUND).glob("*.warc.gz*")):
            name = path.name
            if name.endswith((".warc.gz", segments.OPEN_SUFFIX)) and not (folder / name).exists():
                rename(path, folder / name)
                self._repair.done.append(f"{name}: taken back from {segments.LOST_AND_FOUND}")

    def _mend_segment(self, path: Path, name: str, end: int) -> int:
        """Blank broken records, and restore captures that the store lacks. Return the intact length of the file."""
        group: list[tuple[int, int, reading.Record]] = []
        warcinfos: dict[str, int] = {}
        whole = 0
        for offset, length, record in mended(path, name, min(end, path.stat().st_size)):
            whole = offset + length
            if record is None or is_filler(record):  # blanked by this repair or an earlier one
                self._blank.setdefault(name, []).append((offset, whole))
            if record is None:
                self._repair.done.append(f"{name} at {offset}: a broken record of {length} bytes was blanked")
            if record is None or record.kind in ("response", "revisit", "warcinfo"):
                self._restore(name, group, warcinfos)
                group = []
            if record is not None and record.kind == "warcinfo":
                warcinfos[record.fields.get("warc-record-id", "")] = offset
            if record is not None and (group or record.kind in ("response", "revisit")):
                group.append((offset, length, record))
        self._restore(name, group, warcinfos)
        if whole < path.stat().st_size:
            lost = cut(path, whole)
            self._repair.done.append(f"{name}: {lost} bytes after the last whole record were cut off")
        return whole

    def _restore(
        self, segment: str, group: list[tuple[int, int, reading.Record]], warcinfos: dict[str, int]
    ) -> None:
        """Write those keys of one capture that are missing in the store.

        `warcinfos` maps the ids of the warcinfo records before the capture to their offsets.
        """
        if not group:
            return
        offset, length, answer = group[0]
        url = answer.fields.get("warc-target-uri", "")
        if not url:
            return
        for _, _, record in group:
            if (block := lost_receipts.of_record(record)) is not None:
                self._receipts[packed(block.receipt)[0].hex()] = block
                if len(self._receipts) > _RECEIPTS_MAX:
                    del self._receipts[next(iter(self._receipts))]
        about = (record for _, _, record in group if record.kind == "metadata")
        facts = next((_facts(record) for record in about if lost_receipts.of_record(record) is None), {})
        try:
            instant = datetime.strptime(answer.fields.get("warc-date", ""), "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            return
        at = instant.replace(tzinfo=UTC).timestamp()
        request = next((record.block for _, _, record in group if record.kind == "request"), b"")
        extent = sum(length for _, length, _ in group)
        warcinfo = warcinfos.get(answer.fields.get("warc-warcinfo-id", ""), 0)
        dom = _dom(group)
        self._restore_found(
            Found(segment, offset, length, extent, url, at, answer, request, dom, facts, warcinfo)
        )

    def _restore_found(self, found: Found) -> None:
        own = found.facts.get("requestKey", "")  # the key of a request that the user's code made
        query = query_of_request(found.request)
        of_url = self._repair.fingerprinter.fingerprint(url_with(found.url, query))
        fingerprint = int(own, 16) if _REQUEST_KEY.fullmatch(own) else of_url
        fetch, digest = _fetch(found)
        if not self._repair.owns(fingerprint):
            if found.answer.kind == "response":
                self._restore_elsewhere(fingerprint, fetch, digest, found, query)
            return
        receipt = self._restore_receipt(fingerprint, found)
        if found.offset not in self._known.get(found.segment, ()):
            refers_to = b""
            if found.answer.kind == "revisit":
                original = self._read(payload_key(digest), unseal)
                if original is None:
                    self._postpone(found, fingerprint)
                    return
                refers_to = original
            key = capture_key(fingerprint, found.at)
            if self._is_moved(key, found, digest):
                return
            key = self._free_key(key)
            capture = _capture(key, fetch, digest, found, query)
            capture = replace(capture, refers_to=refers_to, receipt=receipt)
            self._writer.put(key, pack(capture))
            if not refers_to and fetch.body and not self._has_own_original(digest):
                self._writer.put(payload_key(digest), seal(key))
            self._writer.flush()  # the code below looks up the keys that were just written
            self._restored["captures"] += 1
        if found.facts:
            self._restore_record(fetch, fingerprint, digest, receipt, found)

    def _read(self, key: bytes, unpack: Callable[[bytes, bytes], T]) -> T | None:
        """Return the value of a key, decoded by `unpack`; None if the store has no such key."""
        value = self._store.get(key)
        return None if value is None else unpack(key, value)

    def _postpone(self, found: Found, fingerprint: int) -> None:
        """Restore a revisit record after all segments were read.

        If its response was not found then, its page is lost, unless the page was answered again later: then the
        response was dropped as an old copy.
        """
        if self._revisits is not None and len(self._revisits) < _REVISITS_MAX:
            self._revisits.append(found)
            return
        record = self._read(record_key(fingerprint), unpack_record)
        if self._revisits is not None or record is None or record.fetched_at <= found.at:
            self._lost.add(fingerprint)

    def _is_moved(self, key: bytes, found: Found, digest: bytes) -> bool:
        """Return whether the capture was restored from another segment already.

        If a cleaning of old copies is interrupted, the records of a capture are in its old segment and in its new
        one.
        """
        other = self._read(key, unpack_capture)
        if other is None:
            return False
        return (other.kind, other.digest) == (found.answer.kind, digest) and other.segment != found.segment

    def _free_key(self, key: bytes) -> bytes:
        """Return `key`, or the next key if `key` belongs to another answer, which was received in the same second."""
        while self._store.get(key) is not None:
            key = key[:10] + (int.from_bytes(key[10:], "big") + 1).to_bytes(8, "big")
        return key

    def _has_own_original(self, digest: bytes) -> bool:
        original = self._read(payload_key(digest), unseal)
        return original is not None and self._repair.owns(fingerprint_of(original))

    def _restore_elsewhere(
        self, fingerprint: int, fetch: Fetch, digest: bytes, found: Found, query: str
    ) -> None:
        """Write the place of a response of another process, to which revisit records of this process refer.

        The payload key is needed only while revisit records are restored. `remove_orphans` deletes it.
        """
        key = self._elsewhere.get((found.segment, found.offset))
        if key is None:
            key = self._free_key(ELSEWHERE + capture_key(fingerprint, fetch.began)[2:])
            self._writer.put(key, pack(_capture(key, fetch, digest, found, query)))
        key = CAPTURE + key[2:]
        if fetch.body and self._store.get(payload_key(digest)) is None:
            self._writer.put(payload_key(digest), seal(key))
        self._writer.flush()

    def _restore_receipt(self, fingerprint: int, found: Found) -> bytes:
        """Write the consent receipt that a capture names, if it is missing. Return its digest, b"" if none is named."""
        block = self._receipts.get(found.facts.get("consentReceipt", ""))
        if block is None:
            return b""
        for key, value in lost_receipts.missing(self._store, fingerprint, block):
            self._writer.put(key, value)
            self._writer.flush()
            self._restored["receipts"] += 1
        return packed(block.receipt)[0]

    def _restore_record(
        self, fetch: Fetch, fingerprint: int, digest: bytes, receipt: bytes, found: Found
    ) -> None:
        """Write the record of a page if the store has none, or one that is older than this capture of the page."""
        key = record_key(fingerprint)
        previous = self._read(key, unpack_record)
        if previous is not None and previous.fetched_at >= fetch.began:
            return
        record = _record(previous, fetch, fingerprint, digest, found)
        if previous is not None and is_back(previous, record):
            shown = self._read(capture_key(fingerprint, previous.changed_at), unpack_capture)
            note_same_content(record, previous, shown, digest)
        record.receipt = receipt
        self._writer.put(key, pack(record))
        self._writer.flush()
        self._lost.discard(fingerprint)
        self._restored["page records"] += previous is None

    def remove_orphans(self) -> None:
        """Delete captures whose bytes are lost, their payload keys, and the records of pages without a copy."""
        folder = self._repair.folder / "warc"
        lengths = {}
        for key, value in scan_prefix(self._store, SEGMENT):
            name = key[2:].decode("utf-8", "replace")
            try:
                size = segments.segment_path(folder, name).stat().st_size
            except DamageError:
                size = 0
            lengths[name] = min(size, int.from_bytes(unseal(key, value), "big"))
            if not lengths[name]:
                self._writer.delete(key)
                self._repair.done.append(f"{name}: the segment is missing")
        gone = self._orphans(folder, lengths)
        for key in gone:
            self._writer.delete(key)
            self._lost.add(int.from_bytes(key[2:10], "big"))
        for key, value in scan_prefix(self._store, PAYLOAD):
            original = unseal(key, value)
            if original in gone or self._store.get(original) is None:
                self._writer.delete(key)
        self._writer.flush()
        for key, value in scan_prefix(self._store, PAGE):
            is_stored = unpack_record(key, value).state is PageState.STORED
            if is_stored and next(scan_prefix(self._store, CAPTURE + key[2:]), None) is None:
                self._lost.add(int.from_bytes(key[2:], "big"))

    def _orphans(self, folder: Path, lengths: dict[str, int]) -> set[bytes]:
        archive = Archive(folder, self._store)
        gone = set()
        for key, value in scan_prefix(self._store, CAPTURE):
            capture = unpack_capture(key, value)
            blank = self._blank.get(capture.segment, ())
            if end_of(capture) > lengths.get(capture.segment, 0) or any(
                first <= capture.offset < end for first, end in blank
            ):
                gone.add(key)
        for key, value in scan_prefix(self._store, CAPTURE):
            original = unpack_capture(key, value).refers_to
            if original and (original in gone or archive.capture_at(original) is None):
                gone.add(key)
        return gone


def _capture(key: bytes, fetch: Fetch, digest: bytes, found: Found, query: str) -> Capture:
    """Return the capture with this key, without a receipt and without a reference to another capture."""
    return Capture(
        segment=found.segment,
        offset=found.offset,
        length=found.length,
        kind=found.answer.kind,
        fetched_at=int.from_bytes(key[10:], "big") / 1000,
        status=fetch.status,
        content_type=fetch.content_type,
        digest=digest,
        url=fetch.url,
        extent=found.extent,
        broken=fetch.outcome is Outcome.TRUNCATED,
        query=query,
        dom_offset=found.dom.offset - found.offset if found.dom else 0,
        dom_length=found.dom.length if found.dom else 0,
        warcinfo=found.warcinfo,
    )


def _facts(record: reading.Record) -> dict[str, str]:
    lines = record.block.decode("utf-8", "replace").splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _dom(group: list[tuple[int, int, reading.Record]]) -> Dom | None:
    """Return the DOM among the records of a capture; None if no browser rendered the page."""
    picture = b""
    for offset, length, record in group:
        target = record.fields.get("warc-target-uri", "") if record.kind == "resource" else ""
        if target.startswith("urn:view:"):
            picture = record.block
        if target.startswith("urn:dom:"):
            return Dom(offset, length, record.block, picture)
    return None


def _rendering(found: Found) -> Rendering | None:
    """Return the rendering that the metadata record describes; None if there was none."""
    facts = found.facts
    if "renderTimeMs" not in facts:
        return None
    number = _numbers(facts)
    return Rendering(
        dom=found.dom.html if found.dom else b"",
        view=found.dom.picture if found.dom else b"",
        why=facts.get("renderWhy", ""),
        took=number.get("renderTimeMs", 0) / 1000,
        cpu=number.get("renderCpuMs", 0) / 1000,
        requests=number.get("renderRequests", 0),
        missing=number.get("renderMissing", 0),
        broke=facts.get("renderCutBy", ""),
        added=number.get("renderGained", 0) == 1,
        failures=number.get("renderFailures", 0),
        again_at=float(number.get("renderAgainAt", 0)),
    )


def _numbers(facts: dict[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in facts.items() if _NUMBER.fullmatch(value)}


def _fetch(found: Found) -> tuple[Fetch, bytes]:
    """Return the answer as a `Fetch`, and the SHA-1 of its payload."""
    message = reading.parse_http(found.answer.block)
    head = head_of(message.headers, version=message.version, status=message.status, reason=message.reason)
    outcome = found.facts.get("outcome", "")
    digest = reading.payload_digest(found.answer)
    content = reading.content_of(message.payload, message.headers)
    fetch = Fetch(
        url=found.url,
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.FETCHED,
        status=message.status,
        headers=message.headers,
        body=message.payload,
        content=content,
        content_type=head.media_type()[0],
        location=location_of(head),
        began=found.at,
        rendering=_rendering(found),
    )
    return fetch, digest


def _record(
    previous: PageRecord | None, fetch: Fetch, fingerprint: int, digest: bytes, found: Found
) -> PageRecord:
    """Return the record that a page has after this capture; `previous` is its record after the earlier captures."""
    number = _numbers(found.facts)
    fetch_task = FetchTask(
        kind=TaskKind.PAGE,
        host=0,
        hostname="",
        url=fetch.url,
        fingerprint=fingerprint,
        depth=number.get("depth", 0),
        redirects=number.get("redirects", 0),
        flags=LinkFlag.RENDER if found.facts.get("renderWhy") == "request" else 0,
    )
    record = next_record(
        previous, fetch, fetch_task, None, payload_digest=digest, digest=b"", now=fetch.began
    )
    if previous is not None and previous.digest == digest:
        record.changes, record.changed_at = previous.changes, previous.changed_at
    return record
