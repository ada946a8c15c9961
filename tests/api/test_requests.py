"""Test the options of a request (method, body, headers, priority, `dont_filter`) and its redirects."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

import crawler
from crawler.process.fetching.hop_requests import PLAIN, redirected_options
from crawler.records import RequestOptions
from tests.end_to_end.web import SETTINGS, Answer, ReceivedRequest, Web, page
from tests.end_to_end.web import run as command

ONE_AT_A_TIME = SETTINGS | {"crawl": SETTINGS["crawl"] | {"concurrency": 1}}


def crawl(url: Any, directory: Path, parse: Any, **arguments: Any) -> dict[str, Any]:
    arguments = {"follow": False, "config": SETTINGS} | arguments
    report = crawler.run(url, parse, directory=directory / "crawl", **arguments)
    assert report["conservation"] == "holds", report["conservation"]
    return report


def search(asked: ReceivedRequest) -> Answer:
    word = parse_qs(asked.body.decode())["q"][0] if asked.method == "POST" else "form"
    return f"<title>{asked.method} {word} {asked.headers.get('X-Shop')}</title>"


class Searching:
    """A spider that submits a form with three words, one of them twice, and requests the form itself."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any]] = []

    def parse(self, page: crawler.Page) -> Iterator[crawler.Request]:
        for word in ("tea", "cup", "tea", "pot"):
            yield crawler.Request(
                "/search", self.result, {"word": word}, body={"q": word}, headers={"X-Shop": "1"}
            )
        yield crawler.Request("/search", self.result)

    def result(self, page: crawler.Page) -> None:
        self.found.append((page.css("title").text, page.meta.get("word")))


def test_each_form_is_posted_once_and_the_page_of_its_url_is_fetched_too(tmp_path: Path) -> None:
    with Web({"/": page(), "/search": search}) as web:
        searching = Searching()
        crawl(web.url(), tmp_path, searching.parse)
        expected = [(f"POST {word} 1", word) for word in ("cup", "pot", "tea")]
        assert sorted(searching.found, key=str) == [("GET form None", None), *expected]
        sent = next(asked for asked in web.asked if asked.method == "POST")
        assert sent.headers["Content-Type"] == "application/x-www-form-urlencoded"
        before = len(web.asked)
        crawl(web.url(), tmp_path, searching.parse)  # known requests are not sent again
        assert len(web.asked) == before
    assert command("check", "--dir", tmp_path / "crawl").code == 0


def test_higher_priorities_come_first(tmp_path: Path) -> None:
    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        if found.url.endswith("/"):
            for n in (0, -5, 300, 7, 1, -400):
                yield crawler.Request(f"/{n}", priority=n)

    with Web({"/": page()} | {f"/{n}": page(text=str(n)) for n in (0, -5, 300, 7, 1, -400)}) as web:
        crawl(web.url(), tmp_path, parse, config=ONE_AT_A_TIME)
        assert web.paths() == ["/", "/300", "/7", "/1", "/0", "/-5", "/-400"]


def test_a_callback_may_request_a_page_again(tmp_path: Path) -> None:
    """A callback requests a page again and again until it is ready. Each request has its own `meta`."""
    times = iter(range(9))

    def parse(found: crawler.Page) -> Iterator[crawler.Request | dict[str, Any]]:
        tries = found.meta.get("tries", 0)
        if "ready" in found.text:
            yield {"tries": tries}
        else:
            yield crawler.Request(found.url, meta={"tries": tries + 1}, dont_filter=True)

    with Web({"/": lambda _: "ready" if next(times) == 3 else "wait"}) as web:
        crawl(web.url(), tmp_path, parse, items=tmp_path / "items.jsonl")
        assert web.paths() == ["/"] * 4
    assert msgspec.json.decode((tmp_path / "items.jsonl").read_bytes()) == {"tries": 3}


def login(asked: ReceivedRequest) -> Answer:
    if asked.method == "POST" and b"Sesame" in asked.body:
        return 303, {"Location": "/home", "Set-Cookie": "sid=1; Path=/"}, ""
    return page(text="who are you?")


def home(asked: ReceivedRequest) -> Answer:
    return page("/private", text="welcome" if asked.headers.get("Cookie") == "sid=1" else "who?")


def test_a_request_as_a_seed_gets_the_page_that_it_is_redirected_to(tmp_path: Path) -> None:
    """The login is a POST request, a 303 answer, and a GET request with the cookie, which such a crawl keeps.

    The archive and the logs contain neither the password nor the API key. Only the user can read the store.
    """
    seen: list[Any] = []

    def welcome(found: crawler.Page) -> None:
        seen.append((found.url, "welcome" in found.text, found.meta))

    with Web({"/login": login, "/home": home, "/private": "x"}) as web:
        seed = crawler.Request(
            web.url("/login"),
            welcome,
            {"n": 1},
            body={"user": "me", "password": "Sesame"},
            headers={"Authorization": "Bearer Sesame"},
        )
        crawl(seed, tmp_path, None)
        assert seen == [(web.url("/home"), True, {"n": 1})]
        methods = [(asked.method, asked.path, asked.body != b"") for asked in web.asked]
        assert methods[1:] == [("POST", "/login", True), ("GET", "/home", False)]
        assert web.asked[1].headers["Authorization"] == "Bearer Sesame"
    kept = [path for path in (tmp_path / "crawl").rglob("*") if path.is_file()]
    assert all(b"Sesame" not in path.read_bytes() for path in kept if "store" not in path.parts)
    assert (tmp_path / "crawl" / "p0" / "store").stat().st_mode & 0o077 == 0


def test_the_callback_gets_the_page_that_a_request_is_redirected_to(tmp_path: Path) -> None:
    """If a plain request is redirected, its callback receives the target page and the `meta` of the request."""
    seen: list[Any] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        yield crawler.Request("/old", moved, {"n": 1})

    def moved(found: crawler.Page) -> None:
        seen.append((found.url, found.meta))

    with Web({"/": page(), "/old": (301, {"Location": "/new"}, ""), "/new": page(text="new")}) as web:
        crawl(web.url(), tmp_path, parse)
        assert seen == [(web.url("/new"), {"n": 1})]


def test_a_request_that_fails_first_keeps_its_callback(tmp_path: Path) -> None:
    """The stored callback of a request was once dropped when the first try failed."""
    answers: Iterator[Answer] = iter([(500, {}, "busy")])
    seen: list[Any] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        yield crawler.Request("/late", late, {"n": 1}, body="x", method="PUT")

    def late(found: crawler.Page) -> None:
        seen.append((found.text, found.meta))

    settings = SETTINGS | {"frontier": {"retry_delays": [0.01], "retry_jitter": 0}}
    with Web({"/": page(), "/late": lambda asked: next(answers, asked.method)}) as web:
        crawl(web.url(), tmp_path, parse, config=settings)
    assert seen == [("PUT", {"n": 1})]


def test_the_first_request_for_a_page_determines_its_callback(tmp_path: Path) -> None:
    seen: list[Any] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        for n in range(3):
            yield crawler.Request("/same", same, {"n": n})

    def same(found: crawler.Page) -> None:
        seen.append(found.meta["n"])

    with Web({"/": page(), "/same": page(text="same")}) as web:
        crawl(web.url(), tmp_path, parse)
    assert seen == [0]


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
    ],
)
def test_how_redirects_are_followed(status: int, method: str, expected: str) -> None:
    """Method and body change as in the Fetch Standard (HTTP-redirect fetch). Credentials stay within their origin."""
    way = RequestOptions(method, b"x", ("Content-Type: text/plain", "X-Api-Key: 1", "X-Shop: 1"))
    here, there = (
        redirected_options(way, status, same_host=True),
        redirected_options(way, status, same_host=False),
    )
    assert here.method == there.method == expected
    assert here.body == (b"" if expected == "GET" else b"x")
    assert "X-Api-Key: 1" in here.headers and "X-Shop: 1" in there.headers
    assert "X-Api-Key: 1" not in there.headers
    assert ("Content-Type: text/plain" in here.headers) == (expected != "GET")
    assert redirected_options(PLAIN, status, same_host=False) is PLAIN


def test_invalid_arguments_raise_at_the_call() -> None:
    with pytest.raises(ValueError, match="method HEAD is not one of"):
        crawler.Request("/", method="HEAD")
    with pytest.raises(ValueError, match="a header is invalid"):
        crawler.Request("/", headers={"X": "a\r\nb"})
    assert (
        crawler.Request("/", body="x").method == "POST" and crawler.Request("/", method="put").method == "PUT"
    )
