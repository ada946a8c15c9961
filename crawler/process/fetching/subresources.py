"""Sends the requests that a page makes in a browser, as politely as all other requests of the crawl.

    own host        one at a time, without a gap between them, but after a 429 or 503 the others wait; afterwards
                    the host rests as after a single request that took as long as all of them
    other hosts     each request waits for its host's slot and gap, like the hop of a redirect, within the page's time
    limit

The robots.txt of a host applies to subresources as well as to pages. If the robots.txt of a host is not known
yet, it is fetched first. The address guard, the limits and the cookies are the same as for pages, because the
same fetcher sends these requests. Even a crawl without cookies keeps the cookies of a page for the other
requests of the same page.
"""

import asyncio
from collections.abc import Callable

import msgspec

from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.direct_requests import no_address
from crawler.fetcher.fetch_request import HTTP, METHODS, FetchRequest
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.hop_requests import closed_host
from crawler.records import Fetch, FetchTask, Outcome, TaskKind
from crawler.robots.cache import VerdictKind
from crawler.storage.commit import followed_by
from crawler.urls.canonical import authority, canonical, hostname, resolve

ASKS_MIN, ASKS_MAX = 0.05, 2.0  # number of seconds between two attempts to acquire the slot of a busy host


class Subresources:
    """Sends the requests of one page. `ask` raises no exceptions unless it is cancelled.

    `request` is the request for the page itself. Its settings apply to the subresources, too. `allow` sets the
    headers that may be sent to a URL.
    """

    def __init__(
        self,
        fetch_task: FetchTask,
        request: FetchRequest,
        parts: FetchParts,
        allow: Callable[[FetchRequest, str], None],
    ) -> None:
        self._fetch_task, self._parts, self._allow = fetch_task, parts, allow
        self._clock, self._frontier = parts.clock, parts.frontier
        jar = request.jar
        if jar is None and not parts.config.fetch.cookies:
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

    async def ask(self, url: str, method: str, headers: tuple[str, ...], body: bytes = b"") -> Fetch:
        """Fetch a URL for the page as soon as a request may be sent to the host of the URL."""
        form = canonical(url)
        if form is None or method not in METHODS:
            return Fetch(url, Outcome.ADDRESS_DENIED, error="not a URL that is fetched")
        name = hostname(form)
        async with self._turns.setdefault(name, asyncio.Lock()):
            if not await self._may_ask(form):
                return Fetch(form, Outcome.ROBOTS_DENIED, began=self._clock.now())
            return await self._fetch(form, method, headers, body)

    async def _may_ask(self, url: str) -> bool:
        """Return whether robots.txt allows the URL. If the robots.txt is not known, fetch it first."""
        verdict = self._frontier.hops.verdict(url, self._clock.now())
        if verdict.kind is VerdictKind.FETCH:
            await self._fetch_robots(authority(url))
            verdict = self._frontier.hops.verdict(url, self._clock.now())
        return verdict.kind is VerdictKind.ALLOWED

    async def _fetch_robots(self, site: str) -> None:
        """Fetch the robots.txt of an authority, follow its redirects, and wait until the answer is known."""
        first = url = f"{site}/robots.txt"
        fetch = await self._fetch(url)
        for _ in range(self._parts.config.robots.redirects_max):
            target = resolve(fetch.url, fetch.location) if fetch.outcome is Outcome.REDIRECT else None
            if target is None:
                break
            fetch = await self._fetch(target)
        task = FetchTask(TaskKind.ROBOTS, 0, hostname(first), first)
        known = asyncio.Event()
        now = self._clock.now
        self._parts.queue(followed_by(lambda: self._parts.results.hop_robots(task, fetch, now()), known.set))
        await known.wait()

    async def _fetch(
        self, url: str, method: str = "GET", headers: tuple[str, ...] = (), body: bytes = b""
    ) -> Fetch:
        name, own = hostname(url), hostname(url) == self._fetch_task.hostname
        if self._frontier.hops.is_closed(name):
            return closed_host(url)
        addresses = self._request.addresses
        if not own and not self._parts.config.fetch.proxy:
            found = await self._parts.resolver.resolve(name)
            if not found.addresses:
                return no_address(url, found)
            addresses = found.addresses[:1]
        await self._take(name, addresses[0] if addresses else "", own=own)
        fetch = Fetch(url, Outcome.INTERNAL_ERROR)
        try:
            request = msgspec.structs.replace(
                self._request, url=url, addresses=addresses, method=method, body=body
            )
            if method == "POST":
                # a POST by a page may change something on the server, so it is sent without the crawl's
                # credentials and cookies
                request.credentials, request.headers, request.jar = False, (), CookieJar()
            else:
                self._allow(request, name)
            request.headers = (*headers, *request.headers)
            fetch = await self._parts.fetcher.fetch(request)
        finally:
            if own:
                self.own_host_took += fetch.took
                self._frontier.hops.end_subresource(self._fetch_task, fetch, self._clock.now())
            else:
                self._frontier.hops.give_back(fetch, self._clock.now())
        return await self._fetch(url, method, headers, body) if fetch.challenged else fetch

    async def _take(self, name: str, address: str, *, own: bool) -> None:
        """Wait until the request may be sent."""
        hops, least = self._frontier.hops, ASKS_MIN
        while True:
            now = self._clock.now()
            at = (
                hops.take_address(self._fetch_task, address, now)
                if own
                else hops.borrow(name, now, None, address)
            )
            if at == 0.0:
                return
            await asyncio.sleep(max(least, at - now))
            least = min(least * 1.5, ASKS_MAX)
