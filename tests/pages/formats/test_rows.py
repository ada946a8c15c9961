"""Test the fields of rows, and the files that hold them."""

import gc
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest
from pyarrow import parquet

from crawler.errors import UsageError
from crawler.pages.formats import dataset
from crawler.pages.formats.rows import FIELDS, known_rows, record_row
from crawler.records import Outcome, PageRecord, PageState
from tests.pages.formats.support import ALL, ASKED, URL, small_site
from tests.pages.support import Site, fetch


def test_rows_have_one_url_each_and_stable_field_names(tmp_path: Path) -> None:
    found = list(known_rows([small_site(tmp_path).cache], ALL))
    rows = [known.row for known in found]
    assert [row["url"] for row in rows] == [URL + name for name in "abcdef"]
    segment = rows[2].pop("warc_file")
    assert segment.endswith(".warc.gz")
    assert rows[2].pop("warc_offset") > 0 < rows[2].pop("warc_length")
    assert rows[2] == {
        "url": URL + "c",
        "host": "site.example",
        "status": 200,
        "fetched_at": "2023-11-14T22:17:20.000Z",
        "title": None,
        "text": None,
        "language": None,
        "language_confidence": None,
        "author": None,
        "published": None,
        "modified": None,
        "description": None,
        "site_name": None,
        "canonical": None,
        "declared_language": None,
        "image": None,
        "content_type": "text/html",
        "digest": "sha1:7A7GRIG24ZR5JEDYJ3QDKIM6SXJJ37Q4",
        "simhash": None,
        "minhash": None,
        "duplicate_of": None,
        "depth": 2,
        "via": URL + "a",
        "id": "0000000000000003",
        "state": "stored",
        "outcome": "fetched",
        "seed": False,
        "redirects": 0,
        "location": None,
        "changed_at": "2023-11-14T22:17:20.000Z",
        "fresh": None,
        "took": 0.25,
        "attempts": 1,
        "fetches": 1,
        "changes": 0,
        "links": 0,
        "noindex": False,
        "noarchive": False,
        "consent_search": None,
        "consent_ai_input": None,
        "consent_train_ai": None,
        "consent_tdm": None,
        "consent_sources": None,
        "consent_receipt": None,
        "error": None,
    }
    assert (rows[0]["changes"], rows[0]["seed"], rows[1]["warc_file"]) == (1, True, None)
    assert (rows[3]["state"], rows[4]["location"], rows[5]["error"]) == ("gone", URL + "a", "no name")
    assert rows[5]["fetched_at"] is None
    assert found[1].capture is None and found[2].original is not None, (
        "the page repeats content that must not be shown"
    )


def test_the_status_of_a_copy_that_a_304_confirmed_is_its_own() -> None:
    """The export option `--where 'status == 200'` once left out every page that a refresh had found unchanged."""
    record = PageRecord(url=URL + "a", state=PageState.STORED, outcome=Outcome.UNCHANGED, status=304)
    row = record_row(1, record, "")
    assert (row["status"], row["outcome"]) == (200, "unchanged")
    strange = msgspec.structs.replace(record, outcome=Outcome.UNEXPECTED_STATUS)
    assert record_row(1, strange, "")["status"] == 304


def test_captures_are_joined_with_the_records_of_many_urls(site: Site) -> None:
    """Captures and records are sorted by fingerprint. Some URLs have no capture, and some captures have no record."""
    for number in (3, 5, 6, 9, 12):
        status = 0 if number in (5, 12) else 200
        site.visit(fetch(f"{URL}{number}", b"%d" % number, status=status), number)
    found = {known.row["url"]: known for known in known_rows([site.cache], ASKED)}
    for url, known in found.items():
        assert (known.capture is None) == url.endswith(("5", "12"))
        assert known.capture is None or known.capture.url == url


def _rows(n: int) -> list[dict[str, object]]:
    blank = dict.fromkeys(FIELDS)
    return [
        {**blank, "url": f"u{i}", "text": "t" * 1000, "fetched_at": "2026-11-22T06:00:00.123Z"}
        for i in range(n)
    ]


def test_json_lines_have_the_chosen_fields_in_order() -> None:
    file = io.BytesIO()
    writer = dataset.JsonLines(file, ["text", "url"])
    writer.write(_rows(1)[0])
    assert file.getvalue() == b'{"text":"' + b"t" * 1000 + b'","url":"u0"}\n'
    assert json.loads(file.getvalue())


def test_parquet_has_types_and_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with path.open("wb") as output:
        assert dataset.write_rows(_rows(25_000), "parquet", output, tuple(FIELDS)) == 25_000
    file = parquet.ParquetFile(path)
    assert file.metadata.num_rows == 25_000 and file.num_row_groups == 3
    assert str(file.schema_arrow.field("fetched_at").type) == "timestamp[ms, tz=UTC]"
    assert str(file.schema_arrow.field("status").type) == "int64"
    assert (
        file.read_row_group(0).slice(7, 1).to_pylist()[0]["fetched_at"].isoformat()
        == "2026-11-22T06:00:00.123000+00:00"
    )


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_are_split_into_parts(tmp_path: Path, form: str) -> None:
    """The parts have about the requested size, and contain each row once, in order.

    The folder must be empty before.
    """
    folder = tmp_path / "parts"
    assert dataset.write_parts(_rows(1000), form, folder, ("url", "text"), part_bytes=100_000) == 1000
    parts = sorted(folder.iterdir())
    assert [path.name for path in parts] == [f"part-{i:05d}.{form}" for i in range(len(parts))]
    assert len(parts) > 2
    if form == "jsonl":
        found = [json.loads(line)["url"] for path in parts for line in path.read_text().splitlines()]
        assert all(path.stat().st_size < 103_000 for path in parts)
    else:
        found = [row["url"] for path in parts for row in parquet.read_table(path).to_pylist()]
    assert found == [f"u{i}" for i in range(1000)]
    with pytest.raises(UsageError, match="not empty"):
        dataset.write_parts([], form, folder, ("url",), part_bytes=1)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="needs pyarrow"):
        dataset.load_pyarrow()


def test_a_parquet_file_that_fails_prints_no_traceback_of_a_destructor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destructor of pyarrow's writer once wrote to the closed file: `Exception ignored in ... ParquetWriter`."""
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(OSError, match="no thread"), (tmp_path / "rows.parquet").open("wb") as output:
        writer = dataset.Parquet(output, ("url",))

        def no_thread(_: object) -> None:
            output.close()
            raise OSError(11, "no thread")

        monkeypatch.setattr(writer._writer, "write_table", no_thread)
        writer.write({"url": "http://a/", "text": None})
        writer.finish()
    del writer
    gc.collect()
    assert not ignored
