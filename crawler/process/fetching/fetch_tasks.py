"""The fetch tasks of a process: the coroutines that wait for the network.

    page      fetch, follow hops to URLs with the same key, extract, build the result
    robots    fetch robots.txt of an authority, along at most five redirects
    resolve   look up the addresses of a host
    denied    record the refusal

A hop is a request: it waits for the gap of its host, and before a hop to another host
the fetch task takes that host's slot. A fetch task that waits for a hop, for memory, or
for the decision on a large answer holds no fetch slot, so `concurrency` other tasks can
transfer data meanwhile.

An unexpected exception ends only its own fetch task, with the outcome `internal_error`;
host, address and slot are released as after any failure. A `StoreError`, and an
exception of the user's page sink, end the process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from crawler.clock import Clock
from crawler.config import Config, Overrides
from crawler.config.credentials import is_credential
from crawler.errors import StoreError, Unexpected
from crawler.extract.map_stream import MapStream
from crawler.fetcher.cookies import CookieJar, CookieJars
from crawler.fetcher.direct_requests import no_address
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import HTTP, FetchRequest, split
from crawler.fetcher.fetchers import Fetcher, NameResolver
from crawler.fetcher.file_body import FileBody
from crawler.fetcher.outcome import blame_of
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.file_bodies import FileBodies
from crawler.process.fetching.reader import Reader
from crawler.process.fetching.site_files import SiteFiles
from crawler.process.fetching.subresources import Subresources
from crawler.process.lifecycle.shutdown import within
from crawler.process.results.result_processor import ResultProcessor
from crawler.records import Extracted, Fetch, FetchTask, LinkFlag, Outcome, RequestOptions, TaskKind
from crawler.storage.commit import Change, Maker, Making, steps
from crawler.storage.faults import reach
from crawler.storage.kv import KeyValue
from crawler.urls.canonical import hostname, resolve

if TYPE_CHECKING:
    from crawler.process.fetching.page_rendering import PageRendering
    from crawler.render.rendering import MakeRenderer

log = logging.getLogger("crawler")

T = TypeVar("T")
Sink = Callable[[FetchTask, Fetch, Extracted | None], Awaitable[None]]
Promise = Callable[[FetchTask, Fetch, Change], None]
RequestOptionsOf = Callable[[FetchTask], RequestOptions]

PLAIN = RequestOptions()
Hops = list[tuple[str, str]]  # the requests of a redirect chain so far: (URL, Cookie header)
NextHop = Callable[[FetchRequest, Fetch, Hops], str]

_OWN_REQUEST = LinkFlag.OWN_REQUEST
_SITEMAP, _REFRESH, _RENDER = LinkFlag.SITEMAP, LinkFlag.REFRESH, LinkFlag.RENDER
_EXTERNAL = LinkFlag.EXTERNAL
HOP_BODY_BYTES_MAX = 64 << 10  # bytes kept of the body of each earlier answer of a redirect chain
HOP_WAIT_MAX = 120.0  # seconds that a fetch task waits for another host's slot before it gives up the hop
# bytes and links above which an answer is heavy; one answer in a hundred is
HEAVY_BYTES, HEAVY_LINKS = (2 << 20, 1_000)
# bytes above which a robots.txt is heavy: ten times the size that one in a thousand exceeds
HEAVY_ROBOTS = 64 << 10
# bytes of a str in a list besides its characters; bytes of a dated pair
_STRING_BYTES, _DATE_BYTES = (57, 150)
HOP_ASKS_MAX = 2.0  # seconds between two attempts to take the slot of a busy host


class Network(NamedTuple):
    """The parts that a fetch task waits for: the fetcher, the resolver, and the reader of page content."""

    fetcher: Fetcher
    resolver: NameResolver
    reader: Reader


class FetchTaskSlot:
    """The slot of a fetch task, as the fetcher sees it."""

    __slots__ = ("_clock", "_fetch_task", "_frontier", "_wake")

    def __init__(
        self, frontier: Frontier, clock: Clock, fetch_task: FetchTask, wake: Callable[[], None]
    ) -> None:
        self._frontier, self._clock, self._fetch_task, self._wake = frontier, clock, fetch_task, wake

    def is_needed(self) -> bool:
        before = self._frontier.requests
        needed = self._frontier.under_way.yields(self._fetch_task, self._clock.now())
        if self._frontier.requests < before:
            self._wake()
        return needed

    def give(self) -> None:
        self._frontier.hops.step_aside(self._fetch_task, self._clock.now())


class FetchTasks:
    """Runs the fetch tasks of one process; each task ends by passing a `Change` to `queue`."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        frontier: Frontier,
        network: Network,
        store: KeyValue,
        results: ResultProcessor,
        key: Callable[[str], bytes],
        trusts: Callable[[str], bool],
        queue: Callable[[Change | Maker], None],
        queue_heavy: Callable[[Maker], None],
        wake: Callable[[], None],
        unexpected: Unexpected,
        files: FileBodies,
        make_renderer: "MakeRenderer",
        sink: Sink | None = None,
    ) -> None:
        self._files = files
        self._config = config
        self._clock = clock
        self._frontier = frontier
        self._fetcher, self._resolver, self._reader = network
        self._reader.charge(self._fetcher)
        self._store = store
        self._results = results
        self._key = key
        self._trusts = trusts
        self._queue = queue
        self._queue_heavy = queue_heavy
        self._wake = wake
        self._unexpected = unexpected
        self.sink = sink
        # Adds to a page's `Change` the note that the sink must receive the page.
        self.promise: Promise | None = None
        # the request options of a fetch task with the flag OWN_REQUEST
        self.request_options_of: RequestOptionsOf | None = None
        # The flags that the user's requests for a page add to the flags of its link.
        self.flags_of: Callable[[FetchTask], int] | None = None
        self._overrides = Overrides(config.override)
        self._jars = CookieJars(config.fetch.cookie_jars_max, config.fetch.cookie_domains_max)
        self._run = {
            TaskKind.PAGE: self._page,
            TaskKind.ROBOTS: self._robots_txt,
            TaskKind.RESOLVE: self._resolve,
            TaskKind.DENIED: self._denied,
        }
        self._make_renderer = make_renderer
        self._made_rendering = self._make_rendering() if renders(config) else None
        self._site_files = SiteFiles(
            self._fetcher,
            frontier,
            results,
            clock,
            redirects_max=config.robots.redirects_max,
            hop=self._hop,
            subresources=self._subresources,
            queue=queue,
        )
        # One digest thread at a time, because threads compete with the event loop for the processors.
        self._preparing = asyncio.Lock()
        self.pages_ended = 0
        self.awaiting_commit = 0  # fetch tasks whose page goes to the sink once it is durable
        self.in_sink = 0  # fetch tasks whose page is durable and being handled by the sink

    async def run(self, fetch_task: FetchTask) -> None:
        """Run a fetch task to its end; the task's slot becomes free once the `Change` of the task is committed."""
        await self._run[fetch_task.kind](fetch_task)

    def _rendering(self, fetch_task: FetchTask) -> "PageRendering | None":
        """Return the part that may show a page in a browser; None if nothing asks for that."""
        if self._made_rendering is None and fetch_task.flags & _RENDER:
            self._made_rendering = self._make_rendering()
        return self._made_rendering

    def _is_due_in_browser(self, fetch_task: FetchTask) -> bool:
        """Return whether a known page must be read although its answer may be the same, since a browser is to show it."""
        rendering = self._rendering(fetch_task)
        return rendering is not None and rendering.is_due(fetch_task)

    def _make_rendering(self) -> "PageRendering":
        from crawler.process.fetching.page_rendering import PageRendering

        return PageRendering(
            self._config,
            read=self._reader.read,
            in_scope=self._results.in_scope,
            subresources=self._subresources,
            step_aside=self._leave_network,
            known=self._results.known_record,
            store=self._store,
            renderer=self._make_renderer(
                self._config, self._results.stored_answer, self._clock.now, self._unexpected
            ),
        )

    def _subresources(self, fetch_task: FetchTask, request: FetchRequest) -> Subresources:
        return Subresources(
            fetch_task,
            request,
            config=self._config,
            clock=self._clock,
            frontier=self._frontier,
            fetcher=self._fetcher,
            resolver=self._resolver,
            results=self._results,
            queue=self._queue,
            allow=self._allow_secrets,
        )

    def _leave_network(self, fetch_task: FetchTask) -> None:
        """Release the slot and the address of a fetch task that waits for a browser."""
        self._step_aside(fetch_task)
        self._frontier.hops.leave_address(fetch_task, self._clock.now())

    def configure(self, config: Config) -> None:
        """Apply a new configuration, of which only the pages that a browser shows may differ."""
        self._config, self._overrides = config, Overrides(config.override)
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
        """Return the result of `work`; after an unexpected exception return `otherwise(text of the error)`."""
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
        """Return the result of a request that failed because of a bug."""
        outcome = Outcome.INTERNAL_ERROR
        return Fetch(url=url, outcome=outcome, blame=blame_of(outcome), began=self._clock.now(), error=text)

    async def _resolve(self, fetch_task: FetchTask) -> None:
        patient = fetch_task.attempt > 0 or not self._frontier.under_way.look_ups_waiting
        found = await self._ended(fetch_task, self._look_up(fetch_task.hostname, patient), _not_resolved)
        now = self._clock.now()
        if found.addresses:
            self._frontier.resolved(fetch_task, found.addresses, found.expires, now)
            return self._wake()
        failure = no_address(fetch_task.url, found)
        _say(failure)
        self._queue(lambda: self._results.unresolved(fetch_task, failure, now))

    async def _look_up(self, name: str, patient: bool) -> Resolution:
        return await self._resolver.resolve(name, patient=patient)

    async def _denied(self, fetch_task: FetchTask) -> None:
        now = self._clock.now()
        fetch = self._results.denied(fetch_task, now)
        await self._pass(
            fetch_task, fetch, None, lambda: self._promised(fetch_task, fetch, None, now), self._queue
        )

    async def _robots_txt(self, fetch_task: FetchTask) -> None:
        # it is charged for the bytes, which may still be held when the host's next fetch begins
        owner = object()
        fetch = await self._ended(
            fetch_task,
            self._fetch_robots(fetch_task, owner),
            lambda text: self._internal_error(fetch_task.url, text),
        )
        now = self._clock.now()
        _say(fetch)

        def make() -> Making:
            change = yield from steps(self._results.robots(fetch_task, fetch, now))
            change.after.append(lambda: self._fetcher.let_go(owner))
            return change

        if len(fetch.content) <= HEAVY_ROBOTS:
            return self._queue(make)
        self._step_aside(fetch_task)
        self._queue_heavy(make)

    async def _fetch_robots(self, fetch_task: FetchTask, owner: object) -> Fetch:
        return await self._follow(fetch_task, self._request(fetch_task, owner, robots=True), self._robots_hop)

    async def _page(self, fetch_task: FetchTask) -> None:
        reach("fetch begun")
        owner = object()  # it is charged for the bytes of the answer
        fetch, extracted, file = await self._ended(
            fetch_task,
            self._fetch_page(fetch_task, owner),
            lambda text: (self._internal_error(fetch_task.url, text), None, None),
        )
        self.pages_ended += 1
        _say(fetch)
        now = self._clock.now()

        def make() -> Making:
            change = yield from self._promised(fetch_task, fetch, extracted, now)
            change.after.append(lambda: self._fetcher.let_go(owner))
            if self.sink is None:
                change.after.append(lambda: _free(file, fetch))
            return change

        queue: Callable[[Maker], None] = self._queue
        if is_heavy(fetch, extracted):
            self._step_aside(fetch_task)
            async with self._preparing:
                await asyncio.to_thread(self._results.prepare, fetch)
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
        """Queue the `Change` of a page; once that is durable, pass the page to the sink, if there is one."""
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

    def _step_aside(self, fetch_task: FetchTask) -> None:
        """Release the slot of a fetch task that waits for something other than its server."""
        self._frontier.hops.step_aside(fetch_task, self._clock.now())
        self._wake()

    def _promised(
        self, fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None, now: float
    ) -> Making:
        """Build the page's `Change`, with what its rendering taught and the promise that the sink will get the page."""
        change = yield from self._results.page(fetch_task, fetch, extracted, now)
        if fetch.rendering is not None and self._made_rendering is not None:
            self._made_rendering.learn(fetch_task, fetch, change)
        if self.promise is not None and not fetch_task.flags & _EXTERNAL:
            self.promise(fetch_task, fetch, change)
        return change

    async def _fetch_page(
        self, fetch_task: FetchTask, owner: object
    ) -> tuple[Fetch, Extracted | None, FileBody | None]:
        """Return the answer, what was extracted from it, and the body that the caller must free."""
        request = self._request(fetch_task, owner)
        try:
            fetch, stream = await self._answer(fetch_task, request)
            if fetch_task.flags & _EXTERNAL:
                return fetch, None, None
            if self.flags_of is not None:
                fetch_task.flags |= self.flags_of(fetch_task)
            self._results.note_site(fetch)
            extracted = await self._read(fetch_task, fetch, stream)
            await self._site_files.fetch(fetch_task, request, fetch, extracted)
            if extracted is not None and (rendering := self._rendering(fetch_task)) is not None:
                extracted = await rendering.render(fetch_task, fetch, extracted, request)
        except BaseException:
            if request.file is not None:
                request.file.end(resumed_later=True)
            raise
        if extracted is not None:
            self._fetcher.hold_more(owner, size_of(extracted))
        return fetch, extracted, request.file

    async def _answer(self, fetch_task: FetchTask, request: FetchRequest) -> tuple[Fetch, MapStream | None]:
        """Return the last answer to a page's request, and for a sitemap the stream that has read it."""
        if fetch_task.flags & _OWN_REQUEST and self.request_options_of is not None:
            options = self.request_options_of(fetch_task)
            _going(request, options)
            request.jar = self._jars.of(options.jar) if options.jar else None
            request.proxy = options.proxy
            request.file = self._files.body(request, fetch_task)
            return await self._follow(fetch_task, request, self._any_hop, options, keeps_all=True), None
        request.file = file = self._files.body(request, fetch_task)
        if file is not None and file.has_left():
            await asyncio.to_thread(file.reopen)
        stream = self._reader.follow(fetch_task)
        request.listener = None if stream is None else stream.feed
        try:
            fetch = await self._follow(fetch_task, request, self._own_key_hop)
            return await self._whole(fetch_task, request, fetch), stream
        except BaseException:
            self._reader.drop(stream)
            raise

    async def _commit(self, make: Maker, queue: Callable[[Maker], None]) -> None:
        """Queue a change and wait until it is durable; from that moment the page is counted in `in_sink`."""
        committed = asyncio.get_running_loop().create_future()

        def made() -> Making:
            change = yield from steps(make())
            change.after.append(durable)
            return change

        def durable() -> None:
            if not committed.cancelled():
                self.in_sink += 1
                committed.set_result(None)

        queue(made)
        await committed

    async def _read(self, fetch_task: FetchTask, fetch: Fetch, stream: MapStream | None) -> Extracted | None:
        """Return the content extracted from an answer; None if it shows nothing new or cannot be read."""
        try:
            if not self._results.shows_news(fetch_task, fetch) and not self._is_due_in_browser(fetch_task):
                self._reader.drop(stream)
                return None
            extracted = await self._reader.read(
                fetch_task, fetch, lambda: self._step_aside(fetch_task), stream
            )
            if extracted is not None and extracted.told_by and fetch_task.flags & _REFRESH:
                await self._reader.news(extracted, fetch, lambda: self._results.known_content(fetch_task))
            return extracted
        except Exception as error:
            self._unexpected.note(error, f"reading {fetch_task.url}; its links are lost")
            self._reader.drop(stream)
            return None

    # -- hops -----------------------------------------------------------------

    async def _follow(
        self,
        fetch_task: FetchTask,
        request: FetchRequest,
        next_hop: NextHop,
        options: RequestOptions = PLAIN,
        *,
        keeps_all: bool = False,
    ) -> Fetch:
        """Fetch, and follow redirects as long as `next_hop` returns a URL; return the last answer.

        With `keeps_all`, the field `earlier` of the last answer holds the answers before it.
        """
        fetch = await self._fetcher.fetch(request)
        fetch = await self._signed(fetch_task, request, fetch, options)
        chain = [(fetch_task.url, "")]
        earlier: list[Fetch] = []
        while fetch.outcome is Outcome.REDIRECT:
            if request.jar is None and self._config.fetch.cookies is not True:
                self._begin_jar(request, fetch)
            if not (url := next_hop(request, fetch, chain)):
                break
            chain.append((url, self._cookies(request, url)))
            if keeps_all:
                self._results.note_site(fetch)
                earlier.append(_shortened(fetch))
            fetch.body = fetch.content = b""  # a task that waits for a hop holds no bytes
            self._fetcher.let_go(request.owner)
            options = redirected_options(
                options, fetch.status, same_host=hostname(url) == fetch_task.hostname
            )
            fetch = await self._hop(fetch_task, request, url, fetch, options)
            fetch = await self._signed(fetch_task, request, fetch, options)
        fetch.earlier = earlier
        return fetch

    async def _signed(
        self, fetch_task: FetchTask, request: FetchRequest, fetch: Fetch, options: RequestOptions
    ) -> Fetch:
        """Send the request again, after the gap, if the server wants it signed; else return `fetch`."""
        if not fetch.challenged:
            return fetch
        fetch.body = fetch.content = b""
        self._fetcher.let_go(request.owner)
        return await self._hop(fetch_task, request, fetch.url, fetch, options)

    async def _whole(self, fetch_task: FetchTask, request: FetchRequest, fetch: Fetch) -> Fetch:
        """Resume a file whose transfer broke off, as long as each request brings more of it; return the last answer."""
        file = request.file
        for _ in range(self._config.fetch.resumes_max):
            if file is None or fetch.outcome is not Outcome.TRUNCATED or not file.can_resume():
                break
            before = fetch.body_bytes
            fetch = await self._hop(fetch_task, request, fetch.url, fetch, PLAIN)
            if fetch.body_bytes <= before:
                break
        return fetch

    def _begin_jar(self, request: FetchRequest, fetch: Fetch) -> None:
        """Keep cookies for this redirect chain: many sites set one and redirect to the same page."""
        request.jar = CookieJar()
        lines = [value for name, value in fetch.headers if name.lower() == b"set-cookie"]
        request.jar.store(split(fetch.url), lines, self._clock.now())

    def _cookies(self, request: FetchRequest, url: str) -> str:
        """Return the Cookie header of a hop to `url`; "" if the chain has no cookie jar."""
        return "" if request.jar is None else request.jar.header(split(url), self._clock.now())

    def _robots_hop(self, _request: FetchRequest, fetch: Fetch, chain: Hops) -> str:
        if len(chain) > self._config.robots.redirects_max:
            return ""
        return resolve(fetch.url, fetch.location) or ""

    def _own_key_hop(self, request: FetchRequest, fetch: Fetch, chain: Hops) -> str:
        """Return the redirect's target if it has the duplicate key of a URL of the chain, else "".

        As a link, such a target would be dropped as a duplicate. A request that was already
        made with the same cookies is a loop, because the answer would be the same.
        """
        target = resolve(fetch.url, fetch.location)
        if target is None or self._key(target) not in {self._key(url) for url, _ in chain}:
            return ""
        again = request.jar is not None and (target, self._cookies(request, target)) in chain
        if again or len(chain) > self._config.fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, "redirect loop"
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    def _any_hop(self, request: FetchRequest, fetch: Fetch, chain: Hops) -> str:
        """Return the redirect's target if it is in scope. A user's own request needs this, because its caller waits."""
        target = resolve(fetch.url, fetch.location)
        if target is None or not self._results.in_scope(target):
            return ""
        if len(chain) > self._config.fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, "redirect loop"
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    async def _hop(
        self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch, options: RequestOptions
    ) -> Fetch:
        """Fetch the next URL of a chain when its host's turn comes."""
        name = hostname(url)
        self._frontier.hops.give_back(fetch_task.hostname, self._clock.now(), before.took, before.retry_after)
        self._step_aside(fetch_task)
        addresses = request.addresses
        if name != fetch_task.hostname and not self._config.fetch.proxy:  # a proxy resolves names itself
            found = await self._resolver.resolve(name)
            if not found.addresses:
                return no_address(url, found)
            addresses = found.addresses[:1]
        if not await self._borrow(fetch_task, name, addresses[0] if addresses else ""):
            return Fetch(
                url=url, outcome=Outcome.CONNECT_ERROR, error=f"waited too long for a slot of {name}"
            )
        took = 0.0
        try:
            hop = msgspec.structs.replace(
                request, url=url, addresses=addresses, etag="", last_modified="", listener=None
            )
            self._allow_secrets(hop, name)
            fetch = await self._fetcher.fetch(_going(hop, options))
            took = fetch.took
            return fetch
        finally:
            if name != fetch_task.hostname:
                self._frontier.hops.give_back(name, self._clock.now(), took)

    async def _borrow(self, fetch_task: FetchTask, name: str, address: str) -> bool:
        """Wait until a hop may be requested; return False if that takes too long."""
        give_up = self._clock.now() + HOP_WAIT_MAX
        least = 0.01
        while (at := self._frontier.hops.borrow(name, self._clock.now(), fetch_task, address)) > 0.0:
            if max(at, self._clock.now()) > give_up:
                return False
            await asyncio.sleep(max(least, at - self._clock.now()))
            least = min(least * 1.5, HOP_ASKS_MAX)
        return True

    def _request(self, fetch_task: FetchTask, owner: object, *, robots: bool = False) -> FetchRequest:
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
        self._allow_secrets(request, fetch_task.hostname)
        request.slot = FetchTaskSlot(self._frontier, self._clock, fetch_task, self._wake)
        request.owner = owner
        if robots:
            request.body_bytes_max = config.robots.bytes_max
            request.fetcher = HTTP
        elif fetch_task.flags & _SITEMAP:
            request.body_bytes_max = request.wire_bytes_max = config.sitemaps.bytes_max
        elif fetch_task.flags & _EXTERNAL:
            request.body_bytes_max = request.wire_bytes_max = config.fetch.external_bytes_max
        if not robots and not self._is_due_in_browser(fetch_task):
            request.etag, request.last_modified = self._results.conditions(fetch_task, self._clock.now())
        return request

    def _allow_secrets(self, request: FetchRequest, name: str) -> None:
        """Let the request carry only the headers that are configured for its URL, also after a redirect."""
        request.credentials = self._trusts(request.url)
        if self._overrides:
            request.headers = self._overrides.for_url(request.url, name).headers or ()

    def _override(self, request: FetchRequest, fetch_task: FetchTask) -> None:
        """Apply to the request the values that `[[override]]` sets for its URL."""
        own = self._overrides.for_url(fetch_task.url, fetch_task.hostname)
        request.tls = own.tls or ""
        request.fetcher = own.fetcher or HTTP
        request.total_timeout = own.total_timeout
        if own.body_bytes_max is not None:
            request.body_bytes_max = own.body_bytes_max
            request.wire_bytes_max = max(own.body_bytes_max, self._config.fetch.wire_bytes_max)


def _free(file: FileBody | None, fetch: Fetch) -> None:
    """Free the body of a file whose capture is durable; keep it if the URL is tried again."""
    if file is not None:
        file.end(resumed_later=not fetch.final)


def renders(config: Config) -> bool:
    """Return whether the configuration lets a browser show any page."""
    return config.render.when != "never" or any(own.render not in (None, "never") for own in config.override)


def size_of(extracted: Extracted) -> int:
    """Return the approximate size in memory, in bytes."""
    found = (extracted.hrefs, extracted.maps, extracted.requisites, extracted.repeats)
    return sum(_STRING_BYTES * len(urls) + sum(map(len, urls)) for urls in found) + _DATE_BYTES * len(
        extracted.dated
    )


def is_heavy(fetch: Fetch, extracted: Extracted | None) -> bool:
    """Return whether deciding an answer takes long: some milliseconds of hashing, or of handling links."""
    links = 0 if extracted is None else len(extracted.hrefs) + len(extracted.maps) + len(extracted.requisites)
    return len(fetch.body) + len(fetch.content) > HEAVY_BYTES or links > HEAVY_LINKS


def _going(request: FetchRequest, options: RequestOptions) -> FetchRequest:
    """Add `options` to what the configuration says about a request; return the request."""
    request.method, request.body, request.secrets = options.method, options.body, options.secrets
    request.headers = (*request.headers, *options.headers) if options.headers else request.headers
    return request


def _shortened(fetch: Fetch) -> Fetch:
    """Return a copy of an earlier answer of a chain, without the part of its body that is too long to be held."""
    body = fetch.body[:HOP_BODY_BYTES_MAX]
    truncated = fetch.truncated if len(body) == len(fetch.body) else "length"
    return msgspec.structs.replace(fetch, body=body, content=b"", truncated=truncated, payload_digest=b"")


def redirected_options(options: RequestOptions, status: int, *, same_host: bool) -> RequestOptions:
    """Return the options after a redirect: 303, and 301 and 302 after POST, continue with GET (Fetch Standard).

    Credentials are not sent to another host.
    """
    if options is PLAIN:
        return options
    headers = (
        options.headers if same_host else tuple(line for line in options.headers if not is_credential(line))
    )
    if status == 303 or (status in (301, 302) and options.method == "POST"):
        kept = tuple(line for line in headers if not line.lower().startswith("content-"))
        return msgspec.structs.replace(options, method="GET", body=b"", headers=kept)
    return msgspec.structs.replace(options, headers=headers)


def _not_resolved(text: str) -> Resolution:
    return Resolution((), 0.0, Outcome.INTERNAL_ERROR, text)


def _say(fetch: Fetch) -> None:
    """Log, for -v, why a request failed; `process/answering/wait_log.py` logs when the host is tried again."""
    if fetch.blame and log.isEnabledFor(logging.DEBUG):
        status = f" {fetch.status}" if fetch.status else ""
        error = f": {fetch.error}" if fetch.error else ""
        fields = {"url": fetch.url, "outcome": fetch.outcome, "status": fetch.status, "error": fetch.error}
        text = f"{fetch.url or 'look-up'}: {fetch.outcome.replace('_', ' ')}{status}{error}"
        log.debug("%s", text, extra={"fields": {name: value for name, value in fields.items() if value}})
