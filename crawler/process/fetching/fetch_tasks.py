"""The fetch tasks of a process: the coroutines that wait for the network.

    page      fetch, follow hops to URLs with the same key, extract, build the result
    robots    fetch robots.txt of an authority, along at most five redirects
    resolve   look up the addresses of a host
    denied    record the refusal

`fetch_requests.py` builds the requests of the tasks, and `hop_requests.py` follows redirects. A fetch task
holds no fetch slot while it waits for a hop, for memory, or for the decision on a large answer. So while one
fetch task waits, as many other fetch tasks as `concurrency` allows can transfer data.

An unexpected exception ends only its own fetch task (`process/README.md`, "A fetch task").
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from crawler.config import Config
from crawler.errors import StoreError
from crawler.extract.map_stream import MapStream
from crawler.extract.sitemap import is_sitemap
from crawler.fetcher.cookies import CookieJars
from crawler.fetcher.direct_requests import no_address
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.fetchers import Fetcher, NameResolver
from crawler.fetcher.file_body import FileBody
from crawler.fetcher.outcome import blame_of
from crawler.process.fetching.fetch_requests import FetchParts, FetchRequests, with_options
from crawler.process.fetching.hop_requests import HopRequests
from crawler.process.fetching.reader import Reader
from crawler.process.fetching.single_requests import SingleRequests
from crawler.process.fetching.site_files import SiteFiles
from crawler.process.fetching.submitters import Submitters
from crawler.process.fetching.subresources import Subresources
from crawler.process.lifecycle.shutdown import within
from crawler.records import Extracted, Fetch, FetchTask, LinkFlag, Outcome, RequestOptions, TaskKind
from crawler.storage.commit import Change, Maker, Making, followed_by
from crawler.storage.faults import reach
from crawler.wording import describe_outcome

if TYPE_CHECKING:
    from crawler.process.fetching.page_rendering import PageRendering
    from crawler.render.rendering import MakeRenderer

log = logging.getLogger("crawler")

T = TypeVar("T")
Sink = Callable[[FetchTask, Fetch, Extracted | None], Awaitable[None]]
Promise = Callable[[FetchTask, Fetch, Change], None]
RequestOptionsOf = Callable[[FetchTask], RequestOptions]

_OWN_REQUEST, _SEED, _SITEMAP = LinkFlag.OWN_REQUEST, LinkFlag.SEED, LinkFlag.SITEMAP
_REFRESH, _RENDER, _EXTERNAL = LinkFlag.REFRESH, LinkFlag.RENDER, LinkFlag.EXTERNAL
# an answer with more bytes or more links than this is heavy; about one answer in a hundred is heavy
HEAVY_BYTES, HEAVY_LINKS = (2 << 20, 1_000)
# A robots.txt with more bytes than this is heavy. Such files are very rare: only one in a thousand exceeds
# even a tenth of this size.
HEAVY_ROBOTS = 64 << 10
# Bytes of memory: for a str in a list, without its characters; and for a pair of a URL and a date.
_STRING_BYTES, _DATE_BYTES = (57, 150)
# Maximum number of large sitemaps whose links are in memory at once. Each of these sitemaps uses at most 13
# MB, from the end of its download to its commit.
MAPS_READ_MAX = 2
# Number of seconds after which the verdicts on the links of a page that is still being judged are stored. Storing the
# largest number of verdicts takes 0.1 s.
VERDICTS_INTERVAL = 10.0


class Network(NamedTuple):
    """The objects that fetch tasks wait for.

    They are the fetcher, the resolver, the reader of page content, and the browser, which is made when the
    first page needs it.
    """

    fetcher: Fetcher
    resolver: NameResolver
    reader: Reader
    make_renderer: "MakeRenderer"


class FetchTasks:
    """Runs the fetch tasks of one process. At its end, each task queues a `Change`."""

    def __init__(self, parts: FetchParts, sink: Sink | None = None) -> None:
        self._parts, self.files, self.sink = parts, parts.files, sink
        config, self._clock, self._frontier = parts.config, parts.clock, parts.frontier
        self._config = config
        self._fetcher, self._resolver, self._reader = parts.fetcher, parts.resolver, parts.reader
        self._reader.charge(self._fetcher)
        self._results, self._earlier = parts.results, parts.earlier
        self._unexpected = parts.results.unexpected
        self._queue, self._queue_heavy, self._wake = parts.queue, parts.queue_heavy, parts.wake
        # Adds a note to the `Change` of a page. The note says that the sink must receive the page.
        self.promise: Promise | None = None
        # returns the request options of a fetch task that has the flag OWN_REQUEST
        self.request_options_of: RequestOptionsOf | None = None
        # returns the flags that the user's requests for a page add to the flags of its link
        self.flags_of: Callable[[FetchTask], int] | None = None
        self._requests = FetchRequests(parts, self._conditions)
        self.single = SingleRequests(parts, self._requests.allow_secrets)
        self._hops = HopRequests(parts, self._requests, self.single, self._step_aside)
        self._jars = CookieJars(config.fetch.cookie_jars_max, config.fetch.cookie_domains_max)
        self._run = {
            TaskKind.PAGE: self._page,
            TaskKind.ROBOTS: self._robots_txt,
            TaskKind.RESOLVE: self._resolve,
            TaskKind.DENIED: self._denied,
        }
        self._made_rendering = self._make_rendering() if renders(config) else None
        self._submitters = Submitters(parts, self.single, self._leave_network)
        self._site_files = SiteFiles(parts, self._hops.hop, self._subresources, self._leave_network)
        # Only one thread computes digests at a time, because threads compete with the event loop for the
        # processors.
        self._preparing = asyncio.Lock()
        self._maps_read = asyncio.Semaphore(MAPS_READ_MAX)
        self._maps_held: set[object] = set()  # the fetch tasks whose sitemaps count in `_maps_read`
        self.pages_ended = 0
        self.awaiting_commit = 0  # number of fetch tasks whose page will go to the sink when it is durable
        self.in_sink = 0  # number of fetch tasks whose page is durable and is being handled by the sink

    async def run(self, fetch_task: FetchTask) -> None:
        """Run a fetch task to its end. Its slot becomes free when the `Change` of the task is committed."""
        await self._run[fetch_task.kind](fetch_task)

    def _rendering(self, fetch_task: FetchTask) -> "PageRendering | None":
        """Return the object that may show a page in a browser; None if no request or setting demands a browser."""
        if self._made_rendering is None and fetch_task.flags & _RENDER:
            self._made_rendering = self._make_rendering()
        return self._made_rendering

    def _conditions(self, fetch_task: FetchTask, now: float) -> tuple[str, str]:
        """Return the validators (ETag, Last-Modified) to send.

        Both are "" if a browser will show the page, because the browser needs the complete answer.
        """
        if self._is_due_in_browser(fetch_task):
            return "", ""
        return self._earlier.conditions(fetch_task, now)

    def _is_due_in_browser(self, fetch_task: FetchTask) -> bool:
        """Return whether a browser will show a known page, so that its answer must be read even if it is unchanged."""
        rendering = self._rendering(fetch_task)
        return rendering is not None and rendering.is_due(fetch_task)

    def _make_rendering(self) -> "PageRendering":
        from crawler.process.fetching.page_rendering import PageRendering

        return PageRendering(
            self._config,
            self._parts,
            subresources=self._subresources,
            step_aside=self._leave_network,
            renderer=self._parts.make_renderer(
                self._config, self._earlier, self._clock.now, self._unexpected
            ),
        )

    def _subresources(self, fetch_task: FetchTask, request: FetchRequest) -> Subresources:
        return Subresources(fetch_task, request, self._parts, self.single, self._requests.allow_secrets)

    def _leave_network(self, fetch_task: FetchTask, before: Fetch) -> None:
        """Release the slot and the address of a fetch task that waits for a browser or for another host."""
        self._step_aside(fetch_task, before)
        self._frontier.hops.leave_address(fetch_task, self._clock.now())

    def configure(self, config: Config) -> None:
        """Apply a new configuration. Only the settings that select the pages for a browser have an effect here."""
        self._config = config
        if self._made_rendering is not None:
            self._made_rendering.configure(config)
        elif renders(config):
            self._made_rendering = self._make_rendering()

    async def start(self) -> None:
        """Open the connection pool and the resolver."""
        await self._fetcher.start()

    async def close(self) -> None:
        """Close the connection pool and the resolver, and end the parser's child process."""
        limit = self._config.crawl.shutdown_step_max
        if self._made_rendering is not None:
            await within(limit, "browser", self._made_rendering.close())
        await within(limit, "parser", self._reader.close())
        await within(limit, "connections", self._fetcher.close())
        await within(limit, "resolver", self._resolver.close())

    # -- one coroutine per kind of task ---------------------------------------

    async def _ended(
        self, fetch_task: FetchTask, work: Coroutine[Any, Any, T], otherwise: Callable[[str], T]
    ) -> T:
        """Return the result of `work`. After an unexpected exception, return `otherwise(text of the error)`."""
        try:
            return await work
        except StoreError:
            raise
        except Exception as error:
            return otherwise(
                self._unexpected.note(
                    error, f"{fetch_task.kind.name.lower()} of {fetch_task.url or fetch_task.hostname}"
                )
            )

    def _internal_error(self, url: str, text: str) -> Fetch:
        outcome = Outcome.INTERNAL_ERROR
        return Fetch(url=url, outcome=outcome, blame=blame_of(outcome), began=self._clock.now(), error=text)

    async def _resolve(self, fetch_task: FetchTask) -> None:
        patient = fetch_task.attempt > 0 or not self._frontier.under_way.look_ups_waiting
        look_up = _look_up(self._resolver, fetch_task.hostname, patient)
        found = await self._ended(fetch_task, look_up, _not_resolved)
        now = self._clock.now()
        if found.addresses:
            self._frontier.resolved(fetch_task, found.addresses, found.expires, now)
            return self._wake()
        failure = no_address(fetch_task.url, found)
        _say(failure)
        self._queue(lambda: self._results.unresolved(fetch_task, failure, now))

    async def _denied(self, fetch_task: FetchTask) -> None:
        now = self._clock.now()
        fetch = self._results.denied(fetch_task, now)
        await self._pass(
            fetch_task, fetch, None, lambda: self._promised(fetch_task, fetch, None, now), self._queue
        )

    async def _robots_txt(self, fetch_task: FetchTask) -> None:
        # the bytes are charged to the owner, because they may still be in memory when the next fetch of the
        # host begins
        owner = object()
        fetch = await self._ended(
            fetch_task,
            self._fetch_robots(fetch_task, owner),
            lambda text: self._internal_error(fetch_task.url, text),
        )
        _say(fetch)
        robots = partial(self._results.robots, fetch_task, fetch, self._clock.now())
        make = followed_by(robots, partial(self._fetcher.let_go, owner))
        if len(fetch.content) <= HEAVY_ROBOTS:
            return self._queue(make)
        self._step_aside(fetch_task, fetch)
        self._queue_heavy(make)

    async def _fetch_robots(self, fetch_task: FetchTask, owner: object) -> Fetch:
        request = self._requests.make(fetch_task, owner, robots=True)
        return await self._hops.follow(fetch_task, request, self._hops.to_any_host)

    async def _page(self, fetch_task: FetchTask) -> None:
        reach("fetch begun")
        owner = object()  # the bytes of the answer are charged to the owner
        fetch, extracted, file = await self._ended(
            fetch_task,
            self._fetch_page(fetch_task, owner),
            lambda text: (self._internal_error(fetch_task.url, text), None, None),
        )
        self.pages_ended += 1
        _say(fetch)
        promised = partial(self._promised, fetch_task, fetch, extracted, self._clock.now())
        make = followed_by(promised, partial(self._let_go, owner))
        if self.sink is None:
            make = followed_by(make, partial(_free, file, fetch))
        queue: Callable[[Maker], None] = self._queue
        if is_heavy(fetch, extracted):
            self._step_aside(fetch_task, fetch)
            async with self._preparing:
                await asyncio.to_thread(self._earlier.prepare, fetch)
            queue = self._queue_heavy
        await self._pass(fetch_task, fetch, extracted, make, queue)
        if self.sink is not None:
            _free(file, fetch)

    async def _pass(
        self,
        fetch_task: FetchTask,
        fetch: Fetch,
        extracted: Extracted | None,
        make: Maker,
        queue: Callable[[Maker], None],
    ) -> None:
        """Queue the `Change` of a page. When the change is durable, pass the page to the sink, if there is one."""
        if self.sink is None or fetch_task.flags & _EXTERNAL:
            return queue(make)
        self.awaiting_commit += 1
        try:
            await self._commit(make, queue)
        finally:
            self.awaiting_commit -= 1
        try:
            await self.sink(fetch_task, fetch, extracted)
        finally:
            self.in_sink -= 1

    def _step_aside(self, fetch_task: FetchTask, before: Fetch | None = None) -> None:
        """Release the slot of a fetch task that waits for something other than its server.

        `before` is the answer to its request, if the next request to its host need not wait for the gap (`Hops.rest`).
        """
        if before is not None:
            self._frontier.hops.rest(fetch_task, before, self._clock.now())
        self._frontier.hops.step_aside(fetch_task, self._clock.now())
        self._wake()

    def _promised(
        self, fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None, now: float
    ) -> Making:
        """Build the `Change` of a page, including the facts about its rendering and the note for the sink."""
        change = yield from self._results.page(fetch_task, fetch, extracted, now)
        if fetch.rendering is not None and self._made_rendering is not None:
            self._made_rendering.learn(fetch_task, fetch, change)
        if self.promise is not None and not fetch_task.flags & _EXTERNAL:
            self.promise(fetch_task, fetch, change)
        return change

    async def _fetch_page(
        self, fetch_task: FetchTask, owner: object
    ) -> tuple[Fetch, Extracted | None, FileBody | None]:
        """Return the answer, the content extracted from it, and the body, which the caller must free."""
        request = self._requests.make(fetch_task, owner)
        try:
            fetch, stream = await self._answer(fetch_task, request)
            if fetch_task.flags & _EXTERNAL:
                return fetch, None, None
            if self.flags_of is not None:
                fetch_task.flags |= self.flags_of(fetch_task)
            if fetch_task.flags & _SEED and fetch.part is None and is_sitemap(fetch.content):
                fetch_task.flags |= _SITEMAP
            self._results.note_site(fetch)
            if fetch.part is not None and fetch_task.flags & _SITEMAP:
                self._step_aside(fetch_task, fetch)
                await self._maps_read.acquire()
                self._maps_held.add(owner)
            extracted = await self._read(fetch_task, fetch, stream)
            await self._site_files.fetch(fetch_task, request, fetch, extracted)
            if extracted is not None and fetch_task.flags & _SITEMAP:
                extracted.submitters = await self._submitters.find(fetch_task, fetch, extracted)
            if extracted is not None and (rendering := self._rendering(fetch_task)) is not None:
                extracted = await rendering.render(fetch_task, fetch, extracted, request)
            if extracted is not None:
                await _judge(self._parts, fetch_task, extracted)
        except BaseException:
            if request.file is not None:
                request.file.end(resumed_later=True)
            self._let_go(owner)
            raise
        if extracted is not None:
            self._fetcher.hold_more(owner, size_of(extracted))
        return fetch, extracted, request.file

    def _let_go(self, owner: object) -> None:
        """Release the memory of a fetch task's answer, and the task's place among the sitemaps being read."""
        self._fetcher.let_go(owner)
        if owner in self._maps_held:
            self._maps_held.remove(owner)
            self._maps_read.release()

    async def _answer(self, fetch_task: FetchTask, request: FetchRequest) -> tuple[Fetch, MapStream | None]:
        """Return the last answer to the request for a page, and for a sitemap also the stream that has parsed it."""
        if fetch_task.flags & _OWN_REQUEST and self.request_options_of is not None:
            options = self.request_options_of(fetch_task)
            with_options(request, options)
            request.jar = self._jars.of(options.jar) if options.jar else None
            request.proxy = options.proxy
            request.file = self.files.body(request, fetch_task)
            return await self._hops.follow(
                fetch_task, request, self._hops.in_scope, options, keeps_all=True
            ), None
        request.file = file = self.files.body(request, fetch_task)
        if file is not None and file.has_left():
            await asyncio.to_thread(file.reopen)
        stream = self._reader.follow(fetch_task)
        request.listener = stream
        try:
            fetch = await self._hops.follow(fetch_task, request, self._hops.to_own_key)
            return await self._hops.resume(fetch_task, request, fetch), stream
        except BaseException:
            self._reader.drop(stream)
            raise

    async def _commit(self, make: Maker, queue: Callable[[Maker], None]) -> None:
        """Queue a change and wait until it is durable. From then on, `in_sink` counts the page."""
        committed = asyncio.get_running_loop().create_future()

        def durable() -> None:
            if not committed.cancelled():
                self.in_sink += 1
                committed.set_result(None)

        queue(followed_by(make, durable))
        await committed

    async def _read(self, fetch_task: FetchTask, fetch: Fetch, stream: MapStream | None) -> Extracted | None:
        """Return the content extracted from an answer; None if the answer shows nothing new or cannot be read."""
        try:
            if not self._earlier.shows_news(fetch_task, fetch) and not self._is_due_in_browser(fetch_task):
                self._reader.drop(stream)
                return None
            extracted = await self._reader.read(
                fetch_task, fetch, lambda: self._step_aside(fetch_task, fetch), stream
            )
            if extracted is not None and extracted.told_by and fetch_task.flags & _REFRESH:
                await self._reader.news(extracted, fetch, lambda: self._earlier.known_content(fetch_task))
            return extracted
        except Exception as error:
            self._unexpected.note(error, f"reading {fetch_task.url}; its links are lost")
            self._reader.drop(stream)
            return None


async def _judge(parts: FetchParts, fetch_task: FetchTask, extracted: Extracted) -> None:
    """Let the user's URL filter judge the links of a page. Store its verdicts at intervals, in case of a kill.

    The filter may block. If it were called later, it would hold up the commit queue.
    """
    verdicts, now = parts.results.verdicts, parts.clock.now
    stored_at = now()
    for _ in parts.results.judging(fetch_task, extracted):
        await parts.user_turns.mine("URL filter")
        if verdicts is not None and now() - stored_at >= VERDICTS_INTERVAL:
            parts.queue(verdicts.so_far())
            stored_at = now()


def _free(file: FileBody | None, fetch: Fetch) -> None:
    """Free the body of a file whose capture is durable, unless the URL will be tried again."""
    if file is not None:
        file.end(resumed_later=not fetch.final)


def renders(config: Config) -> bool:
    """Return whether the configuration lets a browser show any page."""
    return config.render.when != "never" or any(own.render not in (None, "never") for own in config.override)


def size_of(extracted: Extracted) -> int:
    """Return the approximate number of bytes that the content uses in memory."""
    found = (extracted.hrefs, extracted.maps, extracted.requisites, extracted.repeats)
    dates = len(extracted.dated) + len(extracted.first_dated)
    return (
        sum(_STRING_BYTES * len(urls) + sum(map(len, urls)) for urls in found if urls) + _DATE_BYTES * dates
    )


def is_heavy(fetch: Fetch, extracted: Extracted | None) -> bool:
    """Return whether the decision on an answer takes milliseconds, because of hashing or of handling links."""
    links = 0 if extracted is None else len(extracted.hrefs) + len(extracted.maps) + len(extracted.requisites)
    return len(fetch.body) + len(fetch.content) > HEAVY_BYTES or links > HEAVY_LINKS


async def _look_up(resolver: NameResolver, name: str, patient: bool) -> Resolution:
    """Look up a name. If the resolver has a bug, this ends the look-up, and not the run."""
    return await resolver.resolve(name, patient=patient)


def _not_resolved(text: str) -> Resolution:
    return Resolution((), 0.0, Outcome.INTERNAL_ERROR, text)


def _say(fetch: Fetch) -> None:
    """Log, for `-v`, why a request failed. The time of the next try is logged by `process/answering/wait_log.py`."""
    if fetch.blame and log.isEnabledFor(logging.DEBUG):
        status = f" {fetch.status}" if fetch.status else ""
        error = f": {fetch.error}" if fetch.error else ""
        fields = {"url": fetch.url, "outcome": fetch.outcome, "status": fetch.status, "error": fetch.error}
        text = f"{fetch.url or 'look-up'}: {describe_outcome(fetch.outcome)}{status}{error}"
        log.debug("%s", text, extra={"fields": {name: value for name, value in fields.items() if value}})
