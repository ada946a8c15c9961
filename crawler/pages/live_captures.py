"""Finds out which captures are kept, and chooses the segments to clean.

The survey scans the captures of the store three times, in slices:

    repeated    find the responses to which kept revisits of other URLs refer
    count       count the bytes that are kept in each segment; find the revisits to drop.
                `chosen` then names the segments with most garbage
    find        find the responses to drop, and the kept captures in the chosen segments

Revisits are dropped before responses, so no revisit in the store ever refers to a response that was dropped.

A scan takes about 5 us per capture. The first scan needs 100 bytes of memory per distinct response that it
finds. The third scan needs 24 bytes per kept capture in the chosen segments; at most `PLACES_MAX` of these are
held at once.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from crawler.pages.archive import Archive
from crawler.pages.captures import capture_key, end_of, fingerprint_of, is_copy, unpack_capture
from crawler.records import Capture, PageRecord
from crawler.storage import keys
from crawler.storage.kv import KeyValue, after_prefix

PAUSE_ENTRIES = 200  # number of entries examined between two pauses: about 1 ms
PLACES_MAX = 1 << 20
PORTION_ENTRIES = 256
_RUN_PLACES = 1 << 16  # places are sorted by offset in runs of this length: about 5 ms


class SegmentUse(msgspec.Struct):
    """The use of a segment: its length, and the number of bytes in it that belong to kept captures."""

    length: int
    live: int = 0

    @property
    def garbage(self) -> int:
        return self.length - self.live


class CapturePlace(NamedTuple):
    """The place of a capture in a chosen segment: its key (`c/` or `v/`) and its offset."""

    key: bytes
    offset: int


Found = tuple[bytes, Capture]  # a capture and its key


class Survey:
    """Surveys `archive`. The newest `copies` copies of each URL are kept.

    Each generator of this class yields None whenever other work may be done. The other values that it yields
    are captures to drop, at most `PORTION_ENTRIES` at a time. These values have at least one capture.
    """

    def __init__(self, archive: Archive, copies: int) -> None:
        self._archive = archive
        self._copies = copies
        self._repeated: set[bytes] = set()
        self.uses: dict[str, SegmentUse] = {}

    # -- the scans

    def repeated(self) -> Iterator[None]:
        """Find the responses to which kept revisits of other URLs refer."""
        for found in self._captures():
            if found is None:
                yield
                continue
            key, capture, is_kept = found
            if is_kept and capture.refers_to and capture.refers_to[:10] != key[:10]:
                self._repeated.add(capture.refers_to)

    def count(self, lengths: Mapping[str, int]) -> Iterator[list[Found] | None]:
        """Count the kept bytes of the segments in `lengths`, which maps segments to their lengths.

        Yield the revisits to drop.
        """
        self.uses = {segment: SegmentUse(length) for segment, length in lengths.items()}

        def is_dropped(key: bytes, capture: Capture, is_kept: bool) -> bool:
            if is_kept and (use := self.uses.get(capture.segment)) is not None:
                use.live += end_of(capture) - capture.offset
            return not is_kept and bool(capture.refers_to)

        return self._dropped(is_dropped)

    def find(self, chosen: "dict[str, Places]") -> Iterator[list[Found] | None]:
        """Add the kept captures in the chosen segments to `chosen`; yield the responses to drop.

        If there are too many kept captures, remove segments from `chosen`.
        """
        count = 0

        def is_dropped(key: bytes, capture: Capture, is_kept: bool) -> bool:
            nonlocal count
            if is_kept and (places := chosen.get(capture.segment)) is not None:
                places.add(key, capture)
                count += 1
                if count > PLACES_MAX and len(chosen) > 1:
                    count -= len(chosen.popitem()[1])
            return not is_kept

        return self._dropped(is_dropped)

    def _dropped(self, is_dropped: Callable[[bytes, Capture, bool], bool]) -> Iterator[list[Found] | None]:
        """Yield the captures for which `is_dropped(key, capture, is_kept)` is true, and None in between."""
        portion: list[Found] = []
        for found in self._places():
            if found is None:
                yield None
            elif is_dropped(*found):
                portion.append(found[:2])
                if len(portion) == PORTION_ENTRIES:
                    yield portion
                    portion = []
        if portion:
            yield portion

    def _captures(self) -> Iterator[tuple[bytes, Capture, bool] | None]:
        """Yield (key, capture, is_kept) for each capture; `is_kept` is the answer of the rule for one URL."""
        group: list[Found] = []
        for entry in _in_slices(self._archive.store, keys.CAPTURE):
            if entry is None:
                yield None
                continue
            if group and entry[0][:10] != group[0][0][:10]:
                yield from self._judged(group)
                group = []
            group.append((entry[0], unpack_capture(*entry)))
        yield from self._judged(group)

    def _judged(self, group: list[Found]) -> Iterator[tuple[bytes, Capture, bool]]:
        """Yield the captures of one URL, with whether they are kept.

        If some are not kept, revisits come first, because they must be dropped before their responses.
        """
        if len(group) <= self._copies:
            return ((key, capture, True) for key, capture in group)
        record = Archive.record(self._archive, fingerprint_of(group[0][0]))
        keeps = kept(reversed(group), record, self._copies)
        group.sort(key=lambda found: not found[1].refers_to)
        return ((key, capture, key in keeps) for key, capture in group)

    def _places(self) -> Iterator[tuple[bytes, Capture, bool] | None]:
        """Yield (key, capture, is_kept) for each capture, also for responses that a reshard copied."""
        for found in self._captures():
            yield found and (found[0], found[1], found[2] or found[0] in self._repeated)
        for entry in _in_slices(self._archive.store, keys.ELSEWHERE):
            yield entry and (entry[0], unpack_capture(*entry), own_key(entry[0]) in self._repeated)

    # -- the choice

    def chosen(self, slack: int) -> list[str]:
        """Return the segments to clean, those with the largest share of garbage first.

        After the cleaning, there is at most half as much garbage as kept bytes and `slack` together. At least
        a third of the bytes in the chosen segments is garbage. So on average, each byte that is freed costs at
        most two bytes that are copied.
        """
        garbage = sum(use.garbage for use in self.uses.values())
        allowed = (self.live + slack) // 2
        chosen = []
        for segment, use in sorted(self.uses.items(), key=lambda item: item[1].live / (item[1].length or 1)):
            if garbage <= allowed or 3 * use.garbage < use.length:
                break
            chosen.append(segment)
            garbage -= use.garbage
        return chosen

    @property
    def live(self) -> int:
        """The number of bytes that are kept in the counted segments."""
        return sum(use.live for use in self.uses.values())


class Places:
    """Places of captures in one segment, in 24 bytes each."""

    def __init__(self) -> None:
        self._rows = array("Q")

    def __len__(self) -> int:
        return len(self._rows) // 3

    def add(self, key: bytes, capture: Capture) -> None:
        place = capture.offset << 1 | (key[:2] == keys.ELSEWHERE)
        self._rows.extend((place, int.from_bytes(key[2:10], "big"), int.from_bytes(key[10:], "big")))

    def portions(self) -> Iterator[list[CapturePlace]]:
        """Yield all places in lists of at most `PORTION_ENTRIES`, nearly in the order of the file."""
        rows = np.frombuffer(self._rows, np.uint64).reshape(-1, 3)
        for begin in range(0, len(rows), _RUN_PLACES):
            run = rows[begin : begin + _RUN_PLACES]
            order = np.argsort(run[:, 0])
            for first in range(0, len(order), PORTION_ENTRIES):
                portion = run[order[first : first + PORTION_ENTRIES]]
                yield [_place(*row) for row in portion.tolist()]


def _place(place: int, fingerprint: int, milliseconds: int) -> CapturePlace:
    family = keys.ELSEWHERE if place & 1 else keys.CAPTURE
    return CapturePlace(family + fingerprint.to_bytes(8, "big") + milliseconds.to_bytes(8, "big"), place >> 1)


def own_key(key: bytes) -> bytes:
    """Return the `c/` key to which revisits refer, also for a response that is stored under `v/`."""
    return keys.CAPTURE + key[2:]


def _in_slices(store: KeyValue, prefix: bytes) -> Iterator[tuple[bytes, bytes] | None]:
    """Yield the entries of a family, and None after each slice. Each slice is a new scan, which pins no old tables."""
    begin, end = prefix, after_prefix(prefix)
    while begin:
        following = b""
        for number, (key, value) in enumerate(store.scan(begin, end)):
            if number == PAUSE_ENTRIES:
                following = key
                break
            yield key, value
        begin = following
        if begin:
            yield None


def kept(newest_first: Iterable[Found], record: PageRecord | None, copies: int) -> set[bytes]:
    """Return the keys of the captures of one URL that are kept. `record` is the URL's record, if it has one.

    These captures are kept:

    * the newest `copies` captures that show the page, and the newest `copies` of the other captures
    * the copy that was the newest one at the last change, because later answers are compared with it
    * captures later than the last answer; they were stored while the clock was ahead
    * the responses of this URL to which one of these captures refers
    """
    seen, keys, responses = set[bytes](), set[bytes](), set[bytes]()
    counts, is_compared = [0, 0], record is None
    for key, capture in newest_first:
        seen.add(key)
        keeps = record is not None and key > capture_key(fingerprint_of(key), record.fetched_at)
        if not keeps:
            shows = is_copy(capture)
            counts[shows] += 1
            keeps = counts[shows] <= copies
            if record is not None and shows and not is_compared:
                is_compared = key <= capture_key(fingerprint_of(key), record.changed_at)
                keeps = keeps or is_compared
        if keeps:
            keys.add(key)
            responses.add(capture.refers_to)
    return keys | responses & seen
