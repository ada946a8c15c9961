"""Sends the requests that a page makes in a browser, as politely as all other requests of the crawl.

    own host        one at a time, without a gap between them, but after a 429 or 503 the others wait; afterwards
                    the host rests as after a single request that took as long as all of them
    other hosts     one at a time for each page; each request waits for its host's slot and gap, within the page's
                    time limit, and is made by the process that owns the host (`single_requests.py`)

The robots.txt of a host applies to subresources as well as to pages. If the robots.txt of a host is not known
yet, it is fetched first. The address guard, the limits and the cookies are the same as for pages, because the
same fetcher sends these requests. Even a crawl without cookies keeps the cookies of a page for the other
requests of the same page.
"""

import asyncio
from collections.abc import Callable

import msgspec

from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.fetch_request import HTTP, METHODS, FetchRequest
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.single_requests import HOST_WAIT_MAX, SingleRequests, asked_of, closed_host
from crawler.records import Fetch, FetchTask, Outcome
from crawler.robots.cache import VerdictKind
from crawler.urls.canonical import authority, canonical, hostname

# number of seconds between two attempts to acquire the address of the page's host
ASKS_MIN, ASKS_MAX = 0.05, 2.0


class Subresources:
    """Sends the requests of one page. `ask` raises no exceptions unless it is cancelled.

    `request` is the request for the page itself. Its settings apply to the subresources, too. `allow` sets the
    headers that may be sent to a URL. Requests to other hosts are given up if their host is not free within
    `HOST_WAIT_MAX`, or within `patience` seconds if that is less.
    """

    def __init__(
        self,
        fetch_task: FetchTask,
        request: FetchRequest,
        parts: FetchParts,
        single: SingleRequests,
        allow: Callable[[FetchRequest, str], None],
    ) -> None:
        self._fetch_task, self._parts, self._single, self._allow = fetch_task, parts, single, allow
        self._clock, self._frontier = parts.clock, parts.frontier
        jar = request.jar
        if jar is None and parts.config.fetch.cookies is not True:
            jar = CookieJar()
        self._request = msgspec.structs.replace(
            request,
            etag="",
            last_modified="",
            listener=None,
            slot=None,
            fetcher=HTTP,
            jar=jar,
            body=b"",
            file=None,  # `file` is used only for the body of the page itself
        )
        self._turns: dict[str, asyncio.Lock] = {}
        # number of seconds for which the page's own host was busy with these requests
        self.own_host_took = 0.0

    async def ask(
        self,
        url: str,
        method: str,
        headers: tuple[str, ...],
        body: bytes = b"",
        patience: float = HOST_WAIT_MAX,
    ) -> Fetch:
        """Fetch a URL for the page as soon as a request may be sent to the host of the URL."""
        form = canonical(url)
        if form is None or method not in METHODS:
            return Fetch(url, Outcome.ADDRESS_DENIED, error="not a URL that is fetched")
        name = hostname(form)
        request = msgspec.structs.replace(self._request, url=form, method=method, body=body)
        if method == "POST":
            # a POST by a page may change something on the server, so it is sent without the crawl's
            # credentials and cookies
            request.credentials, request.headers, request.jar = False, (), CookieJar()
        async with self._turns.setdefault(name, asyncio.Lock()):
            if name == self._fetch_task.hostname:
                return await self._ask_own(request, headers)
            request.headers = headers
            asked = asked_of(request, patience=patience, credentials=method != "POST", obeys_robots=True)
            return await self._single.fetch(asked, request.owner, request.jar)

    async def _ask_own(self, request: FetchRequest, headers: tuple[str, ...]) -> Fetch:
        """Fetch a URL of the page's own host."""
        url, verdict = request.url, self._verdict(request.url)
        if verdict is VerdictKind.FETCH:
            await self._single.read_robots(authority(url), self._fetch_robots)
            verdict = self._verdict(url)
        if verdict is not VerdictKind.ALLOWED:
            return Fetch(url, Outcome.ROBOTS_DENIED, began=self._clock.now())
        if request.method != "POST":
            self._allow(request, self._fetch_task.hostname)
        request.headers = (*headers, *request.headers)
        return await self._send(request)

    def _verdict(self, url: str) -> VerdictKind:
        return self._frontier.hops.verdict(url, self._clock.now()).kind

    async def _fetch_robots(self, url: str) -> Fetch:
        """Fetch a robots.txt of the page's own host, or the target of its redirect."""
        if hostname(url) != self._fetch_task.hostname:
            return await self._single.fetch_robots(url)
        request = msgspec.structs.replace(
            self._request, url=url, method="GET", body_bytes_max=self._parts.config.robots.bytes_max
        )
        self._allow(request, self._fetch_task.hostname)
        return await self._send(request)

    async def _send(self, request: FetchRequest) -> Fetch:
        """Send a request to the page's own host; send it again if the server wants a signature."""
        hops = self._frontier.hops
        if hops.is_closed(self._fetch_task.hostname):
            return closed_host(request.url)
        await self._take_address(request.addresses[0] if request.addresses else "")
        fetch = Fetch(request.url, Outcome.INTERNAL_ERROR)
        try:
            fetch = await self._parts.fetcher.fetch(request)
        finally:
            self.own_host_took += fetch.took
            hops.end_subresource(self._fetch_task, fetch, self._clock.now())
        return await self._send(request) if fetch.challenged else fetch

    async def _take_address(self, address: str) -> None:
        """Wait until a request to the page's own host may be sent."""
        hops, least = self._frontier.hops, ASKS_MIN
        while (at := hops.take_address(self._fetch_task, address, self._clock.now())) > 0.0:
            await asyncio.sleep(max(least, at - self._clock.now()))
            least = min(least * 1.5, ASKS_MAX)
