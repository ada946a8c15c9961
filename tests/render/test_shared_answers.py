"""Test answers that pages share: each answer is fetched once, or taken from the archive."""

import asyncio

from crawler.records import Fetch, Outcome
from crawler.render.shared_answers import SharedAnswers
from crawler.render.shared_cache import SharedCache

URL = "http://a.test/x.js"
NOW = 1_795_000_000.0


def answer(field: str = "max-age=60", at: float = NOW) -> Fetch:
    fields = ((b"Cache-Control", field.encode()),)
    return Fetch(URL, Outcome.FETCHED, status=200, headers=fields, content=b"x", began=at)


class Pages:
    """Pages that all request the same URL. `asked` counts the requests that reach the network."""

    def __init__(self, fetched: Fetch, stored: Fetch | None = None) -> None:
        self.shared = SharedAnswers(SharedCache(1000), self, lambda: NOW)
        self.stored, self.withdrawn = stored, False
        self.fetched = fetched
        self.asked = 0

    def stored_answer(self, url: str) -> Fetch | None:
        return None if self.withdrawn else self.stored

    def is_withdrawn(self, fetch: Fetch) -> bool:
        return self.withdrawn

    async def _ask(self) -> Fetch:
        self.asked += 1
        await asyncio.sleep(0)
        return self.fetched

    async def get(self) -> bool:
        """Request the URL; return whether the answer was shared with another page."""
        fetch, shared = await self.shared.get(URL, self._ask)
        assert fetch.content == b"x"
        return shared


async def _together(pages: Pages, count: int) -> list[bool]:
    return await asyncio.gather(*(pages.get() for _ in range(count)))


def test_simultaneous_requests_for_a_url_are_sent_once() -> None:
    pages = Pages(answer())
    assert sorted(asyncio.run(_together(pages, 5))) == [False, True, True, True, True]
    assert pages.asked == 1


def test_an_answer_that_must_not_be_shared_is_fetched_for_each_page() -> None:
    pages = Pages(answer("no-store"))
    assert asyncio.run(_together(pages, 3)) == [False] * 3
    assert pages.asked == 3


def test_an_answer_in_memory_is_not_shared_after_it_was_withdrawn() -> None:
    for stored in (None, answer()):
        pages = Pages(answer(), stored)
        asyncio.run(pages.get())
        assert asyncio.run(pages.get())
        pages.withdrawn = True
        asked = pages.asked
        assert not asyncio.run(pages.get()) and pages.asked == asked + 1


def test_a_fresh_copy_in_the_archive_is_the_answer() -> None:
    fresh = Pages(answer(), stored=answer(at=NOW - 59))
    assert asyncio.run(fresh.get()) and not fresh.asked
    stale = Pages(answer(), stored=answer(at=NOW - 60))
    assert not asyncio.run(stale.get()) and stale.asked


def test_if_a_page_ends_during_a_request_the_next_page_repeats_it() -> None:
    async def run() -> int:
        pages = Pages(answer())
        first, second = asyncio.create_task(pages.get()), asyncio.create_task(pages.get())
        await asyncio.sleep(0)
        first.cancel()
        assert await second is False
        return pages.asked

    assert asyncio.run(run()) == 2
