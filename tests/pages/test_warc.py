"""Test the content of WARC records, and that no server can inject a record."""

import base64
import gzip
import hashlib
import io
import re
import zlib
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawler.fetcher.framing import parse_head
from crawler.pages import gzip_members, reading, warc
from crawler.records import Extracted
from tests.pages.support import HTML, START, Site, fetch, not_modified
from tests.pages.support import records as records_of

DATE = b"2023-11-14T22:13:20Z"
TARGET = warc.target_fields("http://site.example/", "127.0.0.1", "HTTP/1.1")
ANY_HEADER = st.tuples(st.binary(max_size=30), st.binary(max_size=60))
ANY_HEADERS = st.lists(ANY_HEADER, max_size=6)


def _response(headers: warc.Headers, payload: bytes, line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    head = warc.http_head(line, headers)
    of = warc.Heading(b"<urn:uuid:1>", DATE, TARGET)
    return warc.response(of, head, payload, hashlib.sha1(payload).digest())


def test_dates_and_digests_are_written_as_text() -> None:
    """The expected values are from WARC/1.1 (WARC-Date) and from pywb's sample index.

    The sample index contains the SHA-1 of an empty payload, in base32.
    """
    assert warc.date_text(START + 0.999) == DATE
    assert warc.digest_text(hashlib.sha1(b"").digest()) == b"sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


def test_record_ids_are_distinct_version_4_uuids() -> None:
    identities = warc.record_ids(lambda count: bytes(range(0xF0, 0xF0 + count)), 16)
    form = rb"<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}>"
    assert all(re.fullmatch(form, identity) for identity in identities)
    assert len(set(identities)) == 16


@given(st.binary(min_size=20, max_size=20))
def test_base32_equals_the_standard_library(digest: bytes) -> None:
    assert warc.base32(digest) == base64.b32encode(digest)


@given(ANY_HEADERS, st.binary(max_size=300), st.binary(max_size=40))
def test_any_answer_makes_one_record(headers: warc.Headers, payload: bytes, reason: bytes) -> None:
    """Any bytes from a server make exactly one record with a complete payload and right digests."""
    data = _response(headers, payload, b"HTTP/1.1 200 " + reason)
    record = reading.parse_record(data)
    assert reading.check_digests(record) == []
    assert reading.parse_http(record.block).payload == payload
    assert len(reading.parse_http(record.block).headers) == len(headers)
    theirs = [(found.rec_type, found.content_stream().read()) for found in ArchiveIterator(io.BytesIO(data))]
    assert theirs == [("response", payload)]


HOSTILE = [
    (b"X-A", b"1\r\n\r\nWARC/1.1\r\nWARC-Type: resource\r\nContent-Length: 0\r\n\r\n"),
    (b"X-B\r\nSet-Cookie: a=1\r\nX", b"2"),
    (b"X-C", b"3\n\nHTTP/1.1 200 OK"),
    (b"", b"no name"),
    (b"X:D", b"\0\r"),
]


@pytest.mark.parametrize("header", HOSTILE)
def test_a_header_cannot_end_its_line(header: tuple[bytes, bytes]) -> None:
    message = reading.parse_http(reading.parse_record(_response([header, *HTML], b"payload")).block)
    assert len(message.headers) == 2 and message.headers[1] == HTML[0]
    assert message.payload == b"payload"


def test_eight_bit_values_are_kept() -> None:
    header = (b"X-Name", "Größe".encode("latin-1"))
    message = reading.parse_http(reading.parse_record(_response([header], b"")).block)
    assert message.headers == (header,)


@pytest.mark.parametrize(
    ("block", "payload_length", "stored"),
    [
        (b"HTTP/1.1 200 OK\r\nA:b \r\nx-C:  d\r\n\r\n", 5, b"HTTP/1.1 200 OK\r\nA:b \r\nx-C:  d\r\n\r\n"),
        (b"HTTP/1.0 200\r\n\r\n", 5, b"HTTP/1.0 200\r\n\r\n"),
        (b"HTTP/1.1 200 \r\ncontent-length:5\r\n\r\n", 5, b"HTTP/1.1 200 \r\ncontent-length:5\r\n\r\n"),
        (b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", None, b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding:chunked\r\nA:b\r\n\r\n", 5,
         b"HTTP/1.1 200 OK\r\nX-Crawler-Transfer-Encoding:chunked\r\nA:b\r\nContent-Length: 5\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 5, b""),  # a body that was cut off
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 5, b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 5, b""),
        (b"HTTP/1.1 200 OK\nA: b\n\n", 5, b""),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", 5, b""),  # a field that is folded over two lines
        (b"HTTP/1.1 200 OK\r\n \r\nA: b\r\n\r\n", 5, b""),  # a line that some readers treat as the end
        (b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", 5, b""),
        (b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", 5, b""),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", 5, b""),
        (b"HTTP/1.1 200 OK\r\nno field\r\n\r\n", 5, b""),
        (b"", 5, b""),
    ],
)  # fmt: skip
def test_a_well_formed_head_is_stored_as_received(
    block: bytes, payload_length: int | None, stored: bytes
) -> None:
    """A malformed header block is rebuilt from its fields.

    In both cases, the stored fields are those that the fetcher read.
    """
    fields = parse_head(block, fields_max=9, field_bytes_max=99).fields if block else ()
    head = warc.received_head(block, payload_length)
    assert head == stored
    rebuilt = warc.http_head(b"HTTP/1.1 200 OK", warc.stored_headers(fields, payload_length))
    if head:
        found = (reading.parse_http(each).headers for each in (head, rebuilt))
        assert len({tuple((name.lower(), value) for name, value in each) for each in found}) == 1


def test_a_hostile_url_or_reason_cannot_end_a_line() -> None:
    lines = warc.target_fields("http://a/\r\nWARC-Type: x y", "1\n2", "HTTP/1.1\r")
    assert lines.count(b"\r\n") == 3
    assert b"\nWARC-Type" not in lines
    facts = warc.fact_lines([("via", "a\r\nb"), ("empty", ""), ("depth", 0)])
    assert facts == b"via: a  b\r\ndepth: 0\r\n"


@pytest.mark.parametrize(
    ("headers", "length", "decoded", "stored"),
    [
        ([(b"Content-Length", b"9")], 5, False, [(b"Content-Length", b"5")]),
        ([(b"content-length", b"9"), (b"Content-Length", b"9")], 5, False, [(b"Content-Length", b"5")]),
        (
            [(b"Transfer-Encoding", b"chunked"), (b"A", b"b")],
            5,
            False,
            [(b"X-Crawler-Transfer-Encoding", b"chunked"), (b"A", b"b"), (b"Content-Length", b"5")],
        ),
        ([(b"A", b"b")], 5, False, [(b"A", b"b")]),
        ([(b"Content-Length", b"9")], None, False, [(b"Content-Length", b"9")]),
        ([(b"Transfer-Encoding", b"x")], None, False, [(b"X-Crawler-Transfer-Encoding", b"x")]),
        ([(b"Content-Encoding", b"gzip")], 5, False, [(b"Content-Encoding", b"gzip")]),
        ([(b"Content-Encoding", b"gzip")], 5, True, [(b"X-Crawler-Content-Encoding", b"gzip")]),
    ],
)
def test_header_blocks_are_stored(
    headers: warc.Headers, length: int | None, decoded: bool, stored: warc.Headers
) -> None:
    assert warc.stored_headers(headers, length, decoded=decoded) == stored


@pytest.mark.parametrize("level", [0, 1, 2, 3, 9])
def test_each_compression_level_makes_one_member(level: int) -> None:
    data = b"record " * 1000
    member = gzip_members.compressor(level)(data)
    assert gzip.decompress(member) == data
    assert zlib.decompress(member, 31) == data
    assert reading.expand(member) == data


class _CheckArguments:
    inputs = ()
    verbose = False


def _stored_answers(site: Site) -> None:
    """Store answers of all kinds: binary, empty, truncated, 8-bit, chunked, long URL, revisits, robots.txt."""
    long_url = "http://site.example/" + "a/" * 4000
    answers = [
        fetch(body=bytes(range(256)) * 40),
        fetch("http://site.example/empty", b""),
        fetch("http://site.example/cut", b"first part", truncated="length"),
        fetch("http://site.example/8", b"x", headers=((b"X-N\xe4me", b"\xfc\xff"), *HOSTILE)),
        fetch("http://site.example/chunked", b"chunks", headers=((b"Transfer-Encoding", b"chunked"),)),
        fetch(long_url, b"long"),
        fetch("http://site.example/same", bytes(range(256)) * 40),
    ]
    site.commit(*[site.decide(answer, number) for number, answer in enumerate(answers, 1)])
    site.visit(not_modified(headers=((b"ETag", b'"x"'),)), 1)
    site.visit(fetch("http://site.example/robots.txt", b"User-agent: *\n", content_type="text/plain"), 99)
    site.cache.close()


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("block_digests", [False, True])
def test_warcio_and_fastwarc_read_our_records(tmp_path: Path, level: int, block_digests: bool) -> None:
    site = Site(tmp_path, gzip_level=level, block_digests=block_digests)
    _stored_answers(site)
    [segment] = site.segments()
    checker = Checker(_CheckArguments())
    checker.process_one(str(segment))
    assert checker.exit_value == 0
    with segment.open("rb") as file:
        kinds = [
            (found.rec_type, found.rec_headers.get_header("WARC-Target-URI"))
            for found in ArchiveIterator(file)
        ]
    with segment.open("rb") as file:
        fast = [found.verify_block_digest() for found in FastIterator(file, parse_http=False)]
        assert fast == [True] + [block_digests] * 27 and len(fast) == len(kinds)
    assert [kind for kind, _ in kinds].count("revisit") == 2
    ours = list(records_of(segment))
    assert [record.kind for record in ours] == [kind for kind, _ in kinds]
    stated = ["warc-block-digest" in record.fields for record in ours if record.kind != "warcinfo"]
    assert stated == [block_digests] * 27
    assert [problem for record in ours for problem in reading.check_digests(record)] == []


def test_the_records_of_a_capture_refer_to_each_other(site: Site) -> None:
    site.visit(fetch("http://site.example/via"), 5)
    answer = fetch("http://site.example/p", b"body", tls_ok=False, truncated="time", version="HTTP/1.0")
    directives = Extracted(base=answer.url, nofollow=True, noarchive=True)
    site.visit(answer, 6, directives, via=5, depth=3, redirects=1)
    site.cache.close()
    response, request, metadata = list(records_of(site.segments()[0]))[-3:]
    assert [response.kind, request.kind, metadata.kind] == ["response", "request", "metadata"]
    assert request.fields["warc-concurrent-to"] == response.fields["warc-record-id"]
    assert metadata.fields["warc-concurrent-to"] == response.fields["warc-record-id"]
    assert request.block == answer.request_head
    assert response.fields["warc-truncated"] == "time"
    assert response.fields["warc-protocol"] == "http/1.0"
    assert response.fields["warc-ip-address"] == "127.0.0.1"
    assert response.fields["warc-date"] == "2023-11-14T22:14:20Z"
    facts = dict(line.split(": ", 1) for line in metadata.block.decode().splitlines())
    assert facts == {
        "via": "http://site.example/via",
        "depth": "3",
        "redirects": "1",
        "fetchTimeMs": "250",
        "outcome": "fetched",
        "robots": "nofollow noarchive",
        "tls": "not verified",
        "httpHead": "rebuilt",
    }


def test_revisits_name_a_response_by_url_and_date(site: Site) -> None:
    site.visit(fetch("http://site.example/first", b"same"), 1)
    site.visit(fetch("http://site.example/second", b"same"), 2)
    site.visit(not_modified("http://site.example/second"), 2)
    site.cache.close()
    revisits = [record for record in records_of(site.segments()[0]) if record.kind == "revisit"]
    assert [record.fields["warc-profile"] for record in revisits] == [
        warc.IDENTICAL_PAYLOAD,
        warc.NOT_MODIFIED,
    ]
    for record in revisits:
        assert record.fields["warc-refers-to-target-uri"] == "http://site.example/first"
        assert record.fields["warc-refers-to-date"] == DATE.decode()
        assert (
            record.fields["warc-payload-digest"] == warc.digest_text(hashlib.sha1(b"same").digest()).decode()
        )
        assert reading.parse_http(record.block).payload == b""


def test_the_segment_begins_with_a_warcinfo(tmp_path: Path) -> None:
    site = Site(tmp_path, software="crawler/9", operator="https://op.example/")
    site.visit(fetch())
    site.cache.close()
    [segment] = site.segments()
    info = next(records_of(segment))
    assert info.kind == "warcinfo"
    assert info.fields["warc-filename"] == segment.name
    facts = dict(line.split(": ", 1) for line in info.block.decode().splitlines())
    assert facts["software"] == "crawler/9"
    assert facts["operator"] == "https://op.example/"
    assert facts["robots"] == "obey"
    assert "rebuilt" in facts["http-header-blocks"]
