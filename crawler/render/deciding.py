"""Decides, for `render.when = "auto"`, which pages are worth rendering (`render/README.md`, "Which pages").

A *candidate* has a real script, and also little visible text or the marks of a framework. A *pattern* is a
host and a path in which numbers, and segments that look like the name of a single page, are replaced.

    P(a rendering of the pattern adds something) ~ Beta(a + successes, b + failures)

The prior probability of a gain is one half for a candidate, and one in twenty for any other page. The prior is
combined with the counts of earlier renderings on the host, separately for candidates and other pages. A
rendering costs as much CPU time as about 200 fetches, but it usually shows a whole site that the crawl would
miss otherwise. What was learned is stored by host (prefix `R/`).
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

# A page is rendered if the probability of a gain is at least this. After three renderings of a pattern that
# added nothing, the probability of a gain is below this number.
WORTH = 0.15
TEXT_MIN = 200  # bytes of visible text; a page with less text may be built by scripts in the browser
ADDED_TEXT = 0.2  # the visible text must grow by at least this share to count as something new
# the visible text must grow by at least this many bytes; a smaller difference may come from a clock or a
# counter
ADDED_TEXT_MIN = 100
# maximum number of patterns and hosts in memory; the one whose last rendering is the oldest is forgotten
# first
PATTERNS_MAX = 20_000
# seconds for which `auto` does not try a page again after a failed rendering; each further failure in a row
# makes this wait four times as long, up to 30 days
_WAIT_FIRST, _WAIT_FACTOR, _WAIT_MAX = 3600.0, 4, 30 * 86_400.0
# The prior of a pattern is the estimate for its host, and has the weight of this number of renderings.
_POOLED = 2.0
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
    """Signs of a static page: the size of its visible text, and whether it has a script or the mark of a framework."""

    text_bytes: int
    script: bool
    mark: bool

    @property
    def candidate(self) -> bool:
        """True if the static page seems incomplete, and scripts seem to build the rest in a browser."""
        return self.script and (self.mark or self.text_bytes < TEXT_MIN)


def signs(content: bytes) -> Signs:
    """Return the signs that the first `_SCANNED_BYTES` bytes of a page contain."""
    head = content[:_SCANNED_BYTES]
    script = _SCRIPT.search(head) is not None
    return Signs(
        text_bytes=len(visible_text(head)),
        script=script,
        mark=script and any(mark.search(head) for mark in _MARKS),
    )


def adds(before: Signs, after: Signs, new_links: int) -> bool:
    """Return whether a rendering has shown something new: links in scope, or a fifth more visible text."""
    grown = after.text_bytes - before.text_bytes
    return new_links > 0 or (grown >= ADDED_TEXT_MIN and grown > ADDED_TEXT * before.text_bytes)


def wait_after(failures: int) -> float:
    """Return the seconds to wait after `failures` failed renderings in a row before `auto` renders a page again."""
    return min(_WAIT_FIRST * _WAIT_FACTOR ** (min(failures, 16) - 1), _WAIT_MAX)


def pattern_of(url: str) -> str:
    """Return the host and the path of a URL, with "0" for numbers and "*" for names."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    return f"{hostname(url)}/{'/'.join(map(_class_of, path.split('/')))}"


def _class_of(segment: str) -> str:
    if segment.isdigit():
        return "0"
    if len(segment) > _SLUG_CHARS or "-" in segment or "%" in segment or any(map(str.isdigit, segment)):
        return "*"
    return segment


class _Seen(msgspec.Struct, array_like=True):
    """Counts of one URL pattern or host: the renderings `made`, and how many of them `added` links or text."""

    made: int = 0
    added: int = 0


_decode = msgspec.msgpack.Decoder(_Seen).decode


class Deciding:
    """Decides which pages are rendered. `host` is the 64-bit host key of a page."""

    def __init__(self, config: RenderConfig) -> None:
        self._chance = config.chance
        # store key -> counts; the pattern or host that was rendered last is at the end
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def load(self, store: KeyValue) -> None:
        """Read what earlier runs have learned. Damaged values are skipped, because they are learned again."""
        for key, value in scan_prefix(store, RENDERED):
            try:
                self._seen[key] = _decode(unseal(key, value))
            except (DamageError, *UNDECODABLE):
                continue

    def why(self, host: int, url: str, seen: Signs) -> str:
        """Return the reason for rendering a page ("mark", "learned" or "chance"), or "" for not rendering it."""
        if not seen.script:
            return ""
        if self.probability(host, url, candidate=seen.candidate) >= WORTH:
            return "mark" if seen.candidate else "learned"
        return "chance" if self._is_drawn(url) else ""

    def probability(self, host: int, url: str, *, candidate: bool) -> float:
        """Return the probability that rendering a page adds something, given the renderings of its pattern and host."""
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
        """Count a rendering of `url`, and count whether it added something. Put the new counts into the batch."""
        for key in (_host_key(host, candidate), _pattern_key(host, url)):
            seen = self._seen.pop(key, None) or _Seen()
            seen.added += added
            seen.made += 1
            self._seen[key] = seen
            batch.put(key, seal(msgspec.msgpack.encode(seen)))
        while len(self._seen) > PATTERNS_MAX:
            batch.delete(self._seen.popitem(last=False)[0])

    def _is_drawn(self, url: str) -> bool:
        """Return whether the URL's hash is below `render.chance`. All runs and processes draw the same pages."""
        return self._chance > 0.0 and mmh3.hash(url, signed=False) < self._chance * 2.0**32


def _host_key(host: int, candidate: bool) -> bytes:
    """Return the key of the counts of a host. A host has one key for candidates and another for other pages."""
    return RENDERED + host.to_bytes(8, "big") + b"%d" % candidate


def _pattern_key(host: int, url: str) -> bytes:
    return RENDERED + host.to_bytes(8, "big") + mmh3.mmh3_x64_128_digest(pattern_of(url).encode())[:8]
