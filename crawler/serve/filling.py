"""Prepares answers while no requests arrive, so that the first visit of a page is as fast as a later visit.

    pages, most requested first --> `PageHandler.prepare` --> body: cache on disk, head: memory
          a step of 2 ms --> rest, long enough for `serve.fill_share` --> while requests arrive
                                                                          or pages are fetched: rest on

The answers are first prepared for clients that name this server by its address and accept no content coding,
then for the clients that really come. A pass goes through all pages once. A pass ends early if both caches are
full. A pass replaces no answer that a client has requested. After a withdrawal, all pages are prepared again.
While a crawl stores pages, further passes prepare the new pages of the crawl.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from crawler.config import ServeConfig
from crawler.errors import DamageError
from crawler.pages.archive import Archive
from crawler.records import PageState
from crawler.serve.demand import unpack_count
from crawler.serve.page_handler import PageHandler
from crawler.serve.representation import CopyForm
from crawler.storage.keys import ASKED
from crawler.storage.kv import after_prefix

T = TypeVar("T")

STEP = 0.002  # seconds of work between two rests, and so the longest time that a request waits
# If other programs use the CPU, the work falls behind, and then catches up by shorter rests. At most this
# many lost seconds are made up in this way.
DELAY_MAX = 0.5
IDLE = 0.02  # after this many seconds without a request, the work continues
CHECK_INTERVAL = 1.0  # seconds between two checks for a new kind of client or a new withdrawal
REPEAT_INTERVAL = 60.0  # seconds between two passes over the pages of a running crawl
FORMS_MAX = 4  # maximum number of forms (`CopyForm`) that are prepared; a withdrawal starts the count anew
REQUESTED_MAX = 20_000  # number of most requested pages that are prepared first; their list takes 3 MB
# Number of records that are read with one iterator. As long as an iterator is open, erased bytes stay on the disk.
_SLICE = 64


class Filler:
    """Prepares the answers of `handler` for the pages in `archives`.

    `form` is the form in which clients are expected to request pages. `answered` returns the number of
    requests answered up to now. `crawling` tells whether the crawl that stores the pages is fetching; then
    nothing is prepared. `config.fill_share` must not be 0.
    """

    def __init__(
        self,
        handler: PageHandler,
        archives: Sequence[Archive],
        form: CopyForm,
        config: ServeConfig,
        answered: Callable[[], int],
        crawling: Callable[[], bool] = lambda: False,
    ) -> None:
        self._handler = handler
        self._archives = archives
        self._form = form
        self._share = config.fill_share
        self._half_life = config.request_half_life
        self._answered = answered
        self._crawling = crawling
        self.passes = 0  # number of finished passes
        self._next = 0.0  # the instant at which the next step may begin

    async def run(self) -> None:
        """Prepare answers until the task is cancelled."""
        done: list[CopyForm] = []
        revision, writes, next_pass = self._revision(), 0, 0.0
        while True:
            if revision != self._revision():
                revision = self._revision()
                done.clear()
            form = self._handler.latest_form if done and self._handler.latest_form else self._form
            if form not in done and len(done) < FORMS_MAX:
                done.append(form)
                async for _ in self._with_rests(self._handler.head_cache.dropping_prepared()):
                    pass
            elif writes == self._writes() or time.monotonic() < next_pass:
                await asyncio.sleep(CHECK_INTERVAL)
                continue
            writes, next_pass = self._writes(), time.monotonic() + REPEAT_INTERVAL
            await self._fill(form if form in done else done[-1], revision)
            self.passes += 1

    async def _fill(self, form: CopyForm, revision: int) -> None:
        """Prepare the answers for one form of copies until there is no room, or until the withdrawals change."""
        async for url in self._with_rests(self._urls()):
            if revision != self._revision() or not self._handler.has_room():
                return
            if url:
                self._handler.prepare(url, form)

    async def _with_rests(self, pieces: Iterator[T]) -> AsyncIterator[T]:
        """Yield `pieces`, and rest after each step of work on them."""
        self._next = time.monotonic()
        await self._rest(0.0)
        began = time.thread_time()
        for piece in pieces:
            yield piece
            if (spent := time.thread_time() - began) >= STEP:
                await self._rest(spent)
                began = time.thread_time()

    async def _rest(self, spent: float) -> None:
        """Rest after `spent` seconds of work, for as long as the share of a CPU requires.

        The pause is extended while requests arrive or pages are fetched.
        """
        before, now = self._answered(), time.monotonic()
        self._next = max(self._next + spent / self._share, now - DELAY_MAX)
        await asyncio.sleep(max(0.0, self._next - now))
        while before != (before := self._answered()) or self._crawling():
            await asyncio.sleep(IDLE)

    def _urls(self) -> Iterator[str]:
        """Yield the URLs of stored pages, the most requested first; yield "" in between, to let the caller rest."""
        # a heap: weight, number of the archive, fingerprint
        most_requested: list[tuple[float, int, int]] = []
        for number, archive in enumerate(self._archives):
            for weight, fingerprint in self._counts(archive):
                page = weight, number, fingerprint
                if len(most_requested) < REQUESTED_MAX:
                    heapq.heappush(most_requested, page)
                else:
                    heapq.heappushpop(most_requested, page)
                yield ""
        most_requested.sort()
        while most_requested:
            _, number, fingerprint = most_requested.pop()
            yield self._url(self._archives[number], fingerprint)
        for archive in self._archives:
            yield from self._stored(archive)

    @staticmethod
    def _url(archive: Archive, fingerprint: int) -> str:
        """Return the URL of a stored page; "" if there is no such page."""
        try:
            record = archive.record(fingerprint)
        except DamageError:
            return ""
        return record.url if record is not None and record.state is PageState.STORED else ""

    def _counts(self, archive: Archive) -> Iterator[tuple[float, int]]:
        """Yield (weight, fingerprint) of each requested page. The higher its decayed count, the higher the weight."""
        begin = ASKED
        while found := list(itertools.islice(archive.store.scan(begin, after_prefix(ASKED)), _SLICE)):
            begin = found[-1][0] + b"\0"
            for key, value in found:
                try:
                    fingerprint, count, then = unpack_count(key, value)
                except DamageError:
                    continue
                if count > 0.0:
                    yield math.log2(count) + then / self._half_life, fingerprint

    @staticmethod
    def _stored(archive: Archive) -> Iterator[str]:
        """Yield the URL of each stored page, and "" for each other page. Stop at a damaged record."""
        begin = 0
        with suppress(DamageError):
            while found := list(itertools.islice(archive.all_records(begin), _SLICE)):
                begin = found[-1][0] + 1
                for _, record in found:
                    yield record.url if record.state is PageState.STORED else ""

    def _revision(self) -> int:
        return sum(archive.withdrawals.revision for archive in self._archives)

    def _writes(self) -> int:
        return sum(archive.store.writes for archive in self._archives)
