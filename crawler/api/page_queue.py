"""The queue between the crawl and a loop over `Crawl.pages()`."""

import asyncio
from typing import Any

import msgspec

from crawler.api.page import Page

# maximum number of pages that wait for a slow consumer of `pages()`; when the queue is full, the crawl waits
PAGES_WAITING_MAX = 64


class Offer(msgspec.Struct, frozen=True):
    """A page for the consumer of `pages()`. The result of `taken` is whether the consumer took the page."""

    page: Page
    taken: "asyncio.Future[bool]"

    def answer(self, taken: bool) -> None:
        if not self.taken.done():
            self.taken.set_result(taken)


class PageQueue:
    """The pages that wait for the consumer."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Offer] = asyncio.Queue(PAGES_WAITING_MAX)

    async def offer(self, page: Page) -> bool:
        """Offer a page to the consumer, and return whether the consumer took it."""
        offer = Offer(page, asyncio.get_running_loop().create_future())
        await self._queue.put(offer)
        return await offer.taken

    async def next(self, running: "asyncio.Task[dict[str, Any]]") -> Offer | None:
        """Return the next page, or None once the run has ended and no page waits."""
        getting = asyncio.ensure_future(self._queue.get())
        await asyncio.wait({getting, running}, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        getting.cancel()
        return self._queue.get_nowait() if self._queue.qsize() else None
