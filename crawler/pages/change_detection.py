"""Decides whether a page changed, and computes the record of the page after an answer (`pages/README.md`, "Change").

Each answer from a server has two digests, and each digest settles one question:

    payload digest   SHA-1 of the bytes as stored       "are these bytes in the archive already?"
    content digest   128-bit murmur3 of the content     "did the page change?"
                     without its content coding and
                     without the matches of the site's
                     patterns (a clock, a token)

The content digest need not be cryptographic, because a site that forges a collision can only hide changes of its
own page. The content digest of 45 kB takes 8 us; a SHA-1 would take 32 us.

Only `next_record` turns an answer into the state of a URL. A stored page stays stored if a later fetch fails,
because its copy still exists.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import mmh3
import msgspec
import numpy as np

from crawler import http_dates
from crawler.errors import ConfigError
from crawler.records import (
    META_NOARCHIVE,
    META_NOINDEX,
    TLS_FAILURES,
    Capture,
    Directives,
    Extracted,
    Fetch,
    FetchTask,
    LinkFlag,
    Outcome,
    PageRecord,
    PageState,
    RenderingFacts,
)
from crawler.shadow_roots import open_shadow_roots
from crawler.urls.media_type import is_usable, sniff_html
from crawler.user_patterns import compiled

SUCCESSES = frozenset({Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED})
EARLIER_BYTES = 8  # of the content digest that a page had before its last change
_FINAL_STATES = {
    Outcome.FETCHED: PageState.STORED,
    Outcome.EMPTY: PageState.STORED,
    Outcome.UNCHANGED: PageState.STORED,
    Outcome.REDIRECT: PageState.REDIRECTED,
    Outcome.GONE: PageState.GONE,
    Outcome.ROBOTS_DENIED: PageState.DENIED,
    Outcome.WITHDRAWN: PageState.RETIRED,
}
# Outcomes that tell nothing about the page. After such an outcome, a stored page stays stored.
_NO_VERDICT = frozenset(
    {
        Outcome.TEMPORARY,
        Outcome.HOST_BUSY,
        Outcome.TRUNCATED,
        Outcome.UNEXPECTED_STATUS,
        Outcome.FRAMING,
        Outcome.HEADER_TIMEOUT,
        Outcome.DNS_ERROR,
        Outcome.DNS_NOT_FOUND,
        Outcome.ADDRESS_DENIED,
        Outcome.CONNECT_ERROR,
        *TLS_FAILURES,
        Outcome.RESET,
        Outcome.PROXY_ERROR,
        Outcome.NOT_RENDERED,
        Outcome.INTERNAL_ERROR,
        Outcome.WITHDRAWN,
    }
)

_KNOWN = LinkFlag.REFRESH | LinkFlag.AGAIN  # flags that describe one fetch, not the URL
# Limits on the length of the texts from servers that a record holds. A longer ETag would not be sent back, so
# it is not stored.
_VALIDATOR_BYTES_MAX = 1024
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")
_TYPE_CHARS_MAX = 128
_ERROR_CHARS_MAX = 500
_LOCATION_CHARS_MAX = 8192

# Comments, elements without visible text, and tags. A comment, element or tag that is not closed extends to
# the end of the input.
_INVISIBLE = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(script|style|template)\b.*?(?:</\1\b[^<>]*>|\Z)|<[a-z/!?][^>]*(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
TEXT_BYTES_MAX = 256 << 10  # larger pages are compared byte by byte; extracting text would block the loop

SHINGLE = 3  # number of consecutive words that are hashed together, so that word order matters, too

Patterns = Sequence[re.Pattern[bytes]]


def compile_patterns(texts: Sequence[str]) -> tuple[re.Pattern[bytes], ...]:
    """Compile the patterns whose matches a comparison ignores. A pattern is matched against the bytes of the content.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """
    try:
        return tuple(compiled(text.encode("utf-8"), re.DOTALL) for text in texts)
    except ConfigError as error:
        raise ConfigError(f"pattern to ignore in comparisons: {error}") from error


def content_digest(content: bytes, patterns: Patterns = ()) -> bytes:
    """Remove the matches of `patterns` from the content, and return a digest (16 bytes) of the rest."""
    for pattern in patterns:
        content = pattern.sub(b"", content)
    return mmh3.mmh3_x64_128_digest(content)


def visible_text(html: bytes) -> bytes:
    """Return, in linear time, the text between the tags of HTML, including the title. White space is collapsed."""
    return b" ".join(_INVISIBLE.sub(b" ", open_shadow_roots(html)).split())


def simhash(text: bytes) -> int:
    """Return the simhash of a text, a number of 64 bits; 0 if the text has no words.

    Texts that differ in few words have simhashes that differ in few bits. Each sequence of `SHINGLE` words votes
    with its hash for or against every bit. A bit is 1 if a majority votes for it (Charikar, *Similarity
    Estimation Techniques from Rounding Algorithms*, STOC 2002). Manku, Jain, Das Sarma (*Detecting
    Near-Duplicates for Web Crawling*, WWW 2007) treat pages as duplicates if at most 3 of the 64 bits differ. One
    changed word changes about 6 bits in a text of a hundred words, and about 2 bits in a text of a thousand
    words. Computing a simhash takes about 60 us per kB of text.
    """
    words = text.split()
    if not words:
        return 0
    runs = [b" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))]
    hashes = np.array([mmh3.hash64(run, signed=False)[0] for run in runs], ">u8")
    votes = np.unpackbits(hashes.view(np.uint8)).reshape(-1, 64).sum(axis=0, dtype=np.int64)
    return int.from_bytes(np.packbits(2 * votes > len(runs)).tobytes(), "big")


def distance(one: int, other: int) -> int:
    """Return the number of bits in which two simhashes differ."""
    return (one ^ other).bit_count()


class Comparison(NamedTuple):
    """The rule that decides whether a page counts as changed if its digest is new.

    kind: the differences that count. "raw": any changed byte; "text": any change of the visible text of HTML;
    "simhash": a change of the visible text after which the simhashes differ in more than `distance` bits.
    ignored: patterns whose matches in the content are ignored, whatever the kind.
    """

    kind: str = "raw"
    distance: int = 0
    ignored: Patterns = ()

    def same(self, one: bytes, other: bytes) -> bool:
        """Return whether two HTML pages count as the same. The comparison takes about 45 us per kB of tags."""
        if self.kind == "raw" or max(len(one), len(other)) > TEXT_BYTES_MAX:
            return False
        for pattern in self.ignored:
            one, other = pattern.sub(b"", one), pattern.sub(b"", other)
        texts = visible_text(one), visible_text(other)
        if texts[0] == texts[1] or self.kind == "text":
            return texts[0] == texts[1]
        return distance(*map(simhash, texts)) <= self.distance


ANY_BYTE = Comparison()


def is_unchanged(previous: PageRecord | None, fetch: Fetch, digest: bytes) -> bool:
    """Return whether an answer shows the known content: it is a 304, or it has the same content digest.

    What a server sends and what a browser shows are never the same content, even if their texts are equal.
    """
    if previous is None or previous.state is not PageState.STORED:
        return False
    if fetch.outcome is Outcome.UNCHANGED:
        return True
    if fetch.outcome not in SUCCESSES or is_other_form(previous, fetch):
        return False
    return previous.content_digest == digest != b""


def is_other_form(previous: PageRecord | None, fetch: Fetch) -> bool:
    """Return whether the answer and the stored copy cannot be compared.

    An answer and a copy cannot be compared if a browser rendered only one of them.
    """
    if previous is None or previous.state is not PageState.STORED:
        return False
    has_content = fetch.outcome in SUCCESSES and fetch.outcome is not Outcome.UNCHANGED
    return has_content and previous.rendered != (fetch.shown is not None)


def is_return(previous: PageRecord | None, fetch: Fetch, digest: bytes) -> bool:
    """Return whether an answer shows the content that the page had before its last change.

    Some servers alternate between two versions of a page, for example to test which one readers prefer. Such an answer
    does not show whether the page has changed.
    """
    if previous is None or previous.state is not PageState.STORED or not previous.earlier_digest:
        return False
    if fetch.outcome not in SUCCESSES or fetch.outcome is Outcome.UNCHANGED or is_other_form(previous, fetch):
        return False
    return digest != previous.content_digest and digest[:EARLIER_BYTES] == previous.earlier_digest


def is_back(previous: PageRecord | None, record: PageRecord) -> bool:
    """Return whether a page that was gone, moved or denied is there again."""
    return (
        previous is not None and previous.state is not PageState.STORED and record.state is PageState.STORED
    )


def note_same_content(record: PageRecord, previous: PageRecord, shown: Capture | None, digest: bytes) -> None:
    """Undo the change of a page that is back if its payload has the same SHA-1 as at its last change.

    `shown` is the capture of the last change.
    """
    if shown is not None and 200 <= shown.status < 300 and shown.digest == digest != b"":
        record.changed_at, record.changes = previous.changed_at, previous.changes


def state_after(previous: PageRecord | None, outcome: Outcome) -> PageState:
    """Return the state of a URL after an answer or a failure."""
    if previous is not None and previous.state is PageState.STORED and outcome in _NO_VERDICT:
        return PageState.STORED
    return _FINAL_STATES.get(outcome, PageState.FAILED)


def plain(text: str, chars_max: int) -> str:
    """Cut `text` to `chars_max`, and replace characters that UTF-8 cannot encode (lone surrogates)."""
    text = text[:chars_max]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def content_type(fetch: Fetch) -> str:
    """Return the media type of an answer in the form that is stored."""
    return plain(fetch.content_type, _TYPE_CHARS_MAX)


def next_record(
    previous: PageRecord | None,
    fetch: Fetch,
    fetch_task: FetchTask,
    extracted: Extracted | None,
    *,
    payload_digest: bytes,
    digest: bytes,
    now: float,
    tags: Directives | None = None,
) -> PageRecord:
    """Return the record of a URL after `fetch`. The record `previous` is not modified.

    `payload_digest` and `digest` (the content digest) are b"" if the answer does not replace the known
    digests. `tags` are the directives of the answer's X-Robots-Tag fields. The depth and the origin of the
    URL stay those of its first try.
    """
    unchanged = is_unchanged(previous, fetch, digest)
    record = PageRecord(
        url=fetch.url,
        state=state_after(previous, fetch.outcome),
        outcome=fetch.outcome,
        status=fetch.status,
        depth=fetch_task.depth,
        via=fetch_task.via,
        redirects=fetch_task.redirects,
        flags=fetch_task.flags & ~_KNOWN,
        fetched_at=now if fetch.status else 0.0,
        changed_at=now,
        took=fetch.took,
        location=plain(fetch.location, _LOCATION_CHARS_MAX) if fetch.location else "",
        error=plain(fetch.error, _ERROR_CHARS_MAX) if fetch.error else "",
        attempts=1,
        unanswered_at=0.0 if fetch.status else now,
        queued=not fetch.final,
    )
    if previous is not None:
        _carry_over(record, previous, fetch, now)
    if fetch.outcome in SUCCESSES:
        _note_success(record, previous, fetch, unchanged)
    if fetch.outcome in SUCCESSES and fetch.outcome is not Outcome.UNCHANGED:
        record.content_type = content_type(fetch)
        record.digest, record.content_digest = payload_digest, digest
        if not unchanged and previous is not None and not is_other_form(previous, fetch):
            record.earlier_digest = previous.content_digest[:EARLIER_BYTES]
        record.rendered = fetch.shown is not None
        if not unchanged:
            record.links = len(extracted.hrefs) if extracted is not None else 0
        sniffed = not is_usable(fetch.content_type) and sniff_html(fetch.content)
        record.flags = record.flags & ~LinkFlag.SNIFFED | (LinkFlag.SNIFFED if sniffed else 0)
        if extracted is not None and not extracted.parse_limit:
            record.flags = record.flags & ~LinkFlag.FEED | (
                LinkFlag.FEED if extracted.told_by == "feed" else 0
            )
    if fetch.outcome in SUCCESSES:
        _renew_directives(record, fetch.outcome, extracted, tags, unchanged)
    elif fetch.outcome is Outcome.NOT_RENDERED:
        _add_directives(record, extracted, tags)
    record.shown = _facts(fetch, record, previous)
    return record


def _carry_over(record: PageRecord, previous: PageRecord, fetch: Fetch, now: float) -> None:
    """Copy the facts that stay true after this answer from `previous` to `record`."""
    record.depth, record.via, record.redirects = previous.depth, previous.via, previous.redirects
    record.flags |= previous.flags
    record.attempts = previous.attempts + 1
    record.fetches, record.changes = previous.fetches, previous.changes
    record.fetched_at = now if fetch.status else previous.fetched_at
    record.changed_at = previous.changed_at
    if record.state is not PageState.STORED:
        return
    record.digest, record.content_digest = previous.digest, previous.content_digest
    record.earlier_digest = previous.earlier_digest
    record.content_type, record.links = previous.content_type, previous.links
    record.rendered = previous.rendered
    record.receipt = previous.receipt
    record.etag, record.last_modified = previous.etag, previous.last_modified
    record.noindex, record.noarchive, record.metas = previous.noindex, previous.noarchive, previous.metas
    if fetch.outcome not in SUCCESSES:
        record.not_modified = previous.not_modified


def _note_success(record: PageRecord, previous: PageRecord | None, fetch: Fetch, unchanged: bool) -> None:
    """Count the fetch and, if the page changed, the change. Also keep the validators of this answer."""
    record.fetches += 1
    if not unchanged:
        record.changed_at = record.fetched_at
        is_change = previous is not None and previous.fetches > 0 and not is_other_form(previous, fetch)
        record.changes += is_change
    if fetch.outcome is Outcome.UNCHANGED:
        record.not_modified = (previous.not_modified if previous else 0) + 1
        record.etag = _text(fetch, b"etag") or record.etag
        record.last_modified = _text(fetch, b"last-modified") or record.last_modified
    else:
        record.etag = _text(fetch, b"etag")
        record.last_modified = "" if _is_weak(fetch) else _text(fetch, b"last-modified")


def _facts(fetch: Fetch, record: PageRecord, previous: PageRecord | None) -> RenderingFacts | None:
    """Return the facts about the rendering that is stored, and about the renderings that have failed since."""
    known = previous.shown if previous is not None and record.state is PageState.STORED else None
    rendering = fetch.rendering
    if rendering is None:
        return known if record.rendered or (known is not None and known.failures) else None
    if not rendering.dom and record.rendered and known is not None:
        return msgspec.structs.replace(known, failures=rendering.failures, again_at=rendering.again_at)
    return rendering.facts()


def _is_weak(fetch: Fetch) -> bool:
    """Return whether Last-Modified is so close to Date that the page may have changed again in the same second."""
    modified, date = fetch.header(b"last-modified"), fetch.header(b"date")
    return http_dates.is_strong(modified.decode("latin-1"), date.decode("latin-1")) is False


def _renew_directives(
    record: PageRecord,
    outcome: Outcome,
    extracted: Extracted | None,
    tags: Directives | None,
    unchanged: bool,
) -> None:
    """Renew the directives of a page from its meta tags and from the header of this answer.

    If the content is not parsed again, the known meta tags still apply. If a 304 has no X-Robots-Tag, the
    stored header fields still apply (RFC 9111, section 3.2).
    """
    if extracted is not None:
        record.metas, record.noindex, record.noarchive = (
            extracted.metas,
            extracted.noindex,
            extracted.noarchive,
        )
    elif not unchanged:
        record.metas, record.noindex, record.noarchive = 0, False, False
    elif record.metas >= 0 and (tags is not None or outcome is not Outcome.UNCHANGED):
        record.noindex, record.noarchive = (
            bool(record.metas & META_NOINDEX),
            bool(record.metas & META_NOARCHIVE),
        )
    if tags is not None:
        record.noindex, record.noarchive = record.noindex or tags.noindex, record.noarchive or tags.noarchive


def _add_directives(record: PageRecord, extracted: Extracted | None, tags: Directives | None) -> None:
    """Add the directives of an answer that no browser could show. None is lifted, because a script may add it again."""
    for said in (extracted, tags):
        if said is not None:
            record.noindex, record.noarchive = (
                record.noindex or said.noindex,
                record.noarchive or said.noarchive,
            )
    if extracted is not None and record.metas >= 0:
        record.metas |= max(0, extracted.metas)


def _text(fetch: Fetch, name: bytes) -> str:
    """Return a validator as text that encodes back to the same bytes (latin-1), for the next conditional request.

    Returns "" if the validator is too long, or has control characters, which header fields must not contain
    (RFC 9110, 8.8).
    """
    value = fetch.header(name)
    if len(value) > _VALIDATOR_BYTES_MAX or _CONTROLS.search(value):
        return ""
    return value.decode("latin-1")
