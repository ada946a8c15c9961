"""Test that the page server, `why`, `status` and exported rows give the same probability that a copy is current."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.topology import topology
from crawler.export.writing import Export, ExportRequest
from crawler.lab.changing.server import ChangingServer
from crawler.process.answering.commands import Commands
from crawler.process.answering.served_process import served_process
from crawler.process.live_services import LiveServices
from crawler.process.opening.stages import Stages, at_rest
from crawler.process.process import Process
from crawler.records import PageState
from crawler.serve.stored_crawl import StoredCrawl
from tests.end_to_end.test_live import Running, ask, serving
from tests.end_to_end.test_refreshing import DAY, SETTINGS, changing_web
from tests.end_to_end.test_refreshing import REFRESH as FAST_REFRESH
from tests.end_to_end.web import run
from tests.waiting import WAIT_MAX

RATE = 60.0
FETCHES = 360  # six seconds at this rate; a busy machine takes longer
SPEED = 8640  # a tenth of a day passes in a second
REFRESH = FAST_REFRESH | {"speed": SPEED}
ROUNDED = 0.0005  # the rounding error of the header field


class At:
    """A clock that always gives the same time."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, dict[str, float | None]]:
    """Return a crawl's directory, a time, and the P(fresh) of each URL that the page server gave at that time."""
    directory, clock = tmp_path_factory.mktemp("fresh") / "crawl", SystemClock()
    web = changing_web(clock.now(), rate=SPEED / (8 * DAY))

    async def run() -> tuple[float, dict[str, float | None]]:
        async with ChangingServer(web, clock) as server:
            tree = SETTINGS | {"refresh": REFRESH, "crawl": {"rate": RATE, "max_time": WAIT_MAX}}
            async with Crawl(tree, directory=directory, seeds=server.seeds()) as crawl:
                running = asyncio.create_task(crawl.run())
                while len(web.log) < FETCHES and not running.done():
                    await asyncio.sleep(0.05)
                crawl.stop("enough")
                await running
                now = crawl.stages.clock.now()
                return now, _served(crawl.live.crawl, crawl.stages, now)

    return directory, *asyncio.run(run())


def _served(served: StoredCrawl, stages: Stages, now: float) -> dict[str, float | None]:
    return {
        record.url: served.fresh_probability(fingerprint, record.fetched_at, now)
        for fingerprint, record in stages.pages.all_records()
        if record.state is PageState.STORED
    }


def _config(directory: Path, *, refreshes: bool) -> Config:
    tree = CrawlDirectory(directory).settings.load()
    if not refreshes:
        tree = {name: section for name, section in tree.items() if name != "refresh"}
        tree["refresh"] = {"speed": REFRESH["speed"]}
    return convert(tree)


def _rows(directory: Path, target: Path, now: float) -> dict[str, Any]:
    Export(ExportRequest("jsonl", target, fields="url,fresh,state", now=now)).run(directory)
    rows = map(json.loads, target.read_bytes().splitlines())
    return {row["url"]: row["fresh"] for row in rows if row["state"] == "stored"}


@pytest.mark.parametrize(("refreshes", "processes"), [(True, 1), (False, 1), (True, 3), (False, 3)])
def test_all_views_give_the_same_probability(
    crawled: tuple[Path, float, dict[str, float | None]], tmp_path: Path, refreshes: bool, processes: int
) -> None:
    """Once, a different estimator was used for a crawl that is not running.

    `refreshes` is True if the reader of the crawl at rest knows the rate of refreshes. The reader does not
    need this rate, because the revisit interval is stored. The views agree to the last digit.
    """
    directory, now, live = crawled
    if processes > 1:
        directory = shutil.copytree(directory, tmp_path / "crawl")
        assert run("reshard", "--to", processes, "--dir", directory).code == 0
        live = _running(CrawlDirectory(directory), now, processes)
    config = _config(directory, refreshes=refreshes)
    resting: dict[str, float | None] = {}
    for n in range(processes):
        with at_rest(config, CrawlDirectory(directory), f"p{n}", clock=At(now)) as stages:  # type: ignore[arg-type]
            mine = _served(StoredCrawl({stages.name: served_process(stages)}), stages, now)
            commands = Commands(stages, stages.commits.commit_now)
            why = {url: commands.run({"command": "why", "url": url})["refresh"]["fresh"] for url in mine}
            told = commands.status(1000).refreshing
        assert why == mine
        if not mine:  # this process owns no host
            continue
        assert told["pages"] == len(mine) and 0.0 < told["expected_freshness"] < 1.0
        assert min(mine.values()) <= told["expected_freshness"] <= max(mine.values())  # type: ignore[type-var]
        resting |= mine
    assert len(resting) > 30 and None not in resting.values()
    assert _rows(directory, tmp_path / "rows", now) == resting
    assert live == resting


def _running(directory: CrawlDirectory, now: float, processes: int) -> dict[str, float | None]:
    """Ask the page servers of running processes for the P(fresh) of each URL."""
    config, given = _config(directory.path, refreshes=True), dict[str, float | None]()
    for name in (f"p{n}" for n in range(processes)):
        place = topology(config, directory.path, name)
        stages = Stages(
            config, directory.process(name), directory.seed(), clock=At(now), name=name, topology=place
        )  # type: ignore[arg-type]
        process = Process(stages, pages_file=directory.pages_file)
        given |= _served(LiveServices(process).crawl, stages, now)
        process.close()
        stages.close()
    return given


@pytest.mark.parametrize("processes", [1, 3])
def test_page_server_and_why_agree_over_http(
    crawled: tuple[Path, float, dict[str, float | None]], tmp_path: Path, processes: int
) -> None:
    """The probability in the header field is rounded, and decreases with time.

    So the test calls `why` before and after it requests the page from the page server.
    """
    directory = shutil.copytree(crawled[0], tmp_path / "crawl")
    if processes > 1:
        assert run("reshard", "--to", processes, "--dir", directory).code == 0

    def told(url: str) -> float:
        why = json.loads(run("why", url, "--json", "--dir", directory).text)
        owners.add(why.get("owner"))
        return float(why["refresh"]["fresh"])

    def compare(port: int) -> None:
        for url in list(crawled[2])[::4]:
            before, (_, fields, _), after = told(url), ask(port, f"/page?url={quote(url)}"), told(url)
            assert after - ROUNDED <= float(fields["X-Fresh-Probability"]) <= before + ROUNDED
            assert before < 1.0

    owners: set[str | None] = set()
    with serving(directory) as port:
        compare(port)
    assert owners <= ({None} if processes == 1 else {"p0", "p1", "p2"})
    settings = ("refresh.min_age=1e9", "refresh.explore=0", f"refresh.speed={SPEED}", "refresh.share=0.5")
    flags = [word for each in settings for word in ("--set", each)]
    with Running(tmp_path, [], *flags, "--processes", str(processes), command="refresh") as running:
        running.until(lambda: running.status().get("refreshing", {}).get("pages") == len(crawled[2]))
        compare(running.serve)
        fresh = running.status()["refreshing"]["expected_freshness"]
        assert 0.0 < fresh < 1.0


def test_pages_that_were_never_refreshed_have_no_probability(tmp_path: Path) -> None:
    from tests.end_to_end.web import Web, crawl

    with Web({"/": "<title>Home</title>"}) as web:
        crawl(tmp_path / "crawl", web.url())
        crawl(tmp_path / "crawl", web.url())
    config = convert(CrawlDirectory(tmp_path / "crawl").settings.load())
    with at_rest(config, CrawlDirectory(tmp_path / "crawl"), "p0", clock=SystemClock()) as stages:
        assert list(_served(StoredCrawl({"p0": served_process(stages)}), stages, 1.0).values()) == [None]
    assert _rows(tmp_path / "crawl", tmp_path / "rows", 2e9) == {web.url(): None}
