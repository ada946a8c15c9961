"""Fetches the files in which a site states how its pages may be used: tdmrep.json and RSL licence documents.

The files of a site are fetched after a page of the site and before the result for this page is stored, so
that the receipt of the page contains what the files say. Each file is fetched at most once per
`consent.files_max_age`. robots.txt, gaps and limits apply to the requests for these files as to all other
requests. Requests to the page's own host are hops of the page's fetch task. Requests to another host are made
like requests for subresources: by the process that owns the host, which fetches the robots.txt of the host
first. Meanwhile, the fetch task holds neither its slot nor its address, because the other host may have the same
address.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from crawler.consent.rsl import DOCUMENT_OCTETS_MAX
from crawler.fetcher.fetch_request import FetchRequest
from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.hop_requests import PLAIN
from crawler.process.fetching.subresources import Subresources
from crawler.records import Extracted, Fetch, FetchTask, Outcome, RequestOptions
from crawler.urls.canonical import hostname, resolve

Hop = Callable[[FetchTask, FetchRequest, str, Fetch, RequestOptions], Awaitable[Fetch]]


@dataclass(eq=False, repr=False)
class SiteFiles:
    """Fetches tdmrep.json and licence documents for the fetch tasks of a process.

    `hop` sends a request to the host of a fetch task when the gap of the host is over. `leave_network` releases the
    slot and the address of a fetch task until its next hop.
    """

    parts: FetchParts
    hop: Hop
    subresources: Callable[[FetchTask, FetchRequest], Subresources]
    leave_network: Callable[[FetchTask, Fetch], None]

    async def fetch(
        self, fetch_task: FetchTask, request: FetchRequest, page: Fetch, extracted: Extracted | None
    ) -> None:
        """Fetch the files of the site that a page still needs. Add to the page's answer what these files state."""
        results, now = self.parts.results, self.parts.clock.now
        urls = results.site_files(page, extracted, now())
        if not urls:
            return
        owner = object()
        plain = msgspec.structs.replace(
            request,
            etag="",
            last_modified="",
            listener=None,
            file=None,  # `file` is used only for the body of the page itself
            jar=None,
            method="GET",
            body=b"",
            body_bytes_max=DOCUMENT_OCTETS_MAX + 1,
            owner=owner,
        )
        before = page
        for url in urls:
            answer = await self._follow(fetch_task, plain, url, before)
            self.parts.queue(results.site_file(page, url, answer, now()))
            before = answer if hostname(answer.url) == fetch_task.hostname else before
        self.parts.fetcher.let_go(owner)
        results.note_site(page)

    async def _follow(self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch) -> Fetch:
        """Fetch a file and follow its redirects. Return the last answer."""
        answer = await self._ask(fetch_task, request, url, before)
        for _ in range(self.parts.config.robots.redirects_max):
            target = resolve(answer.url, answer.location) if answer.outcome is Outcome.REDIRECT else None
            if target is None:
                break
            answer = await self._ask(fetch_task, request, target, answer)
        return answer

    async def _ask(self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch) -> Fetch:
        if hostname(url) != fetch_task.hostname:
            self.leave_network(fetch_task, before)
            return await self.subresources(fetch_task, request).ask(url, "GET", ())
        hops, now = self.parts.frontier.hops, self.parts.clock.now
        if not hops.may_ask(url, now()):
            return Fetch(url, Outcome.ROBOTS_DENIED, began=now())
        answer = await self.hop(fetch_task, request, url, before, PLAIN)
        hops.end_site_file(fetch_task, answer, now())
        return answer
