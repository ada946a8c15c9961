"""Test that other tools can read WARC and CDXJ exports, and that excluded captures are left out."""

import io
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from crawler.pages.formats.selection import Selection
from crawler.pages.formats.warc_stream import Chunk, cdxj_lines, warc_chunks
from tests.pages.formats.support import ALL, ASKED, URL, small_site
from tests.pages.support import START


def _records(chunks: list[Chunk]) -> list[tuple[str, str, bytes]]:
    data = io.BytesIO(b"".join(piece for chunk in chunks for piece in chunk.pieces))
    found = []
    for record in ArchiveIterator(data):
        url = record.rec_headers.get_header("WARC-Target-URI")
        found.append((record.rec_type, url, record.content_stream().read()))
    return found


def test_warc_holds_all_captures_in_order(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    chunks = list(warc_chunks([site.cache], ASKED))
    records = _records(chunks)
    answers = [url for kind, url, _ in records if kind in ("response", "revisit")]
    assert answers == [URL + name for name in "aaabcde"]
    assert [kind for kind, _, _ in records].count("warcinfo") == len(site.segments())
    assert [kind for kind, _, _ in records].count("request") == 7
    for chunk in warc_chunks([site.cache], ASKED):
        stored = site.cache.raw_pieces(chunk.capture) if chunk.capture is not None else chunk.pieces
        assert b"".join(stored) == b"".join(chunk.pieces)


def test_noarchive_is_left_out_and_its_revisits_stand_alone(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    records = _records(list(warc_chunks([site.cache], ALL)))
    assert URL + "b" not in {url for _, url, _ in records}
    assert ("response", URL + "c", b"<p>secret</p>") in records
    assert {line.split(b'"')[3] for line in cdxj_lines([site.cache], ALL)} == {
        (URL + name).encode() for name in "acde"
    }


def test_captures_are_selected_by_time(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    select = Selection(since=START + 60, until=START + 180)
    records = _records(list(warc_chunks([site.cache], select)))
    answers = [(kind, url) for kind, url, _ in records if kind in ("response", "revisit")]
    assert answers == [("response", URL + "a"), ("revisit", URL + "a")]
    late = Selection(since=START + 120, until=START + 180)
    records = _records(list(warc_chunks([site.cache], late)))
    assert ("response", URL + "a", b"<title>T</title><p>new</p>") in records, (
        "the response to which it refers was not selected"
    )


def test_an_unreadable_capture_is_reported_and_skipped(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    site.cache.close()
    site.segments()[0].unlink()
    messages: list[str] = []
    assert list(warc_chunks([site.cache], ALL, report=messages.append))
    assert any("missing" in message for message in messages)
