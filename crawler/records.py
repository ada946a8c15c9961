"""The nouns that the stages pass to one another.

A stage knows the shared modules and these records, never another stage. All
are plain structs without behaviour; instants are seconds since the epoch by
the process clock, lengths are seconds, sizes are bytes.

Three forms of a URL are never mixed (`raw_url`, `url`, `key`): as it stood on
the page; the request form, which is sent and stored; the duplicate key, which
is only hashed.
"""

from enum import IntEnum, StrEnum
from typing import Annotated

import msgspec

# Bounds that decoding checks, at no measurable cost; MessagePack has no integers beyond 64 bits.
Unsigned64 = Annotated[int, msgspec.Meta(ge=0)]
Small = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]

# What msgspec raises for bytes that are not what they should be: bad UTF-8 and deep nesting have no error of its own.
UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError)


class LinkFlag:
    """What a link is, beside its URL. Travels with it through splitter, DUE and frontier.

    Plain integers: testing a member of an IntFlag costs a microsecond.
    """

    NONE = 0
    SEED = 1  # given by the user, or a redirect of such a URL: it widens the scope
    SITEMAP = 2  # the answer is to be read as a sitemap
    FEED = 4  # the answer is to be read as RSS or Atom
    REQUISITE = 8  # needed to show a page (image, style, script, frame); its own links are not taken, its requisites are
    REDIRECT = 16  # the target of a redirect; `redirects` counts the chain so far
    REFRESH = 32  # a known page fetched again
    SCOPE = 64  # no link, but word to another process that the scope has grown by this URL
    OWN_REQUEST = (
        128  # asked as the user's request says (`Way`), under a fingerprint of its own; never refreshed
    )
    RANKED = 256  # the user has given it a priority
    AGAIN = 512  # a known page in the queue once more (`crawl.timestamping`)
    # Word to the owner that this URL is said to have changed; `redirects` is the source's number
    SIGNAL = 1024
    NEWS = 2048  # shown by a known page that was asked again, which gets the credit if this becomes a page
    CREDIT = 4096  # word to the owner of the page `via` that a URL which it had shown became a page


def flag_names(flags: int) -> str:
    """Return the names of the `LinkFlag`s that are set, joined by "|"; "NONE" without any."""
    names = [name for name, flag in vars(LinkFlag).items() if name.isupper() and flags & flag]
    return "|".join(names) or "NONE"


class Link(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A URL found, canonical and accepted by the filter.

    `fingerprint` is the 64-bit fingerprint of its duplicate key, `via` that of
    the page it was found on (0 for a seed), `depth` the link hops from a seed
    (redirects and requisites cost none), `redirects` the hops of the chain that ends here: of
    redirects, or of requisites that need requisites. `flags` are those of `LinkFlag`, and above them
    the link's class (`orders/classes.py`).
    """

    fingerprint: Unsigned64
    url: str
    depth: Small = 0
    via: Unsigned64 = 0
    redirects: Small = 0
    flags: Small = 0


class TaskKind(StrEnum):
    """What the frontier asks the shell to do for a host."""

    RESOLVE = "resolve"  # look up the host's addresses
    ROBOTS = "robots"  # fetch robots.txt of an authority
    PAGE = "page"  # fetch a page
    DENIED = "denied"  # nothing to fetch: robots.txt forbids the URL; record it and go on


class FetchTask(msgspec.Struct, gc=False):
    """One piece of work the frontier hands out; the host's slot is taken until it is finished.

    `host` is the 64-bit host key (bucket << 48 | 48 bits of the keyed host
    hash), `order` the sort key of the to-do entry within its host (8 bytes
    big-endian in the store). `address` is the IP address the host was
    scheduled on ("" for RESOLVE). `attempt` counts earlier failures of this
    URL.
    """

    kind: TaskKind
    host: int
    hostname: str
    url: str
    fingerprint: int = 0
    depth: int = 0
    via: int = 0
    redirects: int = 0
    flags: int = 0
    order: int = 0
    attempt: int = 0
    address: str = ""


class RequestOptions(msgspec.Struct, frozen=True, gc=False):
    """How a URL is asked that is not asked by a plain GET; `headers` are "Name: value"."""

    method: str = "GET"
    body: bytes = b""
    headers: tuple[str, ...] = ()


BUSY_STATUSES = frozenset((429, 503))  # the host asks for a slower crawl: HOST_BUSY, with Retry-After


class Outcome(StrEnum):
    """How a fetch ended: every fetch has exactly one. Names are those of the report."""

    FETCHED = "fetched"  # 2xx with content
    EMPTY = "empty"  # 204, 205, zero length
    UNCHANGED = "unchanged"  # 304 to a conditional request
    REDIRECT = "redirect"  # 301 302 303 307 308 with a usable Location
    BAD_REDIRECT = "bad_redirect"  # 3xx without one, a loop, or a chain that is too long
    GONE = "gone"  # 404, 410
    CLIENT_ERROR = "client_error"  # other 4xx
    TEMPORARY = "temporary"  # 408, 5xx but 503
    HOST_BUSY = "host_busy"  # BUSY_STATUSES
    UNEXPECTED_STATUS = "unexpected_status"  # 206, 304 or 416 unasked; 101
    BAD_STATUS = "bad_status"  # under 100, from 600 up, no number
    HEADER_TOO_LARGE = "header_too_large"
    FRAMING = "framing"  # RFC 9112 broken beyond use
    TRUNCATED = "truncated"  # the body did not come whole in time or length promised; retried
    HEADER_TIMEOUT = "header_timeout"  # request sent, no header block in time
    DNS_ERROR = "dns_error"  # SERVFAIL, time-out
    DNS_NOT_FOUND = "dns_not_found"  # NXDOMAIN, no address
    ADDRESS_DENIED = "address_denied"  # only addresses that the guard denies
    CONNECT_ERROR = "connect_error"  # refused, unreachable, time-out
    TLS_ERROR = "tls_error"  # certificate or handshake
    RESET = "reset"  # closed or reset before any byte of an answer
    PROXY_ERROR = "proxy_error"
    INTERNAL_ERROR = "internal_error"  # an exception of ours: logged with its traceback, retried
    ROBOTS_DENIED = "robots_denied"  # never asked: robots.txt forbids it


class Blame(IntEnum):
    """Whom a failure is charged to (`frontier/README.md`, "Failures")."""

    NONE = 0  # success, or final for the URL
    URL = 1  # tried again by the URL's own schedule
    HOST = 2  # the host waits; its URLs keep their place


class Fetch(msgspec.Struct, gc=False):
    """What came of one request: outcome, answer, and what the store needs.

    `body` is the payload as received after transfer decoding, content coding
    still on it (unless `store = "decoded"`). `headers` are name and value as
    received, in order. `truncated` is "", "length", "time" or "disconnect".
    `decoded_length` counts the body's bytes without content coding, as far as
    the caps let it be decoded. `retry_after` is in seconds, 0 if not asked for.
    `took` counts from the request's leaving to the last byte's arrival: no
    connecting, no TLS. `connection` says how the request was carried ("reused",
    or "plain", "full", "resumed" for a new one and its handshake; "" if there
    was none). `undecoded`: the body has a content coding that we do not know, so `content` is empty.
    `payload_digest` is the SHA-1 of what is stored if somebody has computed it ahead, else b"".
    `final` tells, once the frontier has decided, that no other try follows.
    """

    url: str
    outcome: Outcome
    blame: Blame = Blame.NONE
    status: int = 0
    reason: str = ""
    version: str = "HTTP/1.1"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    request_head: bytes = b""
    body: bytes = b""
    content: bytes = b""
    content_type: str = ""
    charset: str = ""
    truncated: str = ""
    address: str = ""
    location: str = ""
    retry_after: float = 0.0
    began: float = 0.0
    took: float = 0.0
    wire_bytes: int = 0
    error: str = ""
    tls_ok: bool = True
    connection: str = ""
    undecoded: bool = False
    payload_digest: bytes = b""
    final: bool = True

    def header(self, name: bytes) -> bytes:
        """The first value of the field `name` (lower case), b"" if there is none."""
        for field, value in self.headers:
            if field.lower() == name:
                return value
        return b""


class Extracted(msgspec.Struct, gc=False):
    """What a page gave: raw URLs as they stood, unique, in order of appearance.

    `base` is the URL they are relative to, `encoding` the page's (WHATWG name;
    the query of a link is encoded in it). `nofollow`, `noindex`, `noarchive`
    are the page-level robots directives. `parse_limit` says that the page
    exceeded the parser's bound and `hrefs` come from a plain scan. `maps` are
    the sitemaps that a sitemap index names; `repeats` the links with every
    mention, filled for URL traces only. `dated` are links of a sitemap, feed or
    listing of a directory with the instant of their last change, where the document's dates say anything;
    `told_by` is which of the three it is, "" for none. `anchors` are the texts of the first anchors
    of `hrefs`, one each ("" for other links), where somebody asked for them; else [].
    """

    base: str
    encoding: str = "utf-8"
    hrefs: list[str] = []
    maps: list[str] = []
    requisites: list[str] = []
    refresh: str = ""
    canonical: str = ""
    title: str = ""
    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    parse_limit: bool = False
    repeats: list[str] = []
    dated: list[tuple[str, float]] = []
    told_by: str = ""
    anchors: list[str] = []


class PageState(StrEnum):
    """The life of a URL's record."""

    STORED = "stored"  # a copy is in the page cache
    REDIRECTED = "redirected"
    GONE = "gone"
    FAILED = "failed"
    DENIED = "denied"  # robots.txt
    RETIRED = "retired"  # dropped by the user


class PageRecord(msgspec.Struct, gc=False, array_like=True):
    """What is kept of a URL once it was tried; the value of `u/<fingerprint>`."""

    url: str
    state: PageState
    outcome: Outcome
    status: int = 0
    depth: int = 0
    via: int = 0
    redirects: int = 0
    flags: int = 0
    fetched_at: float = 0.0  # instant of the last attempt that gave an answer
    changed_at: float = 0.0  # instant of the first capture with the present digest
    took: float = 0.0
    content_type: str = ""
    digest: bytes = b""  # SHA-1 of the payload as stored
    etag: str = ""
    last_modified: str = ""
    attempts: int = 0
    fetches: int = 0
    changes: int = 0
    links: int = 0
    location: str = ""
    noindex: bool = False
    noarchive: bool = False
    error: str = ""
    # 16 bytes, of the content that counts as a change (`pages/change_detection.py`)
    content_digest: bytes = b""
    not_modified: int = 0  # successive answers 304


class Capture(msgspec.Struct, gc=False, array_like=True):
    """Where a stored copy lies; the value of `c/<fingerprint><time>`.

    `kind` is "response" or "revisit"; a revisit names the response it repeats
    by `refers_to` (that record's `c/` key). `length` is that of the record's
    gzip member, `extent` that of all records of the capture, which follow one
    another from `offset` on. `broken`: the answer broke off (outcome `truncated`).
    """

    segment: str
    offset: int
    length: int
    kind: str
    fetched_at: float
    status: int
    content_type: str
    digest: bytes
    url: str
    refers_to: bytes = b""
    noarchive: bool = False
    extent: int = 0
    broken: bool = False


class FrontierCounts(msgspec.Struct, kw_only=True):
    """URLs to do (`in_flight` among them), parked ones by rule, hosts by state; requests and look-ups under way.

    `hosts_reached` are those that have ever answered.
    """

    todo: int = 0
    in_flight: int = 0
    requests: int = 0
    look_ups: int = 0
    hosts: int = 0
    hosts_reached: int = 0
    hosts_front: int = 0
    hosts_ready: int = 0
    hosts_waiting: int = 0
    hosts_excluded: int = 0
    hosts_blocked: int = 0
    hosts_refused: int = 0
    hosts_given_up: int = 0
    parked: int = 0
    parked_depth: int = 0
    parked_pages_per_host: int = 0
    parked_pages_per_domain: int = 0
    parked_hosts_per_domain: int = 0
    parked_maps_per_host: int = 0


class DueCounts(msgspec.Struct, kw_only=True):
    """Links pending, found to be known and found to be new since the crawl began; runs on disk now."""

    pending: int = 0
    known: int = 0
    new: int = 0
    runs: int = 0
    expected_collisions: float = 0.0


class SplitterCounts(msgspec.Struct, kw_only=True):
    """What crossed between processes since the crawl began.

    `sent`, `waiting` and `repeated` (left out of a long queue) add up to all
    links ever put into the outbox; `batches` and `bytes` were confirmed.
    """

    sent: int = 0
    waiting: int = 0
    repeated: int = 0
    batches: int = 0
    bytes: int = 0
    applied: int = 0
    local: int = 0
    foreign: int = 0
    cache_hits: int = 0
    scope_told: int = 0
    scope_heard: int = 0
    signals_told: int = 0
    signals_heard: int = 0
    credits_told: int = 0
    credits_heard: int = 0


class HostStatus(msgspec.Struct, kw_only=True):
    """State of a host, the instant from which it may be asked and why not before, and its counts.

    `cause` is an outcome, or why it is held or given up; `wait` the seconds until `ready_at`, `next_retry_at` the
    first instant at which a URL of its queue is tried again, 0 if none is. `best` is the importance of
    the first URL of its queue (`orders/`), 0 if it is empty.
    """

    host: str
    state: str
    cause: str
    ready_at: float
    wait: float
    next_retry_at: float
    gap: float
    failures: int
    refusals: int
    slowdown: float
    todo: int
    parked: int
    known: int
    best: float = 0.0


class PeerStatus(msgspec.Struct, omit_defaults=True):
    """What a person wants to know of a peer; of a process that does not run, only what waits for the peer.

    `last_ending` says how the last connection ended.
    """

    outbox_links: int
    outbox_bytes: int
    connected: bool | None = None
    address: str = ""
    last_ending: str | None = None
    in_flight_bytes: int | None = None
