"""Test CDXJ: its keys, its lines, sorting in bounded memory, and look-ups."""

import bisect
import json
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.pages import reading
from crawler.pages.captures import StoredPage
from crawler.pages.formats import cdxj, warc_stream
from crawler.pages.formats.selection import Selection
from crawler.records import Capture
from tests.pages.support import Site, fetch, not_modified

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "surt" / "surt-0.3.1.json").read_text())


@pytest.mark.parametrize(("url", "key"), GOLDEN)
def test_surt_agrees_with_the_reference(url: str, key: str) -> None:
    assert cdxj.surt(url) == key


@given(st.text(max_size=60))
def test_the_key_of_any_url_is_one_line(tail: str) -> None:
    key = cdxj.surt("http://site.example/" + tail)
    assert key.startswith("example,site)/")
    assert key.isascii() and not any(char.isspace() for char in key)
    cdxj.surt(tail)


def test_deeply_escaped_urls_take_bounded_time() -> None:
    assert cdxj.surt("http://a.example/" + "%25" * 2700) == "example,a)/%25" + "%25" * 2699
    assert cdxj.surt("http://a.example/%" + "25" * 4000) == "example,a)/%25"


def test_lines_have_the_form_of_pywb() -> None:
    """The lines are like those in pywb's sample_archive/cdxj/dupes.cdxj.

    A line has a key, 14 digits, and JSON whose values are strings. For a revisit, there is no status.
    """
    digest = bytes.fromhex("da39a3ee5e6b4b0d3255bfef95601890afd80709")
    capture = Capture(
        "dupes.warc.gz", 1858, 343, "response", 1390842758.9, 302, "", digest, "http://iana.org"
    )
    assert cdxj.line(capture) == (
        b'org,iana)/ 20140127171238 {"url":"http://iana.org","mime":"unk","status":"302",'
        b'"digest":"3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ","length":"343","offset":"1858","filename":"dupes.warc.gz"}\n'
    )
    capture.kind = "revisit"
    fields = json.loads(cdxj.line(capture, filename="other").split(b" ", 2)[2])
    assert fields["mime"] == "warc/revisit"
    assert fields["filename"] == "other"
    assert "status" not in fields


@pytest.mark.parametrize(
    ("url", "query", "key", "fields"),
    [
        ("http://a.example/s", "__wb_method=POST&q=green tea", "example,a)/s?__wb_method=post&q=green%20tea",
         {"method": "POST", "requestBody": "q=green tea"}),
        ("http://a.example/s?b=1", "__wb_method=PUT&a=x\ny", "example,a)/s?__wb_method=put&a=xy&b=1",
         {"method": "PUT", "requestBody": "a=x\ny"}),
        ("http://a.example/s", "__wb_method=DELETE", "example,a)/s?__wb_method=delete", {"method": "DELETE"}),
    ],
)  # fmt: skip
def test_the_key_of_a_post_ends_in_its_method_and_body(url: str, query: str, key: str, fields: dict) -> None:
    """The expected keys and fields are the output of `cdx-indexer -p -j` of pywb 2.10 for such records."""
    capture = Capture("s.warc.gz", 0, 1, "response", 1.0, 200, "text/html", b"", url, query=query)
    found, _, rest = cdxj.line(capture).decode().split(" ", 2)
    assert found == key
    line = json.loads(rest)
    assert {name: line[name] for name in ("method", "requestBody") if name in line} == fields


@given(
    st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"") + b"\n"), max_size=60),
    st.integers(1, 200),
)
def test_lines_are_sorted_with_any_memory_limit(lines: list[bytes], memory_bytes: int) -> None:
    assert list(cdxj.sorted_lines(lines, memory_bytes=memory_bytes)) == sorted(lines)


def test_many_runs_are_merged_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdxj, "_RUNS_MERGED_MAX", 4)
    generator = random.Random(5)
    source = [b"%016x\n" % generator.getrandbits(64) for _ in range(20_000)]
    tracemalloc.start()
    merged = 0
    last = b""
    for line in cdxj.sorted_lines(iter(source), folder=tmp_path, memory_bytes=4_000):
        assert line >= last
        last = line
        merged += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert merged == len(source)
    assert peak < 400_000, "340 kB of lines were sorted with a few runs in memory"
    assert list(tmp_path.iterdir()) == []


def _look_up(lines: list[bytes], url: str, folder: Path) -> StoredPage:
    """Look up a URL as a replay tool does.

    The line of the URL is found by bisection, and the bytes to which the line refers are read.
    """
    key = cdxj.surt(url).encode() + b" "
    at = bisect.bisect_left(lines, key)
    while lines[at].startswith(key):
        fields = json.loads(lines[at].split(b" ", 2)[2])
        if fields["url"] == url:
            with (folder / fields["filename"]).open("rb") as file:
                file.seek(int(fields["offset"]))
                record = reading.parse_record(reading.expand(file.read(int(fields["length"]))))
            assert record.fields["warc-target-uri"] == url
            assert record.fields["warc-payload-digest"] == "sha1:" + fields["digest"]
            message = reading.parse_http(record.block)
            return StoredPage(
                Capture("", 0, 0, "", 0, 0, "", b"", url),
                message.status,
                "",
                "",
                message.headers,
                message.payload,
            )
        at += 1
    raise KeyError(url)


def test_the_index_finds_every_page_of_every_process(tmp_path: Path) -> None:
    sites = [Site(tmp_path / name, segment_bytes=2000) for name in ("p0", "p1")]
    bodies = {}
    for number in range(40):
        url = f"http://www.site{number % 7}.example/Page/{number}?b={number}&a=1"
        bodies[url] = b"body %d" % number
        sites[number % 2].visit(fetch(url, bodies[url]), number + 1)
    sites[0].visit(not_modified("http://www.site0.example/Page/0?b=0&a=1"), 1)
    lines = list(warc_stream.cdxj_lines([site.cache for site in sites], Selection()))
    assert lines == sorted(lines)
    assert len(lines) == 41
    for number, (url, body) in enumerate(bodies.items()):
        site = sites[number % 2]
        site.cache.close()
        page = _look_up(lines, url, site.cache.folder)
        assert page.payload == body
