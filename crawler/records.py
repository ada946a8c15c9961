"""The records that the stages pass to one another.

A stage imports the shared modules and these records, never another stage. All
records are plain structs without behaviour. Instants are seconds since the epoch
by the process clock, durations are seconds, and sizes are bytes.

A URL has three forms: `raw_url` is the text on the page; `url` is the request form, which is sent and stored;
`key` is the duplicate key, which is only hashed.
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, NamedTuple

import msgspec

from crawler.storage.parts import Part

# Decoding checks the bounds of integers at no measurable cost. MessagePack has no integers of more than 64
# bits.
Unsigned64 = Annotated[int, msgspec.Meta(ge=0)]
Small = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]

# All exceptions that msgspec raises for malformed bytes. For invalid UTF-8 and deep nesting, msgspec raises
# exceptions of Python.
UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError)


class LinkFlag:
    """Properties of a link besides its URL. They are passed on with the link through splitter, DUE and frontier.

    The flags are plain integers, because testing a member of an IntFlag costs a microsecond.
    """

    NONE = 0
    # given by the user, or the target of a redirect from a URL given by the user; the URL widens the scope
    SEED = 1
    SITEMAP = 2  # read the answer as a sitemap
    FEED = 4  # the answer was read as a feed
    # a requisite, needed to show a page (image, style, script, frame); only its own requisites are followed
    REQUISITE = 8
    REDIRECT = 16  # the target of a redirect; `redirects` is the length of the chain so far
    REFRESH = 32  # a known page fetched again
    SCOPE = 64  # not a link: tells a peer that the scope grew by this URL
    # requested with the user's `RequestOptions`, under a fingerprint of its own; never refreshed
    OWN_REQUEST = 128
    RANKED = 256  # the user gave the URL a priority
    AGAIN = 512  # a known page that is queued again (`crawl.timestamping`)
    # Not a link: tells the owner that, according to a signal, this URL has changed. `redirects` is the number
    # of the signal's source, and `via` is the instant of the signal in whole seconds. `depth` is the number of
    # processes that have passed the signal on to the owner of a redirect's target.
    SIGNAL = 1024
    # Found on a known page that was fetched again; if the URL becomes a page, the known page gets the credit. If `via`
    # is 0, a change signal named the URL.
    NEWS = 2048
    # not a link: tells the owner of the page `via` that a URL found on this page has become a page of the
    # crawl
    CREDIT = 4096
    # out of scope, and fetched only to see whether the link works; the answer is not stored, and its links
    # are not followed
    EXTERNAL = 8192
    RENDER = 16384  # render this page in a browser, even if the configuration says otherwise
    STATIC = 32768  # never render this page in a browser
    # `crawler retire` dropped the URL while the link waited for its owner; the URL is never fetched. The 8
    # bits below the bit of this flag hold the class of the link (`orders/classes.py`).
    RETIRED = 1 << 24
    SNIFFED = 1 << 25  # the answer has no usable media type, but it begins like HTML, so it is a page

    # With SCOPE: the URL is a seed of the sender. The receiver keeps the URL, in case the sender loses its disk.
    KEPT = 1 << 26


# A `Link` with one of these flags is not a link on a page, but a message to the owner of its URL.
MESSAGE = LinkFlag.SCOPE | LinkFlag.SIGNAL | LinkFlag.CREDIT
# If a link has one of these flags, the answer to it is not a page of the crawl.
NO_PAGE = LinkFlag.REQUISITE | LinkFlag.SITEMAP | LinkFlag.EXTERNAL


def flag_names(flags: int) -> str:
    """Return the names of the `LinkFlag`s that are set, joined by "|"; "NONE" if none is set."""
    names = [name for name, flag in vars(LinkFlag).items() if name.isupper() and flags & flag]
    return "|".join(names) or "NONE"


class Link(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A URL that was found, in canonical form, and accepted by the filter.

    `fingerprint` is the 64-bit fingerprint of the URL's duplicate key. `via` is the fingerprint of the page
    that contained the link (0 for a seed). `depth` counts the links followed from a seed; redirects and
    requisites do not count. `redirects` is the number of redirects that led here. For a requisite of a
    requisite, such as an image of a style sheet, it is the number of requisites before this one in the chain.
    `flags` holds the `LinkFlag`s and, in the bits above them, the class of the link (`orders/classes.py`).
    """

    fingerprint: Unsigned64
    url: str
    depth: Small = 0
    via: Unsigned64 = 0
    redirects: Small = 0
    flags: Small = 0


class TaskKind(StrEnum):
    """The kinds of tasks that the frontier hands out for a host."""

    RESOLVE = "resolve"  # look up the host's addresses
    ROBOTS = "robots"  # fetch robots.txt of an authority
    PAGE = "page"  # fetch a page
    DENIED = "denied"  # robots.txt or a withdrawal forbids the URL: record this and fetch nothing
    # not handed out by the frontier: a request that a page makes while a browser renders it
    SUBRESOURCE = "subresource"
    # not handed out by the frontier: tdmrep.json or a licence document of a page's site
    SITE_FILE = "site_file"
    HOP = "hop"  # any answer of a redirect chain except the last; the frontier does not hand out such a task


class FetchTask(msgspec.Struct, gc=False):
    """One task that the frontier hands out. The host's slot is occupied until the task is finished.

    `host` is the 64-bit host key (bucket << 48 | 48 bits of the keyed host
    hash). `order` is the sort key of the to-do entry within its host (8 bytes
    big-endian in the store). `address` is the IP address for which the host was
    scheduled ("" for RESOLVE). `attempt` counts earlier failures of this URL.
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
    """How to request a URL that is not fetched by a plain GET.

    `headers` are lines of the form "Name: value". `jar` names a cookie jar of the crawl ("" is the common jar).
    `proxy` is the URL of a proxy ("" means the configured proxy). `secrets` are names of fields of the body whose
    values are never recorded.
    """

    method: str = "GET"
    body: bytes = b""
    headers: tuple[str, ...] = ()
    jar: str = ""
    proxy: str = ""
    secrets: tuple[str, ...] = ()


REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))
BUSY_STATUSES = frozenset((429, 503))  # statuses that ask for fewer requests (HOST_BUSY, Retry-After)


REDIRECT_LOOP = "redirect loop"  # `Fetch.error` of a URL that redirects to itself


class Outcome(StrEnum):
    """The result of a fetch; each fetch has exactly one. Reports use the names below."""

    FETCHED = "fetched"  # 2xx with content
    EMPTY = "empty"  # 204, 205, zero length
    UNCHANGED = "unchanged"  # 304 to a conditional request
    REDIRECT = "redirect"  # 301 302 303 307 308 with a usable Location
    BAD_REDIRECT = "bad_redirect"  # 3xx without a usable Location, a redirect loop, or too long a chain
    GONE = "gone"  # 404, 410
    LICENSE_REQUIRED = "license_required"  # a 401 that demands a licence token (RSL)
    CLIENT_ERROR = "client_error"  # other 4xx
    TEMPORARY = "temporary"  # 408, or 5xx other than 503
    HOST_BUSY = "host_busy"  # BUSY_STATUSES
    UNEXPECTED_STATUS = "unexpected_status"  # 101, or a 206, 304 or 416 that was not requested
    BAD_STATUS = "bad_status"  # below 100, 600 or more, or not a number
    HEADER_TOO_LARGE = "header_too_large"
    FRAMING = "framing"  # the message violates RFC 9112 and cannot be used
    TRUNCATED = "truncated"  # the body was incomplete, or did not arrive in time; the URL is retried
    HEADER_TIMEOUT = "header_timeout"  # the request was sent, but no header block arrived in time
    DNS_ERROR = "dns_error"  # SERVFAIL or timeout
    DNS_NOT_FOUND = "dns_not_found"  # NXDOMAIN or no address
    ADDRESS_DENIED = "address_denied"  # the address guard denies all addresses of the host
    CONNECT_ERROR = "connect_error"  # refused, unreachable or timeout
    CERTIFICATE_EXPIRED = "certificate_expired"  # or not valid yet
    CERTIFICATE_MISMATCH = "certificate_mismatch"  # the certificate is for another host
    CERTIFICATE_UNTRUSTED = (
        "certificate_untrusted"  # self-signed, of an unknown authority, or otherwise not verified
    )
    TLS_ERROR = "tls_error"  # the TLS handshake failed for another reason
    RESET = "reset"  # closed or reset before the first byte of an answer
    PROXY_ERROR = "proxy_error"
    # A browser rendered the page in an earlier fetch, but no browser could render it this time. The URL is
    # retried.
    NOT_RENDERED = "not_rendered"
    INTERNAL_ERROR = "internal_error"  # exception in the crawler: its traceback is logged, the URL is retried
    ROBOTS_DENIED = "robots_denied"  # never requested: robots.txt forbids it
    WITHDRAWN = "withdrawn"  # never requested, because the operator has withdrawn the page


# The outcomes of a TLS handshake that failed.
TLS_FAILURES = frozenset(
    {
        Outcome.CERTIFICATE_EXPIRED,
        Outcome.CERTIFICATE_MISMATCH,
        Outcome.CERTIFICATE_UNTRUSTED,
        Outcome.TLS_ERROR,
    }
)


class Blame(IntEnum):
    """The party to which a failure is charged (`frontier/README.md`, "Failures")."""

    NONE = 0  # no failure is charged: success, or a final result for the URL
    URL = 1  # the URL is retried on its own schedule
    HOST = 2  # the host waits; its URLs keep their place in the queue


class PageFrame(msgspec.Struct, frozen=True, gc=False, order=True):
    """The body of a frame that a browser rendered, as HTML in UTF-8; its links are relative to the URL `base`."""

    url: str
    base: str
    html: bytes


class RenderingFacts(msgspec.Struct, gc=False, array_like=True):
    """The facts that are stored about the rendering of a page.

    `why` names the reason for the rendering: a reason of `render/deciding.py`, "always" or "request". `took`
    and `cpu` are in seconds; `render/work_account.py` measures `cpu`. `requests` is the number of requests
    that the rendering made, and `missing` is the number of these that got no usable answer. `broke` names the
    limit that ended the rendering ("" for none). `added` means that the rendering shows links or text that
    the static answer lacks. If no browser could render the page, `failures` is the number of failed attempts
    in a row, and `again_at` is the instant from which `render.when = "auto"` tries to render the page again.
    In this case, the other fields still describe the stored rendering, if there is one.
    """

    why: str = ""
    took: float = 0.0
    cpu: float = 0.0
    requests: int = 0
    missing: int = 0
    broke: str = ""
    added: bool = False
    failures: int = 0
    again_at: float = 0.0
    pictured: bool = False  # a picture of the page is stored


class Rendering(RenderingFacts, kw_only=True, gc=False, array_like=False):
    """A page as a browser rendered it (`render/README.md`).

    `dom` is the DOM as HTML in UTF-8; it is b"" if no browser could render the page. `frames` are the frames
    whose contents belong to the page. `subresources` are the answers that were fetched for the page; `cached`
    is the number of requests that the cache of scripts and styles answered. `left_for` is the URL to which
    the scripts of the page tried to navigate. `view` is a picture of the page as PNG, b"" if none was
    requested. `host_took` is the number of seconds for which the requests kept the page's own host busy.
    `candidate` means that the answer looked incomplete, as if a browser had to build the rest.
    """

    dom: bytes
    subresources: "list[Fetch]" = []
    cached: int = 0
    left_for: str = ""
    view: bytes = b""
    host_took: float = 0.0
    candidate: bool = False
    frames: list[PageFrame] = []

    def facts(self) -> RenderingFacts:
        """Return the facts to store about this rendering."""
        facts = RenderingFacts(*(getattr(self, name) for name in RenderingFacts.__struct_fields__))
        facts.took, facts.cpu = round(self.took, 2), round(self.cpu, 2)
        facts.pictured = bool(self.dom and self.view)
        return facts


CACHED = "cached"  # the answer of an earlier crawl was used again, and nothing was requested


def only_value(values: Sequence[bytes]) -> bytes:
    """Return the value of a field that may occur once; b"" if there is none, or if there are several that differ."""
    return values[0] if values and all(value == values[0] for value in values) else b""


def values_by_name(fields: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the values of header fields by lower-case name; the values of a repeated field are joined by LF."""
    known = {name.lower(): value for name, value in fields}
    if len(known) < len(fields):
        known.clear()
        for name, value in fields:
            key = name.lower()
            known[key] = value if key not in known else known[key] + b"\n" + value
    return known


class Fetch(msgspec.Struct, gc=False):
    """The result of one request: its outcome, the answer, and the facts that are stored with it.

    `head_block` is the header block as received; it is b"" if a credential was removed from `headers`. `body`
    is the body of the answer, without the transfer coding. With `store = "decoded"`, it is also without the
    content coding. `headers` are names and values as received, in order. `truncated` is "", "length", "time"
    or "disconnect". `decoded_length` counts the bytes of the body without content coding, up to the decoding
    limits. `retry_after` is the delay that the server asked for, in seconds; 0 if it did not ask for one.
    `took` is the time from sending the request to the last byte of the answer, without connecting and TLS.
    `connection` is "reused" if the connection was reused, and otherwise the handshake of the new connection:
    "plain", "full" or "resumed". It is CACHED if an answer of an earlier crawl was used, and "" if there was
    no connection. `hop_connections` are the connections of the earlier requests of the fetch task: those of
    redirects, of the parts of a resumed file, and of a request that was repeated with a signature. `wire_bytes`
    includes the bytes of these requests. `undecoded` means that the content coding is not known to the crawler,
    so `content` is empty. `payload_digest` is the SHA-1 of the stored payload, or b"" if it has not been
    computed yet. `final` means that the frontier will not retry the URL. `rendering` is the attempt to render
    the page in a browser, if there was one. `held_back` means that the page should have been rendered in a
    browser, but this was put off because earlier attempts had failed. `site` is the digest of the statements
    that the host made at that time about the use of its pages (`consent/site_book.py`). `challenged` means that
    the server asked the crawler to sign its requests, and that this request should be repeated with a
    signature. `part` is the payload of a large file; `body` and `content` are then empty. `request_head` and
    `request_body` are the request without the values of credentials. `earlier` are the answers of the redirect
    chain that led here, if the user's code made the request. `known` maps the names in `headers`, in lower
    case, to their values. Several values of a name are joined by line feeds. `known` is None until it is
    needed.
    """

    url: str
    outcome: Outcome
    blame: Blame = Blame.NONE
    status: int = 0
    reason: str = ""
    version: str = "HTTP/1.1"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    head_block: bytes = b""
    request_head: bytes = b""
    request_body: bytes = b""
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
    hop_connections: tuple[str, ...] = ()
    undecoded: bool = False
    payload_digest: bytes = b""
    final: bool = True
    rendering: Rendering | None = None
    held_back: bool = False
    site: bytes = b""
    challenged: bool = False
    part: Part | None = None
    earlier: "list[Fetch]" = []
    known: dict[bytes, bytes] | None = None

    @property
    def shown(self) -> Rendering | None:
        """The page as a browser rendered it; None if no browser did."""
        return self.rendering if self.rendering is not None and self.rendering.dom else None

    @property
    def is_cached(self) -> bool:
        """True if this is a stored answer: no request was made."""
        return self.connection == CACHED

    @property
    def body_bytes(self) -> int:
        """The length of the payload."""
        return len(self.body) if self.part is None else self.part.length

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the answer has a header field with one of these names (in lower case)."""
        return not names.isdisjoint(self.known if self.known is not None else self._known())

    def header(self, name: bytes) -> bytes:
        """Return the first value of the field `name` (in lower case), or b"" if there is none."""
        joined = (self.known if self.known is not None else self._known()).get(name, b"")
        if b"\n" not in joined:
            return joined
        return next(value for field, value in self.headers if field.lower() == name)

    def _known(self) -> dict[bytes, bytes]:
        if self.known is None:
            self.known = values_by_name(self.headers)
        return self.known


class Directives(NamedTuple):
    """The robots directives of a page that apply to this crawler."""

    nofollow: bool = False  # no link of the page is followed
    noindex: bool = False  # the page is flagged
    noarchive: bool = False  # the page is not served or exported, except on request


class Markup(msgspec.Struct, gc=False):
    """The markup of a page that the audit checks (`extract/markup.py`). URLs are raw, as on the page.

    `headings` are the texts of the h1 elements, and `alternates` are pairs (hreflang, raw URL). `images` are
    the first images without alt text, and `unnamed_images` is the number of all such images. `words` is -1 if
    it is unknown.
    """

    descriptions: list[str] = []
    headings: list[str] = []
    canonicals: list[str] = []
    alternates: list[tuple[str, str]] = []
    images: list[str] = []
    unnamed_images: int = 0
    words: int = -1


class Extracted(msgspec.Struct, gc=False):
    """The links and directives of a page. URLs are raw, as on the page. Each URL occurs once, in order of appearance.

    `base` is the URL to which the raw URLs are relative. `encoding` is the encoding of the page (WHATWG
    name), in which the query of a link is encoded. `nofollow`, `noindex` and `noarchive` are the page-level
    robots directives, including those of the header. `metas` contains only the directives of the page's own
    meta tags, as in `PageRecord`. `parse_limit` means that the page exceeded the parser's limit, so that
    `hrefs` come from a plain scan. `maps` are the sitemaps that a sitemap index names. `repeats` contains
    each link as often as the page contains it. This list is filled only for URL traces. If the document is a
    sitemap, feed or directory listing, `dated` contains those links for which the document gives the instant
    of the last change. Each of them is a pair (raw URL, instant). If the document was read before, `dated` contains
    only the dates that are signals, and `first_dated` the other dates that it did not give before. `told_by` is
    the kind of the document:
    "sitemap", "feed" or "listing", or "" for any other kind. `anchors` has one text for each of `hrefs`: that
    of the first anchor with this href and a text, or "" if there is none. It is [] unless the texts were
    requested. `markup` is present if it was requested and the page was parsed. `statements` are pairs (name,
    content) of the meta elements that allow or forbid uses of the page. `licenses` are the raw URLs of the
    RSL documents that link elements announce. If the document is a sitemap, `submitters` are the other authorities
    whose robots.txt names it, so that it may list their URLs.
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
    first_dated: list[tuple[str, float]] = []
    told_by: str = ""
    anchors: list[str] = []
    metas: int = 0
    markup: Markup | None = None
    statements: list[tuple[str, str]] = []
    licenses: list[str] = []
    submitters: list[str] = []


class ReceiptStamp(msgspec.Struct, frozen=True, gc=False):
    """A consent receipt as the page cache writes it.

    `answers` lists the known answers in words, and `block` is the whole receipt as JSON.
    """

    digest: bytes
    answers: str
    block: bytes


class PageState(StrEnum):
    """The state of a URL's record."""

    STORED = "stored"  # a copy is in the page cache
    REDIRECTED = "redirected"
    GONE = "gone"
    FAILED = "failed"
    DENIED = "denied"  # robots.txt
    # the operator withdrew the URL before it was fetched, or withdrew it and had all of its copies erased
    RETIRED = "retired"


META_NOINDEX, META_NOARCHIVE = 1, 2


class PageRecord(msgspec.Struct, gc=False, array_like=True):
    """The facts about a URL that was tried, which are stored under the key `u/<fingerprint>`."""

    url: str
    state: PageState
    outcome: Outcome
    status: int = 0
    depth: int = 0
    via: int = 0
    redirects: int = 0
    flags: int = 0
    fetched_at: float = 0.0  # instant of the last attempt that was answered
    changed_at: float = 0.0  # instant of the first capture with the current digest
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
    # 16 bytes: a digest of the content without the parts whose changes do not count
    # (`pages/change_detection.py`)
    content_digest: bytes = b""
    not_modified: int = 0  # number of 304 answers in a row
    # directives of the page's own meta tags: META_NOINDEX | META_NOARCHIVE; -1 if they were not recorded
    metas: int = -1
    rendered: bool = False  # the content is the DOM that a browser made
    receipt: bytes = b""  # the consent receipt of the page's last fetch (`consent/receipts.py`)
    # If `rendered` is True: facts about the stored rendering. If `rendered` is False: facts about the last
    # attempt to render, which failed.
    shown: RenderingFacts | None = None
    unanswered_at: float = 0.0  # instant of the last attempt if it got no answer, or else 0
    queued: bool = False  # the last attempt failed, and the URL waits in its queue for the next one
    # the first 8 bytes of the content digest that the page had before its last change
    earlier_digest: bytes = b""

    @property
    def tried_at(self) -> float:
        """The instant of the last attempt, even if it got no answer."""
        return self.unanswered_at or self.fetched_at

    @property
    def was_found(self) -> bool:
        """True if any fetch of the URL has found a page."""
        return self.fetches > 0 or self.state is PageState.STORED

    def link(self, fingerprint: int, flags: int) -> Link:
        """Return a link to the URL, found as it was found before."""
        return Link(fingerprint, self.url, self.depth, self.via, self.redirects, flags)


class Capture(msgspec.Struct, gc=False, array_like=True):
    """The location of a stored copy, which is stored under the key `c/<fingerprint><time>`.

    `kind` is "response" or "revisit". In a revisit, `refers_to` is the `c/` key of the response whose payload
    the revisit repeats. `length` is the length of the record's gzip member. `extent` is the length of all
    records of the capture together. They follow one another from `offset` on. `broken` means that the answer
    is incomplete (outcome `truncated`).
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
    dom_offset: int = 0  # offset of the DOM's record, counted from `offset`; 0 if there is none
    dom_length: int = 0
    receipt: bytes = b""  # the consent receipt of this fetch
    query: str = ""  # method and body of the request (`pages/request_query.py`), "" for a plain GET
    # offset of the warcinfo record to which the records refer; it is not 0 if the records were moved from
    # another segment
    warcinfo: int = 0


class FrontierCounts(msgspec.Struct, kw_only=True):
    """Counts URLs to do (including `in_flight`), URLs parked by each rule, hosts by state, requests, and look-ups.

    `hosts_reached` counts the hosts that have ever answered. `hosts_failing` counts the hosts whose latest
    requests failed (`frontier/hosts/ranking.py`), and `hosts_nameless` those of them that were given up because
    their name does not exist. `addresses` counts the IP addresses in memory.
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
    hosts_failing: int = 0
    hosts_nameless: int = 0
    addresses: int = 0
    parked: int = 0
    parked_depth: int = 0
    parked_pages_per_host: int = 0
    parked_pages_per_domain: int = 0
    parked_hosts_per_domain: int = 0
    parked_maps_per_host: int = 0


class DueCounts(msgspec.Struct, kw_only=True):
    """Counts of a DUE: pending links, runs on disk, and all links so far to known URLs and to new URLs."""

    pending: int = 0
    known: int = 0
    new: int = 0
    runs: int = 0
    expected_collisions: float = 0.0


class SplitterCounts(msgspec.Struct, kw_only=True):
    """Counters of the traffic between processes since the crawl began.

    `repeated` counts the links that a compaction removed from a long queue because the same link was already
    waiting there. The sum of `sent`, `waiting` and `repeated` is the number of all links ever put into the
    outbox. `batches` and `bytes` count what peers confirmed. `recoveries` counts the losses after which links
    were queued again. After a loss, `sent` of one process and `applied` of another no longer count the same links.
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
    recoveries: int = 0


class HostStatus(msgspec.Struct, kw_only=True):
    """The state and the counters of a host, the time when it may be requested again, and the reason for the wait.

    `cause` is an outcome, or the reason why the host is held or was given up. `wait` is the number of seconds
    until `ready_at`. `next_retry_at` is the first instant at which a URL of the host's queue is retried; it
    is 0 if no URL will be retried. `best` is the importance of the first URL of the host's queue (`orders/`);
    it is 0 if the queue is empty.
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


class SlowestHost(msgspec.Struct, frozen=True):
    """The host whose queue takes the longest time; `seconds` is the least time until all its URLs can be requested."""

    host: str
    seconds: float


class PeerStatus(msgspec.Struct, omit_defaults=True):
    """The state of a peer, for display.

    If the process does not run, only the number of links that wait for the peer is known. `last_ending` says
    how the last connection ended.
    """

    outbox_links: int
    outbox_bytes: int
    connected: bool | None = None
    address: str = ""
    last_ending: str | None = None
    in_flight_bytes: int | None = None
