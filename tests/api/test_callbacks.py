"""Test callbacks, requests and items in the style of Scrapy. The tests crawl a shop on loopback."""

import asyncio
import dataclasses
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import crawler
from crawler.api.item_files import check_items, open_items
from crawler.errors import ConfigError, NoSeedError, UsageError
from tests.api.shop import PRODUCTS, shop
from tests.end_to_end.web import SETTINGS, Web, page
from tests.end_to_end.web import run as command

PROGRAM = Path(__file__).with_name("products.py")
NAMES = sorted(f"Tea {n}" for n in range(PRODUCTS))


@pytest.fixture
def web() -> Iterator[Web]:
    with Web(shop()) as web:
        yield web


def crawl(web: Web, directory: Path, parse: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    report = crawler.run(web.url(), parse, directory=directory / "crawl", config=SETTINGS, **arguments)
    assert report["conservation"] == "holds", report["conservation"]
    return report


def rows(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_a_script_fetches_fifty_products(web: Web, tmp_path: Path) -> None:
    """The script runs as a user would run it, and fetches only the pages that its callback requests."""
    made = tmp_path / "products.jsonl"
    subprocess.run([sys.executable, PROGRAM, web.url(), made, tmp_path / "crawl"], check=True)
    found = rows(made)
    assert sorted(row["name"] for row in found) == NAMES
    assert found[0].keys() == {"url", "name", "price"}
    assert len(web.paths()) == PRODUCTS + 5 and "/about" not in web.paths()


@dataclasses.dataclass
class Tea:
    name: str


class Cup(msgspec.Struct):
    name: str


class Spider:
    """A spider whose callbacks are asynchronous methods that use `meta` and yield items of each kind."""

    def __init__(self) -> None:
        self.shelves: list[int] = []

    async def parse(self, page: crawler.Page) -> AsyncIterator[Any]:
        response_cache = int(page.url.partition("page=")[2] or 0)
        for link in page.css(".products a").attrs("href"):
            yield crawler.Request(link, callback=self.product, meta={"shelf": response_cache})
        for link in page.css("a.more").attrs("href"):
            await asyncio.sleep(0)
            yield crawler.Request(link)

    def product(self, page: crawler.Page) -> Any:
        self.shelves.append(page.meta["shelf"])
        name = page.css("h1").text
        return [{"name": name}, Tea(name), Cup(name)]


def test_callbacks_get_meta_and_yield_items_of_each_kind(web: Web, tmp_path: Path) -> None:
    spider = Spider()
    report = crawl(web, tmp_path, spider.parse, items=tmp_path / "items.jsonl", follow=False)
    assert sorted(spider.shelves) == sorted([0, 1, 2, 3, 4] * 10)
    assert sorted(row["name"] for row in rows(tmp_path / "items.jsonl")) == sorted(NAMES * 3)
    assert report["hooks"] == {"errors": {}, "items": 3 * PRODUCTS}


def test_a_page_whose_callback_fails_is_delivered_again(
    web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is counted, and logged with the URL. The next run delivers the page again without fetching it."""
    given: list[str] = []

    def failing(page: crawler.Page) -> Any:
        given.append(page.url)
        yield {"name": page.css("h1").text}
        if page.url.endswith("7"):
            raise ZeroDivisionError("price")

    def good(page: crawler.Page) -> Any:
        given.append(page.url)
        yield {"name": page.css("h1").text}

    items = tmp_path / "items.jsonl"
    report = crawl(web, tmp_path, failing, items=items)
    assert report["hooks"]["errors"] == {"callback": 5}
    assert f"error in your code: callback of {web.url('/product/7')}: ZeroDivisionError: price" in caplog.text
    assert ", in failing" in caplog.text and 'delivery.py", line' not in caplog.text
    fetched, before = len(web.paths()), len(rows(items))
    given.clear()
    crawl(web, tmp_path, good, items=items)
    assert sorted(given) == sorted(web.url(f"/product/{n}") for n in range(7, PRODUCTS, 10))
    assert len(web.paths()) == fetched and len(rows(items)) == before + 5
    given.clear()
    crawl(web, tmp_path, good, items=items)
    assert not given and "complete; known pages are not fetched again" in caplog.text
    assert command("check", "--dir", tmp_path / "crawl").code == 0


def test_a_script_without_logging_shows_errors_and_why_a_run_has_no_pages(web: Web, tmp_path: Path) -> None:
    """The dashboard's log handler once replaced Python's default handler, so no error was shown."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, crawler\n"
        "def parse(page):\n"
        "    if page.url != sys.argv[1]:\n"
        "        raise ValueError('of the user')\n"
        "    yield crawler.Request('/about', callback=parse)\n"
        f"settings = {SETTINGS!r}\n"
        "crawler.run(sys.argv[1], parse, directory=sys.argv[2], config=settings, follow=False)\n"
        "crawler.run(sys.argv[1], directory=sys.argv[2], config=settings, follow=False)\n",
        encoding="utf-8",
    )
    words = [sys.executable, str(program), web.url(), str(tmp_path / "c")]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"callback of {web.url('/about')}: ValueError: of the user" in ran.stderr, ran
    assert ran.stderr.count("complete; known pages are not fetched again") == 1, ran


def test_on_error_stop_ends_the_run(web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error of the callback is reported as the user's own, not as a bug of the crawler."""

    def failing(_: crawler.Page) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        crawl(web, tmp_path, failing, on_error="stop")
    assert raised.value.__notes__ == [f"raised by your code: callback of {web.url()}"]
    assert raised.traceback[-1].name == "failing" and "bug" not in caplog.text


def test_items_without_an_items_file_end_the_run(web: Web, tmp_path: Path) -> None:
    """Once, the missing items file was logged as an error for each page, and the run continued."""
    with pytest.raises(UsageError, match="no file is given; set items="):
        crawl(web, tmp_path, lambda _: {"a": 1})


INTERRUPTED = """
import sys, crawler
def parse(page):
    print("page", flush=True)
    yield crawler.Request(f"/slow?{page.url[-3:]}", dont_filter=True)
settings = %r
report = crawler.run(sys.argv[1], parse, directory=sys.argv[2], config=settings, follow=False)
print("after", report["stopped_by"], report["pages"]["fetched"] > 0, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_a_script_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """The report is returned and saved, without a traceback. Ctrl-C once raised KeyboardInterrupt from asyncio."""
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED % SETTINGS, encoding="utf-8")
    with Web({"/": page()}, other=page()) as web:
        words = [sys.executable, str(program), web.url(), str(tmp_path / "c")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "page\n"
            running.send_signal(number)
            out, err = running.communicate(timeout=60)
    assert running.returncode == 0 and out.endswith("after signal True\n"), (out, err)
    assert "Traceback" not in err and "stopped by a signal after" in err, err
    assert "run the script again to continue" in err
    assert msgspec.json.decode((tmp_path / "c" / "report.json").read_bytes())["stopped_by"] == "signal"


def test_errors_name_settings_in_python_and_flags_on_the_command_line(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        crawler.CrawlerError, match=r"network\.allow_networks=127\.0\.0\.0/8 allows it"
    ) as error:
        crawler.run(web.url(), directory=tmp_path / "a")
    assert "--" not in str(error.value)
    told = command("crawl", web.url(), "--dir", tmp_path / "b", "--progress", "none").err
    assert "--allow-network 127.0.0.0/8 allows it" in told
    with pytest.raises(UsageError, match=r"identity\.contact=URL-or-mail"):
        crawler.run("http://example.org/", directory=tmp_path / "d", config={"crawl": {"scope": "any"}})


def test_environment_variables_override_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables override the settings of a script, and errors name them."""
    monkeypatch.setenv("CRAWLER_CRAWL__MAX_PAGES", "7")
    assert crawler.configure({"crawl": {"max_pages": 5, "depth": 2}}).crawl.max_pages == 7
    assert crawler.configure().crawl.max_pages == 7
    monkeypatch.setenv("CRAWLER_CRAWL__MAX_PAGES", "many")
    with pytest.raises(ConfigError, match=r"CRAWLER_CRAWL__MAX_PAGES: crawl\.max_pages"):
        crawler.configure()


def test_requests_of_a_stopped_crawl_keep_their_callbacks(web: Web, tmp_path: Path) -> None:
    """A run ends while requests are queued.

    The next run has a new spider, and calls the right callback for each request.
    """
    settings = SETTINGS | {"crawl": SETTINGS["crawl"] | {"max_pages": 8, "concurrency": 2}}
    first, second = Spider(), Spider()
    items = tmp_path / "items.jsonl"
    crawler.run(
        web.url(), first.parse, directory=tmp_path / "crawl", config=settings, items=items, follow=False
    )
    assert len(first.shelves) < PRODUCTS
    crawl(web, tmp_path, second.parse, items=items, follow=False)
    assert sorted(first.shelves + second.shelves) == sorted([0, 1, 2, 3, 4] * 10)
    assert sorted({row["name"] for row in rows(items)}) == NAMES
    assert len(web.paths()) == len(set(web.paths())) == PRODUCTS + 5


@pytest.mark.parametrize("hook", ["url_filter", "link_extractor", "page_sink"])
def test_hooks_that_fail_are_counted(web: Web, tmp_path: Path, hook: str) -> None:
    def failing(_: Any) -> Any:
        raise ZeroDivisionError

    report = crawl(web, tmp_path, lambda _: None, **{hook: failing})
    assert report["hooks"]["errors"][hook.rpartition("_")[2]] >= 1


@pytest.mark.parametrize(
    ("follow", "expected"),
    [(True, PRODUCTS + 6), (False, 1), (["/shop"], 5), (["css:a.more", "css:.products"], PRODUCTS + 5)],
)
def test_follow_selects_links(web: Web, tmp_path: Path, follow: Any, expected: int) -> None:
    crawl(web, tmp_path, lambda _: None, follow=follow)
    assert len(web.paths()) == expected


def test_fresh_renames_the_earlier_crawl(web: Web, tmp_path: Path) -> None:
    for _ in range(2):
        crawl(web, tmp_path, lambda _: None, follow=False, fresh=True)
    assert web.paths() == ["/", "/"] and (tmp_path / "crawl.1" / "seed").exists()


@pytest.mark.parametrize("kind", ["fresh", "cached"])
@pytest.mark.parametrize(
    ("seeds", "settings", "items", "said"),
    [
        ((), {}, None, "nothing to crawl: give seeds"),
        ("http://localhost/", {"crawl": {"depth": "x"}}, None, "crawl.depth"),
        ("http://localhost/", {"fetch": {"cookies_file": "missing.txt"}}, None, "missing.txt"),
        ("http://localhost/", {}, "no folder/items.csv", "No such file"),
        ("http://localhost/", {}, "no folder/items.parquet", "No such file"),
        ("http://localhost/", {}, "crawl", "must end in one of"),
    ],
)
def test_a_mistake_leaves_the_existing_crawl_in_its_place(
    tmp_path: Path, kind: str, seeds: Any, settings: Any, items: str | None, said: str
) -> None:
    """`fresh` and `cached` move the existing crawl only after all arguments were checked."""
    (tmp_path / "crawl").mkdir()
    (tmp_path / "crawl" / "seed").write_text("00" * 16)
    with pytest.raises(UsageError, match=said):
        crawler.run(
            seeds,
            lambda _: None,
            directory=tmp_path / "crawl",
            config=settings,
            items=tmp_path / items if items else None,
            **{kind: True},
        )
    assert [each.name for each in tmp_path.rglob("*")] == ["crawl", "seed"]


@pytest.mark.parametrize("name", ["items.jsonl", "items.csv", "items.parquet"])
def test_the_check_of_an_items_file_changes_nothing(tmp_path: Path, name: str) -> None:
    check_items(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    items = open_items(tmp_path / name)
    items.add({"n": 1})
    items.sync()
    items.close()
    before = (tmp_path / name).read_bytes()
    check_items(tmp_path / name)
    assert (tmp_path / name).read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_cached_reuses_answers_of_earlier_runs(tmp_path: Path) -> None:
    """Only pages that no earlier run has stored are requested.

    No gap is needed before a cached answer, and items are written to a new file.

    Of the crawl directories, only that of the last run and the one that contains all answers are kept.
    """
    routes = {
        "/": page("/a", "/moved", "/gone", "/broken", text="Start"),
        "/a": page(text="A"),
        "/moved": (302, {"Location": "/b"}, ""),
        "/b": page(text="B"),
        "/broken": (500, {}, ""),
        "/new": page(text="New"),
    }
    quick = SETTINGS | {"frontier": {"tries": 1}}
    slow = quick | {"politeness": SETTINGS["politeness"] | {"delay": 60}}  # the gap is longer than `patience`

    def titles(found: crawler.Page) -> Iterator[Any]:
        yield {"title": found.title}

    def more(found: crawler.Page) -> Iterator[Any]:
        yield from titles(found)
        if found.title == "A":
            yield crawler.Request("/new", titles)
            yield crawler.Request("/a", titles, method="POST", body={"x": "1"})

    directory, items = tmp_path / "crawl", tmp_path / "items.jsonl"
    first: list[float] = []
    with Web(routes) as web:
        for parse, config, asked in (
            (titles, quick, ["/", "/a", "/b", "/broken", "/gone", "/moved"]),
            (titles, quick, ["/broken"]),  # a URL whose failure may be temporary is requested again
            (more, quick, ["/a", "/broken", "/new"]),
        ):
            web.asked.clear()
            report = crawler.run(
                web.url(), parse, directory=directory, items=items, config=config, cached=True
            )
            assert sorted(web.paths()) == asked and report["conservation"] == "holds"
            first = first or [found.fetched_at for found in crawler.Crawl(directory=directory).stored()]
        web.asked.clear()
        report = crawler.run(
            web.url(), titles, directory=directory, items=items, config=slow, cached=True, follow=False
        )
    assert not web.asked and report["connections"] == {"cached": 2}
    assert [row["title"] for row in rows(items)] == ["Start"]
    assert sorted(row["title"] for row in rows(tmp_path / "items.jsonl.3")) == ["A", "A", "B", "New", "Start"]
    assert len(rows(tmp_path / "items.jsonl.1")) == len(rows(tmp_path / "items.jsonl.2")) == 3
    times = [found.fetched_at for found in crawler.Crawl(directory=directory).stored()]
    assert min(first) <= times[0] <= max(first)  # the copy keeps the time at which it was fetched
    assert sorted(each.name for each in tmp_path.glob("crawl*")) == ["crawl", "crawl.3"]


def test_items_are_appended_after_a_torn_row_is_removed(tmp_path: Path) -> None:
    for name, torn in (("a.jsonl", b'{"a"'), ("a.csv", b"3,")):
        for n in range(2):
            items = open_items(tmp_path / name)
            items.add({"a": n, "b": [n]})
            items.close()
            with (tmp_path / name).open("ab") as file:
                file.write(torn)
    assert (tmp_path / "a.csv").read_bytes() == b"a,b\n0,[0]\n1,[1]\n3,"
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"a":0,"b":[0]}\n{"a":1,"b":[1]}\n{"a"'


def test_mistakes_raise_clear_errors(web: Web, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        crawl(web, tmp_path, lambda _: None, follow=["("])
    with pytest.raises(ConfigError, match="not a CSS selector"):
        crawl(web, tmp_path, lambda _: None, follow=["css:["])
    with pytest.raises(ValueError, match="not a lambda"):
        crawler.Request("/", callback=lambda _: None)

    async def notebook() -> None:
        crawler.run(web.url())

    with pytest.raises(UsageError, match="await crawler.run_async"):
        asyncio.run(notebook())


def test_fetch_returns_the_page_after_redirects() -> None:
    with Web({"/": (302, {"Location": "/home"}, ""), "/home": page(text="home")}) as web:
        found = crawler.fetch(web.url(), SETTINGS)
    assert found.url == web.url("/home") and found.css("title").text == "home"


@pytest.mark.parametrize("status", [404, 429, 500, 503])
def test_fetch_returns_an_answer_of_any_status_at_once(status: int) -> None:
    """A script or `crawler shell` waited for minutes until the last attempt had failed, and then got no page."""
    with Web({"/": (status, {"Retry-After": "200"}, "sorry")}) as web:
        found = crawler.fetch(web.url(), SETTINGS)
        assert (found.status, found.url, web.paths().count("/")) == (status, web.url(), 1)


def test_fetch_ends_at_the_first_failure_of_a_host() -> None:
    """The message must not name `crawler why`, because `fetch` keeps no directory."""
    settings = {**SETTINGS, "politeness": {"delay": 0.0, "backoff_first": 0.01}}
    settings["robots"] = {"unreachable_delays": [0.01]}
    with Web({}) as web:
        url = web.url()
    with pytest.raises(NoSeedError, match=": connection refused or timed out$"):
        crawler.fetch(url, settings)
