"""Test logins through a form, in crawls whose Python code makes requests, and the cookies of such crawls."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.pages import reading
from tests.end_to_end.web import SETTINGS, Answer, ReceivedRequest, Web, page, run
from tests.pages.support import records as records_of

FORM = '<form method=post action=/login><input name=token value="{}"><input name=user></form>'


def form(asked: ReceivedRequest) -> Answer:
    """Serve the form, and check that the submitted token equals the cookie that was set with the form."""
    if asked.method == "GET":
        return 200, {"Set-Cookie": "token=7; Path=/"}, FORM.format(7)
    if b"token=7" in asked.body and "token=7" in asked.headers.get("Cookie", ""):
        return 303, {"Location": "/home", "Set-Cookie": "sid=1; Path=/"}, ""
    return 403, {}, "no token"


def home(asked: ReceivedRequest) -> Answer:
    welcome = "sid=1" in asked.headers.get("Cookie", "")
    return page("/orders", text="welcome" if welcome else "who?")


def orders(asked: ReceivedRequest) -> Answer:
    return page(text="three orders" if "sid=1" in asked.headers.get("Cookie", "") else "log in first")


class Customer:
    """A spider that logs in with the form and reads a page behind the login."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def parse(self, found: crawler.Page) -> Iterator[crawler.Request]:
        yield found.submit({"user": "me"}, self.home)

    def home(self, found: crawler.Page) -> Iterator[crawler.Request]:
        self.read.append(found.text)
        yield crawler.Request("/orders", self.orders)

    def orders(self, found: crawler.Page) -> None:
        self.read.append(found.text)


@pytest.mark.parametrize(
    ("fetch", "logged_in"), [({}, True), ({"cookies": True}, True), ({"cookies": False}, False)]
)
def test_a_submitted_form_logs_in(tmp_path: Path, fetch: Mapping[str, Any], logged_in: bool) -> None:
    """The login works unless the user turns cookies off. Once, the answer to the submitted form was lost silently."""
    customer = Customer()
    with Web(
        {"/": (302, {"Location": "/login"}, ""), "/login": form, "/home": home, "/orders": orders}
    ) as web:
        settings = SETTINGS | {"fetch": fetch}
        crawler.run(web.url("/login"), customer.parse, directory=tmp_path, follow=False, config=settings)
    assert any("three orders" in text for text in customer.read) == logged_in


def test_a_crawl_without_requests_keeps_no_cookies(tmp_path: Path) -> None:
    """With `cookies` set to `auto`, a crawl whose Python code makes no requests does not send cookies back."""
    routes = {"/": (200, {"Set-Cookie": "a=1; Path=/"}, page("/b")), "/b": page()}
    with Web(routes) as web:
        crawler.run(web.url(), directory=tmp_path, config=SETTINGS)
        assert [asked.headers.get("Cookie") for asked in web.asked] == [None] * 3


PASSWORD = "hunter2"


def sign_in(asked: ReceivedRequest) -> Answer:
    if asked.method == "POST":
        return 302, {"Location": "/home"}, "moved"
    return "<form method=post action=/in><input name=user><input type=password name=geheim></form>"


class Visitor:
    """A spider that signs in, then sends two other forms to one URL."""

    def parse(self, found: crawler.Page) -> Iterator[crawler.Request]:
        if found.url.endswith("/in"):
            yield found.submit({"user": "me", "geheim": PASSWORD}, self.parse)
            for word in ("tea", "pot"):
                yield crawler.Request("/search", self.parse, body={"q": word, "token": PASSWORD})


def test_requests_with_a_body_are_archived_without_passwords(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The POST request with its body, the 302 answer and the target of the redirect are archived.

    The index has a separate key for each form.
    """
    directory = tmp_path / "crawl"
    with Web({"/in": sign_in, "/home": page(text="home"), "/search": page(text="found")}) as web:
        settings = SETTINGS | {"pages": {"gzip_level": 0}}
        crawler.run(web.url("/in"), Visitor().parse, directory=directory, follow=False, config=settings)
        assert [asked.body for asked in web.asked if asked.path == "/in"] == [b"", b"user=me&geheim=hunter2"]
    records = [each for path in directory.rglob("*.warc.gz") for each in records_of(path)]
    posted = {
        record.fields["warc-concurrent-to"]: record.block.partition(b"\r\n\r\n")
        for record in records
        if record.kind == "request" and record.block.startswith(b"POST ")
    }
    answers = {
        record.fields["warc-record-id"]: (
            record.fields["warc-target-uri"],
            reading.parse_http(record.block).status,
        )
        for record in records
        if record.kind in ("response", "revisit")
    }
    found = sorted((*answers[identity], body) for identity, (_, _, body) in posted.items())
    assert found == [
        (web.url("/in"), 302, b"user=me&geheim=%5Bredacted%5D"),
        (web.url("/search"), 200, b"q=pot&token=%5Bredacted%5D"),
        (web.url("/search"), 200, b"q=tea&token=%5Bredacted%5D"),
    ]
    assert all(b"Content-Length: %d\r\n" % len(body) in head + b"\r\n" for head, _, body in posted.values())
    index = run("export", "--dir", directory, "--format", "cdxj").text
    for word in ("tea", "pot"):
        assert f"/search?__wb_method=post&q={word}&token=[redacted] " in index
    assert '"requestBody":"user=me&geheim=[redacted]"' in index and ")/home " in index
    shown = index + "".join(
        run(*command, "--dir", directory).text
        for command in (("why", web.url("/in")), ("get", web.url("/in"), "--headers"), ("status", "-v"))
    )
    assert run("get", web.url("/in"), "--dir", directory).text.startswith("<form"), (
        "not the answer to the POST"
    )
    assert run("check", "--dir", directory).code == 0
    said = capfd.readouterr()
    assert PASSWORD not in shown + said.out + said.err
    holding = [
        path.name for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert [name for name in holding if name.endswith((".warc.gz", ".jsonl", ".json", ".toml"))] == []


def test_a_repair_restores_posts_and_the_page_of_the_same_url(tmp_path: Path) -> None:
    directory = tmp_path / "crawl"
    with Web({"/in": sign_in, "/home": page(text="home"), "/search": page(text="found")}) as web:
        crawler.run(web.url("/in"), Visitor().parse, directory=directory, follow=False, config=SETTINGS)
        before = run("export", "--dir", directory, "--format", "cdxj").text
        for path in (directory / "p0" / "store").iterdir():
            if path.suffix in (".ldb", ".log", ".sst"):
                path.write_bytes(b"")
        assert run("check", "--repair", "--dir", directory).code == 0
        after = run("export", "--dir", directory, "--format", "cdxj").text
    assert [line.partition(" ")[0] for line in after.splitlines()] == [
        line.partition(" ")[0] for line in before.splitlines()
    ]
    assert run("get", web.url("/in"), "--dir", directory).text.startswith("<form")
