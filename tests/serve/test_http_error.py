"""Test that error responses are JSON for programs, and an HTML page for people."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from crawler.serve.http_error import HttpError, wants_page
from crawler.serve.http_server import error_reply
from crawler.serve.interfaces import Ahead, AheadState
from tests.serve.support import Served

FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CHROMIUM = f"{FIREFOX},image/avif,image/webp,application/signed-exchange;v=b3;q=0.7"


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (FIREFOX, True),
        (CHROMIUM, True),
        ("TEXT/HTML", True),
        ("text/html;q=0.5, application/json;q=0.5", True),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
        ("application/json, text/plain, */*", False),
    ],
)
def test_clients_that_prefer_html_get_a_page(accept: str, page: bool) -> None:
    assert wants_page(accept) is page


class Text(HTMLParser):
    """The text and the tags of an HTML page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_of_a_page_or_a_client_is_escaped() -> None:
    error = HttpError(404, "failed", "<img src=x>", url="http://a.example/?<script>&{x}")
    page = Text(error.page("Not Found"))
    assert "img" not in page.tags and "script" not in page.tags
    assert "<img src=x>" in page.text and "http://a.example/?<script>&{x}" in page.text


@pytest.mark.parametrize(("status", "reason"), [(401, "Unauthorized"), (415, "Unsupported Media Type")])
def test_the_status_line_has_the_reason_phrase_of_the_standard(status: int, reason: str) -> None:
    reply = error_reply(HttpError(status, "refused", "why"))
    assert reply.head.startswith(f"HTTP/1.1 {status} {reason}\r\n".encode())


async def test_a_browser_gets_a_page_and_a_program_json(tmp_path: Path) -> None:
    async with Served(tmp_path) as served:
        served.store()
        target = "/page?url=http://site.example/none"
        program = await served.get(target)
        assert (program.status, program.fields["content-type"]) == (404, "application/json")
        assert program.json["state"] == "unknown"
        person = await served.get(target, f"Accept: {CHROMIUM}")
        assert (person.status, person.fields["content-type"]) == (404, "text/html; charset=utf-8")
        page = Text(person.body)
        assert "This page is not in the cache" in page.text and "No link to it." in page.text
        assert "http://site.example/none" in page.text
        for response in (program, person):
            assert response.fields["cache-control"] == "no-store"
            assert response.fields["content-security-policy"].startswith("sandbox;")
        for asked, status, words in (
            ("/page", 400, "Bad Request"),
            ("/nothing", 404, "Not Found"),
            ("/page?url=http://site.example/&max-stale=1", 504, "The stored copy is too old"),
            ("/page?url=http://site.example/new&refresh=1", 202, "This page will be fetched soon"),
        ):
            said = await served.get(asked, f"Accept: {FIREFOX}")
            assert said.status == status and words in Text(said.body).text, asked
        served.crawl.verdict = Ahead(AheadState.DISALLOWED, "`Disallow: /`")
        said = await served.get("/page?url=http://site.example/new&refresh=1", f"Accept: {FIREFOX}")
        assert said.status == 403 and "`Disallow: /`" in Text(said.body).text
