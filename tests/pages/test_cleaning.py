"""Test the cleaning of old copies: the copies that are kept, the disk space, and kills at every write."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.config import PagesConfig
from crawler.pages import released
from crawler.pages.captures import capture_key, segment_key
from crawler.pages.cleaning import GRACE, READERS_MAX, Cleaner
from crawler.pages.formats.selection import Selection
from crawler.pages.formats.warc_stream import warc_chunks
from crawler.pages.live_captures import Survey, kept
from crawler.pages.page_cache import PageCache
from crawler.pages.warc import SegmentFacts
from crawler.pages.withdrawals import RuleFile, Subject, Withdrawals
from crawler.records import Capture, Outcome, PageRecord, PageState, ReceiptStamp
from crawler.storage import faults, keys
from crawler.storage.commit import Change, CommitPoint, load_counters
from crawler.storage.engines import open_store
from crawler.storage.kv import MemoryStore, scan_prefix, unseal
from tests.engines import ENGINES
from tests.pages.support import START, NoLinks, fetch, fetch_task, not_modified, records

SEGMENT_BYTES = 20_000
URL = "http://site.example/"


class Killed(Exception):
    """Raised in place of SIGKILL: whatever follows did not happen."""


class Refreshed:
    """A page cache with a commit point and a cleaner, and a model of all answers that were stored."""

    def __init__(self, directory: Path, store: Any, copies: int = 1, **options: Any) -> None:
        self.directory, self.store, self.copies, self.options = directory, store, copies, options
        self.now = START
        # fingerprint -> {key of a committed capture: its payload}, oldest first
        self.model: dict[int, dict[bytes, bytes]] = {}
        self.shown: dict[int, bytes] = {}  # the payload of the last answer that was decided, by fingerprint
        self.open()

    def open(self) -> None:
        config = PagesConfig(segment_bytes=SEGMENT_BYTES)
        facts = SegmentFacts("p0")
        self.cache = PageCache(self.directory, self.store, config, about=facts, **self.options)
        self.point = CommitPoint(self.store, pages=self.cache, due=NoLinks(), group_entries_max=8, sync=True)
        self.cleaner = Cleaner(self.cache, self.copies, SEGMENT_BYTES, lambda: self.now)

    def commit(self) -> None:
        while group := self.point.take():
            self.point.write(group)
            self.point.committed(group)

    def answer(self, fingerprint: int, body: bytes | None) -> None:
        """Queue an answer, or a 304 if there is no body."""
        url = f"{URL}{fingerprint}"
        self.now += 1.0
        instant = self.now

        def make() -> Change:
            change = Change()
            shown = self.shown.get(fingerprint) if body is None else body
            if shown is None:
                return change
            found = not_modified(url) if body is None else fetch(url, body)
            found.began = instant
            capturing = self.cache.capture(found, fetch_task(url, fingerprint), None, instant)
            change.captures.append(capturing)
            change.count("stored.captures", capturing.new_capture)
            self.shown[fingerprint] = shown
            change.after.append(
                lambda: self.model.setdefault(fingerprint, {}).__setitem__(capturing.key, shown)
            )
            return change

        self.point.add(make)

    def clean(
        self, between: Callable[[], object] = lambda: None, made: Callable[[], object] = lambda: None
    ) -> None:
        """Do all that there is to do.

        Call `between` before each step is queued, and before it is made. Call `made` before it is committed.
        """
        for _ in range(2):
            for step in self.cleaner.steps():
                between()
                self.now += 1.0
                if step is not None:
                    self.point.add(step)
                    between()
                    self.point.make()
                    made()
                    self.commit()
            self.now += GRACE

    def check(self) -> None:
        """Compare the archive with the model and verify every record."""
        assert [problem.message for problem in self.cache.check()] == []
        for fingerprint, answers in self.model.items():
            for key, payload in list(answers.items())[-self.copies :]:
                capture = self.cache.capture_at(key)
                assert capture is not None, (fingerprint, key)
                assert self.cache.read(capture).payload == payload
        count = sum(1 for _ in scan_prefix(self.store, keys.CAPTURE))
        assert load_counters(self.store).get("stored.captures", 0) == count
        for key, value in scan_prefix(self.store, keys.PAYLOAD):
            assert self.store.get(unseal(key, value)) is not None

    @property
    def disk(self) -> int:
        """The length of all segments."""
        return sum(path.stat().st_size for path in self.cache.folder.glob("*.warc.gz*"))

    @property
    def live(self) -> int:
        """The bytes of the captures that the store names, all of which are kept after a cleaning."""
        return sum(capture.extent for _, capture in self.cache.stored_captures())


def body_of(rng: random.Random, size: int = 700) -> bytes:
    return b"<p>" + rng.randbytes(size).hex().encode()


def capture(kind: str = "response", **values: Any) -> Capture:
    given: dict[str, Any] = {"status": 200, "fetched_at": 0.0, "refers_to": b"", **values}
    return Capture("s", 0, 1, kind, content_type="", digest=b"", url=URL, **given)


def key_of(instant: float, fingerprint: int = 1) -> bytes:
    return capture_key(fingerprint, instant)


# -- the rule


def test_the_newest_copies_are_kept_and_as_many_failures() -> None:
    """Failures must not displace copies, and must not pile up."""
    captures = [
        (key_of(instant), capture(status=status))
        for instant, status in [(9, 503), (8, 200), (7, 503), (6, 503), (5, 200), (4, 200)]
    ]
    record = PageRecord(URL, PageState.STORED, Outcome.FETCHED, fetched_at=9, changed_at=8)
    assert kept(captures, record, 2) == {key_of(instant) for instant in (9, 8, 7, 5)}


def test_the_copy_of_the_last_change_is_kept() -> None:
    """Later answers are compared with this copy, so that small changes add up."""
    captures = [(key_of(instant), capture()) for instant in (9, 8, 7, 6)]
    record = PageRecord(URL, PageState.STORED, Outcome.FETCHED, fetched_at=9, changed_at=7)
    assert kept(captures, record, 1) == {key_of(9), key_of(7)}


def test_copies_of_a_clock_that_was_ahead_displace_none() -> None:
    captures = [(key_of(instant), capture()) for instant in (99, 9, 8)]
    record = PageRecord(URL, PageState.STORED, Outcome.FETCHED, fetched_at=9, changed_at=9)
    assert kept(captures, record, 1) == {key_of(99), key_of(9)}


def test_the_response_of_a_kept_revisit_is_kept() -> None:
    captures = [
        (key_of(9), capture("revisit", status=304, refers_to=key_of(5))),
        (key_of(8), capture("revisit", status=304, refers_to=key_of(5))),
        (key_of(5), capture()),
        (key_of(4), capture()),
    ]
    record = PageRecord(URL, PageState.STORED, Outcome.FETCHED, fetched_at=9, changed_at=5)
    assert kept(captures, record, 1) == {key_of(9), key_of(5)}
    assert kept(captures[:3], None, 1) == {key_of(9), key_of(5)}


# -- cleaning


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("copies", [1, 3])
def test_random_refreshes(tmp_path: Path, engine: str, copies: int) -> None:
    """The newest copies stay readable while answers are decided between the steps; the disk space stays bounded.

    Many bodies are equal, so revisits refer to responses of other URLs, also to old ones.
    """
    rng = random.Random(copies)
    store = open_store(tmp_path / "store", engine)
    site = Refreshed(tmp_path, store, copies)
    shared = [body_of(rng) for _ in range(6)]

    def visit(count: int = 1) -> None:
        for _ in range(count):
            kind, page = rng.random(), rng.randrange(20)
            site.answer(page, rng.choice(shared) if kind < 0.3 else None if kind < 0.6 else body_of(rng))

    largest, cleaned = 0.0, 0
    for _ in range(12):
        visit(60)
        site.commit()
        site.clean(lambda: visit(rng.choice((0, 0, 0, 1))))
        site.commit()
        site.check()
        largest = max(largest, site.disk / (2 * site.live + 3 * SEGMENT_BYTES))
        cleaned += site.cleaner.take_result().segments
    assert largest <= 1.0
    assert cleaned > 3
    written = sum(len(answers) for answers in site.model.values())
    assert written > 2 * sum(1 for _ in scan_prefix(store, keys.CAPTURE))
    store.close()


def refreshed(directory: Path, store: Any = None, **options: Any) -> Refreshed:
    """Return an archive of ten pages whose copies are mostly old, so that a cleaning is due."""
    site = Refreshed(directory, store if store is not None else MemoryStore(keep_durable=True), **options)
    rng = random.Random(5)
    shared = body_of(rng)
    site.answer(30, body_of(rng))  # a page that is never fetched again
    for round_ in range(5):
        for page in range(10):
            site.answer(page, shared if (page + round_) % 5 == 0 else None if page == 7 else body_of(rng))
        site.commit()
    return site


def writes_of(site: Refreshed, work: Callable[[], None], kill_at: int) -> int:
    """Call `work`, and raise Killed before its n-th write to the store or at its n-th fault point. Count these."""
    count, write = 0, site.store.write

    def step(*_: object) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            raise Killed

    def counted(batch: Any) -> None:
        step()
        write(batch)
        step()

    site.store.write, faults.reach.visited = counted, step
    try:
        work()
    finally:
        site.store.write, faults.reach.visited = write, None
    return count


def test_a_kill_at_any_write_loses_nothing(tmp_path: Path) -> None:
    """After a kill, the archive is opened and cleaned again. The disk space is freed.

    A new segment that is in no key is moved to lost+found, as after any kill. A released segment is not.
    """
    site = refreshed(tmp_path / "whole")
    total = writes_of(site, site.clean, 0)
    assert total > 20
    for kill_at in range(1, total + 1):
        site = refreshed(tmp_path / f"{kill_at}")
        with pytest.raises(Killed):
            writes_of(site, site.clean, kill_at)
        site.cache.close(finish=False)
        site.open()
        site.check()
        site.clean()
        site.check()
        assert site.disk <= 2 * site.live + 2 * SEGMENT_BYTES, kill_at
        assert not released.released_segments(site.store)
        assert all("-kept-" in path.name for path in site.cache.folder.glob("lost+found/*"))
        shutil.rmtree(site.directory)


def test_a_response_that_is_repeated_during_the_cleaning_stays(tmp_path: Path) -> None:
    """The new revisit is decided after the survey has counted the response as garbage."""
    site = refreshed(tmp_path)
    old = next(iter(site.model[3].values()))

    def between() -> None:
        if site.cache.repeated is not None and 10 not in site.shown:
            site.answer(10, old)

    site.clean(between)
    site.check()
    response = site.cache.capture_at(capture_of(site, 10).refers_to)
    assert response is not None
    assert response.url == f"{URL}3"


def test_a_response_that_is_being_dropped_is_not_repeated(tmp_path: Path) -> None:
    """The answer is decided after the change that drops the response, and before this change is committed."""
    site = refreshed(tmp_path)
    old = next(iter(site.model[3].values()))

    def made() -> None:
        if next(iter(site.model[3])) in site.cache.dropping and 10 not in site.model:
            site.answer(10, old)

    site.clean(made=made)
    assert 10 in site.model
    assert capture_of(site, 10).kind == "response"
    site.check()


def capture_of(site: Refreshed, page: int) -> Capture:
    """Return the newest capture of a page."""
    found = site.cache.capture_at(next(reversed(site.model[page])))
    assert found is not None
    return found


def test_readers_keep_segments(tmp_path: Path) -> None:
    """As long as a reader holds the lock, all places that it may know are readable; afterwards, files are deleted."""
    site = refreshed(tmp_path)
    places = [site.cache.capture_at(next(reversed(answers))) for answers in site.model.values()]
    with released.reading(site.cache.folder):
        site.clean()
        site.check()
        for place in places:
            assert place is not None
            assert list(site.cache.raw_pieces(place))
        full = site.disk
        assert site.cleaner.take_result().problems == []
        site.now += READERS_MAX
        site.clean()
        site.now += READERS_MAX
        site.clean()
        (problem,) = site.cleaner.take_result().problems
        assert "`crawler serve` beside a crawl" in problem, "a long reader is named once"
    site.clean()
    assert site.cleaner.take_result().problems == []
    assert site.disk < full / 2
    assert site.disk <= 2 * site.live + 2 * SEGMENT_BYTES
    site.check()


def test_a_reader_delays_the_deletion_at_an_opening(tmp_path: Path) -> None:
    """The file of a released segment stays in place, not in lost+found, and the running process deletes it."""
    site = refreshed(tmp_path)
    with released.reading(site.cache.folder):
        site.clean()
        waiting = released.released_segments(site.store)
        site.cache.close()
        site.open()
        assert all((site.cache.folder / segment).exists() for segment in waiting)
    assert waiting
    site.clean()
    assert not any((site.cache.folder / segment).exists() for segment in waiting)
    assert not released.released_segments(site.store)
    site.check()


def test_nothing_is_cleaned_during_an_erasure(tmp_path: Path) -> None:
    """An erasure lists bytes by their places, so these must not change before it has ended."""
    site = refreshed(tmp_path, withdrawals=Withdrawals(tmp_path))
    rules = RuleFile(tmp_path, rules_max=10)
    rule = rules.add(Subject(url=f"{URL}3").rule(START))

    def note(*, done: bool) -> None:
        rules.note_erasure(rule, done=done)
        for _ in site.cache.withdrawals.reloading():
            pass

    before = dict(site.store.scan(b"c/", b"d"))
    site.clean(between=lambda: note(done=False))
    site.clean()
    assert dict(site.store.scan(b"c/", b"d")) == before
    note(done=True)
    site.clean()
    assert site.cleaner.take_result().segments


def test_a_segment_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    site = refreshed(tmp_path)
    bad = capture_of(site, 30)
    path = site.cache.folder / bad.segment
    path.write_bytes(path.read_bytes()[: bad.offset + 10])
    site.clean()
    problems = site.cleaner.take_result().problems
    assert [bad.segment in problem for problem in problems] == [True]
    assert site.store.get(segment_key(bad.segment)) is not None
    assert capture_of(site, 30) == bad
    site.clean()
    assert not site.cleaner.take_result().problems


def test_shipped_segments_are_not_cleaned(tmp_path: Path) -> None:
    """An object that was shipped is an archive elsewhere, and its note says that the segment is in the store."""
    site = refreshed(tmp_path)
    site.cache.close()
    site.open()
    shipped = [segment for segment, _ in site.cache.committed_lengths()]
    for segment in shipped:
        note = b'{"url": "s3://b/x", "length": 1, "sha256": "", "at": 1}'
        (site.cache.folder / f"{segment}.shipped").write_bytes(note)
    site.clean()
    assert all((site.cache.folder / segment).exists() for segment in shipped)
    assert site.cleaner.take_result().segments == 0
    site.check()


def test_moved_records_have_their_warcinfo_and_receipt(tmp_path: Path) -> None:
    """Each segment can be read alone, even after its captures were moved several times."""
    receipts = {b"d" * 20: b'{"receipt": 1}'}
    site = refreshed(tmp_path, receipt_of=lambda store, fingerprint, digest: receipts.get(digest, b""))
    for round_ in range(12):
        for page in range(20, 26):
            found = fetch(f"{URL}{page}", b"%d" % (page * 100 + (round_ if page % 2 else 0)) * 400)
            capturing = site.cache.capture(found, fetch_task(found.url, page), None, site.now)
            capturing.stamp = ReceiptStamp(b"d" * 20, "consent", b'{"receipt": 1}')
            change = Change()
            change.captures.append(capturing)
            change.count("stored.captures", capturing.new_capture)
            site.point.add(change)
            site.now += 1
        site.commit()
        site.clean()
        for page in range(10):
            site.answer(page, b"%d" % (page * 100 + round_) * 400)
    site.commit()
    site.check()
    kept_segments = [path for path in site.cache.folder.iterdir() if "-kept-" in path.name]
    assert kept_segments
    for path in kept_segments:
        known, receipts_found = set(), 0
        for record in records(path):
            known |= {record.fields["warc-record-id"]} if record.kind == "warcinfo" else set()
            assert record.fields.get("warc-warcinfo-id", next(iter(known))) in known
            receipts_found += b'{"receipt": 1}' in record.block
    export = tmp_path / "export.warc.gz"
    everything = Selection(since=0.0, with_noarchive=True)
    export.write_bytes(
        b"".join(piece for chunk in warc_chunks([site.cache], everything) for piece in chunk.pieces)
    )
    about = ""
    for record in records(export):
        about = record.fields["warc-record-id"] if record.kind == "warcinfo" else about
        assert record.fields.get("warc-warcinfo-id", about) == about


def test_all_copies_are_kept_by_default(tmp_path: Path) -> None:
    site = refreshed(tmp_path, copies=0)
    count = len(dict(site.store.scan(b"c/", b"d")))
    site.clean()
    assert len(dict(site.store.scan(b"c/", b"d"))) == count
    assert not site.cleaner.has_work


def test_revisits_are_dropped_before_their_response(tmp_path: Path) -> None:
    """If they were dropped in the order of their keys, a kill could leave a revisit without its response."""
    site = Refreshed(tmp_path, MemoryStore(keep_durable=True))
    for body in (b"first", None, None, b"second"):
        site.answer(1, body)
        site.commit()
    survey = Survey(site.cache, 1)
    dropped = [capture.kind for found in survey.find({}) if found for _, capture in found]
    assert dropped == ["revisit", "revisit", "response"]


def test_the_note_of_a_segment_is_deleted_with_it(tmp_path: Path) -> None:
    """A segment may be shipped after it was chosen; a note without its segment would go to lost+found."""
    site = refreshed(tmp_path)

    def between() -> None:
        if site.cache.repeated is not None:
            for segment, _ in site.cache.committed_lengths():
                (site.cache.folder / f"{segment}.shipped").touch()

    site.clean(between)
    notes = [path.name.removesuffix(".shipped") for path in site.cache.folder.glob("*.shipped")]
    assert site.cleaner.take_result().segments
    assert {segment for segment, _ in site.cache.committed_lengths()} >= set(notes)
