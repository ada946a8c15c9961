"""Test `crawler.Crawl`: seeds and settings, opening and closing, running, and commands."""

import asyncio
import gc
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.admin.control_client import listens
from crawler.api.crawl import COMPLETE
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import CrawlerError, DirectoryError, NoSeedError, StoreError, UsageError
from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.opening.stages import BALLAST
from crawler.storage.engines import open_store
from tests.end_to_end.web import SETTINGS, ReceivedRequest, Web, page
from tests.upgrade.support import unpacked


async def test_a_crawl_of_several_processes_is_not_opened_as_one(tmp_path: Path) -> None:
    """The other processes have pages and links that this one would miss."""
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create()
    for name in ("p0", "p1"):
        directory.process(name).mkdir()
        open_store(directory.process(name) / "store").close()
        directory.note_state(name, 0)
    directory.settings.save(convert({"crawl": {"processes": 2}}))
    before = directory.settings.file.read_bytes()
    with pytest.raises(CrawlerError, match="reshard"):
        async with crawler.Crawl({"crawl": {"processes": 1}}, directory=directory.path):
            pass
    assert directory.settings.file.read_bytes() == before


async def test_one_object_is_one_of_several_processes_only_if_it_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`crawler crawl --processes N` starts several"):
        async with crawler.Crawl({"crawl": {"processes": 2}}, directory=tmp_path / "crawl"):
            pass


ROUTES = {"/": page("/a", "/b"), "/a": page(text="a"), "/b": page(text="b")}


@pytest.fixture
def web() -> Iterator[Web]:
    with Web(ROUTES) as web:
        yield web


def settings_of(**sections: dict[str, Any]) -> dict[str, Any]:
    return {name: SETTINGS.get(name, {}) | sections.get(name, {}) for name in {*SETTINGS, *sections}}


def fetched_by(crawl: crawler.Crawl) -> int:
    """Run a crawl; return the number of pages that it fetched."""

    async def ended() -> int:
        async with crawl:
            return (await crawl.run())["pages"].get("fetched", 0)

    return asyncio.run(ended())


# ---- seeds and settings ----


def test_a_single_seed_may_be_a_url_or_a_request(tmp_path: Path, web: Web) -> None:
    assert fetched_by(crawler.Crawl(SETTINGS, directory=tmp_path / "url", seeds=web.url("/"))) == 3
    request = crawler.Request(web.url("/"))
    assert fetched_by(crawler.Crawl(SETTINGS, directory=tmp_path / "request", seeds=request)) == 3


def test_a_config_replaces_all_settings_of_the_directory_and_a_mapping_only_its_own(
    tmp_path: Path, web: Web
) -> None:
    first = settings_of(crawl={"depth": 7})
    fetched_by(crawler.Crawl(first, directory=tmp_path / "crawl", seeds=web.url("/")))
    given = convert({"robots": {"policy": "ignore"}})
    assert crawler.Crawl(given, directory=tmp_path / "crawl").config == given
    merged = crawler.Crawl({"robots": {"policy": "ignore"}}, directory=tmp_path / "crawl").config
    assert (merged.crawl.depth, merged.robots.policy) == (7, "ignore")


def test_a_directory_of_an_earlier_version_is_upgraded_before_its_settings_are_read(tmp_path: Path) -> None:
    directory = unpacked("2026-11-22-1b5de44", tmp_path)
    assert crawler.Crawl(directory=directory).config.crawl.depth == 2
    assert len(list(crawler.Crawl(directory=directory).stored())) > 0
    again = unpacked("2026-11-22-1b5de44", tmp_path / "again")
    assert len(list(crawler.Crawl(convert({}), directory=again).stored())) > 0


def test_a_request_as_a_seed_is_sent_as_it_was_given(tmp_path: Path, web: Web) -> None:
    seeds = [crawler.Request(web.url("/a"), method="POST", body=b"x=1"), web.url("/b")]
    assert fetched_by(crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=seeds)) == 2
    sent = {asked.path: (asked.method, asked.body) for asked in web.asked}
    assert (sent["/a"], sent["/b"]) == (("POST", b"x=1"), ("GET", b""))


# ---- opening and closing ----


def is_free(directory: Path) -> bool:
    """Return whether a crawl directory can be opened, and was closed cleanly."""

    async def opened() -> float:
        async with crawler.Crawl(settings_of(serve={"address": ""}), directory=directory) as crawl:
            return crawl.stages.frontier._registry.unclean_at

    return asyncio.run(opened()) == 0.0


def test_a_crawl_that_cannot_be_opened_releases_its_directory(tmp_path: Path, web: Web) -> None:
    """The port of the page server is in use."""
    directory, taken = tmp_path / "crawl", {"serve": {"address": f"127.0.0.1:{web.port}"}}
    items = tmp_path / "items.jsonl"
    crawl = crawler.Crawl(settings_of(**taken), directory=directory, seeds=web.url("/"), items=items)
    for _ in range(2):
        with pytest.raises(CrawlerError, match=str(web.port)):
            fetched_by(crawl)
    assert is_free(directory)


def test_an_items_file_that_cannot_be_opened_ends_the_start(tmp_path: Path, web: Web) -> None:
    crawl = crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/"), items=tmp_path)
    with pytest.raises((CrawlerError, OSError)):
        fetched_by(crawl)
    assert is_free(tmp_path / "crawl")


def test_settings_are_saved_only_if_they_are_valid(tmp_path: Path, web: Web) -> None:
    directory = tmp_path / "crawl"
    fetched_by(crawler.Crawl(settings_of(crawl={"depth": 7}), directory=directory, seeds=web.url("/")))
    saved = CrawlDirectory(directory).settings.load()
    assert convert(saved).crawl.depth == 7
    bad = settings_of(crawl={"depth": 8}, hooks={"url_filter": "unknown"})
    with pytest.raises(CrawlerError):
        fetched_by(crawler.Crawl(bad, directory=directory))
    assert CrawlDirectory(directory).settings.load() == saved


def test_a_closed_crawl_answers_no_command_and_ships_nothing_more(tmp_path: Path, web: Web) -> None:
    directory = CrawlDirectory(tmp_path / "crawl")

    async def listening() -> tuple[bool, bool]:
        async with crawler.Crawl(SETTINGS, directory=directory.path, seeds=web.url("/")):
            during = listens(directory.process("p0"))
        return during, listens(directory.process("p0"))

    assert asyncio.run(listening()) == (True, False)
    assert is_free(directory.path)


def test_after_a_failed_disk_the_next_run_knows_of_the_unclean_stop(tmp_path: Path, web: Web) -> None:
    async def failed() -> None:
        async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
            await crawl.run()
            crawl.process.run_end.fail(StoreError("disk"), of_user=True)

    asyncio.run(failed())
    assert not is_free(tmp_path / "crawl")


def test_a_directory_in_use_by_a_write_is_not_closed(tmp_path: Path, web: Web) -> None:
    """A thread may still write to the store after the run has ended, for example on a slow disk."""

    async def left() -> tuple[bool, int]:
        async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
            await crawl.run()
            crawl.process.commits.writing = True
        still_open = crawl._opened, len(list(crawl.stored()))
        crawl.process.commits.writing = False
        crawl._close_directory()
        return still_open

    assert asyncio.run(left()) == (True, 3)
    assert is_free(tmp_path / "crawl")


async def urls_of(directory: Path) -> list[str]:
    """Continue a crawl; return the URLs of its pages."""
    async with crawler.Crawl(SETTINGS, directory=directory) as crawl:
        return [page.url async for page in crawl.pages()]


@pytest.mark.parametrize("closed_first", [True, False])
async def test_a_loop_that_is_left_ends_the_run_and_its_page_comes_again(
    tmp_path: Path, web: Web, closed_first: bool
) -> None:
    """After `break`, Python closes the iterator at some time, perhaps only after the crawl was closed."""
    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        pages = crawl.pages()
        url = (await anext(pages)).url
        if closed_first:
            await pages.aclose()
    assert crawl.report["stopped_by"] == "closed"
    rest = await urls_of(tmp_path / "crawl")
    assert sorted(rest) == sorted({url, *(web.url(path) for path in ROUTES)})
    assert len(web.paths()) == len(set(web.paths())), "no page was fetched again"


async def test_a_page_that_arrives_after_the_loop_was_left_is_yielded_in_the_next_run(tmp_path: Path) -> None:
    """Fetches that are under way may finish before the run ends, and their pages are stored."""
    asked, left = threading.Event(), threading.Event()

    def late(_: ReceivedRequest) -> str:
        asked.set()
        left.wait(10.0)
        return page(text="a")

    with Web({"/": page("/a"), "/a": late}) as web:
        async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
            pages = crawl.pages()
            await anext(pages)
            await asyncio.to_thread(asked.wait, 10.0)
            closing = asyncio.create_task(pages.aclose())  # type: ignore[attr-defined]
            while not crawl.process.run_end.stopping():
                await asyncio.sleep(0)
            left.set()
            await closing
        assert crawl.report["pages"] == {"fetched": 2}
        assert web.url("/a") in await urls_of(tmp_path / "crawl")


async def test_pages_that_wait_for_a_loop_that_is_left_do_not_hold_up_the_end(
    tmp_path: Path, web: Web
) -> None:
    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        pages = crawl.pages()
        await anext(pages)
        await anext(pages)
        while crawl.process.fetch_tasks.in_sink < 2:
            await asyncio.sleep(0.001)
        await pages.aclose()
    assert crawl.report["stopped_by"] == "closed"


def test_a_crawl_that_ended_holds_no_file_of_its_directory_open(tmp_path: Path, web: Web) -> None:
    fetched_by(crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")))
    gc.collect()
    held = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # a socket of the server was closed meanwhile
            held.append(os.readlink(each))
    assert not [path for path in held if path.startswith(str(tmp_path))]


def test_an_open_crawl_reserves_space_for_a_repair(tmp_path: Path, web: Web) -> None:
    store = {"ballast_bytes": 4096}
    fetched_by(crawler.Crawl(settings_of(store=store), directory=tmp_path / "crawl", seeds=web.url("/")))
    assert (tmp_path / "crawl/p0" / BALLAST).stat().st_size == 4096


# ---- running ----


def test_a_crawl_without_a_single_page_is_an_error_and_has_a_report(tmp_path: Path) -> None:
    with Web({}) as web:
        crawl = crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/"))
        assert crawl.report == {}
        with pytest.raises(NoSeedError, match="no page could be fetched"):
            fetched_by(crawl)
    assert crawl.report["pages"] == {"gone": 1}
    saved = json.loads((tmp_path / "crawl/report.json").read_text())
    assert saved == json.loads(json.dumps(crawl.report))


@pytest.mark.parametrize("by_command", [False, True])
async def test_a_run_that_was_stopped_on_purpose_is_no_error(
    tmp_path: Path, web: Web, by_command: bool
) -> None:
    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        if by_command:
            assert await crawl.command({"command": "stop"}) == {}
        else:
            crawl.stop("enough")
        assert (await crawl.run())["stopped_by"] == ("stopped" if by_command else "enough")


async def test_a_run_of_a_complete_crawl_says_so(
    tmp_path: Path, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    for times in (0, 1):
        async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
            crawl.say_if_complete()
            await crawl.run()
            crawl.say_if_complete()
        assert caplog.text.count(COMPLETE) == times


# ---- queries and commands ----


async def test_stored_pages_are_read_from_an_open_and_from_a_closed_crawl(tmp_path: Path, web: Web) -> None:
    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        await crawl.run()
        urls = sorted(page.url for page in crawl.stored())
    assert urls == sorted(page.url for page in crawler.Crawl(directory=tmp_path / "crawl").stored())
    assert urls == sorted(web.url(path) for path in ROUTES)
    with pytest.raises(DirectoryError):
        list(crawler.Crawl(directory=tmp_path / "none").stored())
    assert not (tmp_path / "none").exists()


async def test_the_status_of_an_open_crawl(tmp_path: Path, web: Web) -> None:
    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        for fetched in (0, 3):
            status = crawl.status().plain()
            assert status.get("pages", {}).get("fetched", 0) == fetched and status["frontier"]["todo"] == 0
            await crawl.run()


async def test_a_setting_that_a_command_changes_is_saved(tmp_path: Path, web: Web) -> None:
    directory = CrawlDirectory(tmp_path / "crawl")
    async with crawler.Crawl(SETTINGS, directory=directory.path, seeds=web.url("/")) as crawl:
        await crawl.command({"command": "set", "settings": {"crawl.concurrency": 5}})
        assert crawl.process.fetch_slots.concurrency == 5
    assert convert(directory.settings.load()).crawl.concurrency == 5


async def test_a_change_that_is_not_durable_is_an_error(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that change nothing are answered even if the disk is slow."""

    async def never(_: CommitLoop) -> bool:
        return False

    async with crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/")) as crawl:
        await crawl.run()
        block = {"command": "block", "host": "a.org"}
        assert await crawl.command(block) is not None
        monkeypatch.setattr(CommitLoop, "kept", never)
        with pytest.raises(StoreError, match="not on disk yet"):
            await crawl.command(block)
        assert (await crawl.command({"command": "why", "url": web.url("/")}))["verdict"]


@pytest.mark.parametrize("is_open", [False, True])
async def test_pages_are_withdrawn_from_an_open_and_from_a_closed_crawl(
    tmp_path: Path, web: Web, is_open: bool
) -> None:
    async with AsyncExitStack() as stack:
        crawl = crawler.Crawl(SETTINGS, directory=tmp_path / "crawl", seeds=web.url("/"))
        await (await stack.enter_async_context(crawl)).run()
        if not is_open:
            await stack.aclose()
        orders = ({"dry_run": True}, {}, {"undo": True}, {"before": "2000-01-01"})
        withdrawn = [(await crawl.withdraw(web.url("/a"), **order))["pages"] for order in orders]
    assert withdrawn == [1, 1, 1, 0]


async def test_a_wrong_withdrawal_is_refused_before_the_directory_is_read(tmp_path: Path) -> None:
    crawl = crawler.Crawl(directory=tmp_path / "none")
    with pytest.raises(UsageError):
        await crawl.withdraw("/nothing")
    with pytest.raises(DirectoryError):
        await crawl.withdraw("http://a.org/")


@pytest.mark.parametrize("command", ["status", "hosts", "get", "signals"])
async def test_a_client_that_is_connected_while_the_crawl_closes_gets_no_answer(
    tmp_path: Path, web: Web, command: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, the command read a closed store, and the log showed a traceback."""
    monkeypatch.chdir(tmp_path)  # the whole path of the socket may be too long

    async with crawler.Crawl(SETTINGS, directory="crawl", seeds=web.url("/")):
        reader, writer = await asyncio.open_unix_connection("crawl/p0/control.sock")
        writer.write(b'{"command": "pause"}\n')
        assert b'"ok":true' in await reader.readline()
    writer.write(b'{"command": "%b"}\n' % command.encode())
    assert await reader.readline() == b""
    writer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
