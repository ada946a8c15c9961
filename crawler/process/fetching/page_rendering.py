"""Shows the page of a fetch task in a browser if that is worth its cost, and uses the DOM as the page's content.

    static answer -> its links and text -> is it worth a browser? (`render/deciding.py`)
    yes -> the browser shows it; the requests that this needs are made politely (`subresources.py`)
        -> links, title and directives of the DOM, and the links of the static answer that the DOM lost

If no browser can show a new page, its static answer is stored. The next fetch of the page tries a browser
again, even if the static answer is unchanged. If a browser showed the page before, its stored copy is kept,
because the static answer is usually an empty shell and would look like a change. What the static answer forbids
applies to this copy (`prohibitions`). Under `auto`, if no browser
could show a page, the next attempt is not made before `RenderingFacts.again_at`. Only a crawl that renders
pages imports this module, and with it the modules of the browser.

    Whether a page is shown is decided by its request or seed (`LinkFlag.RENDER`, `STATIC`), else by `[[override]]`,
    else by `render.when`.
"""

import asyncio
import html
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from crawler.config import Config, Overrides
from crawler.extract.rewrite import rewrite_html
from crawler.fetcher.cookies import jar_begun_by
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.fetcher.outcome import blame_of
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.subresources import Subresources
from crawler.records import (
    NO_PAGE,
    Extracted,
    Fetch,
    FetchTask,
    LinkFlag,
    Outcome,
    PageFrame,
    PageRecord,
    Rendering,
    RenderingFacts,
)
from crawler.render.deciding import Deciding, Signs, adds, signs, wait_after
from crawler.render.rendering import Renderer, StaticPage
from crawler.storage.commit import Change
from crawler.urls.media_type import is_page, may_be_page
from crawler.urls.page_urls import resolved

MakeSubresources = Callable[[FetchTask, FetchRequest], Subresources]


class PageRendering:
    """Renders the pages of one process.

    `subresources` sends the requests of a page. `step_aside` frees the address of a fetch task that has got an
    answer, and also its fetch slot unless too many tasks have stepped aside. The store contains what earlier runs
    have learned about renderings.
    """

    def __init__(
        self,
        config: Config,
        parts: FetchParts,
        *,
        subresources: MakeSubresources,
        step_aside: Callable[[FetchTask, Fetch], None],
        renderer: Renderer,
    ) -> None:
        self.configure(config)
        self._read, self._known = parts.reader.read, parts.earlier.known_record
        self._in_scope = parts.in_scope
        self._now, self._keeps_cookies = parts.clock.now, parts.config.fetch.cookies is True
        self._subresources = subresources
        self._step_aside = step_aside
        self._deciding = Deciding(config.render)
        self._deciding.load(parts.store)
        self._renderer = renderer

    def configure(self, config: Config) -> None:
        """Apply a configuration. The configuration determines which pages a browser shows."""
        self._when, self._wall_max = config.render.when, config.render.wall_max
        self._overrides = Overrides(config.override)

    async def render(
        self, fetch_task: FetchTask, fetch: Fetch, static: Extracted, request: FetchRequest
    ) -> Extracted:
        """Render a page if that is worth its cost.

        Put the rendering into `fetch`, and return the content of the DOM. Without a rendering, return `static`.

        If a browser showed the page before, but none can show it now, turn `fetch` into a failure and return
        only the `prohibitions` of the static answer.
        """
        when = self._when_of(fetch_task, fetch.url)
        if when == "never" or fetch.outcome is not Outcome.FETCHED:
            return static
        if not is_page(fetch.content_type, fetch.content):
            return static
        before = await asyncio.to_thread(signs, fetch.content)
        record = self._known(fetch_task)
        why = when if when != "auto" else self._reason(fetch_task, fetch, before, record)
        if not why:
            return static
        earlier = _failures(record)
        if when == "auto" and earlier is not None and fetch.began < earlier.again_at:
            fetch.held_back = True
            return self._not_shown(record, fetch, static)
        rendering, shown = await self._show(fetch_task, fetch, request)
        fetch.rendering = rendering
        if rendering is not None:
            rendering.why, rendering.candidate = why, before.candidate
        if rendering is not None and shown is None:
            rendering.failures = 1 + (0 if earlier is None else earlier.failures)
            rendering.again_at = fetch.began + wait_after(rendering.failures)
        if rendering is None or shown is None:
            return self._not_shown(record, fetch, static)
        new_links = self._new_links(static, shown)
        after = await asyncio.to_thread(signs, rendering.dom)
        rendering.added = adds(before, after, new_links)
        return merged(static, shown, rendering.left_for)

    def is_due(self, fetch_task: FetchTask) -> bool:
        """Return whether a known page must be rendered even if its static answer is unchanged.

        This is the case if the stored copy is a static answer, but the page should now be rendered. Either no
        browser could show the page at that time, or the configuration has changed since.
        """
        record = self._known(fetch_task)
        if record is None or record.rendered or not may_be_page(record.content_type):
            return False
        when, failed = self._when_of(fetch_task, record.url), _failures(record)
        return when in ("always", "request") or (when == "auto" and failed is not None)

    def _reason(self, fetch_task: FetchTask, fetch: Fetch, seen: Signs, record: PageRecord | None) -> str:
        """Return why `auto` renders a page; "" if it does not.

        If an earlier rendering of this page added content, the page is rendered again. Otherwise, the results
        of rendering similar pages decide (`Deciding.why`).
        """
        if record is not None and record.rendered and record.shown is not None and record.shown.added:
            return "again"
        return self._deciding.why(fetch_task.host, fetch.url, seen)

    def _when_of(self, fetch_task: FetchTask, url: str) -> str:
        """Return "never", "auto" or "always"; or "request" if the request for the page demands a browser."""
        flags = fetch_task.flags
        if flags & NO_PAGE or flags & LinkFlag.STATIC:
            return "never"
        if flags & LinkFlag.RENDER:
            return "request"
        if flags & LinkFlag.OWN_REQUEST:
            return "never"
        return self._overrides.for_url(url, fetch_task.hostname).render or self._when

    async def _show(
        self, fetch_task: FetchTask, fetch: Fetch, request: FetchRequest
    ) -> tuple[Rendering | None, Extracted | None]:
        """Return the rendering of the page, and the content extracted from its DOM. Either is None if it failed."""
        if self._renderer.given_up:
            return None, None
        self._step_aside(fetch_task, fetch)
        if request.jar is None and not self._keeps_cookies:
            jar = jar_begun_by(split(fetch.url), fetch.headers, self._now())
            request = msgspec.structs.replace(request, jar=jar)
        subresources = self._subresources(fetch_task, request)
        rendering = await self._renderer.render(
            StaticPage(fetch, partial(subresources.ask, patience=self._wall_max))
        )
        if rendering is None:
            return None, None
        rendering.host_took = subresources.own_host_took
        if rendering.dom and rendering.frames:
            rendering.dom = await asyncio.to_thread(with_frames, rendering.dom, rendering.frames, fetch.url)
            rendering.frames = []
        shown = await self._read(fetch_task, as_page(fetch, rendering)) if rendering.dom else None
        if shown is None:
            rendering.dom = b""
        return rendering, shown

    @staticmethod
    def _not_shown(record: PageRecord | None, fetch: Fetch, static: Extracted) -> Extracted:
        """Return the content of the static answer.

        But if a browser showed the page before, make the fetch fail, and return only the `prohibitions`.
        """
        if record is None or not record.rendered:
            return static
        fetch.outcome, fetch.blame = Outcome.NOT_RENDERED, blame_of(Outcome.NOT_RENDERED)
        fetch.error = "no browser could show the page"
        return prohibitions(static)

    def learn(self, fetch_task: FetchTask, fetch: Fetch, change: Change) -> None:
        """Learn whether the rendering of pages of this kind adds content. Store this fact with the change.

        A failed rendering counts as one that added nothing.
        """
        if (rendering := fetch.rendering) is not None:
            self._deciding.learn(
                fetch_task.host, fetch.url, candidate=rendering.candidate, added=rendering.added, batch=change
            )

    def _new_links(self, static: Extracted, shown: Extracted) -> int:
        """Return the number of links in scope that only the rendered page contains."""
        found = {*resolved(shown, set(shown.hrefs) - set(static.hrefs))} - {*resolved(static, static.hrefs)}
        return sum(map(self._in_scope, found))

    async def close(self) -> None:
        """End the browser."""
        await self._renderer.close()


def _failures(record: PageRecord | None) -> RenderingFacts | None:
    """Return the facts about the latest renderings of a page if they failed; otherwise None."""
    facts = None if record is None else record.shown
    return facts if facts is not None and facts.failures else None


def with_frames(dom: bytes, frames: Sequence[PageFrame], url: str) -> bytes:
    """Return the DOM followed by the contents of its frames, as shadow roots, with absolute links.

    >>> with_frames(b"<p>page", [PageFrame("about:srcdoc", "http://a.org/b/", b'<a href="c">c</a>')], "http://a.org/")
    b'<p>page<div data-frame="about:srcdoc"><template shadowrootmode="open"><a href="http://a.org/b/c">c</a></template></div>'
    """
    parts = [dom]
    for frame in frames:
        base = frame.base if frame.base.startswith(("http://", "https://")) else url
        body = rewrite_html(frame.html, "utf-8", base, lambda target, _: target)
        name = html.escape(frame.url).encode("utf-8", "replace")
        parts.append(
            b'<div data-frame="%b"><template shadowrootmode="open">%b</template></div>' % (name, body)
        )
    return b"".join(parts)


def as_page(fetch: Fetch, rendering: Rendering) -> Fetch:
    """Return the answer with the DOM as its content."""
    return msgspec.structs.replace(
        fetch,
        body=rendering.dom,
        content=rendering.dom,
        content_type="text/html",
        charset="utf-8",
        rendering=None,
    )


def prohibitions(static: Extracted) -> Extracted:
    """Return only what a static answer says about the use of its page: its directives and statements, but no link."""
    return Extracted(
        base=static.base,
        encoding=static.encoding,
        noindex=static.noindex,
        noarchive=static.noarchive,
        parse_limit=static.parse_limit,
        metas=static.metas,
        statements=static.statements,
        licenses=static.licenses,
    )


def merged(static: Extracted, shown: Extracted, left_for: str) -> Extracted:
    """Return the content of the DOM, plus those directives and links of the static answer that the DOM lacks."""
    shown.nofollow = shown.nofollow or static.nofollow
    shown.noindex = shown.noindex or static.noindex
    shown.noarchive = shown.noarchive or static.noarchive
    shown.metas |= static.metas if static.metas > 0 else 0
    shown.statements = list(dict.fromkeys((*static.statements, *shown.statements)))
    shown.licenses = list(dict.fromkeys((*static.licenses, *shown.licenses)))
    shown.encoding = static.encoding
    shown.refresh = shown.refresh or static.refresh or left_for
    if shown.nofollow:
        return shown
    known = set(shown.hrefs)
    anchors = static.anchors or [""] * len(static.hrefs)
    for href, anchor in zip(static.hrefs, anchors, strict=False):
        if href not in known:
            shown.hrefs.append(href)
            if shown.anchors:
                shown.anchors.append(anchor)
    return shown
