"""Erases withdrawn copies: decides what an erasure changes in the store and in the segments.

    detach    a copy that is not withdrawn but repeats a withdrawn response gets records of its own
    erase     the keys of withdrawn copies are deleted; their bytes are listed under `j/`
    blank     the listed bytes are overwritten (`erased_bytes.py`)

Each step is one commit, which writes files before keys. So a copy that must move (`Detached`) is in its new
place before its key names that place. The batch that deletes the keys of a copy also stores which bytes of
the segment belong to the copy. If the process is killed, the bytes that were already listed are overwritten
when the archive is next opened. The remaining copies are erased when the command is repeated.
`pages/README.md`, "Withdrawals", describes what happens to a revisit whose response is erased.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from crawler.pages import reading, warc
from crawler.pages.archive import Archive, original_with
from crawler.pages.captures import Original, end_of, pack, payload_key, record_key, tombstone_key
from crawler.pages.erased_bytes import overwrite
from crawler.pages.record_rewriting import Rewriting
from crawler.pages.segment_writers import SegmentWriters
from crawler.pages.withdrawals import Erased, Withdrawal, url_digest
from crawler.records import Capture, Outcome, PageRecord, PageState
from crawler.storage import keys
from crawler.storage.faults import reach
from crawler.storage.kv import Batch, KeyValue, after_prefix, scan_prefix, seal, unseal

# Key families that hold what the crawl knows about a URL, under the URL's fingerprint.
_OF_A_PAGE = (keys.PAGE, keys.REFRESH, keys.ASKED, keys.READINGS, keys.BIRTHS, keys.SIGNALS)


class Detached(Rewriting):
    """A copy that is written again, because the response that it repeats will be erased.

    `original` is the response to which the copy refers from now on. It is None if the copy is written as a
    complete response. `renewed` is the new capture of the copy, and is set when the records of the copy are
    written.
    """

    key: bytes
    capture: Capture
    original: Original | None
    renewed: Capture | None = None

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Append the records of this copy to the archive. Runs in the writer thread.

        Raises:
            DamageError: the bytes of the copy cannot be read.
        """
        capture = self.capture
        raw = b"".join(archive.raw_pieces(capture))
        where = f"{capture.segment} at {capture.offset}"
        old = reading.parse_record(reading.expand(raw[: capture.length], where=where), where)
        # the id is kept, because the request and metadata records use it to refer to the response
        rest = raw[capture.length :]
        made, status = self._answer(archive, old)
        first = segments.compress(made)
        place = segments.new.writer.append([first, rest] if rest else [first], capture.fetched_at)[0]
        self.renewed = replace(
            capture,
            segment=place.segment,
            offset=place.offset,
            length=place.length,
            extent=len(first) + len(rest),
            dom_offset=capture.dom_offset + len(first) - capture.length if capture.dom_length else 0,
            kind="revisit" if self.original else "response",
            status=status,
            refers_to=self.original.key if self.original else b"",
        )

    def _answer(self, archive: Archive, old: reading.Record) -> tuple[bytes, int]:
        """Return the new record of the answer, and the status of the answer."""
        capture = self.capture
        target = warc.target_fields(
            capture.url,
            old.fields.get("warc-ip-address", ""),
            old.fields.get("warc-protocol", ""),
            old.fields.get("warc-warcinfo-id", "").encode(),
        )
        of = warc.Heading(old.fields["warc-record-id"].encode(), warc.date_text(capture.fetched_at), target)
        if self.original is None:
            page = archive.read(capture, static=True)
            line = f"{page.version} {page.status:03d} {page.reason}".encode("latin-1", "replace")
            head = warc.http_head(line, page.headers)
            return warc.response(of, head, page.payload, capture.digest), page.status
        record = warc.revisit(
            of,
            old.block,
            capture.digest,
            profile=old.fields.get("warc-profile", warc.IDENTICAL_PAYLOAD),
            refers_to_url=self.original.url,
            refers_to_date=warc.date_text(self.original.fetched_at),
        )
        return record, capture.status

    def stage(self, batch: Batch) -> None:
        """Put the new place of the copy into the batch, and list the copy's old bytes for overwriting."""
        if self.renewed is None:
            return
        batch.put(self.key, pack(self.renewed))
        if self.original is None:
            batch.put(payload_key(self.capture.digest), seal(self.key))
        list_bytes(batch, self.capture)


class Blanked(Rewriting):
    """Listed bytes that are to be overwritten. `listed` maps `j/` keys to lengths in bytes."""

    listed: dict[bytes, int]

    def write(self, archive: Archive, segments: SegmentWriters) -> None:
        """Overwrite the bytes in the folders of all processes.

        A reshard may have linked the same segment into several of these folders.
        """
        blank(archive.folder, self.listed)

    def stage(self, batch: Batch) -> None:
        """Remove the bytes from the list."""
        for key in self.listed:
            batch.delete(key)


def list_bytes(batch: Batch, capture: Capture) -> None:
    """Add the range of bytes that must be overwritten to `batch`, which also deletes the capture's keys."""
    key = keys.ERASING + capture.segment.encode() + b"\0" + capture.offset.to_bytes(8, "big")
    batch.put(key, seal((end_of(capture) - capture.offset).to_bytes(8, "big")))


def listed_bytes(store: KeyValue, begin: bytes = b"") -> Iterator[tuple[bytes, int]]:
    """Yield (`j/` key, length) of each range of bytes that waits to be overwritten, from the key `begin` on."""
    for key, value in store.scan(begin or keys.ERASING, after_prefix(keys.ERASING)):
        yield key, int.from_bytes(unseal(key, value), "big")


def listed_ranges(store: KeyValue, segment: str) -> dict[int, int]:
    """Return the ranges of a segment that are listed for overwriting, as {offset: length}."""
    begin = keys.ERASING + segment.encode() + b"\0"
    return {
        int.from_bytes(key[len(begin) :], "big"): int.from_bytes(unseal(key, value), "big")
        for key, value in scan_prefix(store, begin)
    }


def blank(folder: Path, listed: dict[bytes, int]) -> None:
    """Overwrite listed bytes in the segments in `folder` and in the WARC folders of the other processes.

    Raises:
        OSError: the disk failed.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    for key, length in listed.items():
        segment, offset = key[len(keys.ERASING) : -9], key[-8:]
        ranges.setdefault(segment.decode(), []).append((int.from_bytes(offset, "big"), length))
    folders = [folder, *(each for each in sorted(folder.parent.parent.glob("*/warc")) if each != folder)]
    overwrite(folders, ranges)
    reach("erased")


def finish(archive: Archive) -> int:
    """Overwrite the listed bytes that a killed process left; return the number of ranges.

    This is done each time the archive is opened.

    Raises:
        OSError: the disk failed.
    """
    listed = dict(listed_bytes(archive.store))
    if listed:
        blank(archive.folder, listed)
        batch = archive.store.batch(sync=True)
        Blanked(listed).stage(batch)
        archive.store.write(batch)
    return len(listed)


class Erasing:
    """The decisions of an erasure in one archive, for one rule."""

    def __init__(self, archive: Archive, rule: Withdrawal) -> None:
        self._archive = archive
        self._rule = rule
        # maps payload digests to the responses that now hold these payloads
        self._made: dict[bytes, Original] = {}

    def covers(self, capture: Capture) -> bool:
        return self._rule.is_about(capture.url) and self._rule.covers(capture.fetched_at)

    def detached(self, key: bytes, capture: Capture) -> Detached | None:
        """If the original of a copy will be erased, return how to write the copy again; otherwise, return None."""
        if not capture.refers_to or self._archive.is_withdrawn(capture):
            return None
        original = self._archive.capture_at(capture.refers_to)
        if original is None or not self.covers(original):
            return None
        found = self._made.get(capture.digest) or original_with(self._archive, capture.digest)
        if found is None:
            self._made[capture.digest] = Original(key, capture.url, capture.fetched_at)
        return Detached(key, capture, found)

    def erase_capture(self, key: bytes, capture: Capture, batch: Batch) -> None:
        """Delete the keys of a capture, and list its bytes for overwriting."""
        batch.delete(key)
        if self._archive.response_with(capture.digest) == key:
            batch.delete(payload_key(capture.digest))
        list_bytes(batch, capture)

    def bury(self, fingerprint: int, url: str, now: float, batch: Batch) -> None:
        """Write the tombstone of a URL of which no copy is left."""
        batch.put(tombstone_key(fingerprint), pack(Erased(url_digest(url), now, self._rule.reason)))

    def forget_page(self, fingerprint: int, batch: Batch) -> bool:
        """Delete what is known about a URL, except its fingerprint in the DUE; return whether the URL had a record."""
        for family in _OF_A_PAGE:
            batch.delete(family + fingerprint.to_bytes(8, "big"))
        return self._archive.store.get(record_key(fingerprint)) is not None

    def reset_page(self, fingerprint: int, batch: Batch) -> None:
        """Update the record of a URL of which no copy is left, but which may be fetched again."""
        record = Archive.record(self._archive, fingerprint)
        if record is not None:
            batch.put(record_key(fingerprint), pack(_without_copy(record)))


def _without_copy(record: PageRecord) -> PageRecord:
    """Return the record without validators and digests.

    So the next fetch is unconditional, and its content counts as new.
    """
    return replace(
        record,
        state=PageState.RETIRED,
        outcome=Outcome.WITHDRAWN,
        digest=b"",
        content_digest=b"",
        earlier_digest=b"",
        etag="",
        last_modified="",
        location="",
    )
