"""Test the dashboard in Chromium with dead or slow processes, with ended crawls, and with 10,000 hosts."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from crawler.admin import server as admin_server
from crawler.admin.eta import duration
from crawler.admin.health import MemberStatus
from crawler.admin.server import AdminServer
from crawler.admin.status import Status, resting
from crawler.admin.status_source import Answers
from crawler.clock import SystemClock
from crawler.config import Config
from crawler.records import FrontierCounts
from crawler.serve.listening_socket import listen
from tests.browser.chromium import PROGRAM, Page, browser
from tests.browser.test_dashboard import AXE_LOOKS, LOOKS, problems, reads, shown
from tests.frontier.model import Crawl, config, link
from tests.frontier.test_host_list import ended, refusing

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")

HOSTS = 10_000


class Three:
    """Three simulated processes. Each process can be dead or slow.

    The first process has a frontier with 10,000 hosts.
    """

    def __init__(self, frontier: Crawl | None = None) -> None:
        self.gone: set[str] = set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.errors: list[dict[str, Any]] = []
        self._frontier = frontier

    async def ask(self, request: Mapping[str, Any], *, first: bool = False, patient: bool = False) -> Answers:
        await self.answers.wait()
        answers = Answers(self._answers(request))
        answers.missing = self.missing()
        return answers

    def _answers(self, request: Mapping[str, Any]) -> list[Any]:
        if request["command"] == "status":
            return [self._status(f"p{n}").plain() for n in range(3)]
        if request["command"] == "hosts":
            return [self._hosts(dict(request))]
        return [{"host": request.get("host", ""), "state": "unknown"}]

    def _status(self, name: str) -> Status:
        now = SystemClock().now()
        status = Status(
            name=name,
            now=now,
            counters={"pages.fetched": 1000, "robots.connect_error": 700},
            frontier=FrontierCounts(todo=500, hosts=HOSTS, hosts_reached=HOSTS),
            members=[MemberStatus(name, "running", now, 7)],
            processes=[
                {
                    "name": name,
                    "pid": 7,
                    "started": now - 60,
                    "cpu_seconds": 1,
                    "rss_bytes": 1,
                    "descriptors": 9,
                }
            ],
            errors=self.errors,
        )
        return resting(status) if name in self.gone else status

    def _hosts(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._frontier is None:
            return {"hosts": 0, "matched": 0, "failing": 0, "unsearched": 0, "rows": []}
        del request["command"]
        return ended(self._frontier.frontier.host_list.page(self._frontier.now, **request))[1]

    def not_ready(self) -> str:
        return ""

    def missing(self) -> tuple[str, ...]:
        return tuple(sorted(self.gone))


@asynccontextmanager
async def watching(folder: Path, source: Three) -> AsyncIterator[tuple[AdminServer, Page]]:
    """Yield an admin server for the processes, and a browser that shows its dashboard."""
    server = AdminServer(source, Config(), folder, SystemClock().now)
    await server.start_on(listen("127.0.0.1", 0, "admin.address"))
    try:
        async with browser(folder / "profile") as page:
            await page.look(1280, 900)
            await page.open(server.link())
            await reads(page, "verdict", "Healthy")
            yield server, page
    finally:
        await server.close()


async def again(folder: Path, source: Three, former: AdminServer) -> AdminServer:
    """Start a new server at the address that an earlier server had."""
    server = AdminServer(source, Config(), folder, SystemClock().now)
    await server.start_on(listen(*former.listener.address, "admin.address"))
    return server


async def states(page: Page) -> list[str]:
    """Return the states of the processes that the page shows."""
    cells = "[...document.querySelectorAll('#processes tbody td:nth-child(2)')].map(e => e.textContent)"
    return list(await page.evaluate(cells))


async def is_red(page: Page) -> bool:
    return bool(await page.evaluate("document.querySelector('#state.bad, #health.bad') !== null"))


async def test_lengths_of_time_read_as_in_the_commands(tmp_path: Path) -> None:
    lengths = [0.004, 0.0, 0.44, 9.91, 12.2, 119.4, 121.0, 7000.0, 7210.0, 172_000.0, 173_000.0, 1e7]

    async with watching(tmp_path, Three()) as (_, page):
        call = f"import('/static/elements.js').then((elements) => {lengths}.map(elements.duration))"
        assert await page.evaluate(call) == [duration(length) for length in lengths]


async def test_a_missing_process_is_shown_in_a_red_row(tmp_path: Path) -> None:
    """While a process is dead, the verdict names it and its row is red. A note says that totals contain old data."""
    source = Three()
    async with watching(tmp_path, source) as (_, page):
        source.gone.add("p1")
        await reads(page, "verdict", "Not healthy")
        assert "p1 is not running" in await shown(page, "problems")
        assert "p1not running" in await page.evaluate("document.querySelector('tr.gone').textContent")
        assert (await shown(page, "lacking")).startswith("The totals contain the last figures of p1, of ")
        assert (
            await page.evaluate("document.querySelector('#tiles [data-name=Hosts] dd').textContent")
            == "30,000"
        )
        assert await problems(page) == []
        source.gone.clear()
        await reads(page, "verdict", "Healthy")
        assert await page.evaluate("document.querySelector('tr.gone')") is None
        assert await page.evaluate("document.getElementById('lacking').hidden")


async def test_an_axis_of_zeros_has_different_numbers(tmp_path: Path) -> None:
    async with watching(tmp_path, Three()) as (_, page):
        await page.until("document.querySelectorAll('[data-curve=new] .scale span').length === 3")
        await page.until("document.querySelector('[data-curve=new] .line').getAttribute('points') !== ''")
        numbers = "new Set([...e.children].map(f => f.textContent)).size"
        scales = await page.evaluate(f"[...document.querySelectorAll('.scale')].map(e => {numbers})")
        assert set(scales) == {3}


async def test_a_slow_crawl_is_not_reported_as_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats must arrive while processes are slow.

    Once, the dashboard showed in red that a healthy but slow crawl did not answer.
    """
    monkeypatch.setattr(admin_server, "BEAT", 0.1)
    monkeypatch.setattr(admin_server, "TIMEOUT", 1.0)

    source = Three()
    async with watching(tmp_path, source) as (_, page):
        source.answers.clear()
        await reads(page, "verdict", "Slow to answer")
        assert not await is_red(page)
        source.answers.set()
        await reads(page, "verdict", "Healthy")
        assert len([url for url in page.requests if url.endswith("/events")]) == 1


@pytest.mark.parametrize(
    ("failure", "verdict", "red"),
    [("", "Stopped", False), ("p1: the disk is full", "Ended with an error", True)],
)
async def test_the_page_distinguishes_a_clean_end_from_an_error(
    tmp_path: Path, failure: str, verdict: str, red: bool
) -> None:
    """The page shows whether the crawl ended cleanly or with an error.

    When the next run starts at the same address, the page shows that run.
    """
    source = Three()
    async with watching(tmp_path, source) as (server, page):
        await server.close(failure)
        await reads(page, "verdict", verdict)
        assert await is_red(page) == red and failure in await shown(page, "problems")
        assert "Fetched3,000" in await shown(page, "tiles")
        assert (
            "Pages/s-" in await shown(page, "tiles") and await shown(page, "left") == "the crawl does not run"
        )
        assert await states(page) == ["ended"] * 3
        assert await page.evaluate("document.title") == f"{verdict} - crawler"
        new = await again(tmp_path, source, server)
        await reads(page, "verdict", "Healthy")
        assert not await is_red(page)
        await new.close()


async def test_a_lost_crawl_shows_its_last_error(tmp_path: Path) -> None:
    """When the stream ends, the page first shows "reconnecting", and then "lost" with the last error.

    When the crawl is restarted, the page shows it again.
    """
    source = Three()
    source.errors.append({"at": 1.0, "level": "error", "message": "store: cannot write"})
    async with watching(tmp_path, source) as (server, page):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(admin_server.EventStream, "write", _cut)
            for connection in list(server.listener._connections):
                connection.drop()
            await reads(page, "verdict", "Reconnecting")
            assert not await is_red(page)
            await reads(page, "verdict", "The crawl does not answer")
            assert await is_red(page) and "store: cannot write" in await shown(page, "problems")
            assert await states(page) == ["no answer"] * 3
        await reads(page, "verdict", "Healthy")


async def _cut(stream: admin_server.EventStream, request: object) -> None:
    raise ConnectionResetError("cut by the test")


async def test_the_dashboard_with_ten_thousand_hosts(tmp_path: Path) -> None:
    """The server ranks and searches all hosts, and the page stays usable.

    Each cause of failures links to the hosts that have it.
    """
    crawl = Crawl(config(crawl={"patience": "1 d"}), answer=refusing)
    crawl.add([link(f"http://dead{n}.org/") for n in range(40)])
    crawl.run(60.0)
    crawl.add([link(f"http://good{n}.org/") for n in range(HOSTS - 40)])
    crawl.run(0.01)
    async with watching(tmp_path, Three(crawl)) as (_, page):
        await page.until("document.querySelectorAll('#hosts tbody tr').length === 100")
        assert (await shown(page, "hosts-said")).startswith("10,000 hosts, 40 of them failing.")
        names = "[...document.querySelectorAll('#hosts button')].map(e => e.dataset.host)"
        assert all(name.startswith("dead") for name in (await page.evaluate(names))[:40])
        # each cause has a button that lists the hosts with this cause, even if the failed request was for a
        # robots.txt
        for place in ("failures", "outcomes"):
            await page.evaluate(
                f"document.querySelector('#{place} button[data-cause=connect_error]').click()"
            )
            await page.until(f"{names}.length === 40")
            await page.evaluate("document.getElementById('hosts-cause').value = ''")
        await page.evaluate("document.getElementById('hosts-search').value = 'good99'")
        await page.evaluate("document.getElementById('hosts-search').dispatchEvent(new Event('input'))")
        await page.until(f"{names}.length > 0 && {names}.every(name => name.includes('good99'))")
        for name, (width, height, dark) in LOOKS.items():
            await page.look(width, height, dark=dark)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
            if name in AXE_LOOKS:
                assert await problems(page) == [], name
        cut = "[...document.querySelectorAll('#hosts td')].some(e => e.scrollWidth > e.clientWidth + 1)"
        assert not await page.evaluate(cut), "cells of cards are not cut"
