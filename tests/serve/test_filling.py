"""Test that answers are prepared while no requests arrive: for whom, in which order, within which bounds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.pages.withdrawals import Withdrawals
from crawler.records import Extracted
from crawler.serve import filling
from crawler.serve.demand import pack_count
from crawler.serve.disk_cache import DiskCache
from crawler.serve.filling import FORMS_MAX, Filler
from crawler.serve.representation import CopyForm
from crawler.storage.keys import ASKED
from tests.serve.support import NAMES, Served
from tests.serve.test_stored_parts import AT, GZIP, TEXT, both, inflated, withdraw  # noqa: F401 (a fixture)

SITE = "http://site.example/"
PAGES = 100  # number of pages; their records are read in more than one step


def long(number: int) -> bytes:
    return TEXT + b"<p>%d." % number


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECK_INTERVAL", "IDLE", "STEP"):
        monkeypatch.setattr(filling, name, 0.0)


def made(folder: Path, **config: Any) -> Served:
    served = Served(folder, **{"disk_cache_folder": str(folder), "fill_share": 1.0, **config})
    served.site.cache.withdrawals = Withdrawals(folder)
    for number in range(PAGES):
        served.store(f"{SITE}{number}", long(number))
    served.store(SITE + "short")
    served.store(SITE + "hidden", TEXT, extracted=Extracted(SITE, noarchive=True))
    return served


def disk_of(served: Served) -> DiskCache:
    assert served.handler.disk_cache is not None
    return served.handler.disk_cache


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0)


@asynccontextmanager
async def filled(served: Served, passes: int = 1) -> AsyncIterator[Filler]:
    """Run a filler, and wait for a number of passes."""
    form = CopyForm(f"http://127.0.0.1:{served.port}", frozenset())
    answered = lambda: served.server.answered  # noqa: E731
    filler = Filler(served.handler, [served.site.cache], form, served.config, answered)
    task = asyncio.ensure_future(filler.run())
    try:
        await until(lambda: filler.passes >= passes)
        yield filler
    finally:
        task.cancel()
        served.handler.head_cache._check()
        if served.handler.disk_cache is not None:
            served.handler.disk_cache._check()


async def test_the_first_visit_finds_everything_prepared(tmp_path: Path, inflated: list[int]) -> None:  # noqa: F811
    async with made(tmp_path) as served, filled(served):
        assert len(disk_of(served)) == len(served.handler.head_cache) == len(inflated) == PAGES
        assert disk_of(served).bytes == disk_of(served)._end, "each body is written once"
        for number in range(PAGES):
            assert (await served.get(f"{AT}{number}")).body == long(number)
        assert len(inflated) == disk_of(served).hits == PAGES
        assert served.handler.response_cache.misses == 0 and served.crawl.asked
        assert (await served.get(AT + "hidden")).status == 451
        assert (await served.get(AT + "short")).body == b"<p>page</p>"


def test_a_prepared_page_is_prepared_again_only_after_it_has_changed(
    tmp_path: Path,
    inflated: list[int],  # noqa: F811
) -> None:
    served, form = made(tmp_path), CopyForm("http://127.0.0.1:80", frozenset())
    for _ in range(2):
        served.handler.prepare(SITE + "0", form)
        assert len(inflated) == 1
    served.store(SITE + "0", long(1000), at=10.0)
    served.handler.prepare(SITE + "0", form)
    assert len(inflated) == 2


async def test_clients_of_another_kind_are_prepared_for(tmp_path: Path) -> None:
    """If new clients need heads in another form, these replace heads that no client has requested."""
    async with made(tmp_path, head_bytes_max=PAGES * 4000) as served, filled(served) as filler:
        await both(served, GZIP, target=AT + "0")
        await until(lambda: filler.passes == 2)
        assert served.handler.response_cache.misses == 1
        await both(served, GZIP, target=AT + "1")
        assert served.handler.response_cache.misses == 1, "prepared"
        await both(served, target=AT + "2")
        assert served.handler.response_cache.misses == 2, "given up for the new clients"
        for number, codings in enumerate(("br", "deflate", "br, deflate", "gzip, deflate")):
            await both(served, f"Accept-Encoding: {codings}", target=AT + "0")
            passes = min(FORMS_MAX, 3 + number)
            await until(lambda: filler.passes >= passes)  # noqa: B023 (called at once)
        await asyncio.sleep(0)
        assert filler.passes == FORMS_MAX


@pytest.mark.parametrize("room", ["head_bytes_max", "disk_cache_bytes"])
async def test_the_most_requested_pages_come_first_and_no_bound_is_exceeded(
    tmp_path: Path,
    inflated: list[int],  # noqa: F811
    room: str,
) -> None:
    served = made(tmp_path, **{"head_bytes_max": 0, "disk_cache_bytes": 0, room: 200_000})
    requested = range(0, PAGES, 10)
    batch = served.site.store.batch()
    for number in requested:
        key = ASKED + NAMES.fingerprint(f"{SITE}{number}").to_bytes(8, "big")
        batch.put(key, pack_count(2.0 + number, served.now))
    served.site.store.write(batch)
    async with served, filled(served):
        on_disk = served.handler.disk_cache
        cache = served.handler.head_cache if on_disk is None else on_disk
        assert len(requested) <= len(cache) < PAGES and cache.bytes <= 200_000
        before = len(inflated)
        for number in requested:
            assert (await served.get(f"{AT}{number}")).body == long(number)
        assert served.handler.response_cache.misses == (0 if on_disk is None else len(requested))
        assert len(inflated) - before == (len(requested) if on_disk is None else 0)


async def test_a_withdrawn_page_is_not_prepared_again(tmp_path: Path) -> None:
    async with made(tmp_path) as served, filled(served) as filler:
        assert len(disk_of(served)) == PAGES
        withdraw(served, f"{SITE}1")
        assert disk_of(served).bytes == 0
        await until(lambda: filler.passes == 2)
        assert len(disk_of(served)) == PAGES - 1
        assert (await served.get(AT + "1")).status == 451
        assert (await served.get(AT + "2")).body == long(2)
        assert long(1) not in Path(f"/proc/self/fd/{disk_of(served)._file}").read_bytes()


async def test_nothing_is_prepared_while_requests_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filler stops at its next pause, and continues once no request has arrived for a while."""
    async with made(tmp_path) as served:
        busy = True

        async def requests() -> None:
            while busy:
                served.server.answers[200] = served.server.answers.get(200, 0) + 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(requests())
        filler_task = asyncio.ensure_future(_first_pass(served))
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(disk_of(served)) <= 2
        busy = False
        await filler_task
        await task
        assert len(disk_of(served)) == PAGES


async def test_pages_of_a_crawl_are_prepared_while_it_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that the crawl stores later are prepared in a later pass."""
    monkeypatch.setattr(filling, "REPEAT_INTERVAL", 0.0)
    async with made(tmp_path) as served:
        fetching = True
        form, disk = CopyForm(f"http://127.0.0.1:{served.port}", frozenset()), disk_of(served)
        archives = [served.site.cache]
        filler = Filler(served.handler, archives, form, served.config, lambda: 0, lambda: fetching)
        task = asyncio.ensure_future(filler.run())
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(disk) == 0
        fetching = False
        await until(lambda: len(disk) == PAGES)
        served.store(f"{SITE}new", long(PAGES))
        await until(lambda: len(disk) == PAGES + 1)
        assert (await served.get(f"{AT}new")).body == long(PAGES)
        assert served.handler.response_cache.misses == 0
        task.cancel()


async def _first_pass(served: Served) -> None:
    async with filled(served):
        pass


async def test_the_work_takes_its_share_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step, the filler pauses as long as its share requires, also if other programs delay it."""
    now, rests = 100.0, []

    class Clock:
        monotonic = staticmethod(lambda: now)
        thread_time = staticmethod(lambda: now)

    async def rest(seconds: float) -> None:
        nonlocal now
        rests.append(seconds)
        now += seconds + (0.1 if len(rests) == 3 else 0.0)

    made_one = made(tmp_path)

    filler = Filler(
        made_one.handler,
        [made_one.site.cache],
        CopyForm("", frozenset()),
        msgspec.structs.replace(made_one.config, fill_share=0.2),
        lambda: 0,
    )
    filler._next = now
    monkeypatch.setattr(filling, "time", Clock)
    monkeypatch.setattr(filling.asyncio, "sleep", rest)
    for _ in range(100):
        now += 0.002
        await filler._rest(0.002)
    assert now - 100.0 == pytest.approx(100 * 0.002 / 0.2, rel=0.02)
    assert max(rests) <= 0.01
