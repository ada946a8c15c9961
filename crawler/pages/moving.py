"""Copies the records of captures to other segments of the same archive, or of another one.

Records are copied byte by byte. In addition, each segment gets the records that its captures need, so that
the segment can be read without the others: a copy of the warcinfo record to which the captures refer, and the
consent receipt of each capture. A segment has at most one copy of each.
"""

import os
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from crawler.pages import reading, warc
from crawler.pages.archive import Archive
from crawler.pages.captures import end_of, fingerprint_of
from crawler.pages.segments import Member, SegmentWriter
from crawler.records import Capture, ReceiptStamp
from crawler.storage.kv import KeyValue

_WHOLE_BYTES_MAX = 1 << 20  # captures with at most this many bytes are read in one step

# Maps (store, fingerprint, digest) to the consent receipt as JSON, or to b"" if it is not in the store.
ReceiptOf = Callable[[KeyValue, int, bytes], bytes]


class Mover:
    """Copies captures to the segments of `writer`, which must not be used otherwise.

    `first` returns the id of the first record of the open segment.
    """

    def __init__(
        self,
        writer: SegmentWriter,
        compress: Callable[[bytes], bytes],
        receipt_of: ReceiptOf,
        first: Callable[[], bytes],
    ) -> None:
        self._writer = writer
        self._compress = compress
        self._receipt_of = receipt_of
        self._first = first
        # for the open segment: the offsets of its warcinfo records by id, and the digests of its receipts
        self._segment = ""
        self._warcinfos: dict[str, int] = {}
        self._receipts: set[bytes] = set()
        # the warcinfo record that was read last, under its segment and offset
        self._read: tuple[tuple[str, int], bytes, str] = ("", 0), b"", ""

    def move(self, archive: Archive, key: bytes, capture: Capture, now: float) -> Capture:
        """Copy the records of a capture; return the capture with its new place.

        Raises:
            DamageError: the records cannot be read; nothing is written.
            StoreError: the disk failed.
        """
        member = _records(archive, replace(capture, extent=end_of(capture) - capture.offset))
        place = capture.segment, capture.warcinfo
        if self._read[0] != place:
            data, record = warcinfo_record(archive, *place)
            self._read = place, data, record.fields.get("warc-record-id", "")
        segment = self._writer.turn(now)
        if segment != self._segment:
            self._segment, self._receipts = segment, set()
            self._warcinfos = {self._first().decode(): 0}
        _, warcinfo, identity = self._read
        first: list[Member] = [] if identity in self._warcinfos else [warcinfo]
        # a rebuild of the store assigns the receipt to the capture before it
        members = [*first, member, *self._receipt(archive.store, key, capture)]
        places = self._writer.append(members, now)
        if first:
            self._warcinfos[identity] = places[0].offset
        return replace(
            capture, segment=segment, offset=places[len(first)].offset, warcinfo=self._warcinfos[identity]
        )

    def _receipt(self, store: KeyValue, key: bytes, capture: Capture) -> Iterator[bytes]:
        """Yield a record of the consent receipt of a capture, unless the open segment has one or it is lost."""
        if not capture.receipt or capture.receipt in self._receipts:
            return
        self._receipts.add(capture.receipt)
        if block := self._receipt_of(store, fingerprint_of(key), capture.receipt):
            identity, date = warc.record_ids(os.urandom, 1)[0], warc.date_text(capture.fetched_at)
            yield self._compress(warc.receipt(identity, date, ReceiptStamp(capture.receipt, "", block)))


def _records(archive: Archive, capture: Capture) -> Member:
    """Return the records of a capture, in pieces if they are large."""
    if capture.extent <= _WHOLE_BYTES_MAX:
        return b"".join(archive.raw_pieces(capture))
    # read all pieces once before the first one is written, because a piece may be unreadable
    for _ in archive.raw_pieces(capture):
        pass
    return archive.raw_pieces(capture)


def warcinfo_record(archive: Archive, segment: str, offset: int = 0) -> tuple[bytes, reading.Record]:
    """Return a warcinfo record of a segment, by default the first one, as a gzip member and parsed."""
    data = archive.warcinfo(segment, offset)
    return data, reading.parse_record(reading.expand(data, where=f"{segment} at {offset}"))
