"""Which pages are worth rendering (`render.when = "auto"`); pure, learns from what renderings have shown.

A page is a *candidate* after its static fetch if it has a real script and little visible
text, or the marks of a framework that builds pages in the browser, or by chance (one page
in `render.chance`), so that no site is overlooked. Candidates are rendered until the answer
for their *pattern* is known: their host, and their path without numbers and names.

    P(a rendering of the pattern adds something) ~ Beta(a + successes, b + failures)

The prior is that of a candidate by its marks (even odds) or of any other page (one in
twenty), pooled with pages of the same kind in other patterns of the host. Rendering goes on while the mean is at
least `WORTH`: a rendering costs some 200 fetches of CPU time, but what it shows is usually
a whole site that is not seen otherwise.

What was learned is stored by host (`R/`) in the batch that commits the rendered page, so it
survives a restart and moves with the host.
"""

import re
from collections import OrderedDict
from typing import NamedTuple

import mmh3
import msgspec

from crawler.config import RenderConfig
from crawler.errors import DamageError
from crawler.pages.change_detection import visible_text
from crawler.records import UNDECODABLE
from crawler.storage.keys import RENDERED
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal
from crawler.urls.canonical import hostname

WORTH = 0.15  # the least probability that rendering adds something; three failures in a row end a pattern
TEXT_MIN = 200  # bytes of visible text; a page with less may build the rest in the browser
ADDED_TEXT = 0.2  # the share by which the text must grow to count as something new
ADDED_TEXT_MIN = 100  # bytes; less is a clock or a counter
PATTERNS_MAX = 20_000  # of a process, its hosts included; the least recently rendered are forgotten
_POOLED = 2.0  # renderings that the rest of its host counts for in a new pattern
_SLUG_CHARS = 20

_SCRIPT = re.compile(
    rb"<script\b(?![^<>]{0,300}\btype\s*=\s*[\"']?(?:application/(?:ld\+)?json|text/template))", re.I
)
_MARKS = (
    re.compile(
        rb"<(div|main|section)\b[^<>]{0,300}\bid\s*=\s*[\"']?(root|app|__next|__nuxt|___gatsby|svelte|swagger-ui|redoc\w*|q-app)[\"']?[^<>]{0,300}>\s{0,300}(?:loading\W*)?</\1>",
        re.I,
    ),
    re.compile(rb"<(app-root|redoc|rapi-doc|elements-api|scalar-api\w*)\b", re.I),
    re.compile(rb"<noscript\b[^<>]{0,100}>[^<]{0,200}(?:<[^>]{0,100}>[^<]{0,200}){0,4}javascript", re.I),
    re.compile(rb"\$docsify\b"),
)
_SCANNED_BYTES = 256 << 10


class Signs(NamedTuple):
    """The signs of a static page: its bytes of visible text, a script, the mark of a framework."""

    text_bytes: int
    script: bool
    mark: bool

    @property
    def candidate(self) -> bool:
        """True if the page looks as if a browser built the rest of it."""
        return self.script and (self.mark or self.text_bytes < TEXT_MIN)


def signs(content: bytes) -> Signs:
    """Return the signs of a static page; linear in its size."""
    head = content[:_SCANNED_BYTES]
    script = _SCRIPT.search(head) is not None
    return Signs(
        text_bytes=len(visible_text(head)),
        script=script,
        mark=script and any(mark.search(head) for mark in _MARKS),
    )


def adds(before: Signs, after: Signs, new_links: int) -> bool:
    """Return whether a rendering has shown something: links in scope, or a fifth more text."""
    grown = after.text_bytes - before.text_bytes
    return new_links > 0 or (grown >= ADDED_TEXT_MIN and grown > ADDED_TEXT * before.text_bytes)


def pattern_of(url: str) -> str:
    """Return a URL's host and path with numbers as "0" and names as "*"."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    return f"{hostname(url)}/{'/'.join(map(_class_of, path.split('/')))}"


def _class_of(segment: str) -> str:
    if segment.isdigit():
        return "0"
    if len(segment) > _SLUG_CHARS or "-" in segment or "%" in segment or any(map(str.isdigit, segment)):
        return "*"
    return segment


class _Seen(msgspec.Struct, array_like=True):
    """The renderings of a pattern or host: the number made, and the number that added something."""

    made: int = 0
    added: int = 0


_decode = msgspec.msgpack.Decoder(_Seen).decode


class Deciding:
    """Decides which pages are rendered. `host` is the 64-bit host key of a page."""

    def __init__(self, config: RenderConfig) -> None:
        self._chance = config.chance
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()  # by store key, the latest last

    def load(self, store: KeyValue) -> None:
        """Read what earlier runs have learned; values that are damaged are learned again."""
        for key, value in scan_prefix(store, RENDERED):
            try:
                self._seen[key] = _decode(unseal(key, value))
            except (DamageError, *UNDECODABLE):
                continue

    def why(self, host: int, url: str, seen: Signs) -> str:
        """Return why a page is to be rendered: "mark", "learned", "chance"; "" if it is not."""
        if not seen.script:
            return ""
        if self.probability(host, url, candidate=seen.candidate) >= WORTH:
            return "mark" if seen.candidate else "learned"
        return "chance" if self._is_drawn(url) else ""

    def probability(self, host: int, url: str, *, candidate: bool) -> float:
        """Return the probability that rendering a page adds something, from what is known of its pattern and host."""
        added, made = (1.0, 2.0) if candidate else (0.05, 1.0)
        of_host = self._seen.get(_host_key(host, candidate))
        if of_host is not None:
            added += _POOLED * of_host.added / of_host.made
            made += _POOLED
        own = self._seen.get(_pattern_key(host, url))
        if own is not None:
            added, made = added + own.added, made + own.made
        return added / made

    def learn(self, host: int, url: str, *, candidate: bool, added: bool, batch: Batch) -> None:
        """Note whether a rendering of `url` added something; the batch makes that durable."""
        for key in (_host_key(host, candidate), _pattern_key(host, url)):
            seen = self._seen.pop(key, None) or _Seen()
            seen.added += added
            seen.made += 1
            self._seen[key] = seen
            batch.put(key, seal(msgspec.msgpack.encode(seen)))
        while len(self._seen) > PATTERNS_MAX:
            batch.delete(self._seen.popitem(last=False)[0])

    def _is_drawn(self, url: str) -> bool:
        """Draw by the URL's own digest: the same page is drawn in every run and every process."""
        return self._chance > 0.0 and mmh3.hash(url, signed=False) < self._chance * 2.0**32


def _host_key(host: int, candidate: bool) -> bytes:
    """Return the key of a host's candidates, or of its other pages: one says nothing of the other."""
    return RENDERED + host.to_bytes(8, "big") + b"%d" % candidate


def _pattern_key(host: int, url: str) -> bytes:
    return RENDERED + host.to_bytes(8, "big") + mmh3.mmh3_x64_128_digest(pattern_of(url).encode())[:8]
