"""`crawler top`: show a running crawl live on a terminal, with busy and failing hosts first.

If the crawl does not run, the command shows its verdict, and waits for the crawl to start.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import msgspec

from crawler.admin.host_pages import merged
from crawler.admin.status import Status, whole
from crawler.cli import access, options
from crawler.cli.progress import NewLines, Rates, line, screen
from crawler.frontier.hosts.ranking import ORDERS
from crawler.printable import printable, raw_stream
from crawler.records import HostStatus

HOSTS_SHOWN = 50
# seconds between two looks at a crawl at rest: each look copies its store, which changes only by commands
REST_INTERVAL = 30.0


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
        _plain(looks, every=bool(args.count))
    return 0


Look = tuple[Status, dict[str, float], float]


def _looks(args: argparse.Namespace) -> Iterator[Look]:
    """Yield (status, rates, seconds since the crawl began) once per interval."""
    rates, state = None, Status()
    number = 0
    while not args.count or number < args.count:
        if number:
            _wait(args, at_rest=_stopped(state) != "")
        state = whole([Status.of(part) for part in access.ask(args.dir, {"command": "status", "hosts": 0})])
        state.waiting = _hosts(args)
        rates = rates or Rates(state)
        started = min((each["started"] for each in state.processes), default=state.now)
        yield state, rates.sample(state), state.now - started
        number += 1


def _wait(args: argparse.Namespace, *, at_rest: bool) -> None:
    """Wait until the next update. If the crawl is at rest, wait for its start, but at most `REST_INTERVAL` seconds."""
    until = time.monotonic() + REST_INTERVAL
    time.sleep(max(0.1, args.interval))
    while at_rest and not args.count and time.monotonic() < until and not access.is_answered(args.dir):
        time.sleep(max(0.1, args.interval))


def _stopped(state: Status) -> str:
    """Return the verdict on a crawl of which no process runs; "" if a process runs."""
    return "" if any(member.state == "running" for member in state.members) else printable(str(state.health))


def _hosts(args: argparse.Namespace) -> list[HostStatus]:
    """Return the first hosts of all processes, in the order that the user asked for."""
    answers = access.ask(args.dir, {"command": "hosts", "order": args.order, "limit": HOSTS_SHOWN})
    return [msgspec.convert(row, HostStatus) for row in merged(answers, HOSTS_SHOWN, ())["rows"]]


def _plain(looks: Iterator[Look], *, every: bool) -> None:
    """Print a line for each look, or unless `every` is true, only the lines that differ (`NewLines`)."""
    lines, former = NewLines(), ""
    for state, rates, _ in looks:
        stopped = _stopped(state)
        if lines.is_new(state) or every or stopped != former:
            print(line(state, rates) + ("; " + stopped if stopped else ""), flush=True)
        former = stopped


def _live(looks: Iterator[Look]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=raw_stream(sys.stdout)), auto_refresh=False, screen=True) as live:
        for state, rates, elapsed in looks:
            live.update(screen(state, rates, elapsed, _stopped(state)), refresh=True)
