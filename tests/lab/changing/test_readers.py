"""Test readers of a page cache: Zipf's law, freshness, and a crawl with cache and readers."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.lab.changing.readers import ReaderAnswer, Readers
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec

SETTINGS: dict[str, Any] = {
    "network": {"allow_networks": ["127.0.0.0/8"]},
    "politeness": {"delay": 0.0, "delay_factor": 0.0},
    "sitemaps": {"robots": False},
    "due": {"max_wait": 0.1},
    "admin": {"address": "off"},
    "serve": {"address": "127.0.0.1:0"},
    "store": {"durability": "process"},
}


def test_freshness_is_judged_by_the_web() -> None:
    """A copy is fresh if it contains the word of the current version, even if its headers claim otherwise."""
    now = 0.0
    web = ChangingWeb([HostSpec("a", pages=3, directories=1, rate=0.1)], horizon=100.0, seed=1)
    readers = Readers(web, "", rate=1.0, clock=lambda: now)
    page = next(page for page in range(3) if web.changes[page])
    body = web.token(page, 0).encode()
    readers.note(page, 200, body, "0.900")
    now = web.changes[page][0]
    readers.note(page, 200, body, "0.850")
    readers.note(page, 200, web.token(page, 1).encode(), None)
    readers.note(page, 404, b"", None)
    assert [each.fresh for each in readers.readings] == [True, False, True] and readers.missed == 1
    assert readers.freshness() == pytest.approx(2 / 3) and readers.freshness(since=now) == 0.5
    assert readers.freshness(since=now + 1.0) == 0.0 and readers.calibration(since=now + 1.0) == []
    row = readers.calibration()[0]
    assert (row.low, row.answers, row.fresh) == (0.85, 2, 0.5) and row.said == pytest.approx(0.875)


def test_each_answer_is_counted_in_one_row() -> None:
    web = ChangingWeb([HostSpec("a", pages=1, directories=1, rate=0.0)], horizon=1.0)
    readers = Readers(web, "", rate=1.0, clock=lambda: 0.0)
    readers.readings = [ReaderAnswer(0.0, 0, n % 3 == 0, n / 1000) for n in range(1001)]
    rows = readers.calibration()
    assert sum(row.answers for row in rows) == 1001
    assert all(row.low <= row.said <= 1.0 for row in rows)


def test_crawl_cache_and_readers_together(tmp_path: Path) -> None:
    """Readers request pages from the page server by Zipf's law. If no page changes, all answers are fresh."""
    clock = SystemClock()
    web = ChangingWeb([HostSpec("a", pages=12, directories=2, rate=0.0)], horizon=60.0, start=clock.now())

    async def run() -> Readers:
        tree = SETTINGS | {"refresh": {"endless": True, "min_age": 3600.0}}
        async with (
            ChangingServer(web, clock) as server,
            Crawl(tree, directory=tmp_path, seeds=server.seeds()) as crawl,
        ):
            running = asyncio.create_task(crawl.run())
            while len({each.page for each in web.log}) <= len(web):  # all pages and one index
                await asyncio.sleep(0.01)
            assert crawl.live.server is not None
            _, port = crawl.live.server.listener.address
            readers = Readers(web, f"http://127.0.0.1:{port}", rate=400.0, clock=clock.now)
            while len(readers.readings) < 150:
                await readers.read(0.1)
            crawl.stop("test")
            await running
        return readers

    readers = asyncio.run(run())
    assert readers.freshness() == 1.0
    asked = Counter(each.page for each in readers.readings)
    first, last = readers.ranked[0], readers.ranked[-1]
    assert asked[first] > asked[last]
