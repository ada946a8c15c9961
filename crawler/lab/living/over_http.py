"""Crawls a drawn world over HTTP with processes of the command line; the result is computed from the server's log.

    crawler crawl ──► crawler refresh ──► SIGTERM at each pause ──► crawler refresh ──► SIGTERM at the end

`crawler crawl` fetches each page once. The crawl sends `rate` requests per second, so the world runs `speed` times
as fast as real time. The crawl receives `speed` as the setting `refresh.speed`; the waits after failures are divided
by it. The other waits of politeness, sockets, commits, and the starts of processes take real time, as in
`lab/changing/gain.py`. Signals are given to the running process.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.admin import control_client
from crawler.admin.control_client import NOBODY
from crawler.clock import SystemClock
from crawler.errors import CrawlerError
from crawler.lab.changing.server import LOOPBACK, ChangingServer
from crawler.lab.living import answer_log
from crawler.lab.living.course import BACKOFF_FIRST, BACKOFF_MAX
from crawler.lab.living.playing import WorldRun
from crawler.lab.living.served_world import ServedWorld
from crawler.lab.living.worlds import DrawnWorld

PUSH_EVERY = 0.05  # seconds between two deliveries of signals
DELAY = 0.005  # seconds between two requests to a host
END_WAIT = 60.0  # seconds that a process may take to end after SIGTERM


class HttpArm(NamedTuple):
    """A way to crawl a world: the policy `refresh.policy`, and the number of processes."""

    policy: str = "ncis"
    processes: int = 1


async def crawled(world: DrawnWorld, arm: HttpArm, rate: float, folder: Path) -> WorldRun:
    """Crawl the world with files in `folder`; return the result.

    Raises:
        RuntimeError: a process of the crawl failed.
    """
    clock, speed = SystemClock(), round(rate / world.spec.rate)
    web = ServedWorld(world, start=clock.now(), speed=speed)
    async with ChangingServer(web, clock):
        options = _options(web, arm, rate, folder)
        web.start = clock.now()
        telling = asyncio.create_task(_tell(web, folder / "crawl" / "p0", clock))
        try:
            crawl = ["crawl", "--seeds", str(folder / "seeds"), "--depth", "0", *options]
            await _run(crawl, web.instant(world.horizon) - clock.now(), folder)
            for begin, end in _spans(world):
                await asyncio.sleep(web.instant(begin) - clock.now())
                if (seconds := web.instant(end) - clock.now()) > 0.0:
                    await _run(["refresh", *options], seconds, folder)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
    return answer_log.result(world, web.log)


def _spans(world: DrawnWorld) -> Iterator[tuple[float, float]]:
    """Yield the times (begin, end) of the world between its pauses."""
    begin = 0.0
    for pause, resumed in world.course.pauses:
        yield begin, pause
        begin = resumed
    yield begin, world.horizon


async def _run(arguments: list[str], seconds: float, folder: Path) -> None:
    """Run a command of the crawler to its end or, if it has not ended after `seconds`, stop it with SIGTERM."""
    output = folder / "output"
    with output.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "crawler", *arguments, stdout=file, stderr=file
        )
    try:
        await asyncio.wait({ending := asyncio.create_task(process.wait())}, timeout=seconds)
        if not ending.done():
            process.terminate()
        code = await asyncio.wait_for(ending, END_WAIT)
    finally:
        if process.returncode is None:
            process.kill()
    if code not in (0, -signal.SIGTERM):  # the signal ends a process that has only just started
        raise RuntimeError(f"crawler {arguments[0]}: exit {code}\n{output.read_text()}")


def _options(web: ServedWorld, arm: HttpArm, rate: float, folder: Path) -> list[str]:
    """Write the files that the commands read; return the flags of the commands."""
    pages = range(len(web.world))
    weights = (web.world.importance / web.world.importance.mean()).tolist()
    (folder / "seeds").write_text("".join(f"{web.url(page)}\n" for page in pages))
    (folder / "importance").write_text("".join(f"{web.url(page)} {weights[page]!r}\n" for page in pages))
    (folder / "config.toml").write_text(LOOPBACK)
    settings = {
        "politeness.delay": DELAY,
        "politeness.backoff_first": BACKOFF_FIRST / web.speed,
        "politeness.backoff_max": BACKOFF_MAX / web.speed,
        "crawl.rate": rate,
        "refresh.policy": arm.policy,
        "refresh.importance_file": folder / "importance",
        "refresh.min_age": 0.0,
        "refresh.speed": web.speed,
    }
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    where = ["--dir", str(folder / "crawl"), "--config", str(folder / "config.toml")]
    return [*where, *given, "--quiet", "--processes", str(arm.processes)]


async def _tell(web: ServedWorld, process: Path, clock: SystemClock) -> None:
    """Give the signals of the world to the process in this folder. Signals that come while it is stopped wait."""
    until = web.start
    while True:
        await asyncio.sleep(PUSH_EVERY)
        now = clock.now()
        urls = [web.url(page) for page in web.signals(until, now)]
        with contextlib.suppress(CrawlerError):
            if not urls or await asyncio.to_thread(_told, process, urls):
                until = now


def _told(process: Path, urls: list[str]) -> bool:
    """Give signals to a process, which forwards those of other processes; return whether it was running."""
    return control_client.ask(process, "signal", urls=urls, source="sitemap") is not NOBODY
