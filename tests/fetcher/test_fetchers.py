"""Test the table of fetchers, the slots of each fetcher, and a whole crawl with an additional fetcher."""

import asyncio
import random
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

from crawler.clock import VirtualClock
from crawler.config import Config, Override, convert
from crawler.errors import ConfigError, Unexpected
from crawler.fetcher import fetchers
from crawler.fetcher.client import Client
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.fetchers import (
    FETCHERS,
    HTTP,
    WAITING_A_PLACE,
    Fetcher,
    FetcherNeeds,
    Fetchers,
    make_fetcher,
)
from crawler.records import Fetch, Outcome
from tests.end_to_end.web import Web, crawl, page, run


class Counting:
    """A fetcher that counts its tasks and answers them once `go` is set. It also records the memory that owners hold."""

    def __init__(self, places: int = 0, body: bytes = b"") -> None:
        self.places, self._body = places, body
        self.go = asyncio.Event()
        self.urls: list[str] = []
        self.under_way = self.most = 0
        self.told: list[Any] = []

    async def start(self) -> None:
        self.told.append("start")

    async def close(self) -> None:
        self.told.append("close")

    async def fetch(self, task: FetchRequest) -> Fetch:
        self.urls.append(task.url)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.go.wait()
        finally:
            self.under_way -= 1
        headers = ((b"Content-Type", b"text/html"),)
        return Fetch(
            task.url, Outcome.FETCHED, status=200, reason="OK", headers=headers, body=self._body,
            content=self._body, content_type="text/html", request_head=b"GET / HTTP/1.1\r\n\r\n", took=0.01,
        )  # fmt: skip

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        self.told.append((owner, nbytes))

    def let_go(self, owner: Hashable) -> None:
        self.told.append(owner)


class Place:
    def __init__(self) -> None:
        self.given = 0

    def is_needed(self) -> bool:
        return False

    def give(self) -> None:
        self.given += 1


def needs(*names: str) -> FetcherNeeds:
    overrides = tuple(Override(match="a.org", fetcher=name) for name in names)
    return FetcherNeeds(Config(override=overrides), VirtualClock(), Unexpected(), 1)


def test_a_process_creates_only_the_fetchers_that_it_needs() -> None:
    made: list[str] = []

    def making(name: str) -> fetchers.MakeFetcher:
        def make(_: FetcherNeeds) -> Fetcher:
            made.append(name)
            return Counting()

        return make

    table = {name: making(name) for name in (HTTP, "browser", "other")}
    assert isinstance(make_fetcher(table, needs()), Counting) and made == [HTTP], (
        "a single fetcher is not wrapped"
    )
    made.clear()
    assert isinstance(make_fetcher(table, needs("browser", "browser")), Fetchers) and made == [
        HTTP,
        "browser",
    ]
    with pytest.raises(
        ConfigError, match=r"override\.fetcher: unknown fetcher 'bowser'; known: http, browser"
    ):
        make_fetcher(table, needs("bowser"))
    assert isinstance(make_fetcher(FETCHERS, needs()), Client)


async def test_each_task_goes_to_the_fetcher_that_it_names() -> None:
    plain, browser = Counting(), Counting(places=2)
    plain.go.set(), browser.go.set()
    both = Fetchers({HTTP: plain, "browser": browser})
    await both.start()
    await both.fetch(FetchRequest("http://a.org/"))
    await both.fetch(FetchRequest("http://b.org/", fetcher="browser"))
    both.hold_more("me", 7)
    both.let_go("me")
    await both.close()
    assert (plain.urls, browser.urls) == (["http://a.org/"], ["http://b.org/"])
    assert plain.told == ["start", ("me", 7), "me", "close"] and browser.told == ["start", "me", "close"]


@pytest.mark.parametrize("seed", range(5))
async def test_no_fetcher_gets_more_tasks_than_its_places(seed: int) -> None:
    """Tasks start, end and are cancelled at random. No place is lost or used twice; other fetchers never wait."""
    rng = random.Random(seed)

    plain, browser = Counting(), Counting(places=2)
    plain.go.set()
    both = Fetchers({HTTP: plain, "browser": browser})
    tasks: list[asyncio.Task[Fetch]] = []
    for number in range(200):
        tasks.append(
            asyncio.create_task(both.fetch(FetchRequest(f"http://b.org/{number}", fetcher="browser")))
        )
        await asyncio.sleep(0)
        if rng.random() < 0.4:
            rng.choice(tasks).cancel()
        if rng.random() < 0.2:
            browser.go.set()
            await asyncio.sleep(0)
            browser.go.clear()
        assert (await both.fetch(FetchRequest("http://a.org/"))).outcome is Outcome.FETCHED
    browser.go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert browser.most == 2 and both._waiting == {"browser": 0}
    assert not both._places["browser"].locked()


async def test_tasks_that_wait_for_a_fetcher_release_their_slot_up_to_a_bound() -> None:
    browser = Counting(places=2)
    both = Fetchers({HTTP: Counting(), "browser": browser})
    places = [Place() for _ in range(2 * WAITING_A_PLACE + 5)]
    tasks = [
        asyncio.create_task(both.fetch(FetchRequest("http://b.org/", fetcher="browser", slot=place)))
        for place in places
    ]
    await asyncio.sleep(0)
    assert [place.given for place in places] == [0] * 2 + [1] * 2 * WAITING_A_PLACE + [0] * 3
    browser.go.set()
    await asyncio.gather(*tasks)


def test_another_fetcher_in_a_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table and a setting add a fetcher. It gets the pages of its hosts, but not their robots.txt."""
    canned: list[Counting] = []

    def make(given: FetcherNeeds) -> Fetcher:
        assert given.processes == 1
        canned.append(Counting(places=1, body=page("/x", "/y", "/z", text="made elsewhere").encode()))
        canned[0].go.set()
        return canned[0]

    monkeypatch.setitem(FETCHERS, "canned", make)
    own = tmp_path / "own.toml"
    own.write_text('[[override]]\nmatch = "b.localhost"\nfetcher = "canned"\n')
    with Web({"a.localhost/": page(text="a"), "/robots.txt": "User-agent: *\nDisallow: /z\n"}) as web:
        seeds = (web.url("/", "a.localhost"), web.url("/", "b.localhost"))
        report = crawl(tmp_path / "crawl", *seeds, "--config", own)
        asked = {(each.host, each.path) for each in web.asked}
        urls = {web.url(path, "b.localhost") for path in ("/", "/x", "/y")}
        got = run("get", web.url("/x", "b.localhost"), "--dir", tmp_path / "crawl")
    assert asked == {("a.localhost", "/"), ("a.localhost", "/robots.txt"), ("b.localhost", "/robots.txt")}
    assert set(canned[0].urls) == urls and canned[0].most == 1
    assert (canned[0].told[0], canned[0].told[-1]) == ("start", "close")
    assert report["pages"] == {"fetched": 4, "robots_denied": 1} and b"made elsewhere" in got.out
    own.write_text('[[override]]\nmatch = "b.localhost"\nfetcher = "none"\n')
    ran = run("crawl", seeds[0], "--dir", tmp_path / "other", "--config", own)
    assert ran.code == 2 and "unknown fetcher 'none'; known: http, canned" in ran.err


@pytest.mark.parametrize(
    ("held", "processes", "share"),
    [(192 << 20, 1, 192 << 20), (192 << 20, 3, 64 << 20), (192 << 20, 8, 48 << 20), (1 << 20, 4, 1 << 20)],
)
def test_processes_of_a_machine_share_the_memory_for_bodies(held: int, processes: int, share: int) -> None:
    """Once, each of three processes could hold 192 MiB; crawling 60 link farms, they used 1,198 MiB together."""
    config = convert({"fetch": {"held_bytes_max": held}, "crawl": {"processes": processes}})
    client = make_fetcher(
        {HTTP: FETCHERS[HTTP]}, FetcherNeeds(config, VirtualClock(), Unexpected(), processes)
    )
    assert isinstance(client, Client) and client.account._limit == share
