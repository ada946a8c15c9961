"""One page in the browser. This module decides how each request is answered, and when the page has finished loading.

`Visit` receives the browser's reports and the time `now` from its caller. It never waits:

    decide(request)     returns how the shell answers a request that the browser has paused
    answered(...)       notes that this request has got its answer
    next_wakeup()       returns when to call `is_over` again
    is_over(now)        returns whether the page has finished: it has loaded, no request is outstanding, and no
                        request has begun or ended for `render.quiet`; or a limit was reached (see `broke`)

Once a limit or a failure has ended the visit, all further requests are refused. The crawler's own fetcher
answers every request. So the requests that this module lets through are still subject to robots.txt, the gap
of their host and the address guard.
"""

from enum import StrEnum
from typing import NamedTuple

from crawler.config import RenderConfig

PICTURES = frozenset({"Image", "Media", "Font"})  # resource types that affect only the look of the page
ENDLESS = frozenset({"EventSource", "WebSocket", "Ping", "CSPViolationReport", "Prefetch"})
_SCHEMES = ("http://", "https://")
_URL_CHARS_MAX = 8192

# A page that never stops sending requests counts as finished this many seconds after it has loaded.
RESTLESS = 10.0


class Paused(NamedTuple):
    """A request that the browser has paused. `kind` is the resource type in the terms of the protocol.

    `preflight` means that the browser itself makes the request, to ask whether another origin permits a
    request (Fetch standard, 3.3.8).
    """

    url: str
    method: str
    kind: str
    main_frame: bool
    preflight: bool = False


class Answering(StrEnum):
    """The ways to answer a paused request."""

    DOCUMENT = "document"  # answer with the page itself, which the crawler already has
    FETCH = "fetch"  # answer with what the crawler's fetcher gets
    EMPTY = "empty"  # answer with an image of one pixel, or with an error, because pictures are not wanted
    STAY = "stay"  # answer with status 204, so that the browser stays on the page
    REFUSE = "refuse"


class Visit:
    """One page from its navigation to its last request. Times are in seconds."""

    def __init__(self, url: str, config: RenderConfig, now: float) -> None:
        self.url = url
        self._config = config
        self._began = now
        self._last = now  # the instant at which a request last began or ended
        self._loaded_at = 0.0
        self._navigated = False
        self.outstanding = 0
        self.requests = 0
        self.missing = 0  # requests that got no usable answer
        self.cached = 0  # requests answered from the cache of scripts and styles
        self.nbytes = 0  # decoded bytes of all answers
        self.left_for = ""  # the URL that the page tried to go to
        self.broke = ""  # the limit or failure that ended the visit; "" if none did

    def decide(self, request: Paused, now: float) -> Answering:
        """Return how a paused request is to be answered. After FETCH, the caller must also call `answered`."""
        if request.kind == "Document" and request.main_frame:
            return self._navigate(request)
        self._last = now
        self.requests += 1
        if self.requests > self._config.requests_max:
            self.end("requests")
        if self.broke or not _may_pass(request, post=self._config.post):
            self.missing += 1
            return Answering.REFUSE
        if request.kind in PICTURES and not self._config.images:
            return Answering.EMPTY
        self.outstanding += 1
        return Answering.FETCH

    def _navigate(self, request: Paused) -> Answering:
        """Answer the first navigation with the page. Refuse later ones, which would leave the page."""
        if not self._navigated:
            self._navigated = True
            return Answering.DOCUMENT
        if not self.left_for and request.url != self.url and request.url.startswith(_SCHEMES):
            self.left_for = request.url[:_URL_CHARS_MAX]
            self.loaded(self._last)  # if the page tried to leave, its own load event may never fire
        return Answering.STAY

    def answered(self, nbytes: int, now: float, *, usable: bool, cached: bool = False) -> None:
        """Note that a request has failed, or has received its answer of `nbytes` decoded bytes."""
        self.outstanding -= 1
        self._last = now
        self.missing += not usable
        self.cached += cached
        self.nbytes += nbytes
        if self.nbytes > self._config.bytes_max:
            self.end("bytes")

    def loaded(self, now: float) -> None:
        """Note that the page's load event has fired. That of the initial empty page does not count."""
        if self._navigated:
            self._loaded_at = self._loaded_at or now

    def worked(self, seconds: float) -> None:
        """Note the CPU seconds that the page has used, or the seconds for which its main thread has not answered."""
        if seconds > self._config.cpu_max:
            self.end("cpu")

    def end(self, why: str) -> None:
        """End the visit early. `why` names the limit or failure that is the reason. Only the first call counts."""
        self.broke = self.broke or why

    def next_wakeup(self) -> float:
        """Return the instant at which `is_over` may become true without another event."""
        if self.broke:
            return self._last
        at = self._began + self._config.wall_max
        if self._loaded_at:
            at = min(at, self._loaded_at + RESTLESS)
            if not self.outstanding:
                at = min(at, max(self._last, self._loaded_at) + self._config.quiet)
        return at

    def is_over(self, now: float) -> bool:
        """Return whether the page has finished or reached a limit, so that its DOM can be read."""
        if now >= self._began + self._config.wall_max:
            self.end("time")
        return bool(self.broke) or now >= self.next_wakeup()

    def _check(self) -> None:
        assert 0 <= self.outstanding <= self.requests, self
        assert self.missing <= self.requests, self

    def __repr__(self) -> str:
        return f"Visit({self.url}, {self.requests} requests, {self.outstanding} outstanding, {self.broke!r})"


def _may_pass(request: Paused, *, post: bool) -> bool:
    """Return whether the crawler makes this request for the page.

    The crawler makes GET requests, CORS preflights and, with `post`, POST requests. The crawler makes no
    request for a stream, for `/favicon.ico`, for a very long URL, or for a URL that is not http or https.
    """
    if (
        request.url.endswith("/favicon.ico")
        or request.kind in ENDLESS
        or not request.url.startswith(_SCHEMES)
        or len(request.url) > _URL_CHARS_MAX
    ):
        return False
    if request.method == "POST":
        return post
    return request.method == "GET" or request.preflight
