"""Writes WACZ 1.1.1: a crawl as one zip file, which replay tools can read by HTTP range requests.

    archive/data.warc.gz    the captures, not compressed again by the zip, so that range requests can read them
    indexes/index.cdx       sorted CDXJ with offsets in data.warc.gz; pywb expects this name
    pages/pages.jsonl       one line per page, with its title and seed flag, in Browsertrix's field names
    datapackage.json        sizes and SHA-256 of the above
    datapackage-digest.json SHA-256 of datapackage.json

The file is written in one pass over the captures. The index is sorted in bounded memory.
Source: specs.webrecorder.net/wacz/1.1.1.
"""

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from crawler.clock import iso_time
from crawler.pages.archive import Archive
from crawler.pages.formats import cdxj
from crawler.pages.formats.selection import Say, Selection, ignore
from crawler.pages.formats.warc_stream import ReceiptOf, warc_chunks
from crawler.records import NO_PAGE, LinkFlag, PageState
from crawler.storage.files import named_output, store_errors
from crawler.urls.media_type import is_html

_ARCHIVE = "data.warc.gz"
_PAGES_HEADER = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}
# Media types of the documents, besides HTML, from which a reader of the archive may start.
_DOCUMENT_TYPES = frozenset({"text/plain", "application/pdf"})


def write_wacz(
    archives: Sequence[Archive],
    path: Path,
    select: Selection,
    rows: Iterable[Mapping[str, Any]],
    *,
    now: float,
    report: Say = ignore,
    receipt_of: ReceiptOf | None = None,
) -> int:
    """Write the file at `path`; return the number of captures in it.

    `rows` are the pages to list (`is_page`), with their titles.

    Raises:
        StoreError: the disk failed.
    """
    with (
        store_errors(path, "write"),
        named_output(path) as file,
        zipfile.ZipFile(file, "w") as package,
        tempfile.TemporaryFile(dir=path.parent) as index,
    ):
        writer = _Package(package, now)
        chunks = _copied(archives, select, index, report=report, receipt_of=receipt_of, folder=path.parent)
        writer.add(f"archive/{_ARCHIVE}", chunks, compressed=False)
        index.seek(0)
        count = writer.add("indexes/index.cdx", cdxj.sorted_lines(index, folder=path.parent))
        writer.add("pages/pages.jsonl", _page_lines(rows))
        writer.finish()
    return count


def _copied(archives: Sequence[Archive], select: Selection, index: Any, **options: Any) -> Iterator[bytes]:
    """Yield the WARC data; write the CDXJ line of each capture to `index`."""
    offset = 0
    for chunk in warc_chunks(archives, select, **options):
        if chunk.capture is not None:
            moved = msgspec.structs.replace(chunk.capture, offset=offset, length=chunk.length)
            index.write(cdxj.line(moved, filename=_ARCHIVE))
        yield from chunk.pieces
        offset += chunk.size


def is_page(row: Mapping[str, Any], flags: int) -> bool:
    """Return whether a row describes a page from which a reader of the archive may start."""
    kind = row["content_type"] or ""
    is_document = is_html(kind) or kind in _DOCUMENT_TYPES or bool(flags & LinkFlag.SNIFFED)
    return row["state"] == PageState.STORED and is_document and not flags & NO_PAGE


def _page_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    yield msgspec.json.encode(_PAGES_HEADER) + b"\n"
    for row in rows:
        line = {
            "id": row["id"],
            "url": row["url"],
            "ts": row["fetched_at"],
            "title": row["title"] or row["url"],
            "status": row["status"],
            "mime": row["content_type"],
            "depth": row["depth"],
        }
        if row["seed"]:
            line["seed"] = True
        yield msgspec.json.encode(line) + b"\n"


class _Package:
    """A zip file and the list of its contents."""

    def __init__(self, package: zipfile.ZipFile, now: float) -> None:
        self._package = package
        self._now = now
        self._resources: list[dict[str, Any]] = []

    def add(self, path: str, chunks: Iterable[bytes], *, compressed: bool = True) -> int:
        """Write `chunks` as one file of the zip; return the number of chunks."""
        digest = hashlib.sha256()
        size = count = 0
        with self._package.open(self._info(path, compressed), "w", force_zip64=True) as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                count += 1
        name = path.rpartition("/")[2]
        self._resources.append(
            {"name": name, "path": path, "hash": f"sha256:{digest.hexdigest()}", "bytes": size}
        )
        return count

    def _info(self, path: str, compressed: bool) -> zipfile.ZipInfo:
        # zip files cannot state years before 1980
        date = datetime.fromtimestamp(max(self._now, 315_619_200.0), UTC).timetuple()
        info = zipfile.ZipInfo(path, date[:6])
        info.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        info.external_attr = 0o644 << 16
        return info

    def finish(self) -> None:
        """Write the list of the zip's contents, and the digest of this list."""
        listing = {
            "profile": "data-package",
            "wacz_version": "1.1.1",
            "software": "crawler",
            "created": iso_time(self._now),
            "resources": list(self._resources),
        }
        data = msgspec.json.format(msgspec.json.encode(listing), indent=2)
        self.add("datapackage.json", [data])
        digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(data).hexdigest()}"}
        self.add("datapackage-digest.json", [msgspec.json.encode(digest)])
