"""Builds the requests of fetch tasks: limits, conditions, the values set by `[[override]]`, and headers with secrets."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from crawler.clock import Clock
from crawler.config import Config, Overrides
from crawler.fetcher.fetch_request import HTTP, FetchRequest
from crawler.fetcher.fetchers import Fetcher, NameResolver
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.file_bodies import FileBodies
from crawler.process.fetching.reader import Reader
from crawler.process.results.earlier_copies import EarlierCopies
from crawler.process.results.result_processor import ResultProcessor
from crawler.records import Fetch, FetchTask, LinkFlag, RequestOptions
from crawler.robots.cache import RobotsCache
from crawler.splitter.wire import AskedRequest
from crawler.storage.commit import Change, Maker
from crawler.storage.kv import KeyValue
from crawler.turn_share import UserTurns

if TYPE_CHECKING:
    from crawler.render.rendering import MakeRenderer

_SITEMAP, _EXTERNAL = LinkFlag.SITEMAP, LinkFlag.EXTERNAL


class FetchParts(NamedTuple):
    """The parts of a process that its fetch tasks use: for pages, hops, files of sites, and subresources.

    `make_renderer` makes the browser when the first page needs it. `key` returns the same key for all duplicates
    of a URL. `trusts` returns whether credentials may be sent to a URL, and `in_scope` whether a URL (request
    form) is in the scope of the crawl. `robots` has the robots.txt of the hosts of this process. `user_turns`
    says when user code may be called. `is_own` returns whether this process owns the host of a URL.
    `fetch_at_owner` lets the process that owns the host make a request; it returns None if the owner's version
    cannot do so. `queue` passes a change to the commit loop, and `queue_heavy` passes one that takes milliseconds
    to decide. `wake` wakes the loop that starts fetch tasks.
    """

    config: Config
    clock: Clock
    frontier: Frontier
    fetcher: Fetcher
    resolver: NameResolver
    reader: Reader
    make_renderer: "MakeRenderer"
    store: KeyValue
    files: FileBodies
    results: ResultProcessor
    earlier: EarlierCopies
    key: Callable[[str], bytes]
    trusts: Callable[[str], bool]
    in_scope: Callable[[str], bool]
    robots: RobotsCache
    user_turns: UserTurns
    is_own: Callable[[str], bool]
    fetch_at_owner: Callable[[AskedRequest], Awaitable[Fetch | None]]
    queue: Callable[[Change | Maker], None]
    queue_heavy: Callable[[Maker], None]
    wake: Callable[[], None]


class FetchTaskSlot:
    """The interface through which the fetcher uses the slot of a fetch task."""

    __slots__ = ("_clock", "_fetch_task", "_frontier", "_wake")

    def __init__(self, parts: FetchParts, fetch_task: FetchTask) -> None:
        self._frontier, self._clock, self._wake = parts.frontier, parts.clock, parts.wake
        self._fetch_task = fetch_task

    def is_needed(self) -> bool:
        before = self._frontier.requests
        needed = self._frontier.under_way.yields(self._fetch_task, self._clock.now())
        if self._frontier.requests < before:
            self._wake()
        return needed

    def give(self) -> None:
        self._frontier.hops.hold_off(self._fetch_task)
        self._frontier.hops.step_aside(self._fetch_task, self._clock.now())


class FetchRequests:
    """Builds the requests of the fetch tasks of a process.

    `conditions` returns the validators (ETag, Last-Modified) that a task sends with the request for its page.
    """

    def __init__(self, parts: FetchParts, conditions: Callable[[FetchTask, float], tuple[str, str]]) -> None:
        self._parts, self._config, self._frontier = parts, parts.config, parts.frontier
        self._conditions = conditions
        self._overrides = Overrides(parts.config.override)

    def make(self, fetch_task: FetchTask, owner: object, *, robots: bool = False) -> FetchRequest:
        """Return the first request of a fetch task. The memory for its answers is charged to `owner`."""
        config = self._config
        gap, gap_factor = self._frontier.under_way.gap_terms(fetch_task)
        keep_alive = gap + config.fetch.keep_alive_extra
        # the host has more URLs, so its connection will be used again
        if self._frontier.under_way.has_more(fetch_task):
            keep_alive = max(keep_alive, config.fetch.keep_alive_max)
        request = FetchRequest(
            url=fetch_task.url,
            addresses=(fetch_task.address,) if fetch_task.address else (),
            keep_alive=keep_alive if gap < config.fetch.keep_alive_max else 0.0,
            keep_alive_factor=gap_factor,
        )
        if self._overrides:
            self._override(request, fetch_task)
        self.allow_secrets(request, fetch_task.hostname)
        request.slot = FetchTaskSlot(self._parts, fetch_task)
        request.owner = owner
        if robots:
            request.body_bytes_max = config.robots.bytes_max
            request.fetcher = HTTP
        elif fetch_task.flags & _SITEMAP:
            request.body_bytes_max = request.wire_bytes_max = config.sitemaps.bytes_max
        elif fetch_task.flags & _EXTERNAL:
            request.body_bytes_max = request.wire_bytes_max = config.fetch.external_bytes_max
        if not robots:
            request.etag, request.last_modified = self._conditions(fetch_task, self._parts.clock.now())
        return request

    def allow_secrets(self, request: FetchRequest, name: str) -> None:
        """Give the request only the secret headers that are configured for its URL, which may be a redirect's target."""
        request.credentials = self._parts.trusts(request.url)
        if self._overrides:
            request.headers = self._overrides.for_url(request.url, name).headers or ()

    def _override(self, request: FetchRequest, fetch_task: FetchTask) -> None:
        """Apply the values that `[[override]]` sets for the URL of the request."""
        own = self._overrides.for_url(fetch_task.url, fetch_task.hostname)
        request.tls = own.tls or ""
        request.fetcher = own.fetcher or HTTP
        request.total_timeout = own.total_timeout
        if own.body_bytes_max is not None:
            request.body_bytes_max = own.body_bytes_max
            request.wire_bytes_max = max(own.body_bytes_max, self._config.fetch.wire_bytes_max)


def with_options(request: FetchRequest, options: RequestOptions) -> FetchRequest:
    """Add `options` to the options that the configuration has set for a request. Return the request."""
    request.method, request.body, request.secrets = options.method, options.body, options.secrets
    request.headers = (*request.headers, *options.headers) if options.headers else request.headers
    return request
