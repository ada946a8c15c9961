"""Fetches the files in which a site states how its pages may be used: tdmrep.json and RSL licence documents.

The files of a site are fetched after a page of the site and before the result for this page is stored, so
that the receipt of the page contains what the files say. Each file is fetched at most once per
`consent.files_max_age`. robots.txt, gaps and limits apply to the requests for these files as to all other
requests. Requests to the page's own host are hops of the page's fetch task. Requests to another host are made
like requests for subresources: the robots.txt of the other host is fetched first.
"""

from collections.abc import Awaitable, Callable

import msgspec

from crawler.clock import Clock
from crawler.consent.rsl import DOCUMENT_OCTETS_MAX
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.fetchers import Fetcher
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.subresources import Subresources
from crawler.process.results.result_processor import ResultProcessor
from crawler.records import Extracted, Fetch, FetchTask, Outcome, RequestOptions
from crawler.storage.commit import Maker
from crawler.urls.canonical import hostname, resolve

Hop = Callable[[FetchTask, FetchRequest, str, Fetch, RequestOptions], Awaitable[Fetch]]
_PLAIN = RequestOptions()


class SiteFiles:
    """Fetches tdmrep.json and licence documents for the fetch tasks of a process.

    `hop` sends a request to the host of a fetch task when the gap of the host is over. `queue` receives the
    changes.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        frontier: Frontier,
        results: ResultProcessor,
        clock: Clock,
        *,
        redirects_max: int,
        hop: Hop,
        subresources: Callable[[FetchTask, FetchRequest], Subresources],
        queue: Callable[[Maker], None],
    ) -> None:
        self._fetcher, self._frontier, self._results, self._clock = fetcher, frontier, results, clock
        self._redirects_max = redirects_max
        self._hop, self._subresources, self._queue = hop, subresources, queue

    async def fetch(
        self, fetch_task: FetchTask, request: FetchRequest, page: Fetch, extracted: Extracted | None
    ) -> None:
        """Fetch the files of the site that a page still needs. Add to the page's answer what these files state."""
        urls = self._results.site_files(page, extracted, self._clock.now())
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
            make = self._results.site_file(page, url, answer, self._clock.now())
            self._queue(make)
            before = answer if hostname(answer.url) == fetch_task.hostname else before
        self._fetcher.let_go(owner)
        self._results.note_site(page)

    async def _follow(self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch) -> Fetch:
        """Fetch a file and follow its redirects. Return the last answer."""
        answer = await self._ask(fetch_task, request, url, before)
        for _ in range(self._redirects_max):
            target = resolve(answer.url, answer.location) if answer.outcome is Outcome.REDIRECT else None
            if target is None:
                break
            answer = await self._ask(fetch_task, request, target, answer)
        return answer

    async def _ask(self, fetch_task: FetchTask, request: FetchRequest, url: str, before: Fetch) -> Fetch:
        if hostname(url) != fetch_task.hostname:
            return await self._subresources(fetch_task, request).ask(url, "GET", ())
        if not self._frontier.hops.may_ask(url, self._clock.now()):
            return Fetch(url, Outcome.ROBOTS_DENIED, began=self._clock.now())
        answer = await self._hop(fetch_task, request, url, before, _PLAIN)
        self._frontier.hops.end_site_file(fetch_task, answer, self._clock.now())
        return answer
