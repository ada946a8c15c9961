"""Drops old copies while the crawl runs, and frees their disk space (`pages/README.md`, "Old copies").

    begin     from now on, the page cache remembers the responses to which new revisits refer
    survey    find the captures to drop, and choose the segments with most garbage (`live_captures.py`)
    drop      delete the keys of some captures
    move      copy some kept captures of a chosen segment to another segment
    release   delete the key of a chosen segment that holds no captures any more
    delete    delete its file (`released.py`)

This is the cleaning of a log-structured file system (Rosenblum, Ousterhout, *The Design and Implementation of
a Log-Structured File System*, SOSP 1991). Each step is a change in the commit queue, and begins when the steps
before it are durable. So at any moment, each capture is in the place that its key names, and after a kill at most
a few files are left to delete.

A capture that the survey does not keep stays garbage, because captures only become older. There is one
exception: a new revisit may refer to a response that is garbage. So before a response is dropped, it is
looked up among the responses that were repeated since the beginning (`PageCache.repeated`). Once it was
decided to drop a response, no new revisit refers to it (`PageCache.dropping`).
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial

import msgspec

from crawler.errors import DamageError, reason_of
from crawler.pages import released
from crawler.pages.archive import Archive
from crawler.pages.captures import end_of, pack, payload_key, segment_key, unpack_capture
from crawler.pages.live_captures import CapturePlace, Found, Places, Survey, own_key
from crawler.pages.page_cache import PageCache
from crawler.pages.record_rewriting import Rewriting
from crawler.pages.segment_writers import SegmentWriters
from crawler.pages.shipping import note_of
from crawler.records import Capture
from crawler.storage import keys
from crawler.storage.commit import Change, Maker, Making
from crawler.storage.faults import reach
from crawler.storage.kv import Batch, seal, unpacker

PORTION_BYTES = 4 << 20  # maximum number of bytes that one change copies, apart from its last capture
PAUSE_PLACES = 64  # number of places decided between two pauses: about 1 ms
# Garbage of this size is tolerated in addition to garbage of the size of the kept captures, so that a small
# archive is not cleaned all the time.
SLACK_BYTES = 16 << 20
# Seconds between the release of a segment and the deletion of its file, so that readers of this process that
# have just looked up a capture can open the file.
GRACE = 10.0
# If other programs have prevented deletions for this number of seconds, the cleaning says so.
READERS_MAX = 300.0


class LiveBytes(msgspec.Struct, array_like=True):
    """The result of the latest survey, which is stored under `m/live`.

    `copies` is the setting `pages.keep_copies`. `live` is the number of bytes of kept captures. `fixed` is the
    number of bytes in segments that cannot be cleaned.
    """

    copies: int
    live: int
    fixed: int


class Cleaned(msgspec.Struct):
    """The results of a cleaning."""

    dropped: int = 0
    moved: int = 0
    moved_bytes: int = 0
    segments: int = 0
    released_bytes: int = 0
    problems: list[str] = []


class Moved(Rewriting):
    """Kept captures that are moved to another segment. `failed` is set if the records of one cannot be read."""

    captures: list[tuple[bytes, Capture]]
    now: float
    renewed: list[tuple[bytes, Capture]] = []
    failed: str = ""

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Copy the records."""
        for key, capture in self.captures:
            try:
                self.renewed.append((key, segments.mover.move(archive, key, capture, self.now)))
            except DamageError as error:
                self.failed = reason_of(error)
        reach("copies moved")

    def stage(self, batch: Batch) -> None:
        """Put the new places."""
        for key, capture in self.renewed:
            batch.put(key, pack(capture))


class Finished(Rewriting):
    """Segments to which nothing must be appended any more, because they will be cleaned."""

    segments: list[str]

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Complete those of the segments that are open."""
        for segment in self.segments:
            segments.finish(segment)


class Dropping:
    """Decides about captures that the survey does not keep. After `make`, `spared` holds those that must be kept."""

    def __init__(self, pages: PageCache, found: list[Found]) -> None:
        self._pages = pages
        self._found = found
        self.spared: list[Found] = []
        self.dropped = 0

    def make(self) -> Making:
        """Build the change that deletes the keys of the captures."""
        change = Change(sync=True)
        repeated = self._pages.repeated  # the attribute is None as soon as the cleaning is abandoned
        assert repeated is not None
        for number, (key, capture) in enumerate(self._found, 1):
            if own_key(key) in repeated:
                self.spared.append((key, capture))
            elif capture_at(self._pages, key, capture.segment, capture.offset) is not None:
                self._drop(key, capture, change)
            if number % PAUSE_PLACES == 0:
                yield None
        change.count("stored.captures", -self.dropped)
        change.after.append(partial(reach, "copies dropped"))
        return change

    def _drop(self, key: bytes, capture: Capture, change: Change) -> None:
        pages, own = self._pages, own_key(key)
        change.delete(key)
        pages.dropping.add(own)
        change.after.append(partial(pages.dropping.discard, own))
        if pages.response_with(capture.digest) == own and capture.digest not in pages.uncommitted.originals:
            change.delete(payload_key(capture.digest))
        self.dropped += key == own


class Moving:
    """Moves captures of the segment that is being cleaned, at most `PORTION_BYTES`.

    After `make`, the first `taken` of the places are decided.
    """

    def __init__(self, pages: PageCache, segment: str, places: list[CapturePlace], now: float) -> None:
        self._pages = pages
        self._segment = segment
        self._places = places
        self.taken = 0
        self.bytes = 0
        self.moved = Moved([], now)

    def make(self) -> Making:
        """Build the change that moves the captures."""
        change = Change(sync=True)
        change.captures.append(self.moved)
        for key, offset in self._places:
            if self.bytes >= PORTION_BYTES:
                break
            self.taken += 1
            if (capture := capture_at(self._pages, key, self._segment, offset)) is not None:
                self.moved.captures.append((key, capture))
                self.bytes += end_of(capture) - capture.offset
            if self.taken % PAUSE_PLACES == 0:
                yield None
        return change


def capture_at(pages: PageCache, key: bytes, segment: str, offset: int) -> Capture | None:
    """Return the capture with a key, or None if it is not in this place, or a queued change will replace it."""
    value = pages.store.get(key)
    if value is None or pages.uncommitted.has_capture(key):
        return None
    capture = unpack_capture(key, value)
    return capture if (capture.segment, capture.offset) == (segment, offset) else None


class Cleaner:
    """Cleans the archive `pages`, so that it has at most about twice the bytes of its newest `copies` copies.

    With 0 `copies`, all copies are kept. `slack` is the garbage that is tolerated in any case, in bytes. `now`
    returns the time.
    """

    def __init__(self, pages: PageCache, copies: int, slack: int, now: Callable[[], float]) -> None:
        self._pages = pages
        self.copies = copies
        self._slack = slack
        self._now = now
        value = pages.store.get(keys.LIVE_BYTES)
        self._latest = None if value is None else unpacker(LiveBytes)(keys.LIVE_BYTES, value)
        # released segments, with their lengths and the instants at which their files may be deleted
        self._released = [(segment, 0, 0.0) for segment in pages.released]
        self._spoiled: set[str] = set()  # segments with records that cannot be read
        self._halted = False
        # the instant since which other programs have prevented all deletions; None if the latest deletion succeeded
        self._read_since: float | None = None
        self._readers_told = False
        self._result = Cleaned()

    def take_result(self) -> Cleaned:
        """Return what was done since the last call."""
        result, self._result = self._result, Cleaned()
        return result

    # -- when

    @property
    def has_work(self) -> bool:
        """True if copies may have to be dropped, or files deleted, while the process runs."""
        return bool(self.copies or self._released)

    def steps(self) -> Generator[Maker | None, None, None]:
        """Yield what there is to do now: functions that make changes, and None where other work may be done.

        Each function must be put into the commit queue. Continue when its change is durable.
        """
        yield from self._delete()
        if self._is_due():
            yield from self._cleaning()

    def _is_due(self) -> bool:
        """Return whether there may be as much garbage as kept bytes."""
        if not self.copies or self._read_since is not None or self._erases():
            return False
        latest = self._latest
        if latest is None or latest.copies != self.copies:
            return True
        return self._pages.segments.bytes - latest.fixed > 2 * latest.live + self._slack

    def _erases(self) -> bool:
        """Return whether an erasure is not complete.

        An erasure lists bytes by their places, so no capture may be moved meanwhile.
        """
        return any(rule.erasing and not rule.erased for rule in self._pages.withdrawals.rules)

    # -- a cleaning

    def _cleaning(self) -> Iterator[Maker | None]:
        self._halted = False
        try:
            yield self._begin
            survey = Survey(self._pages, self.copies)
            yield from survey.repeated()
            lengths = dict(self._pages.committed_lengths())
            # what was shipped is an archive elsewhere
            cleanable = {
                name: length
                for name, length in lengths.items()
                if name not in self._spoiled and note_of(self._pages.folder, name) is None
            }
            yield from self._dropping(survey.count(cleanable), {})
            fixed = sum(lengths.values()) - sum(cleanable.values())
            yield partial(self._note, LiveBytes(self.copies, survey.live, fixed))
            yield from self._clean(survey)
        finally:
            self._halted = True
            self._pages.repeated = None

    def _begin(self) -> Change:
        """Once this change is durable, all revisits decided before it are in the store."""
        self._pages.repeated = set()
        return Change()

    def _note(self, latest: LiveBytes) -> Change:
        self._latest = latest
        change = Change()
        change.put(keys.LIVE_BYTES, seal(msgspec.msgpack.encode(latest)))
        return change

    def _clean(self, survey: Survey) -> Iterator[Maker | None]:
        chosen = {segment: Places() for segment in survey.chosen(self._slack)}
        yield partial(_rewriting, Finished(list(chosen)))
        yield from self._dropping(survey.find(chosen), chosen)
        for segment, places in chosen.items():
            yield from self._clean_segment(segment, places)
            while sum(length for _, length, _ in self._released) > (survey.live + self._slack) // 4:
                if self._read_since is not None:
                    return
                yield None
                yield from self._delete()

    def _dropping(
        self, scan: Iterator[list[Found] | None], chosen: dict[str, Places]
    ) -> Iterator[Maker | None]:
        """Drop the captures that a scan yields. If a capture must be kept after all, add it to the chosen segments."""
        for found in scan:
            if self._halted:
                return
            if found is None:
                yield None
                continue
            dropping = Dropping(self._pages, found)
            yield partial(self._unless_halted, dropping.make)
            self._result.dropped += dropping.dropped
            for key, capture in dropping.spared:
                if capture.segment in chosen:
                    chosen[capture.segment].add(key, capture)

    def _clean_segment(self, segment: str, places: Places) -> Iterator[Maker | None]:
        """Move the kept captures of a segment, and release the segment."""
        failed = ""
        for rest in places.portions():
            while rest and not self._halted:
                moving = Moving(self._pages, segment, rest, self._now())
                yield partial(self._unless_halted, moving.make)
                rest = rest[moving.taken :]
                self._result.moved += len(moving.moved.renewed)
                self._result.moved_bytes += moving.bytes
                failed = failed or moving.moved.failed
        if failed:
            self._spoiled.add(segment)
            self._result.problems.append(f"{segment} is kept, because it cannot be read: {failed}")
        elif not self._halted:
            yield partial(self._unless_halted, partial(self._release, segment))

    def _unless_halted(self, maker: Maker) -> Change | Making:
        """Make a change of a cleaning, unless the cleaning or its process has ended, or an erasure has begun."""
        self._halted = self._halted or self._erases()
        return Change() if self._halted else maker()

    def _release(self, segment: str) -> Change:
        length = self._pages.segments.release(segment)
        self._pages.releases += 1
        change = Change(sync=True)
        change.delete(segment_key(segment))
        released.stage_release(change, segment, length)
        self._released.append((segment, length, self._now() + GRACE))
        self._result.segments += 1
        self._result.released_bytes += length
        change.after.append(partial(reach, "segment released"))
        return change

    # -- deletion

    def _delete(self) -> Iterator[Maker | None]:
        """Delete the files of segments that were released some time ago."""
        now = self._now()
        due = [segment for segment, _, at in self._released if at <= now]
        if not due:
            return
        deleted = released.Deleted(due)
        yield partial(_rewriting, deleted)
        self._note_readers(not deleted.done, now)
        gone = set(due) if deleted.done else set[str]()
        # if another program reads the folder, the deletion is tried again later
        self._released = [
            (segment, length, now + GRACE if at <= now else at)
            for segment, length, at in self._released
            if segment not in gone
        ]

    def _note_readers(self, has_readers: bool, now: float) -> None:
        if not has_readers:
            self._read_since, self._readers_told = None, False
            return
        self._read_since = now if self._read_since is None else self._read_since
        if now - self._read_since >= READERS_MAX and not self._readers_told:
            self._readers_told = True
            self._result.problems.append(
                f"no disk space is freed, because other programs have read the archive for {READERS_MAX:g} s; "
                "`crawler serve` beside a crawl reads it as long as it runs"
            )


def _rewriting(step: Rewriting) -> Change:
    change = Change(sync=True)
    change.captures.append(step)
    return change
