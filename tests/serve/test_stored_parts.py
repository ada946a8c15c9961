"""Test how copies are served whose gzip members have several parts: the bytes read, the bytes sent, and damage."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import DamageError
from crawler.pages.gzip_members import MemberParts
from crawler.pages.withdrawals import RuleFile, Subject, Withdrawals
from crawler.records import Extracted, Outcome, Rendering
from crawler.serve import page_handler
from crawler.serve.stored_copies import SegmentFiles
from tests.pages.support import START, drop_old_copies
from tests.serve.support import Response, Served
from tests.serve.test_again import answers, asks

PAGE = "http://site.example/"
AT = "/page?url=" + PAGE
TEXT = b"<title>Long</title>" + b"<p>some words of a page</p>\n" * 200
GZIP = "Accept-Encoding: gzip, br"


@pytest.fixture
def served(tmp_path: Path) -> Served:
    made = Served(tmp_path, ready_bytes_max=0)  # no answer is cached
    made.store(body=TEXT)
    return made


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call that decompresses a payload adds the number of bytes that it was asked for."""
    lengths: list[int] = []
    payload = MemberParts.payload

    def counted(parts: MemberParts, length: int = -1) -> bytes:
        lengths.append(length)
        return payload(parts, length)

    monkeypatch.setattr(MemberParts, "payload", counted)
    return lengths


async def both(served: Served, *lines: str, target: str = AT) -> list[Response]:
    """Send a request twice and return both answers.

    The first request is parsed; the second one takes the fast path.
    """
    async with served.connected() as (reader, writer):
        said = []
        for _ in range(2):
            writer.write(asks(target, *lines))
            said += await answers(reader, 1)
    return said


async def test_a_client_that_accepts_gzip_gets_the_stored_blocks(served: Served, inflated: list[int]) -> None:
    for coded in await both(served, GZIP):
        assert coded.fields["content-encoding"] == "gzip" and coded.fields["etag"].endswith('-z"')
        assert coded.fields["vary"] == "Accept-Encoding"
        assert gzip.decompress(coded.body) == TEXT and len(coded.body) < len(TEXT) / 2
    assert inflated == []
    for plain in await both(served):
        assert plain.body == TEXT and "content-encoding" not in plain.fields
        assert plain.fields["vary"] == "Accept-Encoding", "caches must distinguish the two forms"
        assert plain.fields["etag"] != coded.fields["etag"]
    assert inflated == [len(TEXT)] * 2
    head = await served.get(AT, GZIP, method="HEAD")
    assert head.fields["content-length"] == str(len(coded.body))


async def test_nothing_is_read_if_the_client_has_the_copy(served: Served, inflated: list[int]) -> None:
    for lines in ((), (GZIP,)):
        tag = (await served.get(AT, *lines)).fields["etag"]
        inflated.clear()
        for same in await both(served, *lines, f"If-None-Match: {tag}"):
            assert same.status == 304 and same.fields["etag"] == tag
        assert inflated == []
        other = await served.get(AT, f"If-None-Match: {tag}", *(() if lines else (GZIP,)))
        assert other.status == 200, "the other form has another tag"


async def test_the_fields_of_a_page_are_read_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache, the body is read from the segment for each answer.

    For an answer of 304, nothing is read.
    """
    reads: list[int] = []
    read = SegmentFiles.read

    def counted(files: SegmentFiles, folder: Path, segment: str, length: int, offset: int) -> bytes:
        reads.append(length)
        return read(files, folder, segment, length, offset)

    monkeypatch.setattr(SegmentFiles, "read", counted)
    served.crawl.probability = 0.5
    first, second = await both(served, GZIP)
    assert len(reads) == 2 and len(served.handler.head_cache) == 1 and len(served.handler.response_cache) == 0
    assert first.fields == second.fields and first.fields["x-fresh-probability"] == "0.500"
    for same in await both(served, GZIP, f"If-None-Match: {first.fields['etag']}"):
        assert same.status == 304 and same.fields["x-fresh-probability"] == "0.500"
    assert len(reads) == 2
    for _ in await both(served):
        pass
    assert len(reads) == 4 and len(served.handler.head_cache) == 2, "the forms are cached apart"
    served.store(body=TEXT + b"<p>more", at=50.0)
    assert gzip.decompress((await both(served, GZIP))[1].body) == TEXT + b"<p>more"


async def test_the_memory_for_fields_of_pages_is_bounded(tmp_path: Path) -> None:
    """More pages than both caches can hold are requested twice, so bodies move from the first cache to the second."""
    async with Served(tmp_path, ready_bytes_max=80_000, head_bytes_max=30_000) as served:
        for number in range(40):
            served.store(f"{PAGE}{number}", TEXT + b"%d" % number)
        for _ in range(2):
            for number in range(40):
                for lines in ((), (GZIP,)):
                    answer = await served.get(f"{AT}{number}", *lines)
                    body = gzip.decompress(answer.body) if lines else answer.body
                    assert body == TEXT + b"%d" % number
                assert (await served.get(f"{AT}{number}", "If-None-Match: *")).status == 304
                heads = served.handler.head_cache._kept.values()
                assert not any(head.ready.body or head.ready.stored._parts for head in heads)
                served.handler.head_cache._check()
                served.handler.response_cache._check()
        assert len(served.handler.head_cache) and len(served.handler.response_cache)


async def test_ranges_apply_to_the_decoded_page(served: Served, inflated: list[int]) -> None:
    """The page is inflated only up to the end of the range."""
    for lines in ((), (GZIP,)):
        for part in await both(served, *lines, "Range: bytes=2000-2099"):
            assert part.status == 206 and part.body == TEXT[2000:2100]
            assert "content-encoding" not in part.fields
    assert inflated == [2100] * 4


async def test_only_bodies_that_shrink_are_sent_as_gzip(served: Served) -> None:
    """Random bytes, short pages and rewritten pages are sent uncompressed.

    DOMs and revisits are sent as gzip, like pages.
    """
    noise = os.urandom(5000)
    served.store(PAGE + "noise", noise)
    served.store(PAGE + "short", b"short")
    served.store(PAGE + "same", TEXT, at=1.0)
    served.store(PAGE + "shown", b"<p>shell", rendering=Rendering(dom=TEXT))
    for name, body in (("noise", noise), ("short", b"short")):
        plain = await served.get(AT + name, GZIP)
        assert plain.body == body and "content-encoding" not in plain.fields
    rewritten = await served.get(AT + "&rewrite=1", GZIP)
    assert b"some words" in rewritten.body and "content-encoding" not in rewritten.fields
    for name in ("same", "shown"):
        coded = await served.get(AT + name, GZIP)
        assert gzip.decompress(coded.body) == TEXT, name


def _noarchive(served: Served) -> None:
    served.store(body=TEXT, at=50.0, extracted=Extracted(PAGE, noarchive=True))


def withdraw(served: Served, url: str = PAGE) -> None:
    withdrawals = served.site.cache.withdrawals
    RuleFile(served.site.cache.folder.parent, 10).add(Subject(url=url).rule(START))
    withdrawals.reload()


def _disallow(served: Served) -> None:
    served.crawl.disallowed = lambda url: "Disallow: /"  # type: ignore[attr-defined]


@pytest.mark.parametrize("ready_bytes_max", [0, 1 << 20])
@pytest.mark.parametrize("withhold", [_noarchive, withdraw, _disallow])
@pytest.mark.parametrize(
    "lines", [(), (GZIP,), ("If-None-Match: TAG",), (GZIP, "If-None-Match: TAG"), ("Range: bytes=0-9",)]
)
async def test_directives_are_checked_at_each_request(
    tmp_path: Path, ready_bytes_max: int, withhold: Any, lines: tuple[str, ...]
) -> None:
    """A page is withheld as soon as a rule forbids it, in whichever way it is served.

    This is true even if the page has been served before, and is perhaps cached.
    """
    on_disallow = "withhold" if withhold is _disallow else "keep"
    async with Served(tmp_path, ready_bytes_max=ready_bytes_max, on_disallow=on_disallow) as served:
        served.site.cache.withdrawals = Withdrawals(tmp_path)
        served.crawl.disallowed = lambda url: ""  # type: ignore[attr-defined]
        served.store(body=TEXT)
        tag = (await served.get(AT, *[line for line in lines if line == GZIP])).fields["etag"]
        asked = [line.replace("TAG", tag) for line in lines]
        async with served.connected() as (reader, writer):
            for _ in range(3):
                writer.write(asks(AT, *asked))
                assert (await answers(reader, 1))[0].status in (200, 206, 304)
            withhold(served)
            for _ in range(2):
                writer.write(asks(AT, *asked))
                assert (await answers(reader, 1))[0].status == 451
        assert (await served.get(AT, *asked, method="HEAD")).status == 451
        for door in ("/timegate/", "/timemap/link/", ""):
            assert (await served.get(door + PAGE)).status == 451, door


async def test_damage_is_not_served(tmp_path: Path) -> None:
    """The test damages first the payload, then the header block of the stored member."""
    served = Served(tmp_path, ready_bytes_max=0, head_bytes_max=0)
    served.store(body=TEXT)
    [segment] = served.site.segments()
    data = segment.read_bytes()
    head = data.index(b"CP\x10\x00") + 20
    payload = head + int.from_bytes(data[head - 16 : head - 12], "little")

    def spoil(at: int) -> None:
        with segment.open("r+b") as file:
            file.seek(at)
            file.write(bytes(40))

    async with served:
        tag = (await served.get(AT)).fields["etag"]
        spoil(payload + 8)
        assert [each.status for each in await both(served)] == [502, 502]
        with pytest.raises((zlib.error, OSError, EOFError)):
            gzip.decompress((await served.get(AT, GZIP)).body)
        assert (await served.get(AT, f"If-None-Match: {tag}")).status == 304
        spoil(head + 40)
        for lines in ((), (GZIP,), (f"If-None-Match: {tag}",)):
            assert [each.status for each in await both(served, *lines)] == [502, 502]


def test_the_number_of_open_segments_is_bounded(tmp_path: Path) -> None:
    """The number of open files is bounded, and all files are closed at the end.

    A segment that was renamed can still be read.
    """
    for number in range(9):
        (tmp_path / f"s{number}").write_bytes(b"segment %d" % number)
    (tmp_path / "s9.open").write_bytes(b"segment 9")
    files = SegmentFiles(3)
    before = len(os.listdir("/proc/self/fd"))
    for number in (*range(10), 9, 0, 5, 9):
        assert files.read(tmp_path, f"s{number}", 20, 8) == b"%d" % number
        assert len(files) <= 3
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    (tmp_path / "s9.open").rename(tmp_path / "s9")
    assert files.read(tmp_path, "s9", 7, 0) == b"segment"
    (tmp_path / "s5").unlink()
    for _ in range(256):
        files.read(tmp_path, "s9", 7, 0)
    assert len(files) == 2, "the deleted segment takes no disk space"
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(DamageError, match="missing"):
        files.read(tmp_path, "other", 1, 0)


def test_the_memory_for_consent_lines_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler keeps each line that it has read.

    When the handler has too many lines, it drops all of them. The handler keeps no empty lines.
    """
    read: list[bytes] = []

    def text_of(store: object, fingerprint: int, digest: bytes) -> str:
        read.append(digest)
        return digest.decode()

    monkeypatch.setattr(page_handler, "stored_header_text", text_of)
    monkeypatch.setattr(page_handler, "_CONSENT_LINES_MAX", 2)
    archive: Any = served.site.cache
    asked = (b"a", b"b", b"a", b"b", b"", b"c", b"c", b"b")
    made = [served.handler._consent_line(archive, 1, digest) for digest in asked]
    assert made == [b"X-Consent: %b\r\n" % each if each else b"" for each in asked]
    assert read == [b"a", b"b", b"", b"c", b"b"]
    assert sorted(served.handler._consent_lines) == [b"b", b"c"]


@pytest.mark.parametrize(
    ("status", "language"), [(200, "fr"), (304, "en")], ids=["the same payload again", "not modified"]
)
async def test_the_head_of_a_repeated_answer(tmp_path: Path, status: int, language: str) -> None:
    """The payload always comes from the first answer.

    The head comes from the new answer, but after a 304 from the first one.
    """
    served, html = Served(tmp_path), (b"Content-Type", b"text/html")
    served.store(body=TEXT, headers=[html, (b"Content-Language", b"en")])
    outcome, body = (Outcome.FETCHED, TEXT) if status == 200 else (Outcome.UNCHANGED, b"")
    again = [html, (b"Content-Language", b"fr")]
    served.store(body=body, at=50.0, status=status, outcome=outcome, headers=again)
    async with served:
        shown = await served.get(AT)
        assert (shown.status, shown.body) == (200, TEXT)
        assert shown.fields["content-language"] == language


async def test_a_copy_whose_original_is_lost_is_not_served(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served.store(body=TEXT, at=50.0)
    monkeypatch.setattr(served.site.cache, "capture_at", lambda place: None)
    assert (await served.get(AT)).status == 502
    assert "the response that it repeats is not in the store" in caplog.text


async def test_a_copy_that_was_moved_is_read_from_its_new_place(served: Served) -> None:
    """The cached head of the answer states the place of the body, which is in a segment that was deleted."""
    for number in range(8):
        served.store(f"{PAGE}other", os.urandom(4000).hex().encode(), at=number)
    assert (await both(served))[0].body == TEXT
    before = served.site.segments()
    drop_old_copies(served.site.cache)
    served.handler.copies.files.close()
    assert not set(before) & set(served.site.segments())
    for answer in await both(served):
        assert (answer.status, answer.body) == (200, TEXT)
