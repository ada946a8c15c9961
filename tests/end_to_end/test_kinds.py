"""Test that `--accept`, and URLs of protocols other than HTTP, work as users of wget expect."""

from pathlib import Path

import pytest

from tests.end_to_end.web import FAST, Route, Web, crawl, run

PNG, CSS = {"Content-Type": "image/png"}, {"Content-Type": "text/css"}
SITE: dict[str, Route] = {
    "/": '<link rel=stylesheet href=/s.css><a href=/p>p</a><img src=/a.png><img src=/b.jpg><script src=/c.js></script>',
    "/p": '<title>p</title><a href=/linked.png>c</a>',
    "/s.css": (200, CSS, "@import 't.css'; body { background: url(bg.png) }"),
    "/t.css": (200, CSS, "p { background: url(deep.png) }"),
}  # fmt: skip
PICTURES = {"/a.png", "/bg.png", "/deep.png", "/linked.png"}


def test_accept_finds_pictures_through_pages_and_style_sheets_and_stores_nothing_else(tmp_path: Path) -> None:
    with Web(SITE | {name: (200, PNG, name) for name in PICTURES}) as web:
        crawl(tmp_path, web.url(), "--accept", "png", "--mirror")
        assert set(web.paths()) == {"/", "/p", "/s.css", "/t.css", *PICTURES}
    mirrored = {f"/{path.name}" for path in (tmp_path / "mirror").rglob("*") if path.is_file()}
    assert mirrored == PICTURES


def test_a_crawl_without_an_accepted_file_says_so(tmp_path: Path) -> None:
    with Web({"/": "<title>x</title>"}) as web:
        ran = run("crawl", "-q", "--dir", tmp_path, *FAST, web.url(), "--accept", "png,image/*")
    assert ran.code == 0 and "no file matches --accept: png, image/*" in ran.err


@pytest.mark.parametrize("url", ["ftp://localhost/x", "file:///etc/passwd", "FTP://localhost/"])
def test_other_protocols_are_a_usage_error(tmp_path: Path, url: str) -> None:
    ran = run("crawl", "--dir", tmp_path / "new", url)
    assert ran.code == 2 and "fetches http and https URLs" in ran.err
    assert not (tmp_path / "new").exists()
