"""The page cache of a process, which stores answers as captures.

A *capture* is one stored answer of a URL. The bytes of a capture are in a WARC segment. The description of a
capture (`captures.py`) is in the store, and is written in the batch of the capture's commit group. The base
class `Archive` (`archive.py`) reads captures.

An answer passes through these steps, which are parts of a commit:

    capture(fetch, ...)   loop thread     digest, response or revisit, new record
    write(capturings)     writer thread   build, compress, append, sync
    stage(batch)          writer thread   the four keys
    committed()           loop thread     drop the pending state

Decisions are made in the first step, in the order of the commit queue. Uncommitted decisions are taken into
account: if two answers in one group are the same, the second becomes a revisit of the first. Relying on
uncommitted decisions is safe, because groups commit in order, and if a group fails, the process ends.

The cache opens even if a segment is missing or too short: `lost` lists the
lost captures, and `forget` deletes them.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from crawler.config import PagesConfig
from crawler.config.forms import file_name_part
from crawler.errors import CrawlerError, DamageError, Unexpected
from crawler.pages import change_detection, damage, erasure, gzip_members, released, segments, warc
from crawler.pages.answer_digests import AnswerDigests
from crawler.pages.archive import Archive, original_with
from crawler.pages.captures import (
    Capturing,
    Original,
    Problem,
    StoredPage,
    capture_key,
    is_answer,
    is_copy,
    pack,
    payload_key,
    record_key,
)
from crawler.pages.moving import ReceiptOf
from crawler.pages.record_builder import RecordBuilder
from crawler.pages.record_rewriting import Rewriting
from crawler.pages.request_query import url_with
from crawler.pages.segment_writers import SegmentWriters
from crawler.pages.withdrawals import Withdrawals
from crawler.records import (
    Capture,
    Directives,
    Extracted,
    Fetch,
    FetchTask,
    LinkFlag,
    Outcome,
    PageRecord,
    TaskKind,
)
from crawler.storage.kv import Batch, KeyValue, seal

_WITHOUT_RECORD = (TaskKind.ROBOTS, TaskKind.SUBRESOURCE, TaskKind.SITE_FILE, TaskKind.HOP)
_HOPS_CACHED_MAX = 4096  # number of cached URLs (by fingerprint), for the field `via` of records
_RECEIPTS_MAX = 65_536  # number of receipts remembered per segment, so that each one is written only once


class Uncommitted:
    """The records, responses and capture keys that are not committed yet.

    Records are found by fingerprint, and responses by the digest of their payload.
    """

    def __init__(self) -> None:
        self.records: dict[int, PageRecord] = {}
        self.originals: dict[bytes, Original] = {}
        self._captures: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.records) + len(self.originals) + len(self._captures)

    def add_capture(self, key: bytes) -> bool:
        """Add a capture. Return False if a capture with this key is already uncommitted."""
        if key in self._captures:
            return False
        self._captures.add(key)
        return True

    def has_capture(self, key: bytes) -> bool:
        """Return whether a capture with this key is uncommitted."""
        return key in self._captures

    def drop(self, capturing: Capturing) -> None:
        """Forget the committed decisions about an answer. Later decisions about its URL stay."""
        self._captures.discard(capturing.key)
        if self.records.get(capturing.fingerprint) is capturing.record:
            self.records.pop(capturing.fingerprint, None)
        self.drop_original(capturing)

    def drop_original(self, capturing: Capturing) -> None:
        """Drop the response that holds the payload of an answer, unless it is the response of another answer."""
        original = self.originals.get(capturing.payload_digest)
        if original is not None and original.key == capturing.key:
            del self.originals[capturing.payload_digest]

    def __repr__(self) -> str:
        return f"Uncommitted({len(self.records)} records, {len(self._captures)} captures)"


class PageCache(Archive):
    """The captures of one process, in `directory/warc` and `store`.

    The module docstring describes how a capture is stored.

    Args:
        about: the facts that the first record of each segment states.
        comparison: the rule for what counts as a change of a URL; any byte by default.
        fingerprint: returns the fingerprint of a URL. It is used for answers whose fetch task has none (robots.txt).
        keeps: returns whether an answer with this URL and media type is stored.
        random: returns random bytes for record ids.
        sync: whether appended bytes are made durable before a batch refers to them.
        reading: True if nothing is to be written; `store` is then a private copy.
        withdrawals: the rules by which copies are withheld; no rules by default.
        receipt_of: returns a stored consent receipt; by default, there are none.

    Raises:
        ConfigError: prefix or process cannot be part of a file name.
        StoreError, DirectoryError: the folder cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        store: KeyValue,
        config: PagesConfig,
        *,
        about: warc.SegmentFacts,
        comparison: Callable[[str], change_detection.Comparison] = lambda url: change_detection.ANY_BYTE,
        fingerprint: Callable[[str], int] | None = None,
        keeps: Callable[[str, str], bool] = lambda url, media_type: True,
        random: Callable[[int], bytes] = os.urandom,
        sync: bool = True,
        reading: bool = False,
        withdrawals: Withdrawals | None = None,
        receipt_of: ReceiptOf = lambda store, fingerprint, digest: b"",
    ) -> None:
        for name in (config.prefix, about.process):
            file_name_part(name)
        super().__init__(directory / "warc", store, withdrawals)
        decoded = config.store == "decoded"
        self.digests = AnswerDigests(comparison, partial(self.get, with_noarchive=True), decoded=decoded)
        self._unexpected = Unexpected()
        self._fingerprint = fingerprint
        self._nothing = config.store == "none"
        self._keeps = keeps
        self._builder = RecordBuilder(
            decoded=decoded,
            block_digests=config.block_digests,
            random=random,
            url_of=self._url_of,
            with_bodies=config.request_bodies,
        )
        self._compress = gzip_members.compressor(config.gzip_level)
        self._gzip_level = config.gzip_level
        self._reading = reading
        committed = dict(self.committed_lengths())
        # segments without captures whose files must still be deleted (`released.py`)
        self.released = [] if reading else released.finish(self.folder, store)
        self.recovery = (
            segments.survey(self.folder, committed)
            if reading
            else segments.recover(self.folder, committed, self.released)
        )
        # The number of captures whose erasure was interrupted by a kill, and was completed when this process
        # opened the archive.
        self.erased = 0 if reading else erasure.finish(self)
        self.lost = damage.find_lost(self, self.recovery.damaged)
        self.segments = SegmentWriters(
            self.folder,
            config,
            about,
            committed,
            compress=self._compress,
            random=random,
            receipt_of=receipt_of,
            sync=sync,
        )
        # While old copies are being dropped: the responses to which revisits refer that were decided since the
        # cleaning began. They must be kept. None if no cleaning is under way.
        self.repeated: set[bytes] | None = None
        # the responses that queued changes drop; no new revisit may refer to them
        self.dropping: set[bytes] = set()
        self.uncommitted = Uncommitted()
        self._written: list[Capturing] = []
        self._rewritten: list[Rewriting] = []
        self._staged: deque[list[Capturing]] = deque()
        self._urls: dict[int, str] = {}
        # digests of the consent receipts that have a record in the segment `_receipts_in`
        self._receipts: set[bytes] = set()
        self._receipts_in = ""

    def record(self, fingerprint: int) -> PageRecord | None:
        """Return the record of a URL, even if it is not yet committed, or None if the URL was never tried."""
        pending = self.uncommitted.records.get(fingerprint)
        return pending if pending is not None else super().record(fingerprint)

    def put_record(self, batch: Batch, fingerprint: int, record: PageRecord) -> None:
        """Put a record that changed without an answer, for example when the URL is retired or a signal arrives."""
        batch.put(record_key(fingerprint), pack(record))

    # -- first step: decide

    def capture(
        self,
        fetch: Fetch,
        fetch_task: FetchTask,
        extracted: Extracted | None,
        now: float,
        *,
        final: bool = True,
        tags: Directives | None = None,
    ) -> Capturing:
        """Decide how an answer, or a failure, is stored.

        Pass the returned objects to `write` in the order of the calls. If `final` is False, which means that
        another try will follow, the URL's record is updated, but the answer is not stored. `tags` are the
        directives of the answer's X-Robots-Tag fields. A call costs one SHA-1 of the payload and two
        look-ups.
        """
        fingerprint = fetch_task.fingerprint
        if not fingerprint and self._fingerprint is not None:
            fingerprint = self._fingerprint(url_with(fetch.url, self._builder.query_of(fetch)))
        instant = fetch.began or now
        payload = self.digests.payload(fetch)
        capturing = Capturing(
            fetch=fetch,
            fetch_task=fetch_task,
            fingerprint=fingerprint,
            key=capture_key(fingerprint, instant),
            instant=instant,
            stored=final
            and is_answer(fetch)
            and not self._nothing
            and not fetch_task.flags & LinkFlag.EXTERNAL,
            payload=payload,
            payload_digest=self.digests.of_payload(fetch) if fetch.status else b"",
            digest=b"",
        )
        capturing.noarchive = tags is not None and tags.noarchive
        previous = None
        if fetch_task.kind not in _WITHOUT_RECORD:
            previous = self.record(fingerprint)
            self._renew_record(capturing, previous, extracted, tags)
            capturing.stored = capturing.stored and self._keeps(fetch.url, _media_type(fetch, previous))
            capturing.stored = capturing.stored and not self.withdrawals.stops(fetch.url)
            capturing.new_record = previous is None
        if capturing.stored:
            self._choose_kind(capturing, previous)
            # A URL without a record has no stored capture.
            known = (
                not capturing.new_record
                and capturing.key not in self.dropping
                and self.store.get(capturing.key) is not None
            )
            capturing.new_capture = not known and self.uncommitted.add_capture(capturing.key)
        return capturing

    def answer_of(self, url: str) -> StoredPage | None:
        """Return the newest stored answer for a URL (request form), or None if no whole answer is stored.

        Raises:
            DamageError: the bytes of the answer cannot be read.
        """
        if self._fingerprint is None:
            return None
        capture = self.newest_capture(self._fingerprint(url), None)
        return self.read(capture, static=True) if capture is not None and is_copy(capture) else None

    def shows_known(self, fetch: Fetch, fetch_task: FetchTask, previous: PageRecord) -> bool:
        """Return whether the content and directives of an answer are known already, so that it need not be parsed.

        `previous` is the URL's record before the answer.
        """
        digest = self.digests.of_content(fetch, fetch_task, previous)
        if not change_detection.is_unchanged(previous, fetch, digest):
            return False
        return fetch.outcome is Outcome.UNCHANGED or (
            previous.metas >= 0 and self.digests.payload_repeats(fetch, previous)
        )

    def _renew_record(
        self,
        capturing: Capturing,
        previous: PageRecord | None,
        extracted: Extracted | None,
        tags: Directives | None,
    ) -> None:
        fetch = capturing.fetch
        capturing.digest = self.digests.of_content(fetch, capturing.fetch_task, previous)
        capturing.unchanged = change_detection.is_unchanged(previous, fetch, capturing.digest)
        capturing.new_form = change_detection.is_other_form(previous, fetch)
        capturing.returned = change_detection.is_return(previous, fetch, capturing.digest)
        capturing.record = change_detection.next_record(
            previous,
            fetch,
            capturing.fetch_task,
            extracted,
            payload_digest=capturing.payload_digest,
            digest=capturing.digest,
            now=capturing.instant,
            tags=tags,
        )
        if previous is not None and change_detection.is_back(previous, capturing.record):
            shown = self.capture_at(capture_key(capturing.fingerprint, previous.changed_at))
            change_detection.note_same_content(capturing.record, previous, shown, capturing.payload_digest)
        said = extracted or tags
        capturing.noarchive = capturing.record.noarchive or (said is not None and said.noarchive)
        capturing.directives = _directives(said)
        self.uncommitted.records[capturing.fingerprint] = capturing.record
        if len(self._urls) >= _HOPS_CACHED_MAX:
            del self._urls[next(iter(self._urls))]
        self._urls[capturing.fingerprint] = fetch.url

    def _choose_kind(self, capturing: Capturing, previous: PageRecord | None) -> None:
        """Decide whether the answer becomes a response or a revisit.

        If it becomes a response, later revisits of its payload will refer to it.
        """
        if capturing.fetch.outcome is Outcome.UNCHANGED and previous is not None:
            capturing.original = self._original(previous.digest)
            capturing.profile = warc.NOT_MODIFIED if capturing.original else ""
        elif capturing.payload_bytes:
            capturing.original = self._original(capturing.payload_digest)
            capturing.profile = warc.IDENTICAL_PAYLOAD if capturing.original else ""
        if self.repeated is not None and capturing.original is not None:
            self.repeated.add(capturing.original.key)
        if capturing.original is None and capturing.payload_bytes:
            original = Original(capturing.key, capturing.fetch.url, capturing.instant)
            self.uncommitted.originals[capturing.payload_digest] = original

    def _original(self, digest: bytes) -> Original | None:
        """Return the response that holds the payload with this SHA-1, or None if it is missing, withdrawn or dropped."""
        pending = self.uncommitted.originals.get(digest)
        if pending is not None or not digest:
            return pending
        original = original_with(self, digest)
        return None if original is None or original.key in self.dropping else original

    # -- second step: write

    def write(self, items: Sequence[Capturing | Rewriting]) -> int:
        """Append the records of a group durably. Return the number of captures stored without a body after an error.

        If the group contains steps of an erasure or a cleaning (`Rewriting`), they are carried out, too.

        Raises:
            StoreError: the disk failed; nothing of the group may be committed.
        """
        self._written = [item for item in items if isinstance(item, Capturing)]
        self._rewritten = [item for item in items if not isinstance(item, Capturing)]
        bare = sum([self._append(capturing) for capturing in self._written if capturing.stored])
        for item in self._rewritten:
            try:
                item.write(self, self.segments)
            except DamageError as error:  # the bytes were already lost; `check` reports the loss
                self._unexpected.note(error, "a copy that repeats an erased one")
        self.segments.sync(moved=bool(self._rewritten))
        return bare

    def _append(self, capturing: Capturing) -> bool:
        """Append a capture's records; return whether the capture was reduced.

        If the full records cannot be made because of a bug in the crawler, the capture is reduced to URL,
        status and times.
        """
        bare = False
        segment = self.segments.new.writer.turn(capturing.instant)
        self._builder.warcinfo = self.segments.new.first
        if segment != self._receipts_in or len(self._receipts) >= _RECEIPTS_MAX:
            self._receipts_in, self._receipts = segment, set()
        try:
            members = self._members(capturing)
        except CrawlerError:
            raise
        except Exception as error:
            # if the error were raised, it would end this run, and later each run that fetches the page
            self._unexpected.note(error, f"WARC records of {capturing.fetch.url}; the body is not stored")
            self.uncommitted.drop_original(capturing)
            capturing.make_bare()
            members, bare = self._members(capturing), True
        places = self.segments.new.writer.append(members, capturing.instant)
        place = places[0]
        if capturing.stamp is not None:
            self._receipts.add(capturing.stamp.digest)
        fetch, record = capturing.fetch, capturing.record
        confirmed = record if record is not None and fetch.outcome is Outcome.UNCHANGED else None
        capturing.capture = Capture(
            segment=place.segment,
            offset=place.offset,
            length=place.length,
            kind="revisit" if capturing.profile else "response",
            fetched_at=capturing.instant,
            status=fetch.status,
            content_type=confirmed.content_type if confirmed else change_detection.content_type(fetch),
            digest=confirmed.digest if confirmed else capturing.payload_digest,
            url=fetch.url,
            refers_to=capturing.original.key if capturing.original else b"",
            noarchive=capturing.noarchive,
            extent=sum(each.length for each in places),
            broken=fetch.outcome is Outcome.TRUNCATED,
            receipt=capturing.stamp.digest if capturing.stamp is not None else b"",
            query=self._builder.query_of(fetch),
        )
        if capturing.fetch.shown is not None:  # the DOM's record is the last one
            capturing.capture.dom_length = places[-1].length
            capturing.capture.dom_offset = capturing.capture.extent - places[-1].length
        return bare

    def _members(self, capturing: Capturing) -> list[segments.Member]:
        """Return the gzip members of a capture's records.

        If a file is large, its member is an iterator over pieces of it. Each segment has a record of every
        consent receipt to which the captures in it refer. So a segment can be read without the others.
        """
        new = capturing.stamp is not None and capturing.stamp.digest not in self._receipts
        return [
            self._compress(record)
            if isinstance(record, bytes)
            else gzip_members.compressed(record, self._gzip_level)
            for record in self._builder.records(capturing, with_receipt=new)
        ]

    def _url_of(self, fingerprint: int) -> str:
        url = self._urls.get(fingerprint)
        if url is None:
            record = super().record(fingerprint)
            url = record.url if record is not None else f"urn:fingerprint:{fingerprint:016x}"
        return url

    # -- third step: put the keys

    def stage(self, batch: Batch) -> None:
        """Put the `u/`, `c/`, `g/` and `w/` keys of the captures that the last `write` appended."""
        for capturing in self._written:
            # an erasure may be deleting the record of a withdrawn URL at this time
            is_kept_back = not capturing.new_record and self.withdrawals.stops(capturing.fetch.url)
            if capturing.record is not None and not is_kept_back:
                self.put_record(batch, capturing.fingerprint, capturing.record)
            if capturing.capture is not None:
                batch.put(capturing.key, pack(capturing.capture))
                if capturing.original is None and capturing.payload_bytes:
                    batch.put(payload_key(capturing.payload_digest), seal(capturing.key))
        for item in self._rewritten:
            item.stage(batch)
        self.segments.stage(batch)
        self._staged.append(self._written)
        self._written, self._rewritten = [], []

    def committed(self) -> None:
        """Record that the oldest staged group is now durable.

        The loop thread calls this once per group.
        """
        for capturing in self._staged.popleft():
            self.uncommitted.drop(capturing)

    def close(self, *, finish: bool = True) -> None:
        """Finish the open segment; without `finish`, only close its file. Nothing may be written afterwards.

        Raises:
            StoreError: the disk failed.
        """
        self.segments.close(finish=finish)

    # -- damage

    def forget(self, batch: Batch) -> None:
        """Delete the captures in `lost`, and the keys that depend on them.

        The `u/` keys are left to the caller.
        """
        damage.forget(self, batch, self.lost, self.recovery.damaged)

    def check(self, sharing: damage.Sharing = map) -> Iterator[Problem]:
        """Read every committed record and verify its digests; yield each problem found."""
        return damage.check(self, sharing, tails=not self._reading)

    def _check(self) -> None:
        """Assert the invariants that hold between two commit groups."""
        assert len(self._urls) <= _HOPS_CACHED_MAX
        if not self._written and not self._staged:
            assert not self.uncommitted, self.uncommitted

    def __repr__(self) -> str:
        return f"PageCache({self.segments!r}, {self.uncommitted!r})"


def _media_type(fetch: Fetch, previous: PageRecord | None) -> str:
    """Return the media type of an answer. For a 304, it is the media type of the stored page."""
    confirms = fetch.outcome is Outcome.UNCHANGED and previous is not None
    return previous.content_type if confirms and previous is not None else fetch.content_type


def _directives(said: Extracted | Directives | None) -> str:
    names = ("nofollow", "noindex", "noarchive") if said is not None else ()
    return " ".join([name for name in names if getattr(said, name)])
