"""`crawler top`: show a running crawl live on a terminal, with busy and failing hosts first."""

import argparse
import sys
import time
from collections.abc import Iterator

import msgspec

from crawler.admin.host_pages import merged
from crawler.admin.status import Status, whole
from crawler.cli import access, options
from crawler.cli.progress import Rates, line, screen
from crawler.frontier.hosts.ranking import ORDERS
from crawler.printable import raw_stream
from crawler.records import HostStatus

HOSTS_SHOWN = 50


def main(command: str, argv: list[str]) -> int:
    """Show the crawl until the user presses Ctrl-C, or `--count` times."""
    parser = options.parser(
        command,
        "Show a running crawl live on the terminal, like top(1).",
        "crawler top --dir example --order failing",
    )
    parser.option("--interval", 1.0, "seconds between updates", metavar="S")
    parser.option("--count", 0, "exit after N updates (0 = run until Ctrl-C)")
    parser.option("--order", "busy", "order of the hosts", choices=ORDERS)
    args = parser.parse_args(argv)
    looks = _looks(args)
    if sys.stdout.isatty():
        _live(looks)
    else:
        for state, rates, _ in looks:
            print(line(state, rates), flush=True)
    return 0


Look = tuple[Status, dict[str, float], float]


def _looks(args: argparse.Namespace) -> Iterator[Look]:
    """Yield (status, rates, seconds since the crawl began) once per interval."""
    rates = None
    number = 0
    while not args.count or number < args.count:
        if number:
            time.sleep(max(0.1, args.interval))
        state = whole([Status.of(part) for part in access.ask(args.dir, {"command": "status", "hosts": 0})])
        state.waiting = _hosts(args)
        rates = rates or Rates(state)
        started = min((each["started"] for each in state.processes), default=state.now)
        yield state, rates.sample(state), state.now - started
        number += 1


def _hosts(args: argparse.Namespace) -> list[HostStatus]:
    """Return the first hosts of all processes, in the order that the user asked for."""
    answers = access.ask(args.dir, {"command": "hosts", "order": args.order, "limit": HOSTS_SHOWN})
    return [msgspec.convert(row, HostStatus) for row in merged(answers, HOSTS_SHOWN, ())["rows"]]


def _live(looks: Iterator[Look]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=raw_stream(sys.stdout)), auto_refresh=False, screen=True) as live:
        for state, rates, elapsed in looks:
            live.update(screen(state, rates, elapsed), refresh=True)
