"""The browser of a simulated process.

The DOM that the browser builds depends only on the page and on the answers to the page's requests.

If a page has the script `APP`, the browser requests this script, which all pages of a host share, and the
data of the page. The crawler's own code makes the requests for the script and for the data. The DOM is the
page with its data in place. Where the answers contain "page" and "data", the DOM contains "shown" and
"built", so that the judge can distinguish the DOM from the answers.
"""

import asyncio

from crawler.fetcher.fetch_request import split
from crawler.lab.cluster.synthetic_web import APP, DATA
from crawler.records import Fetch, Rendering
from crawler.render.rendering import StaticPage
from crawler.render.shared_answers import SharedAnswers

SHOWS_FOR = 0.3  # a browser needs this many seconds to render a page
_ROOT = b'<div id="root">'


class VirtualRenderer:
    """Stands in for the real renderer, without a browser."""

    given_up = False

    def __init__(self, shared: SharedAnswers) -> None:
        self._shared = shared

    async def render(self, page: StaticPage) -> Rendering:
        """Return the rendering of a page after its script has put its data in place."""
        rendering = Rendering(dom=b"", took=SHOWS_FOR)
        data = b""
        if APP.encode() in page.fetch.content:
            target = split(page.fetch.url)
            site = page.fetch.url.removesuffix(target.path)
            app = await self._ask(page, f"{site}{APP}", rendering, shared=True)
            if app.status == 200:
                data = (await self._ask(page, f"{site}{DATA}{target.path[1:]}", rendering)).content
        await asyncio.sleep(SHOWS_FOR)
        html = page.fetch.content.replace(_ROOT, _ROOT + data)
        rendering.dom = html.replace(b"<p>page ", b"<p>shown ").replace(b"<p>data ", b"<p>built ")
        return rendering

    async def _ask(self, page: StaticPage, url: str, rendering: Rendering, *, shared: bool = False) -> Fetch:
        async def ask() -> Fetch:
            fetch = await page.ask(url, "GET", (), b"")
            if fetch.status:
                rendering.subresources.append(fetch)
            return fetch

        fetch, cached = await self._shared.get(url, ask) if shared else (await ask(), False)
        rendering.requests += 1
        rendering.cached += cached
        rendering.missing += not fetch.status
        return fetch

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""
