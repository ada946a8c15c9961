"""Progress while a crawl runs: a live screen on a terminal, a plain line every few seconds elsewhere."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from crawler.admin.crawl_wait import CrawlWait, is_fetching, next_wait
from crawler.admin.health import DEGRADED, missing_words
from crawler.admin.status import Status, group
from crawler.printable import printable, raw_stream
from crawler.records import HostStatus
from crawler.wording import count_outcomes, several, words

if TYPE_CHECKING:
    from rich.console import RenderableType  # imported only for a terminal

LIVE_INTERVAL = 0.5
PLAIN_INTERVAL = 5.0
HOSTS_SHOWN = 12
# seconds between two equal lines while nothing is fetched; doubles with each equal line, up to the second number
WAIT_INTERVAL, WAIT_INTERVAL_MAX = 30.0, 600.0


class Shown(Protocol):
    """A crawl, or the supervisor of a crawl."""

    def status(self) -> Status: ...


@asynccontextmanager
async def shown(crawl: Shown, mode: str) -> AsyncIterator[None]:
    """Show the progress of a crawl during the block. `mode` is auto, plain or none."""
    if mode == "none":
        yield
        return
    live = mode == "auto" and sys.stderr.isatty()
    task = asyncio.create_task(_live(crawl) if live else _plain(crawl))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Rates:
    """Pages and bytes per second since the previous measurement."""

    def __init__(self, status: Status) -> None:
        self._at = time.monotonic()
        self._pages, self._bytes = status.fetches, status.received_bytes

    def sample(self, status: Status) -> dict[str, float]:
        now, pages, received = time.monotonic(), status.fetches, status.received_bytes
        seconds = max(now - self._at, 1e-9)
        made = {"pages": (pages - self._pages) / seconds, "bytes": max(0, received - self._bytes) / seconds}
        self._at, self._pages, self._bytes = now, pages, received
        return made


async def _plain(crawl: Shown) -> None:
    rates, lines = Rates(crawl.status()), NewLines()
    while True:
        await asyncio.sleep(PLAIN_INTERVAL)
        status = crawl.status()
        if lines.is_new(status):
            print(line(status, rates.sample(status)), file=sys.stderr, flush=True)


class NewLines:
    """Decides which lines of the plain progress are printed: while nothing is fetched, fewer and fewer of them."""

    def __init__(self) -> None:
        self._printed: tuple[int, CrawlWait | None] | None = None
        self._at, self._interval = 0.0, WAIT_INTERVAL

    def is_new(self, status: Status) -> bool:
        """Return whether there are new pages, fetches in flight or another wait, or the last line is long ago."""
        now = (status.fetches, None if status.paused else next_wait(status))
        if now != self._printed or is_fetching(status):
            self._interval = WAIT_INTERVAL
        elif status.now - self._at < self._interval:
            return False
        else:
            self._interval = min(2.0 * self._interval, WAIT_INTERVAL_MAX)
        self._printed, self._at = now, status.now
        return True


def line(status: Status, rates: dict[str, float]) -> str:
    """Return one line that shows the progress."""
    count, frontier = status.counters.get, status.frontier
    return (
        f"{fetched(status)} ({rates['pages']:.1f}/s), "
        f"{status.received_bytes / 1e6:,.1f} MB ({rates['bytes'] / 1e6:.2f} MB/s), "
        f"{frontier.todo:,} to do on {several(frontier.hosts, 'host')}, "
        f"{frontier.in_flight:,} in flight, {count('urls.failed', 0):,} failed{waiting_for(status)}"
        f"{'; ' * bool(missing_words(status))}{missing_words(status)}"
    )


def fetched(status: Status) -> str:
    """Return a text with the numbers of pages fetched and fetched again, as `crawler status` names and counts them."""
    again = status.counters.get("refresh.done", 0)
    return f"{several(status.counters.get('pages.fetched', 0), 'page')} fetched" + (
        f", {again:,} fetched again" if again else ""
    )


def waiting_for(status: Status) -> str:
    """Describe what a crawl without a fetch in flight waits for, and until when. Return "" if the wait is short."""
    if status.paused:
        return printable(f"; paused ({', '.join(status.paused)})")
    wait = next_wait(status)
    return "" if wait is None else printable(f"; {wait.described(status.now)}")


async def _live(crawl: Shown) -> None:
    from rich.console import Console
    from rich.live import Live

    rates, started = Rates(crawl.status()), time.monotonic()
    console = Console(file=raw_stream(sys.stderr))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            status = crawl.status()
            status.waiting.sort(key=lambda host: -host.todo)
            live.update(screen(status, rates.sample(status), time.monotonic() - started), refresh=True)
            await asyncio.sleep(LIVE_INTERVAL)


def screen(status: Status, rates: dict[str, float], elapsed: float, stopped: str = "") -> "RenderableType":
    """Return the live screen: totals, then hosts and why they wait. It has at most 20 lines of 80 columns.

    `stopped` is the verdict on a crawl of which no process runs; it is shown instead of the rates.
    """
    from rich.console import Group
    from rich.text import Text

    head = Text(no_wrap=True, overflow="ellipsis")
    now = f"{_clock(elapsed)}  {rates['pages']:,.1f} pages/s  {rates['bytes'] / 1e6:.2f} MB/s"
    head.append(stopped or now, style="bold")
    parts = [head, _totals(status)]
    if waits := waiting_for(status):
        parts.append(Text(waits.removeprefix("; "), style="yellow", no_wrap=True, overflow="ellipsis"))
    verdict = status.health
    if not verdict.healthy and not stopped:
        style = "yellow" if verdict.state == DEGRADED else "bold red"
        parts.append(Text(printable(str(verdict)), style=style, no_wrap=True, overflow="ellipsis"))
    return Group(*parts, Text(), _hosts(status.waiting))


def _clock(elapsed: float) -> str:
    minutes, seconds = divmod(int(elapsed), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _totals(status: Status) -> "RenderableType":
    from rich.table import Table

    count, frontier = status.counters.get, status.frontier
    outcomes = group(status.counters, "pages").items()
    others = sorted(((n, name) for name, n in outcomes if name != "fetched" and n), reverse=True)
    rows = {
        "pages": f"{fetched(status)}, {status.received_bytes / 1e6:,.1f} MB",
        "others": count_outcomes({name: n for n, name in others}) or "none",
        "links": f"{count('urls.links', 0):,} found, {several(status.due.new, 'new URL')}",
        "to do": f"{frontier.todo:,} on {several(frontier.hosts, 'host')}, "
        f"{frontier.in_flight:,} in flight, {frontier.parked:,} parked",
    }
    if left := status.outlook:
        rows["left"] = left
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=7)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _hosts(hosts: list[HostStatus]) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, justify, width in (
        ("host", "left", 8), ("to do", "right", 5), ("state", "left", 7), ("ready in", "right", 8)
    ):  # fmt: skip
        table.add_column(
            title,
            justify=justify,  # type: ignore[arg-type]
            no_wrap=title != "host",  # only this column is shortened
            overflow="ellipsis",
            min_width=width,
        )
    for host in hosts[:HOSTS_SHOWN]:
        ready = f"{host.wait:.1f} s" if host.todo and host.wait > 0 else ""
        table.add_row(printable(host.host), f"{host.todo:,}", words(host.state), ready)
    return table
