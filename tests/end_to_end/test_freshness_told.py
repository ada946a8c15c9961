"""Test that page server, `why`, `status` and exported rows give the same probability that a copy is current."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.export.writing import Export, ExportRequest
from crawler.lab.changing.server import ChangingServer
from crawler.process.answering.commands import Commands
from crawler.process.answering.served_process import served_process
from crawler.process.opening.stages import Stages, at_rest
from crawler.records import PageState
from crawler.serve.stored_crawl import StoredCrawl
from tests.end_to_end.test_refreshing import REFRESH, SETTINGS, changing_web

RATE = 60.0


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
    web = changing_web(clock.now())

    async def run() -> tuple[float, dict[str, float | None]]:
        async with ChangingServer(web, clock) as server:
            tree = SETTINGS | {"refresh": REFRESH, "crawl": {"max_time": 6.0, "rate": RATE}}
            async with Crawl(tree, directory=directory, seeds=server.seeds()) as crawl:
                await crawl.run()
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
    tree = CrawlDirectory(directory).saved_config()
    if not refreshes:
        tree = {name: section for name, section in tree.items() if name != "refresh"}
        tree["refresh"] = {"speed": REFRESH["speed"]}
    return convert(tree)


def _rows(directory: Path, target: Path, now: float) -> dict[str, Any]:
    Export(ExportRequest("jsonl", target, fields="url,fresh,state", now=now)).run(directory)
    rows = map(json.loads, target.read_bytes().splitlines())
    return {row["url"]: row["fresh"] for row in rows if row["state"] == "stored"}


@pytest.mark.parametrize("refreshes", [True, False])
def test_all_views_give_the_same_probability(
    crawled: tuple[Path, float, dict[str, float | None]], tmp_path: Path, refreshes: bool
) -> None:
    """A different estimator was once used for a crawl at rest.

    `refreshes` is True if the latest run refreshed pages.
    """
    directory, now, live = crawled
    config = _config(directory, refreshes=refreshes)
    with at_rest(config, CrawlDirectory(directory), "p0", clock=At(now)) as stages:  # type: ignore[arg-type]
        resting = _served(StoredCrawl({"p0": served_process(stages)}), stages, now)
        commands = Commands(stages, stages.commits.commit_now)
        why = {url: commands.run({"command": "why", "url": url})["refresh"]["fresh"] for url in resting}
        told = commands.status(1000).refreshing
    assert len(resting) > 30 and None not in resting.values()
    assert _rows(directory, tmp_path / "rows", now) == resting
    assert why == resting
    assert live == resting
    assert 0.0 < told["expected_freshness"] < 1.0 and told["pages"] == len(resting)
    assert min(resting.values()) <= told["expected_freshness"] <= max(resting.values())  # type: ignore[type-var]


def test_pages_that_were_never_refreshed_have_no_probability(tmp_path: Path) -> None:
    from tests.end_to_end.web import Web, crawl

    with Web({"/": "<title>Home</title>"}) as web:
        crawl(tmp_path / "crawl", web.url())
        crawl(tmp_path / "crawl", web.url())
    config = convert(CrawlDirectory(tmp_path / "crawl").saved_config())
    with at_rest(config, CrawlDirectory(tmp_path / "crawl"), "p0", clock=SystemClock()) as stages:
        assert list(_served(StoredCrawl({"p0": served_process(stages)}), stages, 1.0).values()) == [None]
    assert _rows(tmp_path / "crawl", tmp_path / "rows", 2e9) == {web.url(): None}
