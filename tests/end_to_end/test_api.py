"""Test `crawler.Crawl` and its hooks."""

import asyncio
import os
import subprocess
import sys
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.admin.control import ControlServer
from crawler.errors import ConfigError, DirectoryError, NoSeedError
from tests.end_to_end.web import SETTINGS, Web, outcomes, page, run

SITE = {"/": page("/a", "/b", "/c"), "/a": page("/d", text="a"), "/b": page(text="b"), "/c": page(text="c")}
SITE |= {"/d": page(text="d")}


def collect(web: Web, directory: Path, **hooks: Any) -> tuple[list[crawler.Page], dict[str, Any]]:
    """Run a crawl, and return the pages and the report."""

    async def crawl() -> tuple[list[crawler.Page], dict[str, Any]]:
        async with crawler.Crawl(SETTINGS, directory=directory, seeds=[web.url()], **hooks) as crawling:
            pages = [found async for found in crawling.pages()]
            return pages, crawling.report

    return asyncio.run(crawl())


def test_pages_come_with_content_links_and_title(tmp_path: Path) -> None:
    with Web(SITE) as web:
        pages, report = collect(web, tmp_path)
    found = {page.url: page for page in pages}
    assert set(found) == {web.url(path) for path in SITE}
    assert found[web.url("/a")].content.decode() == SITE["/a"]
    assert found[web.url("/a")].links == ("/d",) and found[web.url("/a")].title == "a"
    assert [found[web.url(path)].depth for path in ("/", "/a", "/d")] == [0, 1, 2]
    assert report["conservation"] == "holds" and report["stopped_by"] == "done"


@pytest.mark.parametrize("opens", [True, False])
def test_a_crawl_that_has_ended_leaves_no_open_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    """No port stays open after a finished crawl or after a crawl whose opening failed."""
    ports: list[int] = []

    async def start(control: ControlServer) -> None:
        ports.extend(_listening())
        if not opens:
            raise OSError("no room")

    async def crawl(url: str) -> None:
        settings = {**SETTINGS, "serve": {"address": "127.0.0.1:0"}}
        async with crawler.Crawl(settings, directory=tmp_path, seeds=[url]) as crawling:
            await crawling.run()

    monkeypatch.setattr(ControlServer, "start", start)
    before = _listening()
    with Web(SITE) as web, nullcontext() if opens else pytest.raises(OSError, match="no room"):
        asyncio.run(crawl(web.url()))
    assert ports, "the page server listened"
    assert _listening() == before


def _listening() -> list[int]:
    """Return the ports on which this process listens."""
    own = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_there(name)}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sorted(
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own
    )


def _is_there(name: str) -> bool:
    """Return whether a listed descriptor is still open.

    The descriptor that `listdir` itself used is already closed.
    """
    return os.path.lexists(f"/proc/self/fd/{name}")


@pytest.mark.parametrize("coroutine", [False, True])
def test_hooks_are_called(tmp_path: Path, coroutine: bool) -> None:
    """The filter rejects URLs. The extractor replaces the default extractor.

    The async sink receives each durable page.
    """
    sunk: list[str] = []

    def plain(found: crawler.Page) -> None:
        sunk.append(found.url)

    async def slow(found: crawler.Page) -> None:
        await asyncio.sleep(0)
        sunk.append(found.url)

    with Web(SITE | {"/extra": page()}) as web:
        _, report = collect(
            web,
            tmp_path,
            url_filter=lambda url: not url.endswith("/b"),
            link_extractor=lambda found: [*found.content.decode().split('"')[1::2], "/extra"],
            page_sink=slow if coroutine else plain,
        )
        assert sorted(sunk) == sorted(web.url(path) for path in ("/", "/a", "/c", "/d", "/extra"))
    assert report["urls"]["filtered"]["hook"] == 1


async def test_hooks_can_be_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Offered:
        def load(self) -> Any:
            return lambda url: url.endswith("/")

    monkeypatch.setattr(metadata, "entry_points", lambda group, name: [Offered()] if name == "roots" else [])
    configured = SETTINGS | {"hooks": {"url_filter": "roots"}}
    with Web(SITE) as web:
        async with crawler.Crawl(configured, directory=tmp_path, seeds=[web.url()]) as crawling:
            await crawling.run()
        assert web.paths() == ["/"]
    with pytest.raises(ConfigError, match="no entry point 'nothing'"):
        crawler.Crawl({"hooks": {"page_sink": "nothing"}})


def test_a_hook_that_fails_ends_the_crawl_with_its_error(tmp_path: Path) -> None:
    """No page is lost: a run without the hook continues the crawl."""

    def sink(_: crawler.Page) -> None:
        raise ZeroDivisionError

    with Web(SITE) as web:
        with pytest.raises(ZeroDivisionError):
            collect(web, tmp_path, page_sink=sink, on_error="stop")
        collect(web, tmp_path)
        assert set(outcomes(tmp_path)) == set(SITE)
        assert run("check", "--dir", tmp_path).code == 0


@pytest.mark.parametrize("sink", [None, lambda _: None])
async def test_pages_of_one_host_share_their_commits(tmp_path: Path, sink: Any) -> None:
    """Further pages of a host are fetched before its earlier pages are committed.

    A commit may wait up to a minute for more pages.
    """

    site = {f"/{n}": page(text=str(n)) for n in range(40)}
    settings = SETTINGS | {"store": {"commit_delay": 60}, "crawl": {"concurrency": 32, "max_time": 50}}
    with Web(site) as web:
        seeds = [web.url(path) for path in site]
        async with crawler.Crawl(settings, directory=tmp_path, seeds=seeds, page_sink=sink) as crawling:
            report = await crawling.run()
            assert report["pages"]["fetched"] == 40 and report["stopped_by"] == "done"
            assert crawling.stages.point.groups <= 12
        assert sorted(web.paths()) == sorted(site)


async def test_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="crawl.patiense: there is no such key"):
        crawler.configure({"crawl": {"patiense": 1}})
    with pytest.raises(DirectoryError, match="in use"):
        async with crawler.Crawl(directory=tmp_path), crawler.Crawl(directory=tmp_path):
            pass
    seeds = ["http://127.0.0.1:8/", "ftp://x/"]
    with pytest.raises(NoSeedError, match="1 seed is refused.*127.0.0.1: address denied"):
        async with crawler.Crawl(directory=tmp_path, seeds=seeds) as crawling:
            await crawling.run()


def test_importing_the_package_imports_no_heavy_module() -> None:
    """`import crawler` loads neither aiohttp nor numpy. The API loads these modules when it is used."""
    code = "import crawler, sys; print('aiohttp' in sys.modules or 'numpy' in sys.modules); crawler.Crawl"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )
    with pytest.raises(AttributeError):
        _ = crawler.nonsense
