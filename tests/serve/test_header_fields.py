"""Test the header fields and content codings of served copies, and the conditions for an answer of 304."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.errors import ConfigError
from crawler.serve import header_fields
from crawler.serve.host_check import check_host, is_bot, parse_address
from crawler.serve.http_error import HttpError
from tests.serve.support import Served

# The field names in IANA's registry of HTTP fields (RFC 9110, 16.3.1), and unregistered names that browsers
# and servers use.
_REGISTERED = """
A-IM Accept Accept-Additions Accept-CH Accept-Charset Accept-Datetime Accept-Encoding Accept-Features Accept-Language
Accept-Patch Accept-Post Accept-Query Accept-Ranges Accept-Signature Access-Control Access-Control-Allow-Credentials
Access-Control-Allow-Headers Access-Control-Allow-Methods Access-Control-Allow-Origin Access-Control-Expose-Headers
Access-Control-Max-Age Access-Control-Request-Headers Access-Control-Request-Method Activate-Storage-Access Age Allow
ALPN Alt-Svc Alt-Used Alternates AMP-Cache-Transform Apply-To-Redirect-Ref Authentication-Control Authentication-Info
Authorization Available-Dictionary C-Ext C-Man C-Opt C-PEP C-PEP-Info Cache-Control Cache-Group-Invalidation
Cache-Groups Cache-Status Cal-Managed-ID CalDAV-Timezones Capsule-Protocol CDN-Cache-Control CDN-Loop
Cert-Not-After Cert-Not-Before Clear-Site-Data Client-Cert Client-Cert-Chain Close CMCD-Object CMCD-Request
CMCD-Session CMCD-Status CMSD-Dynamic CMSD-Static Concealed-Auth-Export Configuration-Context Connection Content-Base
Content-Digest Content-Disposition Content-Encoding Content-ID Content-Language Content-Length Content-Location
Content-MD5 Content-Range Content-Script-Type Content-Security-Policy Content-Security-Policy-Report-Only
Content-Style-Type Content-Type Content-Version Cookie Cookie2 Cross-Origin-Embedder-Policy
Cross-Origin-Embedder-Policy-Report-Only Cross-Origin-Opener-Policy Cross-Origin-Opener-Policy-Report-Only
Cross-Origin-Resource-Policy CTA-Common-Access-Token DASL Date DAV Default-Style Delta-Base Deprecation Depth
Derived-From Destination Detached-JWS Differential-ID Dictionary-ID Digest DPoP DPoP-Nonce Early-Data
EDIINT-Features ETag Expect Expect-CT Expires Ext Forwarded From GetProfile Hobareg Host HTTP2-Settings If If-Match
If-Modified-Since If-None-Match If-Range If-Schedule-Tag-Match If-Unmodified-Since IM
Include-Referred-Token-Binding-ID Incremental Isolation Keep-Alive Label Last-Event-ID Last-Modified Link Link-Template
Location Lock-Token Man Max-Forwards Memento-Datetime Meter Method-Check Method-Check-Expires MIME-Version Negotiate
NEL No-Vary-Search OData-EntityId OData-Isolation OData-MaxVersion OData-Version Opt Optional-WWW-Authenticate
Ordering-Type Origin Origin-Agent-Cluster OSCORE OSLC-Core-Version Overwrite P3P PEP PEP-Info
Permissions-Policy PICS-Label Ping-From Ping-To Position Pragma Prefer Preference-Applied Priority ProfileObject
Protocol Protocol-Info Protocol-Query Protocol-Request Proxy-Authenticate Proxy-Authentication-Info
Proxy-Authorization Proxy-Features Proxy-Instruction Proxy-Status Public Public-Key-Pins Public-Key-Pins-Report-Only
Range Redirect-Ref Referer Referer-Root Referrer-Policy Refresh Repeatability-Client-ID
Repeatability-First-Sent Repeatability-Request-ID Repeatability-Result Replay-Nonce Reporting-Endpoints Repr-Digest
Retry-After Safe Schedule-Reply Schedule-Tag Sec-Fetch-Dest Sec-Fetch-Mode Sec-Fetch-Site Sec-Fetch-Storage-Access
Sec-Fetch-User Sec-GPC Sec-Purpose Sec-Token-Binding Sec-WebSocket-Accept Sec-WebSocket-Extensions Sec-WebSocket-Key
Sec-WebSocket-Protocol Sec-WebSocket-Version Security-Scheme Server Server-Timing Set-Cookie Set-Cookie2 Set-TXN
SetProfile Signature Signature-Input SLUG SoapAction Status-URI Strict-Transport-Security Sunset Surrogate-Capability
Surrogate-Control TCN TE Timeout Timing-Allow-Origin Topic Traceparent Tracestate Trailer Transfer-Encoding TTL
Unencoded-Digest Upgrade Urgency URI Use-As-Dictionary User-Agent Variant-Vary Vary Via Want-Content-Digest Want-Digest
Want-Repr-Digest Want-Unencoded-Digest Warning WWW-Authenticate X-Content-Type-Options X-Frame-Options *
"""
_BESIDE = """
Attribution-Reporting-Register-Source Attribution-Reporting-Register-Trigger Critical-CH Document-Isolation-Policy
Document-Policy Feature-Policy Integrity-Policy Large-Allocation Observe-Browsing-Topics Origin-Trial
Permissions-Policy-Report-Only Proxy-Connection Report-To Save-Data Service-Worker-Allowed
Service-Worker-Navigation-Preload Set-Login SourceMap Speculation-Rules Supports-Loading-Mode X-SourceMap
X-DNS-Prefetch-Control X-Permitted-Cross-Domain-Policies X-Robots-Tag X-UA-Compatible X-XSS-Protection X-Forwarded-Host
X-Accel-Redirect X-Sendfile X-Crawled-At X-Changed-At X-Fresh-Probability X-Crawler-Hop X-Crawler-Transfer-Encoding
X-Anything-New
"""
_PASS = (
    "Content-Type Content-Language Content-Disposition Cache-Control Expires Retry-After Allow X-Robots-Tag"
)
_OURS = """
content-type etag last-modified memento-datetime x-crawled-at x-changed-at link accept-ranges age date
content-location content-length connection content-security-policy x-content-type-options referrer-policy
cross-origin-resource-policy
"""
NAMES, PASS, OURS = [*_REGISTERED.split(), *_BESIDE.split()], set(_PASS.split()), set(_OURS.split())


@pytest.mark.parametrize("case", [str, str.lower, str.upper])
def test_only_listed_fields_are_passed_on(case: Callable[[str], str]) -> None:
    """If a copy has every known field and an unknown one, only the listed fields are served."""
    given = [(case(name).encode(), b"text/html") for name in NAMES if name != "Connection"]
    assert [name for name, _ in header_fields.passed_on(given)] == [
        case(name).encode() for name in NAMES if name in PASS
    ]
    assert {name.decode() for name in header_fields.PASSED} == {name.lower() for name in PASS}


async def test_the_served_fields_of_a_copy_with_every_field(tmp_path: Path) -> None:
    """With `No-Vary-Search: params`, Chromium once showed a hostile copy under another page's address."""
    async with Served(tmp_path) as served:
        every = [name for name in NAMES if name not in ("Connection", "Content-Type", "Location", "*")]
        headers = ((b"Content-Type", b"text/html"), *((name.encode(), b"of-the-copy") for name in every))
        served.store(headers=tuple(each for each in headers if each[0] != b"Content-Encoding"))
        response = await served.get("/page?url=http://site.example/")
        assert response.status == 200
        theirs = {name for name, value in response.fields.items() if value == "of-the-copy"}
        assert theirs == {name.lower() for name in PASS - {"Content-Type"}}
        assert set(response.fields) - theirs == OURS


@pytest.mark.parametrize(
    "kind",
    ["multipart/x-mixed-replace; boundary=b", "MULTIPART/X-Mixed-Replace", "multipart/related", "message/rfc822",
     "text/html, multipart/x-mixed-replace; boundary=b", "text/html;a=b,multipart/x-mixed-replace", "", "x", "text/"],
)  # fmt: skip
def test_media_types_of_several_documents_are_not_passed_on(kind: str) -> None:
    assert header_fields.passed_on([(b"Content-Type", kind.encode())]) == []


@pytest.mark.parametrize(
    "kind", ["text/html", "text/html;charset=utf-8", ' image/svg+xml ; a="b" ', "application/vnd.a-b.c+json"]
)
def test_media_types_of_one_document_are_passed_on(kind: str) -> None:
    assert header_fields.passed_on([(b"content-TYPE", kind.encode())]) == [(b"content-TYPE", kind.encode())]


def test_fields_named_by_connection_are_not_passed_on() -> None:
    headers = [(b"Connection", b"close, Allow"), (b"allow", b"1"), (b"Expires", b"2")]
    assert header_fields.passed_on(headers) == [(b"Expires", b"2")]


@pytest.mark.parametrize(
    "field",
    [
        (b"Allow", b"a\r\nSet-Cookie: b"),
        (b"Allow", b"a\x00"),
        (b"X Y", b"a"),
        (b"", b"a"),
        (b"Allow\r\nY", b"a"),
    ],
)
def test_a_field_cannot_smuggle_another(field: tuple[bytes, bytes]) -> None:
    assert header_fields.passed_on([field]) == []


def test_a_reason_cannot_smuggle_a_field() -> None:
    assert header_fields.head(200, "OK\r\nX: y", []) == b"HTTP/1.1 200 OKX: y\r\n"


@pytest.mark.parametrize(
    ("field", "taken"),
    [
        ("", set()),
        ("gzip", {b"gzip", b"x-gzip"}),
        ("gzip, br;q=0.5", {b"gzip", b"x-gzip", b"br"}),
        ("gzip;q=0", set()),
        ("identity", set()),
        ("GZIP;q=1.0", {b"gzip", b"x-gzip"}),
        ("gzip;q=nonsense", set()),
        ("*;q=0", set()),
        ("*", {b"gzip", b"x-gzip", b"br", b"deflate", b"zstd", b"compress"}),
        ("*, br;q=0", {b"gzip", b"x-gzip", b"deflate", b"zstd", b"compress"}),
    ],
)
def test_codings_that_a_client_accepts(field: str, taken: set[bytes]) -> None:
    assert header_fields.accepted(field) == taken


@pytest.mark.parametrize(
    ("match", "since", "expected"),
    [
        ("", None, False),
        ('"a"', None, True),
        ('W/"a"', None, True),
        ('"b", "a"', None, True),
        ('"b"', None, False),
        ("*", None, True),
        ("", 100.0, True),
        ("", 99.0, False),
        ('"b"', 1000.0, False),  # If-None-Match takes precedence (RFC 9110, 13.1.3)
    ],
)
def test_conditions_for_a_304(match: str, since: float | None, expected: bool) -> None:
    assert header_fields.not_modified(match, since, '"a"', 100.9) is expected


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "localhost:1", "LOCALHOST", "cache.example", "10.1.2.3"],
)
def test_our_own_host_names_are_accepted(host: str) -> None:
    assert check_host([host], frozenset({"cache.example"})) == host


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        ([""], 400),
        (["127.0.0.1", "evil.example"], 400),
        (["evil.example"], 421),
        (["evil.example:8080"], 421),
        (["localhost.evil.example"], 421),
        (["127.0.0.1.evil.example"], 421),
        (["cache.example.evil.example"], 421),
        (["localhost@evil.example"], 421),
        (["a" * 100_000], 421),
        (["0x7f000001"], 421),
    ],
)
def test_foreign_hosts_are_rejected(hosts: list[str], status: int) -> None:
    """Requests with a foreign host name that resolves to this server are rejected, to prevent DNS rebinding."""
    with pytest.raises(HttpError) as caught:
        check_host(hosts, frozenset({"cache.example"}))
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:80", ("::1", 80)),
        ("8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_valid_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "serve.address") == address


@pytest.mark.parametrize("text", ["", "a:b", ":80", "1.2.3.4:99999", "http://a:80"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="serve.address"):
        parse_address(text, "serve.address")


def test_declared_robots_are_recognised() -> None:
    assert is_bot("Mozilla/5.0 (compatible; Googlebot/2.1)") and is_bot("example-crawler/1.0")
    assert (
        not is_bot("Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0")
        and not is_bot("curl/8.0")
        and not is_bot("")
    )
