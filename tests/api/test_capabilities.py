"""Test errbacks, cookie jars, a proxy for one request, item processors and XPath."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import crawler
from crawler.fetcher.cookies import CookieJars
from tests.end_to_end.web import SETTINGS, Answer, ReceivedRequest, Web, page
from tests.fetcher.dns_server import NXDOMAIN, SERVFAIL, NameServer
from tests.fetcher.scripted import closed_port, silent_port

QUICK = SETTINGS | {"frontier": {"retry_delays": [0.01], "retry_jitter": 0}}


def crawl(url: Any, directory: Path, parse: Any, **arguments: Any) -> dict[str, Any]:
    arguments = {"follow": False, "config": QUICK} | arguments
    report = crawler.run(url, parse, directory=directory / "crawl", **arguments)
    assert report["conservation"] == "holds", report["conservation"]
    return report


class Careful:
    """A spider that requests pages that fail in different ways."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths
        self.fine: list[str] = []
        self.failed: list[tuple[str, int, str, Any, str]] = []
        self.break_down = False

    def parse(self, found: crawler.Page) -> Iterator[crawler.Request]:
        for path in self.paths:
            yield crawler.Request(path, self.good, {"path": path}, errback=self.bad)

    def good(self, found: crawler.Page) -> None:
        self.fine.append(found.text)

    def bad(self, found: crawler.Page) -> Iterator[dict[str, Any]]:
        if self.break_down:
            raise ZeroDivisionError
        self.failed.append((found.meta["path"], found.status, found.outcome, found.text, found.url))
        yield {"failed": found.meta["path"]}


def test_requests_without_a_2xx_answer_go_to_their_errback(tmp_path: Path) -> None:
    """The errback is called for error statuses, bad redirects and pages that robots.txt denies.

    The items that the errback yields are written.
    """
    routes: dict[str, Any] = {
        "/robots.txt": "User-agent: *\nDisallow: /private",
        "/": page(),
        "/fine": "fine",
        "/gone": (404, {}, "no such tea"),
        "/moved": (302, {"Location": "/lost"}, ""),
        "/lost": (410, {}, "lost"),
        "/broken": (500, {}, "broken"),
        "/nowhere": (302, {}, "where?"),
    }
    with Web(routes) as web:
        careful = Careful("/fine", "/gone", "/moved", "/broken", "/private", "/nowhere")
        crawl(web.url(), tmp_path, careful.parse, items=tmp_path / "items.jsonl")
        assert careful.fine == ["fine"]
        assert sorted(each[:4] for each in careful.failed) == sorted(
            [
                ("/gone", 404, "gone", "no such tea"),
                ("/moved", 410, "gone", "lost"),
                ("/broken", 500, "temporary", "broken"),
                ("/private", 0, "robots_denied", ""),
                ("/nowhere", 302, "bad_redirect", "where?"),
            ]
        )
    rows = [msgspec.json.decode(line) for line in (tmp_path / "items.jsonl").read_bytes().splitlines()]
    assert len(rows) == 5


def test_an_errback_that_fails_is_called_again_in_the_next_run(tmp_path: Path) -> None:
    """The next call receives the stored facts about the failure: URL, status and outcome, but not the body."""
    careful = Careful("/gone")
    careful.break_down = True
    with Web({"/": page(), "/gone": (404, {}, "no such tea")}) as web:
        report = crawl(web.url(), tmp_path, careful.parse, items=tmp_path / "items.jsonl")
        assert report["hooks"]["errors"] == {"errback": 1} and not careful.failed
        careful.break_down = False
        for _ in range(2):
            crawl(web.url(), tmp_path, careful.parse, items=tmp_path / "items.jsonl")
        assert careful.failed == [("/gone", 404, "gone", "", web.url("/gone"))]


def test_requests_that_reach_no_server_go_to_their_errback(tmp_path: Path) -> None:
    """A refused connection, a missing name, a failed look-up and a silent server: each errback is called once in a run.

    The next run tries the requests again. A request that an errback yields is sent in the same run.
    """

    class Patient(Careful):
        def bad(self, found: crawler.Page) -> Iterator[Any]:
            yield from super().bad(found)
            yield crawler.Request(f"{home}instead/{found.outcome}", self.good)

    async def run_twice() -> None:
        async with NameServer({"gone.test": NXDOMAIN, "failing.test": SERVFAIL}) as names:
            config = QUICK | {
                "crawl": {"patience": 0, "concurrency": 8, "scope": "any"},
                "fetch": {"header_timeout": 0.2},
                "network": SETTINGS["network"] | {"dns_servers": [names.address]},
            }
            for _ in range(2):
                patient.failed.clear()
                report = await crawler.run_async(
                    home,
                    patient.parse,
                    directory=tmp_path / "crawl",
                    follow=False,
                    config=config,
                    items=items,
                )
                assert report["conservation"] == "holds" and report["hooks"]["errors"] == {}
                assert sorted(each[1:3] for each in patient.failed) == [
                    (0, outcome) for outcome in sorted(hosts)
                ]
                assert all(path == url and not text for path, _, _, text, url in patient.failed)

    items = tmp_path / "items.jsonl"
    with closed_port() as refusing, silent_port() as silent, Web({}, other="tea") as web:
        home = web.url("/", "127.0.0.1")
        hosts = {
            "connect_error": f"http://127.0.0.2:{refusing}/",
            "dns_not_found": "http://gone.test/",
            "dns_error": "http://failing.test/",
            "header_timeout": f"http://127.0.0.3:{silent}/",
        }
        patient = Patient(*hosts.values())
        asyncio.run(run_twice())
    assert sorted(web.paths()) == ["/", *(f"/instead/{outcome}" for outcome in sorted(hosts))]
    assert len(items.read_bytes().splitlines()) == 2 * len(hosts)


def test_requests_that_the_url_filter_rejects_go_to_their_errback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each rule that rejects a request is logged once, and the report counts the requests.

    A rejected request that an errback yields is not followed by another errback, so a careless errback
    cannot loop.
    """

    class Stray(Careful):
        def bad(self, found: crawler.Page) -> Iterator[Any]:
            yield from super().bad(found)
            yield crawler.Request("http://other.test/again", self.good, errback=self.bad)
            yield crawler.Request(f"{home}instead", self.good)

    with Web({"/": page()}, other="tea") as web:
        home = web.url()
        paths = ("http://other.test/1", "http://other.test/2", "mailto:me@other.test", "/inside")
        stray = Stray(*paths)
        report = crawl(home, tmp_path, stray.parse, items=tmp_path / "items.jsonl")
        crawl(home, tmp_path, stray.parse, items=tmp_path / "items.jsonl")
    assert [each[:3] for each in stray.failed] == [(path, 0, "filtered") for path in paths[:3]]
    assert all(path == url for path, *_, url in stray.failed)
    assert sorted(web.paths()) == ["/", "/inside", "/instead"]
    assert report["urls"]["filtered"] == {"scope": 2 + 3, "scheme": 1}
    told = [message for message in caplog.messages if "was dropped" in message]
    assert len(told) == 2 and "http://other.test/1: it is outside the scope" in told[0]
    assert "crawl.scope" in told[0] and "mailto:me@other.test: its scheme" in told[1]


def test_a_rejected_request_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        yield crawler.Request("http://other.test/", meta={"secret": "Sesame"}, priority=1)

    with Web({"/": page()}) as web:
        crawl(web.url(), tmp_path, parse)
    files = [path for path in (tmp_path / "crawl").rglob("*") if path.is_file()]
    assert files and all(b"Sesame" not in path.read_bytes() for path in files)


def test_each_cookie_jar_is_a_separate_visitor(tmp_path: Path) -> None:
    """After two logins at one site, the same URL is fetched once for each login."""

    def sign_in(asked: ReceivedRequest) -> Answer:
        name = asked.body.decode().partition("=")[2]
        return 302, {"Location": "/", "Set-Cookie": f"user={name}; Path=/"}, ""

    def account(asked: ReceivedRequest) -> Answer:
        return page(text=f"of {asked.headers.get('Cookie')}")

    seen: list[tuple[str, str]] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        for name in ("alice", "bob"):
            yield crawler.Request("/in", inside, {"name": name}, body={"user": name}, jar=name)

    def inside(found: crawler.Page) -> Iterator[crawler.Request]:
        name = found.meta["name"]
        yield crawler.Request("/account", take, {"name": name}, jar=name)

    def take(found: crawler.Page) -> None:
        seen.append((found.meta["name"], found.css("title").text))

    with Web({"/": page(), "/in": sign_in, "/account": account}) as web:
        crawl(web.url(), tmp_path, parse)
    assert sorted(seen) == [("alice", "of user=alice"), ("bob", "of user=bob")]


def test_the_least_recently_used_jar_is_dropped() -> None:
    jars = CookieJars(2, 10)
    first = jars.of("a")
    jars.of("b")
    assert jars.of("a") is first
    jars.of("c")
    assert jars.of("a") is first and len(jars._jars) == 2


def test_a_request_goes_through_its_own_proxy(tmp_path: Path) -> None:
    """All other requests are sent without a proxy.

    The password of the proxy is in no file except those of the store.
    """
    seen: list[str] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        yield crawler.Request("/a", take, proxy=proxy)
        yield crawler.Request("/b", take)

    def take(found: crawler.Page) -> None:
        seen.append(found.text)

    with Web({"/a": "far"}) as far, Web({"/": page(), "/b": "direct"}) as web:
        proxy = f"http://me:Sesame@localhost:{far.port}"
        crawl(web.url(), tmp_path, parse)
        assert sorted(seen) == ["direct", "far"]
        assert "/a" not in web.paths() and far.paths() == ["/a"]
        assert far.asked[0].headers["Proxy-Authorization"].startswith("Basic ")
    kept = [path for path in (tmp_path / "crawl").rglob("*") if path.is_file() and "store" not in path.parts]
    assert all(b"Sesame" not in path.read_bytes() for path in kept)
    with pytest.raises(ValueError, match="proxy: 'nowhere' is not a URL such as http://proxy:3128"):
        crawler.Request("/", proxy="nowhere")


def test_the_proxy_of_a_request_that_does_not_answer_delays_only_this_request(tmp_path: Path) -> None:
    """After the last try, the errback is called. The host's other requests do not wait."""

    class Behind(Careful):
        def parse(self, found: crawler.Page) -> Iterator[crawler.Request]:
            yield crawler.Request(
                "/far", self.good, {"path": "/far"}, errback=self.bad, proxy=proxy, priority=1
            )
            yield crawler.Request("/near", self.good)

    behind = Behind()
    with closed_port() as refusing, Web({"/": page(), "/near": "near"}) as web:
        proxy = f"http://127.0.0.1:{refusing}"
        patient = QUICK | {"crawl": {"patience": 1}}
        report = crawl(web.url(), tmp_path, behind.parse, items=tmp_path / "items.jsonl", config=patient)
    assert behind.fine == ["near"] and report["stopped_by"] == "done"
    assert [each[:3] for each in behind.failed] == [("/far", 0, "proxy_error")]
    assert report["hosts"][0]["failures"] == 0


@pytest.mark.parametrize("proxies_max", [1, 100])
def test_more_proxies_than_the_limit(tmp_path: Path, proxies_max: int) -> None:
    seen: list[str] = []

    def parse(found: crawler.Page) -> Iterator[crawler.Request]:
        for n, each in enumerate((one, two, one, two)):
            yield crawler.Request(f"/{n}", take, proxy=f"http://localhost:{each.port}")

    def take(found: crawler.Page) -> None:
        seen.append(found.text)

    settings = QUICK | {"fetch": {"request_proxies_max": proxies_max}}
    with Web({"/": page()}) as web, Web({}, other="one") as one, Web({}, other="two") as two:
        crawl(web.url(), tmp_path, parse, config=settings)
    assert sorted(seen) == ["one", "one", "two", "two"]


def test_items_pass_through_the_processors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Processors run in order and may be asynchronous.

    A processor that returns None drops the item. An error in a processor counts as an error of the callback.
    """

    async def clean(item: Any, found: crawler.Page) -> Any:
        return item | {"price": float(item["price"]), "from": found.status}

    def check(item: Any, found: crawler.Page) -> Any:
        return item if item["price"] > 1 else None

    def parse(found: crawler.Page) -> Iterator[dict[str, Any]]:
        yield from ({"price": text} for text in found.css("b").texts)

    items = tmp_path / "items.jsonl"
    with Web({"/": "<b>1</b><b>2.50</b><b>3</b>"}) as web:
        report = crawl(web.url(), tmp_path, parse, items=items, processors=[clean, check])
    rows = [msgspec.json.decode(line) for line in items.read_bytes().splitlines()]
    assert [(row["price"], row["from"]) for row in rows] == [(2.5, 200), (3.0, 200)]
    assert report["hooks"]["items"] == 2
    with Web({"/": "<b>?</b>"}) as web, caplog.at_level(logging.ERROR):
        report = crawl(web.url(), tmp_path / "b", parse, items=items, processors=[clean])
    assert report["hooks"]["errors"] == {"callback": 1} and ", in clean" in caplog.text


def test_xpath_agrees_with_parsel() -> None:
    pytest.importorskip("parsel")
    found = crawler.Page.of("http://x/", "<ul><li>Green<li>Black</ul>")
    assert found.xpath("//li/text()").getall() == ["Green", "Black"]
    assert found.xpath("//li[text()=$tea]", tea="Black").xpath("string()").get() == "Black"
    feed = crawler.Page.of("http://x/", "<rss><link>http://x/1</link></rss>", "application/rss+xml")
    assert feed.xpath("//link/text()").get() == "http://x/1"
    with pytest.raises(ValueError, match="XPath"):
        found.xpath("//li[")
