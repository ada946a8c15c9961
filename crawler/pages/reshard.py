"""Moves the page cache to the new processes when a crawl is resharded.

Records and captures go where their buckets go. A `g/` key goes where its capture goes. A WARC segment whose
captures all go to one new process is linked, not copied. If the captures of a segment go to several
processes, the segment is divided. Each process gets a segment of its own with the records of its captures,
copied byte by byte. So no process holds records of another process, and the folder of a process can be moved
to another disk later. A segment that was shipped to object storage is not divided, because the object in that
storage cannot be divided.

A revisit record refers to the response that it repeats. If the host of this response moves to another
process, the reference would break. So the response is copied into a special segment, and a key `v/` stores
the place of the copy.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from crawler.errors import ShippedError
from crawler.pages import gzip_members, reading, warc
from crawler.pages.archive import Archive
from crawler.pages.captures import pack, segment_key, unpack_capture
from crawler.pages.moving import Mover, ReceiptOf, warcinfo_record
from crawler.pages.segments import SegmentWriter, next_serial, segment_path
from crawler.pages.shipping import NOTE, note_of
from crawler.records import Capture
from crawler.storage.files import link_or_copy, sync_directory
from crawler.storage.keys import CAPTURE, ELSEWHERE, PAGE, PAYLOAD, SEGMENT
from crawler.storage.kv import scan_prefix, seal, unseal
from crawler.storage.reshard import NewProcess, OldProcess

_CAPTURES_MAX = 500_000  # maximum number of captures of divided segments in memory; they take about 200 MB
_GZIP_LEVEL = 6


def move(to: NewProcess, series: str, receipt_of: ReceiptOf) -> None:
    """Move records, captures, payload keys and segments to a new process. Names of new segments begin with `series`.

    Raises:
        DamageError: a value or a record is damaged.
        StoreError: the disk failed.
    """
    for _ in to.copy(PAGE):
        pass
    for _ in to.copy(CAPTURE):
        pass
    _Segments(to, series, receipt_of).move()
    for source in to.sources:
        for key, value in scan_prefix(source.store, PAYLOAD):
            if to.owns_key(unseal(key, value)):
                to.put(key, value)
    if to.heir:
        _keep_lost_and_found(to)


class _Segments:
    """Makes hard links to the segments that hold only captures of the new process, and divides the other segments."""

    def __init__(self, to: NewProcess, series: str, receipt_of: ReceiptOf) -> None:
        self._to = to
        self._folder = to.folder / "warc"
        self._about: reading.Record | None = None  # the warcinfo record of the segment that is being divided
        self._compress = gzip_members.compressor(_GZIP_LEVEL)
        committed = (key[2:].decode() for each in to.sources for key, _ in scan_prefix(each.store, SEGMENT))
        self._writer = SegmentWriter(
            self._folder,
            series,
            segment_bytes=1 << 62,  # no limit: a part of a segment is never longer than the segment
            serial=next_serial(list(committed)),
            opening=self._opening,
        )
        self._mover = Mover(self._writer, self._compress, receipt_of, self._first)
        self._linked: set[str] = set()

    def _opening(self, name: str, now: float) -> bytes:
        """Return the first record of the divided segment.

        The record keeps its id, because the other records refer to this id.
        """
        assert self._about is not None
        lines = self._about.block.decode("utf-8", "replace").splitlines()
        facts = (line.partition(": ")[::2] for line in lines)
        return self._compress(warc.warcinfo(self._first(), warc.date_text(now), name, facts))

    def _first(self) -> bytes:
        """Return the id of the first record of the divided segment."""
        assert self._about is not None
        return self._about.fields["warc-record-id"].encode()

    def move(self) -> None:
        """Link or divide each segment. Store the lengths of the new segments and the new places of the captures."""
        self._folder.mkdir()
        own, all_of, repeated = self._survey()
        divided = []
        for segment in own:
            holders = [each for each in self._to.sources if each.store.get(segment_key(segment)) is not None]
            assert holders, segment
            if own[segment] == all_of[segment] or note_of(holders[0].folder / "warc", segment):
                self._link(holders[0], segment)
            else:
                divided.append(segment)
        for portion in _portions(divided, all_of):
            for source, captures in self._captures_of(portion):
                self._divide(source, captures)
        self._about = None
        for key in sorted(repeated):
            self._bring_original(key)
        self._finish()
        sync_directory(self._folder)

    def _survey(self) -> tuple[Counter[str], Counter[str], set[bytes]]:
        """Return, by segment, the number of own captures and of all captures, and the set `repeated`.

        Own captures are those that go to the new process. `repeated` holds the keys of responses that go to
        another process although own captures (revisits) refer to them.
        """
        own, all_of, repeated = Counter[str](), Counter[str](), set[bytes]()
        for source in self._to.sources:
            for key, value in scan_prefix(source.store, CAPTURE):
                capture = unpack_capture(key, value)
                all_of[capture.segment] += 1
                if self._to.owns_key(key):
                    own[capture.segment] += 1
                    if capture.refers_to and not self._to.owns_key(capture.refers_to):
                        repeated.add(capture.refers_to)
        return own, all_of, repeated

    def _link(self, source: OldProcess, segment: str) -> None:
        if segment in self._linked:
            return
        self._linked.add(segment)
        warc_folder = source.folder / "warc"
        if note_of(warc_folder, segment):
            link_or_copy(warc_folder / (segment + NOTE), self._folder / (segment + NOTE))
        with suppress(ShippedError):
            link_or_copy(segment_path(warc_folder, segment), self._folder / segment)
        key = segment_key(segment)
        value = source.store.get(key)
        assert value is not None, segment
        self._to.put(key, seal(unseal(key, value)))

    def _captures_of(self, segments: set[str]) -> Iterator[tuple[OldProcess, list[tuple[bytes, Capture]]]]:
        """For each segment, yield (source, (key, capture) pairs in file order).

        The pairs include captures that go to other processes.
        """
        for source in self._to.sources:
            found: dict[str, list[tuple[bytes, Capture]]] = {}
            for key, value in scan_prefix(source.store, CAPTURE):
                capture = unpack_capture(key, value)
                if capture.segment in segments:
                    found.setdefault(capture.segment, []).append((key, capture))
            for captures in found.values():
                captures.sort(key=lambda item: item[1].offset)
                yield source, captures

    def _divide(self, source: OldProcess, captures: Iterable[tuple[bytes, Capture]]) -> None:
        """Write a new segment with the records of those captures of one segment that go to the new process."""
        archive = Archive(source.folder / "warc", source.store)
        self._about = None
        for key, capture in captures:
            if self._to.owns_key(key):
                self._to.put(key, pack(self._move(archive, key, capture)))
        self._finish()

    def _move(self, archive: Archive, key: bytes, capture: Capture) -> Capture:
        """Write the records of a capture; return the capture with its new place."""
        if self._about is None:
            _, self._about = warcinfo_record(archive, capture.segment)
        return self._mover.move(archive, key, capture, capture.fetched_at)

    def _finish(self) -> None:
        self._writer.finish()
        for segment, length in self._writer.take_lengths().items():
            self._to.put(segment_key(segment), seal(length.to_bytes(8, "big")))

    def _bring_original(self, key: bytes) -> None:
        """Copy a response from another process, and put the place of the copy under `v/`."""
        elsewhere = ELSEWHERE + key[2:]
        for source in self._to.sources:
            value = source.store.get(key) or source.store.get(elsewhere)
            if value is None:
                continue
            capture, archive = unpack_capture(key, value), Archive(source.folder / "warc", source.store)
            if note_of(archive.folder, capture.segment):
                self._link(source, capture.segment)
            else:
                capture = self._move(archive, key, capture)
            return self._to.put(elsewhere, pack(capture))


def _portions(segments: Iterable[str], captures: Counter[str]) -> Iterator[set[str]]:
    """Yield sets of segments with at most `_CAPTURES_MAX` captures.

    A segment with more captures is a set of its own.
    """
    portion, count = set[str](), 0
    for segment in segments:
        if portion and count + captures[segment] > _CAPTURES_MAX:
            yield portion
            portion, count = set(), 0
        portion.add(segment)
        count += captures[segment]
    if portion:
        yield portion


def _keep_lost_and_found(to: NewProcess) -> None:
    """Link the files in lost+found into the folder of the new process, because they belong to no bucket."""
    for source in to.sources:
        for path in sorted((source.folder / "warc/lost+found").glob("*")):
            link_or_copy(path, to.folder / "warc/lost+found" / f"{source.name}-{path.name}")
