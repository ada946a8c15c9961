"""The errands of a process: the coroutines that wait for the network.

    page      fetch, follow hops whose key is their own, extract, results
    robots    robots.txt of an authority along at most five redirects
    resolve   the addresses of a host
    denied    nothing to wait for: the refusal is recorded

A hop counts as a request: it waits for the gap of its host, and on a host
other than the errand's own it takes that host's slot first. An errand that
waits for a hop, for memory, or for the decision on a large answer has no
place: `concurrency` others may be exchanging bytes.

An unexpected exception ends its own errand only, with the outcome `internal_error`:
host, address and place are free again as after any failure. A `StoreError`, and an
exception of the user's page sink, end the process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

from crawler.clock import Clock
from crawler.config import Config, Overrides
from crawler.config.credentials import is_credential
from crawler.errors import StoreError, Unexpected
from crawler.extract.map_stream import MapStream
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.direct import no_address
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import HTTP, FetchTask, split
from crawler.fetcher.fetchers import Fetcher, NameResolver
from crawler.fetcher.outcome import blame_of
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.reader import Reader
from crawler.process.lifecycle.shutdown import within
from crawler.process.results.result_processor import ResultProcessor
from crawler.records import Errand, Extracted, Fetch, LinkFlag, Outcome, Task, Way
from crawler.storage.commit import Change, Maker, Making, steps
from crawler.storage.faults import reach
from crawler.urls.canonical import hostname, resolve

log = logging.getLogger("crawler")

T = TypeVar("T")
Sink = Callable[[Errand, Fetch, Extracted | None], Awaitable[None]]
Promise = Callable[[Errand, Fetch, Change], None]
WayOf = Callable[[Errand], Way]

PLAIN = Way()
Hops = list[tuple[str, str]]  # the requests of a redirect chain so far: URL and Cookie field
NextHop = Callable[[FetchTask, Fetch, Hops], str]

_OWN_WAY = int(LinkFlag.OWN_WAY)
_SITEMAP, _REFRESH = int(LinkFlag.SITEMAP), int(LinkFlag.REFRESH)  # plain: an IntFlag costs 1 us a test
HOP_WAIT_MAX = 120.0  # seconds an errand waits for another host's slot before it gives the hop up
HEAVY_BYTES, HEAVY_LINKS = 2 << 20, 1_000  # of an answer; one in a hundred has more
HEAVY_ROBOTS = 64 << 10  # bytes; ten times what all but one in a thousand have
_STRING_BYTES, _DATE_BYTES = 57, 150  # of a str beside its characters and its place in a list; of a pair
HOP_ASKS_MAX = 2.0  # seconds between two questions for a host that many wait for


class Network(NamedTuple):
    """What an errand waits for: answers, names, and what a page holds."""

    fetcher: Fetcher
    resolver: NameResolver
    reader: Reader


class ErrandPlace:
    """The place of an errand, as the fetcher sees it."""

    __slots__ = ("_clock", "_errand", "_frontier", "_wake")

    def __init__(self, frontier: Frontier, clock: Clock, errand: Errand, wake: Callable[[], None]) -> None:
        self._frontier, self._clock, self._errand, self._wake = frontier, clock, errand, wake

    def is_needed(self) -> bool:
        before = self._frontier.requests
        needed = self._frontier.under_way.yields(self._errand, self._clock.now())
        if self._frontier.requests < before:
            self._wake()
        return needed

    def give(self) -> None:
        self._frontier.hops.step_aside(self._errand, self._clock.now())


class FetchTasks:
    """Runs the errands of one process; `queue` takes the change each one ends with."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        frontier: Frontier,
        network: Network,
        results: ResultProcessor,
        key: Callable[[str], bytes],
        trusts: Callable[[str], bool],
        queue: Callable[[Change | Maker], None],
        queue_heavy: Callable[[Maker], None],
        wake: Callable[[], None],
        unexpected: Unexpected,
        sink: Sink | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._frontier = frontier
        self._fetcher, self._resolver, self._reader = network
        self._reader.charge(self._fetcher)
        self._results = results
        self._key = key
        self._trusts = trusts
        self._queue = queue
        self._queue_heavy = queue_heavy
        self._wake = wake
        self._unexpected = unexpected
        self.sink = sink
        self.promise: Promise | None = None  # notes, with the page's change, that the sink is to get it
        self.way_of: WayOf | None = None  # how an errand with the flag OWN_WAY is asked
        self._overrides = Overrides(config.override)
        self._run = {
            Task.PAGE: self._page,
            Task.ROBOTS: self._robots_txt,
            Task.RESOLVE: self._resolve,
            Task.DENIED: self._denied,
        }
        self.pages_ended = 0
        self.awaiting_commit = 0  # errands whose page goes to the sink once it is durable
        self.in_sink = 0  # errands whose page is durable and with the sink

    async def run(self, errand: Errand) -> None:
        """See an errand through; its place is free again once its change is committed."""
        await self._run[errand.task](errand)

    async def start(self) -> None:
        """Open connections' pool and resolver."""
        await self._fetcher.start()

    async def close(self) -> None:
        """Close them, and end the parser's worker."""
        limit = self._config.crawl.shutdown_step_max
        await within(limit, "parser", self._reader.close())
        await within(limit, "connections", self._fetcher.close())
        await within(limit, "resolver", self._resolver.close())

    # -- one coroutine a task -------------------------------------------------

    async def _ended(self, errand: Errand, work: Coroutine[Any, Any, T], otherwise: Callable[[str], T]) -> T:
        """What `work` returns; `otherwise` of the error's text if it raises what nobody expects."""
        try:
            return await work
        except StoreError:
            raise
        except Exception as error:
            return otherwise(
                self._unexpected.note(error, f"{errand.task.name.lower()} of {errand.url or errand.hostname}")
            )

    def _internal_error(self, url: str, text: str) -> Fetch:
        """The end of a request that met a bug."""
        outcome = Outcome.INTERNAL_ERROR
        return Fetch(url=url, outcome=outcome, blame=blame_of(outcome), began=self._clock.now(), error=text)

    async def _resolve(self, errand: Errand) -> None:
        patient = errand.attempt > 0 or not self._frontier.under_way.look_ups_waiting
        found = await self._ended(errand, self._look_up(errand.hostname, patient), _not_resolved)
        now = self._clock.now()
        if found.addresses:
            self._frontier.resolved(errand, found.addresses, found.expires, now)
            return self._wake()
        failure = no_address(errand.url, found)
        _say(failure)
        self._queue(lambda: self._results.unresolved(errand, failure, now))

    async def _look_up(self, name: str, patient: bool) -> Resolution:
        return await self._resolver.resolve(name, patient=patient)

    async def _denied(self, errand: Errand) -> None:
        now = self._clock.now()
        self._queue(lambda: self._results.denied(errand, now))

    async def _robots_txt(self, errand: Errand) -> None:
        owner = object()  # of the bytes: a host may ask again while those of its last answer are held
        fetch = await self._ended(
            errand, self._fetch_robots(errand, owner), lambda text: self._internal_error(errand.url, text)
        )
        now = self._clock.now()
        _say(fetch)

        def make() -> Making:
            change = yield from steps(self._results.robots(errand, fetch, now))
            change.after.append(lambda: self._fetcher.let_go(owner))
            return change

        if len(fetch.content) <= HEAVY_ROBOTS:
            return self._queue(make)
        self._step_aside(errand)
        self._queue_heavy(make)

    async def _fetch_robots(self, errand: Errand, owner: object) -> Fetch:
        return await self._follow(errand, self._request(errand, owner, robots=True), self._robots_hop)

    async def _page(self, errand: Errand) -> None:
        reach("fetch begun")
        owner = object()  # of the bytes, as above
        fetch, extracted = await self._ended(
            errand,
            self._fetch_page(errand, owner),
            lambda text: (self._internal_error(errand.url, text), None),
        )
        self.pages_ended += 1
        _say(fetch)
        now = self._clock.now()

        def make() -> Making:
            change = yield from self._promised(errand, fetch, extracted, now)
            change.after.append(lambda: self._fetcher.let_go(owner))
            return change

        queue: Callable[[Maker], None] = self._queue
        if is_heavy(fetch, extracted):
            await asyncio.to_thread(self._results.prepare, fetch)
            self._step_aside(errand)
            queue = self._queue_heavy
        if self.sink is None:
            return queue(make)
        self.awaiting_commit += 1
        try:
            await self._commit(make, queue)
        finally:
            self.awaiting_commit -= 1
        try:
            await self.sink(errand, fetch, extracted)
        finally:
            self.in_sink -= 1

    def _step_aside(self, errand: Errand) -> None:
        """The errand waits for something other than its server: its place is free."""
        self._frontier.hops.step_aside(errand, self._clock.now())
        self._wake()

    def _promised(self, errand: Errand, fetch: Fetch, extracted: Extracted | None, now: float) -> Making:
        """The page's change, with the promise that the sink gets it."""
        change = yield from self._results.page(errand, fetch, extracted, now)
        if self.promise is not None:
            self.promise(errand, fetch, change)
        return change

    async def _fetch_page(self, errand: Errand, owner: object) -> tuple[Fetch, Extracted | None]:
        stream: MapStream | None = None
        if errand.flags & _OWN_WAY and self.way_of is not None:
            way = self.way_of(errand)
            request = _going(self._request(errand, owner), way)
            fetch = await self._follow(errand, request, self._any_hop, way)
        else:
            request, stream = self._request(errand, owner), self._reader.follow(errand)
            request.listener = None if stream is None else stream.feed
            try:
                fetch = await self._follow(errand, request, self._own_key_hop)
            except BaseException:
                self._reader.drop(stream)
                raise
        extracted = await self._read(errand, fetch, stream)
        if extracted is not None:
            self._fetcher.hold_more(owner, size_of(extracted))
        return fetch, extracted

    async def _commit(self, make: Maker, queue: Callable[[Maker], None]) -> None:
        """Queue a change and wait until it is durable; it counts as `in_sink` from that moment on."""
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

    async def _read(self, errand: Errand, fetch: Fetch, stream: MapStream | None) -> Extracted | None:
        """What the answer holds; None if nothing new, or if it brings out a bug: its links are lost, not the page."""
        try:
            if not self._results.shows_news(errand, fetch):
                self._reader.drop(stream)
                return None
            extracted = await self._reader.read(errand, fetch, lambda: self._step_aside(errand), stream)
            if extracted is not None and extracted.told_by and errand.flags & _REFRESH:
                await self._reader.news(extracted, fetch, lambda: self._results.known_content(errand))
            return extracted
        except Exception as error:
            self._unexpected.note(error, f"reading {errand.url}, whose links are lost")
            self._reader.drop(stream)
            return None

    # -- hops -----------------------------------------------------------------

    async def _follow(self, errand: Errand, request: FetchTask, next_hop: NextHop, way: Way = PLAIN) -> Fetch:
        """Fetch, and follow redirects as long as `next_hop` names a URL; return the last answer."""
        fetch = await self._fetcher.fetch(request)
        chain = [(errand.url, "")]
        while fetch.outcome is Outcome.REDIRECT:
            if request.jar is None and not self._config.fetch.cookies:
                self._begin_jar(request, fetch)
            if not (url := next_hop(request, fetch, chain)):
                break
            chain.append((url, self._cookies(request, url)))
            fetch.body = fetch.content = b""  # nobody keeps it: a hop that waits holds no bytes
            self._fetcher.let_go(request.owner)
            way = way_on(way, fetch.status, same_host=hostname(url) == errand.hostname)
            fetch = await self._hop(errand, request, url, fetch, way)
        return fetch

    def _begin_jar(self, request: FetchTask, fetch: Fetch) -> None:
        """Keep cookies for the length of this chain: many sites set one and redirect to the same page."""
        request.jar = CookieJar()
        lines = [value for name, value in fetch.headers if name.lower() == b"set-cookie"]
        request.jar.store(split(fetch.url), lines, self._clock.now())

    def _cookies(self, request: FetchTask, url: str) -> str:
        """What a hop to `url` would send; "" without a jar of the chain's own."""
        return "" if request.jar is None else request.jar.header(split(url), self._clock.now())

    def _robots_hop(self, _request: FetchTask, fetch: Fetch, chain: Hops) -> str:
        if len(chain) > self._config.robots.redirects_max:
            return ""
        return resolve(fetch.url, fetch.location) or ""

    def _own_key_hop(self, request: FetchTask, fetch: Fetch, chain: Hops) -> str:
        """The target if its key is that of a URL of the chain: the duplicate check would eat it.

        A request that was made before, cookies and all, can only be answered as before.
        """
        target = resolve(fetch.url, fetch.location)
        if target is None or self._key(target) not in {self._key(url) for url, _ in chain}:
            return ""
        again = request.jar is not None and (target, self._cookies(request, target)) in chain
        if again or len(chain) > self._config.fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, "redirects in a circle"
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    def _any_hop(self, request: FetchTask, fetch: Fetch, chain: Hops) -> str:
        """The target wherever the crawl is at home: who asked in a way of his own waits for this answer."""
        target = resolve(fetch.url, fetch.location)
        if target is None or not self._results.in_scope(target):
            return ""
        if len(chain) > self._config.fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, "redirects in a circle"
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    async def _hop(self, errand: Errand, request: FetchTask, url: str, before: Fetch, way: Way) -> Fetch:
        """Fetch the next URL of a chain in its host's turn."""
        name = hostname(url)
        self._frontier.hops.give_back(errand.hostname, self._clock.now(), before.took, before.retry_after)
        self._step_aside(errand)
        addresses = request.addresses
        if name != errand.hostname and not self._config.fetch.proxy:  # a proxy looks names up itself
            found = await self._resolver.resolve(name)
            if not found.addresses:
                return no_address(url, found)
            addresses = found.addresses[:1]
        if not await self._borrow(errand, name, addresses[0] if addresses else ""):
            return Fetch(url=url, outcome=Outcome.CONNECT_ERROR, error=f"no turn at {name} in time")
        took = 0.0
        try:
            hop = msgspec.structs.replace(
                request, url=url, addresses=addresses, etag="", last_modified="", listener=None
            )
            self._allow_secrets(hop, name)
            fetch = await self._fetcher.fetch(_going(hop, way))
            took = fetch.took
            return fetch
        finally:
            if name != errand.hostname:
                self._frontier.hops.give_back(name, self._clock.now(), took)

    async def _borrow(self, errand: Errand, name: str, address: str) -> bool:
        """Wait for the turn of a hop; False if that takes too long."""
        give_up = self._clock.now() + HOP_WAIT_MAX
        least = 0.01
        while (at := self._frontier.hops.borrow(name, self._clock.now(), errand, address)) > 0.0:
            if max(at, self._clock.now()) > give_up:
                return False
            await asyncio.sleep(max(least, at - self._clock.now()))
            least = min(least * 1.5, HOP_ASKS_MAX)
        return True

    def _request(self, errand: Errand, owner: object, *, robots: bool = False) -> FetchTask:
        config = self._config
        gap, gap_factor = self._frontier.under_way.gap_terms(errand)
        keep_alive = gap + config.fetch.keep_alive_extra
        if self._frontier.under_way.has_more(errand):  # it will be asked again, be it late
            keep_alive = max(keep_alive, config.fetch.keep_alive_max)
        request = FetchTask(
            url=errand.url,
            addresses=(errand.address,) if errand.address else (),
            keep_alive=keep_alive if gap < config.fetch.keep_alive_max else 0.0,
            keep_alive_factor=gap_factor,
        )
        if self._overrides:
            self._override(request, errand)
        self._allow_secrets(request, errand.hostname)
        request.place = ErrandPlace(self._frontier, self._clock, errand, self._wake)
        request.owner = owner
        if robots:
            request.body_bytes_max = config.robots.bytes_max
            request.fetcher = HTTP
        elif errand.flags & _SITEMAP:
            request.body_bytes_max = request.wire_bytes_max = config.sitemaps.bytes_max
        if not robots:
            request.etag, request.last_modified = self._results.conditions(errand, self._clock.now())
        return request

    def _allow_secrets(self, request: FetchTask, name: str) -> None:
        """Let only those headers go along that were configured for this URL, wherever a redirect leads."""
        request.credentials = self._trusts(request.url)
        if self._overrides:
            request.headers = self._overrides.for_url(request.url, name).headers or ()

    def _override(self, request: FetchTask, errand: Errand) -> None:
        """Let the values that the configuration sets for this part of the web bind the request."""
        own = self._overrides.for_url(errand.url, errand.hostname)
        request.tls = own.tls or ""
        request.fetcher = own.fetcher or HTTP
        request.total_timeout = own.total_timeout
        if own.body_bytes_max is not None:
            request.body_bytes_max = own.body_bytes_max
            request.wire_bytes_max = max(own.body_bytes_max, self._config.fetch.wire_bytes_max)


def size_of(extracted: Extracted) -> int:
    """Bytes in memory, roughly."""
    found = (extracted.hrefs, extracted.maps, extracted.requisites, extracted.repeats)
    return sum(_STRING_BYTES * len(urls) + sum(map(len, urls)) for urls in found) + _DATE_BYTES * len(
        extracted.dated
    )


def is_heavy(fetch: Fetch, extracted: Extracted | None) -> bool:
    """Whether it takes long to decide upon an answer: some milliseconds of hashes, or of links."""
    links = 0 if extracted is None else len(extracted.hrefs) + len(extracted.maps) + len(extracted.requisites)
    return len(fetch.body) + len(fetch.content) > HEAVY_BYTES or links > HEAVY_LINKS


def _going(request: FetchTask, way: Way) -> FetchTask:
    """The request, going that way beside what the configuration says."""
    request.method, request.body = way.method, way.body
    request.headers = (*request.headers, *way.headers) if way.headers else request.headers
    return request


def way_on(way: Way, status: int, *, same_host: bool) -> Way:
    """How a redirect with that status is followed: 303, and 301 and 302 of a POST, by GET (Fetch Standard).

    Another host gets no credentials.
    """
    if way is PLAIN:
        return way
    headers = way.headers if same_host else tuple(line for line in way.headers if not is_credential(line))
    if status == 303 or (status in (301, 302) and way.method == "POST"):
        return Way(headers=tuple(line for line in headers if not line.lower().startswith("content-")))
    return Way(way.method, way.body, headers)


def _not_resolved(text: str) -> Resolution:
    return Resolution((), 0.0, Outcome.INTERNAL_ERROR, text)


def _say(fetch: Fetch) -> None:
    """Log, for -v, what a failed request met; `process/answering/wait_log.py` logs when the host is asked again."""
    if fetch.blame and log.isEnabledFor(logging.DEBUG):
        status = f" {fetch.status}" if fetch.status else ""
        error = f": {fetch.error}" if fetch.error else ""
        fields = {"url": fetch.url, "outcome": fetch.outcome, "status": fetch.status, "error": fetch.error}
        text = f"{fetch.url or 'look-up'}: {fetch.outcome.replace('_', ' ')}{status}{error}"
        log.debug("%s", text, extra={"fields": {name: value for name, value in fields.items() if value}})
