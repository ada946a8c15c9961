"""Test what the dashboard shows in a real Chromium while processes of a real crawl die in several ways.

Each state of the dashboard is checked in wide and narrow windows, in light and dark colours, by keyboard and by
axe-core; `test_dashboard.py` checks the state of a healthy crawl. With CRAWLER_PICTURES=FOLDER, a screenshot of each
state is kept in this folder.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from crawler.storage.files import is_held
from tests.browser.chromium import PROGRAM, Page, browser
from tests.browser.test_dashboard import AXE_LOOKS, LOOKS, click, problems, reads, shown, tab_through, tile
from tests.end_to_end.test_live import Running, tree  # noqa: F401 (a fixture)
from tests.waiting import WAIT_MAX

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")

NAMES = ("p0", "p1", "p2")
GONE = "document.querySelector('#processes tr.gone')"
KILLS = 6  # the delay before a restart doubles with each death, and is then 6.4 s


class Crawl:
    """A crawl of three processes, which is started again at the same address after it has ended."""

    def __init__(self, folder: Path, seeds: list[str]) -> None:
        self._folder, self._seeds = folder, seeds
        self.running = self._start(0)

    def _start(self, admin: int) -> Running:
        flags = ("--delay", "0.8", "--processes", "3", "--scope", "host")
        return Running(self._folder, self._seeds, *flags, admin=admin)

    def start_again(self) -> None:
        self.running.end()
        self.running = self._start(self.running.admin)

    def lock(self, name: str) -> Path:
        return self.running.folder / name / "node.lock"

    async def kill(self, name: str) -> None:
        """Wait until a process runs, and kill it with SIGKILL."""
        async with asyncio.timeout(WAIT_MAX):
            while not (is_held(self.lock(name)) and (words := self.lock(name).read_text().split())):
                await asyncio.sleep(0.02)
        with suppress(ProcessLookupError):
            os.kill(int(words[1]), signal.SIGKILL)
        async with asyncio.timeout(WAIT_MAX):
            # the process that was killed, or else the next one, which has written its own number
            while is_held(self.lock(name)) and self.lock(name).read_text().split()[1:2] == words[1:2]:
                await asyncio.sleep(0.02)

    async def kill_all(self) -> None:
        os.killpg(self.running.process.pid, signal.SIGKILL)
        async with asyncio.timeout(WAIT_MAX):
            while any(is_held(self.lock(name)) for name in NAMES):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def watched(folder: Path, seeds: list[str]) -> AsyncIterator[tuple[Crawl, Page]]:
    """Start a crawl, and a browser that shows its dashboard once each process has fetched pages."""
    crawl = Crawl(folder, seeds)
    try:
        async with browser(folder / "profile") as page:
            await asyncio.to_thread(crawl.running.until, lambda: crawl.running.fetched() > 12)
            await page.look(1280, 900)
            await page.open(f"http://127.0.0.1:{crawl.running.admin}/#token={crawl.running.token()}")
            await lives(page)
            yield crawl, page
    finally:
        crawl.running.end()


async def lives(page: Page) -> None:
    states = "['healthy', 'degraded', 'unhealthy']"
    await page.until(f"{states}.includes(document.getElementById('state').textContent) && {GONE} === null")
    await page.until("document.querySelectorAll('#processes tbody tr').length === 3")


async def check(page: Page, name: str) -> None:
    """Check the screen in all widths and colours, and by keyboard. Keep a screenshot."""
    kept = os.environ.get("CRAWLER_PICTURES")
    for look, (width, height, dark) in LOOKS.items():
        await page.look(width, height, dark=dark)
        if kept:
            await page.evaluate("scrollTo(0, 0)")
            await page.picture(Path(kept) / f"{name} {look}.png", whole=look == "narrow")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, (name, look)
        if look in AXE_LOOKS:
            assert await problems(page) == [], (name, look)
    await page.look(1280, 900)
    await tab_through(page)


async def test_a_crawl_that_dies_and_ends_before_a_browser(tmp_path: Path, tree: list[str]) -> None:  # noqa: F811
    """One process is killed repeatedly, then all are killed, then the crawl is stopped, then a process loses its store.

    One browser shows the same page all the time. After each restart of the crawl, it shows the new run.
    """
    async with watched(tmp_path, tree) as (crawl, page):
        await _one_process_is_killed(crawl, page)
        await _all_processes_are_killed(crawl, page)
        await _the_crawl_is_stopped(crawl, page)
        await _a_process_loses_its_store(crawl, page)


async def _one_process_is_killed(crawl: Crawl, page: Page) -> None:
    """Its restart is delayed after several kills. The page shows which processes are left."""
    assert await tile(page, "Hosts") == "6"
    for _ in range(KILLS):
        await crawl.kill("p1")
    await page.until(f"{GONE} !== null")
    assert (await page.evaluate(f"{GONE}.textContent")).startswith("p1not running, last seen at ")
    assert "p1 is not running" in await shown(page, "problems")
    assert (await shown(page, "lacking")).startswith("The totals contain the last figures of p1, of ")
    assert await tile(page, "Hosts") == "6" and await shown(page, "verdict") == "Not healthy"
    await check(page, "one killed")
    await lives(page)  # the supervisor has restarted the process
    assert await page.evaluate("document.getElementById('lacking').hidden")
    assert "p1: ended with signal 9" in await shown(page, "problems")


async def _all_processes_are_killed(crawl: Crawl, page: Page) -> None:
    """The page shows the last error of the killed crawl. When the crawl is restarted, the page shows it again."""
    fetched = await tile(page, "Fetched")
    await crawl.kill_all()
    await reads(page, "verdict", "Reconnecting")
    assert await shown(page, "state") == "reconnecting"
    await reads(page, "verdict", "The crawl does not answer")
    assert "Its last error: p1: ended with signal 9" in await shown(page, "problems")
    assert await page.evaluate("document.querySelector('#health.bad') !== null")
    assert await tile(page, "Fetched") >= fetched
    assert await page.evaluate("document.getElementById('pause').disabled")
    await check(page, "all killed")
    crawl.start_again()
    await lives(page)
    await reads(page, "verdict", "Healthy")


async def _the_crawl_is_stopped(crawl: Crawl, page: Page) -> None:
    """After a death, the crawl works. The button on the page stops it, and it is then continued."""
    await crawl.kill("p1")
    await reads(page, "verdict", "Works, but needs a look")
    assert "a process died in the last 10 minutes: p1: ended" in await shown(page, "problems")
    await check(page, "degraded")
    await click(page, "#stop")
    await click(page, "#stop")
    await reads(page, "verdict", "Stopped")
    assert "The crawl ended cleanly at " in await shown(page, "problems")
    assert await asyncio.to_thread(crawl.running.process.wait, 30) == 0
    await check(page, "stopped")
    crawl.start_again()
    await lives(page)


async def _a_process_loses_its_store(crawl: Crawl, page: Page) -> None:
    """The crawl ends with an error."""
    shutil.rmtree(crawl.running.folder / "p1" / "store")
    await crawl.kill("p1")
    await reads(page, "verdict", "Ended with an error")
    problems_shown = await shown(page, "problems")
    assert ": p1: " in problems_shown and "/p1/store is missing" in problems_shown
    await check(page, "ended with an error")
