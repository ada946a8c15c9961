"""Repeatedly kill a crawl that keeps pages fresh, and compare its state with the log of the changing web.

After each kill, a copy of the store must agree with the log:

    every stored page        has a record, and a refresh state once it was fetched again
    its last crawl           is the crawl of its record, and a request in the log
    since the previous kill  no state became older, and nothing learned was lost

For a web with new pages, `living.py` adds further rules. In all runs, the gap between two requests to a host
must be kept. At the end, no page may be lost.
"""

import asyncio
import math
import os
import shutil
import signal
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crawler.clock import SystemClock
from crawler.frontier.refresh import Schedule, state
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec
from crawler.pages.captures import unpack_record
from crawler.records import PageState
from crawler.storage.engines import open_store
from crawler.storage.faults import POINTS
from crawler.storage.keys import PAGE
from crawler.storage.kv import scan_prefix
from tests.faults.living import Left, left

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = 86_400.0
SPEED = 2 * 86_400  # two days of site time pass in a second
DELAY = 0.05
APART = 0.02  # maximum number of seconds by which the clocks of two processes differ
CONFIG = f"""
[network]
allow_networks = ["127.0.0.0/8"]
[politeness]
delay = {DELAY}
delay_factor = 0.0
address_delay_share = 0.0
[sitemaps]
robots = false
[due]
max_wait = 0.2
[admin]
address = "off"
[refresh]
min_age = 0.0
speed = {SPEED}
"""


class Known(NamedTuple):
    """The state of a page in the store: times by the web's clock, number of changes, and time under observation."""

    crawled_at: float
    fetched_at: float
    changes: float
    watched: float


class Verdict(msgspec.Struct):
    """The result of a run. `open` is the largest number of requests that were missing in the state after a kill."""

    kills: int = 0
    problems: list[str] = []
    open: int = 0
    requests: int = 0
    left: list[Left] = []
    calibration: list[dict[str, float]] = []
    output: str = ""


def changing_web(start: float, hosts: int = 3, pages: int = 12) -> ChangingWeb:
    spec: dict[str, Any] = {"pages": pages, "directories": 3, "rate": SPEED / (8 * DAY), "lastmod": "none"}
    return ChangingWeb([HostSpec(f"h{n}", **spec) for n in range(hosts)], horizon=600.0, start=start, seed=5)


async def run(
    web: ChangingWeb,
    folder: Path,
    faults: Sequence[str],
    last_for: float,
    *,
    kill_for: float = math.inf,
    settings: Sequence[str] = (),
) -> Verdict:
    """Crawl `web`, then refresh its pages: first with one kill per fault, then for `last_for` seconds without kills.

    A fault is "point:n" (`storage/faults.py`), or a number of requests after which the crawl is killed from
    outside. After `kill_for` seconds, there are no more kills. `settings` are further flags of the runs.
    """
    verdict, clock = Verdict(problems=[]), SystemClock()
    living = any(host.articles for host in web.hosts)
    config = folder / "config.toml"
    config.write_text(CONFIG.replace("robots = false", "robots = true") if living else CONFIG)
    crawl = folder / "crawl"
    flags = ("--dir", str(crawl), "--config", str(config), "-q")
    async with ChangingServer(web, clock) as server:
        code, text = await crawler("crawl", *server.seeds(), *flags)
        assert code == 0, text
        before, begun = stored(crawl, folder), clock.now()
        for fault in faults:
            if clock.now() - begun > kill_for:
                break
            code, text = await crawler("refresh", *flags, *settings, fault=fault, web=web)
            assert code == -signal.SIGKILL, f"{fault}: {code} {text}"
            verdict.kills += 1
            after = stored(crawl, folder)
            verdict.problems += [f"{fault}: {problem}" for problem in differences(web, before, after)]
            verdict.open = max(verdict.open, uncommitted(web, after))
            before = after
            if living:
                verdict.left.append(left(folder / "copy", web, SPEED))
                verdict.problems += [f"{fault}: {problem}" for problem in verdict.left[-1].problems]
            for old, new in pairwise(verdict.left[-2:]):
                verdict.problems += [f"{fault}: {problem}" for problem in new.lost_since(old)]
        begun = clock.now()
        code, text = await crawler("refresh", *flags, *settings, "--max-time", str(last_for))
        verdict.output = text
        assert code == 0, text
        code, text = await crawler("check", "--dir", str(crawl))
        assert code == 0, text
    verdict.requests = len(web.log)
    verdict.problems += gaps(web)
    asked = {each.page for each in web.log if each.page >= 0 and each.at > begun}
    if forgotten := {page for page in range(len(web)) if web.born[page] == web.start} - asked:
        verdict.problems.append(f"pages {sorted(forgotten)} were not asked again in the last run")
    report = msgspec.json.decode((crawl / "report.json").read_bytes())
    if report["conservation"] != "holds":
        verdict.problems.append(f"books: {report['conservation']}")
    verdict.calibration = report["refreshing"]["calibration"]
    return verdict


async def crawler(*arguments: str, fault: str = "", web: ChangingWeb | None = None) -> tuple[int, str]:
    """Run a command that is killed at the given fault. Return its exit code and output."""
    point, _, _ = fault.partition(":")
    assert not fault or point in POINTS or int(point), fault
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CRAWLER_FAULT": fault if point in POINTS else ""}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "crawler", *arguments,
        cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    if fault and point not in POINTS:
        assert web is not None
        enough = len(web.log) + int(point)
        while len(web.log) < enough and process.returncode is None:
            await asyncio.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    out, _ = await asyncio.wait_for(process.communicate(), 120.0)
    return process.returncode or 0, out.decode()


def stored(crawl: Path, folder: Path) -> dict[str, Known]:
    """Return the state of each stored page by URL. A copy of the store is read, so the original stays unchanged."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(crawl, copy, ignore=shutil.ignore_patterns("LOCK", "*.sock"))
    store, schedule, known = open_store(copy / "p0" / "store"), Schedule(), {}
    try:
        state.load(schedule, store, SystemClock().now() * SPEED)
        for key, value in scan_prefix(store, PAGE):
            record = unpack_record(key, value)
            page = schedule.find(int.from_bytes(key[2:], "big"))
            if page >= 0:
                _, _, _, crawled, changes, watched, *_ = schedule.records.page_state(page)
                known[record.url] = Known(crawled / SPEED, record.fetched_at, abs(changes), watched)
            elif record.state is PageState.STORED:
                known[record.url] = Known(0.0, record.fetched_at, 0.0, 0.0)
    finally:
        store.close()
    return known


def differences(web: ChangingWeb, before: dict[str, Known], after: dict[str, Known]) -> list[str]:
    """Compare a state with the log and with the earlier state. Return the contradictions."""
    problems = [f"{url} is gone" for url in before.keys() - after.keys()]
    asked = requests(web)
    for url, known in after.items():
        if known.crawled_at and abs(known.crawled_at - known.fetched_at) > 0.01:
            problems.append(f"{url}: state of {known.crawled_at:.3f}, record of {known.fetched_at:.3f}")
        instants = asked[url]
        if not _requests_from(instants, known):
            problems.append(f"{url}: nobody asked it at {known.fetched_at:.3f}")
        if (last := before.get(url)) and (
            known.crawled_at < last.crawled_at or known.watched < last.watched or known.changes < last.changes
        ):
            problems.append(f"{url}: {last} was forgotten for {known}")
    return problems


def uncommitted(web: ChangingWeb, known: dict[str, Known]) -> int:
    """Return the number of requests that are in the log but not in the state."""
    asked = requests(web)
    return sum(max(0, _requests_from(asked[url], each) - 1) for url, each in known.items())


def _requests_from(instants: Sequence[float], known: Known) -> int:
    """Return the number of logged requests from the last request in the state on, including this one.

    A busy machine may log a request much later than it began. A killed crawl makes no further request, so the first
    entry after the beginning is the entry of the request.
    """
    return len(instants) - bisect_left(instants, known.fetched_at - APART)


def requests(web: ChangingWeb) -> dict[str, list[float]]:
    """Return the times of the requests for each URL."""
    asked: dict[str, list[float]] = defaultdict(list)
    for each in web.log:
        asked[web.origins[each.host] + each.path].append(each.at)
    return asked


def gaps(web: ChangingWeb) -> list[str]:
    """Return the requests that reached a host too early.

    The server's times may be late by one turn of its event loop.
    """
    hosts: dict[int, list[float]] = defaultdict(list)
    for asked in web.log:
        hosts[asked.host].append(asked.at)
    return [
        f"host {host}: asked {later - earlier:.3f} s after another request"
        for host, instants in hosts.items()
        for earlier, later in zip(instants, instants[1:], strict=False)
        if later - earlier < 0.6 * DELAY
    ]
