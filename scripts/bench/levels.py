"""Check that the refresh levels of processes converge, and that several processes keep a web as fresh as one does.

    scripts/bench/levels.py [--processes 1,2,4] [--pages 480] [--rate 40] [--seconds 240]

For each number of processes, there is an identical web of twelve hosts. The pages of the fastest host change
ten times as often as those of the slowest host. `crawler refresh --processes N --rate R` keeps each web
fresh, and all these crawls run at the same time. Every two seconds, the script reads the level of each
process that has pages from its control socket. For each quarter of the time, the script prints the ratio of
the highest to the lowest level, both averaged over the quarter. Then it prints the number of fetches and the
freshness in the second half of the time. The script computes fetches and freshness from the logs of the
servers.

During one mean interval between two crawls of a page (pages / rate, 12 s here), levels move towards each
other by a quarter of their difference. So at the end of the run, a difference between two levels has shrunk
to about exp(-seconds * rate / (4 * pages)) of its initial value. With the default options, this is 0.7 %.

One second of the measurement is a day for the sites (`refresh.speed`). Stores are not synced, so the disk
does not affect the result.
"""

import argparse
import asyncio
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crawler.bench import harness
from crawler.cli import access
from crawler.clock import SystemClock
from crawler.errors import CrawlerError
from crawler.lab.changing.server import LOOPBACK, ChangingServer, crawler
from crawler.lab.changing.web import ChangingWeb, HostSpec

HOSTS = 12
SPREAD = 10.0  # ratio between the rates of the fastest host and the slowest
LOOK_EVERY = 2.0
CONFIG = (
    LOOPBACK
    + """[refresh]
min_age = 0.0
speed = 86400
"""
)


class Seen(NamedTuple):
    """The observations of a run. `levels` has a row per sample and a column per process.

    `fetches` and `freshness` are those of the second half of the run.
    """

    levels: np.ndarray
    pages: list[int]
    fetches: int
    freshness: float


def look(folder: Path) -> list[tuple[float, int]]:
    """Return a pair (level, number of known pages) for each running process, or an empty list if no process runs."""
    try:
        answers = access.ask_running(folder, {"command": "status", "hosts": 0})
    except CrawlerError:
        return []
    parts = [answer.get("refreshing") or {} for answer in answers]
    return [(part.get("level") or math.nan, part.get("pages", 0)) for part in parts]


async def one(folder: Path, processes: int, options: argparse.Namespace) -> Seen:
    folder.mkdir()
    clock = SystemClock()
    mean = options.rate / options.pages
    rates = SPREAD ** (np.arange(HOSTS) / (HOSTS - 1))
    rates *= mean / rates.mean()
    specs = [
        HostSpec(f"h{n}", pages=options.pages // HOSTS, directories=4, rate=float(rate), lastmod="none")
        for n, rate in enumerate(rates)
    ]
    web = ChangingWeb(specs, horizon=options.seconds + 240.0, start=clock.now(), seed=3)
    config = folder / "config.toml"
    config.write_text(CONFIG)
    common = (
        "--dir",
        str(folder / "crawl"),
        "--config",
        str(config),
        "--quiet",
        "--processes",
        str(processes),
    )
    async with ChangingServer(web, clock) as server:
        await crawler("crawl", *server.seeds(), *common)
        running = asyncio.create_task(
            crawler("refresh", *common, "--rate", str(options.rate), "--max-time", str(options.seconds))
        )
        levels: list[list[float]] = []
        pages: list[int] = []
        begun = 0.0
        while not running.done():
            found = await asyncio.to_thread(look, folder / "crawl")
            if len(found) == processes:
                begun = begun or clock.now()
                levels.append([level for level, _ in found])
                pages = [count for _, count in found]
            await asyncio.wait({running}, timeout=LOOK_EVERY)
        await running
        half, end = begun + options.seconds / 2, begun + options.seconds
        return Seen(np.array(levels), pages, web.requests(half, end), web.freshness(half, end))


async def compare(options: argparse.Namespace) -> None:
    counts = [int(count) for count in options.processes.split(",")]
    with tempfile.TemporaryDirectory() as name:
        found = await asyncio.gather(*(one(Path(name) / f"p{n}", n, options) for n in counts))
    for n, seen in zip(counts, found, strict=True):
        print(
            f"{n} processes, {'+'.join(map(str, seen.pages))} pages: {seen.fetches:,} fetches in the second half, "
            f"freshness {seen.freshness:.4f}"
        )
        if n > 1:
            levels = seen.levels[:, np.array(seen.pages) > 0]
            means = [np.nanmean(part, axis=0) for part in np.array_split(levels, 4)]
            print("    highest over lowest level by quarter: ", end="")
            print(", ".join(f"{mean.max() / mean.min():.3f}" for mean in means))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--processes", "1,2,4")
    for name, value in (("pages", 480), ("rate", 40), ("seconds", 240)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
