"""`crawler check --repair`: what is damaged, made anew from what is left.

Everything is written in two places at least, so little is ever lost for good:

    lost                             made anew from
    records u/, captures c/, g/, w/  the WARC records, read from end to end
    DUE runs and their manifest      the keys u/, t/ and p/: every URL known is in one of them
    to-do entries, links log         the links of all stored pages, through the DUE: what is new waits again
    host records' queue lengths      the queues
    a stored page's copy             the web: its URL is to do again

A broken record within a WARC file gives way to an empty one of the same length,
so that all others keep their places. What is left over (a value that cannot be
read) is removed, named, and its page fetched again. Each step may be done twice,
so a repair that is cut off is finished by the next.

Not made anew: politeness learned about hosts whose record is lost, URLs that
only a sitemap or feed named, counters of what was fetched.
"""

import mmap
import os
import re
import shutil
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from crawler.config import Config
from crawler.due.eliminator import Appended, Manifest
from crawler.due.links_log import salvage
from crawler.due.plans import Flushed
from crawler.due.runs import DiskRuns
from crawler.errors import DamageError
from crawler.export.page_work import links_of
from crawler.frontier.discovery.entries import SEQUENCE_MAX, decode
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.registry import Meta
from crawler.frontier.hosts.table import RECORD
from crawler.pages import reading, segments
from crawler.pages.archive import Archive
from crawler.pages.captures import (
    capture_key,
    end_of,
    pack,
    payload_key,
    record_key,
    segment_key,
    unpack_capture,
    unpack_record,
)
from crawler.pages.change_detection import next_record
from crawler.process.stages import KEPT, Stages
from crawler.records import Capture, Errand, Fetch, Link, LinkFlag, Outcome, PageRecord, PageState, Task
from crawler.storage.commit import Change, load_counters
from crawler.storage.files import cut, sync_directory
from crawler.storage.keys import (
    CAPTURE,
    COUNTERS,
    DUE_FLUSHED,
    DUE_LINKS,
    DUE_RUNS,
    FRONTIER,
    HOST,
    PAGE,
    PARKED,
    PAYLOAD,
    SEGMENT,
    TODO,
    family,
)
from crawler.storage.kv import LevelStore, scan_prefix, seal, unseal
from crawler.storage.moving import load
from crawler.storage.moving import pack as pack_value
from crawler.urls.fingerprint import Fingerprinter

_BATCH_BYTES = 4 << 20
_LINKS_AT_ONCE = 10_000
_MEMBER = re.compile(rb"\x1f\x8b\x08")
_FILLER = (
    b"WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n\
WARC-Date: 1970-01-01T00:00:00Z\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
)


class Found(NamedTuple):
    """A capture met in a segment: its answer, what its metadata record says ({} for none), where it lies."""

    answer: reading.Record
    facts: dict[str, str]
    offset: int
    length: int
    extent: int


class _Writer:
    """Puts and deletes in synced batches of bounded size."""

    def __init__(self, store: LevelStore) -> None:
        self._store = store
        self._batch, self._bytes = store.batch(sync=True), 0

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._grow(len(key) + len(value))

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)
        self._grow(len(key))

    def _grow(self, n: int) -> None:
        self._bytes += n
        if self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._store.write(self._batch)
        self._batch, self._bytes = self._store.batch(sync=True), 0


class Rebuild:
    """The store and the DUE of one closed process, made whole; `done` says what was done, a line each.

    `lost` are the fingerprints of pages whose copies are gone; `links` what was left in the links log.
    `store_damaged` says that keys may be missing, so that what WARC files hold beyond it counts.
    """

    def __init__(
        self, config: Config, folder: Path, fingerprinter: Fingerprinter, *, store_damaged: bool
    ) -> None:
        self._config = config
        self._folder = folder
        self._fingerprinter = fingerprinter
        self._store_damaged = store_damaged
        self.done: list[str] = []
        self.lost: set[int] = set()
        self.links: list[Link] = []
        self._blank: dict[str, list[tuple[int, int]]] = {}  # by segment: from, to

    def run(self) -> None:
        """Mend store, segments and DUE.

        Raises:
            DamageError: the store cannot be read even now.
            StoreError: the disk failed.
        """
        store = LevelStore(self._folder / "store")
        try:
            self._store, self._writer = store, _Writer(store)
            self._remove_garbage()
            self._mend_segments()
            self._remove_orphans()
            self._mend_queues()
            self._renew_due()
            self._writer.flush()
        finally:
            store.close()

    def _remove_garbage(self) -> None:
        """Values that are not what was written, and keys that nobody writes."""
        gone: Counter[str] = Counter()
        for key, value in self._store.scan(b""):
            found = family(key)
            try:
                if found is not None and found.sealed:
                    unseal(key, value)
                if found is not None:
                    continue
            except DamageError:
                self._store_damaged = True
            gone[key[:2].decode("ascii", "replace")] += 1
            if key[:2] == PAGE and len(key) == 10:
                self.lost.add(int.from_bytes(key[2:], "big"))
            self._writer.delete(key)
        self._writer.flush()
        self.done += [
            f"store: {n} values {prefix} that could not be read are removed" for prefix, n in gone.items()
        ]

    # -- captures and records, from the WARC files --------------------------------

    def _mend_segments(self) -> None:
        folder = self._folder / "warc"
        folder.mkdir(parents=True, exist_ok=True)
        if self._store_damaged:
            self._take_back(folder)
        archive = Archive(folder, self._store)
        committed = dict(archive.committed_lengths())
        by_segment: dict[str, set[int]] = {}
        for _, capture in archive.all_captures():
            by_segment.setdefault(capture.segment, set()).add(capture.offset)
        restored: Counter[str] = Counter()
        for path in sorted(folder.glob("*.warc.gz*")):
            name = path.name.removesuffix(segments.OPEN_SUFFIX)
            if name in committed or self._store_damaged:
                end = path.stat().st_size if self._store_damaged else committed[name]
                known = by_segment.get(name, set())
                whole = self._mend_segment(path, name, end, known, restored)
                if committed.get(name) != whole:
                    self._writer.put(segment_key(name), seal(whole.to_bytes(8, "big")))
        self._writer.flush()
        self.done += [f"{n} {what} restored from WARC records" for what, n in restored.items()]

    def _take_back(self, folder: Path) -> None:
        """Segments that an opening set aside, since the store had lost their names."""
        for path in sorted((folder / segments.LOST_AND_FOUND).glob("*.warc.gz*")):
            name = path.name
            if name.endswith((".warc.gz", segments.OPEN_SUFFIX)) and not (folder / name).exists():
                path.rename(folder / name)
                self.done.append(f"{name}: taken back from {segments.LOST_AND_FOUND}")
        sync_directory(folder)

    def _mend_segment(self, path: Path, name: str, end: int, known: set[int], restored: Counter[str]) -> int:
        """Blank what is broken, restore what the store does not know; the length up to which it is whole."""
        group: list[tuple[int, int, reading.Record]] = []
        whole = 0
        for offset, length, record in self._records(path, name, min(end, path.stat().st_size)):
            whole = offset + length
            if record is None or record.kind in ("response", "revisit", "warcinfo"):
                self._restore(name, group, known, restored)
                group = []
            if record is not None and (group or record.kind in ("response", "revisit")):
                group.append((offset, length, record))
        self._restore(name, group, known, restored)
        if whole < path.stat().st_size:
            self.done.append(f"{name}: {cut(path, whole)} bytes behind its last whole record are cut off")
        return whole

    def _records(self, path: Path, name: str, end: int) -> Iterator[tuple[int, int, reading.Record | None]]:
        """(offset, length, record) of each member up to `end`; None for what was broken and is blank now."""
        if not end:
            return
        with path.open("r+b") as file, mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as data:
            at = 0
            while at < end:
                record, length = _member(data, at, name)
                if record is None:
                    following = _next_member(data, at + 1, name)
                    blank = filler(following - at) if following is not None else None
                    if following is None or blank is None:
                        return
                    length = following - at
                    file.seek(at)
                    file.write(blank)
                    file.flush()
                    os.fsync(file.fileno())
                    self._blank.setdefault(name, []).append((at, following))
                    self.done.append(f"{name} at {at}: a broken record of {length} bytes is blank now")
                yield at, length, record
                at += length

    def _restore(
        self,
        segment: str,
        group: list[tuple[int, int, reading.Record]],
        known: set[int],
        restored: Counter[str],
    ) -> None:
        """Put the keys of one capture that the store does not have."""
        if not group:
            return
        offset, length, answer = group[0]
        url = answer.fields.get("warc-target-uri", "")
        if not url:
            return
        facts = next((_facts(record) for _, _, record in group if record.kind == "metadata"), {})
        try:
            instant = datetime.strptime(answer.fields.get("warc-date", ""), "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            return
        found = Found(answer, facts, offset, length, sum(length for _, length, _ in group))
        self._restore_found(segment, url, instant.replace(tzinfo=UTC).timestamp(), found, known, restored)

    def _restore_found(
        self, segment: str, url: str, at: float, found: Found, known: set[int], restored: Counter[str]
    ) -> None:
        fingerprint = self._fingerprinter.fingerprint(url)
        fetch, digest = _fetch(url, at, found)
        if found.offset not in known:
            refers_to = b""
            if found.answer.kind == "revisit":
                original = self._store.get(payload_key(digest))
                if original is None:
                    self.lost.add(fingerprint)
                    return
                refers_to = unseal(payload_key(digest), original)
            key = capture_key(fingerprint, at)
            while self._store.get(key) is not None:  # another answer within that second
                key = key[:10] + (int.from_bytes(key[10:], "big") + 1).to_bytes(8, "big")
            capture = Capture(
                segment=segment,
                offset=found.offset,
                length=found.length,
                kind=found.answer.kind,
                fetched_at=int.from_bytes(key[10:], "big") / 1000,
                status=fetch.status,
                content_type=fetch.content_type,
                digest=digest,
                url=url,
                refers_to=refers_to,
                extent=found.extent,
            )
            self._writer.put(key, pack(capture))
            if not refers_to and fetch.body and self._store.get(payload_key(digest)) is None:
                self._writer.put(payload_key(digest), seal(key))
            self._writer.flush()  # what follows looks it up
            restored["captures"] += 1
        if found.facts and self._store.get(record_key(fingerprint)) is None:
            self._writer.put(record_key(fingerprint), pack(_record(fetch, fingerprint, digest, found, at)))
            self._writer.flush()
            self.lost.discard(fingerprint)
            restored["page records"] += 1

    def _remove_orphans(self) -> None:
        """Captures whose bytes are gone, payload keys of such, and the records of pages without a copy."""
        folder = self._folder / "warc"
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
                self.done.append(f"{name}: the segment is gone")
        gone = self._orphans(folder, lengths)
        for key in gone:
            self._writer.delete(key)
            self.lost.add(int.from_bytes(key[2:10], "big"))
        for key, value in scan_prefix(self._store, PAYLOAD):
            original = unseal(key, value)
            if original in gone or self._store.get(original) is None:
                self._writer.delete(key)
        self._writer.flush()
        self._find_pages_without_copy()

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
            capture = unpack_capture(key, value)
            original = capture.refers_to
            if original and (original in gone or archive.capture_at(original) is None):
                gone.add(key)
        return gone

    def _find_pages_without_copy(self) -> None:
        for key, value in scan_prefix(self._store, PAGE):
            record = unpack_record(key, value)
            if record.state is PageState.STORED and not self._has_capture(key[2:]):
                self.lost.add(int.from_bytes(key[2:], "big"))

    def _has_capture(self, fingerprint: bytes) -> bool:
        return next(scan_prefix(self._store, CAPTURE + fingerprint), None) is not None

    # -- queues, DUE, counters ----------------------------------------------------

    def _mend_queues(self) -> None:
        """Queue entries of known hosts, each URL once; host records and totals that say how many there are."""
        hosts = {key[2:]: unseal(key, value) for key, value in scan_prefix(self._store, HOST)}
        todo: Counter[bytes] = Counter()
        parked: Counter[bytes] = Counter()
        cursor: dict[bytes, int] = {}
        rules: Counter[str] = Counter()
        self._queued: set[int] = set()
        meta = load(self._store, FRONTIER, Meta, Meta())
        dropped = 0
        for prefix, counts in ((TODO, todo), (PARKED, parked)):
            for key, value in scan_prefix(self._store, prefix):
                host, order, entry = key[2:10], int.from_bytes(key[10:], "big"), decode(key, value)
                meta.sequence = max(meta.sequence, order & SEQUENCE_MAX)
                if host not in hosts or entry.fingerprint in self._queued:
                    self._writer.delete(key)
                    dropped += 1
                    continue
                self._queued.add(entry.fingerprint)
                counts[host] += 1
                if prefix == TODO:
                    cursor[host] = min(cursor.get(host, order), order)
                else:
                    rules[RULES[entry.rule]] += 1
        if dropped:
            self.done.append(f"{dropped} queue entries of hosts whose record is lost, or twice, are removed")
        for host, payload in hosts.items():
            fields = list(RECORD.unpack_from(payload))
            fields[5:8] = [min(fields[5], cursor.get(host, fields[5])), todo[host], parked[host]]
            value = RECORD.pack(*fields) + payload[RECORD.size :]
            if value != payload:
                self._writer.put(HOST + host, seal(value))
        meta.parked = dict(rules)
        self._writer.put(FRONTIER, pack_value(meta))
        self._todo, self._parked = todo.total(), parked.total()
        self._writer.flush()

    def _renew_due(self) -> None:
        """One run of all that is known, an empty links log, and the books to match."""
        known = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(self._store, PAGE)} | self._queued
        config, store = self._config, self._store
        manifest = Manifest(
            config.urls.fingerprint, self._fingerprinter.check_value, config.due.method == "memory"
        )
        self.links = list(salvage(self._folder / "links"))
        if known and not manifest.in_memory:
            keys = np.sort(np.fromiter(known, np.uint64, len(known)))
            run = DiskRuns(self._folder / "due", []).write([keys], len(keys), step="repair")
            assert run.entry is not None
            manifest.runs.append(run.entry)
            run.close()
        shutil.rmtree(self._folder / "links", ignore_errors=True)
        repeats = _load_or(store, DUE_FLUSHED, Flushed()).known
        self._writer.put(DUE_RUNS, pack_value(manifest))
        self._writer.put(DUE_LINKS, pack_value(Appended(0, repeats + len(known))))
        self._writer.put(DUE_FLUSHED, pack_value(Flushed(0, repeats, len(known))))
        self._writer.put(COUNTERS, pack_value(self._counters(repeats, len(known))))
        self.done.append(f"due: one run of the {len(known)} URLs known is written anew")

    def _counters(self, repeats: int, known: int) -> dict[str, int]:
        counters = load_counters(self._store) or self._count_outcomes()
        count = counters.get
        counters["urls.to_due"] = repeats + known
        counters["urls.done"] = known - self._todo - self._parked
        gone_on = count("urls.cache_hits", 0) + count("urls.to_outbox", 0) + repeats + known
        counters["urls.resharded"] = gone_on - count("urls.accepted", 0) - count("urls.received", 0)
        for name, prefix in KEPT.items():
            counters[name] = sum(1 for _ in scan_prefix(self._store, prefix))
        return counters

    def _count_outcomes(self) -> dict[str, int]:
        """What the records tell of the fetches, where the counters are lost: the last one of each page."""
        records = (unpack_record(key, value) for key, value in scan_prefix(self._store, PAGE))
        return dict(Counter(f"pages.{record.outcome}" for record in records))


def _load_or(store: LevelStore, key: bytes, default: Flushed) -> Flushed:
    try:
        return load(store, key, Flushed, default)
    except (DamageError, msgspec.MsgspecError):
        return default


def refind(stages: Stages, lost: Iterable[int], links: Iterable[Link], *, reread: bool) -> list[str]:
    """Queue again what is lost: pages without a copy, links that waited, and with `reread` all links of stored pages."""
    lines = []
    if again := _again(stages, lost):
        lines.append(f"{again} pages whose copies are gone are to be fetched again")
    before = stages.due.new
    _queue(
        stages, [link for link in links if stages.topology.partition.owner(link.fingerprint) == stages.name]
    )
    if reread:
        _reread(stages)
    if found := stages.due.new - before:
        lines.append(
            f"{found} URLs that nothing remembered are found again in stored pages and waiting links"
        )
    return lines


def _again(stages: Stages, lost: Iterable[int]) -> int:
    """Make the pages `lost` to-do entries instead of records; how many there were."""
    change = Change(sync=True)
    links = []
    for fingerprint in lost:
        record = stages.pages.record(fingerprint)
        if record is not None:
            links.append(
                Link(fingerprint, record.url, record.depth, record.via, record.redirects, record.flags)
            )
            change.delete(record_key(fingerprint))
    if links:
        queued = _queued(stages)
        fresh = [link for link in links if link.fingerprint not in queued]
        stages.frontier.add(fresh, change, stages.clock.now())
        change.count("urls.done", -len(fresh))
        change.count("stored.records", -len(links))
        change.after.append(lambda: stages.frontier.committed(change, stages.clock.now()))
        stages.commit(change)
    return len(links)


def _queued(stages: Stages) -> set[int]:
    return {
        decode(key, value).fingerprint
        for prefix in (TODO, PARKED)
        for key, value in scan_prefix(stages.store, prefix)
    }


def _reread(stages: Stages) -> None:
    """Let the links of every stored page, every redirect and the seeds pass the DUE once more."""
    waiting: list[Link] = []

    def take(base: str, urls: list[str], via: int, depth: int, flags: int) -> None:
        accepted = stages.intake.take(base, urls, flags=flags)
        for place in stages.topology.partition.split(accepted.fingerprints).get(stages.name, []):
            fingerprint = int(accepted.fingerprints[place])
            waiting.append(Link(fingerprint, accepted.urls[place], depth, via, 0, flags))
        if len(waiting) >= _LINKS_AT_ONCE:
            _queue(stages, waiting)
            waiting.clear()

    seeds = list(stages.config.seeds)
    if seeds:
        take(seeds[0], seeds, 0, 0, int(LinkFlag.SEED))
    for fingerprint, capture in stages.pages.newest_captures():
        record = stages.pages.record(fingerprint)
        if record is not None:
            try:
                urls = links_of(stages.pages.read(capture), stages.config)
            except DamageError:
                continue  # `check` names it
            take(record.url, urls, fingerprint, record.depth + 1, 0)
    for fingerprint, record in stages.pages.all_records():
        if record.location:
            take(record.url, [record.location], fingerprint, record.depth, int(LinkFlag.REDIRECT))
    _queue(stages, waiting)


def _queue(stages: Stages, links: list[Link]) -> None:
    """Append links to the DUE, and flush it."""
    if not links:
        return
    fresh = stages.due.admit(np.array([link.fingerprint for link in links], np.uint64))
    change = Change(sync=True)
    change.links = [link for link, is_fresh in zip(links, fresh, strict=True) if is_fresh]
    change.count("urls.resharded", len(change.links))
    change.count("urls.to_due", len(change.links))
    stages.commit_now(change)


# -- WARC members ------------------------------------------------------------------


def filler(length: int) -> bytes | None:
    """A gzip member of exactly `length` bytes that holds an empty WARC record; None if that is too few."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = compressor.compress(_FILLER) + compressor.flush()
    padding = length - 10 - 1 - len(deflated) - 8
    if padding < 0:
        return None
    head = b"\x1f\x8b\x08\x10" + bytes(4) + b"\x00\xff"  # FCOMMENT: text up to a zero byte
    tail = struct.pack("<II", zlib.crc32(_FILLER), len(_FILLER))
    return head + b" " * padding + b"\0" + deflated + tail


def _member(data: mmap.mmap, at: int, name: str) -> tuple[reading.Record | None, int]:
    """The whole and right record at `at`, and the length of its member; None if there is none."""
    try:
        length = reading.member_length(_chunks(data, at), name)
        record = reading.parse_record(reading.expand(data[at : at + length], where=name), name)
    except DamageError:
        return None, 0
    return (None, 0) if reading.check_digests(record) else (record, length)


def _chunks(data: mmap.mmap, at: int, step: int = 1 << 16) -> Iterator[bytes]:
    return (data[start : start + step] for start in range(at, len(data), step))


def _next_member(data: mmap.mmap, at: int, name: str) -> int | None:
    """Where the next whole record begins."""
    for match in _MEMBER.finditer(data, at):
        if _member(data, match.start(), name)[0] is not None:
            return match.start()
    return None


def _facts(record: reading.Record) -> dict[str, str]:
    lines = record.block.decode("utf-8", "replace").splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _fetch(url: str, at: float, found: Found) -> tuple[Fetch, bytes]:
    """The answer as it was fetched, and the SHA-1 of its payload."""
    message = reading.parse_http(found.answer.block)
    kind = message.header(b"content-type").split(b";")[0].strip().lower().decode("latin-1")
    outcome = found.facts.get("outcome", "")
    digest = reading.payload_digest(found.answer)
    content = reading.decode_payload(message.payload, message.header(b"content-encoding"))
    fetch = Fetch(
        url=url,
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.FETCHED,
        status=message.status,
        headers=message.headers,
        body=message.payload,
        content=content,
        content_type=kind,
        location=message.header(b"location").decode("latin-1"),
        began=at,
    )
    return fetch, digest


def _record(fetch: Fetch, fingerprint: int, digest: bytes, found: Found, at: float) -> PageRecord:
    """The record of a page whose only trace is this capture."""
    number = {name: int(value) for name, value in found.facts.items() if value.isdigit()}
    errand = Errand(
        task=Task.PAGE,
        host=0,
        hostname="",
        url=fetch.url,
        fingerprint=fingerprint,
        depth=number.get("depth", 0),
        redirects=number.get("redirects", 0),
    )
    return next_record(None, fetch, errand, None, payload_digest=digest, digest=b"", now=at)
