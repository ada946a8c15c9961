"""Test the WARC reader: samples from other programs, broken input, bounds, and content codings."""

import base64
import gzip
import hashlib
import random
import zlib
from pathlib import Path

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib
from warcio.archiveiterator import ArchiveIterator

from crawler.content_codings import can_decode, decoder_for
from crawler.errors import DamageError
from crawler.pages import reading, warc
from crawler.pages.stored_bodies import decoded

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "warc").glob("*.warc*"))
RECORD = b"WARC/1.1\r\nWARC-Type: resource\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_from_other_programs_are_read_as_by_warcio(path: Path) -> None:
    data, ours, theirs = path.read_bytes(), [], []
    with path.open("rb") as file:
        samples = ArchiveIterator(file)
        for record in samples:
            headers = {name.lower(): value for name, value in record.rec_headers.headers}
            theirs.append((record.rec_type, headers, record.content_stream().read()))
            begin = samples.get_record_offset()
            stored = data[begin : begin + samples.get_record_length()]
            ours.append(reading.parse_record(reading.expand(stored) if path.suffix == ".gz" else stored))
    assert [(record.kind, record.fields) for record in ours] == [(kind, fields) for kind, fields, _ in theirs]
    for record, (kind, _, content) in zip(ours, theirs, strict=True):
        if kind in ("response", "request"):
            message = reading.parse_http(record.block)
            codings = reading.codings_of(message.headers)
            assert reading.decode_payload(message.payload, codings) == content
        else:
            assert record.block.startswith(content) if kind == "revisit" else record.block == content


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no WARC header"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "not a WARC record"),
        (b"WARC/1.1\r\nWARC-Type: x\r\n\r\n", "no Content-Length"),
        (b"WARC/1.1\r\nContent-Length: -1\r\n\r\n", "no Content-Length"),
        (b"WARC/1.1\r\nContent-Length: 4\r\n\r\nabc", "its header says 4"),
    ],
)
def test_data_that_is_not_a_record_is_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamageError, match=message):
        reading.parse_record(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_damage_or_a_record(data: bytes) -> None:
    for attempt in (data, RECORD[:20] + data):
        try:
            reading.parse_record(attempt)
        except DamageError:
            pass
        reading.parse_http(attempt)


def test_expand_reads_exactly_one_member_of_bounded_size() -> None:
    member = gzip.compress(b"x" * 1000)
    assert reading.expand(member, bytes_max=1000) == b"x" * 1000
    for broken in (
        member[:-1],
        member + b"\0",
        member + member,
        b"",
        b"no gzip",
        member[:-6] + b"\0\0" + member[-4:],
    ):
        with pytest.raises(DamageError):
            reading.expand(broken)
    with pytest.raises(DamageError, match="larger than 999"):
        reading.expand(member, bytes_max=999)


@pytest.mark.parametrize("size", [0, 1, 5, 255_999, 256 << 10, (256 << 10) + 1, 3_000_000])
@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_the_length_of_a_member_does_not_depend_on_chunks(size: int, chunk: int) -> None:
    data = random.Random(size).randbytes(size // 2) + b"\0" * (size - size // 2)
    for member in (isal_zlib.compress(data, 1, 31), gzip.compress(data, 6)):
        stream = member + b"next member"
        chunks = (stream[at : at + chunk] for at in range(0, len(stream), chunk))
        assert reading.member_length(chunks, "here") == len(member)
    with pytest.raises(DamageError, match="cut short"):
        reading.member_length([member[:-1]], "here")


CONTENT = b"<p>content</p>" * 500
RAW_DEFLATE = zlib.compressobj(wbits=-15)
RAW = RAW_DEFLATE.compress(CONTENT) + RAW_DEFLATE.flush()


@pytest.mark.parametrize(
    ("codings", "payload"),
    [
        (b"", CONTENT),
        (b"identity", CONTENT),
        (b"GZip", gzip.compress(CONTENT, mtime=0)),
        (b"x-gzip", gzip.compress(CONTENT[:100], mtime=0) + gzip.compress(CONTENT[100:], mtime=0)),
        (b"gzip", gzip.compress(CONTENT, mtime=0) + b"trailing bytes"),
        (b"gzip", CONTENT),  # the header states gzip, but the payload is not compressed
        (b"deflate", zlib.compress(CONTENT)),
        (b"deflate", RAW),
        (b"br", brotli.compress(CONTENT)),
        (b"deflate, gzip", gzip.compress(zlib.compress(CONTENT), mtime=0)),
        (b"zstd", CONTENT),  # an unknown coding is left unchanged
    ],
)
def test_content_codings(codings: bytes, payload: bytes) -> None:
    """A list of codings may be divided among several fields."""
    names = reading.codings_of([(b"Content-Encoding", codings)])
    assert reading.decode_payload(payload, names) == CONTENT
    assert reading.codings_of([(b"content-encoding", each) for each in codings.split(b",")]) == names


@pytest.mark.parametrize(
    ("codings", "coder"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"br", brotli.compress)]
)
def test_a_broken_coding_returns_the_part_before_the_break(codings: bytes, coder: object) -> None:
    payload = coder(CONTENT)  # type: ignore[operator]
    decoded = reading.decode_payload(payload[: len(payload) - 4], [codings])
    assert CONTENT.startswith(decoded)
    assert reading.decode_payload(b"\x1f\x8bgarbage", [codings]) in (b"", b"\x1f\x8bgarbage")


@pytest.mark.parametrize(
    ("codings", "coder"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"br", brotli.compress)]
)
def test_a_decompression_bomb_is_cut_at_the_limit(codings: bytes, coder: object) -> None:
    bomb = coder(b"\0" * (20 << 20))  # type: ignore[operator]
    assert len(reading.decode_payload(bomb, [codings])) == reading.content_max(len(bomb)) == 16 << 20


def _damaged(payload: bytes) -> list[bytes]:
    """Return the payload with a wrong checksum, without its trailer, with a wrong byte, and cut in the middle."""
    half = len(payload) // 2
    flipped = payload[:half] + bytes([payload[half] ^ 0x55]) + payload[half + 1 :]
    return [payload[:-8] + bytes(8), payload[:-8], flipped, payload[:half], payload + b"\x1f"]


@pytest.mark.parametrize(
    ("name", "coder"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"br", brotli.compress)]
)
def test_all_readers_find_the_content_that_the_fetcher_found(name: bytes, coder: object) -> None:
    """Once, a page whose gzip checksum was wrong was crawled, but was served and exported as an empty page."""
    content = b"".join(b"<p>%d" % (number * number % 7919) for number in range(20_000))
    payload: bytes = coder(content)  # type: ignore[operator]
    for damaged in _damaged(payload):
        fetcher = decoder_for([name], limit=1 << 26, step=1 << 18)
        assert fetcher is not None
        pieces = [damaged[at : at + 1000] for at in range(0, len(damaged), 1000)]
        fetched = b"".join([out for piece in pieces for out in fetcher.feed(piece)] + fetcher.finish())
        assert len(fetched) > len(content) // 10
        assert reading.decode_payload(damaged, [name]) == fetched
        assert b"".join(decoded(iter(pieces), [name], len(damaged))) == fetched


@pytest.mark.parametrize("layers", [1, 2])
def test_a_small_copy_has_no_huge_content(layers: int) -> None:
    """Once, a page of 300 bytes made a page server send 600 MB, and a mirror write 600 MB."""
    bomb = b"\0" * (48 << 20)
    for _ in range(layers):
        bomb = gzip.compress(bomb, mtime=0)
    codings = [b"gzip"] * layers
    streamed = b"".join(decoded(iter([bomb]), codings, len(bomb)))
    assert len(streamed) == reading.content_max(len(bomb)) == 16 << 20
    assert reading.decode_payload(bomb, codings) == streamed


def test_a_thousand_codings_are_not_undone() -> None:
    """Once, each coding took a level of recursion."""
    assert not can_decode([b"gzip"] * 1000)
    assert b"".join(decoded(iter([CONTENT]), [b"gzip"] * 1000, len(CONTENT))) == CONTENT
    assert reading.decode_payload(gzip.compress(CONTENT), [b"gzip"] * 1000) == gzip.compress(CONTENT)


def test_digests_are_compared() -> None:
    good = reading.Record(
        "WARC/1.1", {"warc-type": "resource", "warc-block-digest": "sha1:" + "A" * 32}, b"x"
    )
    assert reading.check_digests(good) == ["block digest differs"]
    for text in ("", "md5:x", "sha256:abc"):
        good.fields["warc-block-digest"] = text
        assert reading.check_digests(good) == []
    good.fields["warc-block-digest"] = "sha1:not base32"
    assert reading.check_digests(good) == ["block digest differs"]


_HEADS = st.lists(
    st.sampled_from(
        ["WARC-Type: response", "warc-type : resource", " WARC-Block-Digest: sha1:A", "Content-Length: 3",
         "content-length:\t30 ", "Content-Length: x", "WARC-Payload-Digest: sha1:" + "A" * 32,
         "WARC-Payload-Digest: sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5", "X-WARC-Type: no", "no colon",
         "\u00a0WARC-Type:\u00e9"]
    ), max_size=6,
)  # fmt: skip


@given(
    st.sampled_from(["WARC/1.1", "WARC/1.0", "HTTP/1.1"]), _HEADS, st.sampled_from(["\r\n", "\n"]),
    st.sampled_from([b"abc", b"", b"HTTP/1.1 200 OK\r\n\r\nabc", b"a\n\nabc\r\n\r\n"]),
)  # fmt: skip
def test_a_record_is_checked_without_copies_as_it_is_parsed(
    version: str, fields: list[str], end: str, block: bytes
) -> None:
    data = (end.join((version, *fields)) + 2 * end).encode() + block + b"\r\n\r\n"
    try:
        expected = reading.check_digests(reading.parse_record(data, "here"))
    except DamageError as error:
        with pytest.raises(DamageError) as raised:
            reading.checked(data, "here")
        assert str(raised.value) == str(error)
    else:
        assert reading.checked(data, "here") == expected


@pytest.mark.parametrize("kind", ["response", "resource", "metadata"])
@pytest.mark.parametrize("step", [1, 7, 64])
def test_a_large_record_is_checked_in_pieces(monkeypatch: pytest.MonkeyPatch, kind: str, step: int) -> None:
    """The result is the same as for the whole record, but only the beginning of the block is in memory."""
    monkeypatch.setattr(reading, "WHOLE_BYTES_MAX", 10)
    head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n" if kind == "response" else b""
    payload = bytes(range(256)) * 4
    good = warc.record(
        kind.encode(),
        b"<urn:uuid:1>",
        b"2026-01-01T00:00:00Z",
        b"WARC-Payload-Digest: " + warc.digest_text(hashlib.sha1(payload).digest()) + b"\r\n",
        head,
        payload,
    )
    for data, problems in (
        (good, []),
        (good.replace(b"\xfe\xff", b"\xfe\xfe", 1), ["block digest differs", "payload digest differs"]),
    ):
        pieces = (data[at : at + step] for at in range(0, len(data), step))
        record, found = reading.checked_record(pieces, "here")
        assert found == reading.check_digests(reading.parse_record(data))
        assert found == (problems if kind != "metadata" else problems[:1])
        assert record.kind == kind and record.block.startswith(head)
        assert len(record.block) < len(head) + step + 100
    with pytest.raises(DamageError, match="its header says"):
        reading.checked_record(iter((good[:-100],)), "here")


@pytest.mark.parametrize("flips", range(40))
def test_stated_digests_are_read_as_the_library_reads_them(flips: int) -> None:
    """Digests may have any case, length and characters.

    A digest with a character outside ASCII is invalid, but raises no error.
    """
    draw = random.Random(flips)
    text = base64.b32encode(draw.randbytes(20)).decode()
    for _ in range(flips % 4):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice("abcz27018=_-+ \n!\u00e9") + text[at + 1 :]
    text = draw.choice([text, text.lower(), text[:24], text[:-1], text + "AAAAAAAA", ""])
    try:
        expected = base64.b32decode(text, casefold=True)
    except ValueError:
        expected = b""
    record = reading.Record("WARC/1.1", {"warc-payload-digest": f"sha1:{text}"}, b"")
    assert reading.payload_digest(record) == expected
    assert reading.check_digests(reading.Record("WARC/1.1", {"warc-block-digest": f"sha1:{text}"}, b"")) == [
        "block digest differs"
    ]
