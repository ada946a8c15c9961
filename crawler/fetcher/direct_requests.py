"""Sends requests outside the crawl, to the pages of a login (`cli/login.py`).

The requests use the crawl's fetcher, so they have the same identity, address guard, proxy, limits and cookies
as every other request.
"""

from msgspec.structs import replace

from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.fetcher.fetchers import Fetcher, NameResolver
from crawler.fetcher.outcome import blame_of
from crawler.records import Fetch


class DirectRequests:
    """Sends requests at once. `proxied` means that a proxy looks up the host names."""

    def __init__(self, fetcher: Fetcher, resolver: NameResolver, *, proxied: bool) -> None:
        self._fetcher, self._resolver, self._proxied = fetcher, resolver, proxied

    async def ask(self, task: FetchRequest) -> Fetch:
        """Send the request, and again with a signature if the server asks for one. Do not follow redirects."""
        if not self._proxied:
            found = await self._resolver.resolve(split(task.url).hostname)
            if not found.addresses:
                return no_address(task.url, found)
            task = replace(task, addresses=found.addresses)
        fetch = await self._fetcher.fetch(task)
        return await self._fetcher.fetch(task) if fetch.challenged else fetch


def no_address(url: str, found: Resolution) -> Fetch:
    """Return the result of a fetch whose host has no permitted address."""
    assert found.outcome is not None, found
    return Fetch(url=url, outcome=found.outcome, blame=blame_of(found.outcome), error=found.error)
