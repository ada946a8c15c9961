"""Test the dashboard of a running crawl in a real Chromium.

The tests cover figures, actions, states of the connection, keyboard, colours, widths, and the rules of axe-core.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.admin.server import AdminServer
from crawler.admin.status_source import OwnProcess
from crawler.serve.listening_socket import listen
from tests.browser.chromium import PROGRAM, Page, browser
from tests.end_to_end.web import Web, endless

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js"
LOOKS = {
    "wide": (1280, 900, False),
    "wide dark": (1280, 900, True),
    "narrow": (390, 844, False),
    "narrow dark": (390, 844, True),
}
# The looks that axe-core checks in states other than the usual one. They have both widths and both schemes, which is
# enough, because the scheme changes only colours, and the width changes none.
AXE_LOOKS = ("wide", "narrow dark")


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[AdminServer, Page]]:
    """Run a crawl and a browser that shows the dashboard of the crawl."""
    config = crawler.configure(
        {
            "politeness": {"delay": 0.1, "delay_factor": 0},
            "network": {"allow_networks": ["127.0.0.0/8"]},
            "serve": {"address": "127.0.0.1:0"},
        }
    )
    with Web({}, other=endless) as web:
        async with crawler.Crawl(
            config, directory=folder / "crawl", seeds=[web.url("/", "127.0.0.1")]
        ) as crawl:
            running = asyncio.create_task(crawl.run())
            server = AdminServer(
                OwnProcess(crawl.command, lambda: ""), config, folder / "crawl", crawl.stages.clock.now
            )
            await server.start_on(listen("127.0.0.1", 0, "admin.address"))
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
    """Return the accessibility problems that axe-core finds.

    Rows of a table have the same elements, so axe-core examines only the first eight rows of each table.
    """
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE.read_text() + "; true")
    found: Any = await page.evaluate(
        "axe.run({exclude: [['tbody tr:nth-child(n+9)']]}, "
        "{resultTypes: ['violations']})"  # what obeys the rules is not described
        ".then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target).join(' ')))"
    )
    return found


async def shown(page: Page, name: str) -> str:
    """Return the text that an element shows."""
    return await page.evaluate(f"document.getElementById('{name}').textContent")


async def reads(page: Page, name: str, text: str) -> None:
    """Wait until the text of an element begins with `text`."""
    await page.until(f"document.getElementById('{name}').textContent.startsWith({text!r})")


async def submit(page: Page, form: str, value: str) -> None:
    await page.evaluate(f"document.querySelector('#{form} input').value = {value!r}")
    await page.evaluate(f"document.querySelector('#{form}').requestSubmit()")


async def click(page: Page, selector: str) -> None:
    await page.evaluate(f"document.querySelector({selector!r}).click()")


async def test_the_dashboard_updates_during_a_crawl(tmp_path: Path) -> None:
    """Figures are updated, the result of an action appears beside its control, and no other host is contacted."""
    async with watched(tmp_path) as (server, page):
        await reads(page, "verdict", "Healthy")
        first = int((await tile(page, "Fetched")).replace(",", ""))
        await page.until(
            f"+document.querySelector('#tiles [data-name=Fetched] dd').textContent.replace(',', '') > {first}"
        )
        assert await page.evaluate("location.hash") == ""
        assert str(tmp_path / "crawl") in await shown(page, "crawl")
        assert "127.0.0.1" in await shown(page, "crawl")
        await page.until("document.getElementById('left').textContent.includes('each page adds 2')")
        assert await page.evaluate("document.getElementById('resume').disabled"), "it is not paused"
        await click(page, "#pause")
        await reads(page, "control-said", "paused")
        await reads(page, "verdict", "Paused")
        await page.until("!document.getElementById('resume').disabled")
        assert await page.evaluate("document.getElementById('pause').disabled")
        await click(page, "#resume")
        await reads(page, "verdict", "Healthy")
        await submit(page, "set-form", "politeness.delay=0.03")
        await page.until(
            "document.querySelector('#set-form output').textContent === 'politeness.delay = 0.03'"
        )
        assert page.messages == []
        await submit(page, "seed-form", "ftp://a/")
        await page.until(
            "document.querySelector('#seed-form output.bad').textContent.includes('ftp is not supported')"
        )
        await submit(page, "set-form", "pages.prefix=x")
        await page.until("document.querySelector('#set-form output.bad').textContent.includes('refused')")
        await click(page, "#outcomes button[data-outcome=fetched]")
        assert await page.evaluate("document.getElementById('fetches-outcome').value") == "fetched"
        await click(page, "#fetches button[data-url]")
        await page.until("document.getElementById('why').textContent.includes('verdict')")
        host, port = server.listener.address
        assert {url.split("/")[2] for url in page.requests} == {f"{host}:{port}"}


async def test_a_host_can_be_blocked_from_its_panel(tmp_path: Path) -> None:
    """The panel of a host updates itself. Only the button that can have an effect is enabled."""
    async with watched(tmp_path) as (_, page):
        await click(page, "#hosts button")
        await page.until("document.querySelectorAll('#host-fetches tr').length > 3")
        await page.until("!document.getElementById('host-block').disabled")
        assert await page.evaluate("document.getElementById('host-unblock').disabled")
        await click(page, "#host-block")
        await reads(page, "host-state", "blocked")
        assert (await shown(page, "host-said")).endswith(": blocked: no new request is sent to this host")
        assert await page.evaluate("document.getElementById('host-block').disabled")
        await page.until("document.querySelector('#hosts td:nth-child(2)').textContent === 'blocked'")
        await click(page, "#host-unblock")
        await page.until("!document.getElementById('host-state').textContent.startsWith('blocked')")


async def test_pages_can_be_withdrawn(tmp_path: Path) -> None:
    """The dashboard counts the pages and asks for confirmation once.

    If the user refuses, nothing changes. After the user has confirmed, the dashboard offers no copy of the
    pages.
    """
    async with watched(tmp_path) as (_, page):
        said = "document.querySelector('#withdraw-form output').textContent"
        await page.until("document.querySelector('#fetches button[data-url]') !== null")
        url = await page.evaluate("document.querySelector('#fetches button[data-url]').dataset.url")
        await explain(page, url)
        assert '"withheld": ""' in await shown(page, "why")
        page.agrees = False
        await submit(page, "withdraw-form", url)
        while not page.dialogs:
            await asyncio.sleep(0.02)
        assert page.dialogs[0].startswith("Take down 1 stored page ("), page.dialogs
        assert await page.evaluate(said) == ""
        page.agrees = True
        await submit(page, "withdraw-form", url)
        await page.until(f"{said}.includes(': 1 page (') && {said}.endsWith(' are not fetched again')")
        await explain(page, url)
        assert "Withdrawn by the operator" in await shown(page, "why")
        await submit(page, "withdraw-form", "ftp://a/")
        await page.until("document.querySelector('#withdraw-form output.bad') !== null")
        assert len(page.dialogs) == 2
        await click(page, "#hosts button")
        await page.until("!document.getElementById('host-withdraw').disabled")
        await click(page, "#host-withdraw")
        await page.until(
            "document.getElementById('host-said').textContent.endsWith(' are not fetched again')"
        )
        assert page.dialogs[2].startswith("Take down ") and len(page.dialogs) == 3


async def explain(page: Page, url: str) -> None:
    """Ask the dashboard why a URL is in its state, and wait for the answer."""
    await page.evaluate("document.getElementById('why').textContent = ''")
    await submit(page, "why-form", url)
    await page.until("document.getElementById('why').textContent.includes('verdict')")


async def test_stop_asks_once(tmp_path: Path) -> None:
    """The first click on Stop only asks for confirmation, and the second stops the crawl.

    Then the page shows that the crawl stopped cleanly.
    """
    async with watched(tmp_path) as (server, page):
        await page.until("!document.getElementById('stop').disabled")
        await click(page, "#stop")
        assert await shown(page, "stop") == "Stop: sure?"
        await page.next_event()
        await reads(page, "verdict", "Healthy")
        await click(page, "#stop")
        await reads(page, "control-said", "stopping")
        await server.close()
        await reads(page, "verdict", "Stopped")
        assert await page.evaluate("document.getElementById('state').className") == ""
        assert await page.evaluate("document.getElementById('pause').disabled")


async def test_the_values_of_a_curve_are_shown_under_the_pointer(tmp_path: Path) -> None:
    """Each curve has a unit, an axis of values and an axis of times.

    The points of a curve come from the history that the server keeps.
    """
    async with watched(tmp_path) as (_, page):
        curve = "document.querySelector('[data-curve=pages]')"
        await page.until(f"{curve}.querySelector('.line').getAttribute('points').split(' ').length > 3")
        assert "pages/s" in await page.evaluate(f"{curve}.querySelector('figcaption').textContent")
        scale = await page.evaluate(f"[...{curve}.querySelectorAll('.scale span')].map(e => e.textContent)")
        assert scale[2] == "0" and float(scale[0]) == 2 * float(scale[1]) > 0
        assert ":" in await page.evaluate(f"{curve}.querySelector('.axis span').textContent")
        await page.evaluate(
            f"{curve}.querySelector('svg').dispatchEvent(new PointerEvent('pointermove', {{clientX: 0}}))"
        )
        assert (await page.evaluate(f"{curve}.querySelector('figcaption span').textContent")).startswith(
            "at "
        )


# whether the value beside a long title of a curve is on one line, and the curves of a row are aligned
CURVES_ALIGNED = """(() => {
    const caption = document.querySelector("figcaption"), value = caption.querySelector("span");
    caption.firstChild.data = "Share of copies expected to be current, at some hosts of the crawl";
    value.textContent = "now 100.0 %";
    const top = element => element.getBoundingClientRect().top;
    const row = [...document.querySelectorAll("figure")].filter(each => top(each) === top(caption.parentElement));
    return value.getBoundingClientRect().height < 2 * parseFloat(getComputedStyle(value).fontSize)
        && new Set(row.map(each => top(each.querySelector("svg")))).size === 1;
})()"""


async def test_layout_colours_and_accessibility(tmp_path: Path) -> None:
    """In wide and narrow windows, and in dark and light colours, nothing overflows, and axe-core finds no problem."""
    async with watched(tmp_path) as (_, page):
        await page.evaluate("document.querySelector('#hosts button').click()")
        await page.until("!document.getElementById('host').hidden")
        for name, (width, height, dark) in LOOKS.items():
            await page.look(width, height, dark=dark)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert await page.evaluate(CURVES_ALIGNED), name
            assert await problems(page) == [], name


def test_the_scheme_changes_only_colours_and_the_width_changes_none() -> None:
    """So the two looks in `AXE_LOOKS` show all colours and all layouts."""
    sheet = (Path(crawler.__file__).parent / "admin" / "static" / "dashboard.css").read_text()
    dark = sheet.partition("@media (prefers-color-scheme: dark) {")[2].partition("\n}\n")[0]
    narrow = sheet.partition("@media (max-width: 40rem) {")[2].partition("\n}\n")[0]
    assert re.fullmatch(r"\s*:root \{\s*(--[a-z]+: #[0-9a-f]+;\s*)+\}", dark)
    assert "color" in narrow and not re.search(r":[^;{}]*(#[0-9a-f]{3}|rgb|hsl)", narrow)


# A script that records in `reached` that the focused element was reached. It returns true if the focus is
# visible, and otherwise the HTML of the element.
VISIBLE = (
    "(() => { const e = document.activeElement; reached.add(named(e));"
    " return e === document.body || getComputedStyle(e).outlineStyle !== 'none' || e.id === 'main' || e.outerHTML; })()"
)


async def tab_through(page: Page) -> None:
    """Check that Tab reaches every control that exists now, and that the focus is visible on each."""
    kinds = "a[href], button:not(:disabled), input, select"
    # a redrawn control is a new element with the same name
    await page.evaluate(
        "window.named = e => e.id || e.dataset.host || [e.name, e.href, e.textContent].join(), "
        f"window.controls = () => [...document.querySelectorAll('{kinds}')].filter(e => e.checkVisibility()), "
        "window.reached = new Set(), window.listed = new Set(controls().map(named)), "
        "window.missed = () => controls().filter(e => listed.has(named(e)) && !reached.has(named(e)))"
        ".map(e => e.outerHTML), document.body.focus(), true"
    )
    # An update may add many controls, or disable one just when Tab comes to it, so up to four rounds are made.
    pressed = most = 0
    while (lengths := await page.evaluate("[missed().length, controls().length]"))[0]:
        most = max(most, lengths[1])
        if pressed > 4 * most:
            break
        await page.press("Tab")
        pressed += 1
        # an element that was disabled or removed keeps the focus until the next frame
        if await page.evaluate(VISIBLE) is not True:
            await page.evaluate("new Promise(requestAnimationFrame)")
            seen = await page.evaluate(VISIBLE)
            assert seen is True, seen
    assert await page.evaluate("missed()") == []


async def test_all_controls_work_by_keyboard(tmp_path: Path) -> None:
    """Tab reaches every control, the focus is visible, Enter works, and updates of figures keep the focus."""
    async with watched(tmp_path) as (_, page):
        await tab_through(page)
        await page.evaluate("document.querySelector('#pause').focus()")
        await page.press("Enter")
        await reads(page, "verdict", "Paused")
        await page.evaluate("document.querySelector('#hosts button').focus()")
        await page.evaluate("document.querySelector('#hosts td:nth-child(2)').textContent = 'old'")
        await page.until("document.querySelector('#hosts td:nth-child(2)').textContent !== 'old'")
        assert await page.evaluate("document.activeElement.dataset.host")


ROWS = """(async () => {
    const { make, table } = await import('/static/elements.js');
    const target = document.createElement('table'), show = (...names) => table(target, ['name', 'length#'], names.map(
        (name) => [make('button', { 'data-key': name }, name), name.length]));
    document.body.append(target);
    show('b', 'a');
    const [button, ...others] = target.querySelectorAll('button');
    button.focus();
    show('new', 'a', 'b');
    const rows = [...target.querySelectorAll('tbody tr')].map((row) => row.textContent);
    const kept = document.activeElement === button && button.isConnected && others.every((each) => each.isConnected);
    show();
    const empty = target.querySelector('tbody').textContent;
    target.remove();
    return [rows.join(), kept, empty];
})()"""


async def test_a_table_keeps_the_elements_of_its_rows(tmp_path: Path) -> None:
    """Once, the page replaced all rows every second, so a click between two updates could be lost."""
    async with watched(tmp_path) as (_, page):
        assert await page.evaluate(ROWS) == ["new3,a1,b1", True, "none"]


async def test_the_printed_link_brings_the_token_to_an_open_page(tmp_path: Path) -> None:
    """If the page is already open, the browser does not load it again for a link with another fragment."""
    async with watched(tmp_path) as (server, page):
        await page.evaluate("sessionStorage.clear()")
        await page.open("about:blank")
        await page.open(server.link().partition("#")[0])
        await page.until("!document.getElementById('read-only').hidden")
        await page.open(server.link())
        await page.until("!document.getElementById('pause').disabled")
        assert await page.evaluate("location.hash") == ""
