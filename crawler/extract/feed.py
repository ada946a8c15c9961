"""Reads the links of feeds: RSS 0.9x, 1.0, 2.0, Atom, JSON Feed (`extract/README.md`, "Sitemaps and feeds").

Broken XML yields the links before the error; `xmlstream.py` lists the other conditions under which reading ends
early. The link of an item of a JSON Feed is its `url`, else its `external_url`, else its `id` if this is a web
address. Invalid JSON, and members of the wrong type, yield no links. Members that are not needed are skipped
without being built, and a body with too many objects is not read. So a hostile body takes little memory.
"""

import re

import ada_url
import msgspec

from crawler import http_dates
from crawler.extract.sitemap import DECODE_STEP_BYTES, Entry, w3c_datetime
from crawler.extract.xmlstream import BLANK, BOM, Name, XmlStream

ELEMENTS_PER_LINK = 40

JSON_FEED = "application/feed+json"
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml", JSON_FEED})
_JSON_VERSION = re.compile(rb'"https?:\\?/\\?/jsonfeed\.org\\?/version\\?/')
_ROOTS = (b"<rss", b"<feed", b"<rdf:rdf", b"<atom:feed")
_HEAD_BYTES = 1024  # the root element must begin within this many bytes
_ITEMS = frozenset({"item", "entry"})
_FEEDS = frozenset({"channel", "feed"})
_AROUND_ITEMS = _FEEDS | {"rss", "rdf"}
_WEB = ("http://", "https://")  # a guid that is a permalink begins so
_DATES = frozenset({"pubdate", "updated", "date", "published"})


class Feed(msgspec.Struct, gc=False):
    """The links of a feed: items, own page, next page. `problem` is the reason if the reading ended early."""

    entries: list[Entry] = []
    page: str = ""
    next: str = ""
    problem: str = ""


def is_feed(content_type: str, content: bytes) -> bool:
    """Return whether a body is a feed.

    Its media type says so, or it is XML with the root element of a feed, or JSON with the version of a JSON Feed.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _FEED_TYPES:
        return True
    head = content[:_HEAD_BYTES].lower()
    if kind == "application/json":
        return _JSON_VERSION.search(head) is not None
    return (kind in ("application/xml", "text/xml")) and any(root in head for root in _ROOTS)


def read_feed(body: bytes, links_max: int, url: str = "") -> Feed:
    """Return the links of a feed, from at most `links_max` items.

    A link stays relative if no xml:base applies to it. `url` is the URL of the feed, against which a relative
    xml:base is resolved; without it, a relative xml:base is ignored.
    """
    body = body.lstrip(BLANK).removeprefix(BOM).lstrip(BLANK)
    if body.startswith(b"{"):
        return _read_json_feed(body, links_max)
    reader = _FeedReader(links_max, url)
    stream = XmlStream(reader.on_start, reader.on_end, links_max * ELEMENTS_PER_LINK)
    for at in range(0, len(body), DECODE_STEP_BYTES):
        stream.feed(body[at : at + DECODE_STEP_BYTES])
    stream.close()
    found = reader.found
    found.problem = found.problem or stream.problem
    return found


def item_links(body: bytes, links_max: int, url: str) -> list[str]:
    """Return the links of the items of the feed at `url`, as absolute URLs."""
    return [_joined(url, entry.loc) for entry in read_feed(body, links_max, url).entries]


class _JsonItem(msgspec.Struct, gc=False):
    """The members of an item of a JSON Feed that are read."""

    id: str | int | float | None = None
    url: str | None = None
    external_url: str | None = None
    date_published: str | None = None
    date_modified: str | None = None

    def link(self) -> str:
        """Return the link of the item; "" if it has none."""
        if link := self.url or self.external_url:
            return link
        return self.id if isinstance(self.id, str) and self.id.lower().startswith(_WEB) else ""

    def changed(self) -> float | None:
        """Return the time of the last change of the item; None if it has no readable date."""
        return _later(_date(self.date_published or ""), _date(self.date_modified or ""))


class _JsonFeed(msgspec.Struct, gc=False):
    """The members of a JSON Feed that are read."""

    items: list[_JsonItem] = []
    home_page_url: str | None = None
    next_url: str | None = None


_json_feeds = msgspec.json.Decoder(_JsonFeed)


def _read_json_feed(body: bytes, links_max: int) -> Feed:
    if body.count(b"{") > links_max * ELEMENTS_PER_LINK:
        return Feed(entries=[], problem="the feed has too many objects")
    try:
        read = _json_feeds.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Feed(entries=[], problem=f"not a JSON Feed: {error}")
    found = Feed(entries=[], page=read.home_page_url or "", next=read.next_url or "")
    for item in read.items:
        if not (raw_url := item.link()):
            continue
        if len(found.entries) >= links_max:
            found.problem = "the feed has too many items"
            break
        found.entries.append(Entry(raw_url, item.changed()))
    return found


class _FeedReader:
    """Collects the links while the elements are read."""

    def __init__(self, links_max: int, url: str) -> None:
        self.found = Feed(entries=[])
        self._links_max = links_max
        self._in_item = False
        self._link = ""
        self._guid = ""
        self._guid_is_link = False
        self._changed: float | None = None
        self._url = url
        self._feed_base = self._base = ""  # the second is that of the item, or of the feed outside of items

    def on_start(self, name: Name, parent: Name, attributes: dict[str, str]) -> bool:
        if name.local in _AROUND_ITEMS:
            self._feed_base = self._base = self._base_in(attributes)
        elif name.local in _ITEMS:
            self._in_item = True
            self._base = self._base_in(attributes)
            self._link = self._guid = ""
            self._changed = None
        elif name.local == "link" and "href" in attributes:
            self._take_atom_link(attributes, parent)
            return False
        elif name.local == "guid":
            self._guid_is_link = attributes.get("isPermaLink", "true").lower() != "false"
        return name.local in ("link", "guid") or (self._in_item and name.local in _DATES)

    def on_end(self, name: Name, parent: Name, text: str) -> None:
        if name.local in _ITEMS:
            self._take_item()
        elif not text:
            return
        elif name.local == "link" and parent.local in _ITEMS:
            self._link = self._link or _joined(self._base, text)
        elif name.local == "link" and parent.local in _FEEDS:
            self.found.page = self.found.page or _joined(self._base, text)
        elif name.local == "guid" and self._guid_is_link and text.lower().startswith(_WEB):
            self._guid = text
        elif name.local in _DATES and parent.local in _ITEMS:
            self._changed = _later(self._changed, _date(text))

    def _take_atom_link(self, attributes: dict[str, str], parent: Name) -> None:
        relation = attributes.get("rel", "alternate").lower()
        raw_url = _joined(self._base_in(attributes), attributes["href"])
        if relation == "alternate" and parent.local in _ITEMS:
            self._link = self._link or raw_url
        elif relation == "alternate" and parent.local in _FEEDS:
            self.found.page = self.found.page or raw_url
        elif relation == "next" and parent.local in _FEEDS:
            self.found.next = self.found.next or raw_url

    def _take_item(self) -> None:
        self._in_item = False
        self._base = self._feed_base
        raw_url = self._link or self._guid
        if not raw_url:
            return
        if len(self.found.entries) < self._links_max:
            self.found.entries.append(Entry(raw_url, self._changed))
        else:
            self.found.problem = "the feed has too many items"

    def _base_in(self, attributes: dict[str, str]) -> str:
        """Return the base that applies inside an element with these attributes; "" if there is none."""
        own = attributes.get("xml:base")
        return self._base if own is None else _joined(self._base or self._url, own)


def _joined(base: str, reference: str) -> str:
    """Resolve a reference against a base; return it unchanged if there is no valid base."""
    try:
        return ada_url.join_url(base, reference) if base else reference
    except ValueError:
        return reference


def _date(text: str) -> float | None:
    """Return the seconds since the epoch of a W3C datetime (Atom, Dublin Core) or an RFC 822 date (RSS)."""
    found = w3c_datetime(text)
    return http_dates.instant(text) if found is None else found


def _later(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else max(first, second)
