"""The parsers of foreign data, each called as the crawler calls it.

Inputs are limited only as in a crawl, by the limits of the parsers and by the guard of the worker.
Work that does not belong on the event loop (large documents, pages that the guard suspects) is
not measured.
"""

import asyncio
import contextlib
import logging
import random
import tempfile
import tomllib
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin.control import REQUEST_BYTES_MAX, ControlServer
from crawler.config import (
    FetchConfig,
    IdentityConfig,
    Layers,
    RobotsConfig,
    SitemapsConfig,
    convert,
    read_file,
    set_key,
    to_toml,
)
from crawler.config.schema import ExtractConfig, FilterConfig
from crawler.crawl import safe_settings
from crawler.errors import CrawlerError
from crawler.extract.collected import Context
from crawler.extract.css import read_sheet
from crawler.extract.feed import is_feed, read_feed
from crawler.extract.foreign import Foreign
from crawler.extract.rewrite import rewrite_html
from crawler.extract.scan import scan
from crawler.extract.sitemap import read_sitemap, signals
from crawler.extract.worker import SCAN_INLINE_BYTES, Worker
from crawler.fetcher import outcome
from crawler.fetcher.answer import Answer, AnswerState
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.fetch_request import FetchRequest, RequestWriter, split
from crawler.fetcher.framing import Head
from crawler.process.answering.commands import Commands
from crawler.process.fetching.reader import INLINE_BYTES_MAX
from crawler.records import Extracted, Outcome
from crawler.robots.cache import RobotsCache
from crawler.serve import indexnow, request_parsing
from crawler.serve import signal_handler as posted
from crawler.serve.conditions import Unsatisfiable, allowed_by_if_range, resolve
from crawler.serve.header_fields import accepted, not_modified
from crawler.serve.http_error import HttpError
from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.session import Listener
from crawler.splitter.wire import FRAME_OVERHEAD, LENGTH_BYTES, ProtocolError, decode_entry
from crawler.storage.kv import MemoryStore, seal
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.canonical import canonical
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.media_type import sniff_html
from tests.fuzz import corpus
from tests.fuzz.fuzzing import Clock, Target
from tests.process.support import Joint
from tests.serve.test_receivers import Receiving

URL = "https://h.test/a/b.html?c"
PATIENCE = 0.02  # seconds to wait for an answer, since an incomplete request gets none
SYMBOL_MAX = 258  # maximum number of bytes that one symbol of a deflate stream produces
NOW = 1_800_000_000.0
LIMITS = FetchConfig()
READ = 256 << 10  # maximum number of bytes that one read of a socket returns
EXTRACT = ExtractConfig()
_WRITER = RequestWriter(IdentityConfig(), "crawler")

_HTTP = [
    b"HTTP/1.1 200 OK\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n", b"\r\n\r\n", b"Content-Type: text/html;charset=", b"Location: ",
    b"Set-Cookie: a=b;", b"Connection: close\r\n", b"\r\n ", b"0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n", b"Retry-After: ", b"Content-Encoding: br, gzip\r\n",
    b"5\r\nhello\r\n", b"ETag: \"\x1b\x07\"\r\n", b"Last-Modified: \x7f\r\n",
]  # fmt: skip
_HTML = [
    b"<a href=x>", b"<b a=1>", b"</b>", b"<p>", b"<svg>", b"</svg>", b"<math>", b"<table>", b"<td>",
    b"<select>", b"<template>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<script>", b"</script>",
    b"<base href=//x/>", b"<meta charset=utf-16>", b"<meta name=robots content=none>",
    b"<link rel=canonical href=x>", b"<iframe src=x>", b"<form>", b"</form>", b"<a ", b" a=b", b'="',
    b"&amp;", b"<plaintext>", b"<frameset>", b"<noscript>", b"<i id=1>", b"<font color=a>", b"</p>",
    b"<applet>", b"<button>", b"<option>", b"<li>", b"<ruby>", b"<rt>", b"<nobr>", b"<title>",
    b"<img srcset='a 1x,b 2x'>", b"</", b"<?", b"<!", b"<body b>",
]  # fmt: skip
_XML = [
    b"<url><loc>http://h.test/</loc></url>", b"<loc>", b"</loc>", b"<lastmod>2026-01-01</lastmod>",
    b"<!DOCTYPE a [", b"<!ENTITY a 'b'>", b"&a;", b"<?xml version='1.0' encoding='utf-16'?>",
    b"<?xml version='1.0' encoding='shift_jis'?>", b"<![CDATA[", b"]]>", b"<!--", b" xmlns:a='b'",
    b" a='b'", b"<a>", b"</a>", b"<item>", b"</item>", b"<entry>", b"<link href='x'/>", b"<link>",
    b"http://h.test/\n",
]  # fmt: skip
_COOKIES = [b"; Path=/", b"; Domain=test", b"; Max-Age=", b"; Expires=", b"\n", b"01 Jan"]
_CSS = [b"url(", b"@import ", b"/*", b"*/", b"\\", b"image-set(", b")"]
_MESSAGES = [b"\x90", b"\xdd\xff\xff\xff\xff", b"\xc4\x20", b"\xcf" + b"\xff" * 8, b"\x9f"]
_ROBOTS = [
    b"User-agent: *\n", b"User-agent: crawler\n", b"Disallow: /", b"Allow: /", b"Disallow: /*a*b*c$\n",
    b"Sitemap: http://h.test/m\n", b"Crawl-delay: 1\n", b"%2F", b"**", b"\n", b"Disallow:", b"*a", b"a*",
]  # fmt: skip
_URLS = [
    b"http://", b"https://", b"//", b"@", b":80", b":443", b"[::1]", b"%2e%2E", b"/../", b"xn--",
    b"\xc3\xa9", b"\xe3\x80\x82", b"0x7f.1", b"javascript:", b"?a=1&b=2&PHPSESSID=" + b"0" * 32,
    b";jsessionid=1", b"#", b"a/a/a/", b"\xf0\x9f\x92\xa9", b"..", b"&amp;",
]  # fmt: skip
_TOML = [
    b"[crawl]\n", b"[[override]]\n", b"[", b"]]", b"[[", b"= true\n", b'= "5 min"\n', b"= -1\n",
    b"= 1e400\n", b"= nan\n", b"= []\n", b"= {a=1}\n", b"= 2026-01-01\n", b'"""', b"scope", b"delay",
    b"match", b".", b'\\u0000', b"= inf\n", b"= [[[[", b"{a={a={a=", b"= '(?P<a>'\n", b'= "(" ',
]  # fmt: skip
_JSON = [
    b'"command"', b'"urls"', b"null", b"true", b"1e400", b"[[[[[[[[", b'{"a":', b'"\\ud800"', b'"\\u0000"',
    b"{}", b"[]", b'"http://h.test/"', b'"http://h.test:99999/"', b'"http://[::1"', b'"(a+)+$"', b'"["',
    b'"host"', b'"url"', b"-1", b'"(?i"', b'"{99999999999}"',
]  # fmt: skip
_DOORS = [
    b"GET ", b"POST ", b"HEAD ", b"OPTIONS * HTTP/1.1\r\n", b"/page?url=", b"/timegate/", b"/timemap/link/",
    b"/signal", b"/indexnow", b"/websub/", b"/healthz", b" HTTP/1.1\r\n", b"Host: localhost\r\n",
    b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b"Range: bytes=",
    b"Accept-Datetime: ", b"Expect: 100-continue\r\n", b"Content-Encoding: gzip\r\n",
    b"http://site.example/", b"&at=", b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"&rewrite=1",
    b"%F0%9F", b"hub.mode=denied",
]  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# -- answers ------------------------------------------------------------------------


def answers(data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Read an answer (head, framing, codings, cookies) whole and in pieces. Assert that the outcome is the same."""
    whole, pieces = Answer(LIMITS), Answer(LIMITS)
    for at in range(0, len(data), READ):
        clock.turn(whole.receive, data[at : at + READ])
    clock.turn(whole.end)
    at, size = 0, rng.choice((1, 3, 17, 1460)) if len(data) < 4096 else 16384
    while at < len(data):
        step = rng.randrange(1, size + 1)
        clock.turn(pieces.receive, data[at : at + step])
        at += step
    clock.turn(pieces.end)
    seen = [_seen(each, clock) for each in (whole, pieces)]
    differ = [
        (one[:60], len(one), other[:60], len(other))
        for one, other in zip(*seen, strict=True)
        if one != other and not _cut_short(one, other)
    ]
    assert not differ, differ
    return seen[0][:2]


def _cut_short(one: Any, other: Any) -> bool:
    """Return whether two contents differ only at the end.

    The end of a truncated deflate stream depends on how the stream was split into pieces
    (`content_codings.py`).
    """
    if not isinstance(one, bytes) or abs(len(one) - len(other)) > SYMBOL_MAX:
        return False
    return one.startswith(other) or bool(other.startswith(one))


def _seen(answer: Answer, clock: Clock) -> tuple[Any, ...]:
    assert answer.state is AnswerState.DONE
    body, content = clock.turn(lambda: (answer.body, answer.content))
    if answer.failure is not None or answer.head is None:
        assert answer.failure is not None
        return (answer.failure, "")
    location = outcome.location_of(answer.head)
    ended = clock.turn(lambda: outcome.conclude(answer, conditional=False))
    kind, charset = answer.head.media_type()
    assert outcome.retry_after_of(answer.head, NOW) >= 0.0
    target, jar = split(URL), CookieJar(4)
    clock.turn(jar.store, target, answer.head.values(b"set-cookie"), NOW)
    jar._check()
    header = clock.turn(jar.header, target, NOW)
    assert "\r" not in header and "\n" not in header
    header.encode()
    again = _WRITER.head(_next_request(answer.head), target, cookie=header)
    assert not any(byte < 32 or byte == 127 for byte in again.replace(b"\r\n", b"")), again
    (location + kind + charset).encode("utf-8")
    assert len(body) <= LIMITS.wire_bytes_max and len(content) <= LIMITS.body_bytes_max
    if answer.truncated == "length":
        body = b""  # the number of bytes read before the limit depends on the pieces
    return (ended, answer.truncated, body, content, location, kind, charset, header)


def _next_request(head: Head) -> FetchRequest:
    """Return the conditional request that sends back the validators of an answer."""
    etag, modified = (
        b"".join(head.values(name)[:1]).decode("latin-1") for name in (b"etag", b"last-modified")
    )
    return FetchRequest(URL, etag=etag, last_modified=modified)


def cookies(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Read each line as a Set-Cookie field of one of three hosts."""
    jar = CookieJar(2)
    targets = [split(url) for url in (URL, "http://h.test/", "http://[::1]:8/x/y")]
    for number, line in enumerate(data.split(b"\n")[:100]):
        clock.turn(jar.store, targets[number % 3], [line], NOW)
    jar._check()
    headers = tuple(clock.turn(jar.header, target, NOW) for target in targets)
    assert all(each.isprintable() or "\r" not in each and "\n" not in each for each in headers)
    return tuple(each.count("=") for each in headers)


# -- documents ----------------------------------------------------------------------


class _Inline(Worker):
    """Replaces the parser child.

    It makes a plain scan of the pages that are meant for the child, as if they had killed it.
    """

    apart = 0

    async def extract_apart(self, content: bytes, page: Context) -> Extracted:
        self.apart += 1
        return scan(content[:SCAN_INLINE_BYTES], page, EXTRACT)


_FINGERPRINTER = Fingerprinter(bytes(16))


def _pages(runner: asyncio.Runner, data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Read a page in the event loop and filter its links. The header fields are mutated, too."""
    field = bytes(data[: rng.choice((0, 0, 40))]).decode("latin-1")
    charset = rng.choice(
        ("", "", "utf-8", "shift_jis", "utf-16le", "iso-2022-jp", "gb18030", "x-user-defined", "nonsense")
    )
    context = Context(
        URL, charset, "crawler", (field,), field, (field,), True, True, rng.random() < 0.5, rng.random() < 0.1
    )
    sniff_html(data)
    worker = _Inline(EXTRACT)
    found = clock.turn(runner.run, worker.extract(data, context))
    assert len(found.hrefs) <= EXTRACT.links_max
    msgspec.msgpack.encode(found)
    intake = LinkFilter(UrlFilter(Scope("host", [URL]), FilterConfig(), requisites=True), _FINGERPRINTER)
    links = clock.turn(intake.filter_links, found.base or URL, found.hrefs[:5000], found.encoding)
    for url in links.urls[:50]:
        assert canonical(url) == url, url
    return (
        worker.apart,
        found.parse_limit,
        bool(found.refresh),
        bool(found.canonical),
        min(len(found.hrefs), 3),
    )


def copies(data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Rewrite a page for a mirror or the page server. Assert that the mapped URLs are canonical."""
    seen: list[str] = []
    encoding = rng.choice(("utf-8", "utf-8", "shift_jis", "utf-16le", "windows-1252"))
    xhtml = rng.random() < 0.1
    map_url = lambda url, _: seen.append(url)  # noqa: E731
    clock.turn(partial(rewrite_html, xhtml=xhtml), data, encoding, URL, map_url)
    for url in seen[:50]:
        assert canonical(url) in (url, None), url  # None: the URL is too long to be crawled
    return min(len(seen), 3), len(data) in Foreign(data)


def plain_scan(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Scan a page without the parser, as is done for a page that the parser could not finish."""
    return min(len(clock.turn(scan, data[:SCAN_INLINE_BYTES], Context(URL), EXTRACT).hrefs), 3)


def maps(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Read a sitemap that is small enough for the event loop."""
    found = clock.turn(read_sitemap, data[:INLINE_BYTES_MAX], SitemapsConfig())
    clock.turn(lambda: list(signals(found.entries, NOW)))
    msgspec.msgpack.encode([found.entries, found.maps])
    return (found.problem[:20], min(len(found.entries), 3), min(len(found.maps), 2))


def feeds(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Read a feed that is small enough for the event loop."""
    is_feed("text/xml", data)
    found = clock.turn(read_feed, data[:INLINE_BYTES_MAX], 20_000)
    msgspec.msgpack.encode(found)
    return (found.problem[:20], min(len(found.entries), 3), bool(found.next), bool(found.page))


def sheets(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Read a style sheet that is small enough for the event loop."""
    return min(len(clock.turn(read_sheet, data[:INLINE_BYTES_MAX], "", 20_000)), 4)


# -- hosts --------------------------------------------------------------------------


def robots(data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Read a robots.txt, store it and read it again. Assert that both versions give the same verdicts on URLs."""
    store = MemoryStore()
    host = "https://h.test"
    cache = RobotsCache(store, RobotsConfig(), "crawler", 4)
    clock.turn(
        lambda: cache.record(
            host, status=200, outcome=Outcome.FETCHED, body=data, complete=rng.random() < 0.9, now=NOW
        )
    )
    batch = store.batch()
    cache.stage(batch)
    store.write(batch)
    cache.committed()
    cache._check()
    again = RobotsCache(store, RobotsConfig(), "crawler", 4)
    words = [each for each in data[:2000].decode("latin-1").split() if each.startswith("/")][:4]
    verdicts = []
    for target in ("/", "/a/b", "/" + "ab" * 4000, *words):
        verdicts.append(clock.turn(cache.verdict, host, target, NOW).kind)
        assert again.verdict(host, target, NOW).kind is verdicts[-1]
        cache.line(host, target)
    assert (cache.crawl_delay(host) or 0.0) >= 0.0
    clock.turn(cache.names, host, "https://h.test/map.xml")
    return (tuple(verdicts[:3]), cache.crawl_delay(host) is None, min(len(cache.rules(host).sitemaps), 2))


def urls(data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Filter a link with the given text as its URL.

    Assert that its canonical form is stable, and that the filter has a verdict on it.
    """
    text = data.decode(
        *rng.choice((("utf-8", "replace"), ("utf-8", "surrogateescape"), ("latin-1", "strict")))
    )
    intake = LinkFilter(UrlFilter(Scope("any"), FilterConfig()), _FINGERPRINTER)
    judged = clock.turn(
        lambda: intake.one(text, base=URL, encoding=rng.choice(("utf-8", "shift_jis", "iso-8859-1")))
    )
    if judged.url:
        assert canonical(judged.url) == judged.url, (text, judged.url)
        assert judged.url.isascii() and judged.url.isprintable() and len(judged.url) <= 8192
        clock.turn(intake.explain, judged.url)
    return judged.rule


# -- input of users and peers ---------------------------------------------------------------


def _configurations(folder: Path) -> Target:
    """Return a target that reads a text in three ways: as a configuration file, as `--set`, and as `crawler set`.

    Each way of reading returns a configuration or raises an error of one line.
    """
    path = folder / "crawl.toml"

    def take(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
        path.write_bytes(data)
        lines = data.decode("utf-8", "replace").splitlines()[:20]
        ways: list[str] = []
        for read in (lambda: _layered("", read_file(path)), lambda: _given(lines), lambda: _live(lines)):
            try:
                clock.turn(read)
                ways.append("taken")
            except CrawlerError as error:
                assert str(error)
                ways.append(" ".join(str(error).split()[:3])[:30])
        return tuple(ways)

    return Target("configurations", corpus.CONFIGURATIONS, _TOML, 5_000, take)


def _layered(source: str, tree: dict[str, Any]) -> None:
    """Assert that the configuration is unchanged when it is written and read back."""
    made = Layers()
    made.add(source, tree)
    config = made.config()
    assert convert(tomllib.loads(to_toml(config))) == config


def _given(lines: list[str]) -> None:
    tree: dict[str, Any] = {}
    for line in lines:
        path, _, value = line.partition("=")
        set_key(tree, path.strip(), value.strip())
    _layered("--set", tree)


def _live(lines: list[str]) -> None:
    safe_settings.changed(convert({}), safe_settings.parse(lines))


def peers(data: bytes, clock: Clock, rng: random.Random) -> Hashable:
    """Read the bytes as data from a stranger, as a frame of a peer with a valid tag, and as an entry of a queue."""
    from tests.splitter import test_session as sessions

    other = sessions.process("p1")
    door = Doorkeeper(sessions_max=2)
    stranger = Listener(other, door.admit, 0.0)
    door.enter(stranger)
    clock.turn(stranger.receive, data, 0.0)
    stranger.data_to_send()
    one, other = sessions.process("p0"), sessions.process("p1")
    ends = sessions.pair(one, other)
    sessions.exchange(ends)
    if data:
        content = bytes([1 + data[0] % 9]) + data[1:4000]
        length = len(content) + FRAME_OVERHEAD - 1
        frame = length.to_bytes(LENGTH_BYTES, "big") + content + ends.dialler._tagger.tag(content)
        clock.turn(ends.listener.receive, frame, 1.0)
        frame = length.to_bytes(LENGTH_BYTES, "big") + content + ends.listener._tagger.tag(content)
        clock.turn(ends.dialler.receive, frame, 1.0)
    sessions.commit(other)
    ends.listener.tick(2.0)
    try:
        decode_entry(seal(data))
        entry = "taken"
    except ProtocolError:
        entry = "refused"
    said = [each.ending.reason if each.ending else None for each in (stranger, ends.listener, ends.dialler)]
    return (*said, entry)


def _peer_corpus() -> list[bytes]:
    """Return the frames of a whole conversation, and a payload of each kind."""
    from crawler.splitter import wire
    from tests.splitter import test_session as sessions

    links = sessions.links_for("p1", 3)
    entry = wire.encode_entries(links, 10_000)[0][0]
    counters = wire.Counters(b"b" * 8, 3)
    messages: list[Any] = [
        wire.Open(wire.MAGIC, wire.PROTOCOL, b"n" * 32), wire.Challenge(b"n" * 32), wire.Welcome(b"b", 2, 0),
        wire.Entries(1, [entry, entry]), wire.Ack(1, counters), wire.Resync(1), wire.Heartbeat(counters),
        wire.Refuse(wire.Reason.BUSY, "x"),
    ]  # fmt: skip
    frames = [wire.encode_frame(message, wire.Tagger()) for message in messages]
    payloads = [bytes([number]) + frame[5:-16] for number, frame in enumerate(frames)]
    return [*frames, *payloads, entry[5:], b"".join(frames)]


def requests(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
    """Read a request target, its fields and bodies. Each parser returns a result or refuses the request."""
    text = data.decode("latin-1")
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.decode("latin-1").split()
    calls: list[Callable[[], object]] = [
        lambda: request_parsing.parse(words[1] if len(words) > 1 else text),
        lambda: request_parsing.parse(f"/page?url=http%3A%2F%2Fa%2F&at={text[:40]}"),
        lambda: request_parsing.accept_datetime(text[:60]),
        lambda: indexnow.parse_post(body, 1000),
        lambda: indexnow.parse_get(dict.fromkeys(("url", "key", "keyLocation"), text)),
        lambda: posted.parse(body, 1000),
        lambda: accepted(text),
        lambda: resolve(text, 1000),
        lambda: not_modified(text, None, '"a"', 1.0) or allowed_by_if_range(text, '"a"', "x"),
    ]
    ways: list[object] = []
    for call in calls:
        try:
            clock.turn(call)
            ways.append("taken")
        except HttpError as refusal:
            refusal.content()
            ways.append(refusal.status)
        except Unsatisfiable:
            ways.append(416)
    return tuple(ways)


class _Complaints(logging.Handler):
    """Collects the messages that were logged as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextlib.contextmanager
def _doors(folder: Path) -> Iterator[Target]:
    """Yield a target that sends requests to a page server. Each request gets an answer or ends the connection."""
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        asyncio.set_event_loop(loop)
        served = Receiving(folder, request_body_bytes_max=100_000)
        served.store()
        _, served.port = loop.run_until_complete(served.server.start("127.0.0.1:0"))
        log, complaints = logging.getLogger("crawler"), _Complaints()

        async def talk(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            try:
                writer.write(data)
                async with asyncio.timeout(PATIENCE):
                    return await reader.read(100)
            except (ConnectionError, TimeoutError):
                return b""
            finally:
                writer.close()

        def take(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
            log.addHandler(complaints)
            try:
                answer = clock.turn(loop.run_until_complete, talk(data))
            finally:
                log.removeHandler(complaints)
            said, complaints.texts = complaints.texts, []
            assert not said, said[0]
            return answer[:12]

        yield Target("doors", corpus.REQUESTS, _DOORS, 100_000, take)
        loop.run_until_complete(served.server.close())
        asyncio.set_event_loop(None)


@contextlib.contextmanager
def _control(folder: Path) -> Iterator[Target]:
    """Yield a target that sends lines to the control socket of a process with real stages. Code 1 means a bug."""
    joint = Joint(folder)
    commands = Commands(joint.stages, joint.stages.commits.commit_now)

    async def run(request: dict[str, Any]) -> Any:
        return commands.run(request)

    server = ControlServer(folder, run)

    def take(data: bytes, clock: Clock, _rng: random.Random) -> Hashable:
        work = server._answer(data[:REQUEST_BYTES_MAX])
        try:
            clock.turn(work.send, None)
        except StopIteration as end:
            answer = msgspec.json.decode(end.value)
        assert answer["ok"] or answer["code"] != 1, answer
        return answer["ok"] or answer["error"][:25]

    try:
        yield Target("control", corpus.COMMANDS, _JSON, 20_000, take)
    finally:
        joint.stages.close(clean=True)


@contextlib.contextmanager
def targets() -> Iterator[dict[str, Target]]:
    """Yield all targets by name."""
    bodies = [*corpus.PAGES, *(answer.partition(b"\r\n\r\n")[2] for answer in corpus.archived())]
    heads = [*corpus.HEADS, *corpus.archived()]
    lines = [b"\n".join(head.split(b"Set-Cookie: ")[1:]) or b"a=b; path=/" for head in corpus.HEADS]
    made = [
        Target("heads", heads, _HTTP, 100_000, answers),
        Target("codings", corpus.coded(), _HTTP, 100_000, answers),
        Target("cookies", lines, _COOKIES, 20_000, cookies),
        Target("scan", bodies, _HTML, SCAN_INLINE_BYTES, plain_scan),
        Target("copies", bodies, _HTML, SCAN_INLINE_BYTES, copies),
        Target("sitemaps", corpus.MAPS, _XML, INLINE_BYTES_MAX, maps),
        Target("feeds", corpus.FEEDS, _XML, INLINE_BYTES_MAX, feeds),
        Target("sheets", corpus.SHEETS, _CSS, INLINE_BYTES_MAX, sheets),
        Target("robots", corpus.robots(), _ROBOTS, 64_000, robots),
        Target("urls", corpus.urls(), _URLS, 20_000, urls),
        Target("peers", _peer_corpus(), _MESSAGES, 5_000, peers),
        Target("requests", corpus.REQUESTS, _DOORS, 20_000, requests),
    ]
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        pages = partial(_pages, stack.enter_context(asyncio.Runner()))
        made += [
            Target("pages", [*bodies, *corpus.refreshes()], _HTML, 200_000, pages),
            Target("long pages", bodies, _HTML, 1 << 20, pages),
            _configurations(Path(temporary)),
        ]
        for name, make in (("doors", _doors), ("control", _control)):
            folder = Path(temporary) / name
            folder.mkdir()
            made.append(stack.enter_context(make(folder)))
        yield {target.name: target for target in made}
