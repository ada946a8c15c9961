"""Finds the other authorities whose robots.txt names a sitemap, so that the sitemap may list their URLs.

    sitemap read ──► its first `SITES_MAX` other authorities in scope ──► robots.txt of each: known, or fetched now
                                                                     └──► those that name the sitemap

The robots.txt of a host of another process is fetched by that process, and read here (`single_requests.py`). So the
result depends neither on the number of processes nor on the order in which hosts are fetched. Meanwhile, the fetch
task holds neither its slot nor its address.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from crawler.process.fetching.fetch_requests import FetchParts
from crawler.process.fetching.single_requests import SingleRequests
from crawler.process.results.cross_submits import other_authorities
from crawler.records import Extracted, Fetch, FetchTask
from crawler.robots.cache import RobotsCache, VerdictKind
from crawler.storage.commit import Change
from crawler.storage.kv import MemoryStore

SITES_MAX = 16  # maximum number of other authorities that are examined for a sitemap
SITES_WAIT = (
    60.0  # number of seconds after which the authorities that have not answered count as not naming it
)
_REMEMBERED = 1000  # number of files of hosts of other processes that stay in memory
_AT_ONCE = 64  # number of URLs examined between two pauses: about 2 ms


class Submitters:
    """`leave_network` releases the slot and the address of a fetch task until its next hop."""

    def __init__(
        self, parts: FetchParts, single: SingleRequests, leave_network: Callable[[FetchTask, Fetch], None]
    ) -> None:
        self._parts, self._single, self._leave_network = parts, single, leave_network
        config = parts.config
        # the files of hosts of other processes; the store of this process has only those of its own hosts
        self._of_peers = RobotsCache(MemoryStore(), config.robots, config.identity.token, _REMEMBERED)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(self, fetch_task: FetchTask, fetch: Fetch, extracted: Extracted) -> list[str]:
        """Return the other authorities in scope whose robots.txt names the sitemap that `fetch_task` fetched."""
        sites: list[str] = []
        steps = other_authorities(fetch_task, (*extracted.hrefs, *extracted.maps), self._parts.in_scope)
        for number, site in enumerate(steps):
            if site and site not in sites:
                sites.append(site)
            if len(sites) == SITES_MAX:
                break
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        unread = [site for site in sites if self._is_unknown(site)]
        if unread:
            self._leave_network(fetch_task, fetch)
            with suppress(TimeoutError):
                async with asyncio.timeout(SITES_WAIT):
                    await asyncio.gather(*map(self._read, unread))
        return [site for site in sites if self._cache(site).names(site, fetch_task.url)]

    def _cache(self, site: str) -> RobotsCache:
        return self._parts.robots if self._parts.is_own(f"{site}/") else self._of_peers

    def _is_unknown(self, site: str) -> bool:
        verdict = self._cache(site).verdict(site, "/", self._parts.clock.now())
        return verdict.kind is VerdictKind.FETCH

    async def _read(self, site: str) -> None:
        """Fetch the robots.txt of an authority. Sitemaps that need the same file at the same time fetch it once."""
        now = self._parts.clock.now
        if self._parts.is_own(f"{site}/"):
            await self._single.may_ask(f"{site}/", now() + SITES_WAIT)
            return
        async with self._turns.setdefault(site, asyncio.Lock()):
            if not self._is_unknown(site):
                return
            answer = await self._single.last_answer(
                f"{site}/robots.txt", lambda url: self._single.fetch_robots(url, SITES_WAIT)
            )
            if answer is not None:
                self._of_peers.record(
                    site,
                    status=answer.status,
                    outcome=answer.outcome,
                    body=answer.content,
                    complete=answer.truncated in ("", "length"),
                    now=now(),
                    batch=Change(),  # dropped: the owner stores the file
                )
