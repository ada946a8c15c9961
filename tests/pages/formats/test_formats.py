"""Exports: what others read, what is left out, and that nothing is written outside its folder."""

import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from crawler.errors import StoreError, UsageError
from crawler.pages import export, mirror, wacz
from crawler.pages.captures import StoredPage
from crawler.records import Capture, Extracted, Outcome
from tests.pages.support import HTML, START, Site, fetch, not_modified

URL = "http://site.example/"
ALL = export.selection()
ASKED = export.selection(with_noarchive=True)
SECRET = Extracted(base=URL, noarchive=True)


def _site(tmp_path: Path) -> Site:
    """a: two copies and a 304; b: noarchive; c repeats b's bytes; d: gone; e: redirect; f: failed."""
    site = Site(tmp_path / "p0", segment_bytes=2000)
    site.visit(fetch(URL + "a", b"<p>old</p>"), 1)
    site.visit(fetch(URL + "a", b"<title>T</title><p>new</p>"), 1)
    site.visit(not_modified(URL + "a"), 1)
    site.visit(fetch(URL + "b", b"<p>secret</p>"), 2, SECRET)
    site.visit(fetch(URL + "c", b"<p>secret</p>"), 3, depth=2, via=1)
    site.visit(fetch(URL + "d", b"gone", status=404, outcome=Outcome.GONE), 4)
    redirect = {"status": 301, "outcome": Outcome.REDIRECT, "location": URL + "a"}
    site.visit(fetch(URL + "e", b"", **redirect), 5)
    site.visit(fetch(URL + "f", b"", status=0, outcome=Outcome.DNS_ERROR, error="no name"), 6)
    return site


def _records(chunks: list[export.Chunk]) -> list[tuple[str, str, bytes]]:
    data = io.BytesIO(b"".join(chunk.data for chunk in chunks))
    found = []
    for record in ArchiveIterator(data):
        url = record.rec_headers.get_header("WARC-Target-URI")
        found.append((record.rec_type, url, record.content_stream().read()))
    return found


def test_warc_holds_all_captures_in_order(tmp_path: Path) -> None:
    site = _site(tmp_path)
    chunks = list(export.warc_chunks([site.cache], ASKED))
    records = _records(chunks)
    answers = [url for kind, url, _ in records if kind in ("response", "revisit")]
    assert answers == [URL + name for name in "aaabcde"]
    assert [kind for kind, _, _ in records].count("warcinfo") == len(site.segments())
    assert [kind for kind, _, _ in records].count("request") == 7
    for chunk in chunks:
        assert chunk.capture is None or site.cache.raw_records(chunk.capture) == chunk.data


def test_noarchive_is_left_out_and_its_revisits_stand_alone(tmp_path: Path) -> None:
    site = _site(tmp_path)
    records = _records(list(export.warc_chunks([site.cache], ALL)))
    assert URL + "b" not in {url for _, url, _ in records}
    assert ("response", URL + "c", b"<p>secret</p>") in records
    assert {line.split(b'"')[3] for line in export.cdxj_lines([site.cache], ALL)} == {
        (URL + name).encode() for name in "acde"
    }


def test_selection_by_time(tmp_path: Path) -> None:
    site = _site(tmp_path)
    select = export.selection(since=START + 60, until=START + 180)
    records = _records(list(export.warc_chunks([site.cache], select)))
    answers = [(kind, url) for kind, url, _ in records if kind in ("response", "revisit")]
    assert answers == [("response", URL + "a"), ("revisit", URL + "a")]
    late = export.selection(since=START + 120, until=START + 180)
    records = _records(list(export.warc_chunks([site.cache], late)))
    assert ("response", URL + "a", b"<title>T</title><p>new</p>") in records, "its response was not selected"


def test_an_unreadable_capture_is_reported_and_skipped(tmp_path: Path) -> None:
    site = _site(tmp_path)
    site.cache.close()
    site.segments()[0].unlink()
    messages: list[str] = []
    assert list(export.warc_chunks([site.cache], ALL, report=messages.append))
    assert any("missing" in message for message in messages)
    messages.clear()
    list(export.text_lines([site.cache], ALL, report=messages.append))
    assert messages


def test_jsonl_has_a_line_a_page_under_stable_names(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in export.jsonl_lines([_site(tmp_path).cache])]
    assert [row["url"] for row in rows] == [URL + name for name in "abcdef"]
    assert rows[2] == {
        "id": "0000000000000003",
        "url": URL + "c",
        "ts": "2023-11-14T22:17:20.000Z",
        "status": 200,
        "mime": "text/html",
        "depth": 2,
        "state": "stored",
        "outcome": "fetched",
        "via": "0000000000000001",
        "redirects": 0,
        "location": "",
        "changed": "2023-11-14T22:17:20.000Z",
        "took": 0.25,
        "digest": "sha1:7A7GRIG24ZR5JEDYJ3QDKIM6SXJJ37Q4",
        "attempts": 1,
        "fetches": 1,
        "changes": 0,
        "links": 0,
        "noindex": False,
        "noarchive": False,
        "error": "",
    }
    assert rows[0]["changes"] == 1
    assert (rows[3]["state"], rows[4]["location"], rows[5]["error"]) == ("gone", URL + "a", "no name")
    assert rows[5]["ts"] == ""


def test_links_come_from_the_newest_copies(tmp_path: Path) -> None:
    def links(page: StoredPage) -> list[str]:
        return [page.content.decode(), "with\ttab\nand line"]

    lines = list(export.link_lines([_site(tmp_path).cache], ALL, links))
    assert lines == [
        b"http://site.example/a\t<title>T</title><p>new</p>\n",
        b"http://site.example/a\twith tab and line\n",
        b"http://site.example/c\t<p>secret</p>\n",
        b"http://site.example/c\twith tab and line\n",
    ]


def test_text_of_pages(tmp_path: Path) -> None:
    site = Site(tmp_path)
    page = "<head><style>p {}</style></head><body><script>x()</script><p>Gr\xfc\xdfe &amp; mehr</p></body>"
    latin = ((b"Content-Type", b"text/html; charset=iso-8859-1"),)
    site.visit(fetch(URL, page.encode("latin-1"), headers=latin), 1)
    site.visit(fetch(URL + "plain", b"plain  text", content_type="text/plain"), 2)
    site.visit(fetch(URL + "image", b"\x89PNG", content_type="image/png"), 3)
    rows = [json.loads(line) for line in export.text_lines([site.cache], ALL)]
    assert [row["url"] for row in rows] == [URL, URL + "plain"]
    assert rows[0]["text"].strip() == "Gr\xfc\xdfe & mehr"
    assert rows[1]["text"] == "plain  text"
    own = [
        json.loads(line)["text"] for line in export.text_lines([site.cache], ALL, text=lambda page: "mine")
    ]
    assert own == ["mine", "mine"]


def _stored(body: str) -> StoredPage:
    capture = Capture("", 0, 0, "response", START, 200, "text/html", b"", URL)
    return StoredPage(capture, 200, "OK", "HTTP/1.1", HTML, body.encode())


def test_text_without_a_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_resiliparse", lambda: None)
    body = (
        "<!-- no --><SCRIPT>no()</SCRIPT ><p>one\n two<br>three</p><a href='>'>x</a> 1 < 2 &lt;b&gt;<!-- open"
    )
    assert export.page_text(_stored(body)) == "one\ntwo three '>x 1 < 2 <b>"


QUADRATIC = {
    "formatting": "<b>" * 40_000,
    "mismatched": "<b></i>" * 40_000,
    "nested": "<div>" * 80_000,
    "attributes": "<p " + "a=1 " * 200_000 + ">",
    "large": "x" * 3_000_000,
}
LONG = QUADRATIC | {
    "comments": "<!--" * 100_000,
    "scripts": "<script>" * 50_000,
    "ends": "<script>" + "</script" * 50_000,
    "angles": "<" * 200_000,
    "entities": "&" * 100_000 + "&#" * 50_000,
}


@pytest.mark.parametrize("shape", QUADRATIC)
def test_hostile_pages_never_reach_the_parser(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    def parse(source: str) -> str:
        raise AssertionError("parsed")

    monkeypatch.setattr(export, "_resiliparse", lambda: parse)
    assert "text" in export.page_text(_stored("<p>text</p>" + QUADRATIC[shape]))


@pytest.mark.parametrize("shape", LONG)
def test_the_plain_scan_takes_linear_time(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """A quadratic pattern would hold this test for minutes."""
    monkeypatch.setattr(export, "_resiliparse", lambda: None)
    assert "text" in export.page_text(_stored("<p>text</p>" + LONG[shape]))


def test_ordinary_pages_are_tame(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "<tr><td><img src=x><br><b>cell</b></td></tr>"
    monkeypatch.setattr(export, "_resiliparse", lambda: lambda source: "parsed")
    assert export.page_text(_stored("<table>" + row * 5000 + "</table>")) == "parsed"


@pytest.mark.parametrize(
    ("content", "charset", "text"),
    [
        (b"\xef\xbb\xbfx", "", "x"),
        (b"\xff\xfex\0", "utf-8", "x"),
        (b"\xe4", "", "\xe4"),
        ("\xe4".encode(), "", "\xe4"),
        (b"\xe4", "iso-8859-1", "\xe4"),
        (b"\xe4x", "utf-8", "\ufffdx"),
        (b"x", "no such charset", "x"),
    ],
)
def test_decode_text(content: bytes, charset: str, text: str) -> None:
    assert export.decode_text(content, charset) == text


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="needs pyarrow"):
        export.write_parquet([], tmp_path / "pages.parquet")


# -- mirror


@pytest.mark.parametrize(
    ("url", "content_type", "path"),
    [
        ("http://site.example/", "text/html", "site.example/index.html"),
        ("http://site.example/a/", "text/html", "site.example/a/index.html"),
        ("http://site.example:8080/a", "text/html", "site.example_8080/a.html"),
        ("http://site.example/a.png", "image/png", "site.example/a.png"),
        ("http://site.example/a.HTM", "text/html", "site.example/a.HTM"),
        ("http://site.example/a?b=1/2", "text/plain", "site.example/a@b=1%2F2"),
        ("http://site.example/?b", "text/html", "site.example/index.html@b.html"),
        ("http://site.example/%C3%A4%20b", "text/plain", "site.example/ä b"),
        ("http://site.example/%2e%2e/%2e%2e/etc/passwd", "text/plain", "site.example/.%2E/.%2E/etc/passwd"),
        ("http://site.example/..%2f..%2fx", "text/plain", "site.example/..%2F..%2Fx"),
        ("http://site.example/a%00b%0Ac", "text/plain", "site.example/a%00b%0Ac"),
        ("http://site.example/a\\b:c", "text/plain", "site.example/a%5Cb%3Ac"),
        ("http://site.example/%FF", "text/plain", "site.example/%FF"),
        ("http://[::1]:80/x", "text/plain", "[__1]_80/x"),
        ("http://site.example/a//b/./c.", "text/plain", "site.example/a/b/%2E/c%2E"),
    ],
)
def test_mirror_paths(url: str, content_type: str, path: str) -> None:
    assert str(mirror.mirror_path(url, content_type)) == path


@given(st.text(max_size=80), st.sampled_from(["text/html", "text/plain"]))
def test_any_url_has_a_harmless_path(tail: str, content_type: str) -> None:
    path = mirror.mirror_path("http://site.example/" + tail, content_type)
    assert not path.is_absolute()
    assert path.parts[0] == "site.example" and len(path.parts) > 1
    for part in path.parts:
        assert part not in ("", ".", "..")
        assert not any(char in part for char in "/\\\0\n\r")
        assert len(part.encode()) <= 255


def test_long_names_and_long_paths() -> None:
    long = mirror.mirror_path("http://site.example/" + "a" * 3000 + ".html", "text/html")
    other = mirror.mirror_path("http://site.example/" + "a" * 3001 + ".html", "text/html")
    assert long != other
    assert long.suffix == ".html" and len(long.name) <= 255
    deep = mirror.mirror_path("http://site.example/" + "abcde/" * 1300 + "x.png", "image/png")
    assert len(str(deep)) < 100 and deep.suffix == ".png"


def test_mirror_writes_the_newest_copies(tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    assert mirror.write_mirror([_site(tmp_path).cache], folder, ALL) == 2
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "site.example/a.html": b"<title>T</title><p>new</p>",
        "site.example/c.html": b"<p>secret</p>",
    }
    with pytest.raises(UsageError, match="not empty"):
        mirror.write_mirror([], folder, ALL)


def test_mirror_collisions_keep_every_page(tmp_path: Path) -> None:
    """A file where a directory is wanted, a directory where a file is wanted, two URLs with one path."""
    site = Site(tmp_path / "p0")
    urls = ["a", "a/b", "a/b/c", "x%3Fy", "x%3fy", "d/e", "d", "A%2FB", "a@1", "a?1"]
    for number, name in enumerate(urls, 1):
        site.visit(fetch(URL + name, b"body %d" % number, content_type="text/plain"), number)
    folder = tmp_path / "mirror"
    assert mirror.write_mirror([site.cache], folder, ALL) == len(urls)
    bodies = sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert bodies == sorted(b"body %d" % number for number in range(1, len(urls) + 1))


def test_mirror_follows_no_link_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "mirror"
    (folder / "site.example").mkdir(parents=True)
    (folder / "site.example" / "x").symlink_to(outside / "victim")
    assert not mirror._create(folder / "site.example" / "x", b"data")
    assert list(outside.iterdir()) == []


def test_mirror_names_a_disk_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file"):
        mirror.write_mirror([], tmp_path / "file" / "mirror", ALL)


# -- WACZ


def test_wacz_is_complete_and_consistent(tmp_path: Path) -> None:
    path = tmp_path / "crawl.wacz"
    count = wacz.write_wacz([_site(tmp_path).cache], path, ALL, now=START, title="A crawl")
    assert count == 6
    with zipfile.ZipFile(path) as package:
        assert package.testzip() is None
        listing = json.loads(package.read("datapackage.json"))
        digest = json.loads(package.read("datapackage-digest.json"))
        assert digest["hash"] == "sha256:" + hashlib.sha256(package.read("datapackage.json")).hexdigest()
        assert listing["profile"] == "data-package" and listing["wacz_version"] == "1.1.1"
        for resource in listing["resources"]:
            data = package.read(resource["path"])
            assert resource["bytes"] == len(data)
            assert resource["hash"] == "sha256:" + hashlib.sha256(data).hexdigest()
        archive = package.getinfo("archive/data.warc.gz")
        assert archive.compress_type == zipfile.ZIP_STORED
        data = package.read("archive/data.warc.gz")
        lines = package.read("indexes/index.cdxj").splitlines(keepends=True)
        pages = [json.loads(line) for line in package.read("pages/pages.jsonl").splitlines()]
    assert lines == sorted(lines) and len(lines) == 6
    for line in lines:
        fields = json.loads(line.split(b" ", 2)[2])
        [record] = ArchiveIterator(io.BytesIO(data[int(fields["offset"]) :][: int(fields["length"])]))
        assert record.rec_headers.get_header("WARC-Target-URI") == fields["url"]
        assert (record.rec_type == "revisit") == (fields["mime"] == "warc/revisit")
    assert pages[0]["format"] == "json-pages-1.0"
    assert [page["url"] for page in pages[1:]] == [URL + "a", URL + "c"]


def test_wacz_names_a_disk_that_fails(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"crawl\.wacz"):
        wacz.write_wacz([], tmp_path / "missing" / "crawl.wacz", ALL, now=START)
