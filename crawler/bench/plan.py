"""Estimate the resources of a crawl: processes, machines, disk, memory, bandwidth, days, and its bottleneck.

    crawler plan --pages 1e9 --hosts 5e6 --rate 10000
    crawler plan --pages 1e7 --hosts 50000 --rate 100 --refresh 20 --cores 4
    crawler plan --pages 1e6 --hosts 5000 --rendered 0.1
    crawler crawl https://example.org/ --dir sample --max-pages 5000 && crawler plan --sample sample --pages 1e6
    crawler bench units --out units.json && crawler plan --units units.json --pages 1e8 --hosts 1e6 --machines 3

The estimate is computed from unit costs (crawler/bench/planning.py). These are the costs of a reference
machine, or the costs that `crawler bench units` measured on your machine. Unit costs are ranges, so the
results are ranges, too. With --sample, a small crawl provides the arguments that are not given: hosts, their
addresses, pages of the largest host, sizes, links, times. A plan assumes that all pages of the hosts are
fetched.
"""

import argparse
import math
from pathlib import Path

import msgspec

from crawler.bench.planning import (
    DAY,
    GIB,
    KIB,
    MIB,
    REFERENCE,
    CostRange,
    Goal,
    Plan,
    UnitCosts,
    exactly,
    plan,
)
from crawler.bench.sample_crawl import facts
from crawler.cli.parsing import Parser, PlainHelp
from crawler.config import PolitenessConfig
from crawler.errors import UsageError

POLITENESS = PolitenessConfig()
Scale = tuple[tuple[float, str], ...]  # pairs (size of a unit, its name), the largest unit first
_TIMES: Scale = ((DAY, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s"))
_SIZES: Scale = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_SPEEDS: Scale = ((125e3, "Mbit/s"), (125.0, "kbit/s"))


def main(_command: str, argv: list[str]) -> int:
    """Print the plan for a goal and return 0; raises UsageError."""
    parser = Parser(
        prog="crawler plan",
        description=__doc__,
        formatter_class=PlainHelp,
        allow_abbrev=False,
    )
    _add_arguments(parser)
    args = parser.parse_args(argv)
    if args.sample is not None:
        parser.set_defaults(**facts(args.sample))
        args = parser.parse_args(argv)
    units = REFERENCE if args.units is None else read_units(args.units)
    goal = goal_of(args)
    print(told(plan(goal, units), goal, units))
    return 0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--pages", type=float, required=True, metavar="N", help="pages to fetch, such as 1e9")
    add(
        "--hosts",
        type=float,
        default=0.0,
        metavar="N",
        help="hosts to fetch them from (needed without --sample)",
    )
    add(
        "--largest-host",
        type=float,
        default=0.0,
        metavar="X",
        help="share of the pages that the largest host has (the same for all hosts)",
    )
    add(
        "--addresses",
        type=float,
        default=0.0,
        metavar="N",
        help="IP addresses of the hosts (each host has its own)",
    )
    add(
        "--sample",
        type=Path,
        metavar="DIR",
        help="crawl whose facts replace the defaults of the other arguments",
    )
    add("--known-hosts", type=float, default=0.0, metavar="N", help="hosts seen in links (same as --hosts)")
    add("--rate", type=float, default=0.0, metavar="X", help="pages per second (as fast as --machines allow)")
    add(
        "--refresh",
        type=float,
        default=0.0,
        metavar="X",
        help="additional fetches of known pages per second (0)",
    )
    add(
        "--changed",
        type=float,
        default=0.2,
        metavar="X",
        help="share of these that find a changed page (0.2)",
    )
    add("--machines", type=int, default=0, metavar="N", help="number of machines (as many as needed)")
    add("--cores", type=int, default=8, metavar="N", help="cores per machine (8)")
    add("--memory", type=float, default=32.0, metavar="GIB", help="memory per machine (32)")
    add("--disk", type=float, default=2048.0, metavar="GIB", help="disk per machine (2048)")
    add("--bandwidth", type=float, default=1000.0, metavar="MBIT", help="bandwidth per machine (1000)")
    add("--page-size", type=float, default=28.0, metavar="KIB", help="mean size of a decoded page (28)")
    add("--largest", type=float, default=10240.0, metavar="KIB", help="size of the largest page (10240)")
    add(
        "--largest-tags", type=float, default=200_000.0, metavar="N", help="tags in the largest page (200000)"
    )
    add(
        "--compressed",
        type=float,
        default=0.2,
        metavar="X",
        help="compressed size as a share of the decoded size (0.2)",
    )
    add(
        "--coded",
        type=float,
        default=0.8,
        metavar="X",
        help="share of pages sent with a content coding (0.8)",
    )
    add("--links", type=float, default=60.0, metavar="N", help="links per page (60)")
    add("--urls", type=float, default=10.0, metavar="N", help="distinct new URLs found per page (10)")
    add("--directories", type=float, default=20.0, metavar="N", help="directories with pages per host (20)")
    add("--url-length", type=float, default=77.0, metavar="N", help="mean length of a URL in bytes (77)")
    add("--latency", type=float, default=0.3, metavar="S", help="mean response time in seconds (0.3)")
    add(
        "--delay",
        type=float,
        default=float(POLITENESS.delay),
        metavar="S",
        help="minimum gap between requests to a host (1)",
    )
    add(
        "--delay-factor",
        type=float,
        default=POLITENESS.delay_factor,
        metavar="X",
        help="minimum gap as a multiple of the response time (10)",
    )
    add("--secure", type=float, default=0.8, metavar="X", help="share of pages fetched over TLS (0.8)")
    add("--handshakes", type=float, default=0.2, metavar="X", help="full TLS handshakes per page (0.2)")
    add("--usable", type=float, default=0.7, metavar="X", help="usable share of each core (0.7)")
    add("--rendered", type=float, default=0.0, metavar="X", help="share of pages shown in a browser (0)")
    add(
        "--render-cpu",
        type=float,
        default=0.0,
        metavar="S",
        help="CPU seconds of a rendering (those of the unit costs)",
    )
    add("--units", type=Path, metavar="FILE", help="unit costs written by `crawler bench units --out`")


def goal_of(args: argparse.Namespace) -> Goal:
    """Return the goal that the arguments describe.

    Raises:
        UsageError: the goal is impossible.
    """
    numbers = {name: value for name, value in vars(args).items() if isinstance(value, int | float)}
    if not all(math.isfinite(value) and value >= 0 for value in numbers.values()):
        raise UsageError("all numbers must be finite and at least 0")
    needed = ("pages", "hosts", "cores", "memory", "disk", "bandwidth", "page_size", "latency", "usable")
    if zero := [name for name in needed if not numbers[name]]:
        raise UsageError(f"--{zero[0].replace('_', '-')} must be more than 0")
    if over := [
        name
        for name in ("compressed", "changed", "coded", "secure", "usable", "largest_host", "rendered")
        if numbers[name] > 1
    ]:
        raise UsageError(f"--{over[0].replace('_', '-')} is a share and must be at most 1")
    return Goal(
        pages=args.pages,
        hosts=args.hosts,
        known_hosts=args.known_hosts,
        largest_host=args.largest_host,
        addresses=args.addresses,
        rate=args.rate,
        refresh=args.refresh,
        changed=args.changed,
        page_bytes=args.page_size * KIB,
        largest_bytes=args.largest * KIB,
        largest_tags=args.largest_tags,
        compressed=args.compressed,
        coded=args.coded,
        links=args.links,
        url_bytes=args.url_length,
        urls=max(1.0, args.urls),
        directories=args.directories,
        latency=args.latency,
        delay=args.delay,
        delay_factor=args.delay_factor,
        secure=args.secure,
        usable=args.usable,
        handshakes=args.handshakes,
        cores=args.cores,
        memory=args.memory * GIB,
        disk=args.disk * GIB,
        bandwidth=args.bandwidth * 125e3,
        machines=args.machines,
        rendered=args.rendered,
        render_cpu=args.render_cpu,
    )


def read_units(path: Path) -> UnitCosts:
    """Read unit costs from a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=UnitCosts)
    except OSError as error:
        raise UsageError(f"--units {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"--units {path}: not a file written by `crawler bench units --out`") from error


def told(found: Plan, goal: Goal, units: UnitCosts) -> str:
    """Return a plan and its assumptions as a table. Values that depend on measured costs are ranges."""
    rows = [
        ("pages per second", f"{found.rate:,.1f}, bounded by {found.bottleneck}"),
        ("time", _scaled(found.days * DAY, _TIMES)),
        ("CPU per page", _range(found.page_cpu * 1e3, "ms")),
        ("CPU in total", _scaled(found.cpu, _TIMES[1:])),
        ("rendering", _rendering(found, goal)),
        ("processes", _range(found.processes, "")),
        ("machines", _range(found.machines, "")),
        ("disk", _scaled(found.disk, _SIZES)),
        ("WARC on disk", _scaled(found.warc, _SIZES)),
        ("refresh WARC", f"{_scaled(found.refresh_warc, _SIZES)} a day" if goal.refresh else "none"),
        ("memory", _scaled(found.memory, _SIZES)),
        ("bandwidth", _scaled(exactly(found.bandwidth), _SPEEDS)),
        (
            "connections",
            f"{max(1.0, found.connections):,.0f} to hosts, {found.peer_connections:,} between processes",
        ),
        ("a page", _assumed(goal)),
        ("unit costs", units.machine),
    ]
    return "\n".join(f"{name:<18}{value}" for name, value in rows if value)


def _rendering(found: Plan, goal: Goal) -> str:
    """Return a line with the cost of rendering pages in a browser, or "" if no page is rendered."""
    if not goal.rendered:
        return ""
    return (
        f"{_scaled(found.render_cpu * goal.pages, _TIMES[1:])} of the CPU, for the {goal.rendered:.1%} of the pages that "
        f"a browser shows; {_range(found.render_cores, 'cores')} beside the processes"
    )


def _assumed(goal: Goal) -> str:
    largest = f"; the largest host has {goal.largest_host:.2%} of the pages" if goal.largest_host else ""
    if 0.0 < goal.addresses < goal.hosts:
        addresses = f"{goal.addresses:,.0f} address{'' if round(goal.addresses) == 1 else 'es'}"
        largest += f"; {goal.hosts:,.0f} hosts at {addresses}"
    return (
        f"{goal.page_bytes / KIB:,.0f} KiB (the largest {goal.largest_bytes / KIB:,.0f}), compressed to "
        f"{goal.compressed:.0%}, {goal.coded:.0%} sent compressed; {goal.links:,.0f} links, {goal.urls:.3g} new URLs of "
        f"{goal.url_bytes:,.0f} characters, {goal.directories:.3g} directories per host; {goal.latency:.3g} s, "
        f"{goal.secure:.0%} over TLS, {goal.handshakes:.2g} handshakes{largest}"
    )


def _scaled(cost: CostRange, units: Scale) -> str:
    """Format a range in the largest unit that does not exceed its middle value, or else in the smallest unit."""
    size, name = next((unit for unit in units if cost.mid >= unit[0]), units[-1])
    return _range(cost * (1 / size), name)


def _range(cost: CostRange, unit: str) -> str:
    digits = 2 if cost.mid < 10 and unit else 0
    text = f"{cost.mid:,.{digits}f} {unit}".rstrip()
    return text if cost.low == cost.high else f"{text} ({cost.low:,.{digits}f} to {cost.high:,.{digits}f})"
