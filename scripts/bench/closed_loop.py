"""Measure whether importance learned from requests makes a page cache fresher for its readers.

    scripts/bench/closed_loop.py [--pages 300] [--rate 12] [--readers 60] [--learn 25] [--seconds 40] [--changes 1.0]
                                 [--webs 1] [--exponent 1.0]

A web of four hosts changes, and `crawler refresh --serve` keeps its copies fresh at `--rate` fetches per
second. Readers send `--readers` requests per second. The requests are distributed over the pages by Zipf's
law. Two crawls of equal webs run side by side at equal rates. In one of them, the requests of readers count.
In the other, the readers identify themselves as robots, whose requests do not count, so all pages have equal
weight. After `--learn` seconds, the script counts the answers of `--seconds` seconds, and prints the share of
them that equalled the live page. It also groups the answers by the probability P[fresh] that they stated, and
prints the same share for each group. `--changes` is the number of changes per fetch, over all pages.

By Zipf's law, a sixth of all requests go to a single one of 300 pages. The freshness of this page affects the
result strongly, and the results of two webs differ by .03. Answers for the same page are usually right or
wrong together. So the standard errors of the printed shares are computed from the differences between pages,
not between answers. `--webs` sets the number of pairs of crawls that run at the same time; the results of all
pairs are added up. Each pair has its own web and its own readers. With `--exponent 0`, all pages are
requested equally often.

Stores are not synced, so the disk does not affect the result.

One second of the measurement is a day for the sites (`refresh.speed`). The load of the machine matters
little, because the crawls use little CPU, the results are shares, and both crawls run at the same time.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crawler.bench import harness
from crawler.cli.loopback import free_port
from crawler.clock import SystemClock
from crawler.lab.changing.readers import Readers, calibration
from crawler.lab.changing.server import LOOPBACK, ChangingServer, crawler
from crawler.lab.changing.web import ChangingWeb, HostSpec

HOSTS = 4
AGENTS = {"reader": "requests count", "examplebot/1": "all pages weigh the same"}
CONFIG = (
    LOOPBACK
    + """[serve]
request_half_life = {half_life}
[refresh]
min_age = 0.0
speed = 86400
"""
)


class Run(NamedTuple):
    """One crawl: its readers, the start of the measurement, the number of pages fetched since then, and its results."""

    readers: Readers
    since: float
    fetched: int
    popular: int  # number of fetches of the most requested tenth of the pages
    calibration: list[dict[str, float]]


async def one(folder: Path, agent: str, number: int, options: argparse.Namespace) -> Run:
    """Crawl the web `number` while readers with the User-Agent `agent` request its cached pages; return the run."""
    folder.mkdir()
    clock, total = SystemClock(), options.learn + options.seconds
    specs = [
        HostSpec(
            f"h{n}",
            pages=options.pages // HOSTS,
            directories=5,
            rate=options.changes * options.rate / options.pages,
            lastmod="none",
        )
        for n in range(HOSTS)
    ]
    web = ChangingWeb(specs, horizon=total + 120.0, start=clock.now(), seed=3 + number)
    config, port = folder / "config.toml", free_port()
    config.write_text(CONFIG.format(half_life=options.learn))
    common = ("--dir", str(folder / "crawl"), "--config", str(config), "--quiet")
    async with ChangingServer(web, clock) as server:
        await crawler("crawl", *server.seeds(), *common)
        more = ("--serve", f"127.0.0.1:{port}", "--rate", str(options.rate), "--max-time", str(total + 8))
        refreshing = asyncio.create_task(crawler("refresh", *common, *more))
        await listening(port, refreshing)
        readers = Readers(
            web,
            f"http://127.0.0.1:{port}",
            rate=options.readers,
            clock=clock.now,
            exponent=options.exponent,
            seed=1 + number,
            agent=agent,
        )
        await readers.read(options.learn)
        since = clock.now()
        await readers.read(options.seconds)
        fetched = [each.page for each in web.log if each.at >= since and each.page >= 0]
        popular = set(readers.ranked[: len(web) // 10])
        await refreshing
    report = json.loads((folder / "crawl" / "report.json").read_bytes())
    return Run(
        readers,
        since,
        len(fetched),
        sum(page in popular for page in fetched),
        report["refreshing"]["calibration"],
    )


async def listening(port: int, refreshing: "asyncio.Task[None]") -> None:
    while not refreshing.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)
    await refreshing
    raise SystemExit("the crawl ended before it began to listen")


async def both(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        found = await asyncio.gather(
            *(
                one(Path(name) / f"{agent[:4]}{number}", agent, number, options)
                for agent in AGENTS
                for number in range(options.webs)
            )
        )
    for k, title in enumerate(AGENTS.values()):
        show(title, found[k * options.webs : (k + 1) * options.webs])


def show(title: str, runs: Sequence[Run]) -> None:
    """Print the combined results of runs of the same kind. Pages of different webs count as different pages."""
    readings = [
        each._replace(page=each.page * len(runs) + k)
        for k, run in enumerate(runs)
        for each in run.readers.readings
        if each.at >= run.since
    ]
    fetched = sum(run.fetched for run in runs)
    print(
        f"{title}: {sum(each.fresh for each in readings) / max(len(readings), 1):.3f} of {len(readings):,} answers "
        f"fresh; {fetched:,} pages fetched, {sum(run.popular for run in runs) / max(fetched, 1):.2f} of them "
        f"from the most requested tenth; {sum(run.readers.missed for run in runs)} answers missed"
    )
    for row in calibration(readings):
        print(
            f"    stated {row.said:.3f}: {row.fresh:.3f} +- {row.error:.3f} of {row.answers:,} answers fresh, "
            f"for {row.pages:,} pages"
        )
    sums = np.zeros((10, 3))
    for decile in (decile for run in runs for decile in run.calibration):
        n = decile["refreshes"]
        sums[int(decile["decile"])] += n, n * decile["predicted"], n * decile["found"]
    rows = [f"{predicted / n:.3f} {found / n:.3f} of {n:.0f}" for n, predicted, found in sums.tolist() if n]
    print(f"    share of the crawl's fetches predicted and found changed: {', '.join(rows)}")


def main() -> None:
    parser = harness.parser(__doc__)
    for name, value in (
        ("pages", 300),
        ("rate", 12),
        ("readers", 60),
        ("learn", 25),
        ("seconds", 40),
        ("webs", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("changes", "exponent"):
        parser.add_argument(f"--{name}", type=float, default=1.0)
    asyncio.run(both(parser.parse_args()))


if __name__ == "__main__":
    main()
