"""Reads sitemaps (sitemaps.org 0.9): XML, index or plain text, with or without gzip compression.

`SitemapReader` receives the body as it arrives, in chunks of any size, so a 50 MiB map is never in memory as
a whole. If the reading ends early (broken XML, a broken gzip stream, a limit), the entries read so far are
kept. `close` returns them.

The caller decides which `lastmod` values are signals.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone

import msgspec

from crawler.config import SitemapsConfig
from crawler.content_codings import decoder_of
from crawler.extract.xmlstream import BLANK, BOM, Name, XmlStream

DECODE_STEP_BYTES = 64 << 10  # number of bytes decoded at once; a small value keeps each step short
LINE_BYTES_MAX = 8192  # maximum bytes per line of a text map; longer lines are not URLs
# maximum number of elements per <url>: loc, lastmod, changefreq, priority, and perhaps images and languages
ELEMENTS_PER_URL = 40
FUTURE_MAX = 86_400.0  # seconds; a lastmod further in the future is a mistake

_HEAD_BYTES = 1024  # the root element must begin within this many bytes
# The groups are atomic, so a failing match takes linear time.
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?>\s+|<\?.*?\?>|<!--.*?-->|<!doctype[^>]*>)*+<(?:[\w.-]++:)?(?:urlset|sitemapindex)[\s>]",
    re.DOTALL | re.IGNORECASE,
)
_ENTRY = frozenset({"url", "sitemap"})
_FIELDS = frozenset({"loc", "lastmod"})
_W3C_DATETIME = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,9})?)?\s*(Z|z|[+-]\d\d:?\d\d)?)?)?)?"
)


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A URL of a map, as written, and the time of its last change according to the map (in seconds; None if absent)."""

    loc: str
    lastmod: float | None = None


class Sitemap(msgspec.Struct, gc=False):
    """The contents of a map: pages and further maps. `problem` is the reason if the reading ended early."""

    entries: list[Entry] = []
    maps: list[Entry] = []
    problem: str = ""


class SitemapReader:
    """Reads one map."""

    def __init__(self, config: SitemapsConfig) -> None:
        self._config = config
        self._found = Sitemap(entries=[], maps=[])
        self._decoder = decoder_of((b"gzip",), limit=int(config.bytes_max), step=DECODE_STEP_BYTES)
        self._head = b""  # first decoded bytes, kept until the format can be recognized
        self._form: XmlStream | _Lines | None = None
        self._loc = ""
        self._lastmod: float | None = None

    @property
    def done(self) -> bool:
        """True if further input is ignored."""
        return bool(self._found.problem)

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the body, from which the content coding has been removed."""
        pieces = self._decoder.pieces(chunk)
        while not self.done and (piece := next(pieces, None)) is not None:
            self._take(piece)
        if self._decoder.full and not self.done:
            self._found.problem = "the map is too large"

    def close(self) -> Sitemap:
        """End the body and return its contents."""
        for piece in self._decoder.finish():
            self._take(piece)
        self._take(b"", final=True)
        # `_form` refers to methods of this object, so the two form a reference cycle
        form, self._form = self._form, None
        if form is not None:
            form.close()
            self._found.problem = self._found.problem or form.problem
        return self._found

    def _take(self, decoded: bytes, *, final: bool = False) -> None:
        if self._form is None:
            decoded = (self._head + decoded).lstrip(BLANK)
            if len(decoded) <= len(BOM) and not final:
                self._head = decoded
                return
            decoded = decoded.removeprefix(BOM).lstrip(BLANK)
            if not decoded and not final:
                self._head = BOM
                return
            self._form = self._new_form(decoded)
        for at in range(0, len(decoded), DECODE_STEP_BYTES):
            if not self.done:
                self._form.feed(decoded[at : at + DECODE_STEP_BYTES])
                self._found.problem = self._found.problem or self._form.problem

    def _new_form(self, head: bytes) -> "XmlStream | _Lines":
        if head.startswith((b"<", b"\xff\xfe", b"\xfe\xff")):
            return XmlStream(self._on_start, self._on_end, self._config.urls_max * ELEMENTS_PER_URL)
        return _Lines(self._add_entry)

    def _on_start(self, name: Name, parent: Name, _attributes: dict[str, str]) -> bool:
        if name.local in _ENTRY:
            self._loc, self._lastmod = "", None
        return name.local in _FIELDS and parent.local in _ENTRY and name.prefix == parent.prefix

    def _on_end(self, name: Name, _parent: Name, text: str) -> None:
        if name.local == "url" and self._loc:
            self._add_entry(self._loc, self._lastmod)
            self._loc = ""
        elif name.local == "sitemap" and self._loc:
            self._add_map()
        elif text and name.local == "loc":
            self._loc = text
        elif text and name.local == "lastmod":
            self._lastmod = w3c_datetime(text)

    def _add_entry(self, loc: str, lastmod: float | None = None) -> None:
        if len(self._found.entries) >= self._config.urls_max:
            self._found.problem = "the map has too many URLs"
        else:
            self._found.entries.append(Entry(loc, lastmod))

    def _add_map(self) -> None:
        if len(self._found.maps) >= self._config.maps_max:
            self._found.problem = "the index has too many maps"
        else:
            self._found.maps.append(Entry(self._loc, self._lastmod))
        self._loc = ""


def is_sitemap(start: bytes) -> bool:
    """Return whether a body that begins with `start` is a sitemap or an index in XML, with or without gzip compression.

    Media types are ignored: servers send sitemaps as XML, gzip, text or bytes of an unknown type.
    """
    decoder = decoder_of((b"gzip",), limit=_HEAD_BYTES, step=_HEAD_BYTES)
    return _ROOT.match(b"".join(decoder.feed(start[: 4 * _HEAD_BYTES]))) is not None


def read_sitemap(body: bytes, config: SitemapsConfig) -> Sitemap:
    """Return the contents of a complete body."""
    reader = SitemapReader(config)
    reader.feed(body)
    return reader.close()


def signals(entries: Iterable[Entry], now: float) -> list[Entry]:
    """Return the entries of one map whose `lastmod` is informative.

    Entries without `lastmod`, or with one in the future, are left out. If two or more entries have a
    `lastmod`, and all these values are equal, the value is the time at which the map was made. Then no entry
    is returned.
    """
    dated = [(entry, entry.lastmod) for entry in entries if entry.lastmod is not None]
    if len(dated) > 1 and len({lastmod for _, lastmod in dated}) == 1:
        return []
    return [entry for entry, lastmod in dated if lastmod <= now + FUTURE_MAX]


def w3c_datetime(text: str) -> float | None:
    """Return the seconds since the epoch of a W3C datetime, UTC by default; None if it is unreadable."""
    match = _W3C_DATETIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month or 1, day or 1, hour, minute, min(second, 59), tzinfo=_zone(match[8]))
        return moment.timestamp() + float(match[7] or 0)
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


class _Lines:
    """The plain text format: one URL per line, UTF-8."""

    def __init__(self, add: Callable[[str, float | None], None]) -> None:
        self._add = add
        self._rest = b""
        self.problem = ""

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        # If the line is already too long, the rest of the line need not be kept, because it cannot make the
        # line shorter.
        self._rest = rest[: LINE_BYTES_MAX + 1]
        for line in lines:
            self._take(line)

    def close(self) -> None:
        self._take(self._rest)

    def _take(self, line: bytes) -> None:
        text = line.strip(BLANK)
        if len(text) <= LINE_BYTES_MAX and text[:8].lower().startswith((b"http://", b"https://")):
            self._add(text.decode("utf-8", "replace"), None)
