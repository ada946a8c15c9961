"""Follows redirects, and sends the other requests that an answer makes necessary, within one fetch task.

Each of these requests is a hop. A hop follows a redirect, repeats a request that the server wants signed, or
resumes an interrupted transfer of a file. A hop waits for the gap of its host. Before a hop to another host,
the fetch task also acquires the slot of that host. The fetch task holds no fetch slot while it waits for the
gap or for the slot of the host.
"""

from collections.abc import Callable

import msgspec

from crawler.config.credentials import is_credential
from crawler.fetcher.cookies import jar_begun_by
from crawler.fetcher.direct_requests import no_address
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.process.fetching.fetch_requests import FetchParts, FetchRequests, with_options
from crawler.process.fetching.single_requests import (
    HOST_WAIT_MAX,
    SingleRequests,
    closed_host,
    waited_too_long,
)
from crawler.records import REDIRECT_LOOP, Fetch, FetchTask, Outcome, RequestOptions, TaskKind
from crawler.urls.canonical import hostname, resolve

PLAIN = RequestOptions()
Requested = list[tuple[str, str]]  # the requests of a redirect chain so far: (URL, Cookie header)
NextHop = Callable[[FetchRequest, Fetch, Requested], str]

HOP_BODY_BYTES_MAX = 64 << 10  # number of bytes that are kept of each earlier body in a redirect chain


class HopRequests:
    """Makes the hops of the fetch tasks of a process. `step_aside` frees the slot of a waiting task."""

    def __init__(
        self,
        parts: FetchParts,
        requests: FetchRequests,
        single: SingleRequests,
        step_aside: Callable[[FetchTask], None],
    ) -> None:
        self._fetch, self._robots_redirects_max = parts.config.fetch, parts.config.robots.redirects_max
        self._clock, self._frontier, self._results = parts.clock, parts.frontier, parts.results
        self._fetcher, self._resolver = parts.fetcher, parts.resolver
        self._single = single
        self._requests, self._step_aside = requests, step_aside
        self._key, self._in_scope, self._is_own = parts.key, parts.in_scope, parts.is_own

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
                # many sites set a cookie and then redirect to the same page
                request.jar = jar_begun_by(split(fetch.url), fetch.headers, self._clock.now())
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
        if fetch_task.kind is TaskKind.ROBOTS and not self._is_own(url):
            return await self._single.fetch_robots(url, jar=request.jar)
        if self._frontier.hops.is_closed(name):
            return closed_host(url)
        addresses = request.addresses
        if name != fetch_task.hostname and not self._fetch.proxy:  # a proxy resolves names itself
            found = await self._resolver.resolve(name)
            if not found.addresses:
                return no_address(url, found)
            addresses = found.addresses[:1]
        until = self._clock.now() + HOST_WAIT_MAX
        if not await self._single.borrow(fetch_task, name, addresses[0] if addresses else "", until):
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
