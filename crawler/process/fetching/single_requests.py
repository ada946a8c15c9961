"""Makes requests to hosts that no fetch task of this process holds. The owner of the host makes each request.

    subresources and licence documents on other hosts ─┐
    subscriptions at WebSub hubs ──────────────────────┼─ own host ───► wait for its slot and gap, request
    the robots.txt of these hosts ─────────────────────┘  other host ─► ask its owner (`exchange/`), which does the same

Only the owner of a host knows when the host may be requested, and what its robots.txt says. So a host is requested
by one process, whichever process needs it (`splitter/README.md`, "Requests for peers"). If an owner is not reached in
time, the request has a result that says so, as if the host had not answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from weakref import WeakValueDictionary

import msgspec

from crawler.fetcher.direct_requests import no_address
from crawler.fetcher.fetch_request import HTTP, METHODS, Cookies, FetchRequest, Target, split
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.records import Blame, Fetch, FetchTask, Outcome, TaskKind
from crawler.robots.cache import VerdictKind
from crawler.splitter.wire import AskedRequest
from crawler.storage.commit import followed_by
from crawler.urls.canonical import authority, hostname, resolve

# number of seconds that a request waits for the slot of its host before it is given up
HOST_WAIT_MAX = 120.0
ASKS_MIN, ASKS_MAX = 0.01, 2.0  # number of seconds between two attempts to acquire the slot of a busy host


class SingleRequests:
    """The single requests of one process, and those that its peers ask for. No method raises unless it is cancelled.

    `allow` sets the headers that may be sent to a URL.
    """

    def __init__(self, parts: FetchParts, allow: Callable[[FetchRequest, str], None]) -> None:
        self._parts, self._allow = parts, allow
        self._clock, self._hops = parts.clock, parts.frontier.hops
        self._robots_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, asked: AskedRequest, owner: Hashable = None, jar: Cookies | None = None) -> Fetch:
        """Return the answer to a request, which is made here or by the process that owns its host.

        Follow no redirect. The memory of the answer is charged to `owner`. `jar` provides and receives the cookies.
        """
        if not self._parts.is_own(asked.url):
            target, now = split(asked.url), self._clock.now()
            cookies = asked.cookies if jar is None else jar.header(target, now)
            sent = msgspec.structs.replace(asked, cookies=cookies)
            fetch = await self._parts.fetch_at_owner(sent)
            if fetch is not None:
                if jar is not None:
                    lines = [value for name, value in fetch.headers if name.lower() == b"set-cookie"]
                    jar.store(target, lines, now)
                if owner is not None:
                    self._parts.fetcher.hold_more(owner, len(fetch.body) + len(fetch.content))
                return fetch
        return await self.serve(asked, owner, jar)

    async def ask(self, request: FetchRequest) -> Fetch:
        """Send a request of no page, such as a subscription to a hub, once its host may be requested."""
        return await self.fetch(
            asked_of(request, patience=HOST_WAIT_MAX, credentials=False, obeys_robots=False)
        )

    def let_go(self, owner: Hashable) -> None:
        """Release the memory that is charged to `owner`."""
        self._parts.fetcher.let_go(owner)

    async def serve(self, asked: AskedRequest, owner: Hashable = None, jar: Cookies | None = None) -> Fetch:
        """Make a request as soon as its host may be requested, if its robots.txt allows the URL."""
        until = self._clock.now() + min(asked.patience, HOST_WAIT_MAX)
        if self._hops.is_closed(hostname(asked.url)):
            return closed_host(asked.url)
        if asked.obeys_robots and not await self.may_ask(asked.url, until):
            return Fetch(asked.url, Outcome.ROBOTS_DENIED, began=self._clock.now())
        fetch = await self._send(asked, owner, jar, until)
        # a server that wants a signature gets a second request, after the host's gap
        return await self._send(asked, owner, jar, until) if fetch.challenged else fetch

    async def read_robots(self, site: str, fetch: Callable[[str], Awaitable[Fetch]]) -> None:
        """Fetch the robots.txt of an authority with `fetch`, follow its redirects, and wait until the answer is known.

        If the authority could not be requested, nothing is learned.
        """
        first = f"{site}/robots.txt"
        answer = await self.last_answer(first, fetch)
        if answer is None:
            return
        task = FetchTask(TaskKind.ROBOTS, 0, hostname(first), first)
        known = asyncio.Event()
        now = self._clock.now
        self._parts.queue(followed_by(lambda: self._parts.results.hop_robots(task, answer, now()), known.set))
        await known.wait()

    async def last_answer(self, url: str, fetch: Callable[[str], Awaitable[Fetch]]) -> Fetch | None:
        """Fetch a robots.txt with `fetch`, and follow its redirects. Return None if its host could not be requested."""
        answer = await fetch(url)
        if was_not_made(answer):
            return None
        for _ in range(self._parts.config.robots.redirects_max):
            target = resolve(answer.url, answer.location) if answer.outcome is Outcome.REDIRECT else None
            if target is None:
                break
            answer = await fetch(target)
        return answer

    async def fetch_robots(
        self, url: str, patience: float = HOST_WAIT_MAX, jar: Cookies | None = None
    ) -> Fetch:
        """Return the answer to the request for a robots.txt, or for the target of its redirect."""
        bytes_max = int(self._parts.config.robots.bytes_max)
        asked = AskedRequest(url, obeys_robots=False, body_bytes_max=bytes_max, patience=patience)
        return await self.fetch(asked, jar=jar)

    async def may_ask(self, url: str, until: float) -> bool:
        """Return whether robots.txt allows a URL of an own host. If the robots.txt is not known, fetch it first.

        Requests that need the same robots.txt at the same time fetch it once.
        """
        site = authority(url)
        async with self._robots_turns.setdefault(site, asyncio.Lock()):
            verdict = self._hops.verdict(url, self._clock.now())
            if verdict.kind is VerdictKind.FETCH:
                patience = max(0.0, until - self._clock.now())
                await self.read_robots(site, lambda each: self.fetch_robots(each, patience))
                verdict = self._hops.verdict(url, self._clock.now())
        return verdict.kind is VerdictKind.ALLOWED

    async def _send(self, asked: AskedRequest, owner: Hashable, jar: Cookies | None, until: float) -> Fetch:
        name = hostname(asked.url)
        addresses: tuple[str, ...] = ()
        if not self._parts.config.fetch.proxy:  # a proxy resolves names itself
            found = await self._parts.resolver.resolve(name)
            if not found.addresses:
                return no_address(asked.url, found)
            addresses = found.addresses[:1]
        if not await self.borrow(None, name, addresses[0] if addresses else "", until):
            return waited_too_long(asked.url)
        fetch = Fetch(asked.url, Outcome.INTERNAL_ERROR)
        try:
            fetch = await self._parts.fetcher.fetch(self._request(asked, addresses, owner, jar))
            return fetch
        finally:
            self._hops.give_back(fetch, self._clock.now())

    async def borrow(self, fetch_task: FetchTask | None, name: str, address: str, until: float) -> bool:
        """Wait until a host may be requested. Return False if this takes longer than `until`."""
        least = ASKS_MIN
        while (at := self._hops.borrow(name, self._clock.now(), fetch_task, address)) > 0.0:
            if max(at, self._clock.now()) > until:
                return False
            await asyncio.sleep(max(least, at - self._clock.now()))
            least = min(least * 1.5, ASKS_MAX)
        return True

    def _request(
        self, asked: AskedRequest, addresses: tuple[str, ...], owner: Hashable, jar: Cookies | None
    ) -> FetchRequest:
        if jar is None and asked.cookies is not None:
            jar = GivenCookies(asked.cookies)
        request = FetchRequest(
            asked.url,
            addresses,
            keep_alive=self._parts.config.fetch.keep_alive_extra,
            tls=asked.tls,
            body_bytes_max=asked.body_bytes_max,
            wire_bytes_max=asked.wire_bytes_max,
            total_timeout=asked.total_timeout,
            jar=jar,
            owner=owner,
            method=asked.method,
            body=asked.body,
            fetcher=HTTP,
            proxy=asked.proxy,
        )
        if asked.credentials:
            self._allow(request, hostname(asked.url))
        request.headers = (*asked.headers, *request.headers)
        return request


class GivenCookies:
    """The cookies of a request for a peer: the peer has chosen them, and reads new ones from the answer."""

    lasts = False

    def __init__(self, header: str) -> None:
        self._header = header

    def header(self, target: Target, now: float) -> str:
        return self._header

    def store(self, target: Target, lines: list[bytes], now: float) -> None:
        """Do nothing: the answer contains the cookies."""


def asked_of(
    request: FetchRequest, *, patience: float, credentials: bool, obeys_robots: bool
) -> AskedRequest:
    """Return a request in the form in which any process can make it, without its cookies.

    Its numbers have plain types, because those of the configuration cannot be encoded.
    """
    bytes_max, wire_max, timeout = request.body_bytes_max, request.wire_bytes_max, request.total_timeout
    return AskedRequest(
        request.url,
        request.method,
        request.headers,
        request.body,
        credentials=credentials,
        obeys_robots=obeys_robots,
        tls=request.tls,
        proxy=request.proxy,
        body_bytes_max=None if bytes_max is None else int(bytes_max),
        wire_bytes_max=None if wire_max is None else int(wire_max),
        total_timeout=None if timeout is None else float(timeout),
        patience=float(patience),
    )


def is_well_formed(asked: AskedRequest) -> bool:
    """Return whether a request of a peer can be sent: its method is known, and no header line has a line break."""
    lines = (*asked.headers, asked.cookies or "")
    return asked.method in METHODS and not any("\r" in line or "\n" in line for line in lines)


def was_not_made(fetch: Fetch) -> bool:
    """Return whether this is the result of a request that could not be made, so that it says nothing about its host."""
    return fetch.outcome is Outcome.CONNECT_ERROR and not fetch.began


def waited_too_long(url: str) -> Fetch:
    """Return the result of a request whose host did not become free in time. The URL is tried again."""
    error = f"waited too long for a slot of {hostname(url)}"
    return Fetch(url, Outcome.CONNECT_ERROR, Blame.URL, error=error)


def closed_host(url: str) -> Fetch:
    """Return the result of a request to a host that gets no requests. The URL is tried again."""
    error = f"{hostname(url)} gets no requests: it is blocked or was given up"
    return Fetch(url, Outcome.CONNECT_ERROR, Blame.URL, error=error)
