"""Measures the cost of rendering: the crawler crawls a thousand pages of one host, and Playwright shows some of them.

    python scripts/bench/render_cost.py [--pages 1000] [--playwright PYTHON --compared 100]

Each page is empty until its scripts run. A page requests its own data, and four files that all pages
share: two libraries, a style sheet and an application. PYTHON is the Python of an environment with the
package playwright. Playwright shows the first --compared pages in one browser, two at a time, each until the
network is idle. CPU is the time of all processes of the crawl or of Playwright. Memory is the sum of the
proportional set sizes of these processes. Memory is measured twice a second, and the largest value counts.
Both measurements need control groups and root.
"""

import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from programs import CRAWLER
from render import Account

from crawler.bench import harness
from crawler.bench.meters import proportional_memory
from crawler.render.browser import find_program
from tests.end_to_end.web import FAST, Answer, ReceivedRequest, Route, Web

_FRESH = {"Cache-Control": "max-age=86400"}
_SCRIPT = {"Content-Type": "text/javascript", **_FRESH}
_STYLE = {"Content-Type": "text/css", **_FRESH}
_SHELL = (
    '<!doctype html><title>shop</title><link rel=stylesheet href="/style.css"><div id="root"></div>'
    '<script src="/one.js"></script><script src="/two.js"></script><script src="/app.js"></script>'
)
_LIBRARY = "".join(f"function unused{{}}_{n}(a) {{{{ return a * {n} + 1 }}}}\n" for n in range(2000))
_APP = """
const n = +(location.pathname.split('/')[2] || 0);
fetch('/api/' + n + '.json').then(a => a.json()).then(page => {
  document.title = page.title;
  document.getElementById('root').innerHTML = '<p>' + page.text + '</p>' +
    page.links.map(link => '<a href="' + link + '">' + link + '</a>').join(' ');
});
"""
_SHARED = ("/one.js", "/two.js", "/app.js", "/style.css")

# This program is run by the Python interpreter that has Playwright. Arguments: the browser's program and
# URLs. Result: the pages whose script has set the title.
_PLAYWRIGHT = """
import asyncio, json, sys
from playwright.async_api import async_playwright
program, *urls = json.load(sys.stdin)
async def main():
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program)
        places, built = asyncio.Semaphore(2), []
        async def show(url):
            async with places:
                context = await browser.new_context()
                page = await context.new_page()
                await page.goto(url, wait_until="networkidle")
                built.append("<p>" in await page.content())
                await context.close()
        await asyncio.gather(*map(show, urls))
        await browser.close()
        print(sum(built))
asyncio.run(main())
"""


def _data(request: ReceivedRequest, pages: int) -> Answer:
    n = int(request.path[5:-5])
    links = [f"/item/{child}" for child in (2 * n + 1, 2 * n + 2) if child < pages]
    words = f"words about item {n} " * 40
    return (
        200,
        {"Content-Type": "application/json"},
        json.dumps({"title": f"Item {n}", "text": words, "links": links}),
    )


def crawl_command(directory: str | Path, url: str) -> list[str]:
    """Return the command that crawls a site of this machine and renders each page in a browser."""
    return [*CRAWLER, "crawl", "--dir", str(directory), *FAST, "--render", "always", url]


def shop(pages: int) -> dict[str, Route]:
    """Return the routes of a site of `pages` pages."""
    site: dict[str, Route] = {"/": _SHELL}
    site |= {f"/item/{n}": _SHELL for n in range(1, pages)}
    site |= {f"/api/{n}.json": lambda request: _data(request, pages) for n in range(pages)}
    site |= {f"/{name}.js": (200, _SCRIPT, _LIBRARY.format(*[name] * 2000)) for name in ("one", "two")}
    return site | {"/app.js": (200, _SCRIPT, _APP), "/style.css": (200, _STYLE, "p { margin: 1em }")}


class Memory:
    """The largest memory, in bytes, that the processes of an account use while this context is open."""

    def __init__(self, account: Account) -> None:
        self._account, self._over = account, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most = 0

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, sum(map(proportional_memory, self._account.processes())))


def measured(command: list[str], **options: Any) -> tuple[float, float, int, str]:
    """Run a command. Return the wall and CPU seconds of the command, its maximum memory, and its output."""
    began = time.perf_counter()
    with Account() as account, Memory(account) as memory:
        ran = subprocess.run(
            [*account.prefix, *command], check=True, stdout=subprocess.PIPE, text=True, **options
        )
    return time.perf_counter() - began, account.cpu, memory.most, ran.stdout


def main() -> None:
    """Crawl the site, render its first pages with Playwright, and print both costs."""
    parser = harness.parser(__doc__)
    parser.option("--pages", 1000)
    parser.option("--playwright", "", metavar="PYTHON")
    parser.option("--compared", 100)
    args = parser.parse_args()
    with Web(shop(args.pages)) as web, tempfile.TemporaryDirectory() as folder:
        took, cpu, memory, _ = measured(crawl_command(folder, web.url()), stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (Path(folder) / "pages.jsonl").read_text().splitlines()]
        shown = sum("rendered" in line for line in lines)
        asked = Counter(web.paths())
        fetched = sum(asked[path] for path in _SHARED)
        needed = shown * (len(_SHARED) + 1)
        print(f"{shown} pages of one host rendered, {sum('cut_by' in line for line in lines)} of them cut")
        print(f"scripts and styles: {fetched} requests for {shown * len(_SHARED)} uses")
        print(f"subresources from the cache: {1 - (fetched + shown) / needed:.3f} of {needed}")
        table = harness.Table("          ", "pages", "    s", "CPU s a page", "MiB")
        table.row("crawler", shown, took, cpu / shown, memory >> 20)
        if args.playwright:
            urls = [web.url(), *(web.url(f"/item/{n}") for n in range(1, args.compared))]
            given = json.dumps([find_program(""), *urls])
            took, theirs, memory, built = measured([args.playwright, "-c", _PLAYWRIGHT], input=given)
            table.row("playwright", int(built), took, theirs / len(urls), memory >> 20)
            print(
                f"CPU: {cpu / shown / (theirs / len(urls)):.2f} of Playwright's, with fetching, archive and links"
            )


if __name__ == "__main__":
    main()
