"""The dashboard in a real Chromium, live during a real crawl: figures, keyboard, colours, widths, axe-core's rules."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.admin.server import AdminServer
from crawler.admin.status_source import OwnProcess
from tests.browser.chromium import PROGRAM, Page, browser

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js"
LOOKS = {
    "wide": (1280, 900, False),
    "wide dark": (1280, 900, True),
    "narrow": (360, 740, False),
    "narrow dark": (360, 740, True),
}


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """A site with an endless number of pages, each with two links."""

    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while head := await _head(reader):
            number = int("0" + "".join(char for char in head.split(b" ")[1].decode() if char.isdigit()))
            body = f'<title>{number}</title><a href="/{2 * number + 1}">x</a><a href="/{2 * number + 2}">y</a>'.encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[AdminServer, Page]]:
    """Run a crawl, and a browser that shows its dashboard."""
    config = crawler.configure(
        {
            "politeness": {"delay": 0.02, "delay_factor": 0},
            "network": {"allow_networks": ["127.0.0.0/8"]},
            "serve": {"address": "127.0.0.1:0"},
        }
    )
    async with site() as seed, crawler.Crawl(config, directory=folder / "crawl", seeds=[seed]) as crawl:
        running = asyncio.create_task(crawl.run())
        server = AdminServer(
            OwnProcess(crawl.command, lambda: ""), config, folder / "crawl", crawl.stages.clock.now
        )
        await server.start("127.0.0.1:0")
        try:
            async with browser(folder / "profile") as page:
                await page.look(1280, 900)
                await page.open(server.link())
                await page.until("!!document.querySelector('#hosts button')")
                yield server, page
        finally:
            await server.close()
            crawl.stop("test")
            await running


async def tile(page: Page, name: str) -> str:
    return await page.evaluate(f"document.querySelector('#tiles [data-name=\"{name}\"] dd').textContent")


async def problems(page: Page) -> list[str]:
    """Return the violations that axe-core finds."""
    await page.evaluate(AXE.read_text() + "; true")
    found: Any = await page.evaluate(
        "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target).join(' ')))"
    )
    return found


def test_live_during_a_crawl(tmp_path: Path) -> None:
    """Figures update, buttons work with the token, no other host is contacted, the token leaves the address bar."""

    async def talk() -> None:
        async with watched(tmp_path) as (server, page):
            first = int((await tile(page, "Fetched")).replace(",", ""))
            await page.until(
                f"+document.querySelector('#tiles [data-name=Fetched] dd').textContent.replace(',', '') > {first}"
            )
            assert await page.evaluate("location.hash") == ""
            await page.evaluate("document.querySelector('[data-do=pause]').click()")
            await page.until("document.getElementById('state').textContent.startsWith('paused')")
            await page.evaluate("document.querySelector('[data-do=resume]').click()")
            await page.until("document.getElementById('state').textContent.startsWith('crawling')")
            await page.evaluate("document.querySelector('#seed-form input').value = 'ftp://a/'")
            await page.evaluate("document.querySelector('#seed-form').requestSubmit()")
            said = "seed: 0 queued; rejected: ftp://a/: its scheme is neither http nor https"
            await page.until(f"document.getElementById('notice').textContent === '{said}'")
            await page.evaluate("document.querySelector('#hosts button').click()")
            await page.until("document.querySelectorAll('#host-fetches tr').length > 3")
            await page.until("!!document.querySelector('#curves svg')")
            host, port = server.listener.address
            assert {url.split("/")[2] for url in page.requests} == {f"{host}:{port}"}
            assert page.messages == []

    asyncio.run(talk())


def test_looks_and_rules(tmp_path: Path) -> None:
    """Wide and narrow, dark and light: nothing overflows the window, and axe-core finds nothing."""

    async def talk() -> None:
        async with watched(tmp_path) as (_, page):
            await page.evaluate("document.querySelector('#hosts button').click()")
            await page.until("!document.getElementById('host').hidden")
            for name, (width, height, dark) in LOOKS.items():
                await page.look(width, height, dark=dark)
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
                assert await problems(page) == [], name

    asyncio.run(talk())


def test_keyboard_alone(tmp_path: Path) -> None:
    """Tab reaches every control, the focus is visible, Enter acts, and updates of the figures keep the focus."""

    async def talk() -> None:
        async with watched(tmp_path) as (_, page):
            kinds = "a[href], button:not(:disabled), input, select"
            controls = f"[...document.querySelectorAll('{kinds}')].filter(e => e.checkVisibility())"
            wanted = await page.evaluate(f"{controls}.length")
            await page.evaluate("document.body.focus(), window.reached = new Set(), true")
            for _ in range(wanted + 20):
                await page.press("Tab")
                seen = await page.evaluate(
                    "(() => { const e = document.activeElement; window.reached.add(e);"
                    " return e === document.body || getComputedStyle(e).outlineStyle !== 'none' || e.id === 'main'; })()"
                )
                assert seen, await page.evaluate("document.activeElement.outerHTML")
            missed = await page.evaluate(
                f"{controls}.filter(e => !window.reached.has(e) && !e.dataset.key).map(e => e.outerHTML)"
            )
            assert missed == []
            await page.evaluate("document.querySelector('[data-do=pause]').focus()")
            await page.press("Enter")
            await page.until("document.getElementById('state').textContent.startsWith('paused')")
            await page.evaluate("document.querySelector('#hosts button').focus()")
            before = await page.evaluate("document.getElementById('hosts').dataset.seen = document.title")
            assert before
            await page.until("document.activeElement.dataset.host")
            await page.next_event()  # which redraws the table
            assert await page.evaluate("document.activeElement.dataset.host")

    asyncio.run(talk())
