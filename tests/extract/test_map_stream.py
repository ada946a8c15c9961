"""Test that a sitemap that is read while it arrives gives the same result as one that is read whole."""

import asyncio
import gzip
import random

import msgspec
import pytest

from crawler.config import ExtractConfig, SitemapsConfig
from crawler.extract.collected import Context
from crawler.extract.documents import Document, DocumentKind, read_document
from crawler.extract.map_stream import STREAMS_MAX, MapPiece, MapReaders, MapStream
from crawler.extract.worker import Worker
from crawler.records import Extracted, Fetch, Outcome

CONFIG = ExtractConfig()
DOCUMENT = Document.of(DocumentKind.SITEMAP, Fetch("http://a.test/m.xml", Outcome.FETCHED), SitemapsConfig())
MAP = (
    b"<urlset>"
    + b"".join(
        b"<url><loc>http://a.test/%d</loc><lastmod>2026-01-%02d</lastmod></url>" % (n, n % 28 + 1)
        for n in range(4000)
    )
    + b"</urlset>"
)
BODIES = {"plain": MAP, "gzip": gzip.compress(MAP), "broken": MAP[:-5000] + b"<<" + MAP[-5000:]}
LEAST = 1000


def pieces(body: bytes, seed: int) -> list[bytes]:
    """Return the body in pieces, as a server might send it."""
    rng, cuts, at = random.Random(seed), [], 0
    while at < len(body):
        cuts.append(at)
        at += rng.choice([1, 10, 1000, 64 << 10])
    return [body[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(body)], strict=True)]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_streamed_map_gives_the_same_result_as_a_whole_one(name: str, seed: int) -> None:
    """The result is the same if the child's input buffer is nearly full, and if the child dies and is replaced."""
    body, rng = BODIES[name], random.Random(seed)
    readers: MapReaders = MapReaders(10.0)

    def send(piece: MapPiece) -> bool:
        if rng.random() < 0.5:
            return False
        assert readers.take(piece) is None
        return True

    stream = MapStream(7, DOCUMENT, send, LEAST)
    for piece in pieces(body, seed):
        stream.feed(piece)
    again = seed % 2 == 1
    readers = MapReaders(10.0) if again else readers
    *others, last = (readers.take(piece) for piece in stream.rest(pieces(body, seed + 9), again=again))
    assert not any(others) and not len(readers)
    assert last == read_document(body, DOCUMENT, CONFIG)


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_replaces_the_bytes_of_an_earlier_one(late: bool) -> None:
    """The child may have read half of an answer when the connection fails and the request is sent again."""
    readers = MapReaders(10.0)
    sent: list[MapPiece] = []

    def send(piece: MapPiece) -> bool:
        sent.append(piece)
        assert readers.take(piece) is None
        return True

    stream = MapStream(7, DOCUMENT, send, LEAST, late=late)
    stream.feed(MAP[: len(MAP) // 2].replace(b"a.test", b"b.test"))
    stream.restart()
    for piece in pieces(MAP, 1):
        stream.feed(piece)
    assert stream.nbytes == len(MAP) and len(sent) == (0 if late else 1)
    *others, last = (readers.take(piece) for piece in stream.rest([MAP], again=False))
    assert not any(others) and last == read_document(MAP, DOCUMENT, CONFIG)


def test_small_maps_need_no_child_and_dropped_maps_are_forgotten() -> None:
    readers = MapReaders(10.0)
    sent: list[MapPiece] = []
    stream = MapStream(1, DOCUMENT, lambda piece: bool(sent.append(piece) or True), LEAST)
    stream.feed(MAP[:LEAST])
    assert not sent
    stream.feed(MAP[LEAST : LEAST + 1])
    assert b"".join(piece.content for piece in sent) == MAP[: LEAST + 1]
    for piece in sent:
        readers.take(piece)
    assert len(readers) == 1
    readers.take(stream.dropped())
    assert not len(readers)


async def test_one_child_reads_maps_that_arrive_together() -> None:
    """The pieces of more maps than are read at once arrive interleaved with a page. The child dies once."""
    worker = Worker(CONFIG)
    try:
        await worker.extract_apart(b"<a href=x>x</a>", Context("http://a.test/", token="me"))
        streams = [worker.follow(DOCUMENT, LEAST) for _ in range(STREAMS_MAX)]
        late = worker.follow(DOCUMENT, LEAST)
        bodies = [BODIES["plain" if n % 2 else "gzip"] for n in range(STREAMS_MAX)]
        parts = [pieces(body, n) for n, body in enumerate(bodies)]
        for step in range(max(map(len, parts))):
            for stream, some in zip(streams, parts, strict=True):
                if step < len(some):
                    stream.feed(some[step])
                    late.feed(some[step])
            if step == 20:
                assert worker._child is not None and any(stream.sent for stream in streams)
                assert not late.sent, "a child reads few maps at once"
                worker._child.process.kill()
                await worker._child.process.wait()
        found = await asyncio.gather(
            *(
                worker.read_stream(stream, [body], DOCUMENT)
                for stream, body in zip(streams, bodies, strict=True)
            )
        )
        whole: Extracted = read_document(MAP, DOCUMENT, CONFIG)
        assert sum(each == whole for each in found) >= STREAMS_MAX - 1, (
            "all but the one that the child died on"
        )
        assert await worker.read_stream(late, [MAP], DOCUMENT) == whole
        assert not worker._streams
        dropped = worker.follow(msgspec.structs.replace(DOCUMENT), LEAST)
        dropped.feed(MAP)
        worker.drop(dropped)
        worker.drop(dropped)
        assert not worker._streams
    finally:
        await worker.close()
