"""Test that repeated requests get the same answers on the fast path, and that only plain requests take this path."""

import asyncio
import gzip
import random
from pathlib import Path

import pytest

from crawler.records import TaskKind
from crawler.serve import client_headers
from crawler.serve.http_server import json_reply
from crawler.serve.interfaces import Located
from crawler.serve.reply import Reply
from tests.serve.support import Response, Served

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE


def asks(target: str = AT, *lines: str, method: str = "GET") -> bytes:
    """Return the bytes of a request that keeps its connection open."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


async def answers(
    reader: asyncio.StreamReader, count: int, bodiless: frozenset[int] = frozenset()
) -> list[Response]:
    """Read and return the next `count` responses.

    `bodiless` contains the numbers of the responses to HEAD requests, which have no body.
    """
    found = []
    for number in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        response = Response(head)
        length = 0 if number in bodiless else int(response.fields.get("content-length", 0))
        found.append(Response(head + await reader.readexactly(length)))
    return found


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path, signals_per_second=1e6)
    for name in ("", "a", "b"):
        made.store(PAGE + name, body=b"page " + name.encode())
    return made


async def test_a_page_of_another_process_is_refused_on_both_paths(served: Served) -> None:
    """A client whose header fields are known gets the same answer as a new client."""
    async with served.connected() as (reader, writer):
        writer.write(asks())
        assert (await answers(reader, 1))[0].status == 200
        served.crawl.elsewhere = True
        writer.write(asks(AT + "a"))
        assert (await answers(reader, 1))[0].status == 421
    assert (await served.get(AT + "a")).status == 421


@pytest.mark.parametrize("at", ["", "&at=2099"])
async def test_a_file_that_is_stored_again_replaces_the_one_before(served: Served, at: str) -> None:
    """Storing a file of a page changes no record, so the answer with the file must not be kept."""
    request = asks(AT + "image" + at)
    async with served.connected() as (reader, writer):
        for number, text in enumerate((b"old", b"newer")):
            served.store(PAGE + "image", text, at=10.0 * number, task=TaskKind.SUBRESOURCE)
            for _ in range(3):
                writer.write(request)
                assert (await answers(reader, 1))[0].body == text


async def test_a_repeated_request_gets_the_same_answer(served: Served) -> None:
    """A repeated request is counted, too.

    Such a request gets the copy, age and P(fresh) of its own time, instead of those of the first request.
    """
    long_way = []
    real = served.server._answer

    async def noted(request, connection):  # type: ignore[no-untyped-def]
        long_way.append(request.raw_path)
        return await real(request, connection)

    served.server.listener._handle = noted
    served.crawl.probability = 0.5

    async with served.connected() as (reader, writer):
        said = []
        for now in range(3):
            served.now += now
            writer.write(asks())
            said += await answers(reader, 1)
        assert len(long_way) == 1 and len(served.crawl.asked) == 3
        assert [each.fields["age"] for each in said] == ["100", "101", "103"]
        strip = [{**each.fields, "age": "", "date": ""} for each in said]
        assert strip[0] == strip[1] == strip[2] and said[0].names == said[1].names
        assert said[2].fields["date"] == "Tue, 14 Nov 2023 22:15:03 GMT"
        served.store(body=b"new", at=50.0)
        writer.write(asks())
        assert (await answers(reader, 1))[0].body == b"new", "the answer depends on the stored record"
        writer.write(asks())
        assert (await answers(reader, 1))[0].body == b"new" and len(long_way) == 1
        assert served.server.answers == {200: 5} and served.server.listener.requests == 5
        cache = served.handler.response_cache
        assert (cache.hits, cache.misses) == (3, 2)


async def test_each_form_of_a_page_is_remembered_by_its_own_address(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path gives the page, an earlier copy and the rewritten form. A repeated request needs no look-up."""
    located: list[str] = []
    real = served.crawl.locate

    def noted(url: str) -> Located:
        located.append(url)
        return real(url)

    monkeypatch.setattr(served.crawl, "locate", noted)
    served.store(PAGE, b"<p>new <a href=a>a</a>", at=50.0)
    async with served.connected() as (reader, writer):
        forms = (AT, AT + "&at=20231114221320", AT + "&rewrite=1")
        expected = [(await served.get(form)).body for form in forms]
        assert len(set(expected)) == 3
        # the first request does not take the fast path, and no address is remembered for it
        for looked_up in (3, 1, 0):
            located.clear()
            for form, body in zip(forms, expected, strict=True):
                writer.write(asks(form))
                assert (await answers(reader, 1))[0].body == body, form
            assert len(located) == looked_up


async def test_the_store_is_read_only_after_a_write(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached answer is used without a look at the store until the store is written to.

    If only another page was written, the page's record is read once, and then the cached answer is used
    again.
    """
    keys: list[bytes] = []
    store = served.site.store
    real = store.get

    def noted(key: bytes) -> bytes | None:
        keys.append(key)
        return real(key)

    async with served.connected() as (reader, writer):
        for expected in (None, 0, 0, 1, 0):
            if expected == 1:
                served.store(PAGE + "other", body=b"other")
            monkeypatch.setattr(store, "get", noted)
            keys.clear()
            writer.write(asks())
            assert (await answers(reader, 1))[0].body == b"page "
            assert expected is None or len(keys) == expected, (expected, keys)
            monkeypatch.setattr(store, "get", real)


# For each case: header lines, and whether a request with these lines takes the fast path once its other
# fields are known.
CONDITIONS = [
    ([], True),
    (["If-None-Match: ETAG"], True),
    (['If-None-Match: "other", W/ETAG'], True),
    (['If-None-Match: "other"'], True),
    (["If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"], True),
    (["If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT"], True),
    (["If-Modified-Since: junk"], True),
    (["Range: bytes=1-2"], True),
    (["Range: bytes=-1"], True),
    (["Range: bytes=0-1,2-3"], True),
    (["Range: bytes=99-"], False),  # 416
    (["Range: bytes=1-2", "If-Range: ETAG"], False),
    (["Range: bytes=1-2", "If-None-Match: ETAG"], False),
    (["if-none-match: ETAG"], False),
    (["If-Match: ETAG"], False),
    (["If-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT"], False),
]


@pytest.mark.parametrize("host_first", [True, False])
@pytest.mark.parametrize("coding", [b"", b"gzip"])
@pytest.mark.parametrize(("lines", "quick"), CONDITIONS)
async def test_conditions_and_ranges_have_the_same_answers_on_both_paths(
    served: Served, lines: list[str], quick: bool, coding: bytes, host_first: bool
) -> None:
    """Conditions such as If-None-Match differ from page to page, so the remembered header block contains no conditions.

    Some clients send the conditions before the Host field.
    """
    if coding:
        coded = (b"Content-Type", b"text/html"), (b"Content-Encoding", coding)
        served.store(body=gzip.compress(b"page "), content=b"page ", at=1.0, headers=coded)
    long_way: list[str] = []
    real = served.server._answer

    async def noted(request, connection):  # type: ignore[no-untyped-def]
        long_way.append(request.raw_path)
        return await real(request, connection)

    accept = "Accept-Encoding: gzip"
    host = "Host: 127.0.0.1"
    etag = (await served.get(AT, host, accept)).fields["etag"]
    wanted = [line.replace("ETAG", etag) for line in lines]
    parsed = await served.get(AT, host, accept, *wanted)
    parsed.fields.pop("connection")
    served.server.listener._handle = noted
    async with served.connected() as (reader, writer):
        request = asks(AT, accept, *wanted)
        if not host_first:
            request = "\r\n".join([f"GET {AT} HTTP/1.1", *wanted, accept, host, "", ""]).encode()
        writer.write(request)
        said = await answers(reader, 1)
        assert len(long_way) == 1
        writer.write(request)
        said += await answers(reader, 1)
    assert len(long_way) == (1 if quick else 2)
    for each in said:
        assert (each.status, each.body, each.fields) == (parsed.status, parsed.body, parsed.fields)
    assert len(served.crawl.asked) == 4, "each request is counted once"


async def test_streams_of_requests_may_be_cut_anywhere(served: Served) -> None:
    """However the stream is divided into reads, all requests are answered in order, as if they were sent one by one."""
    kinds = [
        (asks(), 200, b"page "),
        (asks(AT + "a"), 200, b"page a"),
        (asks(AT + "b", "User-Agent: x"), 200, b"page b"),
        (asks(AT + "b", "If-None-Match: *"), 304, b""),
        (asks(AT + "a", "Range: bytes=0-3"), 206, b"page"),
        (asks(AT + "none"), 404, None),
        (asks(AT, method="HEAD"), 200, b""),
        (asks("/signal", "Content-Length: 11", method="POST") + b'{"urls": []', 503, None),
        (asks("/healthz"), 200, None),
        (
            asks(AT, "Content-Length: 37") + asks(AT + "a")[:37],
            200,
            b"page ",
        ),  # a body that looks like a request
    ]
    rng = random.Random(7)
    for _ in range(60):
        chosen = rng.choices(kinds, k=rng.randint(1, 12))
        stream = b"".join(request for request, _, _ in chosen)
        ends = {sum(len(one[0]) for one in chosen[:n]) for n in range(1, len(chosen))}
        cuts = {cut for cut in ends if rng.random() < 0.7} | {
            rng.randrange(1, len(stream)) for _ in range(rng.randint(0, 3))
        }
        async with served.connected() as (reader, writer):
            for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
                writer.write(stream[begin:end])
                for _ in range(rng.choice([1, 8])):
                    await asyncio.sleep(0)
            heads = frozenset(n for n, one in enumerate(chosen) if one[0].startswith(b"HEAD"))
            said = await answers(reader, len(chosen), heads)
            for response, (request, status, body) in zip(said, chosen, strict=True):
                assert response.status == status, request
                assert body is None or response.body == body, request


async def test_only_correctly_parsed_header_blocks_are_remembered(served: Served) -> None:
    """A request with bare line ends, or with two Host fields, must not make another header block trusted."""
    foreign = b"\r\nHost: evil.example\r\n\r\n"
    tricks = [
        f"GET {AT} HTTP/1.1\nHost: 127.0.0.1\n\nGET {AT} HTTP/1.1".encode() + foreign,
        f"GET {AT} HTTP/1.1\nHost: 127.0.0.1".encode() + foreign,
        f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1\n\n".encode() + foreign,
        f"GET {AT} HTTP/1.1\r\nHost: 127.0.0.1".encode() + foreign,
        f"\r\nGET {AT} HTTP/1.1".encode() + foreign,
        f"GET {PAGE} HTTP/1.1".encode() + foreign,
    ]
    for trick in tricks:
        async with served.connected() as (reader, writer):
            writer.write(trick)
            await reader.read(1)
        async with served.connected() as (reader, writer):
            for _ in range(2):
                writer.write(f"GET {AT} HTTP/1.1".encode() + foreign)
                assert (await answers(reader, 1))[0].status == 421, trick
    assert served.server._client_headers.get(foreign) is None


async def test_answers_are_sent_in_the_order_of_requests(served: Served) -> None:
    gate = asyncio.Event()

    async def slowly(*_: object) -> Reply:
        await gate.wait()
        return json_reply(200, b"slow")

    served.server._receive = slowly

    async with served.connected() as (reader, writer):
        writer.write(asks())
        await answers(reader, 1)
        writer.write(asks("/indexnow?url=x&key=y"))
        while served.server.listener.requests != 2:
            await asyncio.sleep(0)
        writer.write(asks())
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        assert [each.body for each in await answers(reader, 2)] == [b"slow", b"page "]


def test_the_number_of_remembered_header_blocks_is_bounded() -> None:
    known = client_headers.ClientHeadersCache()
    for n in range(3 * client_headers.BLOCKS_MAX):
        known.put(b"\r\nHost: h%d\r\n\r\n" % n, client_headers.read({"Host": f"h{n}"}, f"http://h{n}"))
        assert len(known) <= client_headers.BLOCKS_MAX
    long = b"\r\nHost: h\r\nX: " + b"a" * client_headers.BLOCK_BYTES_MAX + b"\r\n\r\n"
    known.put(long, client_headers.read({"Host": "h", "X": "a"}, "http://h"))
    assert known.get(long) is None
    for odd in (
        b"\r\nHost: h\nX: a\r\n\r\n",
        b"\r\nHost: h\r\nX: a\n\n",
        b"\r\nHost: h\r\nX: a\r\r\n\r\n",
        b"\r\nHost: h\r\n\r\n",
    ):
        known.put(odd, client_headers.read({"Host": "h", "X": "a"}, "http://h"))
        assert known.get(odd) is None, odd
    even = b"\r\nHost: h\r\nX: a\r\n\r\n"
    known.put(even, client_headers.read({"Host": "h", "X": "a"}, "http://h"))
    assert known.get(even) is not None


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("Accept", "*/*", True),
        ("Connection", "keep-alive", True),
        ("Connection", "close", False),
        ("Connection", "Upgrade", False),
        ("upgrade", "h2c", False),
        ("If-None-Match", "*", False),
        ("RANGE", "bytes=0-1", False),
        ("Content-Length", "0", False),
        ("X-Crawler-Hop", "1", False),
    ],
)
def test_requests_with_special_fields_are_not_plain(name: str, value: str, plain: bool) -> None:
    assert client_headers.read({"Host": "h", name: value}, "http://h").plain is plain
