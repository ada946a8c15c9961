"""Writes WARC exports, and the CDXJ index of the segments in the crawl directory.

A revisit whose response is not exported is written as a response, so that the export is self-contained. With
`--allow`, the export also has a record of each consent receipt to which its captures refer. A receipt is
stored with a single capture, and this capture may be left out of the export.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from crawler.errors import DamageError
from crawler.pages import gzip_members, warc
from crawler.pages.archive import Archive
from crawler.pages.captures import StoredPage, fingerprint_of
from crawler.pages.formats import cdxj
from crawler.pages.formats.rows import ConsentOf
from crawler.pages.formats.selection import Say, Selection, ignore, selected_captures
from crawler.records import Capture, ReceiptStamp

# returns the whole receipt of a copy as JSON, or b"" if the copy has none
ReceiptOf = Callable[[Archive, int, Capture], bytes]


class Chunk(msgspec.Struct):
    """A piece of a WARC file: the records of `capture`, or a warcinfo or receipt record if `capture` is None.

    `pieces` yields the bytes of the chunk, `size` is the number of these bytes, and `length` is the length in
    bytes of the first gzip member.
    """

    capture: Capture | None
    pieces: Iterable[bytes]
    size: int
    length: int


def warc_chunks(
    archives: Sequence[Archive],
    select: Selection,
    *,
    report: Say = ignore,
    folder: Path | None = None,
    memory_bytes: int = 64 << 20,
    receipt_of: ReceiptOf | None = None,
) -> Iterator[Chunk]:
    """Yield the selected captures as WARC, in the order in which they were written.

    Captures follow the warcinfo record to which they refer. A capture that cannot be read is reported and left
    out. The arguments `folder` and `memory_bytes` are for sorting (see `cdxj.sorted_lines`).
    """
    lines = _positions(archives, select)
    about, receipts = ("", 0), set[bytes]()
    for position in cdxj.sorted_lines(lines, folder=folder, memory_bytes=memory_bytes):
        number, _, _, key = position.rstrip(b"\n").split(b" ")
        archive = archives[int(number)]
        try:
            capture = archive.capture_at(bytes.fromhex(key.decode()))
            if capture is None:
                continue
            if (capture.segment, capture.warcinfo) != about:
                about = capture.segment, capture.warcinfo
                data = archive.warcinfo(*about)
                yield Chunk(None, (data,), len(data), len(data))
            if receipt_of is not None and capture.receipt not in receipts:
                receipts.add(capture.receipt)
                if data := _receipt(
                    capture, receipt_of(archive, fingerprint_of(bytes.fromhex(key.decode())), capture)
                ):
                    yield Chunk(None, (data,), len(data), len(data))
            yield _chunk(archive, capture, select)
        except DamageError as error:
            report(str(error))


def _positions(archives: Sequence[Archive], select: Selection) -> Iterator[bytes]:
    """Yield one line per selected capture.

    If these lines are sorted by bytes, they are in the order of the segments.
    """
    for number, archive in enumerate(archives):
        for key, capture in selected_captures(archive, select):
            yield b"%04d %b %020d %b\n" % (
                number,
                capture.segment.encode(),
                capture.offset,
                key.hex().encode(),
            )


def _chunk(archive: Archive, capture: Capture, select: Selection) -> Chunk:
    original = archive.capture_at(capture.refers_to) if capture.refers_to else None
    if original is None or _is_exported(archive, original, fingerprint_of(capture.refers_to), select):
        return Chunk(capture, archive.raw_pieces(capture), capture.extent, capture.length)
    page = archive.read(capture, static=True)
    data = gzip_members.compressor(1)(_as_response(page))
    whole = structs.replace(capture, kind="response", status=page.status, refers_to=b"")
    return Chunk(whole, (data,), len(data), len(data))


def _is_exported(archive: Archive, original: Capture, fingerprint: int, select: Selection) -> bool:
    record = archive.record(fingerprint)
    return not archive.is_withdrawn(original) and select.takes(archive, fingerprint, original, record)


def _receipt(capture: Capture, block: bytes) -> bytes:
    """Return the record of a receipt as a gzip member, or b"" if there is no receipt."""
    if not block:
        return b""
    stamp = ReceiptStamp(capture.receipt, "", block)
    identity = warc.record_ids(os.urandom, 1)[0]
    return gzip_members.compressor(1)(warc.receipt(identity, warc.date_text(capture.fetched_at), stamp))


def _as_response(page: StoredPage) -> bytes:
    """Return a revisit as the response that it represents."""
    head = warc.http_head(f"{page.version} {page.status:03d} {page.reason}".encode("latin-1"), page.headers)
    target = warc.target_fields(page.capture.url, "", page.version)
    of = warc.Heading(warc.record_ids(os.urandom, 1)[0], warc.date_text(page.capture.fetched_at), target)
    return warc.response(of, head, page.payload, page.capture.digest)


def cdxj_lines(
    archives: Sequence[Archive],
    select: Selection,
    *,
    consent_of: ConsentOf = lambda archive, fingerprint, capture: {},
) -> Iterator[bytes]:
    """Return the sorted CDXJ index of the segments of all `archives`, which are in the crawl directory."""
    lines = (
        cdxj.line(capture, consent=consent_of(archive, fingerprint_of(key), capture))
        for archive in archives
        for key, capture in selected_captures(archive, select)
    )
    return cdxj.sorted_lines(lines)
