"""Renders pages in a browser, and lets the crawler answer each of their requests. `visit.py` has the logic of a visit.

    render(page)    wait for a free slot -> the browser, started if need be -> a page of its own
                    -> navigate: the page's own answer, then its requests, one answer each
                    -> the page is over (`visit.py`) -> its DOM as HTML, a picture if wanted

Only one browser at a time receives new pages. It is replaced after `render.pages_per_browser` pages, when it
ends by itself, or when its memory exceeds `render.memory_bytes_max` although no single page is to blame.

A browser that does not answer is ended, too.

When a browser ends, each of its open pages is suspected of having caused the end. A suspect gets one more try,
in a browser of its own. So a hostile page only delays the other pages in its browser. If the page still has no
DOM after its visit, its `Rendering` contains only the reason and the answers that were fetched.
"""

import asyncio
import base64
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from crawler.config import Config, RenderConfig
from crawler.errors import CrawlerError, Unexpected
from crawler.records import Fetch, Outcome, PageFrame, Rendering
from crawler.render.answers import PIXEL, asked_body, asked_fields, error_reason, is_preflight, passed_fields
from crawler.render.browser import Browser, MissingBrowserError
from crawler.render.profile_folder import remove_abandoned
from crawler.render.protocol import BrowserError, Params, Session
from crawler.render.shared_answers import AnswerArchive, SharedAnswers
from crawler.render.shared_cache import SHARED
from crawler.render.visit import Answering, Paused, Visit

log = logging.getLogger("crawler")

WATCH_INTERVAL = 1.0  # seconds between two measurements of a page's CPU time and of the browser's memory
_LISTEN_MAX = 15.0  # maximum time until an empty page is ready to be used, in seconds
_READ_MAX = 5.0  # maximum time to read the DOM, in seconds; a page's scripts may never yield
_STOPPED_MAX = 15.0  # maximum time to read the DOM after the page's scripts were stopped, in seconds
# if a visit ends for one of these reasons, the page has no DOM to read
_NO_DOM = frozenset({"crash", "navigation"})
# if the browser does not report that an answer has arrived, the answer counts as received after this many
# seconds
_DELIVERY_MAX = 3.0
_CHILDREN_MAX = 20  # maximum number of workers and frames of other sites, counted together, per page
_WITHOUT = (
    "; the crawl continues without a browser and stores the answers unrendered; it tries to start a browser again "
    "every 10 minutes"
)
# The URLs of frames whose content comes from the page itself begin with one of these. Such frames have no
# origin of their own.
_OF_THE_PAGE = ("about:", "blob:", "data:")
_BODY_DEPTH = 3  # depth of a frame's body below the frame's element: document, html, body
# After this many failed starts in a row, or if there is no browser, rendering pauses for `_PAUSE` seconds. Then a
# single start is tried, because the browser may only have been replaced by an update.
_STARTS_MAX, _PAUSE = 3, 600.0

# A function that takes (url, method, header lines, body) and returns an answer; it never raises an exception.
Ask = Callable[[str, str, tuple[str, ...], bytes], Awaitable[Fetch]]


class _Delivery(NamedTuple):
    """An answer on its way to the page. When `timer` fires, the answer counts as received."""

    nbytes: int
    usable: bool
    cached: bool
    timer: asyncio.TimerHandle


class StaticPage(NamedTuple):
    """A page to render: the response to its static fetch, and the function that answers the requests of the page."""

    fetch: Fetch
    ask: Ask


class Renderer(Protocol):
    """Renders pages in a browser."""

    @property
    def given_up(self) -> bool:
        """True if no page is rendered at present, because no browser starts."""

    async def render(self, page: StaticPage) -> Rendering | None:
        """Return the page as a browser renders it; None if there is no browser.

        If the page could not be rendered, the result has no DOM.
        """

    async def close(self) -> None:
        """End the browsers."""


MakeRenderer = Callable[[Config, AnswerArchive, Callable[[], float], Unexpected], Renderer]


class BrowserRenderer:
    """Renders in two kinds of browsers, started when needed: one for most pages, one for suspects of a crash."""

    def __init__(
        self,
        config: RenderConfig,
        user_agent: str,
        unexpected: Unexpected,
        shared: SharedAnswers,
        time: Callable[[], float] = time.monotonic,
    ) -> None:
        self._time = time
        self._config = config
        self._shared = shared
        self._user_agent = user_agent
        self._unexpected = unexpected
        self._places = asyncio.Semaphore(min(config.pages, len(os.sched_getaffinity(0))))
        self._browser: Browser | None = None
        self._retired: set[Browser] = set()
        self._starting = asyncio.Lock()
        # held while a suspect (a page that was open when a browser ended) has a browser of its own
        self._alone = asyncio.Lock()
        self._failures = 0  # number of failed starts since the last successful one
        self._again_at = -math.inf  # no browser is started before this instant
        self._watching: asyncio.Task[None] | None = None

    @property
    def given_up(self) -> bool:
        return self._time() < self._again_at

    async def render(self, page: StaticPage) -> Rendering | None:
        async with self._places:
            browser = await self._ready()
            if browser is None:
                return None
            rendering = await self._run(page, browser)
            if rendering.dom or browser.session.pipe.open:
                return rendering
            return await self._run_alone(page, rendering)

    async def _run_alone(self, page: StaticPage, first: Rendering) -> Rendering:
        """Render a page again, in a new browser, because its browser has ended. `first` is the failed rendering."""
        async with self._alone:
            browser = await self._started()
            if browser is None:
                return first
            # a retired browser gets no further page, and is closed after the present page
            self._retired.add(browser)
            rendering = await self._run(page, browser)
        rendering.subresources = first.subresources + rendering.subresources
        return rendering

    async def _run(self, page: StaticPage, browser: Browser) -> Rendering:
        """Render a page in a browser. The rendering has no DOM if the page could not be rendered."""
        browser.in_use += 1
        run = PageRun(page, browser, self._config, self._shared)
        try:
            return await run.run()
        except BrowserError as error:
            log.debug("%s: not rendered: %s", page.fetch.url, error)
            await browser.end_if_hung()
            return run.without_dom()
        except Exception as error:
            self._unexpected.note(error, f"rendering {page.fetch.url}")
            return run.without_dom()
        finally:
            browser.in_use -= 1
            await self._discard_retired()

    async def _ready(self) -> Browser | None:
        """Return the browser for the next page, after starting one if needed; None if no browser can be started."""
        async with self._starting:
            if self._browser is not None and self._browser.pages >= self._config.pages_per_browser:
                self._retire(self._browser)
            if self._browser is None:
                self._browser = await self._started()
            return self._browser

    async def _started(self) -> Browser | None:
        """Return a new browser; None if several starts in a row have failed."""
        while not self.given_up:
            browser = Browser(self._config, self._user_agent, self._ended)
            try:
                await browser.start()
            except (CrawlerError, OSError) as error:
                if self._pauses_after(error):
                    return None
                continue
            self._note_start()
            return browser
        return None

    def _pauses_after(self, error: Exception) -> bool:
        """Note that a start has failed. Return whether rendering pauses now."""
        self._failures += _STARTS_MAX if isinstance(error, MissingBrowserError) else 1
        pauses = self._failures >= _STARTS_MAX
        if pauses:
            self._again_at = self._time() + _PAUSE
        if self._failures in (1, _STARTS_MAX):
            log.error("rendering: %s%s", error, _WITHOUT if pauses else "")
        return pauses

    def _note_start(self) -> None:
        """Note that a browser was started."""
        if self._failures >= _STARTS_MAX:
            log.warning("rendering: a browser was started; pages are rendered again")
        self._failures = 0
        if self._watching is not None:
            return
        if not self._config.sandbox:
            log.warning("rendering: the browser runs without its sandbox (render.sandbox = false)")
        self._watching = asyncio.create_task(self._watch())

    def _ended(self, browser: Browser) -> None:
        """Retire a browser that has ended by itself, so that the next page gets a new browser."""
        if browser is self._browser:
            self._retire(browser)

    def _retire(self, browser: Browser) -> None:
        """Give a browser no more pages, and let it be closed after its last page."""
        if self._browser is browser:
            self._browser = None
        self._retired.add(browser)

    async def _discard_retired(self) -> None:
        for browser in [browser for browser in self._retired if not browser.in_use]:
            self._retired.discard(browser)
            await browser.close()

    async def _watch(self) -> None:
        """Measure the work and the memory of browsers at intervals."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            for browser in [self._browser, *self._retired]:
                if browser is not None and browser.in_use:
                    with suppress(BrowserError, TimeoutError):
                        await asyncio.wait_for(browser.measure(), WATCH_INTERVAL)
                    await self._limit_memory(browser)
            await self._discard_retired()

    async def _limit_memory(self, browser: Browser) -> None:
        """If a browser exceeds its memory limit, end its largest page or, if no page is to blame, the browser."""
        memory = await asyncio.to_thread(browser.memory)
        used = sum(memory.values())
        if used <= self._config.memory_bytes_max:
            return
        relieved = browser.relieve(memory)
        ended = "its largest page was ended" if relieved else "it was ended"
        log.warning("rendering: the browser used %d MiB of memory; %s", used >> 20, ended)
        if not relieved:
            self._retire(browser)
            browser.kill()

    async def close(self) -> None:
        """End the browsers."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        if self._browser is not None:
            self._retire(self._browser)
        while self._retired:
            await self._retired.pop().close()
        await asyncio.to_thread(remove_abandoned)


class PageRun:
    """The work of showing one page in the browser, from an empty page to the DOM."""

    def __init__(
        self, page: StaticPage, browser: Browser, config: RenderConfig, shared: SharedAnswers
    ) -> None:
        self._page = page
        self._browser = browser
        self._config = config
        self._shared = shared
        self._began = time.monotonic()
        self._visit = Visit(page.fetch.url, config, self._began)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._children = 0
        self._sessions: list[Session] = []  # the session of the page, then those of its frames and workers
        self._target = self._context = ""
        self._frames: list[PageFrame] = []
        self._has_frames = False
        self._cpu = 0.0
        self._fetched: list[Fetch] = []
        # answers that the page has not received yet, by network id
        self._delivering: dict[str, _Delivery] = {}

    async def run(self) -> Rendering:
        """Render the page and return its rendering.

        Raises:
            BrowserError: the browser has ended, or has no DOM for the page.
        """
        session, self._target, self._context = await self._browser.open_page()
        self._sessions.append(session)
        try:
            await self._show(session)
            dom, view = await self._read(session)
            await self._measure()
        finally:
            for task in self._tasks:
                task.cancel()
            for delivery in self._delivering.values():
                delivery.timer.cancel()
            for attached in self._sessions:
                attached.listen(None)
            if session.pipe.open:
                self._browser.close_page(self._context)
        if len(dom) + sum(len(frame.html) for frame in self._frames) > self._config.bytes_max:
            self._visit.end("bytes")
            raise BrowserError("the DOM is larger than render.bytes_max")
        return self._rendering(dom, view)

    def without_dom(self) -> Rendering:
        """Return a rendering without a DOM: the answers that were fetched, and the reason (`broke`)."""
        self._visit.end("crash")
        return self._rendering(b"", b"")

    def _rendering(self, dom: bytes, view: bytes) -> Rendering:
        visit = self._visit
        return Rendering(
            dom=dom,
            subresources=self._fetched,
            requests=visit.requests,
            cached=visit.cached,
            missing=visit.missing,
            took=time.monotonic() - self._began,
            broke=visit.broke,
            left_for=visit.left_for,
            view=view,
            cpu=self._cpu,
            frames=self._frames,
        )

    # -- showing

    async def _show(self, session: Session) -> None:
        """Navigate to the page, and answer requests until the visit is over."""
        try:
            await asyncio.wait_for(self._listen(session), _LISTEN_MAX)
        except TimeoutError as error:
            raise BrowserError("the empty page does not answer") from error
        self._start(self._navigate(session))
        self._start(self._watch_work())
        while not self._visit.is_over(now := time.monotonic()):
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(0.001, self._visit.next_wakeup() - now))
            if not session.pipe.open:
                raise BrowserError("the browser has ended")

    async def _listen(self, session: Session) -> None:
        """Handle the requests and events of a page, or of one of its frames or workers."""
        session.listen(partial(self._on_event, session))
        is_page = session is self._sessions[0]
        enabled = ("Network.enable", "Page.enable", "Inspector.enable") if is_page else ("Network.enable",)
        results = await asyncio.gather(
            session.call("Fetch.enable", patterns=[{"urlPattern": "*"}]),
            session.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True),
            *map(session.call, enabled),
            return_exceptions=True,
        )
        if is_page and (wrong := [result for result in results if isinstance(result, BaseException)]):
            raise wrong[0]
        if is_page:
            session.tell("Network.setBypassServiceWorker", bypass=True)
        session.tell("Runtime.runIfWaitingForDebugger")

    def _on_event(self, session: Session, method: str, params: Params) -> None:
        match method:
            case "Fetch.requestPaused":
                self._paused(session, params)
            case "Target.attachedToTarget":
                self._attached(session, params)
            case "Page.frameAttached":
                self._has_frames = True
            case "Page.loadEventFired":
                self._visit.loaded(time.monotonic())
            case "Network.loadingFinished" | "Network.loadingFailed":
                self._delivered(params["requestId"])
            case "Page.javascriptDialogOpening":
                session.tell("Page.handleJavaScriptDialog", accept=False)
            case "Inspector.targetCrashed" | "Inspector.detached":
                if session is self._sessions[0]:
                    self._visit.end("crash")
        self._news.set()

    def _attached(self, session: Session, params: Params) -> None:
        """Intercept the requests of a new worker or foreign frame, and then let it run. Service workers never run."""
        kind, target = params["targetInfo"]["type"], params["targetInfo"]["targetId"]
        self._children += 1
        if self._children > _CHILDREN_MAX or kind not in ("iframe", "worker", "shared_worker"):
            session.tell("Target.detachFromTarget", sessionId=params["sessionId"])
            if kind in ("page", "service_worker", "shared_worker"):
                self._browser.session.tell("Target.closeTarget", targetId=target)
            return
        child = Session(session.pipe, params["sessionId"])
        self._sessions.append(child)
        self._start(self._listen(child))

    async def _navigate(self, session: Session) -> None:
        try:
            result = await session.call("Page.navigate", url=self._page.fetch.url)
        except BrowserError:
            return
        if result.get("errorText"):
            self._visit.end("navigation")
            self._news.set()

    async def _watch_work(self) -> None:
        """At intervals, report the CPU time of the page, with its frames and workers, to the visit."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            self._cpu = self._browser.worked(self._context)
            self._visit.worked(self._cpu)
            self._news.set()

    async def _measure(self) -> None:
        """Measure the total CPU time of the page, which is written to the page's metadata record."""
        with suppress(BrowserError, TimeoutError):
            await asyncio.wait_for(self._browser.measure(), WATCH_INTERVAL)
        self._cpu = self._browser.worked(self._context)

    # -- requests

    def _paused(self, session: Session, params: Params) -> None:
        request = params["request"]
        self._delivered(params.get("networkId", ""))  # all requests of a redirect chain have the same id
        paused = Paused(
            url=request["url"],
            method=request["method"],
            kind=params.get("resourceType", ""),
            main_frame=params.get("frameId") == self._target,
            preflight=is_preflight(request["method"], request["headers"]),
        )
        match self._visit.decide(paused, time.monotonic()):
            case Answering.DOCUMENT:
                _fulfil(session, params["requestId"], self._page.fetch)
            case Answering.FETCH:
                network = params.get("networkId", "")
                self._start(self._answer(session, params["requestId"], network, paused, request))
            case Answering.EMPTY:
                _empty(session, params["requestId"], paused.kind)
            case Answering.STAY:
                session.tell("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=204)
            case Answering.REFUSE:
                _refuse(session, params["requestId"], "BlockedByClient")

    async def _answer(
        self, session: Session, identity: str, network: str, paused: Paused, request: Params
    ) -> None:
        url = paused.url.partition("#")[0]

        async def ask() -> Fetch:
            body = asked_body(request) if paused.method == "POST" else b""
            fetch = await self._page.ask(url, paused.method, asked_fields(request["headers"]), body)
            if fetch.status:
                self._fetched.append(fetch)
            return fetch

        cached = False
        if paused.kind in SHARED and paused.method == "GET":
            fetch, cached = await self._shared.get(url, ask)
        else:
            fetch = await ask()
        usable = bool(fetch.status) and fetch.outcome is not Outcome.TRUNCATED
        if usable:
            _fulfil(session, identity, fetch)
        else:
            _refuse(session, identity, error_reason(fetch))
        self._delivered(network)
        timer = asyncio.get_running_loop().call_later(_DELIVERY_MAX, self._delivered, network)
        self._delivering[network] = _Delivery(len(fetch.content), usable, cached, timer)
        if not network:
            self._delivered(network)

    def _delivered(self, network: str) -> None:
        """Note that an answer has reached the page. From now on, the page can request what the answer refers to."""
        delivery = self._delivering.pop(network, None)
        if delivery is not None:
            delivery.timer.cancel()
            self._visit.answered(
                delivery.nbytes, time.monotonic(), usable=delivery.usable, cached=delivery.cached
            )
            self._news.set()

    # -- reading

    async def _read(self, session: Session) -> tuple[bytes, bytes]:
        """Return the DOM as HTML, and a screenshot if one is wanted. Scripts that do not yield are stopped.

        Raises:
            BrowserError: the page has no DOM.
        """
        if self._visit.broke in _NO_DOM:
            raise BrowserError(self._visit.broke)
        if not self._visit.broke:
            try:
                return await asyncio.wait_for(self._dom(session), _READ_MAX), await self._view(session)
            except TimeoutError:
                self._visit.end("time")
        session.tell("Runtime.terminateExecution")
        session.tell("Emulation.setScriptExecutionDisabled", value=True)
        session.tell("Network.setBlockedURLs", urlPatterns=[{"urlPattern": "*", "block": True}])
        session.tell("Page.stopLoading")
        try:
            return await asyncio.wait_for(self._dom(session), _STOPPED_MAX), await self._view(session)
        except TimeoutError as error:
            raise BrowserError("the page's scripts could not be stopped") from error

    async def _dom(self, session: Session) -> bytes:
        """Return the DOM of the page as HTML, and note the contents of the page's frames."""
        dom = await _outer_html(session)
        if self._has_frames:
            self._frames = await _own_frames(session)
        return dom

    async def _view(self, session: Session) -> bytes:
        """Return a screenshot of the page if one is wanted, else b""."""
        if self._config.screenshot:
            with suppress(TimeoutError, BrowserError):
                shot = await asyncio.wait_for(session.call("Page.captureScreenshot", format="png"), _READ_MAX)
                return base64.b64decode(shot["data"])
        return b""

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, BrowserError):
                log.debug("%s: %r", self._page.fetch.url, error)
            self._visit.end("crash")
            self._news.set()


async def _outer_html(session: Session) -> bytes:
    root = await session.call("DOM.getDocument", depth=0)
    made = await session.call("DOM.getOuterHTML", nodeId=root["root"]["nodeId"], includeShadowDOM=True)
    return str(made["outerHTML"]).encode("utf-8", "replace")


async def _own_frames(session: Session) -> list[PageFrame]:
    """Return the contents of the frames that belong to the page, in an order that does not depend on loading times.

    These are the frames with the origin of the page, and the frames that have no origin of their own, such as
    `srcdoc`.
    """
    tree = (await session.call("Page.getFrameTree"))["frameTree"]
    origin, frames = tree["frame"].get("securityOrigin"), _below(tree)
    own = [
        frame
        for frame in frames
        if frame.get("securityOrigin") == origin or frame["url"].startswith(_OF_THE_PAGE)
    ]
    reads = (_frame(session, frame["id"]) for frame in own[:_CHILDREN_MAX])
    found = await asyncio.gather(*reads, return_exceptions=True)
    return sorted(frame for frame in found if isinstance(frame, PageFrame) and frame.html)


def _below(tree: Params) -> list[Params]:
    """Return all frames below the root of a frame tree."""
    return [each for child in tree.get("childFrames", ()) for each in (child["frame"], *_below(child))]


async def _frame(session: Session, identity: str) -> PageFrame:
    """Return the contents of a frame, with an empty `html` if it has no body.

    Raises:
        BrowserError: the frame is gone.
    """
    owner = await session.call("DOM.getFrameOwner", frameId=identity)
    named = {"backendNodeId": owner["backendNodeId"], "depth": _BODY_DEPTH, "pierce": True}
    document = (await session.call("DOM.describeNode", **named))["node"].get("contentDocument", {})
    nodes = [node for root in document.get("children", ()) for node in root.get("children", ())]
    body = next((node for node in nodes if node["nodeName"] in ("BODY", "FRAMESET")), None)
    html = b""
    if body is not None:
        made = await session.call(
            "DOM.getOuterHTML", backendNodeId=body["backendNodeId"], includeShadowDOM=True
        )
        html = str(made["outerHTML"]).encode("utf-8", "replace")
    return PageFrame(document.get("documentURL", ""), document.get("baseURL", ""), html)


def _fulfil(session: Session, identity: str, fetch: Fetch) -> None:
    session.tell(
        "Fetch.fulfillRequest",
        requestId=identity,
        responseCode=fetch.status,
        responseHeaders=passed_fields(fetch),
        body=base64.b64encode(fetch.content).decode(),
    )


def _empty(session: Session, identity: str, kind: str) -> None:
    """Answer a request for an image with one pixel, so that the page loads it; refuse requests for other media."""
    if kind != "Image":
        return _refuse(session, identity, "BlockedByClient")
    session.tell(
        "Fetch.fulfillRequest",
        requestId=identity,
        responseCode=200,
        responseHeaders=[
            {"name": "Content-Type", "value": "image/gif"},
            {"name": "Access-Control-Allow-Origin", "value": "*"},
        ],
        body=base64.b64encode(PIXEL).decode(),
    )


def _refuse(session: Session, identity: str, reason: str) -> None:
    session.tell("Fetch.failRequest", requestId=identity, errorReason=reason)
