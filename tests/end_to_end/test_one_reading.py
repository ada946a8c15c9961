"""Test that an answer has one meaning: when it is fetched, when it is used again, and when it is read from the store.

A real server sends answers whose heads are unusual. The crawl fetches them, a second crawl uses the stored
answers again, and the Python API reads the stored copies.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import crawler
from tests.end_to_end.web import SETTINGS, Route, Web, crawl, lines, page, run

TEXT = page(text="The same text")
PACKED = gzip.compress(TEXT.encode())
ROUTES: dict[str, Route] = {
    "/plain": TEXT,
    "/gone": (410, {}, TEXT),
    "/missing": (404, {}, TEXT),
    "/refused": (403, {}, TEXT),
    "/license": (401, {"WWW-Authenticate": "License"}, TEXT),
    "/login": (401, {"WWW-Authenticate": "Basic"}, TEXT),
    "/choices": (300, {"Location": "/plain"}, TEXT),
    "/nowhere": (302, {}, TEXT),
    "/twice": (302, {"Location": "/plain", "location": "/gone"}, TEXT),
    "/moved": (302, {"Location": "/plain"}, TEXT),
    "/located": (200, {"Location": "/gone"}, TEXT),
    "/empty": (200, {}, ""),
    "/gzip": (200, {"Content-Encoding": "gzip"}, PACKED),
    "/gzip thrice": (200, {"Content-Encoding": "gzip, gzip, gzip"}, gzip.compress(gzip.compress(PACKED))),
    "/unknown coding": (200, {"Content-Encoding": "zstd"}, TEXT),
    "/transfer gzip": (200, {"Transfer-Encoding": "gzip", "Connection": "close"}, PACKED),
    "/transfer both": (
        200,
        {"Transfer-Encoding": "gzip", "Content-Encoding": "gzip", "Connection": "close"},
        gzip.compress(PACKED),
    ),
    "/transfer unknown": (200, {"Transfer-Encoding": "utf-8", "Connection": "close"}, TEXT),
    "/types": (200, {"content-type": "text/plain", "Content-type": "nonsense"}, TEXT),
}
NAMES = sorted(ROUTES)


# "fetched", "used" (from the cache) or "stored" -> path -> the facts about its answer
Read = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    folder = tmp_path_factory.mktemp("one reading")
    live, cached = folder / "live", folder / "cached"
    routes = {path.replace(" ", "-"): answer for path, answer in ROUTES.items()}
    with Web(routes) as web:
        seeds = [web.url(path) for path in routes]
        config = SETTINGS | {"crawl": SETTINGS["crawl"] | {"requisites": False}}
        crawler.run(seeds, directory=live, config=config)
        again = config | {"crawl": config["crawl"] | {"answers_from": [str(live)]}}
        crawler.run(seeds, directory=cached, config=again)
        fetched, used = _fates(live, web), _fates(cached, web)
        stored = {
            found.url.removeprefix(web.url("")): found for found in crawler.Crawl(directory=live).stored()
        }
    yield {"fetched": fetched, "used": used, "stored": stored}


def _fates(directory: Path, web: Web) -> dict[str, Any]:
    wanted = ("outcome", "status", "mime", "title", "location", "truncated", "decision")
    return {
        line["url"].removeprefix(web.url("")): [line.get(name, "") for name in wanted]
        for line in lines(directory)
    }


@pytest.mark.parametrize("path", NAMES)
def test_an_answer_from_the_cache_has_the_fate_of_the_fetched_one(read: Read, path: str) -> None:
    path = path.replace(" ", "-")
    assert read["used"][path] == read["fetched"][path]


@pytest.mark.parametrize("path", NAMES)
def test_a_stored_answer_has_the_outcome_and_title_of_the_fetched_one(read: Read, path: str) -> None:
    path = path.replace(" ", "-")
    if path not in read["stored"]:
        pytest.skip("the answer is not stored")
    found, fate = read["stored"][path], read["fetched"][path]
    assert [found.outcome, found.status, found.content_type, found.title] == fate[:4]


@pytest.mark.parametrize("path", ["/transfer-gzip", "/transfer-both", "/transfer-unknown"])
def test_a_transfer_coding_is_no_part_of_the_page(read: Read, path: str) -> None:
    assert read["stored"][path].content == TEXT.encode()
    assert read["fetched"][path][3] == "The same text"


def test_every_reader_knows_the_same_pages(tmp_path: Path) -> None:
    """A page without a usable media type is a page for the crawl, the report, exports and the archive.

    Each page has a link to a URL of its own, so the requests show what the crawl has read as a page.
    """
    kinds = [
        "text/html",
        "application/xhtml+xml",
        "",
        "unknown/unknown",
        "*/*",
        "text",
        "text/csv",
        "image/svg+xml",
    ]
    starts = {"html": "<!doctype html>", "other": "<meta name=x>"}
    named = {f"{number}-{start}": kind for number, kind in enumerate(kinds) for start in starts}
    routes: dict[str, Route] = {
        f"/{name}": (
            200,
            {"Content-Type": kind},
            f"{starts[name.partition('-')[2]]}<title>{name}</title><a href=/of/{name}>{name}</a>",
        )
        for name, kind in named.items()
    }
    directory = tmp_path / "crawl"
    with Web(routes) as web:
        crawl(directory, *(web.url(path) for path in routes))
        followed = {path.removeprefix("/of/") for path in web.paths() if path.startswith("/of/")}
        start = web.url("/")
    assert {"0-html", "0-other", "1-html", "2-html", "3-html", "4-html", "5-html"} == followed - {"1-other"}
    assert {line["url"].removeprefix(start) for line in lines(directory) if line.get("title")} == followed
    report = json.loads(run("report", "--format", "json", "--dir", directory).out)
    assert report["pages"] == len(followed)
    assert (
        run(
            "export",
            "--dir",
            directory,
            "--format",
            "jsonl",
            "--fields",
            "url,title",
            "-o",
            tmp_path / "rows",
        ).code
        == 0
    )
    rows = [json.loads(row) for row in (tmp_path / "rows").read_text().splitlines()]
    assert {row["url"].removeprefix(start) for row in rows if row["title"]} == followed
    assert run("export", "--dir", directory, "--format", "wacz", "-o", tmp_path / "all.wacz").code == 0
    with ZipFile(tmp_path / "all.wacz") as package:
        pages = [json.loads(line) for line in package.read("pages/pages.jsonl").splitlines()[1:]]
    assert {page["url"].removeprefix(start) for page in pages} == followed
