"""Test sitemaps in all formats, read whole or byte by byte, and documents that are refused."""

import gc
import gzip
import re
import weakref
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import ByteCount, SitemapsConfig
from crawler.extract.sitemap import (
    Entry,
    Sitemap,
    SitemapReader,
    is_sitemap,
    read_sitemap,
    signals,
    w3c_datetime,
)
from crawler.extract.xmlstream import TEXT_CHARACTERS_MAX, TOKEN_BYTES_MAX

CONFIG = SitemapsConfig()
SPACE = b'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
DAY = 86_400.0

# sitemaps.org, protocol, "Sample XML Sitemap" (shortened)
SAMPLE = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
   <url>
      <loc>http://www.example.com/</loc>
      <lastmod>2005-01-01</lastmod>
      <changefreq>monthly</changefreq>
      <priority>0.8</priority>
   </url>
   <url>
      <loc>http://www.example.com/catalog?item=12&amp;desc=vacation_hawaii</loc>
   </url>
   <url>
      <loc>http://www.example.com/catalog?item=73&amp;desc=vacation_new_zealand</loc>
      <lastmod>2004-12-23T18:00:15+00:00</lastmod>
   </url>
</urlset>"""
SAMPLE_ENTRIES = [
    Entry("http://www.example.com/", 1104537600.0),
    Entry("http://www.example.com/catalog?item=12&desc=vacation_hawaii"),
    Entry("http://www.example.com/catalog?item=73&desc=vacation_new_zealand", 1103824815.0),
]


def _in_chunks(body: bytes, size: int, config: SitemapsConfig = CONFIG) -> Sitemap:
    reader = SitemapReader(config)
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
    return reader.close()


def test_the_sample_sitemap() -> None:
    assert read_sitemap(SAMPLE, CONFIG) == Sitemap(SAMPLE_ENTRIES, [], "")


def test_a_sitemap_index() -> None:
    """The document is from sitemaps.org, protocol, "Sample XML Sitemap Index"."""
    index = b"""<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
       <sitemap><loc>http://www.example.com/sitemap1.xml.gz</loc><lastmod>2004-10-01T18:23:17+00:00</lastmod></sitemap>
       <sitemap><loc>http://www.example.com/sitemap2.xml.gz</loc></sitemap></sitemapindex>"""
    maps = [
        Entry("http://www.example.com/sitemap1.xml.gz", 1096654997.0),
        Entry("http://www.example.com/sitemap2.xml.gz"),
    ]
    assert read_sitemap(index, CONFIG) == Sitemap([], maps, "")


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + SAMPLE,
        b"\n\r\t " + SAMPLE,
        b" \xef\xbb\xbf \n" + SAMPLE,
        SAMPLE.replace(b' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"', b""),
        re.sub(rb"<loc>(.*)</loc>", rb"<loc>  <![CDATA[\1]]>\n</loc>", SAMPLE).replace(b"&amp;", b"&"),
        SAMPLE.replace(b"loc>", b"LOC>"),
        re.sub(rb"<(/?)(\w)", rb"<\1s:\2", SAMPLE),
        SAMPLE.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
        gzip.compress(SAMPLE),
        gzip.compress(SAMPLE[:100]) + gzip.compress(SAMPLE[100:]),
        gzip.compress(SAMPLE) + b"\0\0trailing",
        SAMPLE.replace(b"</url>", b"<i:image xmlns:i='x'><i:loc>http://no/</i:loc></i:image></url>"),
        SAMPLE.replace(b"</url>", b"<image:loc>http://no/</image:loc></url>"),
    ],
)
def test_forms(body: bytes) -> None:
    assert read_sitemap(body, CONFIG) == Sitemap(SAMPLE_ENTRIES, [], "")
    assert _in_chunks(body, 1) == Sitemap(SAMPLE_ENTRIES, [], "")


def test_text() -> None:
    body = (
        b"\xef\xbb\xbfhttp://a/\r\n\r\n  https://b/\xc3\xa9 \nnot a url\rHTTP://c\n"
        + b"http://"
        + b"x" * 9000
    )
    expected = [Entry("http://a/"), Entry("https://b/é"), Entry("HTTP://c")]
    for found in (read_sitemap(body, CONFIG), _in_chunks(body, 1), read_sitemap(gzip.compress(body), CONFIG)):
        assert found == Sitemap(expected, [], "")


@pytest.mark.parametrize(
    "tail", [b"&nbsp;", b"<", b"<url><loc>http://x</loc>", b"</wrong>", b"\xff", b"\0", b"<url x=1 x=2>"]
)
def test_entries_before_an_error_are_kept(tail: bytes) -> None:
    body = SAMPLE.removesuffix(b"</urlset>") + tail
    for found in (read_sitemap(body, CONFIG), _in_chunks(body, 1)):
        assert found.entries == SAMPLE_ENTRIES and found.problem


def test_a_broken_gzip_stream_gives_what_was_decoded() -> None:
    body = gzip.compress(SAMPLE * 1, mtime=0)
    assert read_sitemap(body[:-20], CONFIG).entries == SAMPLE_ENTRIES[:2]
    damaged = body[:-8] + bytes(8)
    assert read_sitemap(damaged, CONFIG).entries == SAMPLE_ENTRIES


def test_an_empty_body_is_an_empty_map() -> None:
    for body in (b"", b" ", b"\xef\xbb\xbf", b"\x1f"):
        assert read_sitemap(body, CONFIG).entries == []


# --- limits and refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE urlset [<!ENTITY a 'http://evil/'>]><urlset><url><loc>&a;</loc></url></urlset>",
        b"<!DOCTYPE urlset SYSTEM 'file:///etc/passwd'><urlset><url><loc>http://a/</loc></url></urlset>",
        b"<urlset>" + b"<a>" * 1000,
        b"<urlset " + b"x" * (3 * TOKEN_BYTES_MAX),
        b"<urlset><!--" + b"x" * (3 * TOKEN_BYTES_MAX),
    ],
)
def test_document_types_are_refused(body: bytes) -> None:
    found = read_sitemap(body, CONFIG)
    assert found.entries == [] and found.problem


def test_limits() -> None:
    config = SitemapsConfig(urls_max=2, maps_max=1, bytes_max=ByteCount(1000))
    assert _in_chunks(SAMPLE, 7, config).entries == SAMPLE_ENTRIES[:2]
    index = b"<sitemapindex>" + b"<sitemap><loc>http://m/</loc></sitemap>" * 3
    assert read_sitemap(index, config).maps == [Entry("http://m/")]
    assert read_sitemap(b"http://a/\n" * 9, config).entries == [Entry("http://a/")] * 2
    many = b"<urlset>" + b"<x/>" * 200
    assert read_sitemap(many, config).problem == "the document has too many elements"
    assert read_sitemap(b"<urlset>" + b" " * 2000, config).problem == "the map is too large"


def test_a_gzip_bomb_is_cut() -> None:
    bomb = gzip.compress(b"<urlset>" + b" " * 10_000_000)
    reader = SitemapReader(SitemapsConfig(bytes_max=ByteCount(100_000)))
    reader.feed(bomb)
    assert reader.done and reader.close().problem == "the map is too large"


def test_gzip_members_are_bounded() -> None:
    empty = gzip.compress(b"")
    assert read_sitemap(gzip.compress(SAMPLE) + empty * 5000, CONFIG).entries == SAMPLE_ENTRIES


def test_urls_that_are_too_long_are_skipped() -> None:
    body = (
        b"<urlset><url><loc>"
        + b"x" * (TEXT_CHARACTERS_MAX + 1)
        + b"</loc></url><url><loc>http://a/</loc></url></urlset>"
    )
    assert read_sitemap(body, CONFIG).entries == [Entry("http://a/")]


PIECES = st.sampled_from(
    [
        b"<urlset>",
        b"</urlset>",
        b"<url>",
        b"</url>",
        b"<loc>",
        b"</loc>",
        b"http://a/",
        b"\n",
        b"<sitemap>",
        b"</sitemap>",
    ]
    + [
        b"<lastmod>",
        b"</lastmod>",
        b"2024-01-01",
        b"<![CDATA[",
        b"]]>",
        b"&amp;",
        b"<!-- x -->",
        b"\xef\xbb\xbf",
        b"\xff",
    ]
)


@settings(max_examples=200)
@given(st.lists(PIECES, max_size=30), st.booleans(), st.integers(1, 5))
def test_a_map_in_pieces_gives_the_same_result_as_a_whole_one(
    pieces: list[bytes], zipped: bool, size: int
) -> None:
    body = b"".join(pieces)
    body = gzip.compress(body, mtime=0) if zipped else body
    whole, parts = read_sitemap(body, CONFIG), _in_chunks(body, size)
    assert (whole.entries, whole.maps) == (parts.entries, parts.maps)
    assert bool(whole.problem) == bool(parts.problem)


# --- dates, signals -----------------------------------------------------------------------------------------


def _seconds(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        # W3C NOTE-datetime, section "Formats"
        ("1997", _seconds(1997, 1, 1)),
        ("1997-07", _seconds(1997, 7, 1)),
        ("1997-07-16", _seconds(1997, 7, 16)),
        ("1997-07-16T19:20+01:00", _seconds(1997, 7, 16, 18, 20)),
        ("1997-07-16T19:20:30+01:00", _seconds(1997, 7, 16, 18, 20, 30)),
        ("1997-07-16T19:20:30.45+01:00", _seconds(1997, 7, 16, 18, 20, 30) + 0.45),
        ("1994-11-05T08:15:30-05:00", _seconds(1994, 11, 5, 13, 15, 30)),
        ("1994-11-05T13:15:30Z", _seconds(1994, 11, 5, 13, 15, 30)),
        # other forms of dates, found on the web
        (" 2024-02-29 10:00:00 ", _seconds(2024, 2, 29, 10)),
        ("2024-02-29T10:00:00+0000", _seconds(2024, 2, 29, 10)),
        ("2016-12-31T23:59:60Z", _seconds(2016, 12, 31, 23, 59, 59)),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("2024-01-01T25:00Z", None),
        ("2024-01-01T00:00+99:99", None),
        ("0000-01-01", None),
        ("yesterday", None),
        ("", None),
        ("01/02/2024", None),
    ],
)
def test_w3c_datetime(text: str, seconds: float | None) -> None:
    assert w3c_datetime(text) == seconds


def test_signals() -> None:
    now = 1e9
    old, new = Entry("a", now - DAY), Entry("b", now)
    future, bare = Entry("c", now + DAY + 1), Entry("d")
    assert signals([old, new, future, bare], now) == [old, new]
    # equal dates are just the time when the map was made
    assert signals([Entry("a", now), Entry("b", now), bare], now) == []
    assert signals([new], now) == [new]
    assert signals([], now) == []


def test_a_closed_reader_is_freed_at_once() -> None:
    """The reader must not wait for the garbage collector, which runs rarely."""
    gc.disable()
    try:
        reader = SitemapReader(SitemapsConfig())
        reader.feed(b"<urlset><url><loc>http://a.org/</loc></url></urlset>")
        found, left = reader.close(), weakref.ref(reader)
        del reader
        assert left() is None and len(found.entries) == 1
    finally:
        gc.enable()


# -- which bodies are sitemaps


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset >",
        b"\xef\xbb\xbf \n<?xml version='1.0'?>\n<?xml-stylesheet href='x.xsl'?><!-- by a plugin -->\n<urlset "
        + SPACE,
        b"<sitemapindex " + SPACE + b">",
        b"<sm:urlset xmlns:sm='http://www.sitemaps.org/schemas/sitemap/0.9'>",
        gzip.compress(b"<?xml version='1.0'?><urlset " + SPACE + b">" + b"<url/>" * 9000)[:100],
    ],
    ids=["plain", "prolog", "index", "prefix", "start of a gzip file"],
)
def test_a_sitemap_is_recognized_by_its_root_element(body: bytes) -> None:
    assert is_sitemap(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><pre><urlset></pre>",
        b"<rss><channel/></rss>",
        b"<!-- <urlset> -->",
        b"<urlsets>",
        b"https://example.org/a\nhttps://example.org/b\n",
        b"{}",
        gzip.compress(b"<html>"),
        b"\x1f\x8b no gzip",
        b" " * 2000 + b"<urlset>",
    ],
    ids=["empty", "page", "feed", "comment", "other root", "text", "json", "gzip page", "no gzip", "late"],
)
def test_other_documents_are_no_sitemaps(body: bytes) -> None:
    assert not is_sitemap(body)
