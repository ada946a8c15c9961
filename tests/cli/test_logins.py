"""Logins, endings that are rejected, and pages that are cut off, as wget's users give and meet them."""

import base64
from pathlib import Path

import pytest

from crawler.cli.seed_arguments import without_login
from tests.end_to_end.web import FAST, Answer, Asked, Web, crawl, page, run


def secret(asked: Asked) -> Answer:
    wanted = "Basic " + base64.b64encode(b"me:p@ss").decode()
    if asked.headers.get("Authorization") != wanted:
        return 401, {"WWW-Authenticate": "Basic"}, ""
    return page("/more" if asked.path == "/" else "/")


@pytest.mark.parametrize("in_url", [True, False])
def test_a_login_is_sent_to_its_host_only_and_kept(tmp_path: Path, in_url: bool) -> None:
    """In the URL, or by flags; the next run has it without being told; it stands in no public file."""
    with Web({"/": secret, "/more": secret}) as web:
        url = web.url().replace("://", "://me:p%40ss@") if in_url else web.url()
        flags = [] if in_url else ["--http-user", "me", "--http-password", "p@ss"]
        report = crawl(tmp_path, url, *flags, "--max-pages", "1")
        assert report["pages"] == {"fetched": 1}
        assert crawl(tmp_path)["pages"] == {"fetched": 2}
    kept = b"".join(
        path.read_bytes() for path in tmp_path.glob("*") if path.is_file() and path.name != "credentials"
    )
    assert b"p@ss" not in kept and b"p%40ss" not in kept
    assert base64.b64encode(b"me:p@ss") not in kept


def test_a_url_loses_its_login() -> None:
    assert without_login("http://a:b@h.test/x@y") == ("http://h.test/x@y", "Authorization: Basic YTpi")
    assert without_login("http://h.test/x@y") == ("http://h.test/x@y", "")


def test_a_password_needs_a_user(tmp_path: Path) -> None:
    ran = run("crawl", "http://h.test/", "--dir", tmp_path, "--http-password", "x")
    assert ran.code == 2 and "needs --http-user" in ran.err


def test_endings_that_are_rejected(tmp_path: Path) -> None:
    with Web({"/": page("/a.zip", "/b.PDF", "/c.iso", "/d.html"), "/d.html": "d"}) as web:
        report = crawl(tmp_path, web.url(), "--reject", "zip,.pdf", "--reject", "*.iso")
        assert sorted(web.paths()) == ["/", "/d.html"] and report["urls"]["filtered"]["extension"] == 3


def test_a_page_that_is_cut_off_is_said_with_the_key(tmp_path: Path) -> None:
    with Web({"/": "x" * 5000}) as web:
        ran = run("crawl", web.url(), "--dir", tmp_path, *FAST, "--set", "fetch.body_bytes_max=1000")
    assert "cut off: 1 longer than fetch.body_bytes_max" in ran.text
