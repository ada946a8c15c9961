"""Readers of a page cache, which request pages by Zipf's law and check each answer against the changing web.

    readers = Readers(web, "http://127.0.0.1:8080", rate=50.0, clock=clock)
    await readers.read(seconds)
    readers.freshness(since)            share of answers that equalled the live page
    readers.calibration(since)          answers by their `X-Fresh-Probability`

The page of rank k is requested with probability proportional to 1 / k^exponent. Ranks are drawn once, and do
not depend on the change rates. Requests are sent at random instants, on average `rate` per second, over
connections that are kept open.
"""

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple
from urllib.parse import quote

import aiohttp

from crawler.lab.changing.web import ChangingWeb

CONNECTIONS = 8
LATE = 10.0  # a request without an answer after this number of seconds counts as missed


class ReaderAnswer(NamedTuple):
    """One answer that contained a copy; `said` is the P[fresh] that the answer stated, or None."""

    at: float
    page: int
    fresh: bool
    said: float | None


class CalibrationRow(NamedTuple):
    """The answers whose stated P[fresh] is at least `low` and below the `low` of the next row.

    `answers` is the number of these answers, `said` the mean of their stated P[fresh], and `fresh` the share
    of them that was fresh. `error` is the standard error of `fresh`, if the `pages` pages are regarded as a
    random sample. It takes into account that answers for the same page are correlated, and that a few pages
    give most of the answers (Zipf's law).
    """

    low: float
    answers: int
    pages: int
    said: float
    fresh: float
    error: float


BOUNDS = (0.0, 0.15, 0.35, 0.55, 0.75, 0.85, 0.95)


def calibration(readings: Iterable[ReaderAnswer], bounds: Sequence[float] = BOUNDS) -> list[CalibrationRow]:
    """Group answers by the P[fresh] that they state.

    `error` is the standard error of a ratio of sums (Cochran 1977, section 6.4).
    """
    told = [each for each in readings if each.said is not None]
    rows = []
    for low, high in zip(bounds, [*bounds[1:], 1.1], strict=True):
        inside = [each for each in told if low <= (each.said or 0.0) < high]
        if not inside:
            continue
        share = sum(each.fresh for each in inside) / len(inside)
        # for each page, the number of its fresh answers minus the expected number of fresh answers
        left: dict[int, float] = defaultdict(float)
        for each in inside:
            left[each.page] += each.fresh - share
        error = math.sqrt(sum(value * value for value in left.values())) / len(inside)
        said = sum(each.said or 0.0 for each in inside) / len(inside)
        rows.append(CalibrationRow(low, len(inside), len(left), said, share, error))
    return rows


class Readers:
    """Clients of a page cache. `agent` is their User-Agent; `clock` returns the time of the web."""

    def __init__(
        self,
        web: ChangingWeb,
        cache: str,
        *,
        rate: float,
        clock: Callable[[], float],
        exponent: float = 1.0,
        seed: int = 1,
        agent: str = "reader",
    ) -> None:
        self._web = web
        self._cache = cache
        self._rate = rate
        self._clock = clock
        self._agent = agent
        self._random = random.Random(seed)
        self.ranked = self._random.sample(range(len(web)), len(web))
        self._weights = list(accumulate((rank + 1) ** -exponent for rank in range(len(web))))
        self.readings: list[ReaderAnswer] = []
        self.missed = 0  # number of requests that yielded no copy

    async def read(self, seconds: float) -> None:
        """Send requests for this many seconds."""
        end = self._clock() + seconds
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity"}
        asking: set[asyncio.Task[None]] = set()
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while self._clock() < end:
                page = self._random.choices(self.ranked, cum_weights=self._weights)[0]
                task = asyncio.create_task(self._ask(session, page))
                asking.add(task)
                task.add_done_callback(asking.discard)
                await asyncio.sleep(self._random.expovariate(self._rate))
            await asyncio.gather(*asking)

    async def _ask(self, session: aiohttp.ClientSession, page: int) -> None:
        url = f"{self._cache}/page?url={quote(self._web.url(page), safe=':/')}"
        try:
            async with asyncio.timeout(LATE), session.get(url, allow_redirects=False) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            self.missed += 1
            return
        self.note(page, answer.status, body, answer.headers.get("X-Fresh-Probability"))

    def note(self, page: int, status: int, body: bytes, said: str | None) -> None:
        """Compare an answer that has just arrived with the current version of the page, and record the result."""
        if status != 200:
            self.missed += 1
            return
        now = self._clock()
        token = self._web.token(page, self._web.version(page, now)).encode()
        self.readings.append(ReaderAnswer(now, page, token in body, None if said is None else float(said)))

    def freshness(self, since: float = 0.0) -> float:
        """Return the share of the answers since `since` that had the current version; 0 if there were no answers."""
        fresh = [reading.fresh for reading in self.readings if reading.at >= since]
        return sum(fresh) / len(fresh) if fresh else 0.0

    def calibration(self, since: float = 0.0) -> list[CalibrationRow]:
        """Return the answers since `since`, grouped by the P[fresh] that they stated."""
        return calibration(each for each in self.readings if each.at >= since)
