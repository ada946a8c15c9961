"""Sitemaps, feeds and style sheets: documents that are no pages but name URLs. One reading for the loop and the child.

Small ones are read in the loop, others in a child process (`worker.py`). Fifty
megabytes of XML take seconds, and a thread would take these from the loop in
pieces of 5 ms.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from crawler.config import ByteCount, ExtractConfig, SitemapsConfig
from crawler.extract.css import read_sheet
from crawler.extract.feed import read_feed
from crawler.extract.sitemap import Entry, Sitemap, read_sitemap, signals
from crawler.records import Extracted, Fetch


class DocumentKind(StrEnum):
    """What a document is read as."""

    SITEMAP = "sitemap"
    FEED = "feed"
    SHEET = "sheet"


class Document(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How to read one: `began` is when it was asked for, `charset` that of its Content-Type.

    The limits are those of a sitemap, as in its section of the configuration.
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
        """The document that an answer is."""
        limits = int(config.bytes_max), int(config.urls_max), int(config.maps_max)
        return cls(kind, fetch.url, fetch.began, fetch.charset, *limits)


def read_document(content: bytes, document: Document, config: ExtractConfig) -> Extracted:
    """What `content` names; what ends it early, such as broken XML, leaves what stood before."""
    if document.kind is DocumentKind.SITEMAP:
        return _sitemap(content, document)
    if document.kind is DocumentKind.FEED:
        return _feed(content, document, config)
    return Extracted(document.url, requisites=read_sheet(content, document.charset, config.links_max))


def _sitemap(content: bytes, document: Document) -> Extracted:
    limits = ByteCount(document.bytes_max), document.urls_max, document.maps_max
    found = read_sitemap(content, SitemapsConfig(bytes_max=limits[0], urls_max=limits[1], maps_max=limits[2]))
    return found_in_map(found, document)


def found_in_map(found: Sitemap, document: Document) -> Extracted:
    """What a map that was read names."""
    return Extracted(
        document.url,
        hrefs=[entry.loc for entry in found.entries],
        maps=[entry.loc for entry in found.maps],
        dated=dated(found.entries, document.began),
        told_by="sitemap",
    )


def _feed(content: bytes, document: Document, config: ExtractConfig) -> Extracted:
    found = read_feed(content, config.links_max)
    hrefs = [entry.loc for entry in found.entries]
    return Extracted(
        document.url,
        hrefs=hrefs + [raw_url for raw_url in (found.page, found.next) if raw_url],
        dated=dated(found.entries, document.began),
        told_by="feed",
    )


def dated(entries: Iterable[Entry], now: float) -> list[tuple[str, float]]:
    """URL and instant of the entries whose date says something; none if the dates of all are the same."""
    return [(entry.loc, entry.lastmod) for entry in signals(entries, now) if entry.lastmod is not None]
