"""Test exports of a crawl of a small site: rows, parts, logs, and invalid requests."""

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from crawler.errors import DamageError, UsageError
from crawler.export.writing import Export, ExportRequest
from tests.end_to_end.web import Web, crawl, damaged_copy, page, redirect, run

STORY = "The old lighthouse keeper walked down to the harbour every morning before the first boats came in with fish. "
HEAD = """<html lang=en-GB><meta name=author content=Ann><script type=application/ld+json>
{"@type": "Article", "datePublished": "2026-11-03"}</script>"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    folder = tmp_path_factory.mktemp("rows")
    story = STORY * 6
    with Web({}) as web:
        web.routes |= {
            "/": page("/a", "/copy", "/near", "/gone", "/moved", "/i.png", text="Start"),
            "/a": f"<title>A</title><nav>menu</nav><main><p>{story}</main>",
            "/copy": f"<title>A</title><nav>menu</nav><main><p>{story}</main>",
            "/near": f"{HEAD}<title>Near</title><nav>menu</nav><main><p>{story} today</main>",
            "/moved": redirect("/a"),
            "/i.png": (200, {"Content-Type": "image/png"}, "png"),
        }
        crawl(folder / "crawl", web.url())
    return folder / "crawl", web


def _rows(directory: Path, *arguments: str) -> dict[str, dict[str, object]]:
    ran = run("export", "--dir", directory, "--format", "jsonl", *arguments)
    assert ran.code == 0, ran
    return {"/" + row["url"].split("/", 3)[3]: row for row in map(json.loads, ran.out.splitlines())}


def test_an_export_that_lacks_unreadable_copies_ends_with_3(
    crawled: tuple[Path, Web], tmp_path: Path
) -> None:
    """Before, a script did not notice that a disk error had left out pages."""
    directory = damaged_copy(crawled[0], tmp_path / "crawl")
    ran = run("export", "--dir", directory, "--format", "text", "-o", tmp_path / "made")
    assert ran.code == DamageError.exit_code and ran.err.startswith("crawler: "), ran


@pytest.mark.parametrize("processes", ["1", "2"])
def test_rows_agree_with_the_pages(crawled: tuple[Path, Web], processes: str) -> None:
    directory, web = crawled
    rows = _rows(directory, "--processes", processes)
    assert set(rows) == {"/", "/a", "/copy", "/near", "/gone", "/moved", "/i.png"}
    story = rows["/a"]
    assert (story["title"], story["language"], story["status"], story["depth"]) == ("A", "en", 200, 1)
    assert STORY.strip() in str(story["text"]) and story["via"] == web.url("/")
    assert rows["/"]["seed"] is True and rows["/"]["via"] is None
    assert rows["/i.png"]["text"] is None and rows["/i.png"]["warc_file"]
    assert (rows["/gone"]["status"], rows["/gone"]["text"]) == (404, None)
    originals = [path for path in ("/a", "/copy", "/near") if rows[path]["duplicate_of"] is None]
    assert len(originals) == 1, "two pages are duplicates of the first one"
    copies = {rows[path]["duplicate_of"] for path in ("/a", "/copy", "/near")} - {None}
    assert copies == {web.url(originals[0])}


def test_metadata_in_both_formats(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    directory, _ = crawled
    names = "author,published,declared_language"
    expected = {"author": "Ann", "published": "2026-11-03", "declared_language": "en-GB"}
    assert _rows(directory, "--fields", f"url,{names}")["/near"].items() > expected.items()
    assert set(_rows(directory, "--where", 'author == "Ann"')) == {"/near"}
    file = tmp_path / "rows.parquet"
    assert run("export", "--dir", directory, "--format", "parquet", "-o", file, "--fields", names).code == 0
    assert expected in parquet.read_table(file).to_pylist()


def test_main_content_is_exported(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    assert "menu" in str(_rows(directory)["/a"]["text"])
    assert "menu" not in str(_rows(directory, "--main-content")["/a"]["text"])


def test_where_selects_rows_and_fields_select_columns(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    rows = _rows(directory, "--where", "status >= 400", "--fields", "status,url")
    assert {path: list(row) for path, row in rows.items()} == {"/gone": ["status", "url"]}
    assert set(_rows(directory, "--where", 'title == "A"')) == {"/a", "/copy"}
    assert set(_rows(directory, "--where", 'duplicate_of != "" and len(text) > 99')) == {
        "/a",
        "/copy",
        "/near",
    }


def test_a_use_that_no_site_allows_is_reported(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    ran = run("export", "--dir", directory, "--format", "jsonl", "--allow", "train-ai")
    assert (ran.code, ran.text) == (0, "") and "no copy may be used for train-ai" in ran.err


def test_columns_that_need_a_missing_library_are_reported(
    crawled: tuple[Path, Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition on such a column is an error, as is `--main-content`."""
    directory, _ = crawled
    fields = ("export", "--dir", directory, "--format", "jsonl", "--fields", "url,language,author")
    assert "empty columns" not in run(*fields).err
    monkeypatch.setattr("crawler.pages.formats.language.is_installed", lambda: False)
    assert "empty columns: language; to fill them, install the extra text" in run(*fields).err
    monkeypatch.setattr("crawler.pages.formats.text.is_installed", lambda: False)
    ran = run(*fields)
    assert ran.code == 0 and "empty columns: language, author;" in ran.err
    assert "empty columns" not in run(*fields[:-1], "url").err
    for flags in (("--where", 'language == "en"'), ("--main-content",)):
        ran = run(*fields, *flags)
        assert ran.code == 2 and "install the extra text" in ran.err, ran


def test_an_empty_selection_is_reported(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    for form in ("jsonl", "links"):
        ran = run("export", "--dir", directory, "--format", form, "--where", 'host == "elsewhere.test"')
        assert (ran.code, ran.text) == (0, "") and 'no page matches host == "elsewhere.test"' in ran.err


def test_an_export_in_parts(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    directory, _ = crawled
    arguments = ("--format", "parquet", "-o", tmp_path / "parts", "--part-size", "100 B")
    assert run("export", "--dir", directory, *arguments).code == 0
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) > 1
    assert sum(parquet.read_metadata(part).num_rows for part in parts) == 7


def test_a_crawl_log_has_heritrix_columns(crawled: tuple[Path, Web]) -> None:
    """The log has one line for each fetch, in order, with Heritrix's columns."""
    directory, web = crawled
    lines = [
        line.split() for line in run("export", "--dir", directory, "--format", "crawl-log").text.splitlines()
    ]
    assert all(len(line) == 12 for line in lines)
    by_url = {line[3]: line for line in lines}
    gone = by_url[web.url("/gone")]
    assert (gone[1], gone[4], gone[5]) == ("404", "L", web.url("/"))
    assert by_url[web.url("/")][4:7] == ["-", "-", "text/html"]
    assert by_url[web.url("/a")][9].startswith("sha1:")
    assert [line[0] for line in lines] == sorted(line[0] for line in lines)


def test_left_over_store_copies_are_removed(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    left = directory / "p0" / "snapshot-999999999-x"
    left.mkdir()
    _rows(directory, "--fields", "url")
    assert not list((directory / "p0").glob("snapshot-*"))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ExportRequest("parquet"), "needs -o PATH"),
        (ExportRequest("tar"), "no format 'tar'"),
        (ExportRequest("jsonl", fields="utl"), "did you mean url"),
        (ExportRequest("jsonl", part_bytes=5), "needs -o FOLDER"),
        (ExportRequest("text", part_bytes=5), "for the formats jsonl and parquet"),
        (ExportRequest("warc", where="status == 200"), "contains all captures"),
        (ExportRequest("links", where="len(text) > 2"), "cannot use text"),
        (ExportRequest("text", fields="url"), "for the formats jsonl and parquet"),
    ],
)
def test_invalid_arguments_are_rejected(request_: ExportRequest, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Export(request_)
