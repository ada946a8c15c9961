"""The refresh frontier over HTTP, on a web that changes; the judge is the server's log."""

import asyncio
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec

DAY = 86_400.0
SPEED = 2 * 86_400  # two days a second
DELAY = 0.05
SETTINGS: dict[str, Any] = {
    "network": {"allow_networks": ["127.0.0.0/8"]},
    "politeness": {"delay": DELAY, "delay_factor": 0.0, "address_delay_share": 0.0},
    "sitemaps": {"robots": False},
    "due": {"max_wait": 0.2},
    "admin": {"address": "off"},
    "store": {"durability": "process"},
}
REFRESH: dict[str, Any] = {"endless": True, "share": 0.5, "min_age": 0.0, "speed": SPEED}


def changing_web(start: float, **spec: Any) -> ChangingWeb:
    values = {"pages": 12, "directories": 3, "rate": SPEED / (8 * DAY), "lastmod": "none"} | spec
    return ChangingWeb(
        [HostSpec(name, **values) for name in ("a", "b", "c")], horizon=300.0, start=start, seed=5
    )


def gaps_hold(web: ChangingWeb) -> bool:
    """Whether the requests to each host were a gap apart; the server's clock may be a turn of the loop late."""
    hosts: defaultdict[int, list[float]] = defaultdict(list)
    for asked in web.log:
        hosts[asked.host].append(asked.at)
    return all(
        later - earlier >= 0.6 * DELAY
        for instants in hosts.values()
        for earlier, later in zip(instants, instants[1:], strict=False)
    )


@pytest.mark.parametrize("validators", ["right", "always-304", "etag-fixed"])
def test_copies_are_kept_fresh_politely_and_none_is_forgotten(tmp_path: Path, validators: str) -> None:
    clock = SystemClock()
    web = changing_web(clock.now(), validators=validators)

    async def run() -> dict[str, Any]:
        async with ChangingServer(web, clock) as server:
            tree = SETTINGS | {"refresh": REFRESH, "crawl": {"max_time": 8.0}}
            async with Crawl(tree, directory=tmp_path / "crawl", seeds=server.seeds()) as crawl:
                report = await crawl.run()
                assert crawl.stages.refresh is not None
                crawl.stages.refresh._check()
                crawl.stages.frontier._check()
                return report

    report = asyncio.run(run())
    assert report["conservation"] == "holds"
    assert report["refresh"]["content_changed"] > 20
    assert gaps_hold(web)
    asked: defaultdict[int, int] = defaultdict(int)
    for each in web.log:
        if each.page >= 0:
            asked[each.page] += 1
    assert set(asked) == set(range(len(web)))
    assert min(asked.values()) >= 2, "a page was fetched once and never again"
    if validators == "right":
        assert report["refresh"]["unchanged"] > 10


def test_discovery_ends_though_known_pages_are_asked_beside_it(tmp_path: Path) -> None:
    clock = SystemClock()
    web = changing_web(clock.now())

    async def run() -> dict[str, Any]:
        async with ChangingServer(web, clock) as server:
            tree = SETTINGS | {"refresh": REFRESH | {"endless": False, "share": 0.3}}
            async with Crawl(tree, directory=tmp_path / "crawl", seeds=server.seeds()) as crawl:
                return await crawl.run()

    report = asyncio.run(asyncio.wait_for(run(), 60.0))
    assert report["stopped_by"] == "done" and report["conservation"] == "holds"
    assert report["pages"]["fetched"] == len(web) + 3 * 4 and report["refresh"]["done"] > 0


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Nothing committed is lost, no host is asked too soon, no page forgotten."""
    clock = SystemClock()
    web = changing_web(clock.now())
    folder = tmp_path / "crawl"
    config = tmp_path / "config.toml"
    config.write_text(
        f"[network]\nallow_networks = ['127.0.0.0/8']\n[politeness]\ndelay = {DELAY}\ndelay_factor = 0.0\n"
        "address_delay_share = 0.0\n[sitemaps]\nrobots = false\n[due]\nmax_wait = 0.2\n[admin]\naddress = 'off'\n"
        f"[refresh]\nmin_age = 0.0\nspeed = {SPEED}\n"
    )

    async def crawler(*arguments: str, kill_after: float = 0.0) -> tuple[int, str]:
        command = [sys.executable, "-m", "crawler", *arguments, "--dir", str(folder), "--config", str(config)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        if kill_after:
            await asyncio.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    async def run() -> float:
        async with ChangingServer(web, clock) as server:
            code, text = await crawler("crawl", *server.seeds(), "-q")
            assert code == 0, text
            begun = clock.now()
            for n in range(3):
                await crawler("refresh", "-q", kill_after=2.0 + 0.37 * n)
            code, text = await crawler("refresh", "--max-time", "6")
            assert code == 0 and "refreshed" in text, text
            code, text = await crawler("check")
            assert code == 0, text
            return begun

    begun = asyncio.run(run())
    assert gaps_hold(web)
    refreshed = {asked.page for asked in web.log if asked.page >= 0 and asked.at > begun}
    assert refreshed == set(range(len(web)))
