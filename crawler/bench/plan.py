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
from typing import Any, NamedTuple

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
from crawler.cli.parsing import OptionParser, Parser, PlainHelp
from crawler.config import PolitenessConfig
from crawler.errors import UsageError
from crawler.input_files import read_bytes
from crawler.typed_number import within

POLITENESS = PolitenessConfig()
Scale = tuple[tuple[float, str], ...]  # pairs (size of a unit, its name), the largest unit first
_TIMES: Scale = ((DAY, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s"))
_SIZES: Scale = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_SPEEDS: Scale = ((125e3, "Mbit/s"), (125.0, "kbit/s"))


def main(_command: str, argv: list[str]) -> int:
    """Print the plan for a goal and return 0.

    Raises:
        UsageError: an argument is impossible, or the file of unit costs or the sample cannot be read.
    """
    parser = Parser(prog="crawler plan", description=__doc__, formatter_class=PlainHelp, allow_abbrev=False)
    _add_arguments(parser)
    args = parser.parse_args(argv)
    if args.sample is not None:
        parser.set_defaults(**facts(args.sample))
        args = parser.parse_args(argv)
    units = REFERENCE if args.units is None else read_units(args.units)
    goal = goal_of(args)
    print(told(plan(goal, units), goal, units))
    return 0


class _Number(NamedTuple):
    """A numeric argument of the command: a field of `Goal`.

    `name` is the flag. `field` is the name of the field in `Goal`; if it is empty, the field has the same
    name as the flag. The value of the field is the argument times `factor`.
    """

    name: str
    default: float
    metavar: str
    help: str
    field: str = ""
    factor: float = 1.0
    is_share: bool = False
    is_needed: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def read(self, value: float) -> float:
        """Return the value of the field.

        Raises:
            UsageError: the value is impossible.
        """
        least, most = (-math.inf if self.is_needed else 0), (1 if self.is_share else math.inf)
        within(self.flag, value, least, most, above=0 if self.is_needed else -math.inf)
        return value if self.factor == 1.0 else value * self.factor


_NEEDED: dict[str, Any] = {"is_needed": True}
_SHARE: dict[str, Any] = {"is_share": True}
_NUMBERS = (
    _Number("hosts", 0.0, "N", "hosts to fetch them from (needed without --sample)", **_NEEDED),
    _Number("largest_host", 0.0, "X", "share of the pages on the largest host (default: equal shares)", **_SHARE),
    _Number("addresses", 0.0, "N", "IP addresses of the hosts (each host has its own)"),
    _Number("known_hosts", 0.0, "N", "hosts seen in links (same as --hosts)"),
    _Number("rate", 0.0, "X", "pages per second (as fast as --machines allow)"),
    _Number("refresh", 0.0, "X", "additional fetches of known pages per second (0)"),
    _Number("changed", 0.2, "X", "share of these that find a changed page (0.2)", **_SHARE),
    _Number("machines", 0, "N", "number of machines (as many as needed)"),
    _Number("cores", 8, "N", "cores per machine (8)", **_NEEDED),
    _Number("memory", 32.0, "GIB", "memory per machine (32)", factor=GIB, **_NEEDED),
    _Number("disk", 2048.0, "GIB", "disk per machine (2048)", factor=GIB, **_NEEDED),
    _Number("bandwidth", 1000.0, "MBIT", "bandwidth per machine (1000)", factor=125e3, **_NEEDED),
    _Number("page_size", 28.0, "KIB", "mean size of a decoded page (28)", "page_bytes", KIB, **_NEEDED),
    _Number("largest", 10240.0, "KIB", "size of the largest page (10240)", "largest_bytes", KIB),
    _Number("largest_tags", 200_000.0, "N", "tags in the largest page (200000)"),
    _Number("compressed", 0.2, "X", "compressed size as a share of the decoded size (0.2)", **_SHARE),
    _Number("coded", 0.8, "X", "share of pages sent with a content coding (0.8)", **_SHARE),
    _Number("links", 60.0, "N", "links per page (60)"),
    _Number("urls", 10.0, "N", "distinct new URLs found per page (10)"),
    _Number("directories", 20.0, "N", "directories with pages per host (20)"),
    _Number("url_length", 77.0, "N", "mean length of a URL in bytes (77)", "url_bytes"),
    _Number("latency", 0.3, "S", "mean response time in seconds (0.3)", **_NEEDED),
    _Number("delay", float(POLITENESS.delay), "S", "minimum gap between requests to a host (1)"),
    _Number("delay_factor", POLITENESS.delay_factor, "X", "minimum gap as a multiple of the response time (10)"),
    _Number("secure", 0.8, "X", "share of pages fetched over TLS (0.8)", **_SHARE),
    _Number("handshakes", 0.2, "X", "full TLS handshakes per page (0.2)"),
    _Number("usable", 0.7, "X", "usable share of each core (0.7)", is_share=True, is_needed=True),
    _Number("rendered", 0.0, "X", "share of pages shown in a browser (0)", **_SHARE),
    _Number("render_cpu", 0.0, "S", "CPU seconds of a rendering (those of the unit costs)"),
)  # fmt: skip
_PAGES = _Number("pages", 0.0, "N", "pages to fetch, such as 1e9", **_NEEDED)


def _add_arguments(parser: OptionParser) -> None:
    parser.add_argument(_PAGES.flag, type=float, required=True, metavar="N", help=_PAGES.help)
    parser.option(
        "--sample", Path, "crawl whose facts replace the defaults of the other arguments", metavar="DIR"
    )
    for each in _NUMBERS:
        kind = type(each.default)
        parser.add_argument(each.flag, type=kind, default=each.default, metavar=each.metavar, help=each.help)
    parser.option("--units", Path, "unit costs written by `crawler bench units --out`")


def goal_of(args: argparse.Namespace) -> Goal:
    """Return the goal that the arguments describe.

    Raises:
        UsageError: the goal is impossible.
    """
    values: dict[str, Any] = {
        each.field or each.name: each.read(getattr(args, each.name)) for each in (_PAGES, *_NUMBERS)
    }
    return Goal(**values | {"urls": max(1.0, values["urls"])})


def read_units(path: Path) -> UnitCosts:
    """Read unit costs from a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(read_bytes(path), type=UnitCosts)
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
    size = goal.page_bytes / KIB
    largest = f"; the largest host has {goal.largest_host:.2%} of the pages" if goal.largest_host else ""
    if 0.0 < goal.addresses < goal.hosts:
        addresses = f"{goal.addresses:,.0f} address{'' if round(goal.addresses) == 1 else 'es'}"
        largest += f"; {goal.hosts:,.0f} hosts at {addresses}"
    return (
        f"{size:,.{0 if size >= 10 else 2}f} KiB (the largest {goal.largest_bytes / KIB:,.0f}), compressed to "
        f"{goal.compressed:.0%}, {goal.coded:.0%} sent compressed; {goal.links:,.0f} links, {goal.urls:.3g} new URLs of "
        f"{goal.url_bytes:,.0f} characters, {goal.directories:.3g} directories per host; {goal.latency:.3g} s, "
        f"{goal.secure:.0%} over TLS, {goal.handshakes:.2g} handshakes{largest}"
    )


def _scaled(cost: CostRange, units: Scale) -> str:
    """Format a range in the largest unit that its middle reaches; if it reaches none, in the smallest unit."""
    size, name = next((unit for unit in units if cost.mid >= unit[0]), units[-1])
    return _range(cost * (1 / size), name)


def _range(cost: CostRange, unit: str) -> str:
    digits = 2 if cost.mid < 10 and unit else 0
    text = f"{cost.mid:,.{digits}f} {unit}".rstrip()
    return text if cost.low == cost.high else f"{text} ({cost.low:,.{digits}f} to {cost.high:,.{digits}f})"
