"""The inputs that are mutated: the test suites under `tests/data`, and typical answers of servers."""

import gzip
import json
import zlib
from functools import cache
from pathlib import Path

import brotli

DATA = Path(__file__).parent.parent / "data"


def _json(name: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return rows


@cache
def archived() -> list[bytes]:
    """Return the HTTP answers in the archives, with header and body."""
    found = []
    for path in sorted((DATA / "warc").glob("*.warc")):
        for record in path.read_bytes().split(b"WARC/1.0\r\n"):
            head, _, block = record.partition(b"\r\n\r\n")
            if b"response" in head and block.startswith(b"HTTP/"):
                found.append(block.removesuffix(b"\r\n\r\n"))
    return found


PAGE = b"""<!doctype html><html><head><meta charset=utf-8><base href="/a/"><title>T &amp; t</title>
<meta name=robots content="noindex, unavailable_after: 25 Jun 2010 15:00:00 PST"><link rel="next canonical" href=b>
<meta http-equiv=refresh content="0; url='c'"><script>"<a href=x>"</script><style>a{background:url(x)}</style></head>
<body background=z><p><b><i><a href="?q=1#f" rel="nofollow ugc">a</a><img srcset="a 1x, b 2x" src=d><svg>
<a xlink:href=e /><![CDATA[<a href=f>]]></svg><math><mtext><template><a href=g></template><table><tr><td>
<a href='//h/'>h</a>
<form action=i><button formaction=j><iframe src=k srcdoc="<a href=l>"></iframe><!-- <a href=m> --></body></html>"""

PAGES = [
    PAGE,
    b"<a href=" + b"'x' a=b " * 30 + b">",
    b"<svg>" + b"<g>" * 60,
    b"".join(b"<b a%d><p>" % n for n in range(60)),
    b"<table>" * 30 + b"<a href=x>" * 30,
    b"<!--" * 40 + b"<a href=x",
    b"<select><option>" * 20,
    b'\xff\xfe<\0a\0 \0h\0r\0e\0f\0=\0"\0x\0"\0>\0',
]

MAPS = [
    b"""<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>http://h.test/a?b&amp;c</loc><lastmod>2026-01-02T03:04:05+01:00</lastmod></url>
<url><loc>http://h.test/b</loc><lastmod>2026-13</lastmod></url></urlset>""",
    b"""<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>http://h.test/m.xml</loc></sitemap>
</sitemapindex>""",
    b"\xef\xbb\xbfhttp://h.test/a\r\nhttp://h.test/b\n",
    b'<!DOCTYPE a [<!ENTITY b "cccccccc"><!ENTITY d "&b;&b;&b;">]><urlset><url><loc>&d;</loc></url></urlset>',
]
MAPS += [gzip.compress(each, mtime=0) for each in MAPS[:2]]

FEEDS = [
    b"""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><link>http://h.test/</link>
<atom:link rel="next" href="?p=2"/><item><link>http://h.test/1</link><guid isPermaLink="false">x</guid>
<pubDate>Wed, 02 Oct 2002 13:00:00 GMT</pubDate></item><item><guid>http://h.test/2</guid></item></channel></rss>""",
    b"""<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://h.test/x/"><link href="/"/><entry>
<link rel="alternate" href="1"/><updated>2003-12-13T18:30:02.25Z</updated></entry></feed>""",
    b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<item rdf:about="http://h.test/1"><link>http://h.test/1</link><date>2002-10-02T15:00:00+02:00</date></item></rdf:RDF>""",
]

SHEETS = [
    b'@charset "utf-8"; @import "a.css" screen; @import url( b.css ); '
    b'a{background:url("c.png"),url(d\\20 e)} /* url(x) */',
    b"a{background:image-set('a.png' 1x, url(b.png) 2x type('image/png'))} @namespace url(http://x/);",
]

HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 5\r\nSet-Cookie: a=b; Domain=h.test;"
    b" Path=/; Expires=Wed, 09 Jun 2027 10:18:14 GMT; Max-Age=60; Secure; HttpOnly\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.0 301 Moved\r\nLocation: //h.test/\xc3\xa9?a b\r\nRetry-After: 120\r\nConnection: keep-alive\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\n",
    b"HTTP/1.1 204\r\n\r\n",
    b'\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 3, 3\nLink: <a>; rel="next; x", <b>;rel=canonical\n folded\n'
    b"X-Robots-Tag: crawler: noindex, nofollow\nRefresh: 3; url=x\n\nabc",
]


def coded() -> list[bytes]:
    """Return answers with content codings, some of which are broken."""
    gzipped, raw = gzip.compress(PAGE, mtime=0), zlib.compress(PAGE)[2:-4]
    bodies = [
        (b"gzip", gzipped), (b"gzip", gzipped + gzipped), (b"gzip", gzip.compress(b"\0" * 500_000, mtime=0)),
        (b"deflate", zlib.compress(PAGE)), (b"deflate", raw), (b"br", brotli.compress(PAGE)), (b"gzip", PAGE),
        (b"br", brotli.compress(b"\0" * 500_000)), (b"gzip, br", brotli.compress(gzipped)),
    ]  # fmt: skip
    return [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: %b\r\n\r\n%b" % each
        for each in bodies
    ]


@cache
def robots() -> list[bytes]:
    """Return the cases of Google's test suite, and a file with every kind of line."""
    return [
        *dict.fromkeys(row["robots"].encode() for row in _json("robots/google-robotstxt-cases.part.json")),
        b"\xef\xbb\xbfUser-agent: a\nUser-agent: crawler/1.0 x\nCrawl-delay: 1.5s\n"
        b"Disallow: /*/a**b$\nAllow: /%c3%A9/%zz\n"
        b"Sitemap: http://h.test/map.xml # c\nDisallow /x\n",
    ]


@cache
def urls() -> list[bytes]:
    """Return the inputs of the URL standard's tests."""
    rows = json.loads((DATA / "url/wpt-urltestdata.part.json").read_text(encoding="utf-8"))
    return [row["input"].encode("utf-8", "surrogatepass") for row in rows if isinstance(row, dict)]


@cache
def refreshes() -> list[bytes]:
    """Return the values of the Refresh field in web-platform-tests."""
    return [row["content"].encode() for row in _json("meta_refresh/wpt-meta-refresh.part.json")]


CONFIGURATIONS = [
    b'seeds = ["http://h.test/"]\n[crawl]\nscope = "any"\nmax_time = "2 h"\n[politeness]\ndelay = 0.5\n'
    b'[network]\nallow_networks = ["127.0.0.0/8"]\ndns_servers = ["[::1]:53"]\n[fetch]\nproxy = "http://p:1"\n',
    b'[[override]]\nmatch = "*.h.test"\ndelay = "5 min"\nheaders = ["Cookie: a"]\n'
    b'ignore = ["(a+)+"]\n[pages]\nignore = ["["]\n',
    b"[store]\nwrite_buffer_bytes = '64 KiB'\n[filter]\ninclude = ['/a/']\nexclude = ['b$']\n",
]

COMMANDS = [
    b'{"command": "status", "hosts": 3}', b'{"command": "why", "url": "http://h.test/"}',
    b'{"command": "seed", "urls": ["http://h.test/a", "x"]}', b'{"command": "block", "host": "h.test"}',
    b'{"command": "unblock", "host": "[::1]"}', b'{"command": "retire", "pattern": "/a/"}',
    b'{"command": "signal", "urls": ["http://h.test/"], "source": "a:b"}',
    b'{"command": "get", "url": "http://h.test/"}',
    b'{"command": "set", "settings": {"politeness.delay": "5"}}', b"[1]", b"", b"\xff",
]  # fmt: skip

REQUESTS = [
    b"GET /page?url=http%3A%2F%2Fsite.example%2F&at=20260131&max-stale=3&rewrite=1 HTTP/1.1\r\nHost: localhost\r\n"
    b'Accept-Encoding: gzip;q=0.5, *;q=0\r\nIf-None-Match: W/"a", "b"\r\nRange: bytes=0-5\r\nIf-Range: "b"\r\n\r\n',
    b"GET /timegate/http://site.example/ HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept-Datetime: Thu, 31 May 2007 20:35:00 GMT\r\n\r\n",
    b"GET /timemap/link/http://site.example/ HTTP/1.0\r\n\r\n",
    b"GET http://site.example/ HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n"
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /signal HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52\r\n\r\n"
    b'{"urls": ["http://site.example/"], "source": "a:b"}\n',
    b"POST /indexnow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4e\r\n{"host": "site.example", "key": "0123456789", "urlList": ["http://site.example/"]}\r\n0\r\n\r\n',
    b"GET /indexnow?url=http://site.example/a&key=0123456789abcdef HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /websub/0000 HTTP/1.1\r\nHost: localhost\r\nX-Hub-Signature: sha256=00\r\n"
    b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /websub/0000?hub.mode=subscribe&hub.topic=http://t/&hub.challenge=c&hub.lease_seconds=9 HTTP/1.1\r\n"
    b"Host: localhost\r\n\r\n",
    b"HEAD /readyz HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n\r\n",
]  # fmt: skip
