"""Test logins, rejected file name suffixes, and truncated pages, as users of wget expect them."""

import base64
import io
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from crawler.cli.url_arguments import without_login
from tests.end_to_end.web import FAST, Answer, ReceivedRequest, Web, crawl, page, run


def secret(asked: ReceivedRequest) -> Answer:
    wanted = "Basic " + base64.b64encode(b"me:p@ss").decode()
    if asked.headers.get("Authorization") != wanted:
        return 401, {"WWW-Authenticate": "Basic"}, ""
    return page("/more" if asked.path == "/" else "/")


@pytest.mark.parametrize("in_url", [True, False])
def test_a_login_is_sent_to_its_host_only_and_kept(tmp_path: Path, in_url: bool) -> None:
    """The login comes from the URL or from flags. The next run still has it, and no public file contains it."""
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


def test_the_login_is_removed_from_a_url() -> None:
    assert without_login("http://a:b@h.test/x@y") == ("http://h.test/x@y", "Authorization: Basic YTpi")
    assert without_login("http://h.test/x@y") == ("http://h.test/x@y", "")


def test_a_password_needs_a_user(tmp_path: Path) -> None:
    ran = run("crawl", "http://h.test/", "--dir", tmp_path, "--http-password", "x")
    assert ran.code == 2 and "needs --http-user" in ran.err


def test_rejected_file_name_suffixes(tmp_path: Path) -> None:
    with Web({"/": page("/a.zip", "/b.PDF", "/c.iso", "/d.html"), "/d.html": "d"}) as web:
        report = crawl(tmp_path, web.url(), "--reject", "zip,.pdf", "--reject", "*.iso")
        assert sorted(web.paths()) == ["/", "/d.html"] and report["urls"]["filtered"]["extension"] == 3


class Members:
    """A site with a login form that has a hidden token. Only logged-in clients see `/` and `/more`."""

    def __init__(self) -> None:
        self.routes = {"/login": self.login, "/": self.private, "/more": self.private}

    def login(self, asked: ReceivedRequest) -> Answer:
        fields = parse_qs(asked.body.decode())
        if asked.method == "POST" and (fields["user"], fields["pass"]) == (["me"], ["Sesame&1"]):
            known = fields["token"] == ["t1"] and asked.headers.get("Cookie") == "visit=1"
            return 303, {"Location": "/", "Set-Cookie": "sid=Key1; Path=/; HttpOnly"} if known else {}, ""
        form = "<form><input name=q></form><form method=post action=/login><input type=hidden name=token value=t1>"
        form += "<input name=user><input type=password name=pass><button name=go value=1>in</button></form>"
        return 200, {"Set-Cookie": "visit=1"}, form

    def private(self, asked: ReceivedRequest) -> Answer:
        if "sid=Key1" not in asked.headers.get("Cookie", ""):
            return 302, {"Location": "/login"}, ""
        return page("/more" if asked.path == "/" else "/", text="members only")


def test_a_login_through_a_form(tmp_path: Path) -> None:
    """The hidden fields and the cookies of the form are sent, too. Only the user can read the stored cookies."""
    site = Members()
    with Web(site.routes) as web:
        directory = tmp_path / "c"
        fields = ("-d", "user=me", "-d", "pass=Sesame&1")
        report = crawl(directory, web.url(), "--login", web.url("/login"), *fields, "--max-pages", "1")
        assert report["pages"] == {"fetched": 1}
        assert crawl(directory)["pages"]["fetched"] == 2  # the cookies are kept
        assert directory.joinpath("cookies.txt").stat().st_mode & 0o777 == 0o600
        for path in directory.rglob("*"):
            if path.is_file() and path.name != "cookies.txt":
                assert not any(word in path.read_bytes() for word in (b"Sesame", b"Key1")), path


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--login", "/login", "-d", "user=me", "-d", "pass=wrong"), "asks for the password again"),
        (("--login", "/none", "-d", "user=me"), "status 404"),
        (("--login", "/login", "-d", "pass"), "no terminal to prompt"),
        (("-d", "user=me"), "needs --login"),
        (("--login", "/free", "-d", "user=me"), "set no cookie"),
    ],
)
def test_a_failed_login_is_an_error(
    tmp_path: Path, flags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with Web(Members().routes | {"/free": "welcome"}) as web:
        given = [web.url(flag) if flag.startswith("/") else flag for flag in flags]
        ran = run("crawl", web.url(), "--dir", tmp_path, *FAST, *given)
        assert ran.code == 2 and said in ran.err and "wrong" not in ran.err.replace("is wrong", "")
        assert "/more" not in web.paths()


@pytest.mark.parametrize("flag", ["--fresh", "--cached"])
def test_a_failed_login_leaves_the_existing_crawl_in_its_place(tmp_path: Path, flag: str) -> None:
    with Web(Members().routes) as web:
        crawl(tmp_path / "c", web.url("/free"), "--max-pages", "1")
        words = ("--login", web.url("/login"), "-d", "user=me", "-d", "pass=wrong")
        ran = run("crawl", web.url(), "--dir", tmp_path / "c", *FAST, flag, *words)
        assert ran.code == 2 and "asks for the password again" in ran.err
    assert [each.name for each in tmp_path.iterdir()] == ["c"] and (tmp_path / "c" / "seed").exists()
