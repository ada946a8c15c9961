"""Test the refresh frontier over HTTP on a changing web, by reading the server's log."""

import asyncio
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.api import Crawl
from crawler.clock import SystemClock
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec
from tests.end_to_end.test_live import Running, ask
from tests.end_to_end.test_withdraw import serving
from tests.end_to_end.web import FAST, Answer, Web, crawl, page, redirect, run
from tests.faults import refreshing as killed

DAY = 86_400.0
SPEED = 2 * 86_400  # two days pass in a second
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
    """Return whether there was a gap after each request to a host.

    The server's times may be late by one turn of its loop.
    """
    hosts: defaultdict[int, list[float]] = defaultdict(list)
    for asked in web.log:
        hosts[asked.host].append(asked.at)
    return all(
        later - earlier >= 0.6 * DELAY
        for instants in hosts.values()
        for earlier, later in zip(instants, instants[1:], strict=False)
    )


@pytest.mark.parametrize("validators", ["right", "always-304", "etag-fixed"])
def test_all_copies_are_refreshed_politely(tmp_path: Path, validators: str) -> None:
    """The crawl is stopped once enough pages have been fetched again, or after a minute."""
    clock = SystemClock()
    web = changing_web(clock.now(), validators=validators)

    async def stop(crawl: Crawl) -> None:
        least = {"refresh.content_changed": 21} | ({"refresh.unchanged": 11} if validators == "right" else {})
        while True:
            await asyncio.sleep(0.1)
            status = crawl.status()
            counts, asked = status.counters, Counter(each.page for each in web.log)
            enough = all(counts.get(name, 0) >= count for name, count in least.items())
            if enough and all(asked[number] > 1 for number in range(len(web))):
                assert status.run["fetched"] + status.run["again"] == status.fetches > counts["pages.fetched"]
                assert status.speed > 0.0
                crawl.stop()
                return

    async def run() -> dict[str, Any]:
        async with ChangingServer(web, clock) as server:
            tree = SETTINGS | {"refresh": REFRESH, "crawl": {"max_time": 60.0}}
            async with Crawl(tree, directory=tmp_path / "crawl", seeds=server.seeds()) as crawl:
                stopping = asyncio.create_task(stop(crawl))
                report = await crawl.run()
                stopping.cancel()
                assert not stopping.done() or stopping.exception() is None
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


def test_discovery_ends_while_known_pages_are_refreshed(tmp_path: Path) -> None:
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


def test_state_survives_repeated_kills(tmp_path: Path) -> None:
    """After each kill, the store has exactly the state that was committed.

    No request is sent too early, and no page is lost (`faults/refreshing.py`).
    """
    web = killed.changing_web(SystemClock().now())
    verdict = asyncio.run(
        killed.run(web, tmp_path, ["committed:3", "25", "batch written:2", "fetch begun:9"], 5.0)
    )
    assert verdict.problems == [] and verdict.kills == 4
    assert verdict.open <= 12, (
        "three hosts have a request in flight each, and one or two that are not committed"
    )
    assert sum(row["refreshes"] for row in verdict.calibration) > 20


@pytest.mark.parametrize("command", ["refresh", "crawl"])
def test_processes_share_one_rate_for_known_pages(tmp_path: Path, command: str) -> None:
    """If no new URL is left, known pages must get the whole rate.

    Once, if there were several processes, known pages got no share of the rate.
    """
    rate, seconds = 30.0, 9.0
    web = changing_web(SystemClock().now())
    config = tmp_path / "config.toml"
    config.write_text(killed.CONFIG + "[urls]\npartition = 'host'\n")
    flags = ("--dir", str(tmp_path / "crawl"), "--config", str(config), "--processes", "2", "-q")

    async def run() -> float:
        async with ChangingServer(web, SystemClock()) as server:
            first = ("--refresh-share", "0.2", "--rate", str(rate)) if command == "crawl" else ()
            code, text = await killed.crawler("crawl", *server.seeds(), *flags, *first)
            assert code == 0, text
            begun = SystemClock().now()
            if command == "refresh":
                limits = ("--rate", str(rate), "--max-time", str(seconds))
                code, text = await killed.crawler("refresh", *flags, *limits)
                assert code == 0, text
            return begun

    begun = asyncio.run(run())
    assert gaps_hold(web)
    report = msgspec.json.decode((tmp_path / "crawl" / "report.json").read_bytes())
    assert report["conservation"] == "holds"
    instants = sorted(each.at for each in web.log if command == "crawl" or each.at > begun)
    for first, last in zip(instants, instants[int(2 * rate) :], strict=False):
        assert last - first > 1.6, "more than the rate over two seconds"
    if command == "refresh":
        assert {each.page for each in web.log if each.at > begun and each.page >= 0} == set(range(len(web)))
        # Shares follow the latest heartbeats, so the sum of the shares is about 1; without heartbeats it
        # would be 2.
        assert report["refreshing"]["share"] == pytest.approx(1.0, abs=0.1)


WHOLE = page(text="whole " * 200)
PARTIAL: dict[str, Answer] = {
    "/206": (206, {"Content-Range": f"bytes 0-9/{len(WHOLE)}"}, "part of it"),
    "/416": (416, {"Content-Range": f"bytes */{len(WHOLE)}"}, "no such range"),
    "/truncated": (200, {"Content-Length": "9000"}, page(text="begun")),
    "/truncated-206": (206, {"Content-Length": "9000", "Content-Range": "bytes 0-8999/9999"}, "begun"),
    "/304": (304, {"ETag": '"another"'}, ""),
}


@pytest.mark.parametrize("live", [False, True])
def test_a_partial_answer_to_a_refresh_does_not_replace_the_copy(tmp_path: Path, live: bool) -> None:
    """Once, if a server answered a refresh with an unrequested part of the page, `get` showed this part.

    The page server answered 502. The earlier copy must be shown until the server sends the whole page again.
    """
    directory = tmp_path / "crawl"
    with Web({"/": page(*PARTIAL), **dict.fromkeys(PARTIAL, WHOLE)}) as web:
        crawl(directory, web.url())
        web.routes |= PARTIAL
        if live:
            flags = ("--delay", "0.1", "--set", "refresh.min_age=0.1", "--set", "refresh.max_age=0.2")
            with Running(tmp_path, [], *flags, command="refresh") as running:
                running.until(lambda: all(web.paths().count(path) > 1 for path in PARTIAL))
                before = running.until(lambda: running.status().get("refresh"))["done"]
                running.until(lambda: running.status()["refresh"]["done"] > before + 1)
                for path in PARTIAL:
                    status, _, body = ask(running.serve, f"/page?url={web.url(path)}")
                    assert status == 200 and body.decode() == WHOLE, path
        else:
            crawl(directory, "--timestamping")
            assert all(web.paths().count(path) > 1 for path in PARTIAL)
        with serving(directory) as port:
            for path in PARTIAL:
                got = run("get", web.url(path), "--dir", directory)
                assert (got.code, got.text) == (0, WHOLE), path
                status, _, body = ask(port, f"/page?url={web.url(path)}")
                assert status == 200 and body.decode() == WHOLE, path
        web.routes |= dict.fromkeys(PARTIAL, page(text="new"))
        crawl(directory, "--timestamping")
        for path in PARTIAL:
            assert run("get", web.url(path), "--dir", directory).text == page(text="new"), path
        assert run("check", "--dir", directory).code == 0


def test_failed_refreshes_are_told(tmp_path: Path) -> None:
    """`why` once said "Stored: 503" of a page whose refresh failed, and nothing of the copy, the try and the next try.

    The summary of a run counted such pages as fetched again, without saying why no copy came back.
    """
    directory = tmp_path / "crawl"
    failing: dict[str, Answer] = {
        "/gone": (404, {}, ""),
        "/cut": (200, {"Content-Length": "9000"}, "begun"),
        "/moved": redirect("/busy"),
    }

    def first_line(url: str) -> str:
        line = run("why", url, "--dir", directory).text.splitlines()[0]
        return re.sub(r"20\d\d-\S+?Z", "T", line)

    with Web({"/busy": WHOLE}) as web:
        crawl(directory, web.url("/busy"))
        web.routes["/busy"] = (503, {}, "")
        flags = (*FAST[: FAST.index("--progress")], "--admin", "off", "--max-pages", "1")
        ran = run("refresh", "--dir", directory, *flags, "--set", "refresh.min_age=0")
        assert "\nnot refreshed: server busy 1\n" in ran.text
        busy = "Stored: 200 at T, fetched once; the last try at T failed: 503; "
        assert first_line(web.url("/busy")) == f"{busy}its next refresh is due at T."
        web.routes |= dict.fromkeys(["/busy", *failing], WHOLE)
        crawl(directory, *map(web.url, failing))
        web.routes |= failing
        once = ("--timestamping", "--set", "frontier.tries=1")
        ran = run("crawl", "--dir", directory, *FAST, *once)
        assert "\nnot refreshed: gone 1, redirect 1, answer cut short 1\n" in ran.text
        assert first_line(web.url("/gone")) == "Gone: 404 at T."
        cut = "Stored: 200 at T, fetched once; the last try at T failed: "
        cut += "answer cut short (closed before the end of the body)."
        assert first_line(web.url("/cut")) == cut
    run("crawl", "--dir", directory, *FAST, "--patience", "0", "--timestamping")
    assert all("; queued again: " in first_line(web.url(path)) for path in failing)


@pytest.mark.parametrize("processes", [1, 2])
def test_urls_whose_first_fetch_failed_are_fetched_again_after_a_signal(
    tmp_path: Path, processes: int
) -> None:
    """The signals arrive between two runs. Only the URL that robots.txt forbids stays without a copy.

    Later tries are switched off, so nothing but a signal brings the URL that failed back.
    """
    directory = tmp_path / "crawl"
    down: dict[str, Answer] = {"/missing": (404, {}, ""), "/broken": (500, {}, ""), "/refused": (403, {}, "")}
    forbidden = (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /forbidden")
    limits = (
        *("--admin", "off", "--processes", str(processes)),
        *("--set", "frontier.tries=1", "--set", "refresh.retry_for=0"),
    )
    often = ("--set", "refresh.retry_age=0.2", "--set", "refresh.min_age=3600", "--max-time")
    with Web({"/": page(*down, "/forbidden"), "/robots.txt": forbidden} | down) as web:
        crawl(directory, web.url("/"), *limits)
        flags = ("--dir", directory, *FAST[: FAST.index("--progress")], "--progress", "none", *limits, *often)
        run("refresh", *flags, "1")
        assert all(web.paths().count(path) == 1 for path in down)
        web.routes |= dict.fromkeys([*down, "/forbidden"], WHOLE)
        run("refresh", *flags, "1")
        assert all(web.paths().count(path) == 1 for path in down), (
            "without a signal, they are not fetched again"
        )
        said = run("signal", *map(web.url, [*down, "/forbidden"]), "--dir", directory)
        run("refresh", *flags, "3")
        assert "/forbidden" not in web.paths(), said.text
        for path in down:
            assert run("get", web.url(path), "--dir", directory).text == WHOLE, (path, said.text)
        assert run("check", "--dir", directory).code == 0
