"""Test RSS, Atom and JSON feeds as sources of links."""

import tracemalloc

import pytest

from crawler.extract.feed import Feed, is_feed, item_links, read_feed
from crawler.extract.sitemap import Entry

# RSS 2.0 specification, sample file (shortened), with RFC 5005 paging
RSS2 = b"""<?xml version="1.0"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
  <title>Liftoff News</title><link>http://liftoff.example/</link>
  <atom:link rel="self" href="http://liftoff.example/rss"/><atom:link rel="next" href="http://liftoff.example/rss?2"/>
  <image><url>http://liftoff.example/i.png</url><link>http://liftoff.example/no</link></image>
  <item><title>Star City</title><link>http://liftoff.example/star</link>
    <pubDate>Tue, 03 Jun 2003 09:39:21 GMT</pubDate><guid>http://liftoff.example/2003/06/03.html#item573</guid></item>
  <item><guid>http://liftoff.example/permalink</guid><description>x &lt;a href="no"&gt;</description></item>
  <item><guid isPermaLink="false">item572</guid></item>
  <item><link><![CDATA[ http://liftoff.example/?a&b ]]></link>
    <dc:date xmlns:dc="d">2003-06-03</dc:date></item>
</channel></rss>"""

# the examples in RFC 4287, section 1.1
ATOM = b"""<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://example.org/base/">
  <title>Example Feed</title><link href="http://example.org/"/>
  <link rel="self" href="/feed"/><link rel="next" href="?2"/>
  <updated>2003-12-13T18:30:02Z</updated>
  <entry><title>Atom</title><link href="atom03"/><link rel="edit" href="/edit"/>
    <link rel="alternate" href="second"/><id>urn:uuid:1225c695</id>
    <published>2003-12-01T00:00:00Z</published><updated>2003-12-13T18:30:02Z</updated></entry>
  <entry><link rel="enclosure" href="audio.mp3"/><link rel="alternate" href="http://example.org/2"/></entry>
</feed>"""

# the example of a simple feed in JSON Feed 1.1, with some members of other examples there
JSON = b"""{
    "version": "https://jsonfeed.org/version/1.1", "title": "My Example Feed",
    "home_page_url": "https://example.org/", "feed_url": "https://example.org/feed.json",
    "next_url": "https://example.org/feed2.json", "_extension": {"items": [1, [2]]},
    "items": [
        {"id": "2", "content_text": "This is a second item.", "url": "https://example.org/second-item"},
        {"id": "1", "content_html": "<p>Hello, world!</p>", "url": "/initial-post", "tags": ["a"],
         "date_published": "2010-02-07T14:04:00-05:00", "date_modified": "2010-02-08T19:04:00Z"},
        {"id": "https://example.org/permalink", "date_published": "no date"},
        {"id": "https://example.org/linked", "external_url": "https://example.com/"},
        {"id": 347528977, "content_text": "An item without a link."}
    ]
}"""

RSS1 = b"""<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/">
  <channel rdf:about="http://x/"><link>http://x/</link></channel>
  <item rdf:about="http://x/1"><link>http://x/1</link></item></rdf:RDF>"""


def test_rss2() -> None:
    entries = [
        Entry("http://liftoff.example/star", 1054633161.0),
        Entry("http://liftoff.example/permalink"),
        Entry("http://liftoff.example/?a&b", 1054598400.0),
    ]
    assert read_feed(RSS2, 100) == Feed(
        entries, "http://liftoff.example/", "http://liftoff.example/rss?2", ""
    )


def test_atom() -> None:
    entries = [Entry("http://example.org/base/atom03", 1071340202.0), Entry("http://example.org/2")]
    expected = Feed(entries, "http://example.org/", "http://example.org/base/?2", "")
    assert read_feed(ATOM, 100) == expected
    assert read_feed(b"\xef\xbb\xbf \n" + ATOM, 100) == expected


def test_rss1() -> None:
    assert read_feed(RSS1, 100) == Feed([Entry("http://x/1")], "http://x/", "", "")


def test_items_are_capped() -> None:
    found = read_feed(RSS2, 1)
    assert len(found.entries) == 1 and found.problem == "the feed has too many items"


def test_entries_before_an_error_are_kept() -> None:
    broken = RSS2[: RSS2.index(b"<item><guid isPerma")] + b"&nbsp;"
    assert len(read_feed(broken, 100).entries) == 2 and read_feed(broken, 100).problem


def test_entities_are_refused() -> None:
    bomb = b'<!DOCTYPE rss [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    found = read_feed(bomb + b"<rss><channel><item><link>&b;</link></item></channel></rss>", 100)
    assert found.entries == [] and "document type" in found.problem


def test_an_invalid_base_is_ignored() -> None:
    assert read_feed(b"<feed xml:base='::'><entry><link href='x'/></entry></feed>", 9).entries == [Entry("x")]


BASES = """<{root} xml:base='/sub/'><{item} xml:base='deep/'><link xml:base='er/' href='a'/></{item}>
<{item}><link href='b'/></{item}><{item} xml:base='http://y.example/z/'><link>c</link></{item}></{root}>"""


@pytest.mark.parametrize(("root", "item"), [("feed", "entry"), ("rss", "item"), ("channel", "item")])
def test_links_are_resolved_against_the_bases_around_them(root: str, item: str) -> None:
    """Only an absolute xml:base of the feed was used, so relative links led to wrong URLs."""
    body = BASES.format(root=root, item=item).encode()
    found = ["http://x.example/sub/deep/er/a", "http://x.example/sub/b", "http://y.example/z/c"]
    assert [each.loc for each in read_feed(body, 9, "http://x.example/feed").entries] == found


def test_item_links_are_absolute() -> None:
    body = b"<rss><channel><item><link>/a</link></item><item><link>http://y.example/b</link></item></channel></rss>"
    assert item_links(body, 9, "http://x.example/feed") == ["http://x.example/a", "http://y.example/b"]


@pytest.mark.parametrize("guid", ["item572", "tag:x.example,2026:1", "urn:uuid:1225c695", "/relative"])
def test_only_a_web_address_is_a_permalink(guid: str) -> None:
    """RSS 2.0: a guid is a permalink unless it says otherwise, but many feeds put numbers there."""
    body = f"<rss><channel><item><guid>{guid}</guid></item></channel></rss>".encode()
    assert read_feed(body, 9).entries == []


@pytest.mark.parametrize(
    ("content_type", "content", "feed"),
    [
        ("application/rss+xml; charset=utf-8", b"", True),
        ("application/atom+xml", b"", True),
        ("text/xml", RSS2, True),
        ("application/xml", ATOM, True),
        ("text/xml", RSS1, True),
        ("text/xml", b"<urlset>", False),
        ("text/html", RSS2, False),
    ],
)
def test_is_feed(content_type: str, content: bytes, feed: bool) -> None:
    assert is_feed(content_type, content) == feed


@pytest.mark.parametrize(
    "date", ["", "x", "Mon, 99 Foo 2024 99:99:99 GMT", "Tue, 03 Jun 99999 09:39:21 GMT", "1 2 3"]
)
def test_unreadable_dates(date: str) -> None:
    body = f"<rss><channel><item><link>x</link><pubDate>{date}</pubDate></item></channel></rss>".encode()
    assert read_feed(body, 9).entries == [Entry("x")]


def test_json_feed() -> None:
    entries = [
        Entry("https://example.org/second-item"),
        Entry("/initial-post", 1265655840.0),
        Entry("https://example.org/permalink"),
        Entry("https://example.com/"),
    ]
    feed = Feed(entries, "https://example.org/", "https://example.org/feed2.json")
    assert read_feed(JSON, 100) == read_feed(b"\xef\xbb\xbf \n" + JSON, 100) == feed
    assert item_links(JSON, 2, "https://example.org/feed.json")[1] == "https://example.org/initial-post"
    assert read_feed(JSON, 2).entries == entries[:2] and read_feed(JSON, 2).problem


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        ("application/feed+json; charset=utf-8", b"{}", True),
        ("application/json", JSON, True),
        ("application/json", b'{"version": "https:\\/\\/jsonfeed.org\\/version\\/1"}', True),
        ("application/json", b'{"version": "1.1", "items": []}', False),
        ("text/plain", JSON, False),
    ],
)
def test_which_json_is_a_feed(kind: str, body: bytes, read: bool) -> None:
    assert is_feed(kind, body) is read


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"items": [{"url": "https://a.org/"}',
        b'{"items": {"url": "https://a.org/"}}',
        b'{"items": [{"url": 1}]}',
        b'{"items": [{"url": "\xff"}]}',
        b'{"items": [' + b"[" * 1_000_000,
        b'{"deep": ' + b'{"a":' * 100 + b"[" * 1_000_000,
        b'{"items": [' + b"{}," * 1_000_000 + b"{}]}",
    ],
)
def test_a_hostile_json_feed_yields_no_links_and_takes_little_memory(body: bytes) -> None:
    tracemalloc.start()
    found = read_feed(body, 100)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.entries == [] and found.problem
    assert most < len(body) + 1_000_000
