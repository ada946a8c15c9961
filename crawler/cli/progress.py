"""Progress while a crawl runs: a live screen on a terminal, a plain line every few seconds elsewhere."""

import asyncio
import sys
import time
from typing import Any, Protocol

from crawler.admin import snapshot

LIVE_INTERVAL = 0.5
PLAIN_INTERVAL = 5.0


class Shown(Protocol):
    """A crawl, or the supervisor of one."""

    def status(self) -> dict[str, Any]: ...


async def show(crawl: Shown, mode: str) -> None:
    """Show progress until cancelled. `mode` is auto, plain or none."""
    if mode == "none":
        return
    if mode == "auto" and sys.stderr.isatty():
        await _live(crawl)
    else:
        await _plain(crawl)


class _Rates:
    """Pages and bytes per second since the last look."""

    def __init__(self, crawl: Shown) -> None:
        self._crawl = crawl
        self._at = time.monotonic()
        self._counters = _counters(crawl.status())

    def take(self, status: dict[str, Any]) -> dict[str, float]:
        now, counters = time.monotonic(), _counters(status)
        made = snapshot.rates(self._counters, counters, now - self._at)
        self._at, self._counters = now, counters
        return made


def _counters(status: dict[str, Any]) -> dict[str, int]:
    return {
        "pages.fetched": status.get("pages", {}).get("fetched", 0),
        "bytes.wire": status.get("bytes", {}).get("wire", 0),
    }


async def _plain(crawl: Shown) -> None:
    rates = _Rates(crawl)
    while True:
        await asyncio.sleep(PLAIN_INTERVAL)
        status = crawl.status()
        print(line(status, rates.take(status)), file=sys.stderr, flush=True)


def line(status: dict[str, Any], rates: dict[str, float]) -> str:
    """One line of progress."""
    pages, frontier = status.get("pages", {}), status["frontier"]
    return (
        f"{pages.get('fetched', 0):,} pages ({rates['pages']:.1f}/s), "
        f"{status.get('bytes', {}).get('wire', 0) / 1e6:,.1f} MB ({rates['bytes'] / 1e6:.2f} MB/s), "
        f"{frontier['todo']:,} to do on {frontier['hosts']:,} hosts, "
        f"{frontier['in_flight']:,} in flight, {status.get('urls', {}).get('failed', 0):,} failed"
    )


async def _live(crawl: Shown) -> None:
    from rich.console import Console
    from rich.live import Live

    rates, started = _Rates(crawl), time.monotonic()
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            status = crawl.status()
            live.update(screen(status, rates.take(status), time.monotonic() - started), refresh=True)
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
