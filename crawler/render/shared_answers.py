"""Answers that pages share (`render/README.md`, "A visit"). The archive serves as the cache on disk.

fresh in memory (`shared_cache.py`) -> the newest copy in the archive, if it is still fresh -> a request

An answer that the operator has withdrawn is not used, even if it is still in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from crawler.records import Fetch
from crawler.render.shared_cache import SharedCache


class AnswerArchive(Protocol):
    """The interface of the stored answers that this module uses."""

    def stored_answer(self, url: str) -> Fetch | None:
        """Return the newest stored answer of a URL that may be shown; None if there is none."""

    def is_withdrawn(self, fetch: Fetch) -> bool:
        """Return whether the operator has withdrawn this answer."""


class SharedAnswers:
    """The shared answers of one process. `now` is the clock of the crawl."""

    def __init__(self, cache: SharedCache, archive: AnswerArchive, now: Callable[[], float]) -> None:
        self._cache = cache
        self._archive = archive
        self._now = now
        # each URL that is being fetched -> a future that is done when its answer has arrived
        self._asking: dict[str, asyncio.Future[None]] = {}

    async def get(self, url: str, ask: Callable[[], Awaitable[Fetch]]) -> tuple[Fetch, bool]:
        """Return the answer of a URL, and whether it was shared. If no answer can be shared, `ask` fetches one."""
        while (asking := self._asking.get(url)) is not None:
            await asyncio.wait([asking])
        if (fetch := self._known(url)) is not None:
            return fetch, True
        asking = self._asking[url] = asyncio.get_running_loop().create_future()
        try:
            fetch = await ask()
            self._cache.add(url, fetch, self._now())
            return fetch, False
        finally:
            del self._asking[url]
            asking.set_result(None)

    def _known(self, url: str) -> Fetch | None:
        """Return a fresh answer from memory or the archive."""
        now = self._now()
        fetch = self._cache.get(url, now)
        if fetch is not None and self._archive.is_withdrawn(fetch):
            self._cache.drop(url)
            fetch = None
        if fetch is None and (stored := self._archive.stored_answer(url)) is not None:
            self._cache.add(url, stored, now, stored.began)
            fetch = self._cache.get(url, now)
        return fetch
