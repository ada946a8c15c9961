"""Test mirrors on disk with a link checker, which must find no dead link to a stored page."""

from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.extract.css import css_urls
from crawler.extract.requisites import srcset
from tests.end_to_end.web import FAST, Web, crawl, redirect, run

_ATTRIBUTES = ("href", "src", "poster", "data", "action", "xlink:href")
CSS = {"Content-Type": "text/css"}


def _references(file: Path) -> list[str]:
    """Return all references in a file, resolved as a browser resolves them, without fragments."""
    base = file.as_uri()
    if file.suffix == ".css":
        found = list(css_urls(file.read_text()))
    elif file.suffix in (".html", ".svg"):
        tree = LexborHTMLParser(file.read_bytes())
        found = []
        for node in tree.css("*"):
            values = node.attributes
            if node.tag == "base" and values.get("href"):
                base = urljoin(base, values["href"] or "")
            found += [value for name in _ATTRIBUTES if (value := values.get(name)) and node.tag != "base"]
            found += [*srcset(values.get("srcset")), *css_urls(values.get("style"))]
            if node.tag == "style":
                found += css_urls(node.text())
            if (values.get("http-equiv") or "").lower() == "refresh":
                found.append((values.get("content") or "").partition("url=")[2])
    else:
        return []
    return [urldefrag(urljoin(base, each)).url for each in found]


def _dead(folder: Path) -> tuple[list[str], set[str]]:
    """Return the links that lead to no file of the mirror, and the links that are not file URLs."""
    dead, outside = [], set()
    for file in folder.rglob("*"):
        for url in _references(file) if file.is_file() else ():
            if url.startswith("file:"):
                target = Path(unquote(urlsplit(url).path))
                if not target.is_file() or folder not in target.parents:
                    dead.append(f"{file.relative_to(folder)}: {url}")
            else:
                outside.add(url)
    return dead, outside


SITE = {
    "/": '<title>Home</title><link rel=stylesheet href="/css/main.css?v=2" integrity="sha256-x">'
    '<a href="/docs/">root-relative</a> <a href="list?page=2&amp;sort=a">query</a> <a href="/old">redirect</a>'
    '<a href="/docs/a.html#part">part</a> <a href="#here">here</a> <a href="/missing">gone</a>'
    '<a href="mailto:a@b.example">mail</a><a href="/caf%C3%A9%20au?lait=1">utf-8</a><a href="/a%23b">mark</a>'
    '<img src="/i/a.png" srcset="/i/a.png 1x, /i/b.png?w=2 2x"><p style="background:url(/i/c.png)">'
    "<style>@import '/css/other.css'; p{background:url(\"i/d.png\")}</style>"
    '<meta http-equiv=refresh content="9; url=/later"><a href="/untyped.html">without a type</a>',
    "/untyped.html": (200, {"Content-Type": ""}, "<!doctype html><a href='/docs/'>HTML by its first bytes</a>"),
    "/untyped.txt": (200, {"Content-Type": ""}, "<x href=/docs/>"),
    "/docs/": '<base href="/docs/deep/"><a href="x.html">under the base</a><a href="/">home</a>'
    '<a href="#top">of the base</a><svg><use xlink:href="/i/s.svg#a"/></svg>',
    "/docs/deep/": "<a href='/untyped.txt'>no HTML by its first bytes</a>",
    "/docs/deep/x.html": "<a href='../../docs/'>up</a><a href=''>self</a>",
    "/docs/a.html": "<p id=part>a",
    "/list?page=2&sort=a": "<a href='?page=3&sort=a'>next</a>",
    "/list?page=3&sort=a": "end",
    "/old": redirect("/older", 301),
    "/older": redirect("/docs/a.html"),
    "/later": "later",
    "/caf%C3%A9%20au?lait=1": "coffee",
    "/a%23b": "a mark in a name",
    "/css/main.css?v=2": (200, CSS, "@import url('sub/more.css'); body{background:url(../i/e.png)}"),
    "/css/sub/more.css": (200, CSS, "p{background:url(/i/f.png)}"),
    "/css/other.css": (200, CSS, "/* none */"),
    "/i/s.svg": (200, {"Content-Type": "image/svg+xml"}, "<svg xmlns:xlink='x'><image xlink:href='a.png'/></svg>"),
    **{f"/i/{name}": (200, {"Content-Type": "image/png"}, name) for name in
       ("a.png", "b.png?w=2", "c.png", "d.png", "e.png", "f.png")},
}  # fmt: skip


@pytest.mark.parametrize("processes", [1, 2])
def test_no_link_to_a_stored_page_is_dead(tmp_path: Path, processes: int) -> None:
    with Web(SITE) as web:
        crawl(tmp_path / "crawl", web.url("/", "a.localhost"), "--requisites")
        asked = set(web.paths())
        missing = web.url("/missing", "a.localhost")
    assert asked == {*SITE, "/missing"}
    folder = tmp_path / "offline"
    arguments = ("export", "--dir", tmp_path / "crawl", "--format", "mirror", "-o", folder)
    assert run(*arguments, "--processes", processes).code == 0
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    stored = [path for path, answer in SITE.items() if not (isinstance(answer, tuple) and answer[0] >= 300)]
    assert len([path for path in folder.rglob("*") if path.is_file()]) == len(stored)
    assert {"main.css@v=2.css", "list@page=2&sort=a.html", "café au@lait=1.html", "a#b.html"} <= files
    dead, outside = _dead(folder)
    assert not dead
    assert outside == {missing, "mailto:a@b.example"}
    home = next(folder.glob("a.localhost*/index.html")).read_text()
    assert '<a href="docs/a.html">redirect</a>' in home
    assert '<a href="docs/a.html#part">' in home and '<a href="#here">' in home
    assert "integrity" not in home


def test_crawl_with_mirror_writes_and_renews_it(tmp_path: Path) -> None:
    """`crawl --mirror` fetches requisites and writes an offline copy. The next run renews this copy."""
    with Web(SITE) as web:
        for text in ("first", "second"):
            web.routes["/later"] = text
            ran = run("crawl", "--dir", tmp_path / text, *FAST, "--mirror", web.url("/", "a.localhost"))
            assert ran.code == 0, ran
        again = run("crawl", "--dir", tmp_path / "second", *FAST, "--mirror")
        assert again.code == 0, again
    entry = Path(again.text.partition("offline copy: ")[2].strip())
    assert entry.name == "index.html" and "Home" in entry.read_text()
    assert _dead(tmp_path / "second" / "mirror")[0] == []
    assert (entry.parent / "later.html").read_text() == "second"
