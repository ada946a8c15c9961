"""Test that headers with credentials are sent only to the host they are for, and written to only one file."""

from pathlib import Path

import pytest

from tests.end_to_end.web import Answer, ReceivedRequest, Route, Web, crawl, page, redirect, run, uncompressed

SECRET = "Bearer s3cr3t-t0k3n"
ROBOTS = "User-agent: *\nDisallow: /never\n"


def _told(web: Web) -> set[tuple[str, str]]:
    """Return the hosts and paths of the requests that contained the secret."""
    return {(asked.host, asked.path) for asked in web.asked if asked.headers.get("Authorization") == SECRET}


@pytest.mark.parametrize("scope", ["host", "any"])
def test_credentials_stay_with_the_seeds(tmp_path: Path, scope: str) -> None:
    """The secret is sent neither to the targets of redirects and links, nor with the requests for their robots.txt.

    Other headers are sent to all hosts.
    """
    routes = {"/robots.txt": ROBOTS, "a.localhost/": page("/in", "/away"), "/in": page(text="in")}
    with Web(routes) as web:
        web.routes["a.localhost/away"] = redirect(web.url("/in", "evil.localhost"))
        web.routes["a.localhost/out"] = redirect(web.url("/in", "b.localhost"))
        seeds = (web.url("/", "a.localhost"), web.url("/out", "a.localhost"))
        headers = ("--header", f"Authorization: {SECRET}", "--header", "X-Study: 7")
        crawl(tmp_path, *seeds, "--scope", scope, *headers)
        assert {host for host, _ in _told(web)} == {"a.localhost"}
        assert ("a.localhost", "/in") in _told(web) and ("a.localhost", "/robots.txt") in _told(web)
        assert ("b.localhost", "/in") in {(asked.host, asked.path) for asked in web.asked}
        assert all(asked.headers.get("X-Study") == "7" for asked in web.asked)


def test_credentials_of_an_override_do_not_follow_a_redirect(tmp_path: Path) -> None:
    with Web({"/robots.txt": ROBOTS, "/in": page(text="in")}) as web:
        web.routes["a.localhost/robots.txt"] = redirect(web.url("/robots.txt", "evil.localhost"))
        web.routes["a.localhost/"] = page("/in")
        config = tmp_path / "own.toml"
        config.write_text(f'[[override]]\nmatch = "a.localhost"\nheaders = ["Authorization: {SECRET}"]\n')
        crawl(tmp_path / "crawl", web.url("/", "a.localhost"), "--config", config)
        assert _told(web) == {("a.localhost", path) for path in ("/robots.txt", "/", "/in")}
        assert ("evil.localhost", "/robots.txt") in {(asked.host, asked.path) for asked in web.asked}


def test_the_secret_is_in_one_file_that_only_the_user_may_read(tmp_path: Path) -> None:
    """The next run reads the secret from this file and continues the crawl."""
    with Web({"/": page("/in"), "/in": page(text="in")}) as web:
        header = ("--header", f"Authorization: {SECRET}", "--header", "X-Study: 7")
        crawl(tmp_path, web.url(), *header, "--max-pages", 1, "--set", "pages.gzip_level=0")
        holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"s3cr3t" in uncompressed(path)]
        assert holding == [tmp_path / "credentials"]
        assert holding[0].stat().st_mode & 0o777 == 0o600
        assert "X-Study: 7" in (tmp_path / "crawl.toml").read_text()
        web.asked.clear()
        crawl(tmp_path)
        assert ("localhost", "/in") in _told(web)
        assert all(asked.headers.get("X-Study") == "7" for asked in web.asked)


@pytest.mark.parametrize("by", ["--header", "--set", "--load-cookies"])
def test_session_cookies_are_in_no_record(tmp_path: Path, by: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A cookie may come from a flag, a jar or a file.

    Archive, logs, exports and `why` never show the value of a cookie.
    """

    def visited(asked: ReceivedRequest) -> Answer:
        return 200, {"Set-Cookie": "sid=s3cr3t; Path=/", "Content-Type": "text/html"}, page("/in")

    file = tmp_path / "cookies.txt"
    file.write_text("a.localhost\tFALSE\t/\tFALSE\t0\tsid\ts3cr3t\n")
    flag = {"--header": "Cookie: sid=s3cr3t", "--set": "fetch.cookies=true", "--load-cookies": str(file)}[by]
    answer: Route = page("/in") if by == "--header" else visited
    with Web({"a.localhost/": answer, "/in": page(text="in")}) as web:
        directory, url = tmp_path / "crawl", web.url("/in", "a.localhost")
        crawl(directory, web.url("/", "a.localhost"), by, flag, "--set", "pages.gzip_level=0", "-v")
        asked = {asked.path: asked.headers.get("Cookie", "") for asked in web.asked}
        assert "sid=s3cr3t" in asked["/in"]
    for form in ("warc", "wacz", "jsonl", "crawl-log", "cdxj"):
        assert (
            run("export", "--dir", directory, "--format", form, "--output", tmp_path / f"{form}.out").code
            == 0
        )
    for command in (
        ("why", url),
        ("get", url, "--headers"),
        ("status", "-v"),
        ("config", "show"),
        ("report",),
    ):
        assert "s3cr3t" not in run(*command, "--dir", directory).text, command
    said = capfd.readouterr()
    assert "s3cr3t" not in said.out + said.err
    holding = [each for each in tmp_path.rglob("*") if each.is_file() and b"s3cr3t" in uncompressed(each)]
    private = {
        "credentials",
        "cookies.txt",
    }  # the first two files are private; the third is the file that the user gave
    assert {each.name for each in holding} <= private
    records = b"".join(uncompressed(each) for each in directory.rglob("*.warc.gz"))
    assert b"ookie: [redacted]" in records
