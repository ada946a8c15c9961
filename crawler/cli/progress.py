"""Progress while a crawl runs: a live screen on a terminal, a plain line every few seconds elsewhere."""

import asyncio
import sys
from typing import Any

from crawler.admin import snapshot
from crawler.api import Crawl

LIVE_INTERVAL = 0.5
PLAIN_INTERVAL = 5.0


async def show(crawl: Crawl, mode: str) -> None:
    """Show progress until cancelled. `mode` is auto, plain or none."""
    if mode == "none":
        return
    if mode == "auto" and sys.stderr.isatty():
        await _live(crawl)
    else:
        await _plain(crawl)


class _Rates:
    """Pages and bytes per second since the last look."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._at = crawl.stages.clock.now()
        self._counters = dict(crawl.stages.point.counters)

    def take(self) -> dict[str, float]:
        now, counters = self._crawl.stages.clock.now(), dict(self._crawl.stages.point.counters)
        made = snapshot.rates(self._counters, counters, now - self._at)
        self._at, self._counters = now, counters
        return made


async def _plain(crawl: Crawl) -> None:
    rates = _Rates(crawl)
    while True:
        await asyncio.sleep(PLAIN_INTERVAL)
        print(line(crawl.status(), rates.take()), file=sys.stderr, flush=True)


def line(status: dict[str, Any], rates: dict[str, float]) -> str:
    """One line of progress."""
    pages, frontier = status.get("pages", {}), status["frontier"]
    return (
        f"{pages.get('fetched', 0):,} pages ({rates['pages']:.1f}/s), "
        f"{status.get('bytes', {}).get('wire', 0) / 1e6:,.1f} MB ({rates['bytes'] / 1e6:.2f} MB/s), "
        f"{frontier['todo']:,} to do on {frontier['hosts']:,} hosts, "
        f"{frontier['in_flight']:,} in flight, {status.get('urls', {}).get('failed', 0):,} failed"
    )


async def _live(crawl: Crawl) -> None:
    from rich.console import Console
    from rich.live import Live

    rates = _Rates(crawl)
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(screen(crawl.status(), rates.take(), crawl.stages.clock.now() - crawl.process.started), refresh=True)
            await asyncio.sleep(LIVE_INTERVAL)


def screen(status: dict[str, Any], rates: dict[str, float], elapsed: float) -> Any:
    """The live screen: totals above, hosts with what they wait for below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    minutes, seconds = divmod(int(elapsed), 60)
    head = Text(f"{minutes:d}:{seconds:02d}  {line(status, rates)}", style="bold")
    outcomes = ", ".join(f"{name} {n:,}" for name, n in sorted(status.get("pages", {}).items()))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("host", no_wrap=True)
    table.add_column("to do", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("ready in", justify="right", no_wrap=True)
    for host in status["waiting"][:12]:
        wait = host["wait"]
        table.add_row(host["host"], f"{host['todo']:,}", host["state"], f"{wait:.1f} s" if wait > 0 else "now")
    return Group(head, Text(outcomes, style="dim"), table)
