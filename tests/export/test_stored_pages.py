"""Test that all readers of stored pages agree with the crawl: log, rows, text, WACZ, report, links and the Python API."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import crawler
from tests.end_to_end.web import Web, crawl, lines, run

_ROW = "<tr><td class='a b c'><a href='/known'>cell</a> <b>bold</b> and text</td></tr>\n"


def _large(title: str, size: int) -> str:
    return f"<title>{title}</title><table>{_ROW * (size // len(_ROW))}</table>"


# Maps each path to headers, a body, and the title that every reader must show.
PAGES: dict[str, tuple[dict[str, str], bytes, str]] = {
    "/small": ({}, b"<title> A\n small  one</title><p>text</p>", "A small one"),
    "/100kB": ({}, _large("Hundred", 100_000).encode(), "Hundred"),
    "/1MB": ({}, _large("Large &amp; heavy", 1_000_000).encode(), "Large & heavy"),
    "/late": ({}, b"<head>" + b"<!-- pad -->" * 9_000 + b"<title>Behind 100 kB</title>", "Behind 100 kB"),
    "/header": ({"Content-Type": "text/html; charset=iso-8859-1"}, b"<title>caf\xe9</title>", "café"),
    "/quoted": ({"Content-Type": 'text/html; charset="ISO-8859-2"'}, b"<title>\xb1</title>", "ą"),
    "/last": (
        {"Content-Type": "text/html; charset=utf-8", "content-type": "text/html; charset=windows-1251"},
        b"<title>\xcc\xe8\xf0</title>",
        "Мир",
    ),
    "/meta": (
        {"Content-Type": "text/html"},
        "<meta charset=shift_jis><title>日本</title>".encode("shift_jis"),
        "日本",
    ),
    "/bom": ({"Content-Type": "text/html"}, "\ufeff<title>wide é</title>".encode("utf-16-le"), "wide é"),
    "/sniffed": ({"Content-Type": "unknown/unknown"}, b"<!doctype html><title>No type</title>", "No type"),
    "/xhtml": (
        {"Content-Type": "application/xhtml+xml"},
        b"<html><head><script src='x'/><title>XML</title></head></html>",
        "XML",
    ),
    "/decoys": (
        {},
        b"<!--<title>no</title>--><script>'<title>no</title>'</script><title>Yes</title><title>2</title>",
        "Yes",
    ),
    "/untitled": ({}, b"<p>no title</p><svg><title>of a picture</title></svg>", ""),
    "/empty": ({}, b"<title></title><p>an empty one</p>", ""),
    "/deep": ({}, b"<title>Deep</title>" + b"<div>" * 30_000 + b"<a href=/known>x</a>", "Deep"),
    "/attributes": ({}, b"<title>Wide</title><p " + b"a=1 " * 60_000 + b"><a href=/known>", "Wide"),
    "/formatting": (
        {},
        b"<title>Bold</title>" + b"".join(b"<b class=k%d><p>" % n for n in range(3000)),
        "Bold",
    ),
    "/cut": ({}, b"<title>Open to the end", "Open to the end"),
}
LINKS: dict[str, tuple[dict[str, str], bytes]] = {
    "/nofollow": ({}, b"<title>n</title><meta name=robots content=nofollow><a href=/hidden1>x</a>"),
    "/tagged": ({"X-Robots-Tag": "nofollow"}, b"<title>t</title><a href=/hidden2>x</a>"),
    "/related": ({"Link": "</from-header>; rel=next"}, b"<title>r</title><a href=/from-body>x</a>"),
    "/refreshed": ({"Refresh": "5; url=/from-refresh"}, b"<title>f</title>"),
}


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Web]:
    folder = tmp_path_factory.mktemp("readings")
    with Web({}) as web:
        start = "".join(f"<a href={path}>x</a>" for path in (*PAGES, *LINKS))
        web.routes |= {"/": f"<title>Start</title>{start}", "/known": "<title>Known</title>"}
        web.routes |= {path: (200, headers, body) for path, (headers, body, _) in PAGES.items()}
        web.routes |= {path: (200, headers, body) for path, (headers, body) in LINKS.items()}
        crawl(folder / "crawl", web.url())
    return folder / "crawl", web


def _path(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def _logged(directory: Path) -> dict[str, str]:
    return {_path(line["url"]): line.get("title", "") for line in lines(directory)}


def _rows(directory: Path, processes: int) -> dict[str, str]:
    arguments = ("--format", "jsonl", "--fields", "url,title", "--processes", processes)
    rows = map(json.loads, run("export", "--dir", directory, *arguments).out.splitlines())
    return {_path(row["url"]): row["title"] or "" for row in rows}


def _in_wacz(directory: Path, folder: Path) -> dict[str, str]:
    file = folder / "crawl.wacz"
    assert run("export", "--dir", directory, "--format", "wacz", "-o", file).code == 0
    with zipfile.ZipFile(file) as archive:
        _, *rows = map(json.loads, archive.read("pages/pages.jsonl").splitlines())
    return {_path(row["url"]): "" if row["title"] == row["url"] else row["title"] for row in rows}


def _report(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("report", "--dir", directory, "--format", "json").out)["sections"]
    return found


@pytest.mark.parametrize("path", PAGES)
def test_the_log_has_the_title(crawled: tuple[Path, Web], path: str) -> None:
    directory, _ = crawled
    assert _logged(directory)[path] == PAGES[path][2]


@pytest.mark.parametrize("processes", [1, 2])
def test_rows_have_the_titles_of_the_log(crawled: tuple[Path, Web], processes: int) -> None:
    directory, _ = crawled
    logged = _logged(directory)
    rows = _rows(directory, processes)
    assert {path: rows[path] for path in PAGES} == {path: logged[path] for path in PAGES}


def test_wacz_has_the_titles_of_the_log(crawled: tuple[Path, Web], tmp_path: Path) -> None:
    directory, _ = crawled
    logged, found = _logged(directory), _in_wacz(directory, tmp_path)
    assert found and found == {path: logged[path] for path in found}


def test_the_api_has_the_titles_of_the_log(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    logged = _logged(directory)
    found = {_path(page.url): page for page in crawler.Crawl(directory=directory).stored()}
    assert {path: found[path].title for path in logged if path in found} == {
        path: logged[path] for path in logged if path in found
    }
    assert found["/1MB"].links == ("/known",)


def test_the_report_and_the_log_agree_on_missing_titles(crawled: tuple[Path, Web]) -> None:
    """Regression: pages over 64 kB had no title in the report.

    The parser's guard sends such pages to a child process.
    """
    directory, _ = crawled
    missing = {_path(each["subject"]) for each in _report(directory)["missing_titles"]["listed"]}
    assert missing == {path for path, title in _logged(directory).items() if not title and path in PAGES}


def test_every_page_has_text(crawled: tuple[Path, Web]) -> None:
    directory, _ = crawled
    texts = {
        _path(row["url"]): row["text"]
        for row in map(json.loads, run("export", "--dir", directory, "--format", "text").out.splitlines())
    }
    assert set(texts) >= set(PAGES) and "cell" in texts["/1MB"]


def test_links_are_those_that_the_crawl_followed(crawled: tuple[Path, Web]) -> None:
    """Links in header fields are included. Links that header fields forbid to follow are left out."""
    directory, web = crawled
    found: dict[str, set[str]] = {}
    for line in run("export", "--dir", directory, "--format", "links").text.splitlines():
        source, target = line.split("\t")
        found.setdefault(_path(source), set()).add(_path(target))
    asked = set(web.paths())
    assert set().union(*found.values()) | {"/"} == asked
    assert found["/related"] == {"/from-header", "/from-body"} and found["/refreshed"] == {"/from-refresh"}
    assert not {"/nofollow", "/tagged"} & set(found)
    assert found["/deep"] == found["/attributes"] == found["/1MB"] == {"/known"}
