"""Sitemaps, feeds and style sheets: documents that are not pages but contain URLs.

The same code reads small documents in the event loop and large ones in a child process (`worker.py`). Parsing
50 MB of XML takes seconds. If a thread parsed a large document, it would share the interpreter lock with the
event loop, and the loop would have to wait for 5 ms again and again until the thread has finished.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from crawler.config import ByteCount, ExtractConfig, SitemapsConfig
from crawler.extract.feed import read_feed
from crawler.extract.sitemap import Entry, Sitemap, read_sitemap, signals
from crawler.records import Extracted, Fetch


class DocumentKind(StrEnum):
    """The kinds of documents."""

    SITEMAP = "sitemap"
    FEED = "feed"
    SHEET = "sheet"


class Document(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Says how to read a document.

    `began` is the time at which it was requested, and `charset` is the charset in its Content-Type. The
    limits are those of the configuration section for sitemaps.
    """

    kind: DocumentKind
    url: str
    began: float
    charset: str
    bytes_max: int
    urls_max: int
    maps_max: int

    @classmethod
    def of(cls, kind: DocumentKind, fetch: Fetch, config: SitemapsConfig) -> "Document":
        """Return the `Document` for reading an answer as this kind of document."""
        limits = int(config.bytes_max), int(config.urls_max), int(config.maps_max)
        return cls(kind, fetch.url, fetch.began, fetch.charset, *limits)


def read_document(content: bytes, document: Document, config: ExtractConfig) -> Extracted:
    """Return what `content` contains; after an error such as broken XML, return everything before the error."""
    if document.kind is DocumentKind.SITEMAP:
        return _sitemap(content, document)
    if document.kind is DocumentKind.FEED:
        return _feed(content, document, config)
    from crawler.extract.css import read_sheet  # imported here, because few crawls fetch style sheets

    return Extracted(document.url, requisites=read_sheet(content, document.charset, config.links_max))


def _sitemap(content: bytes, document: Document) -> Extracted:
    limits = ByteCount(document.bytes_max), document.urls_max, document.maps_max
    found = read_sitemap(content, SitemapsConfig(bytes_max=limits[0], urls_max=limits[1], maps_max=limits[2]))
    return found_in_map(found, document)


def found_in_map(found: Sitemap, document: Document) -> Extracted:
    """Convert the contents of a sitemap to an `Extracted`."""
    return Extracted(
        document.url,
        hrefs=[entry.loc for entry in found.entries],
        maps=[entry.loc for entry in found.maps],
        dated=dated(found.entries, document.began),
        told_by="sitemap",
    )


def _feed(content: bytes, document: Document, config: ExtractConfig) -> Extracted:
    found = read_feed(content, config.links_max, document.url)
    hrefs = [entry.loc for entry in found.entries]
    return Extracted(
        document.url,
        hrefs=hrefs + [raw_url for raw_url in (found.page, found.next) if raw_url],
        dated=dated(found.entries, document.began),
        told_by="feed",
    )


def dated(entries: Iterable[Entry], now: float) -> list[tuple[str, float]]:
    """Return a pair (URL, time) for each entry with an informative date, as defined by `signals`."""
    return [(entry.loc, entry.lastmod) for entry in signals(entries, now) if entry.lastmod is not None]
