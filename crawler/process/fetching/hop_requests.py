"""Follows redirects, and sends the other requests that an answer makes necessary, within one fetch task.

Each of these requests is a hop. A hop follows a redirect, repeats a request that the server wants signed, or
resumes an interrupted transfer of a file. A hop waits for the gap of its host. Before a hop to another host,
the fetch task also acquires the slot of that host. The fetch task holds no fetch slot while it waits for the
gap or for the slot of the host.
"""

import asyncio
from collections.abc import Callable

import msgspec

from crawler.config.credentials import is_credential
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.direct_requests import DirectRequests, no_address
from crawler.fetcher.fetch_request import HTTP, FetchRequest, split
from crawler.process.fetching.fetch_requests import FetchParts, FetchRequests, with_options
from crawler.records import REDIRECT_LOOP, Blame, Fetch, FetchTask, Outcome, RequestOptions, TaskKind
from crawler.urls.canonical import hostname, resolve

PLAIN = RequestOptions()
Requested = list[tuple[str, str]]  # the requests of a redirect chain so far: (URL, Cookie header)
NextHop = Callable[[FetchRequest, Fetch, Requested], str]

HOP_BODY_BYTES_MAX = 64 << 10  # number of bytes that are kept of each earlier body in a redirect chain
# number of seconds that a fetch task waits for the slot of another host before it gives up the hop
HOP_WAIT_MAX = 120.0
HOP_ASKS_MAX = 2.0  # seconds between two attempts to take the slot of a busy host


class HopRequests:
    """Makes the hops of the fetch tasks of a process. `step_aside` frees the slot of a waiting task."""

    def __init__(
        self, parts: FetchParts, requests: FetchRequests, step_aside: Callable[[FetchTask], None]
    ) -> None:
        self._fetch, self._robots_redirects_max = parts.config.fetch, parts.config.robots.redirects_max
        self._clock, self._frontier, self._results = parts.clock, parts.frontier, parts.results
        self._fetcher, self._resolver = parts.fetcher, parts.resolver
        self._direct = DirectRequests(parts.fetcher, parts.resolver, proxied=bool(self._fetch.proxy))
        self._requests, self._step_aside = requests, step_aside
        self._key, self._in_scope = parts.key, parts.in_scope
        self._fetch_at_owner, self._robots_bytes_max = parts.fetch_at_owner, parts.config.robots.bytes_max

    async def follow(
        self,
        fetch_task: FetchTask,
        request: FetchRequest,
        next_hop: NextHop,
        options: RequestOptions = PLAIN,
        *,
        keeps_all: bool = False,
    ) -> Fetch:
        """Send the request, and follow redirects as long as `next_hop` returns a URL. Return the last answer.

        With `keeps_all`, the field `earlier` of the last answer contains all earlier answers.
        """
        fetch = await self._fetcher.fetch(request)
        fetch = await self._signed(fetch_task, request, fetch, options)
        chain = [(fetch_task.url, "")]
        earlier: list[Fetch] = []
        while fetch.outcome is Outcome.REDIRECT:
            if request.jar is None and self._fetch.cookies is not True:
                self._begin_jar(request, fetch)
            if not (url := next_hop(request, fetch, chain)):
                break
            chain.append((url, self._cookies(request, url)))
            if keeps_all:
                self._results.note_site(fetch)
                earlier.append(_shortened(fetch))
            fetch.body = fetch.content = b""  # a task that waits for a hop keeps no body in memory
            self._fetcher.let_go(request.owner)
            options = redirected_options(
                options, fetch.status, same_host=hostname(url) == fetch_task.hostname
            )
            fetch = await self.hop(fetch_task, request, url, fetch, options)
            fetch = await self._signed(fetch_task, request, fetch, options)
        fetch.earlier = earlier
        return fetch

    async def _signed(
        self, fetch_task: FetchTask, request: FetchRequest, fetch: Fetch, options: RequestOptions
    ) -> Fetch:
        """If the server wants a signature, send the request again after the host's gap. Otherwise, return `fetch`."""
        if not fetch.challenged:
            return fetch
        fetch.body = fetch.content = b""
        self._fetcher.let_go(request.owner)
        return await self.hop(fetch_task, request, fetch.url, fetch, options)

    async def resume(self, fetch_task: FetchTask, request: FetchRequest, fetch: Fetch) -> Fetch:
        """Resume an interrupted transfer for as long as each request adds to the file. Return the last answer."""
        file = request.file
        for _ in range(self._fetch.resumes_max):
            if file is None or fetch.outcome is not Outcome.TRUNCATED or not file.can_resume():
                break
            before = fetch.body_bytes
            fetch = await self.hop(fetch_task, request, fetch.url, fetch, PLAIN)
            if fetch.body_bytes <= before:
                break
        return fetch

    def _begin_jar(self, request: FetchRequest, fetch: Fetch) -> None:
        """Keep cookies for this redirect chain, because many sites set a cookie and then redirect to the same page."""
        request.jar = CookieJar()
        lines = [value for name, value in fetch.headers if name.lower() == b"set-cookie"]
        request.jar.store(split(fetch.url), lines, self._clock.now())

    def _cookies(self, request: FetchRequest, url: str) -> str:
        """Return the Cookie header of a hop to `url`; "" if the chain has no cookie jar."""
        return "" if request.jar is None else request.jar.header(split(url), self._clock.now())

    def to_any_host(self, _request: FetchRequest, fetch: Fetch, chain: Requested) -> str:
        if len(chain) > self._robots_redirects_max:
            return ""
        return resolve(fetch.url, fetch.location) or ""

    def to_own_key(self, request: FetchRequest, fetch: Fetch, chain: Requested) -> str:
        """Return the target of a redirect if it has the same key as a URL of the chain; otherwise "".

        Such a target must be fetched at once, because as a link it would be dropped as a duplicate. If the
        chain already contains the same request with the same cookies, the redirect is a loop, because the
        answer would be the same.
        """
        target = resolve(fetch.url, fetch.location)
        if target is None or self._key(target) not in {self._key(url) for url, _ in chain}:
            return ""
        again = request.jar is not None and (target, self._cookies(request, target)) in chain
        if again or len(chain) > self._fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, REDIRECT_LOOP
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    def in_scope(self, request: FetchRequest, fetch: Fetch, chain: Requested) -> str:
        """Return the target of a redirect if it is in scope; otherwise "".

        This method is used for requests made by the user, who waits for the final answer.
        """
        target = resolve(fetch.url, fetch.location)
        if target is None or not self._in_scope(target):
            return ""
        if len(chain) > self._fetch.redirects_max:
            fetch.outcome, fetch.error = Outcome.BAD_REDIRECT, REDIRECT_LOOP
            return ""
        return target if self._frontier.hops.may_ask(target, self._clock.now()) else ""

    async def hop(
        self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch, options: RequestOptions
    ) -> Fetch:
        """Fetch the next URL of a chain as soon as its host may be requested again.

        The bytes and connections of the chain are added to the answer, so that its result counts them.
        """
        fetch = await self._hop(fetch_task, request, url, before, options)
        fetch.wire_bytes += before.wire_bytes
        fetch.hop_connections = (*before.hop_connections, before.connection)
        return fetch

    async def _hop(
        self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch, options: RequestOptions
    ) -> Fetch:
        name = hostname(url)
        if hostname(before.url) == fetch_task.hostname:
            self._frontier.hops.pause(fetch_task, before, self._clock.now())
        self._step_aside(fetch_task)
        if fetch_task.kind is TaskKind.ROBOTS and name != fetch_task.hostname:
            # Only the owner of a host knows when the host may be requested.
            at_owner = await self._fetch_at_owner(url)
            if at_owner is not None:
                return at_owner
        if self._frontier.hops.is_closed(name):
            return closed_host(url)
        addresses = request.addresses
        if name != fetch_task.hostname and not self._fetch.proxy:  # a proxy resolves names itself
            found = await self._resolver.resolve(name)
            if not found.addresses:
                return no_address(url, found)
            addresses = found.addresses[:1]
        if not await self._borrow(fetch_task, name, addresses[0] if addresses else ""):
            return waited_too_long(url)
        fetch = Fetch(url=url, outcome=Outcome.INTERNAL_ERROR)
        try:
            hop = msgspec.structs.replace(request, url=url, addresses=addresses, etag="", last_modified="")
            self._requests.allow_secrets(hop, name)
            fetch = await self._fetcher.fetch(with_options(hop, options))
            return fetch
        finally:
            if name != fetch_task.hostname:
                self._frontier.hops.give_back(fetch, self._clock.now())

    async def ask(self, request: FetchRequest) -> Fetch:
        """Send a request of no fetch task, such as a subscription to a hub, once its host may be requested."""
        name = hostname(request.url)
        if self._frontier.hops.is_closed(name):
            return closed_host(request.url)
        addresses: tuple[str, ...] = ()
        if not self._fetch.proxy:
            found = await self._resolver.resolve(name)
            if not found.addresses:
                return no_address(request.url, found)
            addresses = found.addresses[:1]
        address = addresses[0] if addresses else ""
        if not await self._borrow(None, name, address):
            return waited_too_long(request.url)
        fetch = Fetch(request.url, Outcome.INTERNAL_ERROR)
        try:
            fetch = await self._direct.ask(request)
            return fetch
        finally:
            self._frontier.hops.give_back(fetch, self._clock.now())

    async def fetch_robots_for_peer(self, url: str) -> Fetch:
        """Request a robots.txt on an own host, to which the robots.txt of a peer's host redirects."""
        request = FetchRequest(url=url, body_bytes_max=self._robots_bytes_max, fetcher=HTTP)
        self._requests.allow_secrets(request, hostname(url))
        return await self.ask(request)

    async def _borrow(self, fetch_task: FetchTask | None, name: str, address: str) -> bool:
        """Wait until the request of a hop may be sent. Return False if this takes too long."""
        give_up = self._clock.now() + HOP_WAIT_MAX
        least = 0.01
        while (at := self._frontier.hops.borrow(name, self._clock.now(), fetch_task, address)) > 0.0:
            if max(at, self._clock.now()) > give_up:
                return False
            await asyncio.sleep(max(least, at - self._clock.now()))
            least = min(least * 1.5, HOP_ASKS_MAX)
        return True


def waited_too_long(url: str) -> Fetch:
    """Return the result of a request whose host did not become free in time. The URL is tried again."""
    error = f"waited too long for a slot of {hostname(url)}"
    return Fetch(url, Outcome.CONNECT_ERROR, Blame.URL, error=error)


def closed_host(url: str) -> Fetch:
    """Return the result of a request to a host that gets no requests. The URL is tried again."""
    error = f"{hostname(url)} gets no requests: it is blocked or was given up"
    return Fetch(url, Outcome.CONNECT_ERROR, Blame.URL, error=error)


def _shortened(fetch: Fetch) -> Fetch:
    """Return a copy of an earlier answer of a chain, with its body cut to the length that may be held."""
    body = fetch.body[:HOP_BODY_BYTES_MAX]
    truncated = fetch.truncated if len(body) == len(fetch.body) else "length"
    return msgspec.structs.replace(fetch, body=body, content=b"", truncated=truncated, payload_digest=b"")


def redirected_options(options: RequestOptions, status: int, *, same_host: bool) -> RequestOptions:
    """Return the options for the request that follows a redirect.

    After a 303, and after a 301 or 302 in answer to a POST, the method is GET (Fetch Standard).
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
